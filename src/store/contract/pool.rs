//! What a store does with pools and limits.

use crate::admission::limits::{LimitRecord, LimitSpec};
use crate::error::StoreResult;
use crate::id::{LimitKey, PoolName};
use crate::pool::{PoolRecord, PoolSpec, PoolStats};

/// What became of a pool that was to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PoolDeletion {
    /// It is gone. Tasks that name it wait, with that reason.
    Deleted,
    /// There is none of this name.
    Unknown,
    /// Tasks hold this many of its slots; it stays.
    InUse(i64),
    /// It is [`PoolName::DEFAULT`]; it stays.
    IsDefault,
}

/// What became of a limit that was to be taken off its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitDeletion {
    /// The key limits nothing any more.
    Deleted,
    /// No limit was defined for it.
    NotDefined,
}

/// Pools and limits: their sizes and their counters.
///
/// The counters change where tasks do: [`TaskTx::grant_if_open`](super::TaskTx::grant_if_open) takes,
/// [`TaskTx::move_if`](super::TaskTx::move_if) gives back.
///
/// A store is born with the pool [`PoolName::DEFAULT`] of [`crate::pool::DEFAULT_POOL_SLOTS`] slots.
pub trait PoolTx {
    /// Creates or changes pools; what tasks hold of them stays.
    fn put_pools(&mut self, pools: &[PoolSpec]) -> StoreResult<()>;

    /// Deletes those of the pools that no task holds slots of, but never the default pool.
    fn delete_pools_if_unused(&mut self, pools: &[PoolName]) -> StoreResult<Vec<PoolDeletion>>;

    /// The pools of these names.
    fn pools(&mut self, names: &[PoolName]) -> StoreResult<Vec<Option<PoolRecord>>>;

    /// All pools, by name.
    fn all_pools(&mut self) -> StoreResult<Vec<PoolRecord>>;

    /// Sums of slots by what the tasks of these pools are doing. Costs as much as there are leases, lanes and
    /// sensors.
    fn pool_stats(&mut self, names: &[PoolName]) -> StoreResult<Vec<Option<PoolStats>>>;

    /// Defines or changes limits; what counts against them stays.
    fn put_limits(&mut self, limits: &[LimitSpec]) -> StoreResult<()>;

    /// Takes the limits off these keys; tasks that carry them go on being counted. A key that no task carries
    /// and nothing counts against is not known any more.
    fn delete_limits(&mut self, keys: &[LimitKey]) -> StoreResult<Vec<LimitDeletion>>;

    /// The limits of these keys, also those that only tasks made known.
    fn limits(&mut self, keys: &[LimitKey]) -> StoreResult<Vec<Option<LimitRecord>>>;

    /// All keys that a limit is defined for, by key.
    fn all_limits(&mut self) -> StoreResult<Vec<LimitRecord>>;
}
