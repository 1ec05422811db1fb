//! The transactions on one connection. The connection is opened when it is needed, kept between transactions, and
//! replaced when it is lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::connection::{Begin, Connection, Driving, Member as Sent};
use super::dial::{Dialer, Role};
use super::error::{Failure, commit_error, is_of_standby, open_commit};
use super::group::{Fate, Leader, Outcome};
use super::holder::end_stopped;
use super::liveness::Liveness;
use super::pipeline::{Pending, pipeline};
use super::request::{Opening, Reply, Request, Then, Unannounced};
use super::route::Route;
use super::seat::look;
use super::tick_lock::COMMIT;
use super::wire::{Statement, Touch};
use crate::error::{StoreError, StoreErrorKind};

/// How long reads stay at a standby before they connect again. By then the address may lead to the primary.
const STANDBY: Duration = Duration::from_secs(10);

pub(super) struct Session {
    dialer: Dialer,
    liveness: Liveness,
    connection: Option<Connection>,
    /// After how many more commits a `NOTIFY` may be sent outside a transaction.
    announces_in: u32,
}

/// For how many commits no `NOTIFY` is sent outside a transaction after a slow one.
const PAUSE: u32 = 64;

impl Session {
    pub(super) fn new(dialer: Dialer) -> Self {
        Self { dialer, liveness: Liveness::new(), connection: None, announces_in: 0 }
    }

    /// Serves a request. Drops a connection that turns out to be lost.
    pub(super) async fn handle(&mut self, request: Request) -> Reply {
        let done = self.answer(request).await;
        if matches!(done, Err(Failure::Lost(_) | Failure::Silent(_))) {
            self.connection = None;
            // The task that moved its bytes closes it, and nothing runs that task after this returns.
            look().await;
        }
        done
    }

    /// Takes the connection, to close it.
    pub(super) fn take(&mut self) -> Option<Connection> {
        self.connection.take()
    }

    async fn answer(&mut self, request: Request) -> Reply {
        match request {
            Request::Connect => self.connect(Role::Any).await.map(|()| Vec::new()),
            Request::Disconnect => {
                if let Some(connection) = self.connection.take() {
                    connection.close().await;
                }
                Ok(Vec::new())
            }
            Request::Begin(opening, batch, touch, then) => {
                let _ending = self.end_holders(&batch);
                let answers = self.begin(opening, &batch, touch, then).await?;
                self.commit_apart(then).await?;
                Ok(answers)
            }
            Request::Continue(batch, then) => {
                let _ending = self.end_holders(&batch);
                let Some(connection) = &mut self.connection else {
                    return Err(Failure::lost("the connection is lost: call again"));
                };
                let along = connection.along(then);
                let run = connection.run(&self.dialer.options, &self.liveness, None, &batch, along);
                let done = self.liveness.limit(self.dialer.options.patience(), run).await;
                let answers = done.map_err(|failure| in_commit(failure, along))?;
                self.commit_apart(then).await?;
                Ok(answers)
            }
            Request::Commit(then) => self.commit(then).await,
            Request::RollBack => self.roll_back().await,
            Request::Announce(text) => self.announce(&text).await,
            Request::AnnounceBeside(text, unannounced) => self.announce_beside(text, unannounced).await,
        }
    }

    /// Ends a stopped holder of the tick lock while this batch waits for the lock.
    fn end_holders(&self, batch: &[Statement]) -> Option<Driving> {
        let locks = batch.iter().any(Statement::only_waits);
        locks.then(|| Driving::spawn(end_stopped(self.dialer.clone())))
    }

    /// Makes sure that there is a connection. An existing one is used whichever server it leads to.
    async fn connect(&mut self, role: Role) -> Result<(), Failure> {
        if self.connection.as_ref().is_some_and(|connection| !connection.is_lost()) {
            return Ok(());
        }
        self.connection = None;
        self.connection = Some(self.dialer.connect(role).await?);
        Ok(())
    }

    /// Begins a transaction with a batch. Replaces a connection that was lost while idle, because nothing of the
    /// transaction can have been done. Also replaces one that would write to a read-only server. Does not replace one
    /// that fell silent: it has already taken as long as a call may take.
    async fn begin(&mut self, opening: Opening, batch: &[Statement], touch: Touch, then: Then) -> Reply {
        let role = role(opening);
        let was_used = self.ready(role).await?;
        match self.try_begin(opening, batch, touch, then).await {
            // If the commit was sent along, something may have been done.
            Err(Failure::Lost(error)) if was_used && error.kind() != StoreErrorKind::Indeterminate => {
                self.connection = None;
                self.connect(role).await?;
                self.try_begin(opening, batch, touch, then).await
            }
            done => done,
        }
    }

