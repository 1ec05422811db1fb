//! A store that wakes a loop when there may be work for it.

use chrono::{DateTime, Utc};

use super::run::LoopHandle;
use crate::admission::limits::{LimitRecord, LimitSpec};
use crate::admission::{Candidate, LanePage};
use crate::error::{Result, StoreResult};
use crate::id::{Holder, LimitKey, PoolName, TaskKey};
use crate::lease::{LeaseRef, TaskNo};
use crate::pool::{PoolRecord, PoolSpec, PoolStats};
use crate::run::{ActiveQuery, RunBeat, RunClose, RunKey, RunPlace, RunRecord};
use crate::sensor::{SensorEvent, SensorInsert, SensorRecord};
use crate::store::{
    Discrepancy, EventNote, GrantBatch, Granted, Inserted, LimitDeletion, Move, Moved, PoolDeletion, PoolTx,
    RunTx, SensorQuery, SensorTx, ShardLease, ShardWrite, Store, StoreInfo, StoreTx, Survey, SurveyQuery,
    TaskTx, TxMode, Worker,
};
use crate::task::{TaskInsert, TaskRecord};

/// Wakes a loop when a transaction committed that gave slots back, made tasks ready, or changed pools or limits.
///
/// Put it before the store that all parts of a process use, and the admitter's loop learns at once of what the others do;
/// of what other processes do it learns at its next tick.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::service::{LoopHandle, WakingStore, lifecycle};
/// use stationmaster::store::{MemoryStore, StoreExt};
/// use stationmaster::time::from_micros;
/// use stationmaster::{NewTask, TaskKey};
///
/// let handle = LoopHandle::new();
/// let store = WakingStore::new(MemoryStore::new(), handle.clone());
/// let seen = handle.seen();
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
/// store.write(|tx| lifecycle::enqueue(tx, from_micros(0), std::slice::from_ref(&task)))?;
/// handle.wait_since(seen, Duration::from_secs(3600)); // returns at once
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug)]
pub struct WakingStore<S> {
    inner: S,
    handle: LoopHandle,
}

impl<S: Store> WakingStore<S> {
    /// Wakes the loops of this handle.
    pub fn new(inner: S, handle: LoopHandle) -> Self {
        Self { inner, handle }
    }

    /// The store behind it.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: Store> Store for WakingStore<S> {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut dyn StoreTx) -> Result<()>) -> Result<()> {
        let mut news = News::No;
        let result = self.inner.transact(mode, &mut |tx| body(&mut WakingTx { tx, news: &mut news }));
        // A commit of unknown end may have taken effect.
        if news == News::Yes && result.as_ref().map_or_else(crate::Error::is_indeterminate, |()| true) {
            self.handle.wake();
        }
        result
    }
}

/// Whether a transaction did what an admitter wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    No,
    Yes,
}

struct WakingTx<'a> {
    tx: &'a mut dyn StoreTx,
    news: &'a mut News,
}

