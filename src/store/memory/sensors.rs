//! Sensors in the order of their last change.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::by_number::ByNumber;
use super::state::Write;
use super::undo::Transaction;
use crate::lease::TaskId;
use crate::sensor::{SensorRecord, SensorState};
use crate::store::contract::{SensorQuery, WhichSensors};

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct Sensors {
    rows: ByNumber<TaskId, Box<SensorRecord>>,
    by_change: BTreeMap<u64, TaskId>,
}

impl Sensors {
    pub(super) fn swap(
        &mut self,
        id: TaskId,
        sensor: Option<Box<SensorRecord>>,
    ) -> Option<Box<SensorRecord>> {
        let changed = sensor.as_ref().map(|sensor| sensor.changed);
        let old = match sensor {
            Some(sensor) => self.rows.insert(id, sensor),
            None => self.rows.remove(&id),
        };
        if let Some(old) = &old {
            self.by_change.remove(&old.changed);
        }
        if let Some(changed) = changed {
            self.by_change.insert(changed, id);
        }
        old
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn get(&self, id: TaskId) -> Option<&SensorRecord> {
        self.rows.get(&id).map(Box::as_ref)
    }

    /// Returns the sensors that match a query, in the order of their last change. Ignores the limit.
    pub(super) fn changed(&self, query: &SensorQuery) -> impl Iterator<Item = &SensorRecord> {
        let changes = self.by_change.range((Bound::Excluded(query.after), Bound::Unbounded));
        changes.filter_map(|(_, id)| self.get(*id)).filter(|sensor| is_asked_for(sensor, query))
    }
}

fn is_asked_for(sensor: &SensorRecord, query: &SensorQuery) -> bool {
    let waits_or_all = match query.which {
        WhichSensors::Waiting => sensor.state == SensorState::Waiting,
        WhichSensors::All => true,
    };
    waits_or_all && query.covers(sensor.fingerprint)
}

impl Transaction<'_> {
    /// Returns the number of a new change. No two rows share a number, so a page can end at any row.
    pub(super) fn next_sensor_change(&mut self) -> u64 {
        self.state.last.sensor_change += 1;
        self.state.last.sensor_change
    }

    pub(super) fn put_sensor(&mut self, sensor: SensorRecord) {
        self.write(Write::Sensor(sensor.id, Some(Box::new(sensor))));
    }
}

#[cfg(test)]
impl Sensors {
    pub(super) fn writes(&self) -> impl Iterator<Item = Write> {
        self.rows.iter().map(|(id, sensor)| Write::Sensor(*id, Some(sensor.clone())))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::TaskKey;
    use crate::canonical::PokeContext;
    use crate::fingerprint::Fingerprint;
    use crate::id::SensorKind;
    use crate::lease::LeaseRef;
    use crate::sensor::{NewSensor, Settings};
    use crate::shard::DEFAULT_CODES;
    use crate::time::Timestamp;

    fn sensor(id: i64, changed: u64) -> Box<SensorRecord> {
        let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(9)).unwrap();
        let kind = SensorKind::new("file").unwrap();
        let context = PokeContext::from_json("{}").unwrap();
        let insert = NewSensor::new(LeaseRef::new(TaskId(id), 1), kind, context, settings);
        let task = TaskKey::new("n", "w", "r", format!("t{id}")).unwrap();
        let mut record = SensorRecord::registered(insert.insert(Timestamp::UNIX_EPOCH), task, 1, 1, changed);
        record.fingerprint = Fingerprint(id.unsigned_abs());
        Box::new(record)
    }

    #[test]
    fn a_change_moves_a_sensor_to_the_end_and_the_filter_keeps_the_order() {
        let mut sensors = Sensors::default();
        for id in 1..=3 {
            sensors.swap(TaskId(id), Some(sensor(id, id.unsigned_abs())));
        }
        let mut ended = sensor(1, 4);
        ended.state = SensorState::Ended;
        sensors.swap(TaskId(1), Some(ended));
        let found = |after, ranges, which| -> Vec<i64> {
            let query = SensorQuery::new(after, DEFAULT_CODES, ranges, which, 9);
            sensors.changed(&query).map(|sensor| sensor.id.0).collect()
        };
        let shards = |start, end| start..end;
        assert_eq!(found(0, vec![shards(0, 9)], WhichSensors::All), [2, 3, 1]);
        assert_eq!(found(2, vec![shards(0, 9)], WhichSensors::Waiting), [3]);
        assert_eq!(found(0, vec![shards(3, 4), shards(0, 2)], WhichSensors::All), [3, 1]);
        assert!(found(0, vec![], WhichSensors::All).is_empty());
        assert!(found(u64::MAX, vec![shards(0, 9)], WhichSensors::All).is_empty());
    }
}
