//! The transaction: every method of the four traits passed on, unless it is the one that fails.

use std::ops::Range;

use super::{FaultStore, When, on_purpose};
use crate::admission::ShareUse;
use crate::admission::limits::{LimitRecord, LimitSpec, RateUse};
use crate::admission::{Candidate, LanePage, QueueRecord, Serving, Subject, Undefined, WaitingCap};
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::feed::{Consumer, TaskEvent};
use crate::fingerprint::Fingerprint;
use crate::id::{Holder, LimitKey, PoolName, TaskKey};
use crate::lease::{LeaseRef, Renewal, TaskId};
use crate::pool::{PoolRecord, PoolSpec, PoolStats};
use crate::run::{ActiveQuery, RunBeat, RunClose, RunKey, RunPlace, RunRecord};
use crate::sensor::{PokeCounts, SensorInsert, SensorRecord};
use crate::store::contract::{
    CapUse, Change, FeedTx, GrantBatch, Granted, Held, LanesBehind, LeasesByLane, Mark, Move, OutageRow,
    Overdue, PokeCountRow, PokerRow, PoolTx, Promote, RunTx, SensorChanges, SensorQuery, SensorTx,
    ShardLease, ShardTake, ShardWrite, Started, StoreTx, Survey, SurveyQuery, TaskSums, TaskTx, TaskWalk,
    Wait, Walked,
};
use crate::store::{Discrepancy, Inserted};
use crate::task::{PastAttempt, TaskInsert, TaskRecord, TaskState};
use crate::time::Timestamp;

/// Counts every call.
pub(super) struct FaultTx<'a> {
    tx: &'a mut dyn StoreTx,
    store: &'a FaultStore,
    /// The kind of error with which every further call is refused.
    broken: Option<StoreErrorKind>,
}

impl<'a> FaultTx<'a> {
    pub(super) fn new(tx: &'a mut dyn StoreTx, store: &'a FaultStore) -> Self {
        Self { tx, store, broken: None }
    }

    /// Refuses to continue after a call that took effect but whose response was lost.
    pub(super) fn check_whole(&self) -> StoreResult<()> {
        let Some(kind) = self.broken else { return Ok(()) };
        let text = "an operation failed earlier in this transaction: roll it back and begin again";
        Err(StoreError::new(kind, text))
    }

    fn call<T>(
        &mut self,
        name: &'static str,
        make: impl FnOnce(&mut dyn StoreTx) -> StoreResult<T>,
    ) -> StoreResult<T> {
        self.check_whole()?;
        self.store.others.come_before(name, self.tx)?;
        let was_committed = self.tx.is_committed();
        let (mut answer, failed) = self.store.call(name, || make(self.tx));
        if failed == Some(When::After) {
            self.broken = Some(StoreErrorKind::Backend);
            // The response to the commit is lost with the call's.
            if self.tx.is_committed() && !was_committed {
                self.broken = Some(StoreErrorKind::Indeterminate);
                self.store.committed_along();
                answer = Err(on_purpose(StoreErrorKind::Indeterminate, name));
            }
        }
        answer
    }
}

/// Passes calls on.
macro_rules! pass_on {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $answer:ty;)+) => {$(
        fn $name(&mut self, $($arg: $ty),*) -> StoreResult<$answer> {
            self.call(stringify!($name), |tx| tx.$name($($arg),*))
        }
    )+};
}

