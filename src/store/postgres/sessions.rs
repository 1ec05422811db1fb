//! The transactions of a store on its own connections.

use std::sync::Arc;

use super::error::{Failure, open_commit};
use super::group::{Fate, Follower, Leader, Outcome, Turn};
use super::options::PostgresOptions;
use super::places::Purpose;
use super::pool::{Lease, Pool};
use super::request::{Opening, Request, Then};
use super::watch;
use super::wire::{Answer, Flush, Statement, Touch, Wire, fits};
use crate::error::StoreError;
use crate::store::{TxMode, serving};

/// Runs `body` in a transaction. Its first statement takes a connection and begins the transaction. `body`
/// returns whether the commit skips the flush, so that one must follow.
pub(super) fn transact<E: From<StoreError>>(
    pool: &Arc<Pool>,
    options: &PostgresOptions,
    mode: TxMode,
    body: impl FnOnce(Box<dyn Wire + '_>) -> Result<bool, E>,
) -> Result<(), E> {
    transact_then(pool, options, mode, body, |_| ())
}

/// Does the same. After a commit, `then` may use its connection.
pub(super) fn transact_then<E: From<StoreError>>(
    pool: &Arc<Pool>,
    options: &PostgresOptions,
    mode: TxMode,
    body: impl FnOnce(Box<dyn Wire + '_>) -> Result<bool, E>,
    then: impl FnOnce(&Lease),
) -> Result<(), E> {
    let entered = pool.enter(mode)?;
    let is_inner = entered.is_inner;
    let mut transaction = Transaction { pool, options, mode, is_inner, lease: None, stage: Stage::Before };
    let flushes = body(Box::new(&mut transaction))? && options.survives_power();
    Ok(transaction.commit(flushes, then).map_err(StoreError::from)?)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing was sent yet.
    Before,
    Open,
    /// There is nothing to roll back.
    Over,
}

/// A transaction on a connection of the store. Dropping it before the commit rolls it back.
struct Transaction<'l> {
    pool: &'l Arc<Pool>,
    options: &'l PostgresOptions,
    mode: TxMode,
    is_inner: bool,
    lease: Option<Lease>,
    stage: Stage,
}

impl Wire for Transaction<'_> {
    fn send(&mut self, batch: Vec<Statement>, touch: Touch) -> Result<Vec<Answer>, Failure> {
        self.ask(batch, touch, Then::More)
    }

    fn send_last(
        &mut self,
        mut batch: Vec<Statement>,
        touch: Touch,
        flush: Flush,
    ) -> Result<Vec<Answer>, Failure> {
        let then = match flush {
            Flush::LastStatement if self.options.survives_power() => Then::FlushLast,
            Flush::LastStatement => {
                batch.pop();
                Then::Commit
            }
            Flush::Follows => Then::commit(self.options.survives_power()),
            Flush::Itself => Then::Commit,
        };
        self.ask(batch, touch, then)
    }
}

