//! What a store does with sensors, their events, and the workers that share them.

use std::num::NonZeroU32;

use chrono::{DateTime, Utc};

use crate::error::StoreResult;
use crate::fingerprint::Fingerprint;
use crate::id::{Holder, TaskKey};
use crate::lease::LeaseRef;
use crate::sensor::{Ending, SensorEvent, SensorInsert, SensorRecord, ShardLease, ShardWrite, Worker};
use crate::shard::{ShardRange, code};

/// Asks for sensors in the order of their last change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SensorQuery {
    /// Only sensors changed after this change.
    pub after: u64,
    /// The number of shard codes: a sensor's code is its fingerprint modulo this.
    pub codes: NonZeroU32,
    /// Only sensors whose code lies in one of these.
    pub ranges: Vec<ShardRange>,
    /// Also those that ended, or only those that wait.
    pub which: WhichSensors,
    /// At most this many.
    pub limit: usize,
}

/// Which sensors a [`SensorQuery`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WhichSensors {
    /// Those that wait: what a worker loads when it takes a shard over.
    Waiting,
    /// Those that wait and those that ended: what a worker follows.
    All,
}

impl SensorQuery {
    /// Asks for all sensors of these shards, changed after this change.
    pub fn new(
        after: u64,
        codes: NonZeroU32,
        ranges: Vec<ShardRange>,
        which: WhichSensors,
        limit: usize,
    ) -> Self {
        Self { after, codes, ranges, which, limit }
    }

    /// True if a sensor of this fingerprint lies in one of the ranges.
    pub fn covers(&self, fingerprint: Fingerprint) -> bool {
        let code = code(fingerprint, self.codes);
        self.ranges.iter().any(|range| range.contains(code))
    }
}

/// An event to be kept until it is acknowledged.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct EventNote {
    /// The sensor, as it was when it ended.
    pub sensor: SensorRecord,
    /// When it ended.
    pub at: DateTime<Utc>,
    /// How.
    pub ending: Ending,
}

impl EventNote {
    /// This sensor ended like this.
    pub fn new(sensor: SensorRecord, at: DateTime<Utc>, ending: Ending) -> Self {
        Self { sensor, at, ending }
    }
}

/// How far the changes of sensors have come. Each change of any sensor has a number, above those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SensorChanges {
    /// The last change of any sensor, deleted ones included; 0 if there was none.
    pub last: u64,
    /// The highest last change of a deleted sensor; 0 if none was deleted. A follower that has not come as
    /// far may have missed an end, and reads again what waits.
    pub last_forgotten: u64,
}

impl SensorChanges {
    /// The last change of any sensor, and the highest last change of a deleted one.
    pub fn new(last: u64, last_forgotten: u64) -> Self {
        Self { last, last_forgotten }
    }
}

/// Sensors, their events, workers and shards.
pub trait SensorTx {
    /// Registers sensors, replacing what their tasks registered before (generation one more), in state
    /// `Waiting`. Answers them as they are stored; each is a change of its own, in this order. A task that
    /// does not exist is a caller's error (kind `Backend`, nothing is changed); the tasks' states are the
    /// caller's to change.
    fn put_sensors(&mut self, sensors: &[SensorInsert]) -> StoreResult<Vec<SensorRecord>>;

    /// The sensors of these tasks.
    fn sensors(&mut self, tasks: &[TaskKey]) -> StoreResult<Vec<Option<SensorRecord>>>;

    /// Sensors in the order of their last change. A writer's changes become visible with its commit, and
    /// never behind one that was already visible.
    fn changed_sensors(&mut self, query: &SensorQuery) -> StoreResult<Vec<SensorRecord>>;

    /// Returns how far the changes of sensors have come.
    fn sensor_changes(&mut self) -> StoreResult<SensorChanges>;

    /// Ends those that still wait under this epoch, and answers them as they are now; none for the others.
    fn end_sensors_if_waiting(&mut self, sensors: &[LeaseRef]) -> StoreResult<Vec<Option<SensorRecord>>>;

    /// Keeps events, in this order; places are above 0, rise, and are never given again.
    fn note_events(&mut self, events: &[EventNote]) -> StoreResult<()>;

    /// At most `limit` events after place `after`, in order, that are not acknowledged.
    fn events(&mut self, after: u64, limit: usize) -> StoreResult<Vec<SensorEvent>>;

    /// Forgets these events, and answers how many of them were there.
    fn acknowledge_events(&mut self, seqs: &[u64]) -> StoreResult<usize>;

    /// Forgets those of the first `limit` events, by place, that were noted before this instant (`at <
    /// before`), as if they were acknowledged, and returns how many.
    fn forget_events(&mut self, before: DateTime<Utc>, limit: usize) -> StoreResult<usize>;

    /// Returns how many tasks that ended before this instant (`ended_at < before`) one of the first `limit`
    /// events, by place, keeps from being forgotten.
    fn kept_by_events(&mut self, before: DateTime<Utc>, limit: usize) -> StoreResult<usize>;

    /// Makes a worker known, or replaces what is known of it.
    fn put_worker(&mut self, worker: &Worker) -> StoreResult<()>;

    /// Forgets a worker, known or not, and releases its shards: no holder, epoch one more.
    fn delete_worker(&mut self, name: &Holder) -> StoreResult<()>;

    /// Forgets at most `limit` workers that expired before this instant (`expires_at < before`), earliest
    /// first, then by name, and answers how many. What they held stays theirs until its own leases expire.
    fn forget_workers(&mut self, before: DateTime<Utc>, limit: usize) -> StoreResult<usize>;

    /// The workers alive at this instant (`expires_at > now`), by name.
    fn live_workers(&mut self, now: DateTime<Utc>) -> StoreResult<Vec<Worker>>;

    /// The shards that were ever held, by number.
    fn shard_leases(&mut self) -> StoreResult<Vec<ShardLease>>;

    /// Writes those of the leases whose shard still has the epoch they were decided on.
    fn put_shards_if_unchanged(&mut self, writes: &[ShardWrite]) -> StoreResult<Vec<bool>>;
}
