//! One connection as the driver keeps it: made when it is needed, settled after every transaction, made anew when it is lost.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error as PgError, Statement as Prepared};

use super::connect::{Cause, Connector};
use super::error::{Failure, commit_error, is_passing, open_commit, store_error};
use super::migrate;
use super::options::{Migrations, Pooling, PostgresOptions};
use super::pipeline::together;
use super::time::Timekeeper;
use super::wire::{Answer, Statement, Touch};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::TxMode;

/// What a caller wants done.
#[derive(Debug)]
pub(super) enum Work {
    /// Connects, and looks at the tables.
    Connect,
    /// Begins a transaction with these statements.
    Begin(Vec<Statement>, Touch),
    /// Goes on with it.
    Go(Vec<Statement>),
    /// Commits it.
    Commit,
    /// Ends it; nobody waits for how.
    RollBack,
}

pub(super) type Done = Result<Vec<Answer>, Failure>;

/// Work, and where its answer goes.
pub(super) struct Order {
    pub(super) work: Work,
    pub(super) reply: std::sync::mpsc::SyncSender<Done>,
}

/// The first and the longest pause between attempts to connect.
pub(super) const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

struct Connection {
    client: Client,
    prepared: HashMap<(usize, usize), Prepared>,
    driving: JoinHandle<()>,
}

/// Whether opening has looked at the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tables {
    /// They may have to be made.
    New,
    /// They were there, and must be.
    Known,
}

pub(super) struct Link {
    connector: Connector,
    options: Arc<PostgresOptions>,
    time: Arc<Timekeeper>,
    tables: Tables,
    begin: String,
    connection: Option<Connection>,
}

impl Link {
    pub(super) fn new(
        mode: TxMode,
        connector: Connector,
        options: Arc<PostgresOptions>,
        time: Arc<Timekeeper>,
    ) -> Self {
        let tables = if mode == TxMode::Write { Tables::New } else { Tables::Known };
        let begin = options.begin(mode);
        Self { connector, options, time, tables, begin, connection: None }
    }

    /// Works until nobody can ask any more.
    pub(super) async fn serve(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        while let Some(Order { work, reply }) = orders.recv().await {
            let done = self.obey(work).await;
            if matches!(done, Err(Failure::Lost(_))) {
                self.connection = None;
            }
            // A caller that does not wait wants no answer.
            let _ = reply.try_send(done);
        }
        if let Some(Connection { client, prepared, driving }) = self.connection.take() {
            drop((prepared, client));
            let _ = driving.await;
        }
    }

    async fn obey(&mut self, work: Work) -> Done {
        match work {
            Work::Connect => self.connect().await.map(|()| Vec::new()),
            Work::Begin(batch, touch) => self.begin(&batch, touch).await,
            Work::Go(batch) => {
                let Some(connection) = &mut self.connection else {
                    return Err(Failure::lost("the connection is lost: call again"));
                };
                patiently(self.options.patience(batch.len()), connection.go(&self.options, None, &batch))
                    .await
            }
            Work::Commit => self.commit().await,
            Work::RollBack => self.roll_back().await,
        }
    }

    /// A connection that was lost while nobody used it is made anew: nothing of the transaction can have been done.
    async fn begin(&mut self, batch: &[Statement], touch: Touch) -> Done {
        let was_used = self.connection.as_ref().is_some_and(|connection| !connection.client.is_closed());
        self.connect().await?;
        match self.try_begin(batch, touch).await {
            Err(Failure::Lost(_)) if was_used => {
                self.connection = None;
                self.connect().await?;
                self.try_begin(batch, touch).await
            }
            done => done,
        }
    }

    async fn try_begin(&mut self, batch: &[Statement], touch: Touch) -> Done {
        let Some(connection) = &mut self.connection else {
            return Err(Failure::lost("the connection is lost: call again"));
        };
        let patience = self.options.patience(batch.len() + 1);
        patiently(patience, async {
            let stale = self.time.is_stale().then_some(&*self.time);
            // Without the session's own guard, what writes is not sent before the transaction is known to be open.
            if self.options.pooling == Pooling::Transaction && touch == Touch::Writes {
                connection.go(&self.options, Some((&self.begin, stale)), &[]).await?;
                return connection.go(&self.options, None, batch).await;
            }
            connection.go(&self.options, Some((&self.begin, stale)), batch).await
        })
        .await
    }