impl TaskTx for FaultTx<'_> {
    pass_on! {
        fn insert_tasks_if_absent(tasks: &[TaskInsert]) -> Vec<Inserted>;
        fn insert_tasks_if_uncapped(tasks: &[TaskInsert]) -> Option<Vec<Inserted>>;
        fn hold_caps(tasks: &[TaskInsert]) -> Vec<CapUse>;
        fn tasks(keys: &[TaskKey]) -> Vec<Option<TaskRecord>>;
        fn tasks_by_id(ids: &[TaskId]) -> Vec<Option<TaskRecord>>;
        fn survey(query: &SurveyQuery) -> Survey;
        fn overdue(promote: Promote) -> Overdue;
        fn candidates(pages: &[LanePage]) -> Vec<Candidate>;
        fn grant_if_open(batch: &GrantBatch<'_>) -> Granted;
        fn start_if_queued(leases: &[LeaseRef], now: Timestamp) -> Vec<Option<Started>>;
        fn note_if_leased(notes: &[(LeaseRef, Timestamp, String)]) -> Vec<bool>;
        fn cancel_if_leased(leases: &[LeaseRef], deadline: Timestamp, message: &str) -> Vec<Option<Timestamp>>;
        fn move_if(moves: &[Move]) -> Vec<bool>;
        fn attempts(tasks: &[TaskId]) -> Vec<Vec<PastAttempt>>;
        fn change_if(changes: &[Change]) -> Vec<bool>;
        fn delete_if(tasks: &[(LeaseRef, TaskState)]) -> Vec<bool>;
        fn end_if_leased(ends: &[Move]) -> Vec<Option<bool>>;
        fn put_serving(serving: &Serving, forget: Timestamp) -> ();
        fn serving() -> Vec<Serving>;
        fn queues() -> Vec<QueueRecord>;
        fn walk_tasks(walk: &TaskWalk<'_>) -> Walked;
        fn count_tasks(cap: usize) -> TaskSums;
        fn next_expiry() -> Option<Timestamp>;
        fn sizes() -> Vec<(String, u64)>;
        fn serialize(names: &[&str]) -> ();
        fn leases_of(holder: &Holder, after: Option<TaskId>, limit: usize) -> Vec<TaskRecord>;
        fn forget_ended(state: TaskState, before: Timestamp, sensors_before: Timestamp, limit: usize) -> usize;
        fn lanes_behind(page: &LanesBehind<'_>) -> Survey;
        fn put_marks(marks: &[Mark]) -> ();
        fn audit() -> Vec<Discrepancy>;
        fn repair_counters() -> Vec<Discrepancy>;
    }

    fn last(&mut self) {
        self.tx.last();
    }

    fn is_committed(&self) -> bool {
        self.tx.is_committed()
    }

    fn hold_tasks(&mut self, ids: &[TaskId], wait: Wait) -> StoreResult<Vec<Held>> {
        let mut held = self.call("hold_tasks", |tx| tx.hold_tasks(ids, wait))?;
        for (held, id) in held.iter_mut().zip(ids).filter(|_| wait == Wait::Never) {
            if *held != Held::Unknown && self.store.others.hold_task(*id) {
                *held = Held::Busy;
            }
        }
        Ok(held)
    }

    fn renew_if_leased(&mut self, leases: &[LeaseRef], expires_at: Timestamp) -> StoreResult<Vec<Renewal>> {
        let mut renewals = self.call("renew_if_leased", |tx| tx.renew_if_leased(leases, expires_at))?;
        for (renewal, lease) in renewals.iter_mut().zip(leases) {
            if *renewal == Renewal::Renewed && self.store.others.hold_task(lease.id) {
                *renewal = Renewal::Busy;
            }
        }
        Ok(renewals)
    }

    fn hold_expired(&mut self, now: Timestamp, limit: usize) -> StoreResult<Vec<TaskRecord>> {
        let mut expired = self.call("hold_expired", |tx| tx.hold_expired(now, usize::MAX))?;
        expired.retain(|task| !self.store.others.hold_task(task.id));
        expired.truncate(limit);
        Ok(expired)
    }
}

impl PoolTx for FaultTx<'_> {
    pass_on! {
        fn lock_definitions() -> ();
        fn put_pools(pools: &[PoolSpec]) -> ();
        fn delete_pools_if_unused(pools: &[PoolName]) -> Vec<Undefined>;
        fn pools(names: &[PoolName]) -> Vec<Option<PoolRecord>>;
        fn all_pools() -> Vec<PoolRecord>;
        fn pool_stats(names: &[PoolName]) -> Vec<Option<PoolStats>>;
        fn put_limits(limits: &[LimitSpec]) -> ();
        fn delete_limits(keys: &[LimitKey]) -> Vec<bool>;
        fn delete_families(prefixes: &[LimitKey]) -> Vec<bool>;
        fn families() -> Vec<LimitSpec>;
        fn put_caps(caps: &[(Subject, Option<WaitingCap>)]) -> Vec<bool>;
        fn caps() -> Vec<(Subject, WaitingCap)>;
        fn rates(keys: &[LimitKey]) -> (Vec<RateUse>, Option<Timestamp>);
        fn shares(pairs: &[(PoolName, LimitKey)]) -> (Vec<ShareUse>, i64);
        fn put_paused(subjects: &[Subject], paused: bool) -> Vec<bool>;
        fn paused() -> Vec<Subject>;
        fn leases() -> (Vec<Subject>, LeasesByLane);
        fn limits(keys: &[LimitKey]) -> Vec<Option<LimitRecord>>;
        fn all_limits() -> Vec<LimitRecord>;
    }
}

impl SensorTx for FaultTx<'_> {
    pass_on! {
        fn put_sensors(sensors: &[SensorInsert]) -> Vec<SensorRecord>;
        fn sensors(tasks: &[TaskKey]) -> Vec<Option<SensorRecord>>;
        fn changed_sensors(query: &SensorQuery) -> Vec<SensorRecord>;
        fn sensor_changes() -> SensorChanges;
        fn number_changes(limit: usize) -> usize;
        fn end_sensors_if_waiting(sensors: &[LeaseRef]) -> Vec<Option<SensorRecord>>;
        fn put_worker(worker: &PokerRow) -> ();
        fn delete_worker(name: &Holder) -> ();
        fn forget_workers(before: Timestamp, limit: usize) -> usize;
        fn live_workers(now: Timestamp) -> Vec<PokerRow>;
        fn shard_leases() -> Vec<ShardLease>;
        fn put_shards_if_unchanged(writes: &[ShardWrite]) -> Vec<bool>;
        fn put_shard_takes(takes: &[ShardTake], forget: Timestamp) -> ();
        fn shard_takes() -> Vec<ShardTake>;
        fn put_outages(outages: &[OutageRow], forget: Timestamp) -> ();
        fn outages(of: Option<&[Fingerprint]>) -> Vec<OutageRow>;
        fn put_poke_counts(counts: &[PokeCountRow], forget: Timestamp) -> ();
        fn poke_counts(hours: Range<Timestamp>) -> Vec<PokeCounts>;
    }
}

