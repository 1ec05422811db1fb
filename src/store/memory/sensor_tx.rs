//! Sensors, workers and shards, as the contract defines them.

use std::collections::{BTreeSet, HashSet};
use std::ops::{Range, RangeInclusive};

use super::state::{CountKey, OfShard, Write};
use super::undo::{Transaction, misuse};
use crate::error::StoreResult;
use crate::fingerprint::Fingerprint;
use crate::id::{Holder, TaskKey};
use crate::lease::LeaseRef;
use crate::sensor::{PokeCounts, SensorInsert, SensorRecord, SensorState};
use crate::store::contract::{
    FORGOTTEN_AT_ONCE, KEPT_OUTAGES, KEPT_TAKES, OutageRow, PokeCountRow, PokerRow, SensorChanges,
    SensorQuery, SensorTx, ShardLease, ShardTake, ShardWrite,
};
use crate::time::Timestamp;

impl Transaction<'_> {
    fn register(&mut self, insert: SensorInsert, task: TaskKey, attempt: u32) -> SensorRecord {
        let generation = self.state.sensors.get(insert.lease.id).map_or(1, |sensor| sensor.generation + 1);
        let changed = self.next_sensor_change();
        let sensor = SensorRecord::registered(insert, task, attempt, generation, changed);
        self.put_sensor(sensor.clone());
        sensor
    }

    fn end_sensor_if_waiting(&mut self, lease: LeaseRef) -> Option<SensorRecord> {
        let waits =
            |row: &&SensorRecord| row.state == SensorState::Waiting && lease.is_current(row.lease_ref());
        let mut sensor = self.state.sensors.get(lease.id).filter(waits)?.clone();
        sensor.state = SensorState::Ended;
        sensor.changed = self.next_sensor_change();
        self.put_sensor(sensor.clone());
        Some(sensor)
    }
}

