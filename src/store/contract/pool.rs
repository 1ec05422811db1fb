//! What a store does with pools and limits.

use crate::admission::limits::{LimitRecord, LimitSpec, RateUse};
use crate::admission::{LaneKey, ShareUse, Subject, Undefined, WaitingCap};
use crate::error::StoreResult;
use crate::id::{LimitKey, PoolName};
use crate::pool::{PoolRecord, PoolSpec, PoolStats};
use crate::time::Timestamp;

/// The number of leases by the needs of their tasks. Lanes without leases may be omitted.
pub type LeasesByLane = Vec<(LaneKey, u64)>;

/// Pools and limits: their sizes and their counters.
///
/// The counters change together with tasks: [`TaskTx::grant_if_open`](super::TaskTx::grant_if_open) takes
/// slots, [`TaskTx::move_if`](super::TaskTx::move_if) returns them.
///
/// A new store has the pool [`PoolName::DEFAULT`] with [`crate::pool::DEFAULT_POOL_SLOTS`] slots.
pub trait PoolTx {
    /// Excludes ticks, and other transactions that change definitions or pauses, from now until the end of the
    /// transaction. Later reads see what these transactions committed.
    fn lock_definitions(&mut self) -> StoreResult<()>;

    /// Creates or changes pools. Slots that tasks hold stay held.
    fn put_pools(&mut self, pools: &[PoolSpec]) -> StoreResult<()>;

    /// Deletes the pools whose slots no task holds, but never the default pool.
    fn delete_pools_if_unused(&mut self, pools: &[PoolName]) -> StoreResult<Vec<Undefined>>;

    /// Returns the pools with these names.
    fn pools(&mut self, names: &[PoolName]) -> StoreResult<Vec<Option<PoolRecord>>>;

    /// Returns all pools, by name.
    fn all_pools(&mut self) -> StoreResult<Vec<PoolRecord>>;

    /// Sums slots by what the tasks of these pools are doing. The cost grows with the number of leases, lanes
    /// and sensors.
    fn pool_stats(&mut self, names: &[PoolName]) -> StoreResult<Vec<Option<PoolStats>>>;

    /// Defines limits and families, or replaces their definitions. What counts against keys stays. Does not set caps:
    /// see [`Self::put_caps`].
    fn put_limits(&mut self, limits: &[LimitSpec]) -> StoreResult<()>;

    /// Removes the definitions of these keys. Returns which of them existed. Tasks that carry them are still
    /// counted. A key becomes unknown when no open task carries it and nothing counts against it.
    fn delete_limits(&mut self, keys: &[LimitKey]) -> StoreResult<Vec<bool>>;

    /// Removes the definitions of the families with these prefixes. Returns which of them existed.
    fn delete_families(&mut self, prefixes: &[LimitKey]) -> StoreResult<Vec<bool>>;

    /// Returns the limits of these keys, including those that only tasks made known. Families are not applied.
    fn limits(&mut self, keys: &[LimitKey]) -> StoreResult<Vec<Option<LimitRecord>>>;

    /// Returns all keys that are defined, by key.
    fn all_limits(&mut self) -> StoreResult<Vec<LimitRecord>>;

    /// Returns the definitions of all families, by prefix.
    fn families(&mut self) -> StoreResult<Vec<LimitSpec>>;

    /// Sets or removes the caps of queues, keys and families. Returns which had one. The last cap of each subject
    /// counts.
    fn put_caps(&mut self, caps: &[(Subject, Option<WaitingCap>)]) -> StoreResult<Vec<bool>>;

    /// Returns all caps by subject: of queues, keys, then families.
    fn caps(&mut self) -> StoreResult<Vec<(Subject, WaitingCap)>>;

    /// Returns what these keys owe to rates for starts, and the latest instant at which any key of the store took a
    /// token. May omit keys that owe nothing.
    fn rates(&mut self, keys: &[LimitKey]) -> StoreResult<(Vec<RateUse>, Option<Timestamp>)>;

    /// Returns what these shares hold of these pools, and how many grants the store has made to tasks of shares. May
    /// omit pairs for which the store keeps nothing.
    ///
    /// A store keeps a [`ShareUse`] for a share and a pool in two cases: while the share has an open task whose own
    /// pool it is, and while tasks of the share hold slots of it. It begins like a new share's. When the last slot is
    /// returned, the stamp becomes twice the number of grants, plus one. The next survey that promotes forgets those
    /// with neither tasks nor slots. A share that comes back before that continues with its old one.
    fn shares(&mut self, pairs: &[(PoolName, LimitKey)]) -> StoreResult<(Vec<ShareUse>, i64)>;

    /// Pauses these subjects, or resumes them. Returns which of them it changed.
    fn put_paused(&mut self, subjects: &[Subject], paused: bool) -> StoreResult<Vec<bool>>;

    /// Returns the paused subjects, in order.
    fn paused(&mut self) -> StoreResult<Vec<Subject>>;

    /// Returns the paused subjects, and the number of leases by the needs of their tasks, both at one instant. The
    /// cost grows with the number of leases and lanes.
    fn leases(&mut self) -> StoreResult<(Vec<Subject>, LeasesByLane)>;
}
