//! What a store does with sensors, their events, and the workers that share them.

use chrono::{DateTime, Utc};

use super::Moved;
use crate::error::StoreResult;
use crate::id::{Holder, TaskKey};
use crate::lease::LeaseRef;
use crate::sensor::{Ending, SensorEvent, SensorInsert, SensorRecord};
use crate::shard::{ShardLimit, ShardRange};

/// Asks for sensors in the order of their last change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SensorQuery {
    /// Only sensors changed after this change.
    pub after: u64,
    /// The number of shard codes: a sensor's code is its fingerprint modulo this.
    pub codes: ShardLimit,
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
        codes: ShardLimit,
        ranges: Vec<ShardRange>,
        which: WhichSensors,
        limit: usize,
    ) -> Self {
        Self { after, codes, ranges, which, limit }
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

/// A process that pokes sensors.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Worker {
    /// Its name.
    pub name: Holder,
    /// Until when it counts as alive.
    pub expires_at: DateTime<Utc>,
}

impl Worker {
    /// A worker that counts as alive until this instant.
    pub fn new(name: Holder, expires_at: DateTime<Utc>) -> Self {
        Self { name, expires_at }
    }
}

/// Who pokes the sensors of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardLease {
    /// The shard: the index of its range in the even split of all codes.
    pub shard: u32,
    /// Its worker; none if it was released.
    pub holder: Option<Holder>,
    /// Counts the changes of holder.
    pub epoch: i64,
    /// When the lease expires.
    pub expires_at: DateTime<Utc>,
}

impl ShardLease {
    /// A lease as a store read it.
    pub fn new(shard: u32, holder: Option<Holder>, epoch: i64, expires_at: DateTime<Utc>) -> Self {
        Self { shard, holder, epoch, expires_at }
    }
}

/// Replaces the lease of a shard, if it still has the epoch that it was read with.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShardWrite {
    /// The epoch it must have; 0 for a shard that was never held.
    pub was: i64,
    /// What is written. A change of holder has a larger epoch; a renewal keeps it.
    pub lease: ShardLease,
}

impl ShardWrite {
    /// Replaces the lease that had this epoch.
    pub fn new(was: i64, lease: ShardLease) -> Self {
        Self { was, lease }
    }
}

/// Sensors, their events, workers and shards.
pub trait SensorTx {
    /// Registers sensors, replacing what their tasks registered before (generation one more), in state `Waiting`; each is
    /// a change of its own, in this order. Answers them as they are stored. The tasks exist; their states are the caller's to change.
    fn put_sensors(&mut self, sensors: &[SensorInsert]) -> StoreResult<Vec<SensorRecord>>;

    /// The sensors of these tasks.
    fn sensors(&mut self, tasks: &[TaskKey]) -> StoreResult<Vec<Option<SensorRecord>>>;

    /// Sensors in the order of their last change. A writer's changes become visible with its commit, and never behind
    /// one that was already visible.
    fn changed_sensors(&mut self, query: &SensorQuery) -> StoreResult<Vec<SensorRecord>>;

    /// The number of the last change of any sensor, also of one that was forgotten since; 0 if there was none.
    fn last_sensor_change(&mut self) -> StoreResult<u64>;

    /// Ends those that still wait under this epoch, and answers them as they are now; none for the others.
    fn end_sensors_if_waiting(&mut self, sensors: &[LeaseRef]) -> StoreResult<Vec<Option<SensorRecord>>>;

    /// Keeps events, in this order, at places above 0 that were never used before.
    fn note_events(&mut self, events: &[EventNote]) -> StoreResult<()>;

    /// At most `limit` events after place `after`, in order, that are not acknowledged.
    fn events(&mut self, after: u64, limit: usize) -> StoreResult<Vec<SensorEvent>>;

    /// Forgets these events, and answers how many of them were there.
    fn acknowledge_events(&mut self, seqs: &[u64]) -> StoreResult<usize>;

    /// Makes a worker known, or prolongs its life.
    fn put_worker(&mut self, worker: &Worker) -> StoreResult<()>;

    /// Forgets a worker, known or not, and releases its shards: holder none, epoch one more.
    fn delete_worker(&mut self, name: &Holder) -> StoreResult<()>;

    /// The workers alive at this instant (`expires_at > now`), by name.
    fn live_workers(&mut self, now: DateTime<Utc>) -> StoreResult<Vec<Worker>>;

    /// The shards that were ever held, by number.
    fn shard_leases(&mut self) -> StoreResult<Vec<ShardLease>>;

    /// Writes those of the leases whose shard still has the epoch they were decided on.
    fn put_shards_if_unchanged(&mut self, writes: &[ShardWrite]) -> StoreResult<Vec<Moved>>;
}
