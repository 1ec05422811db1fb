//! One connection: sends batches of statements, each in one round trip.

mod grouped;

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error as PgError, Statement as Prepared};

use super::alone::{Alone, gated};
use super::error::{Failure, flush_error, is_fatal};
use super::host::{execute_script, execute_text};
use super::liveness::Liveness;
use super::options::{Beginnings, PostgresOptions};
use super::part::Part;
use super::pipeline::{Pending, pipeline};
use super::request::{Opening, Reply, Then, Unannounced};
use super::route::Route;
use super::seat::look;
use super::tick_lock::{COMMIT, FLUSH, enter};
use super::time::Timekeeper;
use super::wire::{Answer, Statement, Touch};
use crate::store::sql::renamed::Identity;

pub(super) use self::grouped::Member;

pub(super) struct Connection {
    pub(super) client: Arc<Client>,
    pub(super) route: Route,
    /// What begins transactions on it.
    beginnings: Beginnings,
    /// By statement, and by whether it is the form that is sent alone.
    prepared: HashMap<(Identity, bool), Prepared>,
    alone: Alone,
    /// Whether it can commit groups, once the server was asked.
    may_group: Option<bool>,
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
type Sent<'a, T> = Pending<'a, Result<T, PgError>>;

type Message<'a> = (Part, Sent<'a, Option<Answer>>);

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
            alone: Alone::default(),
            may_group: None,
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
        let (batch, behind) = then.split(batch);
        let is_one = self.is_one(begin, batch, then);
        let is_alone = self.alone.may(is_one);
        if self.route == Route::Direct {
            let all = batch.iter().map(|statement| (statement, is_alone));
            let all = all.chain(behind.iter().map(|statement| (statement, false)));
            self.prepare(options, all).await.map_err(Failure::of_waiting)?;
        }
        let setting = begin.and_then(|_| self.alone.sends(is_one));
        let asked = Instant::now();
        liveness.heard();
        let mut sent: Vec<Message<'_>> = Vec::with_capacity(batch.len() + 4);
        if let Some(setting) = setting {
            sent.push((Part::Setting, Box::pin(execute_simple(&self.client, setting.into()))));
        }
        if let Some(begin) = begin {
            self.begins(&mut sent, options, begin, batch, is_alone);
        }
        for statement in batch.iter().skip(usize::from(enters(begin, batch))) {
            let waits = statement.only_waits();
            let part = if is_alone { Part::Commit { waits } } else { Part::Work { waits } };
            sent.push((part, self.executes(options, statement, is_alone)));
        }
        let commits = then != Then::More && !is_alone;
        let ends =
            [(commits, Part::Commit { waits: false }, COMMIT), (then == Then::Flush, Part::Flush, FLUSH)];
        for (_, part, text) in ends.into_iter().filter(|(follows, ..)| *follows) {
            sent.push((part, Box::pin(execute_simple(&self.client, text.into()))));
        }
        for statement in behind {
            sent.push((Part::Flush, self.executes(options, statement, false)));
        }
        let (parts, sent): (Vec<Part>, Vec<_>) = sent.into_iter().unzip();
        let answers = pipeline(heard(liveness, sent)).await;
        let (took, limit) = (asked.elapsed(), options.statement_timeout);
        // The first error is the cause of the later ones.
        let answers = parts.into_iter().zip(answers);
        let answers =
            answers.map(|(part, answer)| answer.map_err(|error| part.failure(error, then, took, limit)));
        answers.filter_map(Result::transpose).collect()
    }

    /// Adds what begins a transaction. A tick's first commands are in the same text, because the server responds to
    /// each message separately.
    fn begins<'a>(
        &'a self,
        sent: &mut Vec<Message<'a>>,
        options: &PostgresOptions,
        begin: Begin<'a>,
        batch: &[Statement],
        is_alone: bool,
    ) {
        let client = &*self.client;
        sent.extend(begin.stale.map(|time| (Part::Opening, self.reads_clock(time))));
        if is_alone {
            return;
        }
        let mut text = Cow::Borrowed(self.beginnings.of(begin.opening));
        if !enters(Some(begin), batch) {
            sent.push((Part::Opening, Box::pin(execute_simple(client, text))));
            return;
        }
        text.to_mut().push_str(&options.schema.statement(enter(options.idle_in_transaction_timeout)));
        sent.push((
            Part::Opening,
            Box::pin(async move { client.batch_execute(&text).await.map(|()| Some(Answer::new())) }),
        ));
    }

    /// Reads the server's clock. If the server refuses, the transaction does without, and the next one asks again.
    fn reads_clock<'a>(&'a self, time: &'a Timekeeper) -> Sent<'a, Option<Answer>> {
        Box::pin(async {
            match time.measure(&self.client).await {
                Err(error) if !is_fatal(&error) => Ok(None),
                measured => measured.map(|()| None),
            }
        })
    }

    /// Runs a statement by its prepared form, if there is one.
    fn executes<'a>(
        &'a self,
        options: &PostgresOptions,
        statement: &'a Statement,
        is_alone: bool,
    ) -> Sent<'a, Option<Answer>> {
        let client = &*self.client;
        if statement.is_script() {
            let text = enter(options.idle_in_transaction_timeout);
            return Box::pin(execute_script(client, options.schema.statement(text)));
        }
        match self.prepared.get(&(Identity::of(statement.sql), is_alone)) {
            Some(prepared) => Box::pin(execute(client, prepared, statement)),
            None => Box::pin(execute_text(client, options.schema.statement(statement.sql), statement)),
        }
    }

    /// Returns true if a transaction is one statement and its commit.
    fn is_one(&self, begin: Option<Begin<'_>>, batch: &[Statement], then: Then) -> bool {
        self.route == Route::Direct
            && begin.is_some_and(|begin| begin.opening == Opening::Write)
            && matches!(then, Then::Commit | Then::FlushLast)
            && matches!(batch, [statement] if !statement.is_script())
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
    async fn prepare<'s>(
        &mut self,
        options: &PostgresOptions,
        all: impl Iterator<Item = (&'s Statement, bool)>,
    ) -> Result<(), PgError> {
        let mut missing: Vec<((Identity, bool), &Statement)> = Vec::new();
        for (statement, is_alone) in all.filter(|(statement, _)| !statement.is_script()) {
            let form = (Identity::of(statement.sql), is_alone);
            if !self.prepared.contains_key(&form) && missing.iter().all(|(other, _)| *other != form) {
                missing.push((form, statement));
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let (client, gate) = (&self.client, &self.beginnings.gate);
        let mut sent: Vec<Sent<'_, Prepared>> = Vec::new();
        for &((_, is_alone), statement) in &missing {
            let text = options.schema.statement(statement.sql);
            let types: Vec<Type> = statement.params.iter().map(|param| param.kind.clone()).collect();
            sent.push(Box::pin(async move {
                let text = if is_alone { Cow::Owned(gated(&text, gate)) } else { Cow::Borrowed(&*text) };
                client.prepare_typed(&text, &types).await
            }));
        }
        for ((form, _), prepared) in missing.into_iter().zip(pipeline(sent).await) {
            self.prepared.insert(form, prepared?);
        }
        Ok(())
    }
}

/// Returns true if a transaction begins with a tick.
fn enters(begin: Option<Begin<'_>>, batch: &[Statement]) -> bool {
    begin.is_some() && batch.first().is_some_and(Statement::is_script)
}

/// Adds that each response shows that the server is there.
fn heard<'a>(liveness: &'a Liveness, sent: Vec<Sent<'a, Option<Answer>>>) -> Vec<Sent<'a, Option<Answer>>> {
    let heard = async |sent: Sent<'a, Option<Answer>>| {
        let answer = sent.await;
        liveness.heard();
        answer
    };
    sent.into_iter().map(|sent| Box::pin(heard(sent)) as Sent<'_, _>).collect()
}

/// Runs commands without values and results.
async fn execute_simple(client: &Client, text: Cow<'_, str>) -> Result<Option<Answer>, PgError> {
    client.batch_execute(&text).await.map(|()| None)
}

async fn execute(
    client: &Client,
    prepared: &Prepared,
    statement: &Statement,
) -> Result<Option<Answer>, PgError> {
    let values: Vec<&(dyn ToSql + Sync)> = statement.params.iter().map(|param| &*param.value as _).collect();
    client.query(prepared, &values).await.map(Some)
}
