//! The sessions that callers share: one transaction at a time on each.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, ReentrantMutex, ReentrantMutexGuard};

use super::error::Failure;
use super::name::Schema;
use super::options::PostgresOptions;
use super::request::{Request, SessionHandle};
use super::watch;
use super::wire::{Answer, Statement, Touch, Wire, fits};
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::store::{TxMode, nested};

/// One session, borrowed while a transaction is open, so that a nested one on the same thread is detected.
type Shared = ReentrantMutex<RefCell<SessionHandle>>;

/// All sessions that may be used for one mode.
#[derive(Debug)]
pub(super) struct Sessions {
    mode: TxMode,
    sessions: Vec<Shared>,
    queue: Mutex<Queue>,
    /// A session is free, or the queue is shorter.
    changed: Condvar,
}

/// The callers that wait for a session, in the order in which they came.
#[derive(Debug, Default)]
struct Queue {
    last: u64,
    waiting: VecDeque<u64>,
}

/// A session that no one else uses.
struct Borrowed<'l> {
    session: Option<ReentrantMutexGuard<'l, RefCell<SessionHandle>>>,
    sessions: &'l Sessions,
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.session = None;
        // A caller that found none free before has begun to wait once the queue can be locked.
        drop(self.sessions.queue.lock());
        self.sessions.changed.notify_all();
    }
}

impl Sessions {
    pub(super) fn new(mode: TxMode, handles: Vec<SessionHandle>) -> Self {
        let sessions =
            handles.into_iter().map(|session| ReentrantMutex::new(RefCell::new(session))).collect();
        Self { mode, sessions, queue: Mutex::default(), changed: Condvar::new() }
    }

    /// Runs `body` on a session that is free, in a transaction that begins with its first statement.
    pub(super) fn transact<E: From<StoreError>>(
        &self,
        options: &PostgresOptions,
        body: impl FnOnce(Box<dyn Wire + '_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let borrowed = self.borrow_next(options)?;
        let Some(Ok(session)) = borrowed.session.as_ref().map(|session| session.try_borrow_mut()) else {
            return Err(nested().into());
        };
        let mut transaction =
            Transaction { session: &session, schema: &options.schema, mode: self.mode, stage: Stage::Before };
        body(Box::new(&mut transaction))?;
        Ok(transaction.commit().map_err(StoreError::from)?)
    }

    /// Waits for the first free session. Callers are served in the order in which they came.
    fn borrow_next(&self, options: &PostgresOptions) -> StoreResult<Borrowed<'_>> {
        if self.sessions.iter().any(ReentrantMutex::is_owned_by_current_thread) {
            return Err(nested());
        }
        let timeout = options.lock_timeout;
        let deadline = if timeout.is_zero() { None } else { Instant::now().checked_add(timeout) };
        let mut queue = self.queue.lock();
        queue.last += 1;
        let me = queue.last;
        queue.waiting.push_back(me);
        let mut session = None;
        loop {
            if queue.waiting.front() == Some(&me) {
                session = self.sessions.iter().find_map(ReentrantMutex::try_lock);
            }
            let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if session.is_some() || is_over {
                break;
            }
            match deadline {
                Some(deadline) => drop(self.changed.wait_until(&mut queue, deadline)),
                None => self.changed.wait(&mut queue),
            }
        }
        queue.waiting.retain(|waiting| *waiting != me);
        drop(queue);
        self.changed.notify_all();
        if session.is_some() {
            return Ok(Borrowed { session, sessions: self });
        }
        let text = format!("other threads used the connection for {timeout:?}: call again");
        Err(StoreError::new(StoreErrorKind::Busy, text))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing was asked yet.
    Before,
    Open,
    /// There is nothing to roll back.
    Over,
}

/// A transaction on one of the store's own connections. Dropping it before the commit rolls it back.
struct Transaction<'l> {
    session: &'l SessionHandle,
    schema: &'l Schema,
    mode: TxMode,
    stage: Stage,
}

impl Wire for Transaction<'_> {
    fn send(&mut self, batch: Vec<Statement>, touch: Touch) -> Result<Vec<Answer>, Failure> {
        fits(&batch)?;
        watch::batch(self.schema, &batch);
        let request = match self.stage {
            Stage::Before => Request::Begin(batch, touch),
            Stage::Open | Stage::Over => Request::Continue(batch),
        };
        self.stage = Stage::Open;
        self.session.call(request)
    }
}

impl Transaction<'_> {
    /// What was read is known before the end of its transaction, so a reader does not wait for that.
    fn commit(mut self) -> Result<(), Failure> {
        if self.stage != Stage::Open || self.mode == TxMode::Read {
            return Ok(());
        }
        self.stage = Stage::Over;
        watch::commit();
        self.session.call(Request::Commit).map(|_| ())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.stage == Stage::Open {
            self.session.send(Request::RollBack);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::tests::{is_refused, too_large};
    use super::*;

    #[test]
    fn what_is_too_large_is_not_sent() {
        let (session, mut calls) = SessionHandle::new();
        let schema = Schema::default();
        let mut transaction =
            Transaction { session: &session, schema: &schema, mode: TxMode::Write, stage: Stage::Before };
        assert!(is_refused(transaction.send(vec![too_large()], Touch::Writes)));
        drop(transaction);
        assert!(calls.try_recv().is_err(), "nor is anything to be rolled back");
    }
}
