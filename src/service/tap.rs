//! A transaction that tells of its writes: what decorating stores have in common.

use chrono::{DateTime, Utc};

use crate::admission::limits::{LimitRecord, LimitSpec};
use crate::admission::{Candidate, LanePage};
use crate::error::StoreResult;
use crate::id::{Holder, LimitKey, PoolName, TaskKey};
use crate::lease::{LeaseRef, TaskNo};
use crate::pool::{PoolRecord, PoolSpec, PoolStats};
use crate::run::{ActiveQuery, RunBeat, RunClose, RunKey, RunPlace, RunRecord};
use crate::sensor::{SensorEvent, SensorInsert, SensorRecord};
use crate::store::{
    Discrepancy, EventNote, GrantBatch, Granted, Inserted, LimitDeletion, Move, Moved, PoolDeletion, PoolTx,
    RunTx, SensorQuery, SensorTx, ShardLease, ShardWrite, StoreTx, Survey, SurveyQuery, TaskTx, Worker,
};
use crate::task::{TaskInsert, TaskRecord};

/// A write that succeeded, with what it answered.
pub(super) enum Write<'a> {
    Inserted(&'a [Inserted]),
    Granted(&'a Granted),
    Started(&'a [Moved]),
    Renewed(&'a [Moved]),
    Moved(&'a [Move], &'a [Moved]),
    /// Pools or limits were changed, or something came back to them.
    Capacity,
}

/// Hears of writes while the transaction goes on.
pub(super) trait Tap {
    fn wrote(&mut self, write: Write<'_>);
}

/// Passes everything on, and tells of writes.
pub(super) struct Tapped<'a, T> {
    tx: &'a mut dyn StoreTx,
    tap: &'a mut T,
}

impl<'a, T: Tap> Tapped<'a, T> {
    pub(super) fn new(tx: &'a mut dyn StoreTx, tap: &'a mut T) -> Self {
        Self { tx, tap }
    }
}

/// Passes calls on; those that are marked are told of.
macro_rules! pass_on {
    ($($(#[$write:ident $(($what:ident))?])? fn $name:ident($($arg:ident: $ty:ty),*) -> $answer:ty;)+) => {$(
        fn $name(&mut self, $($arg: $ty),*) -> StoreResult<$answer> {
            let answer = self.tx.$name($($arg),*)?;
            $(self.tap.wrote(pass_on!(@$write answer $($what)?));)?
            Ok(answer)
        }
    )+};
    (@Capacity $answer:ident) => { Write::Capacity };
    (@$write:ident $answer:ident) => { Write::$write(&$answer) };
    (@$write:ident $answer:ident $what:ident) => { Write::$write($what, &$answer) };
}

impl<T: Tap> TaskTx for Tapped<'_, T> {
    pass_on! {
        #[Inserted] fn insert_tasks_if_absent(tasks: &[TaskInsert]) -> Vec<Inserted>;
        fn tasks(keys: &[TaskKey]) -> Vec<Option<TaskRecord>>;
        fn tasks_by_no(nos: &[TaskNo]) -> Vec<Option<TaskRecord>>;
        fn survey(query: &SurveyQuery) -> Survey;
        fn candidates(pages: &[LanePage]) -> Vec<Candidate>;
        #[Granted] fn grant_if_open(batch: &GrantBatch<'_>) -> Granted;
        #[Started] fn start_if_queued(leases: &[LeaseRef], now: DateTime<Utc>) -> Vec<Moved>;
        #[Renewed] fn renew_if_leased(leases: &[LeaseRef], expires_at: DateTime<Utc>) -> Vec<Moved>;
        #[Moved(moves)] fn move_if(moves: &[Move]) -> Vec<Moved>;
        fn expired(now: DateTime<Utc>, limit: usize) -> Vec<TaskRecord>;
        fn next_expiry() -> Option<DateTime<Utc>>;
        fn forget_ended(before: DateTime<Utc>, sensors_before: DateTime<Utc>, limit: usize) -> usize;
        fn audit() -> Vec<Discrepancy>;
    }
}

impl<T: Tap> PoolTx for Tapped<'_, T> {
    pass_on! {
        #[Capacity] fn put_pools(pools: &[PoolSpec]) -> ();
        fn delete_pools_if_unused(pools: &[PoolName]) -> Vec<PoolDeletion>;
        fn pools(names: &[PoolName]) -> Vec<Option<PoolRecord>>;
        fn all_pools() -> Vec<PoolRecord>;
        fn pool_stats(names: &[PoolName]) -> Vec<Option<PoolStats>>;
        #[Capacity] fn give_slots_back(pools: &[(PoolName, u64)]) -> ();
        #[Capacity] fn put_limits(limits: &[LimitSpec]) -> ();
        #[Capacity] fn delete_limits(keys: &[LimitKey]) -> Vec<LimitDeletion>;
        fn limits(keys: &[LimitKey]) -> Vec<Option<LimitRecord>>;
        fn all_limits() -> Vec<LimitRecord>;
        #[Capacity] fn give_limits_back(limits: &[(LimitKey, u64)]) -> ();
    }
}

impl<T: Tap> SensorTx for Tapped<'_, T> {
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
        fn forget_events(before: DateTime<Utc>, limit: usize) -> usize;
        fn kept_by_events(before: DateTime<Utc>, limit: usize) -> usize;
        fn put_worker(worker: &Worker) -> ();
        fn delete_worker(name: &Holder) -> ();
        fn forget_workers(before: DateTime<Utc>, limit: usize) -> usize;
        fn live_workers(now: DateTime<Utc>) -> Vec<Worker>;
        fn shard_leases() -> Vec<ShardLease>;
        fn put_shards_if_unchanged(writes: &[ShardWrite]) -> Vec<Moved>;
    }
}

impl<T: Tap> RunTx for Tapped<'_, T> {
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