impl FeedTx for FaultTx<'_> {
    pass_on! {
        fn feed(after: u64, limit: usize) -> Vec<TaskEvent>;
        fn feed_last() -> u64;
        fn forget_feed(accepted: u64, before: Timestamp, limit: usize) -> usize;
        fn consumers() -> Vec<Consumer>;
        fn hold_consumer(name: &Holder) -> Option<Consumer>;
        fn put_consumer(consumer: &Consumer) -> ();
        fn delete_consumer(name: &Holder) -> bool;
    }
}

impl RunTx for FaultTx<'_> {
    pass_on! {
        fn wait_for_runs(keys: &[RunKey]) -> ();
        fn put_runs(runs: &[RunRecord]) -> ();
        fn close_runs_if_open(closes: &[RunClose]) -> Vec<bool>;
        fn beat_runs_if_open(beats: &[RunBeat]) -> Vec<bool>;
        fn runs(keys: &[RunKey]) -> Vec<Option<RunRecord>>;
        fn delete_runs(keys: &[RunKey]) -> usize;
        fn forget_stopped_runs(before: Timestamp, limit: usize) -> usize;
        fn active_runs(query: &ActiveQuery) -> Vec<RunRecord>;
        fn active_run_places(query: &ActiveQuery) -> Vec<RunPlace>;
        fn count_active_runs(query: &ActiveQuery) -> u64;
        fn silent_runs(before: Timestamp, limit: usize) -> Vec<RunRecord>;
    }

    fn hold_runs(&mut self, keys: &[RunKey]) -> StoreResult<Vec<bool>> {
        let mut free = self.call("hold_runs", |tx| tx.hold_runs(keys))?;
        for (free, key) in free.iter_mut().zip(keys) {
            *free &= !self.store.others.hold_run(key);
        }
        Ok(free)
    }
}
