//! One connection as the driver keeps it: made when it is needed, settled after every transaction, made anew
//! when it is lost.

use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error as PgError, Statement as Prepared};

use super::connect::{Cause, Connector};
use super::error::{Failure, commit_error, is_of_standby, is_passing, open_commit, store_error};
use super::migrate;
use super::options::{GRACE, Migrations, PostgresOptions};
use super::pipeline::together;
use super::route::Route;
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
    route: Route,
    /// What begins a transaction on it.
    begin: String,
    prepared: HashMap<(usize, usize), Prepared>,
    driving: Driving,
    /// When it was made, if the server was a standby then.
    standby_since: Option<Instant>,
}

/// For how long reads stay at a standby before they connect again: by then the address may lead to the
/// primary.
const STANDBY: Duration = Duration::from_secs(10);

/// What a connection must lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A server, be it a standby.
    Any,
    /// A server that can be written to.
    Primary,
}

/// What moves the bytes of a connection. Dropping it closes the connection at once: left alone, it would wait
/// for the answer to what was asked last, which on a dead connection never comes.
struct Driving(JoinHandle<()>);

impl Driving {
    /// Waits until the connection is closed.
    async fn ended(&mut self) {
        // If it ended in a panic, it ended.
        let _ = (&mut self.0).await;
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// When the server was last heard.
struct Heard(Mutex<Instant>);

impl Heard {
    fn now(&self) {
        *self.0.lock() = Instant::now();
    }

    /// Does what asks the server, for as long as it answers: gives up after this long without an answer.
    async fn patiently<T>(
        &self,
        patience: Option<Duration>,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let Some(patience) = patience else { return work.await };
        self.now();
        let mut work = pin!(work);
        loop {
            let last = *self.0.lock();
            // Without an instant that is so far away, there is no limit.
            let Some(deadline) = last.checked_add(patience) else { return work.await };
            match timeout_at(deadline, &mut work).await {
                Ok(done) => return done,
                Err(_) if *self.0.lock() > last => {}
                Err(_) => return Err(Failure::silent(patience)),
            }
        }
    }
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
    mode: TxMode,
    connector: Connector,
    options: Arc<PostgresOptions>,
    time: Arc<Timekeeper>,
    tables: Tables,
    heard: Heard,
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
        let heard = Heard(Mutex::new(Instant::now()));
        Self { mode, connector, options, time, tables, heard, connection: None }
    }

    /// Works until nobody can ask any more.
    pub(super) async fn serve(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        while let Some(Order { work, reply }) = orders.recv().await {
            let done = self.obey(work).await;
            if matches!(done, Err(Failure::Lost(_) | Failure::Silent(_))) {
                self.connection = None;
            }
            // A caller that does not wait wants no answer.
            let _ = reply.try_send(done);
        }
        if let Some(Connection { client, prepared, mut driving, .. }) = self.connection.take() {
            drop((prepared, client));
            driving.ended().await;
        }
    }

    async fn obey(&mut self, work: Work) -> Done {
        match work {
            Work::Connect => self.connect(Role::Any).await.map(|()| Vec::new()),
            Work::Begin(batch, touch) => self.begin(&batch, touch).await,
            Work::Go(batch) => {
                let Some(connection) = &mut self.connection else {
                    return Err(Failure::lost("the connection is lost: call again"));
                };
                let go = connection.go(&self.options, &self.heard, None, &batch);
                self.heard.patiently(self.options.patience(), go).await
            }
            Work::Commit => self.commit().await,
            Work::RollBack => self.roll_back().await,
        }
    }

    /// A connection that was lost while nobody used it is made again: nothing of the transaction can have
    /// been done. So is one that would write to a server which can only be read. One that fell silent has
    /// cost the caller as long as a call may take.
    async fn begin(&mut self, batch: &[Statement], touch: Touch) -> Done {
        let role = match self.mode {
            TxMode::Read => Role::Any,
            TxMode::Write => Role::Primary,
        };
        self.connection
            .take_if(|connection| connection.standby_since.is_some_and(|since| since.elapsed() > STANDBY));
        let was_used = self.connection.as_ref().is_some_and(|connection| !connection.client.is_closed());
        self.connect(role).await?;
        match self.try_begin(batch, touch).await {
            Err(Failure::Lost(_)) if was_used => {
                self.connection = None;
                self.connect(role).await?;
                self.try_begin(batch, touch).await
            }
            done => done,
        }
    }

    async fn try_begin(&mut self, batch: &[Statement], touch: Touch) -> Done {
        let Some(connection) = &mut self.connection else {
            return Err(Failure::lost("the connection is lost: call again"));
        };
        let heard = &self.heard;
        let begin = async {
            let stale = self.time.is_stale().then_some(&*self.time);
            match connection.route {
                Route::Direct => connection.go(&self.options, heard, Some(Begin { stale }), batch).await,
                Route::Pooled => {
                    connection.begin_behind_pooler(&self.options, heard, stale, batch, touch).await
                }
            }
        };
        heard.patiently(self.options.patience(), begin).await.map_err(|failure| match failure {
            // The next transaction would fail there, too: it must look where the address leads to by now.
            Failure::Refused(error) if self.mode == TxMode::Write && is_of_standby(&error) => {
                Failure::Lost(error)
            }
            failure => failure,
        })
    }

    async fn commit(&mut self) -> Done {
        let Some(connection) = self.connection.as_ref().filter(|connection| !connection.client.is_closed())
        else {
            return Err(Failure::lost(
                "the connection was lost before the commit: nothing was changed, call again",
            ));
        };
        let asked = Instant::now();
        let commit = async {
            let committed = connection.client.batch_execute("COMMIT").await;
            committed.map_err(|error| commit_error(error, asked.elapsed(), self.options.statement_timeout))
        };
        match self.options.patience() {
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
        let undone = self.heard.patiently(self.options.patience(), undo).await;
        undone.map_err(|failure| Failure::Lost(failure.into()))?;
        Ok(Vec::new())
    }

    /// Sees to it that there is a connection to tables of this version. One that is there is taken whatever
    /// it leads to.
    async fn connect(&mut self, role: Role) -> Result<(), Failure> {
        if self.connection.as_ref().is_some_and(|connection| !connection.client.is_closed()) {
            return Ok(());
        }
        self.connection = None;
        let limit = self.options.connect_timeout;
        let deadline = if limit.is_zero() { None } else { Instant::now().checked_add(limit) };
        let mut pause = PAUSES.0;
        loop {
            let (error, may_pass) = match self.attempt(role, deadline).await {
                Ok(connection) => {
                    self.connection = Some(connection);
                    self.tables = Tables::Known;
                    return Ok(());
                }
                Err(NotConnected::Refused(error)) => return Err(Failure::Refused(error)),
                Err(NotConnected::Failed(cause)) => {
                    let may_pass = is_passing(&*cause);
                    (unreachable(cause), may_pass)
                }
                // It may be promoted, or the address may lead to the primary soon.
                Err(NotConnected::Standby) => (standby(), true),
            };
            let over = deadline.is_some_and(|deadline| Instant::now() + pause >= deadline);
            if over || !may_pass {
                return Err(Failure::Lost(error));
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Sees to it that the server tells the connection of notifications on this channel.
    pub(super) async fn listen(&mut self, channel: &str) -> Result<(), Failure> {
        self.connect(Role::Primary).await?;
        let Some(connection) = &self.connection else {
            return Err(Failure::lost("the connection is lost: call again"));
        };
        if connection.route == Route::Pooled {
            // The server process would tell whichever program it is handed to next.
            self.connection = None;
            let text = "a pooler is between the store and the server, and may lose notifications: listen with a store that \
                        connects to the server directly";
            return Err(Failure::Refused(StoreError::new(StoreErrorKind::Backend, text)));
        }
        let text = format!("LISTEN \"{channel}\"");
        let listen = async { connection.client.batch_execute(&text).await.map_err(Failure::of) };
        let listens = self.heard.patiently(self.options.patience(), listen).await;
        if listens.is_err() {
            self.connection = None;
        }
        listens
    }

    /// Waits until the connection is lost. Nothing is sent on one that listens, so one that died in silence
    /// would never be noticed: now and then the server is asked for nothing.
    pub(super) async fn lost(&mut self) {
        let Some(Connection { client, mut driving, .. }) = self.connection.take() else { return };
        while timeout(self.options.quiet(), driving.ended()).await.is_err() {
            if !matches!(timeout(GRACE, client.batch_execute("")).await, Ok(Ok(()))) {
                return;
            }
        }
    }

    async fn attempt(&self, role: Role, deadline: Option<Instant>) -> Result<Connection, NotConnected> {
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
        let driving = Driving(tokio::spawn(driving));
        let settle = async {
            let server = Server::ask(&client).await?;
            let route = Route::of(&client, server.process).await;
            if route == Route::Direct {
                client.batch_execute(&self.options.session()).await?;
            }
            self.time.measure(&client).await?;
            Ok((route, server.is_standby))
        };
        let (route, is_standby) = self.answered(deadline, settle).await?.map_err(failed)?;
        if is_standby && role == Role::Primary {
            return Err(NotConnected::Standby);
        }
        let schema = &self.options.schema;
        match (self.tables, self.options.migrations) {
            // It may have to wait for another one that does the same.
            (Tables::New, Migrations::Apply) if !is_standby => {
                self.answered(None, migrate::migrate(&mut client, schema)).await?
            }
            _ => self.answered(deadline, migrate::check(&client, schema)).await?,
        }
        .map_err(|error| match is_passing(&error) {
            true => NotConnected::Failed(Box::new(error)),
            false => NotConnected::Refused(error),
        })?;
        let begin = self.options.begin(self.mode, route);
        let standby_since = is_standby.then(Instant::now);
        Ok(Connection { client, route, begin, prepared: HashMap::new(), driving, standby_since })
    }

    /// Does what settles a new connection, until the deadline, or for as long as the server may take for a
    /// statement.
    async fn answered<T>(
        &self,
        deadline: Option<Instant>,
        work: impl Future<Output = T>,
    ) -> Result<T, NotConnected> {
        let patience = self.options.patience().and_then(|patience| Instant::now().checked_add(patience));
        match deadline.or(patience) {
            None => Ok(work.await),
            Some(deadline) => timeout_at(deadline, work)
                .await
                .map_err(|_| NotConnected::Failed("the server did not answer in time".into())),
        }
    }
}

/// What a server says of itself when it was connected to.
struct Server {
    process: Option<i32>,
    is_standby: bool,
}

impl Server {
    async fn ask(client: &Client) -> Result<Self, PgError> {
        let rows = client.query_typed("SELECT pg_backend_pid(), pg_is_in_recovery()", &[]).await?;
        let Some(row) = rows.first() else { return Ok(Self { process: None, is_standby: false }) };
        Ok(Self { process: row.try_get(0)?, is_standby: row.try_get(1)? })
    }
}

enum NotConnected {
    /// There is no connection.
    Failed(Cause),
    /// There is one, and it leads to a standby.
    Standby,
    /// There is one, and what it leads to is no use.
    Refused(StoreError),
}

fn failed(error: PgError) -> NotConnected {
    NotConnected::Failed(Box::new(error))
}

fn standby() -> StoreError {
    let text = "the server is a standby, which can only be read: see to it that the address leads to the primary, and call again";
    StoreError::new(StoreErrorKind::ReadOnly, text)
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

/// A transaction is begun along with what is sent.
#[derive(Clone, Copy)]
struct Begin<'t> {
    /// Reads the server's clock, too, before the transaction.
    stale: Option<&'t Timekeeper>,
}

/// What is sent when it is polled first.
type Sent<'a, T> = Pin<Box<dyn Future<Output = Result<T, PgError>> + Send + 'a>>;

impl Connection {
    /// Sends nothing ahead that must not be done outside of the transaction: no setting of the session
    /// refuses a write that follows a failed BEGIN. The clock is read before, because the pooler may take the
    /// end of its answer for the end of all.
    async fn begin_behind_pooler(
        &mut self,
        options: &PostgresOptions,
        heard: &Heard,
        stale: Option<&Timekeeper>,
        batch: &[Statement],
        touch: Touch,
    ) -> Done {
        if let Some(time) = stale {
            time.measure(&self.client).await.map_err(Failure::of_waiting)?;
            heard.now();
        }
        let begin = Some(Begin { stale: None });
        if touch == Touch::Reads {
            return self.go(options, heard, begin, batch).await;
        }
        self.go(options, heard, begin, &[]).await?;
        self.go(options, heard, None, batch).await
    }

    /// Sends everything at once, and collects the answers.
    async fn go(
        &mut self,
        options: &PostgresOptions,
        heard: &Heard,
        begin: Option<Begin<'_>>,
        batch: &[Statement],
    ) -> Done {
        if self.route == Route::Direct {
            self.prepare(options, batch).await.map_err(Failure::of_waiting)?;
        }
        let (asked, begins) =
            (Instant::now(), begin.map_or(0, |begin| 1 + usize::from(begin.stale.is_some())));
        heard.now();
        let client = &self.client;
        let mut sent: Vec<Sent<'_, Option<Answer>>> = Vec::with_capacity(batch.len() + 2);
        if let Some(Begin { stale }) = begin {
            if let Some(time) = stale {
                sent.push(Box::pin(async { time.measure(client).await.map(|()| None) }));
            }
            sent.push(Box::pin(async { client.batch_execute(&self.begin).await.map(|()| None) }));
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
        let sent = sent.into_iter().map(|sent| {
            Box::pin(async {
                let answer = sent.await;
                heard.now();
                answer
            }) as Sent<'_, Option<Answer>>
        });
        // The first error is the cause of those that follow.
        let answers = together(sent.collect()).await.into_iter().enumerate().map(|(at, answer)| {
            answer.map_err(|error| match at < begins {
                true => Failure::of_waiting(error),
                false => Failure::of_limited(error, asked.elapsed(), options.statement_timeout),
            })
        });
        answers.filter_map(Result::transpose).collect()
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