    /// Makes sure that there is a connection that can begin a transaction. Returns true if it was used before.
    async fn ready(&mut self, role: Role) -> Result<bool, Failure> {
        // Nothing has checked whether it was lost meanwhile.
        look().await;
        self.connection
            .take_if(|connection| connection.standby_since.is_some_and(|since| since.elapsed() > STANDBY));
        if let Some(connection) = &mut self.connection
            && !connection.has_announced().await
        {
            self.connection = None;
            self.announces_in = PAUSE;
        }
        let was_used = self.connection.as_ref().is_some_and(|connection| !connection.is_lost());
        self.connect(role).await?;
        Ok(was_used)
    }

    /// Commits a group, and lets the next caller lead while it is flushed. Drops a connection that turns out to be lost.
    pub(super) async fn commit_group(&mut self, statements: Vec<Statement>, leader: Leader) -> Outcome {
        let done = self.run_group(statements, leader).await;
        if self.connection.is_none() {
            look().await;
        }
        done
    }

    async fn run_group(&mut self, statements: Vec<Statement>, leader: Leader) -> Outcome {
        // A read may have stayed at a standby.
        self.connection.take_if(|connection| connection.standby_since.is_some());
        if let Err(failure) = self.ready(Role::Primary).await {
            return Outcome::Ran(failed(statements, failure));
        }
        // A panic must not leave a connection whose commits wait for no flush.
        let Some(mut connection) = self.connection.take() else {
            return Outcome::Ran(apart(statements));
        };
        let (options, time) = (&self.dialer.options, &*self.dialer.time);
        let prepared = connection.prepare_group(options, &statements);
        match self.liveness.limit(options.patience(), prepared).await {
            Ok(true) => {}
            Ok(false) => {
                self.connection = Some(connection);
                return Outcome::Unable(statements);
            }
            // The next transaction shows why.
            Err(Failure::Refused(_)) => {
                self.connection = Some(connection);
                return Outcome::Ran(apart(statements));
            }
            Err(Failure::Lost(_)) => return Outcome::Ran(apart(statements)),
            // It has already taken as long as a call may take.
            Err(failure) => return Outcome::Ran(failed(statements, failure)),
        }
        let stale = time.is_stale().then_some(time);
        let run = connection.run_group(options, &self.liveness, stale, &statements, leader);
        match self.liveness.limit(options.patience(), run).await {
            Ok((sent, lost)) => {
                let lost = lost.map(Arc::new);
                let fates = statements.into_iter().zip(sent).map(|(statement, sent)| match (sent, &lost) {
                    (Sent::Refused, _) => Fate::Apart(statement),
                    (Sent::Committed(answer), None) => Fate::Done(Ok(vec![answer])),
                    (Sent::Failed(error), _) => Fate::Done(Err(Failure::Refused(error))),
                    (Sent::Committed(_), Some(lost)) => Fate::Done(Err(Failure::Lost(copy(lost)))),
                    (Sent::Unknown(error), _) => Fate::Done(Err(Failure::Lost(error))),
                });
                if lost.is_none() {
                    self.connection = Some(connection);
                }
                Outcome::Ran(fates.collect())
            }
            Err(failure) => {
                let error = open_commit(StoreError::from(failure));
                Outcome::Ran(failed(statements, Failure::Lost(error)))
            }
        }
    }

    async fn try_begin(&mut self, opening: Opening, batch: &[Statement], touch: Touch, then: Then) -> Reply {
        let Some(connection) = &mut self.connection else {
            return Err(Failure::lost("the connection is lost: call again"));
        };
        let (options, time) = (&self.dialer.options, &*self.dialer.time);
        let along = connection.along(then);
        let begin = async {
            let stale = time.is_stale().then_some(time);
            let done = connection
                .begin(options, &self.liveness, Begin { opening, stale }, batch, touch, along)
                .await;
            if !matches!(done, Err(Failure::Lost(_))) {
                connection.ended().await?;
            }
            done
        };
        let done = self.liveness.limit(options.patience(), begin).await;
        done.map_err(|failure| match in_commit(failure, along) {
            // The next transaction would fail there, too, so it must reconnect to where the address leads by then.
            Failure::Refused(error) if role(opening) == Role::Primary && is_of_standby(&error) => {
                Failure::Lost(error)
            }
            // A newer version has changed the tables, or they are gone: reconnecting shows which.
            Failure::Refused(error) if error.kind() == StoreErrorKind::Schema => Failure::Lost(error),
            failure => failure,
        })
    }

    /// Runs a text that may safely run twice. Does not wait for an unavailable server, because a host's call may need
    /// the session meanwhile.
    async fn announce(&mut self, text: &str) -> Reply {
        let was_used = self.connection.as_ref().is_some_and(|connection| !connection.is_lost());
        match self.try_announce(text).await {
            Err(Failure::Lost(_)) if was_used => {
                self.connection = None;
                self.try_announce(text).await
            }
            done => done,
        }
    }

