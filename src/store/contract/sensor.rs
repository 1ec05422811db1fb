//! What a store does with sensors, and with the workers that share them.

use std::num::NonZeroU32;
use std::ops::Range;

use crate::base::setters;
use crate::error::StoreResult;
use crate::fingerprint::Fingerprint;
use crate::id::{Holder, TaskKey};
use crate::lease::LeaseRef;
use crate::sensor::{
    OutageRow, PokeCountRow, PokeCounts, PokerRow, SensorInsert, SensorRecord, ShardLease, ShardTake,
    ShardWrite,
};
use crate::shard::code;
use crate::time::Timestamp;

/// A query for sensors, in the order of their last change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SensorQuery {
    /// Only sensors changed after this change.
    pub after: u64,
    /// The number of shard codes: a sensor's code is its fingerprint modulo this.
    pub codes: NonZeroU32,
    /// Only sensors whose code is in one of these.
    pub ranges: Vec<Range<u32>>,
    /// Whether sensors that ended are included.
    pub which: WhichSensors,
    /// At most this many.
    pub limit: usize,
}

/// Which sensors a [`SensorQuery`] asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WhichSensors {
    /// Waiting sensors: what a worker loads when it takes over a shard.
    Waiting,
    /// Waiting and ended sensors: what a worker follows.
    All,
}

impl SensorQuery {
    /// Creates a query for all sensors of these shards that changed after this change. Adjacent ranges are merged.
    pub fn new(
        after: u64,
        codes: NonZeroU32,
        mut ranges: Vec<Range<u32>>,
        which: WhichSensors,
        limit: usize,
    ) -> Self {
        // A worker's shards are often adjacent. Stores search each range separately.
        ranges.retain(|range| !range.is_empty());
        ranges.sort_unstable_by_key(|range| range.start);
        let mut merged: Vec<Range<u32>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Self { after, codes, ranges: merged, which, limit }
    }

    /// Returns true if a sensor with this fingerprint is in one of the ranges.
    pub fn covers(&self, fingerprint: Fingerprint) -> bool {
        let code = code(fingerprint, self.codes);
        self.ranges.iter().any(|range| range.contains(&code))
    }
}

/// The latest changes of sensors. Each change of any sensor has a number, higher than those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SensorChanges {
    /// The last change of any sensor, deleted ones included; 0 if there was none.
    pub last: u64,
    /// The highest last change of a deleted sensor; 0 if none was deleted. A follower that has not reached it may have
    /// missed an end, so it must read the waiting sensors again.
    pub last_forgotten: u64,
    /// Whether changes of sensors or events of the feed were committed without a number, so that they cannot be found
    /// yet: see [`SensorTx::number_changes`].
    pub unnumbered: bool,
}

impl SensorChanges {
    /// Creates it from the last change of any sensor and the highest last change of a deleted one. Assumes that every
    /// change has a number.
    pub fn new(last: u64, last_forgotten: u64) -> Self {
        Self { last, last_forgotten, unnumbered: false }
    }

    setters! {
        /// Sets whether changes or events have no number yet.
        unnumbered: bool;
    }
}

/// Sensors, workers and shards.
pub trait SensorTx {
    /// Registers sensors in state `Waiting`, and returns them as stored. They replace what their tasks registered
    /// before, and the generation rises by one. Each is a separate change, in this order. A task that does not exist
    /// is a caller's error (kind `Backend`, nothing is changed). The caller changes the tasks' states.
    fn put_sensors(&mut self, sensors: &[SensorInsert]) -> StoreResult<Vec<SensorRecord>>;

    /// Returns the sensors of these tasks.
    fn sensors(&mut self, tasks: &[TaskKey]) -> StoreResult<Vec<Option<SensorRecord>>>;

    /// Returns sensors in the order of their last change. Changes become visible in this order: no writer commits a
    /// change that precedes one that was already visible.
    fn changed_sensors(&mut self, query: &SensorQuery) -> StoreResult<Vec<SensorRecord>>;

    /// Returns the numbers of the latest changes of sensors.
    fn sensor_changes(&mut self) -> StoreResult<SensorChanges>;

