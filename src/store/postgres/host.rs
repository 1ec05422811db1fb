//! Transactions that the host owns: its rows and the store's commit together or not at all.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error as PgError, GenericClient};

use super::error::Failure;
use super::migrate;
use super::name::Schema;
use super::news::Channel;
use super::pipeline::{Pending, pipeline};
use super::request::Reply;
use super::tx::PostgresBackend;
use super::wire::{Answer, Statement, Touch, Wire, fits};
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::store::{Tx, TxMode};

/// Runs a statement by its text, in one round trip.
pub(super) async fn execute_text<C: GenericClient + Sync + ?Sized>(
    client: &C,
    text: Arc<str>,
    statement: &Statement,
) -> Result<Option<Answer>, PgError> {
    let values: Vec<(&(dyn ToSql + Sync), Type)> =
        statement.params.iter().map(|param| (&*param.value as _, param.kind.clone())).collect();
    client.query_typed(&text, &values).await.map(Some)
}

/// Runs several statements, and drops their results.
pub(super) async fn execute_script<C: GenericClient + Sync + ?Sized>(
    client: &C,
    text: Arc<str>,
) -> Result<Option<Answer>, PgError> {
    client.batch_execute(&text).await.map(|()| Some(Answer::new()))
}

/// The transaction's statements, and where the reply goes.
type Question = (Vec<Statement>, SyncSender<Reply>);

/// Sends requests to the future that has the host's client.
struct Bridge(UnboundedSender<Question>);

impl Wire for Bridge {
    fn send(&mut self, batch: Vec<Statement>, _: Touch) -> Result<Vec<Answer>, Failure> {
        let dropped = || {
            let text = "the future that talks to the server was dropped: roll the transaction back";
            Failure::Lost(StoreError::new(StoreErrorKind::Backend, text))
        };
        fits(&batch)?;
        let (reply, answer) = sync_channel(1);
        self.0.send((batch, reply)).map_err(|_| dropped())?;
        answer.recv().map_err(|_| dropped())?
    }
}

/// Works in a transaction that the host began and will commit or roll back. The host's rows and the store's
/// become visible together.
///
/// `client` is a [`tokio_postgres::Transaction`], or a client on which the host sent `BEGIN`. The tables must
/// exist: see [`super::migrate`]. `body` runs on its own thread, and the future sends its statements. `body`
/// may block its thread, but cannot block the host's. Nothing is set on the host's connection.
///
/// Listeners are notified when the host commits, by a `NOTIFY` in the transaction. The server refuses to
/// prepare such a transaction for a two-phase commit: see [`attach`] and [`PostgresTx::without_notify`].
///
/// [`admit`](Tx::admit) is refused ([`Invalid::TickInHostTransaction`](crate::error::Invalid)): admit with an
/// [`Admitter`](crate::service::Admitter) or in [`write`](crate::store::PostgresStore::write).
///
/// Others do not wait for the host's transaction, however long it is open, unless they want the same task or
/// run. Two calls are different. One that changes pools or limits stops all ticks until the host commits, so
/// make it last. Such a call, [`reap`](Tx::reap) and [`close_silent_runs`](Tx::close_silent_runs) are refused
/// above `READ COMMITTED` ([`Invalid::AboveReadCommitted`](crate::error::Invalid)).
///
/// # Errors
///
/// What `body` returned, or the store's own failure. **The host rolls back after any error**: the server
/// refuses everything else in the transaction anyway. An error that
/// [`is_retryable`](crate::Error::is_retryable) means that nothing was committed: begin the transaction again,
/// on a new connection if this one was lost. At `REPEATABLE READ` and above that happens whenever another
/// transaction changed the same task after this transaction's first statement. If the future is dropped, `body`
/// ends with an error, and the host rolls back.
///
/// The host's own statements and its commit return a [`tokio_postgres::Error`]. `?` converts it into an
/// [`Error`](crate::Error) with the same distinction. A lost connection is
/// [indeterminate](crate::Error::is_indeterminate) there, because it may have been lost during the commit.
///
/// # Panics
///
/// As `body` does.
///
/// # Examples
///
/// ```no_run
/// # async fn example(
/// #     mut client: stationmaster::store::postgres::tokio_postgres::Client,
/// #     store: &stationmaster::store::PostgresStore,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// use stationmaster::clock::Clock;
/// use stationmaster::store::postgres::{self, Schema};
/// use stationmaster::{NewTask, TaskKey};
///
/// let (schema, clock) = (Schema::default(), store.clock()); // the server's time
/// let transaction = client.transaction().await?;
/// transaction.execute("INSERT INTO orders (id) VALUES ('o-17')", &[]).await?; // your rows first: docs/postgresql.md
/// let task = NewTask::new(TaskKey::new("shop", "orders", "o-17", "ship")?);
/// let now = clock.now();
/// postgres::tx(&transaction, &schema, move |tx| tx.enqueue(now, &[task])).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
pub async fn tx<C, T, F>(client: &C, schema: &Schema, body: F) -> Result<T>
where
    C: GenericClient + Sync + ?Sized,
    T: Send + 'static,
    F: FnOnce(&mut Tx<'_>) -> Result<T> + Send + 'static,
{
    check_open(client, schema).await?;
    let (inside, questions) = bridge(schema);
    let (end, ended) = oneshot::channel();
    let work = move || {
        let run = AssertUnwindSafe(|| {
            let mut tx = Tx::of_postgres(inside);
            let answer = body(&mut tx)?;
            tx.check_whole()?;
            Ok(answer)
        });
        let answer = catch_unwind(run);
        // No one receives it if the future was dropped.
        let _ = end.send(answer);
    };
    std::thread::Builder::new().name("stationmaster-tx".into()).spawn(work).map_err(|error| {
        let text = format!("no thread can be started for the transaction's body: {error}");
        StoreError::new(StoreErrorKind::Io, text).with_source(error)
    })?;
    serve(client, schema, questions).await;
    match ended.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => {
            let text = "the thread of the transaction's body ended without an answer: roll back";
            Err(StoreError::new(StoreErrorKind::Backend, text).into())
        }
    }
}

