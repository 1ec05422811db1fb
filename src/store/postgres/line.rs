//! Connections as callers see them: one transaction at a time on each.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, ReentrantMutex, ReentrantMutexGuard};

use super::driver::Desk;
use super::error::Failure;
use super::link::Work;
use super::name::Schema;
use super::options::PostgresOptions;
use super::watch;
use super::wire::{Answer, Statement, Touch, Wire, fits};
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::store::{TxMode, nested};

/// One connection. Borrowed for as long as a transaction is open: a thread that comes again then finds it so.
type Line = ReentrantMutex<RefCell<Desk>>;

/// All connections that may be used for one mode.
#[derive(Debug)]
pub(super) struct Lines {
    mode: TxMode,
    lines: Vec<Line>,
    queue: Mutex<Queue>,
    /// A line is free, or the queue is shorter.
    moved: Condvar,
}

/// Who waits for a line, in the order in which they came.
#[derive(Debug, Default)]
struct Queue {
    last: u64,
    waiting: VecDeque<u64>,
}

/// A line that nobody else uses.
struct Taken<'l> {
    line: Option<ReentrantMutexGuard<'l, RefCell<Desk>>>,
    lines: &'l Lines,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.line = None;
        // Who looked before is waiting now.
        drop(self.lines.queue.lock());
        self.lines.moved.notify_all();
    }
}

impl Lines {
    pub(super) fn new(mode: TxMode, desks: Vec<Desk>) -> Self {
        let lines = desks.into_iter().map(|desk| ReentrantMutex::new(RefCell::new(desk))).collect();
        Self { mode, lines, queue: Mutex::default(), moved: Condvar::new() }
    }

    /// Runs `body` on a connection that is free, in a transaction that begins with its first statement.
    pub(super) fn transact<E: From<StoreError>>(
        &self,
        options: &PostgresOptions,
        body: impl FnOnce(Box<dyn Wire + '_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let taken = self.free(options)?;
        let Some(Ok(desk)) = taken.line.as_ref().map(|line| line.try_borrow_mut()) else {
            return Err(nested().into());
        };
        let mut open = Open { desk: &desk, schema: &options.schema, mode: self.mode, stage: Stage::Before };
        body(Box::new(&mut open))?;
        Ok(open.commit().map_err(StoreError::from)?)
    }

    /// Waits for whichever is free first; who came first is served first.
    fn free(&self, options: &PostgresOptions) -> StoreResult<Taken<'_>> {
        if self.lines.iter().any(ReentrantMutex::is_owned_by_current_thread) {
            return Err(nested());
        }
        let timeout = options.lock_timeout;
        let deadline = if timeout.is_zero() { None } else { Instant::now().checked_add(timeout) };
        let mut queue = self.queue.lock();
        queue.last += 1;
        let me = queue.last;
        queue.waiting.push_back(me);
        let mut line = None;
        loop {
            if queue.waiting.front() == Some(&me) {
                line = self.lines.iter().find_map(ReentrantMutex::try_lock);
            }
            let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if line.is_some() || is_over {
                break;
            }
            match deadline {
                Some(deadline) => drop(self.moved.wait_until(&mut queue, deadline)),
                None => self.moved.wait(&mut queue),
            }
        }
        queue.waiting.retain(|waiting| *waiting != me);
        drop(queue);
        self.moved.notify_all();
        if line.is_some() {
            return Ok(Taken { line, lines: self });
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

/// A transaction on a connection of the store's own; rolled back when it is dropped before it was committed.
struct Open<'l> {
    desk: &'l Desk,
    schema: &'l Schema,
    mode: TxMode,
    stage: Stage,
}

impl Wire for Open<'_> {
    fn send(&mut self, batch: Vec<Statement>, touch: Touch) -> Result<Vec<Answer>, Failure> {
        fits(&batch)?;
        watch::batch(self.schema, &batch);
        let work = match self.stage {
            Stage::Before => Work::Begin(batch, touch),
            Stage::Open | Stage::Over => Work::Go(batch),
        };
        self.stage = Stage::Open;
        self.desk.have(work)
    }
}

impl Open<'_> {
    /// What was read is known before the end of its transaction, so nobody waits for that.
    fn commit(mut self) -> Result<(), Failure> {
        if self.stage != Stage::Open || self.mode == TxMode::Read {
            return Ok(());
        }
        self.stage = Stage::Over;
        watch::commit();
        self.desk.have(Work::Commit).map(|_| ())
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if self.stage == Stage::Open {
            self.desk.leave(Work::RollBack);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::tests::{is_refused, too_large};
    use super::*;

    #[test]
    fn what_is_too_large_is_not_sent() {
        let (desk, mut orders) = Desk::new();
        let schema = Schema::default();
        let mut open = Open { desk: &desk, schema: &schema, mode: TxMode::Write, stage: Stage::Before };
        assert!(is_refused(open.send(vec![too_large()], Touch::Writes)));
        drop(open);
        assert!(orders.try_recv().is_err(), "nor is anything to be rolled back");
    }
}
