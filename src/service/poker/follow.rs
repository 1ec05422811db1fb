//! What a poker reads from the store.

use std::ops::Range;
use std::time::Instant;

use super::options::Options;
use super::shards::Gained;
use super::worker::Poker;
use crate::error::{Error, Result};
use crate::sensor::plan::Arrival;
use crate::service::numbers::latest_changes;
use crate::shard::{code, range};
use crate::store::contract::{SensorQuery, WhichSensors};
use crate::time::Timestamp;

impl Poker {
    /// Reads what changed in its shards, and all waiting sensors of the shards it just gained. Of a shard of which it
    /// had some kinds and gained others it reads both: a sensor that it had may have ended. Reads the waiting sensors of
    /// all its shards if a sensor was deleted that had changed since it last looked. Returns how many sensors it read.
    ///
    /// Each page is a separate transaction. Later changes lie after the cursor, which was read first, so the
    /// next tick reads them again.
    pub(super) fn follow(&mut self, now: Timestamp, gained: &Gained) -> Result<usize> {
        let is_new = |shard: &u32| gained.get(shard).is_some_and(|gain| !gain.has_others);
        let kept = self.plan.held().keys().copied().filter(|shard| !is_new(shard));
        let (kept, taken) = (self.ranges(kept), self.ranges(gained.keys().copied()));
        let cursor = self.cursor;
        // Reading must end long before the leases, however slow the log is. What is left out, the store has as well.
        let logs_until = Instant::now() + self.options.lease / 6;
        let changes = latest_changes(&*self.store)?;
        let (last, missed) = (changes.last, !kept.is_empty() && changes.last_forgotten > cursor);
        let mut loaded = 0;
        if missed {
            self.plan.forget_sensors();
            self.is_unread = true;
            self.withdraw();
            let all = self.ranges(self.plan.held().keys().copied());
            loaded += self.load(0, all, WhichSensors::Waiting, gained, logs_until, now)?;
        } else {
            if last > cursor {
                loaded += self.load(cursor, kept, WhichSensors::All, gained, logs_until, now)?;
            }
            loaded += self.load(0, taken, WhichSensors::Waiting, gained, logs_until, now)?;
        }
        self.plan.forget_outages_of_others(self.rules());
        (self.cursor, self.is_unread) = (last, false);
        Ok(loaded)
    }

    /// Reads page after page, and keeps what a poker needs.
    fn load(
        &mut self,
        after: u64,
        ranges: Vec<Range<u32>>,
        which: WhichSensors,
        gained: &Gained,
        logs_until: Instant,
        now: Timestamp,
    ) -> Result<usize> {
        if ranges.is_empty() {
            return Ok(0);
        }
        let mut query =
            SensorQuery::new(after, self.options.shard_codes, ranges, which, self.options.page_size.max(1));
        let (rules, whole) = (self.rules(), self.log.is_some());
        let Options { shard_codes: codes, shards, .. } = self.options;
        let since: Vec<(Range<u32>, Timestamp)> =
            gained.iter().map(|(shard, gain)| (range(codes, shards, *shard), gain.since)).collect();
        let mut loaded = 0;
        loop {
            let page = self.store.read(|tx| tx.raw().changed_sensors(&query).map_err(Error::from))?;
            let full = page.len() >= query.limit;
            query.after = page.last().map_or(query.after, |sensor| sensor.changed);
            loaded += page.len();
            for sensor in page {
                let taken_over = match which {
                    WhichSensors::Waiting => {
                        let code = code(sensor.fingerprint, codes);
                        let taken = since.iter().find(|(range, _)| range.contains(&code));
                        Some(taken.map_or(now, |(_, since)| *since))
                    }
                    WhichSensors::All => None,
                };
                let kind = self.kinds.number(&sensor.kind);
                if !self.plan.is_mine(sensor.fingerprint, kind, rules) {
                    continue;
                }
                if whole && Instant::now() < logs_until {
                    self.note_arrival(&sensor, kind, taken_over.is_none(), gained, now);
                }
                let served = self.kinds.serves(kind);
                self.plan.learn(Arrival { sensor, kind, taken_over, whole, served }, now, rules);
            }
            if !full {
                return Ok(loaded);
            }
        }
    }
}