impl SensorTx for Transaction<'_> {
    fn put_sensors(&mut self, sensors: &[SensorInsert]) -> StoreResult<Vec<SensorRecord>> {
        self.writable()?;
        let mut tasks = Vec::with_capacity(sensors.len());
        for insert in sensors {
            let id = insert.lease.id;
            let Some(task) = self.state.tasks.get(id) else {
                return Err(misuse(format!("a sensor was registered for task {}, which is not there", id.0)));
            };
            tasks.push((task.key.clone(), task.attempt));
        }
        let registered = sensors
            .iter()
            .zip(tasks)
            .map(|(insert, (key, attempt))| self.register(insert.clone(), key, attempt));
        Ok(registered.collect())
    }

    fn sensors(&mut self, tasks: &[TaskKey]) -> StoreResult<Vec<Option<SensorRecord>>> {
        let sensor = |key| self.state.tasks.number(key).and_then(|id| self.state.sensors.get(id)).cloned();
        Ok(tasks.iter().map(sensor).collect())
    }

    fn changed_sensors(&mut self, query: &SensorQuery) -> StoreResult<Vec<SensorRecord>> {
        Ok(self.state.sensors.changed(query).take(query.limit).cloned().collect())
    }

    fn sensor_changes(&mut self) -> StoreResult<SensorChanges> {
        let last = &self.state.last;
        Ok(SensorChanges::new(last.sensor_change, last.forgotten_change))
    }

    fn end_sensors_if_waiting(&mut self, sensors: &[LeaseRef]) -> StoreResult<Vec<Option<SensorRecord>>> {
        self.writable()?;
        Ok(sensors.iter().map(|lease| self.end_sensor_if_waiting(*lease)).collect())
    }

    fn put_worker(&mut self, worker: &PokerRow) -> StoreResult<()> {
        self.writable()?;
        self.write(Write::Worker(worker.name.clone(), Some(Box::new(worker.clone()))));
        Ok(())
    }

    fn delete_worker(&mut self, name: &Holder) -> StoreResult<()> {
        self.writable()?;
        if self.state.workers.contains_key(name) {
            self.write(Write::Worker(name.clone(), None));
        }
        let held = self.state.shards.values().filter(|lease| lease.holder.as_ref() == Some(name));
        let released = held.map(|lease| ShardLease { holder: None, epoch: lease.epoch + 1, ..lease.clone() });
        let released: Vec<ShardLease> = released.collect();
        released.into_iter().for_each(|lease| self.put_lease(lease));
        Ok(())
    }

    fn forget_workers(&mut self, before: Timestamp, limit: usize) -> StoreResult<usize> {
        self.writable()?;
        let expired = self.state.workers.values().filter(|worker| worker.expires_at < before);
        let mut expired: Vec<_> = expired.map(|worker| (worker.expires_at, worker.name.clone())).collect();
        expired.sort_unstable();
        expired.truncate(limit);
        let forgotten = expired.len();
        for (_, name) in expired {
            self.write(Write::Worker(name, None));
        }
        Ok(forgotten)
    }

    fn live_workers(&mut self, now: Timestamp) -> StoreResult<Vec<PokerRow>> {
        Ok(self.state.workers.values().filter(|worker| worker.expires_at > now).cloned().collect())
    }

    fn shard_leases(&mut self) -> StoreResult<Vec<ShardLease>> {
        Ok(self.state.shards.values().cloned().collect())
    }

    fn put_shards_if_unchanged(&mut self, writes: &[ShardWrite]) -> StoreResult<Vec<bool>> {
        self.writable()?;
        let mut written = HashSet::new();
        let put = |write: &ShardWrite| {
            let lease = write.lease.clone();
            let of = (lease.shard, lease.kind.clone());
            let known = self.state.shards.get(&of);
            let ends_nothing = known.is_none() && lease.kind.is_some() && lease.holder.is_none();
            if !write.replaces(known) || ends_nothing || !written.insert(of) {
                return false;
            }
            self.put_lease(lease);
            true
        };
        Ok(writes.iter().map(put).collect())
    }

    fn put_shard_takes(&mut self, takes: &[ShardTake], forget: Timestamp) -> StoreResult<()> {
        self.writable()?;
        for take in takes {
            let of = (take.shard, take.kind.clone());
            self.write(Write::Take((of.clone(), take.epoch), Some(Box::new(take.clone()))));
            let old = (of.clone(), i64::MIN)..=(of, take.epoch.saturating_sub(KEPT_TAKES));
            let old: Vec<(OfShard, i64)> = self.state.takes.range(old).map(|(key, _)| key.clone()).collect();
            old.into_iter().for_each(|key| self.write(Write::Take(key, None)));
        }
        let of_kinds = self.state.takes.iter().filter(|((of, _), take)| {
            of.1.is_some() && take.at < forget && !self.state.shards.contains_key(of)
        });
        let mut old: Vec<_> = of_kinds.map(|(key, take)| (take.at, key.clone())).collect();
        old.sort_unstable();
        old.truncate(FORGOTTEN_AT_ONCE);
        old.into_iter().for_each(|(_, key)| self.write(Write::Take(key, None)));
        Ok(())
    }

    fn shard_takes(&mut self) -> StoreResult<Vec<ShardTake>> {
        Ok(self.state.takes.values().cloned().collect())
    }

    fn put_outages(&mut self, outages: &[OutageRow], forget: Timestamp) -> StoreResult<()> {
        self.writable()?;
        for row in outages {
            self.write(Write::Outage((row.fingerprint, row.since), Some(row.until)));
        }
        for row in outages {
            let of = self.state.outages.range(all_of(row.fingerprint)).rev().skip(KEPT_OUTAGES);
            let old: Vec<_> = of.map(|(key, _)| *key).collect();
            old.into_iter().for_each(|key| self.write(Write::Outage(key, None)));
        }
        let ended = self.state.outages.iter().filter_map(|(key, until)| until.map(|until| (until, *key)));
        let mut ended: Vec<_> = ended.filter(|(until, _)| *until < forget).collect();
        ended.sort_unstable();
        ended.truncate(FORGOTTEN_AT_ONCE);
        ended.into_iter().for_each(|(_, key)| self.write(Write::Outage(key, None)));
        Ok(())
    }

    fn outages(&mut self, of: Option<&[Fingerprint]>) -> StoreResult<Vec<OutageRow>> {
        let rows = &self.state.outages;
        let row = |((fingerprint, since), until): (&(Fingerprint, Timestamp), &Option<Timestamp>)| {
            OutageRow { fingerprint: *fingerprint, since: *since, until: *until }
        };
        let Some(of) = of else {
            return Ok(rows.iter().filter(|(_, until)| until.is_none()).map(row).collect());
        };
        let of: BTreeSet<Fingerprint> = of.iter().copied().collect();
        Ok(of.into_iter().flat_map(|target| rows.range(all_of(target)).map(row)).collect())
    }

    fn put_poke_counts(&mut self, counts: &[PokeCountRow], forget: Timestamp) -> StoreResult<()> {
        self.writable()?;
        for PokeCountRow { worker, incarnation, counts } in counts {
            let key = (counts.hour, counts.kind.clone(), worker.clone(), *incarnation);
            self.write(Write::PokeCounts(Box::new(key), Some(Box::new(counts.clone()))));
        }
        let old = self.state.poke_counts.keys().take_while(|(hour, ..)| *hour < forget);
        let old: Vec<CountKey> = old.take(FORGOTTEN_AT_ONCE).cloned().collect();
        old.into_iter().for_each(|key| self.write(Write::PokeCounts(Box::new(key), None)));
        Ok(())
    }

    fn poke_counts(&mut self, hours: Range<Timestamp>) -> StoreResult<Vec<PokeCounts>> {
        // Of the rows of an hour, those of a kind are consecutive.
        let mut sums: Vec<PokeCounts> = Vec::new();
        let rows = self.state.poke_counts.values().skip_while(|row| row.hour < hours.start);
        for row in rows.take_while(|row| row.hour < hours.end) {
            match sums.last_mut() {
                Some(sum) if sum.hour == row.hour && sum.kind == row.kind => {
                    sum.poked = sum.poked.saturating_add(row.poked);
                    sum.saved = sum.saved.saturating_add(row.saved);
                    sum.duration = sum.duration.saturating_add(row.duration);
                }
                _ => sums.push(row.clone()),
            }
        }
        Ok(sums)
    }
}

