//! The transactions of a store on its own connections.

use std::sync::Arc;

use super::error::Failure;
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
        let lease = match self.lease.take() {
            Some(lease) => lease,
            None => {
                self.pool.lease(self.purpose(touch), self.options.lock_timeout).map_err(Failure::Refused)?
            }
        };
        let lease = self.lease.insert(lease);
        watch::batch(&self.options.schema, then.split(&batch).0, then != Then::More);
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
