//! One connection: sends batches of statements, each in one round trip.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error as PgError, Statement as Prepared};

use super::error::{Failure, commit_error, flush_error, open_commit};
use super::host::{execute_script, execute_text};
use super::liveness::Liveness;
use super::options::{Beginnings, PostgresOptions};
use super::pipeline::join_all;
use super::request::{Opening, Reply, Then, Unannounced};
use super::route::Route;
use super::seat::look;
use super::tick_lock::{COMMIT, FLUSH, enter};
use super::time::Timekeeper;
use super::wire::{Answer, Statement, Touch};
use crate::store::sql::renamed::Identity;

pub(super) struct Connection {
    pub(super) client: Arc<Client>,
    pub(super) route: Route,
    /// What begins transactions on it.
    beginnings: Beginnings,
    prepared: HashMap<Identity, Prepared>,
    pub(super) driving: Driving,
    /// When it was made, if the server was a standby then.
    pub(super) standby_since: Option<Instant>,
    /// The pending end of the previous transaction.
    ending: Option<Ending>,
    /// A pending `NOTIFY`.
    announcing: Option<(Ending, Unannounced)>,
}

/// How long the next transaction waits for the response to a `NOTIFY`. The server sends one notification at a time, so
/// this one may wait behind another program's commit.
const ANNOUNCING: Duration = Duration::from_millis(50);

/// The pending response to something that was sent without waiting.
type Ending = JoinHandle<Result<(), PgError>>;

/// The task that moves the bytes of a connection. Dropping it closes the connection at once. Otherwise it would wait
/// for the response to the last request, which never comes on a dead connection.
pub(super) struct Driving(JoinHandle<()>);

impl Driving {
    pub(super) fn spawn(bytes: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(bytes))
    }

    /// Waits until the connection is closed.
    pub(super) async fn ended(&mut self) {
        // If it ended in a panic, it ended.
        let _ = (&mut self.0).await;
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A transaction is begun along with what is sent.
#[derive(Clone, Copy)]
pub(super) struct Begin<'t> {
    pub(super) opening: Opening,
    /// Also reads the server's clock, before the transaction, if this is set.
    pub(super) stale: Option<&'t Timekeeper>,
}

/// A request that is sent when first polled.
type Sent<'a, T> = Pin<Box<dyn Future<Output = Result<T, PgError>> + Send + 'a>>;

impl Connection {
    pub(super) fn new(
        client: Client,
        driving: Driving,
        route: Route,
        beginnings: Beginnings,
        standby_since: Option<Instant>,
    ) -> Self {
        Self {
            client: Arc::new(client),
            route,
            beginnings,
            prepared: HashMap::new(),
            driving,
            standby_since,
            ending: None,
            announcing: None,
        }
    }

    /// Closes it, and waits until the server was notified.
    pub(super) async fn close(self) {
        self.hang_up().ended().await;
    }

    /// Closes it. The returned task ends when the server was notified.
    pub(super) fn hang_up(self) -> Driving {
        self.driving
    }

    /// Returns true if it was lost, as far as the driver knows.
    pub(super) fn is_lost(&self) -> bool {
        self.client.is_closed()
    }

    /// Sends a text that runs as a whole, without waiting for the response. The next message is sent along with it.
    pub(super) async fn end_beside(&mut self, text: String) {
        let client = Arc::clone(&self.client);
        self.ending = Some(tokio::spawn(async move { client.batch_execute(&text).await }));
        look().await;
    }

    /// Sends a text that is a transaction of its own, without waiting for the response.
    pub(super) async fn announce_beside(&mut self, text: String, unannounced: Unannounced) {
        let client = Arc::clone(&self.client);
        let announcing = tokio::spawn(async move { client.batch_execute(&text).await });
        self.announcing = Some((announcing, unannounced));
        look().await;
    }

    /// Waits for the response to [`Self::announce_beside`]. Returns false if it has not come in time, or was an error.
    /// Then nothing else may be sent.
    pub(super) async fn has_announced(&mut self) -> bool {
        let Some((announcing, unannounced)) = self.announcing.take() else { return true };
        let has_announced = matches!(timeout(ANNOUNCING, announcing).await, Ok(Ok(Ok(()))));
        if has_announced {
            unannounced.announced();
        }
        has_announced
    }

    /// Waits for the response to [`Self::end_beside`]. If that failed, no later call can rely on the connection.
    pub(super) async fn ended(&mut self) -> Result<(), Failure> {
        match self.ending.take() {
            None => Ok(()),
            Some(ending) => match ending.await {
                Ok(ended) => ended.map_err(|error| Failure::Lost(Failure::of(error).into())),
                Err(_) => Err(Failure::lost("the connection is lost: call again")),
            },
        }
    }

    /// Returns what can be sent along with a batch that `then` should follow. A pooler treats the end of the first
    /// response as the end of all.
    pub(super) fn along(&self, then: Then) -> Then {
        if self.route == Route::Direct { then } else { Then::More }
    }

