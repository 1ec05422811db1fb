//! The memory store: the reference model of the contract, and a store for tests and for hosts that need no
//! durability.
//!
//! All rows are in one `State` behind one lock, which a transaction holds from beginning to end. Every write
//! is a *swap* of one row: it replaces the row and returns the write that undoes this. The swap also
//! maintains the indexes and counters that follow from rows. A transaction keeps these inverses and, if it
//! does not commit, applies them from last to first. So its cost depends on what it changes, never on what is
//! stored.

mod attempts;
mod audit;
mod by_number;
mod change;
mod counters;
mod course;
mod feed;
mod lanes;
mod list;
mod marks;
mod order;
mod pools;
mod promote;
mod requests;
mod rules;
mod run_tx;
mod runs;
mod sensor_tx;
mod sensors;
mod shares;
mod state;
mod task_tx;
mod tasks;
mod undo;

use std::cell::RefCell;
use std::fmt;

use parking_lot::{ReentrantMutex, ReentrantMutexGuard};

use self::state::State;
use self::undo::{Transaction, Undo};
use super::{Durability, Store, StoreInfo, Tx, TxMode, nested};
use crate::error::Result;

/// A store that keeps everything in memory and loses it with the process.
///
/// Transactions run one after another, including those that only read. A transaction that begins inside
/// another one of the same store, on the same thread, is refused.
///
/// # Examples
///
/// ```
/// use stationmaster::store::MemoryStore;
/// let store = MemoryStore::new();
/// assert!(store.read(|tx| tx.audit())?.is_empty());
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Default)]
pub struct MemoryStore {
    /// Borrowed while a transaction is open, so that a nested one on the same thread is detected.
    state: ReentrantMutex<RefCell<State>>,
}

impl MemoryStore {
    /// Creates a store with the default pool and nothing else.
    pub fn new() -> Self {
        Self::default()
    }
}

/// Shows the numbers of rows, not their contents.
impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut output = f.debug_struct("MemoryStore");
        if let Some(lock) = self.state.try_lock()
            && let Ok(state) = lock.try_borrow()
        {
            output.field("tasks", &state.tasks.len()).field("sensors", &state.sensors.len());
        }
        output.finish_non_exhaustive()
    }
}

crate::store::transactions!(=> MemoryStore);

impl Store for MemoryStore {
    fn info(&self) -> StoreInfo {
        StoreInfo::new("memory", 0, Durability::None)
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let lock = self.state.lock();
        let Ok(mut state) = lock.try_borrow_mut() else { return Err(nested().into()) };
        let mut transaction = Transaction::begin(&mut state, mode);
        let answer = Tx::run(&mut transaction, |tx| body(tx));
        let replaced = match &answer {
            Ok(()) => transaction.commit(),
            Err(_) => {
                drop(transaction);
                Undo::default()
            }
        };
        drop(state);
        ReentrantMutexGuard::unlock_fair(lock);
        drop(replaced);
        answer
    }
}

#[cfg(test)]
mod tests;
