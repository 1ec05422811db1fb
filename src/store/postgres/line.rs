//! Connections as callers see them: one transaction at a time on each.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

use super::driver::Desk;
use super::error::Failure;
use super::link::Work;
use super::name::Schema;
use super::options::PostgresOptions;
use super::watch;
use super::wire::{Answer, Statement, Touch, Wire};
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::store::{TxMode, nested};

/// One connection. Borrowed for as long as a transaction is open: a thread that comes again then finds it so.
type Line = ReentrantMutex<RefCell<Desk>>;

/// All connections that may be used for one mode.
#[derive(Debug)]
pub(super) struct Lines {
    mode: TxMode,
    lines: Vec<Line>,
    next: AtomicUsize,
}

impl Lines {
    pub(super) fn new(mode: TxMode, desks: Vec<Desk>) -> Self {
        let lines = desks.into_iter().map(|desk| ReentrantMutex::new(RefCell::new(desk))).collect();
        Self { mode, lines, next: AtomicUsize::new(0) }
    }

    /// Runs `body` on a connection that is free, in a transaction that begins with its first statement.
    pub(super) fn transact<E: From<StoreError>>(
        &self,
        options: &PostgresOptions,
        body: impl FnOnce(Box<dyn Wire + '_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let line = self.free(options)?;
        let Ok(desk) = line.try_borrow_mut() else { return Err(nested().into()) };
        let mut open = Open { desk: &desk, schema: &options.schema, mode: self.mode, stage: Stage::Before };
        body(Box::new(&mut open))?;
        Ok(open.commit().map_err(StoreError::from)?)
    }

    fn free(&self, options: &PostgresOptions) -> StoreResult<ReentrantMutexGuard<'_, RefCell<Desk>>> {
        if self.lines.iter().any(ReentrantMutex::is_owned_by_current_thread) {
            return Err(nested());
        }
        if let Some(line) = self.lines.iter().find_map(ReentrantMutex::try_lock) {
            return Ok(line);
        }
        let at = self.next.fetch_add(1, Ordering::Relaxed) % self.lines.len().max(1);
        let timeout = options.lock_timeout;
        let line = match self.lines.get(at) {
            Some(line) if timeout.is_zero() => Some(line.lock()),
            Some(line) => line.try_lock_for(timeout),
            None => None,
        };
        line.ok_or_else(|| {
            let text = format!("other threads used the connection for {timeout:?}: call again");
            StoreError::new(StoreErrorKind::Busy, text)
        })
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