impl Transaction<'_> {
    /// Writes a lease. A loan without a holder is deleted.
    fn put_lease(&mut self, lease: ShardLease) {
        let of = (lease.shard, lease.kind.clone());
        let is_gone = lease.kind.is_some() && lease.holder.is_none();
        self.write(Write::Shard(of, (!is_gone).then(|| Box::new(lease))));
    }
}

/// Returns the keys of all outages of a target.
fn all_of(target: Fingerprint) -> RangeInclusive<(Fingerprint, Timestamp)> {
    (target, Timestamp::MIN)..=(target, Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::NewTask;
    use crate::canonical::PokeContext;
    use crate::error::StoreErrorKind;
    use crate::id::SensorKind;
    use crate::lease::TaskId;
    use crate::sensor::{NewSensor, Settings};
    use crate::shard::DEFAULT_CODES;
    use crate::store::MemoryStore;
    use crate::store::contract::{Move, WhichSensors};
    use crate::task::TaskState;
    use crate::testing::RawStoreExt;

    fn sensor(id: i64) -> SensorInsert {
        let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(9)).unwrap();
        let context = PokeContext::from_json("{\"path\":\"x\"}").unwrap();
        let lease = LeaseRef::new(TaskId(id), 0);
        NewSensor::new(lease, SensorKind::new("file").unwrap(), context, settings)
            .insert(Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_sensor_is_registered_ends_and_is_forgotten_with_its_task() {
        let store = MemoryStore::new();
        let key = TaskKey::new("n", "w", "r", "t").unwrap();
        let insert = NewTask::new(key.clone()).check(Timestamp::UNIX_EPOCH).unwrap();
        let lease = LeaseRef::new(TaskId(1), 0);
        let result = store.write_raw(|tx| {
            tx.insert_tasks_if_absent(std::slice::from_ref(&insert))?;
            let kind = tx.put_sensors(&[sensor(1), sensor(2)]).unwrap_err().kind();
            assert_eq!((kind, tx.sensor_changes()?.last), (StoreErrorKind::Backend, 0));
            assert_eq!(tx.put_sensors(&[sensor(1)])?[0].generation, 1);
            assert_eq!(tx.put_sensors(&[sensor(1)])?[0].generation, 2);
            let ended = tx.end_sensors_if_waiting(&[lease, lease])?;
            assert!(ended[1].is_none());
            assert_eq!(tx.sensors(std::slice::from_ref(&key))?, ended[..1]);
            let codes = DEFAULT_CODES;
            let ranges = std::iter::once(0..u32::MAX).collect();
            let query = SensorQuery::new(2, codes, ranges, WhichSensors::All, 9);
            assert_eq!(tx.changed_sensors(&query)?.len(), 1);

            let mut end = Move::new(lease, TaskState::Scheduled, TaskState::Success);
            end.ended_at = Some(Timestamp::from_micros(5));
            tx.move_if(&[end])?;
            assert_eq!(
                tx.forget_ended(TaskState::Success, Timestamp::from_micros(9), Timestamp::from_micros(9), 9)?,
                1
            );
            assert_eq!((tx.changed_sensors(&query)?.len(), tx.sensor_changes()?.last), (0, 3));
            Ok(())
        });
        result.unwrap();
    }

    #[test]
    fn a_worker_that_leaves_releases_its_shards_under_a_new_epoch() {
        let store = MemoryStore::new();
        let (name, until) = (Holder::new("w1").unwrap(), Timestamp::from_micros(9));
        let result = store.write_raw(|tx| {
            let (codes, shards) = (DEFAULT_CODES, std::num::NonZeroU32::MIN);
            tx.put_worker(&PokerRow::new(name.clone(), codes, shards, until))?;
            assert_eq!(tx.live_workers(Timestamp::from_micros(8))?.len(), 1);
            assert_eq!(tx.live_workers(until)?.len(), 0);
            let write = ShardWrite::new(0, ShardLease::new(3, Some(name.clone()), 1, until));
            assert_eq!(tx.put_shards_if_unchanged(&[write.clone(), write])?, [true, false]);
            tx.delete_worker(&name)?;
            assert_eq!(tx.shard_leases()?, [ShardLease::new(3, None, 2, until)]);
            assert_eq!(tx.live_workers(Timestamp::UNIX_EPOCH)?, []);
            Ok(())
        });
        result.unwrap();
    }
}