    /// Numbers at most `limit` changes of sensors, and as many events of the feed, that were committed without a
    /// number. Returns the larger of the two counts. Does nothing while another transaction is numbering: the changes
    /// and events can be found once that one has committed. Pokers and readers of the feed call it before they read.
    ///
    /// A store with one writer at a time assigns the numbers when it writes, and does nothing here.
    fn number_changes(&mut self, limit: usize) -> StoreResult<usize> {
        let _ = limit;
        Ok(0)
    }

    /// Ends the sensors that still wait under this epoch, and returns them as they are then. Returns `None` for the
    /// others.
    fn end_sensors_if_waiting(&mut self, sensors: &[LeaseRef]) -> StoreResult<Vec<Option<SensorRecord>>>;

    /// Inserts a worker, or replaces it.
    fn put_worker(&mut self, worker: &PokerRow) -> StoreResult<()>;

    /// Forgets a worker, known or not, and its loans. Its shards lose their holder, and their epochs rise by one.
    fn delete_worker(&mut self, name: &Holder) -> StoreResult<()>;

    /// Forgets at most `limit` workers that expired before this instant (`expires_at < before`), earliest
    /// first, then by name, and returns how many. Their shards stay theirs until the shard leases expire.
    fn forget_workers(&mut self, before: Timestamp, limit: usize) -> StoreResult<usize>;

    /// Returns the workers alive at this instant (`expires_at > now`), by name.
    fn live_workers(&mut self, now: Timestamp) -> StoreResult<Vec<PokerRow>>;

    /// Returns the leases of all shards that were ever held, by number, each before the loans of its kinds, by kind.
    fn shard_leases(&mut self) -> StoreResult<Vec<ShardLease>>;

    /// Writes the leases and loans whose epoch and end are still those that the decision was based on. Deletes a loan
    /// that is written without a holder. No shard and kind may be given twice with the same epoch.
    fn put_shards_if_unchanged(&mut self, writes: &[ShardWrite]) -> StoreResult<Vec<bool>>;

    /// Remembers who took which shard, or which kind of it. Replaces what is remembered under the same epoch. Forgets
    /// the takes of the same shard and kind whose epoch is lower by [`KEPT_TAKES`] or more. For kinds that are not
    /// lent now, forgets takes before `forget` with any epoch, at most as many as [`Self::put_outages`] forgets
    /// outages.
    fn put_shard_takes(&mut self, takes: &[ShardTake], forget: Timestamp) -> StoreResult<()>;

    /// Returns the takes that are remembered, by shard, kind and epoch. Those of no kind come first.
    fn shard_takes(&mut self) -> StoreResult<Vec<ShardTake>>;

    /// Inserts outages, or replaces those with the same target and beginning. For these targets, forgets all but the
    /// latest [`KEPT_OUTAGES`]. For all targets, forgets at most 10,000 outages that ended before `forget`.
    fn put_outages(&mut self, outages: &[OutageRow], forget: Timestamp) -> StoreResult<()>;

    /// Returns the outages of these targets, or all ongoing ones for `None`, by fingerprint and beginning.
    fn outages(&mut self, of: Option<&[Fingerprint]>) -> StoreResult<Vec<OutageRow>>;

    /// Inserts what workers counted, or replaces the rows with the same hour, kind, worker and incarnation. Forgets
    /// at most 10,000 rows of hours before `forget`, the earliest first.
    fn put_poke_counts(&mut self, counts: &[PokeCountRow], forget: Timestamp) -> StoreResult<()>;

    /// Returns the counts of the hours that begin in this window, summed over all workers, by hour and kind.
    fn poke_counts(&mut self, hours: Range<Timestamp>) -> StoreResult<Vec<PokeCounts>>;
}

/// The epoch of a remembered [`ShardTake`] is less than this far below the latest one.
pub const KEPT_TAKES: i64 = 32;

/// How many outages of a target are remembered.
pub const KEPT_OUTAGES: usize = 16;

/// How many old ended outages, old takes of kinds, or old counts of pokes one call forgets.
pub(in crate::store) const FORGOTTEN_AT_ONCE: usize = 10_000;