impl Transaction<'_> {
    fn ask(&mut self, batch: Vec<Statement>, touch: Touch, then: Then) -> Result<Vec<Answer>, Failure> {
        fits(&batch)?;
        // Reads after the commit run in a transaction of their own.
        if self.stage == Stage::Over {
            self.stage = Stage::Before;
        }
        watch::batch(&self.options.schema, then.split(&batch).0, then != Then::More);
        match self.statement_of_group(batch, touch, then) {
            Ok(statement) => self.ask_in_group(statement, touch, then),
            Err(batch) => self.ask_on_lease(batch, touch, then),
        }
    }

    /// Returns the statement of a batch if it may be committed in a group. Returns the batch if not.
    fn statement_of_group(
        &self,
        mut batch: Vec<Statement>,
        touch: Touch,
        then: Then,
    ) -> Result<Statement, Vec<Statement>> {
        let is_whole = self.stage == Stage::Before && self.lease.is_none() && then == Then::Commit;
        let may_wait = self.purpose(touch) == Purpose::Ordinary && self.options.survives_power();
        match batch.pop() {
            Some(statement)
                if batch.is_empty() && is_whole && may_wait && self.pool.groups.admits(&statement) =>
            {
                Ok(statement)
            }
            last => {
                batch.extend(last);
                Err(batch)
            }
        }
    }

    /// Commits one statement, with those of other callers if they wait.
    fn ask_in_group(
        &mut self,
        statement: Statement,
        touch: Touch,
        then: Then,
    ) -> Result<Vec<Answer>, Failure> {
        let (groups, timeout) = (&self.pool.groups, self.options.lock_timeout);
        let lead = match groups.enter(statement) {
            Turn::Now(lead) => lead.map(|(leader, statement, ())| (leader, statement, Ok(None))),
            Turn::Wait(queued) => {
                queued.wait_with(|is_taken| self.pool.lease_unless(self.purpose(touch), timeout, is_taken))
            }
        };
        let (leader, statement, leased) = match lead {
            Ok(lead) => lead,
            Err(fate) => return self.after_group(fate, touch, then),
        };
        let lease = match leased.map_err(Failure::Refused)? {
            Some(lease) => lease,
            None => self.lease(touch)?,
        };
        let followers = leader.take();
        if groups.has_late() {
            self.pool.look();
        }
        if followers.is_empty() {
            self.lease = Some(lease);
            // The next caller leads before this one's transaction is over.
            return self.ask_on_lease(vec![statement], touch, then);
        }
        let fate = self.lead(leader, lease, statement, followers);
        self.after_group(fate, touch, then)
    }

    fn after_group(&mut self, fate: Fate, touch: Touch, then: Then) -> Result<Vec<Answer>, Failure> {
        match fate {
            Fate::Done(reply) => {
                self.stage = Stage::Over;
                reply
            }
            Fate::Apart(statement) => self.ask_on_lease(vec![statement], touch, then),
        }
    }

    /// Commits the leader's statement and its followers'. Returns what became of the leader's.
    fn lead(&mut self, leader: Leader, lease: Lease, statement: Statement, followers: Vec<Follower>) -> Fate {
        let mut statements = vec![statement];
        let mut callers = Vec::with_capacity(followers.len());
        for Follower { statement, caller } in followers {
            statements.push(statement);
            callers.push(caller);
        }
        let mut fates = match lease.session().commit_group(statements, leader) {
            Outcome::Ran(fates) => {
                drop(lease);
                fates.into_iter()
            }
            Outcome::Unable(statements) => {
                self.pool.groups.are_unable();
                self.lease = Some(lease);
                statements.into_iter().map(Fate::Apart).collect::<Vec<_>>().into_iter()
            }
        };
        let own = fates.next();
        for (caller, fate) in callers.into_iter().zip(fates) {
            caller.learns(fate);
        }
        own.unwrap_or_else(|| Fate::Done(Err(Failure::Lost(open_commit("the server's response is missing")))))
    }

    fn lease(&self, touch: Touch) -> Result<Lease, Failure> {
        self.pool.lease(self.purpose(touch), self.options.lock_timeout).map_err(Failure::Refused)
    }

    fn ask_on_lease(
        &mut self,
        batch: Vec<Statement>,
        touch: Touch,
        then: Then,
    ) -> Result<Vec<Answer>, Failure> {
        let lease = match self.lease.take() {
            Some(lease) => lease,
            None => self.lease(touch)?,
        };
        let lease = self.lease.insert(lease);
        let request = match self.stage {
            Stage::Before => Request::Begin(opening(self.mode, touch), batch, touch, then),
            Stage::Open | Stage::Over => Request::Continue(batch, then),
        };
        let done = lease.session().call(request);
        // If a commit was refused or not sent, the transaction may still be open.
        self.stage = if then == Then::More || done.is_err() { Stage::Open } else { Stage::Over };
        done
    }
}

fn opening(mode: TxMode, first: Touch) -> Opening {
    match (mode, first) {
        (TxMode::Read, _) => Opening::Read,
        (TxMode::Write, Touch::Renews) => Opening::Renew,
        (TxMode::Write, Touch::Reads | Touch::Writes) => Opening::Write,
    }
}

impl Transaction<'_> {
    /// Returns the purpose of the transaction, by what it does first.
    fn purpose(&self, first: Touch) -> Purpose {
        if self.is_inner {
            Purpose::Inner
        } else if first == Touch::Renews {
            Purpose::Renewal
        } else if serving::is_service() {
            Purpose::Service
        } else {
            Purpose::Ordinary
        }
    }

    /// Commits. A read does not wait for its end: its results are already known.
    fn commit(mut self, flushes: bool, then: impl FnOnce(&Lease)) -> Result<(), Failure> {
        let Some(lease) = self.lease.as_ref().filter(|_| self.mode == TxMode::Write) else { return Ok(()) };
        if std::mem::replace(&mut self.stage, Stage::Over) == Stage::Open {
            watch::commit();
            lease.session().call(Request::Commit(Then::commit(flushes)))?;
        }
        then(lease);
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if let (Some(lease), Stage::Open) = (&self.lease, self.stage) {
            // What the transaction did is undone whether or not this succeeds.
            let _ = lease.session().call(Request::RollBack);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::seat::SessionHandle;
    use super::super::wire::tests::{is_refused, too_large};
    use super::*;

    #[test]
    fn what_is_too_large_is_not_sent() {
        // Any further statement or rollback would fail.
        let session = SessionHandle::nowhere();
        let (pool, options) = (Arc::new(Pool::new(vec![session])), PostgresOptions::new());
        let sent = transact(&pool, &options, TxMode::Write, |mut wire| {
            assert!(is_refused(wire.send(vec![too_large()], Touch::Writes)));
            Ok::<bool, StoreError>(false)
        });
        sent.unwrap();
    }
}
