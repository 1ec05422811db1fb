//! What a store does with pools and limits.

use crate::admission::limits::{LimitRecord, LimitSpec};
use crate::error::StoreResult;
use crate::id::{LimitKey, PoolName};
use crate::pool::{PoolRecord, PoolSpec, PoolStats};

/// The outcome of deleting a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolDeletion {
    /// It was deleted. Tasks that name it wait, with that reason.
    Deleted,
    /// No pool has this name.
    Unknown,
    /// Not deleted: tasks hold this many of its slots.
    InUse(i64),
    /// Not deleted: it is [`PoolName::DEFAULT`].
    IsDefault,
}

/// The outcome of removing a limit from its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitDeletion {
    /// The key no longer limits anything.
    Deleted,
    /// No limit was defined for the key.
    NotDefined,
}

/// Pools and limits: their sizes and their counters.
///
/// The counters change together with tasks: [`TaskTx::grant_if_open`](super::TaskTx::grant_if_open) takes
/// slots, [`TaskTx::move_if`](super::TaskTx::move_if) returns them.
///
/// A new store has the pool [`PoolName::DEFAULT`] with [`crate::pool::DEFAULT_POOL_SLOTS`] slots.
pub trait PoolTx {
    /// Creates or changes pools. Slots that tasks hold stay held.
    fn put_pools(&mut self, pools: &[PoolSpec]) -> StoreResult<()>;

    /// Deletes the pools of which no task holds slots, but never the default pool.
    fn delete_pools_if_unused(&mut self, pools: &[PoolName]) -> StoreResult<Vec<PoolDeletion>>;

    /// Returns the pools with these names.
    fn pools(&mut self, names: &[PoolName]) -> StoreResult<Vec<Option<PoolRecord>>>;

    /// Returns all pools, by name.
    fn all_pools(&mut self) -> StoreResult<Vec<PoolRecord>>;

    /// Sums slots by what the tasks of these pools are doing. The cost grows with the number of leases, lanes
    /// and sensors.
    fn pool_stats(&mut self, names: &[PoolName]) -> StoreResult<Vec<Option<PoolStats>>>;

    /// Defines or changes limits. What counts against them stays.
    fn put_limits(&mut self, limits: &[LimitSpec]) -> StoreResult<()>;

    /// Removes the limits from these keys. Tasks that carry them are still counted. A key becomes unknown if no
    /// task carries it that has not ended, and nothing counts against it.
    fn delete_limits(&mut self, keys: &[LimitKey]) -> StoreResult<Vec<LimitDeletion>>;

    /// Returns the limits of these keys, including those that only tasks made known.
    fn limits(&mut self, keys: &[LimitKey]) -> StoreResult<Vec<Option<LimitRecord>>>;

    /// Returns all limits that are defined, by key.
    fn all_limits(&mut self) -> StoreResult<Vec<LimitRecord>>;
}
