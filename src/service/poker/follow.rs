//! What a poker reads from the store.

use chrono::{DateTime, Utc};

use super::groups::Arrival;
use super::worker::Poker;
use crate::error::Result;
use crate::sensor::SensorRecord;
use crate::shard::ShardRange;
use crate::store::{SensorQuery, StoreExt, WhichSensors};
use crate::time;

impl Poker {
    /// Reads what changed in its shards, and all waiting sensors of those it just gained; of all, if a sensor was deleted
    /// that changed since it last looked. Answers how many sensors it read.
    ///
    /// Each page is a transaction of its own. What changes meanwhile lies after the cursor, which was read first, and is read
    /// again by the next tick.
    pub(super) fn follow(&mut self, now: DateTime<Utc>, gained: &[u32]) -> Result<usize> {
        let kept = self.shards.keys().copied().filter(|shard| !gained.contains(shard));
        let (kept, gained) = (self.ranges(kept), self.ranges(gained.iter().copied()));
        let cursor = self.cursor;
        let (last, missed) = self.store.read(|tx| {
            let missed = !kept.is_empty() && tx.last_forgotten_change()? > cursor;
            Ok((tx.last_sensor_change()?, missed))
        })?;
        let mut loaded = 0;
        if missed {
            self.groups.clear();
            self.withdraw();
            loaded += self.load(0, [kept, gained].concat(), WhichSensors::Waiting, now)?;
        } else {
            if last > cursor {
                loaded += self.load(cursor, kept, WhichSensors::All, now)?;
            }
            loaded += self.load(0, gained, WhichSensors::Waiting, now)?;
        }
        self.cursor = last;
        Ok(loaded)
    }

    /// Reads page after page, and keeps what a poker needs of it.
    fn load(
        &mut self,
        after: u64,
        ranges: Vec<ShardRange>,
        which: WhichSensors,
        now: DateTime<Utc>,
    ) -> Result<usize> {
        if ranges.is_empty() {
            return Ok(0);
        }
        let mut query = SensorQuery::new(after, self.options.codes, ranges, which, self.options.page.max(1));
        let (rules, whole, tick) = (self.rules(), self.log.is_some(), self.ticks);
        let mut loaded = 0;
        loop {
            let page = self.store.read(|tx| Ok(tx.changed_sensors(&query)?))?;
            let full = page.len() >= query.limit;
            query.after = page.last().map_or(query.after, |sensor| sensor.changed);
            loaded += page.len();
            for sensor in page {
                let looked_at = match which {
                    WhichSensors::Waiting => self.looked_at_before(&sensor, now),
                    WhichSensors::All => None,
                };
                let kind = self.kinds.number(&sensor.kind);
                self.groups.learn(Arrival { sensor, kind, looked_at, tick, whole }, now, rules);
            }
            if !full {
                return Ok(loaded);
            }
        }
    }

    /// When the target of a sensor that was taken over counts as looked at: now, unless the sensor is so young that its first
    /// look may be missing. So a restart does not poke all targets at once, and none is passed over for more than an interval.
    fn looked_at_before(&self, sensor: &SensorRecord, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let is_young = now < time::add(sensor.registered_at, self.options.lease);
        (!is_young).then_some(now)
    }
}
