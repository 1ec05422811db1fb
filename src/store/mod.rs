//! Storage: a store, its transactions, and the stores of the crate.
//!
//! Open a store ([`SqliteStore::open`], [`MemoryStore::new`], `PostgresStore::connect`), and use it by
//! [`read`](crate::store::MemoryStore::read) and [`write`](crate::store::MemoryStore::write). Their bodies are given a [`ReadTx`] or a [`Tx`], whose methods
//! are all that a host does with tasks, pools, limits, sensors and runs. The same [`Tx`] works in a
//! transaction that the host owns.
//!
//! A backend implements the traits in [`contract`].

pub mod contract;
mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg_attr(not(feature = "testing"), allow(dead_code, unreachable_pub))]
pub(crate) mod read_counter;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod tx;

use std::fmt::Debug;
use std::time::Duration;

pub use contract::{Discrepancy, Inserted, LimitDeletion, PoolDeletion};
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteStore;
pub use tx::{ReadTx, Tx};

use crate::error::{Error, Result, StoreError, StoreErrorKind};

/// What a transaction is going to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TxMode {
    /// Only read. Writing inside it is an error of the caller's, and a store may refuse it.
    Read,
    /// Read and write.
    Write,
}

impl TxMode {
    /// The name, which also serves as a label of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// What a store is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreInfo {
    /// `"memory"`, `"sqlite"`, `"postgres"`, or a name of the host's.
    pub backend: &'static str,
    /// The version of its schema; 0 if it has none.
    pub schema: u32,
    /// Whether what it committed survives the end of the process.
    pub durability: Durability,
    /// How long a call waits for a connection of the store, and then again for other writers, before it
    /// returns [`StoreErrorKind::Busy`]. `None`: without limit.
    pub lock_timeout: Option<Duration>,
}

/// What a commit survives. The later in this list, the more.
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
    /// Describes a store whose calls wait for each other without limit.
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
pub trait Store: Debug + Send + Sync {
    /// What the store is.
    fn info(&self) -> StoreInfo;

    /// Runs `body` in one transaction: commits if it answers `Ok`, rolls back if it answers `Err` or panics.
    ///
    /// `body` runs once per call. It must not begin another transaction of the same store on its thread: the
    /// crate's stores answer that with an error of kind `Backend`, where a store of the host's may wait for
    /// itself.
    ///
    /// # Errors
    ///
    /// What `body` answered, or the store's own failure. [`crate::error::StoreErrorKind::Indeterminate`] only
    /// if the commit itself failed in a way that leaves its effect open. After an error the store goes on
    /// working.
    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()>;
}

/// How often [`write`](crate::store::MemoryStore::write) runs its body again after a [`crate::error::StoreErrorKind::Conflict`].
pub const CONFLICT_RETRIES: u32 = 16;

/// Gives a store the two ways to open a transaction, so that a host need not import a trait for them.
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
            /// Runs it again, up to [`CONFLICT_RETRIES`](crate::store::CONFLICT_RETRIES) times, if another
            /// writer came between its decision and its commit, or if the database ended it for the sake of
            /// another transaction (PostgreSQL's serialization failures and deadlocks). `body` must be free
            /// of other effects. Before each further run the thread sleeps, 0.2 ms first, then longer, up to
            /// 10 ms.
            ///
            /// # Errors
            ///
            /// As [`Store::transact`](crate::store::Store::transact).
            ///
            /// # Examples
            ///
            /// ```
            /// use stationmaster::pool::{PoolSpec, Slots};
            /// use stationmaster::store::MemoryStore;
            ///
            /// let store = MemoryStore::new();
            /// store.write(|tx| tx.put_pools(&[PoolSpec::new("db", Slots::Limited(4))?]))?;
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
                std::thread::sleep(pause(CONFLICT_RETRIES - left));
                left -= 1;
            }
            other => return other,
        }
    }
}

/// How long to wait after a conflict, after this many others.
fn pause(conflicts: u32) -> Duration {
    Duration::from_micros(200 << conflicts.min(6)).min(Duration::from_millis(10))
}

/// For stores: the thread that asks for a transaction is inside one, and would wait for itself.
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
        answer = Some(body(tx)?);
        Ok(())
    })?;
    answer.ok_or_else(|| Error::abort("the store committed a transaction without running its body"))
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
