//! Reads sensors and their changes from the store.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::worker::Poker;
use crate::error::{Error, Result};
use crate::sensor::plan::Arrival;
use crate::sensor::{SensorRecord, life};
use crate::service::numbers::latest_changes;
use crate::shard::range;
use crate::store::contract::{SensorQuery, WhichSensors};
use crate::time::Timestamp;

/// The shards whose waiting sensors a worker has not fully read. It knows some of their sensors, or none.
pub(super) type Unread = BTreeMap<u32, Reading>;

/// How far a worker has read a shard.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reading {
    /// Since when no worker has served the shard, or the kinds of it that this worker gained. `None` if it gained
    /// nothing, and reads the shard again.
    pub(super) left_at: Option<Timestamp>,
    /// The change up to which it has read the waiting sensors.
    after: u64,
    /// It missed changes of sensors that it has read, and must read these again.
    again: bool,
}

impl Reading {
    /// Returns how to read a shard, or some of its kinds, that no worker has served since then.
    pub(super) fn gained(left_at: Option<Timestamp>) -> Self {
        Self { left_at, ..Self::default() }
    }
}

impl Poker {
    /// Reads the changes in its shards, and the waiting sensors of unread shards. If a sensor was deleted that had
    /// changed since the last look, an end may have been missed, so it reads all its shards again. Returns how many
    /// sensors it read.
    ///
    /// Each page is a separate transaction. Reading stops long before the leases end, and the next tick continues. It
    /// follows the changes of what was read, so no page is read twice because of them.
    pub(super) fn follow(&mut self, now: Timestamp) -> Result<usize> {
        let began = Instant::now();
        let changes = latest_changes(&*self.store)?;
        let begun = |shard: &u32| self.unread.get(shard).is_none_or(|reading| reading.after > 0);
        let kept: BTreeSet<u32> = self.plan.held().keys().copied().filter(begun).collect();
        let mut loaded = 0;
        if !kept.is_empty() && changes.last_forgotten > self.cursor {
            for shard in kept {
                let reading = self.unread.entry(shard).or_default();
                reading.again = reading.after > 0;
            }
        } else if !kept.is_empty() && changes.last > self.cursor {
            let mut after = Some(self.cursor);
            while let Some(from) = after {
                let (page, next) = self.page(from, &kept, WhichSensors::All)?;
                loaded += page.len();
                self.learn(page, began, now);
                after = next;
            }
        }
        // Shards that are read from now on are read as of a later change.
        self.cursor = changes.last;
        while let Some(after) = self.unread.values().map(|reading| reading.after).min() {
            let alike = self.unread.iter().filter(|(_, reading)| reading.after == after);
            let shards: BTreeSet<u32> = alike.map(|(shard, _)| *shard).collect();
            if after == 0 {
                self.plan.doubt(|shard| shards.contains(&shard));
            }
            let (page, next) = self.page(after, &shards, WhichSensors::Waiting)?;
            loaded += page.len();
            self.learn(page, began, now);
            match next {
                Some(next) => {
                    let of_page = self.unread.iter_mut().filter(|(shard, _)| shards.contains(shard));
                    of_page.for_each(|(_, reading)| reading.after = next);
                }
                None => self.have_read(&shards, now),
            }
            if began.elapsed() > self.plan.rules.lease / 3 {
                break;
            }
        }
        if self.unread.is_empty() {
            self.plan.forget_outages_of_others();
            self.former_holders.clear();
        }
        Ok(loaded)
    }

    /// Reads a page of the sensors of these shards. Also returns where the next page begins, if there is one.
    fn page(
        &self,
        after: u64,
        shards: &BTreeSet<u32>,
        which: WhichSensors,
    ) -> Result<(Vec<SensorRecord>, Option<u64>)> {
        let (codes, split) = (self.plan.rules.codes, self.plan.rules.shards);
        let ranges = shards.iter().map(|shard| range(codes, split, *shard)).collect();
        let query = SensorQuery::new(after, codes, ranges, which, self.options.page_size.max(1));
        let page = self.store.read(|tx| tx.raw().changed_sensors(&query).map_err(Error::from))?;
        let last = page.last().filter(|_| page.len() >= query.limit).map(|sensor| sensor.changed);
        Ok((page, last))
    }

    /// Keeps what a poker needs. Reading must end long before the leases, however slow the log is. The store also has
    /// what is left out of the log.
    fn learn(&mut self, page: Vec<SensorRecord>, began: Instant, now: Timestamp) {
        let whole = self.log.is_some();
        for sensor in page {
            if !self.plan.is_mine(&sensor) {
                continue;
            }
            let shard = self.plan.rules.shard(sensor.fingerprint);
            let left_at = self.unread.get(&shard).and_then(|reading| reading.left_at);
            if whole && began.elapsed() < self.plan.rules.lease / 6 {
                self.note_arrival(&sensor, (shard, left_at), now);
            }
            let served = self.kinds.serves(&sensor.kind);
            self.plan.learn(Arrival { sensor, left_at, whole, served }, now);
        }
    }

    /// Forgets the sensors of these shards that were not found waiting.
    fn have_read(&mut self, shards: &BTreeSet<u32>, now: Timestamp) {
        for lease in self.plan.doubted(|shard| shards.contains(&shard)) {
            let whole = self.plan.whole(lease);
            self.log_panics += whole.map_or(0, |sensor| self.note(sensor, now, life::ENDED_ELSEWHERE));
            self.plan.forget(lease);
        }
        self.unread.retain(|shard, reading| !shards.contains(shard) || reading.again);
        let again = self.unread.iter_mut().filter(|(shard, _)| shards.contains(shard));
        again.for_each(|(_, reading)| *reading = Reading::default());
    }
}