    async fn commit(&mut self) -> Done {
        let Some(connection) = self.connection.as_ref().filter(|connection| !connection.client.is_closed())
        else {
            return Err(Failure::lost(
                "the connection was lost before the commit: nothing was changed, call again",
            ));
        };
        let commit = async { connection.client.batch_execute("COMMIT").await.map_err(commit_error) };
        match self.options.patience(1) {
            None => commit.await,
            Some(patience) => timeout(patience, commit).await.unwrap_or_else(|_| {
                Err(Failure::Lost(open_commit(format_args!("no answer in {patience:?}"))))
            }),
        }?;
        Ok(Vec::new())
    }

    async fn roll_back(&mut self) -> Done {
        let Some(connection) = &self.connection else { return Ok(Vec::new()) };
        let undo = async { connection.client.batch_execute("ROLLBACK").await.map_err(Failure::of) };
        patiently(self.options.patience(1), undo).await.map_err(|failure| Failure::Lost(failure.into()))?;
        Ok(Vec::new())
    }

    /// Sees to it that there is a connection to tables of this version.
    async fn connect(&mut self) -> Result<(), Failure> {
        if self.connection.as_ref().is_some_and(|connection| !connection.client.is_closed()) {
            return Ok(());
        }
        self.connection = None;
        let limit = self.options.connect_timeout;
        let deadline = if limit.is_zero() { None } else { Instant::now().checked_add(limit) };
        let mut pause = PAUSES.0;
        loop {
            let cause = match self.attempt(deadline).await {
                Ok(connection) => {
                    self.connection = Some(connection);
                    self.tables = Tables::Known;
                    return Ok(());
                }
                Err(NotConnected::Refused(error)) => return Err(Failure::Refused(error)),
                Err(NotConnected::Failed(cause)) => cause,
            };
            let over = deadline.is_some_and(|deadline| Instant::now() + pause >= deadline);
            if over || !is_passing(&*cause) {
                return Err(Failure::Lost(unreachable(cause)));
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Sees to it that the server tells the connection of notifications on this channel.
    pub(super) async fn listen(&mut self, channel: &str) -> Result<(), Failure> {
        self.connect().await?;
        let Some(connection) = &self.connection else {
            return Err(Failure::lost("the connection is lost: call again"));
        };
        let text = format!("LISTEN \"{channel}\"");
        let listen = async { connection.client.batch_execute(&text).await.map_err(Failure::of) };
        let listens = patiently(self.options.patience(1), listen).await;
        if listens.is_err() {
            self.connection = None;
        }
        listens
    }

    /// Waits until the connection is lost.
    pub(super) async fn lost(&mut self) {
        if let Some(Connection { driving, client, .. }) = self.connection.take() {
            // If it ended in a panic, it ended.
            let _ = driving.await;
            drop(client);
        }
    }

    async fn attempt(&self, deadline: Option<Instant>) -> Result<Connection, NotConnected> {
        // On a task of its own, a panic of the host's ends nothing but the attempt.
        let mut connecting = tokio::spawn(self.connector.connect());
        let made = match deadline {
            None => (&mut connecting).await,
            Some(deadline) => timeout_at(deadline, &mut connecting).await.unwrap_or_else(|_| {
                connecting.abort();
                Ok(Err(format!("no answer in {:?}", self.options.connect_timeout).into()))
            }),
        };
        let (mut client, driving) = match made {
            Ok(made) => made.map_err(NotConnected::Failed)?,
            Err(panic) => return Err(NotConnected::Failed(panic.into())),
        };
        let driving = tokio::spawn(driving);
        let settle = async {
            if let Some(session) = self.options.session() {
                client.batch_execute(&session).await?;
            }
            self.time.measure(&client).await
        };
        match self.options.patience(2) {
            None => settle.await.map_err(failed)?,
            Some(patience) => timeout(patience, settle)
                .await
                .map_err(|_| NotConnected::Failed(format!("no answer in {patience:?}").into()))?
                .map_err(failed)?,
        }
        let schema = &self.options.schema;
        match (self.tables, self.options.migrations) {
            (Tables::New, Migrations::Apply) => migrate::migrate(&mut client, schema).await,
            _ => migrate::check(&client, schema).await,
        }
        .map_err(|error| match is_passing(&error) {
            true => NotConnected::Failed(Box::new(error)),
            false => NotConnected::Refused(error),
        })?;
        Ok(Connection { client, prepared: HashMap::new(), driving })
    }
}

enum NotConnected {
    /// There is no connection.
    Failed(Cause),
    /// There is one, and what it leads to is no use.
    Refused(StoreError),
}

fn failed(error: PgError) -> NotConnected {
    NotConnected::Failed(Box::new(error))
}

fn unreachable(cause: Cause) -> StoreError {
    let cause = match cause.downcast::<PgError>() {
        Ok(error) => return store_error(*error),
        Err(cause) => cause,
    };
    match cause.downcast::<StoreError>() {
        Ok(error) => *error,
        Err(cause) => {
            let text = format!("PostgreSQL cannot be connected to: {cause}: check that the server runs");
            StoreError::new(StoreErrorKind::Io, text).with_source(cause)
        }
    }
}

async fn patiently<T>(
    patience: Option<Duration>,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    match patience {
        None => work.await,
        Some(patience) => timeout(patience, work).await.unwrap_or_else(|_| {
            Err(Failure::lost(format!(
                "the server did not answer in {patience:?}: the connection was given up"
            )))
        }),
    }
}

/// What is sent when it is polled first.
type Sent<'a, T> = Pin<Box<dyn Future<Output = Result<T, PgError>> + Send + 'a>>;

impl Connection {
    /// Sends everything at once, and collects the answers.
    async fn go(
        &mut self,
        options: &PostgresOptions,
        begin: Option<(&String, Option<&Timekeeper>)>,
        batch: &[Statement],
    ) -> Done {
        if options.pooling == Pooling::Session {
            self.prepare(options, batch).await.map_err(Failure::of)?;
        }
        let client = &self.client;
        let mut sent: Vec<Sent<'_, Option<Answer>>> = Vec::with_capacity(batch.len() + 2);
        if let Some((begin, stale)) = begin {
            if let Some(time) = stale {
                sent.push(Box::pin(async { time.measure(client).await.map(|()| None) }));
            }
            sent.push(Box::pin(async { client.batch_execute(begin).await.map(|()| None) }));
        }
        for statement in batch {
            sent.push(match self.prepared.get(&place(statement.sql)) {
                Some(prepared) => Box::pin(execute(client, prepared, statement)),
                None => Box::pin(super::host::execute_text(
                    client,
                    options.schema.statement(statement.sql),
                    statement,
                )),
            });
        }
        // The first error is the cause of those that follow.
        together(sent)
            .await
            .into_iter()
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()
            .map_err(Failure::of)
    }

    async fn prepare(&mut self, options: &PostgresOptions, batch: &[Statement]) -> Result<(), PgError> {
        let mut missing: Vec<&Statement> = Vec::new();
        for statement in batch {
            let known = self.prepared.contains_key(&place(statement.sql));
            if !known && missing.iter().all(|other| place(other.sql) != place(statement.sql)) {
                missing.push(statement);
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let client = &self.client;
        let mut sent: Vec<Sent<'_, Prepared>> = Vec::new();
        for statement in &missing {
            let text = options.schema.statement(statement.sql);
            let types: Vec<Type> = statement.params.iter().map(|param| param.kind.clone()).collect();
            sent.push(Box::pin(async move { client.prepare_typed(&text, &types).await }));
        }
        for (statement, prepared) in missing.iter().zip(together(sent).await) {
            self.prepared.insert(place(statement.sql), prepared?);
        }
        Ok(())
    }
}

/// The crate's statements are constants: where a text is tells which it is.
fn place(sql: &'static str) -> (usize, usize) {
    (sql.as_ptr() as usize, sql.len())
}

async fn execute(
    client: &Client,
    prepared: &Prepared,
    statement: &Statement,
) -> Result<Option<Answer>, PgError> {
    let values: Vec<&(dyn ToSql + Sync)> = statement.params.iter().map(|param| &*param.value as _).collect();
    client.query(prepared, &values).await.map(Some)
}
