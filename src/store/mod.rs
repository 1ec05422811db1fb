//! Storage: a store, its transactions, and the crate's own stores.
//!
//! Open a store ([`SqliteStore::open`], [`MemoryStore::new`], `PostgresStore::connect`), and use it through
//! [`read`](crate::store::MemoryStore::read) and [`write`](crate::store::MemoryStore::write). Their bodies
//! receive a [`ReadTx`] or a [`Tx`]. Its methods cover everything a host does with tasks, pools, limits,
//! sensors and runs. The same [`Tx`] works in a transaction that the host owns.
//!
//! A backend implements the traits in [`contract`].

mod awake;
pub mod contract;
mod marks;
mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg_attr(not(feature = "testing"), allow(dead_code, unreachable_pub))]
pub(crate) mod read_counter;
pub(crate) mod serving;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod sums;
mod tx;

use std::fmt::Debug;
use std::time::Duration;

pub use contract::{Discrepancy, Inserted};
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use tx::{ReadTx, Tx};

use crate::error::{Error, Result, StoreError, StoreErrorKind};

/// What a transaction may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxMode {
    /// Only read. Writing is a caller's error, and a store may refuse it.
    Read,
    /// Read and write.
    Write,
}

impl TxMode {
    /// Returns the name, which also serves as a label of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// Describes a store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreInfo {
    /// `"memory"`, `"sqlite"`, `"postgres"`, or the host's own name.
    pub backend: &'static str,
    /// The version of its schema; 0 if it has no schema.
    pub schema: u32,
    /// What its commits survive.
    pub durability: Durability,
    /// How long a call waits for one of the store's connections, and then again for other writers. After that
    /// it returns [`StoreErrorKind::Busy`]. `None` means no limit.
    pub lock_timeout: Option<Duration>,
}

/// What a commit survives. Later variants survive more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing survives the process.
    None,
    /// Commits survive the process; the last ones may be lost when the machine loses power.
    Process,
    /// Commits survive the loss of power.
    Power,
}

impl StoreInfo {
    /// Creates the description of a store whose calls wait for each other without limit.
    pub fn new(backend: &'static str, schema: u32, durability: Durability) -> Self {
        Self { backend, schema, durability, lock_timeout: None }
    }

    /// Sets how long a call waits for other calls.
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = Some(timeout);
        self
    }
}

/// A store. Object-safe: services hold an `Arc<dyn Store>`.
///
/// A host calls `read` and `write`, which are methods of `dyn Store` and of each store of the crate, such as
/// [`MemoryStore::write`]. They need no import of this trait. Only a store implements [`Self::transact`].
pub trait Store: Debug + Send + Sync {
    /// Returns a description of the store.
    fn info(&self) -> StoreInfo;

    /// Runs `body` in one transaction: commits if it returns `Ok`, rolls back if it returns `Err` or panics.
    ///
    /// `body` runs once per call. It must not begin another transaction of the same store on its thread. Otherwise the
    /// crate's stores return an error of kind `Backend`, and a host's store may deadlock.
    ///
    /// # Errors
    ///
    /// The error that `body` returned, or the store's own. Its kind is [`crate::error::StoreErrorKind::Indeterminate`]
    /// only if the commit itself failed and its effect is unknown. After an error the store keeps working.
    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()>;
}

/// The most times that [`write`](crate::store::MemoryStore::write) runs its body again after a
/// [`crate::error::StoreErrorKind::Conflict`].
pub const CONFLICT_RETRIES: u32 = 16;