/// Attaches like [`tx()`], for a host that has its own thread for the body. Returns a transaction to use on
/// that thread, and a future to await meanwhile, which talks to the server. The future ends when the
/// transaction is dropped.
///
/// # Examples
///
/// ```no_run
/// # async fn example(mut client: stationmaster::store::postgres::tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use stationmaster::store::postgres::{self, Schema};
///
/// let transaction = client.transaction().await?;
/// let schema = Schema::default();
/// let (tx, serving) = postgres::attach(&transaction, &schema);
/// let pools = std::thread::spawn(move || tx.tx().all_pools());
/// serving.await;
/// let pools = pools.join().expect("no panic")?;
/// # Ok(())
/// # }
/// ```
pub fn attach<'c, C: GenericClient + Sync + ?Sized>(
    client: &'c C,
    schema: &'c Schema,
) -> (PostgresTx, impl Future<Output = ()> + 'c) {
    let (inside, mut questions) = bridge(schema);
    let serving = async move {
        let Some((batch, reply)) = questions.recv().await else { return };
        let open = check_open(client, schema).await.map_err(Failure::Refused);
        let done = match open {
            Ok(()) => run(client, schema, &batch).await,
            Err(failure) => Err(failure),
        };
        // The caller waits for it, or has panicked.
        let _ = reply.send(done);
        serve(client, schema, questions).await;
    };
    (PostgresTx { inside }, serving)
}

/// The host's transaction, served by a future: see [`attach`]. It may be sent to another thread.
#[derive(Debug)]
pub struct PostgresTx {
    inside: PostgresBackend<'static>,
}

impl PostgresTx {
    /// Returns the handle. The transaction is served until the handle is dropped.
    pub fn tx(self) -> Tx<'static> {
        Tx::of_postgres(self.inside)
    }

    /// Numbers the changes of sensors that it makes, as the store's own transactions do. Until it ends, no
    /// one else can number any, so hosts leave that to services.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    #[must_use]
    pub fn numbering(self) -> Self {
        Self { inside: self.inside.numbering() }
    }

    /// Sends no `NOTIFY`, so that the host can prepare the transaction for a two-phase commit, which the
    /// server refuses if it notifies. Listeners learn of the change at their next tick.
    #[must_use]
    pub fn without_notify(self) -> Self {
        Self { inside: self.inside.without_notify() }
    }
}

fn bridge(schema: &Schema) -> (PostgresBackend<'static>, UnboundedReceiver<Question>) {
    let (sender, questions) = unbounded_channel();
    let channel = Channel { name: schema.channel().into(), from: None };
    (PostgresBackend::inside(Box::new(Bridge(sender)), TxMode::Write, Some(channel)), questions)
}

/// Sends statements to the server until no caller is left.
async fn serve<C: GenericClient + Sync + ?Sized>(
    client: &C,
    schema: &Schema,
    mut questions: UnboundedReceiver<Question>,
) {
    while let Some((batch, reply)) = questions.recv().await {
        let _ = reply.send(run(client, schema, &batch).await);
    }
}

async fn run<C: GenericClient + Sync + ?Sized>(client: &C, schema: &Schema, batch: &[Statement]) -> Reply {
    let sent = batch
        .iter()
        .map(|statement| {
            Box::pin(execute_text(client, schema.statement(statement.sql), statement))
                as Pending<'_, Result<_, PgError>>
        })
        .collect();
    let answers = pipeline(sent).await.into_iter().zip(batch).map(|(answer, statement)| {
        answer.map_err(|error| match statement.only_waits() {
            true => Failure::of_waiting(error),
            false => Failure::of(error),
        })
    });
    answers.filter_map(Result::transpose).collect()
}

/// Refuses a client without an open transaction, and a schema with which this version must not continue. It
/// is a separate message: with another statement in it, the server would take the two for a transaction.
async fn check_open<C: GenericClient + Sync + ?Sized>(client: &C, schema: &Schema) -> Result<(), StoreError> {
    client.batch_execute(&migrate::gate(schema)).await.map_err(outside)
}

/// Converts the error of the check for an open transaction.
fn outside(error: PgError) -> StoreError {
    use tokio_postgres::error::SqlState;
    if error.code() == Some(&SqlState::NO_ACTIVE_SQL_TRANSACTION) {
        let text = "no transaction is open on the connection: begin one first";
        return StoreError::new(StoreErrorKind::Backend, text).with_source(error);
    }
    Failure::of(error).into()
}

#[cfg(test)]
mod tests {
    use super::super::wire::tests::{is_refused, too_large};
    use super::*;

    #[test]
    fn what_is_too_large_is_not_sent() {
        let (sender, mut questions) = unbounded_channel();
        assert!(is_refused(Bridge(sender).send(vec![too_large()], Touch::Reads)));
        assert!(questions.try_recv().is_err());
    }
}