/// Passes calls on; those marked `news` are told of.
macro_rules! pass_on {
    ($($(#[$news:ident])? fn $name:ident($($arg:ident: $ty:ty),*) -> $answer:ty;)+) => {$(
        fn $name(&mut self, $($arg: $ty),*) -> StoreResult<$answer> {
            $(*self.news = pass_on!(@$news);)?
            self.tx.$name($($arg),*)
        }
    )+};
    (@news) => { News::Yes };
}

impl TaskTx for WakingTx<'_> {
    pass_on! {
        #[news] fn insert_tasks_if_absent(tasks: &[TaskInsert]) -> Vec<Inserted>;
        fn tasks(keys: &[TaskKey]) -> Vec<Option<TaskRecord>>;
        fn tasks_by_no(nos: &[TaskNo]) -> Vec<Option<TaskRecord>>;
        fn survey(query: &SurveyQuery) -> Survey;
        fn candidates(pages: &[LanePage]) -> Vec<Candidate>;
        fn grant_if_open(batch: &GrantBatch<'_>) -> Granted;
        fn start_if_queued(leases: &[LeaseRef], now: DateTime<Utc>) -> Vec<Moved>;
        fn renew_if_leased(leases: &[LeaseRef], expires_at: DateTime<Utc>) -> Vec<Moved>;
        #[news] fn move_if(moves: &[Move]) -> Vec<Moved>;
        fn expired(now: DateTime<Utc>, limit: usize) -> Vec<TaskRecord>;
        fn next_expiry() -> Option<DateTime<Utc>>;
        fn forget_ended(before: DateTime<Utc>, limit: usize) -> usize;
        fn audit() -> Vec<Discrepancy>;
    }
}

impl PoolTx for WakingTx<'_> {
    pass_on! {
        #[news] fn put_pools(pools: &[PoolSpec]) -> ();
        fn delete_pools_if_unused(pools: &[PoolName]) -> Vec<PoolDeletion>;
        fn pools(names: &[PoolName]) -> Vec<Option<PoolRecord>>;
        fn all_pools() -> Vec<PoolRecord>;
        fn pool_stats(names: &[PoolName]) -> Vec<Option<PoolStats>>;
        #[news] fn give_slots_back(pools: &[(PoolName, u64)]) -> ();
        #[news] fn put_limits(limits: &[LimitSpec]) -> ();
        #[news] fn delete_limits(keys: &[LimitKey]) -> Vec<LimitDeletion>;
        fn limits(keys: &[LimitKey]) -> Vec<Option<LimitRecord>>;
        fn all_limits() -> Vec<LimitRecord>;
        #[news] fn give_limits_back(limits: &[(LimitKey, u64)]) -> ();
    }
}

impl SensorTx for WakingTx<'_> {
    pass_on! {
        fn put_sensors(sensors: &[SensorInsert]) -> Vec<SensorRecord>;
        fn sensors(tasks: &[TaskKey]) -> Vec<Option<SensorRecord>>;
        fn changed_sensors(query: &SensorQuery) -> Vec<SensorRecord>;
        fn last_sensor_change() -> u64;
        fn last_forgotten_change() -> u64;
        fn end_sensors_if_waiting(sensors: &[LeaseRef]) -> Vec<Option<SensorRecord>>;
        fn note_events(events: &[EventNote]) -> ();
        fn events(after: u64, limit: usize) -> Vec<SensorEvent>;
        fn acknowledge_events(seqs: &[u64]) -> usize;
        fn put_worker(worker: &Worker) -> ();
        fn delete_worker(name: &Holder) -> ();
        fn forget_workers(before: DateTime<Utc>, limit: usize) -> usize;
        fn live_workers(now: DateTime<Utc>) -> Vec<Worker>;
        fn shard_leases() -> Vec<ShardLease>;
        fn put_shards_if_unchanged(writes: &[ShardWrite]) -> Vec<Moved>;
    }
}

impl RunTx for WakingTx<'_> {
    pass_on! {
        fn put_runs(runs: &[RunRecord]) -> ();
        fn close_runs_if_open(closes: &[RunClose]) -> Vec<Moved>;
        fn beat_runs_if_open(beats: &[RunBeat]) -> Vec<Moved>;
        fn runs(keys: &[RunKey]) -> Vec<Option<RunRecord>>;
        fn delete_runs(keys: &[RunKey]) -> usize;
        fn forget_stopped_runs(before: DateTime<Utc>, limit: usize) -> usize;
        fn active_runs(query: &ActiveQuery) -> Vec<RunRecord>;
        fn active_run_places(query: &ActiveQuery) -> Vec<RunPlace>;
        fn count_active_runs(query: &ActiveQuery) -> u64;
        fn silent_runs(before: DateTime<Utc>, limit: usize) -> Vec<RunRecord>;
    }
}