/// Gives a store its two transaction methods, so that a host need not import a trait for them.
macro_rules! transactions {
    ($($generics:ident)? => $store:ty) => {
        impl$(<$generics: $crate::store::Store>)? $store {
            /// Runs `body` in a transaction that only reads.
            ///
            /// # Errors
            ///
            /// As [`Store::transact`](crate::store::Store::transact).
            pub fn read<T>(
                &self,
                body: impl FnMut(&mut $crate::store::ReadTx<'_>) -> $crate::error::Result<T>,
            ) -> $crate::error::Result<T> {
                $crate::store::read(self, body)
            }

            /// Runs `body` in a transaction that writes.
            ///
            /// Runs `body` again, up to [`CONFLICT_RETRIES`](crate::store::CONFLICT_RETRIES) times, if another writer
            /// came between its decision and its commit. The same holds if the database aborted it in favour of
            /// another transaction (PostgreSQL's serialization failures and deadlocks), and if the PostgreSQL store
            /// returned the result of a verb before the server did, and was wrong. `body` must have no other effects. Before each further run the thread sleeps, first for 0.2 ms, then longer, up to 10 ms.
            ///
            /// # Errors
            ///
            /// As [`Store::transact`](crate::store::Store::transact).
            ///
            /// # Examples
            ///
            /// ```
            /// use stationmaster::admission::IfExists;
            /// use stationmaster::pool::{PoolSpec, Slots};
            /// use stationmaster::store::MemoryStore;
            ///
            /// let store = MemoryStore::new();
            /// store.write(|tx| tx.define([PoolSpec::new("db", Slots::Limited(4))?], IfExists::Replace))?;
            /// let pools = store.read(|tx| tx.all_pools())?;
            /// assert_eq!(pools.len(), 2, "default_pool and db");
            /// # Ok::<(), stationmaster::Error>(())
            /// ```
            pub fn write<T>(
                &self,
                body: impl FnMut(&mut $crate::store::Tx<'_>) -> $crate::error::Result<T>,
            ) -> $crate::error::Result<T> {
                $crate::store::write(self, body)
            }
        }
    };
}
pub(crate) use transactions;

transactions!(=> dyn Store + '_);

pub(crate) fn read<T>(
    store: &(impl Store + ?Sized),
    mut body: impl FnMut(&mut ReadTx<'_>) -> Result<T>,
) -> Result<T> {
    once(store, TxMode::Read, |tx| body(tx))
}

pub(crate) fn write<T>(
    store: &(impl Store + ?Sized),
    mut body: impl FnMut(&mut Tx<'_>) -> Result<T>,
) -> Result<T> {
    let mut left = CONFLICT_RETRIES;
    loop {
        match once(store, TxMode::Write, &mut body) {
            Err(Error::Store(error)) if left > 0 && error.kind() == StoreErrorKind::Conflict => {
                if !error.is_again() {
                    std::thread::sleep(pause(CONFLICT_RETRIES - left));
                }
                left -= 1;
            }
            other => return other,
        }
    }
}

/// Returns how long to wait after a conflict, given the number of those before it.
fn pause(conflicts: u32) -> Duration {
    Duration::from_micros(200 << conflicts.min(6)).min(Duration::from_millis(10))
}

/// Returns the error for a thread that begins a transaction inside another one, and would deadlock.
fn nested() -> StoreError {
    let text = "a transaction of this store is open on this thread: use it, or end it first";
    StoreError::new(StoreErrorKind::Backend, text)
}

fn once<S: Store + ?Sized, T>(
    store: &S,
    mode: TxMode,
    mut body: impl FnMut(&mut Tx<'_>) -> Result<T>,
) -> Result<T> {
    let mut answer = None;
    store.transact(mode, &mut |tx| {
        let done = body(tx);
        // The effect of the last verb stays, and may already be committed.
        answer = Some(if tx.is_over() { done } else { Ok(done?) });
        Ok(())
    })?;
    answer.unwrap_or_else(|| Err(Error::abort("the store committed a transaction without running its body")))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn conflicts_are_tried_again_after_pauses_that_grow() {
        let store = MemoryStore::new();
        let began = Instant::now();
        let mut runs = 0;
        let answer: Result<()> = store.write(|_| {
            runs += 1;
            Err(StoreError::conflict("on purpose").into())
        });
        assert!(answer.is_err_and(|error| error.is_retryable()));
        assert_eq!(runs, CONFLICT_RETRIES + 1);
        assert!(began.elapsed() >= (0..CONFLICT_RETRIES).map(pause).sum());
        assert_eq!([0, 1, 5, 6, 99].map(|n| pause(n).as_micros()), [200, 400, 6_400, 10_000, 10_000]);
    }

    #[test]
    fn other_errors_are_answered_at_once() {
        let mut runs = 0;
        let answer: Result<()> = MemoryStore::new().write(|_| {
            runs += 1;
            Err(StoreError::new(StoreErrorKind::Busy, "on purpose").into())
        });
        assert!(answer.is_err() && runs == 1);
    }
}
