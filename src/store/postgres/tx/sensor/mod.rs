//! The store's operations on sensors, and the trait that they share with workers and shards.

pub(super) mod counts;
pub(super) mod life;
pub(super) mod numbers;

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use tokio_postgres::Row;

use self::numbers::Numbered;
use super::super::error::{Fault, Outcome};
use super::super::news::News;
use super::super::wire::ask;
use super::{Db, PostgresBackend, clamp, first, row};
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::fingerprint::Fingerprint;
use crate::id::{Holder, TaskKey};
use crate::lease::{LeaseRef, TaskId};
use crate::sensor::{PokeCounts, SensorInsert, SensorRecord, Settings};
use crate::store::contract::{
    OutageRow, PokeCountRow, PokerRow, SensorChanges, SensorQuery, SensorTx, ShardLease, ShardTake,
    ShardWrite, WhichSensors,
};
use crate::store::sql::codes::Code;
use crate::store::sql::records;
use crate::store::sql::statement::statement;
use crate::time::{Timestamp, duration_micros};

/// The first column after those of a sensor and its task.
const AFTER_SENSOR: usize = 24;

pub(super) const PUT: &str = statement!("put_sensors.sql");
pub(super) const OF_KEYS: &str = statement!("sensors_of_keys.sql");
pub(super) const CHANGED: &str = statement!("changed_sensors.sql", changes = "", states = "");
/// Of [`CHANGED`], the sensors that wait.
pub(super) const CHANGED_WAITING: &str =
    statement!("changed_sensors.sql", changes = "AND change.waiting", states = "AND sensor.state = 0");
pub(super) const CHANGES: &str = statement!("sensor_changes.sql");
pub(super) const END: &str = statement!("end_sensors.sql");

/// The ranges of the codes asked for, with adjacent ones merged. Empty if they include every code.
fn spans(query: &SensorQuery) -> (Vec<i64>, Vec<i64>) {
    let mut spans: Vec<(i64, i64)> =
        query.ranges.iter().map(|range| (range.start.into(), range.end.into())).collect();
    if let [(0, high)] = spans[..]
        && high >= i64::from(query.codes.get())
    {
        spans.clear();
    }
    spans.into_iter().unzip()
}

impl Db<'_> {
    /// Reads a sensor. Its task's key follows its own columns.
    fn sensor(&mut self, row: &Row) -> Outcome<SensorRecord> {
        let task = self.names.key(row, 19)?;
        records::sensor(row, task, &mut self.names)
    }

    /// Reads sensors and puts each at its index in an argument of this length.
    fn placed_sensors(&mut self, rows: &[Row], len: usize) -> Outcome<Vec<Option<SensorRecord>>> {
        let mut found = vec![None; len];
        for row in rows {
            let at = row::place(row, AFTER_SENSOR)?;
            let sensor = self.sensor(row)?;
            if let Some(found) = found.get_mut(at) {
                *found = Some(sensor);
            }
        }
        Ok(found)
    }
}

