//! The memory store: the reference model of the contract, and a store for tests and for hosts that need no durability.
//!
//! All rows live in one `State` behind one lock, which a transaction holds from its first to its last line. Every
//! write is a *swap* of one row: it puts a row in place and answers with the write that undoes it, and the indexes
//! and counters that follow from rows are kept by the swap itself. A transaction keeps these inverses and, if it does
//! not commit, applies them from the last to the first. It therefore costs what it changes, never what is stored.

mod audit;
mod lanes;
mod pools;
mod requests;
mod run_tx;
mod runs;
mod sensor_tx;
mod sensors;
mod state;
mod task_tx;
mod tasks;
mod undo;

use std::fmt;

use parking_lot::{Mutex, MutexGuard};

use self::state::State;
use self::undo::Transaction;
use super::{Durability, Store, StoreInfo, StoreTx, TxMode};
use crate::error::Result;

/// Keeps everything in memory, and loses it with the process.
///
/// Transactions run one after another, those that only read too. A thread that begins a transaction while it is inside
/// another one of the same store waits for itself for ever.
///
/// # Examples
///
/// ```
/// use stationmaster::store::{MemoryStore, StoreExt};
/// let store = MemoryStore::new();
/// assert_eq!(store.read(|tx| Ok(tx.next_due()?))?, None);
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Default)]
pub struct MemoryStore {
    state: Mutex<State>,
}

impl MemoryStore {
    /// A store with the default pool and nothing else.
    pub fn new() -> Self {
        Self::default()
    }
}

/// Tells how many rows there are, not what is in them.
impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut output = f.debug_struct("MemoryStore");
        if let Some(state) = self.state.try_lock() {
            output.field("tasks", &state.tasks.len()).field("sensors", &state.sensors.len());
        }
        output.finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn info(&self) -> StoreInfo {
        StoreInfo::new("memory", 0, Durability::None)
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut dyn StoreTx) -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        let mut transaction = Transaction::begin(&mut state, mode);
        let answer = body(&mut transaction);
        let replaced = match &answer {
            Ok(()) => transaction.commit(),
            Err(_) => {
                drop(transaction);
                Vec::new()
            }
        };
        MutexGuard::unlock_fair(state);
        drop(replaced);
        answer
    }
}

#[cfg(test)]
mod tests;