    /// Begins a transaction with a batch. Behind a pooler, nothing is sent ahead that must not run outside the
    /// transaction: no session setting refuses a write that follows a failed BEGIN. The clock is read first, because
    /// the pooler may treat the end of its response as the end of all.
    pub(super) async fn begin(
        &mut self,
        options: &PostgresOptions,
        liveness: &Liveness,
        begin: Begin<'_>,
        batch: &[Statement],
        touch: Touch,
        then: Then,
    ) -> Reply {
        if self.route == Route::Direct {
            return self.run(options, liveness, Some(begin), batch, then).await;
        }
        let Begin { opening, stale } = begin;
        if let Some(time) = stale {
            time.measure(&self.client).await.map_err(Failure::of_waiting)?;
            liveness.heard();
        }
        let begin = Some(Begin { opening, stale: None });
        if touch == Touch::Reads {
            return self.run(options, liveness, begin, batch, Then::More).await;
        }
        self.run(options, liveness, begin, &[], Then::More).await?;
        self.run(options, liveness, None, batch, Then::More).await
    }

    /// Sends everything at once, and collects the responses. Behind a pooler, no commit is sent along.
    pub(super) async fn run(
        &mut self,
        options: &PostgresOptions,
        liveness: &Liveness,
        begin: Option<Begin<'_>>,
        batch: &[Statement],
        then: Then,
    ) -> Reply {
        if self.route == Route::Direct {
            self.prepare(options, batch).await.map_err(Failure::of_waiting)?;
        }
        let (asked, begins) =
            (Instant::now(), begin.map_or(0, |begin| 1 + usize::from(begin.stale.is_some())));
        liveness.heard();
        let client = &*self.client;
        let (batch, behind) = then.split(batch);
        // The server responds to each message separately, so a tick's first commands are sent with the BEGIN.
        let enters = begin.is_some() && batch.first().is_some_and(Statement::is_script);
        let mut sent: Vec<Sent<'_, Option<Answer>>> = Vec::with_capacity(batch.len() + 4);
        if let Some(Begin { opening, stale }) = begin {
            if let Some(time) = stale {
                sent.push(Box::pin(async { time.measure(client).await.map(|()| None) }));
            }
            let mut text = Cow::Borrowed(self.beginnings.of(opening));
            if enters {
                text.to_mut().push_str(&options.schema.statement(enter(options.idle_in_transaction_timeout)));
            }
            sent.push(Box::pin(async move { client.batch_execute(&text).await.map(|()| None) }));
        }
        for (at, statement) in batch.iter().enumerate() {
            sent.push(match self.prepared.get(&Identity::of(statement.sql)) {
                _ if at == 0 && enters => Box::pin(async { Ok(Some(Answer::new())) }),
                _ if statement.is_script() => {
                    let text = enter(options.idle_in_transaction_timeout);
                    Box::pin(execute_script(client, options.schema.statement(text)))
                }
                Some(prepared) => Box::pin(execute(client, prepared, statement)),
                None => Box::pin(execute_text(client, options.schema.statement(statement.sql), statement)),
            });
        }
        let ends = [(then != Then::More, COMMIT), (then == Then::Flush, FLUSH)];
        for (_, text) in ends.into_iter().filter(|(follows, _)| *follows) {
            sent.push(Box::pin(async move { client.batch_execute(text).await.map(|()| None) }));
        }
        for statement in behind {
            if let Some(prepared) = self.prepared.get(&Identity::of(statement.sql)) {
                sent.push(Box::pin(execute(client, prepared, statement)));
            }
        }
        let sent = sent.into_iter().map(|sent| {
            Box::pin(async {
                let answer = sent.await;
                liveness.heard();
                answer
            }) as Sent<'_, Option<Answer>>
        });
        // The first error is the cause of the later ones.
        let answers = join_all(sent.collect()).await.into_iter().enumerate().map(|(at, answer)| {
            let waits = at < begins || batch.get(at - begins).is_some_and(Statement::only_waits);
            let (took, limit) = (asked.elapsed(), options.statement_timeout);
            answer.map_err(|error| match at.checked_sub(begins + batch.len()) {
                Some(0) => commit_error(error, took, limit),
                Some(_) => flush_error(error),
                // The server may have continued, and committed.
                None if then != Then::More && error.as_db_error().is_none() => {
                    Failure::Lost(open_commit(&error).with_source(error))
                }
                None if waits => Failure::of_waiting(error),
                None => Failure::of_limited(error, took, limit),
            })
        });
        answers.filter_map(Result::transpose).collect()
    }

    /// Commits a record and waits for its flush, and so for everything committed before. Behind a pooler it may reach
    /// another server process, whose flush covers the same log.
    pub(super) async fn flush(&self) -> Result<(), Failure> {
        let text = match self.route {
            Route::Direct => FLUSH.to_owned(),
            Route::Pooled => format!("{}{FLUSH};COMMIT", self.beginnings.of(Opening::Write)),
        };
        self.client.batch_execute(&text).await.map_err(flush_error)
    }

    /// Prepares the statements that are new to this connection, all in one round trip.
    async fn prepare(&mut self, options: &PostgresOptions, batch: &[Statement]) -> Result<(), PgError> {
        let mut missing: Vec<&Statement> = Vec::new();
        for statement in batch.iter().filter(|statement| !statement.is_script()) {
            let known = self.prepared.contains_key(&Identity::of(statement.sql));
            if !known && missing.iter().all(|other| Identity::of(other.sql) != Identity::of(statement.sql)) {
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
        for (statement, prepared) in missing.iter().zip(join_all(sent).await) {
            self.prepared.insert(Identity::of(statement.sql), prepared?);
        }
        Ok(())
    }
}

async fn execute(
    client: &Client,
    prepared: &Prepared,
    statement: &Statement,
) -> Result<Option<Answer>, PgError> {
    let values: Vec<&(dyn ToSql + Sync)> = statement.params.iter().map(|param| &*param.value as _).collect();
    client.query(prepared, &values).await.map(Some)
}