impl SensorTx for PostgresBackend<'_> {
    fn put_sensors(&mut self, sensors: &[SensorInsert]) -> StoreResult<Vec<SensorRecord>> {
        self.announce(News::Sensors, |db| {
            if sensors.is_empty() {
                return Ok(Vec::new());
            }
            let mut counts: HashMap<TaskId, i64> = HashMap::with_capacity(sensors.len());
            let nth = sensors.iter().map(|sensor| {
                let count = counts.entry(sensor.lease.id).or_default();
                *count += 1;
                *count
            });
            let nth: Vec<i64> = nth.collect();
            let is_last =
                |(sensor, nth): (&SensorInsert, &i64)| i64::from(counts.get(&sensor.lease.id) == Some(nth));
            let last: Vec<i64> = sensors.iter().zip(&nth).map(is_last).collect();
            let numbers =
                |number: fn(&SensorInsert) -> i64| -> Vec<i64> { sensors.iter().map(number).collect() };
            let lengths = |length: fn(&Settings) -> Option<Duration>| -> Vec<Option<i64>> {
                sensors.iter().map(|sensor| length(&sensor.settings).map(duration_micros)).collect()
            };
            let texts = |text: fn(&SensorInsert) -> &str| -> Vec<String> {
                sensors.iter().map(|sensor| text(sensor).to_owned()).collect()
            };
            let put = ask!(
                PUT,
                numbers(|sensor| sensor.lease.id.0),
                numbers(|sensor| sensor.lease.epoch),
                numbers(|sensor| sensor.fingerprint.0.cast_signed()),
                numbers(|sensor| duration_micros(sensor.settings.interval)),
                numbers(|sensor| duration_micros(sensor.settings.timeout)),
                lengths(|settings| settings.execution_timeout),
                lengths(|settings| settings.poke_timeout),
                lengths(|settings| settings.max_interval),
                numbers(|sensor| sensor.settings.on_landed.code()),
                numbers(|sensor| sensor.settings.on_missed.code()),
                numbers(|sensor| sensor.registered_at.as_micros()),
                numbers(|sensor| sensor.times_out_at.as_micros()),
                texts(|sensor| sensor.kind.as_str()),
                texts(|sensor| sensor.context.as_str()),
                nth.clone(),
                last,
                clamp(sensors.len()),
                sensors
                    .iter()
                    .map(|sensor| sensor.registered_by.as_ref().map(ToString::to_string))
                    .collect::<Vec<Option<String>>>(),
            );
            let [attempt, number] = db.numbering(sensors.len());
            let [rows, _, numbered] = db.all([put, attempt, number])?;
            let numbered = Numbered::read(&numbered)?;
            let mut stored = vec![None; sensors.len()];
            for row in &rows {
                let at = row::place(row, 0)?;
                let (Some(insert), Some(nth), Some(stored)) =
                    (sensors.get(at), nth.get(at), stored.get_mut(at))
                else {
                    continue;
                };
                let (task, attempt) = (db.names.key(row, 1)?, row::count(row, 6)?);
                let later = counts.get(&insert.lease.id).map_or(0, |count| count - nth);
                let changed = numbered.last_but(insert.lease.id.0, usize::try_from(later).unwrap_or(0));
                let generation = row::number(row, 7)?;
                *stored = Some(SensorRecord::registered(insert.clone(), task, attempt, generation, changed));
            }
            let missing = |(sensor, stored): (&SensorInsert, &Option<_>)| match stored {
                Some(_) => None,
                None => Some(sensor.lease.id.0),
            };
            if let Some(id) = sensors.iter().zip(&stored).find_map(missing) {
                let text = format!("a sensor was registered for task number {id}, which is not there");
                return Err(Fault::Refused(StoreError::new(StoreErrorKind::Backend, text)));
            }
            Ok(stored.into_iter().flatten().collect())
        })
    }

    fn sensors(&mut self, tasks: &[TaskKey]) -> StoreResult<Vec<Option<SensorRecord>>> {
        self.read(|db| {
            if tasks.is_empty() {
                return Ok(Vec::new());
            }
            let texts = |text: fn(&TaskKey) -> &str| -> Vec<String> {
                tasks.iter().map(|key| text(key).to_owned()).collect()
            };
            let rows = db.one(ask!(
                OF_KEYS,
                texts(|key| key.namespace.as_str()),
                texts(|key| key.workflow.as_str()),
                texts(|key| key.run.as_str()),
                texts(|key| key.task.as_str()),
                tasks.iter().map(|key| row::map_index_value(key.map_index)).collect::<Vec<i64>>(),
            ))?;
            db.placed_sensors(&rows, tasks.len())
        })
    }

    fn changed_sensors(&mut self, query: &SensorQuery) -> StoreResult<Vec<SensorRecord>> {
        self.read(|db| {
            if query.limit == 0 || query.ranges.iter().all(|range| range.is_empty()) {
                return Ok(Vec::new());
            }
            let statement = match query.which {
                WhichSensors::Waiting => CHANGED_WAITING,
                WhichSensors::All => CHANGED,
            };
            let codes = i64::from(query.codes.get());
            let remainder = clamp((1_u128 << 64) % u128::from(query.codes.get()));
            let (lows, highs) = spans(query);
            let rows = db.one(ask!(
                statement,
                clamp(query.after),
                clamp(query.limit),
                codes,
                remainder,
                lows,
                highs
            ))?;
            let mut found = rows.iter().map(|row| db.sensor(row)).collect::<Outcome<Vec<_>>>()?;
            found.sort_unstable_by_key(|sensor| sensor.changed);
            Ok(found)
        })
    }

    fn sensor_changes(&mut self) -> StoreResult<SensorChanges> {
        self.read(|db| {
            let rows = db.one(ask!(CHANGES))?;
            let row = first(&rows)?;
            let changes = SensorChanges::new(row::number(row, 0)?, row::number(row, 1)?);
            Ok(changes.unnumbered(row::value(row, 2)?))
        })
    }

    fn number_changes(&mut self, limit: usize) -> StoreResult<usize> {
        self.write(|db| if limit == 0 { Ok(0) } else { db.number_changes(limit) })
    }

    /// If a registration is named twice, the second item finds it already ended.
    fn end_sensors_if_waiting(&mut self, sensors: &[LeaseRef]) -> StoreResult<Vec<Option<SensorRecord>>> {
        self.announce(News::Sensors, |db| {
            if sensors.is_empty() {
                return Ok(Vec::new());
            }
            let mut seen = std::collections::HashSet::with_capacity(sensors.len());
            let given: Vec<usize> = (0..sensors.len()).filter(|at| seen.insert(sensors[*at])).collect();
            let end = ask!(
                END,
                given.iter().map(|at| sensors[*at].id.0).collect::<Vec<i64>>(),
                given.iter().map(|at| sensors[*at].epoch).collect::<Vec<i64>>(),
            );
            let [attempt, number] = db.numbering(given.len());
            let [rows, _, numbered] = db.all([end, attempt, number])?;
            let numbered = Numbered::read(&numbered)?;
            let mut answers = vec![None; sensors.len()];
            for (at, ended) in given.iter().zip(db.placed_sensors(&rows, given.len())?) {
                answers[*at] = ended.map(|sensor| {
                    let changed = numbered.last_but(sensor.id.0, 0);
                    SensorRecord { changed, ..sensor }
                });
            }
            Ok(answers)
        })
    }

    fn put_worker(&mut self, worker: &PokerRow) -> StoreResult<()> {
        self.write(|db| db.put_worker(worker))
    }

    fn delete_worker(&mut self, name: &Holder) -> StoreResult<()> {
        self.write(|db| db.delete_worker(name))
    }

    fn forget_workers(&mut self, before: Timestamp, limit: usize) -> StoreResult<usize> {
        self.write(|db| if limit == 0 { Ok(0) } else { db.forget_workers(before, limit) })
    }

    fn live_workers(&mut self, now: Timestamp) -> StoreResult<Vec<PokerRow>> {
        self.read(|db| db.live_workers(now))
    }

    fn shard_leases(&mut self) -> StoreResult<Vec<ShardLease>> {
        self.read(|db| db.shard_leases())
    }

    fn put_shards_if_unchanged(&mut self, writes: &[ShardWrite]) -> StoreResult<Vec<bool>> {
        self.write(|db| if writes.is_empty() { Ok(Vec::new()) } else { db.put_shards_if_unchanged(writes) })
    }

    fn put_shard_takes(&mut self, takes: &[ShardTake], forget: Timestamp) -> StoreResult<()> {
        self.write(|db| db.put_shard_takes(takes, forget))
    }

    fn shard_takes(&mut self) -> StoreResult<Vec<ShardTake>> {
        self.read(|db| db.shard_takes())
    }

    fn put_outages(&mut self, outages: &[OutageRow], forget: Timestamp) -> StoreResult<()> {
        self.write(|db| db.put_outages(outages, forget))
    }

    fn outages(&mut self, of: Option<&[Fingerprint]>) -> StoreResult<Vec<OutageRow>> {
        self.read(|db| db.outages(of))
    }

    fn put_poke_counts(&mut self, counts: &[PokeCountRow], forget: Timestamp) -> StoreResult<()> {
        self.write(|db| db.put_poke_counts(counts, forget))
    }

    fn poke_counts(&mut self, hours: Range<Timestamp>) -> StoreResult<Vec<PokeCounts>> {
        self.read(|db| db.poke_counts(&hours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::DEFAULT_CODES;

    #[test]
    fn ranges_that_touch_are_one_and_all_codes_are_none() {
        let asked = |ranges: &[(u32, u32)]| {
            let ranges = ranges.iter().map(|(low, high)| *low..*high).collect();
            spans(&SensorQuery::new(0, DEFAULT_CODES, ranges, WhichSensors::All, 9))
        };
        assert_eq!(asked(&[(5, 9), (2, 5), (7, 8), (20, 20), (11, 12)]), (vec![2, 11], vec![9, 12]));
        assert_eq!(asked(&[(5000, 10_000), (0, 5000)]), (vec![], vec![]));
        assert_eq!(asked(&[(0, u32::MAX)]), (vec![], vec![]));
        assert_eq!(asked(&[(0, 9_999)]), (vec![0], vec![9_999]));
    }
}