    /// Returns whether a `NOTIFY` may be sent outside transactions. Behind a pooler, the next request might get its
    /// result. After a slow or failed one, others send the next ones.
    pub(super) fn announces_beside(&mut self) -> bool {
        let is_paused = self.announces_in > 0;
        self.announces_in = self.announces_in.saturating_sub(1);
        let is_direct = |connection: &Connection| connection.route == Route::Direct && !connection.is_lost();
        !is_paused && self.connection.as_ref().is_some_and(is_direct)
    }

    async fn announce_beside(&mut self, text: String, unannounced: Unannounced) -> Reply {
        let Some(connection) = &mut self.connection else {
            return Err(Failure::lost("the connection is lost: call again"));
        };
        connection.announce_beside(text, unannounced).await;
        Ok(Vec::new())
    }

    async fn try_announce(&mut self, text: &str) -> Reply {
        look().await;
        if self.connection.as_ref().is_none_or(Connection::is_lost) {
            self.connection = None;
            self.connection = Some(self.dialer.connect_once(Role::Primary).await?);
        }
        let Some(connection) = &mut self.connection else { return Ok(Vec::new()) };
        let run = async {
            connection.ended().await?;
            connection.client.batch_execute(text).await.map_err(Failure::of)
        };
        self.liveness.limit(self.dialer.options.patience(), run).await?;
        Ok(Vec::new())
    }

    /// Commits after statements that the commit could not be sent along with.
    async fn commit_apart(&mut self, then: Then) -> Result<(), Failure> {
        match self.connection.as_ref().map(|connection| connection.along(then)) {
            Some(along) if along != then => self.commit(then).await.map(drop),
            _ => Ok(()),
        }
    }

    async fn commit(&mut self, then: Then) -> Reply {
        look().await;
        let Some(connection) = self.connection.as_ref().filter(|connection| !connection.is_lost()) else {
            return Err(Failure::lost(
                "the connection was lost before the commit: nothing was changed, call again",
            ));
        };
        let (options, asked) = (&self.dialer.options, Instant::now());
        let commit = async {
            let committed = connection.client.batch_execute(COMMIT).await;
            committed.map_err(|error| commit_error(error, asked.elapsed(), options.statement_timeout))
        };
        let commit = async {
            if then != Then::Flush && then != Then::FlushLast {
                return commit.await;
            }
            let flush = connection.flush();
            if connection.route == Route::Pooled {
                // A pooler treats the end of the first response as the end of all.
                commit.await?;
                return flush.await;
            }
            pipeline(vec![Box::pin(commit) as Pending<'_, _>, Box::pin(flush)]).await.into_iter().collect()
        };
        match options.patience() {
            None => commit.await,
            Some(patience) => timeout(patience, commit).await.unwrap_or_else(|_| {
                Err(Failure::Lost(open_commit(format_args!("no answer in {patience:?}"))))
            }),
        }?;
        Ok(Vec::new())
    }

    /// Sends the rollback, and leaves the response to the next call. A pooler treats the end of this response as the
    /// end of all, so nothing may be sent before it arrives.
    async fn roll_back(&mut self) -> Reply {
        let Some(connection) = &mut self.connection else { return Ok(Vec::new()) };
        connection.end_beside("ROLLBACK".into()).await;
        if connection.route == Route::Pooled {
            self.liveness.limit(self.dialer.options.patience(), connection.ended()).await?;
        }
        Ok(Vec::new())
    }
}

/// Lets each statement run without a group.
fn apart(statements: Vec<Statement>) -> Vec<Fate> {
    statements.into_iter().map(Fate::Apart).collect()
}

/// Returns the same failure for each statement.
fn failed(statements: Vec<Statement>, failure: Failure) -> Vec<Fate> {
    let error = Arc::new(StoreError::from(failure));
    statements.iter().map(|_| Fate::Done(Err(Failure::Lost(copy(&error))))).collect()
}

/// Returns the same error for one more caller.
fn copy(error: &Arc<StoreError>) -> StoreError {
    StoreError::new(error.kind(), error.to_string()).with_source(Arc::clone(error))
}

/// Converts the failure of statements that a commit was sent along with.
fn in_commit(failure: Failure, along: Then) -> Failure {
    match failure {
        Failure::Silent(error) if along != Then::More => Failure::Lost(open_commit(error)),
        failure => failure,
    }
}

/// Returns the role of server that a transaction with this opening needs.
fn role(opening: Opening) -> Role {
    match opening {
        Opening::Read => Role::Any,
        Opening::Write | Opening::Renew => Role::Primary,
    }
}
