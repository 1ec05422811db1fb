//! The store's operations on sensors, and the trait that they share with workers and shards.

pub(super) mod counts;
pub(super) mod life;

use std::ops::Range;

use rusqlite::{OptionalExtension, Row, Statement, params};

use super::super::error::{Fault, Outcome};
use super::codes::Code;
use super::row::{Names, map_index_value};
use super::{SqliteBackend, clamp, row};
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::fingerprint::Fingerprint;
use crate::id::{Holder, TaskKey};
use crate::lease::LeaseRef;
use crate::sensor::{PokeCounts, SensorInsert, SensorRecord, SensorState};
use crate::store::contract::{
    OutageRow, PokeCountRow, PokerRow, SensorChanges, SensorQuery, SensorTx, ShardLease, ShardTake,
    ShardWrite, WhichSensors,
};
use crate::store::sql::records;
use crate::store::sql::statement::statement;
use crate::time::{Timestamp, duration_micros};

pub(super) const TASK: &str =
    "SELECT namespace, workflow, run, task, map_index, attempt FROM sm_task WHERE no = ?1";
pub(super) const GENERATION: &str = "SELECT generation FROM sm_sensor WHERE no = ?1";
pub(super) const PUT: &str = statement!("put_sensor.sql");
pub(super) const OF_KEY: &str = statement!("sensor_of_key.sql");
pub(super) const CHANGED: &str = statement!("changed_sensors.sql");
pub(super) const CHANGED_WAITING: &str = statement!("changed_waiting_sensors.sql");
pub(super) const IF_WAITING: &str = statement!("waiting_sensor.sql");
pub(super) const END: &str = "UPDATE sm_sensor SET state = 1, changed = ?2 WHERE no = ?1";

/// Returns the key and the attempt of a task. `tasks` is [`TASK`].
fn task_of(tasks: &mut Statement<'_>, id: i64, names: &mut Names) -> Outcome<Option<(TaskKey, u32)>> {
    let mut rows = tasks.query([id])?;
    rows.next()?.map(|row| Ok((names.key(row, 0)?, row::count(row, 5)?))).transpose()
}

/// Reads a sensor with its task. `tasks` is [`TASK`].
fn with_task(row: &Row<'_>, tasks: &mut Statement<'_>, names: &mut Names) -> Outcome<SensorRecord> {
    let id = row.get(0)?;
    match task_of(tasks, id, names)? {
        Some((task, _)) => records::sensor(row, task, names),
        None => Err(Fault::Damaged(format!("the task of sensor {id} is missing"))),
    }
}

impl SensorTx for SqliteBackend<'_> {
    fn put_sensors(&mut self, sensors: &[SensorInsert]) -> StoreResult<Vec<SensorRecord>> {
        self.write(|db| {
            if sensors.is_empty() {
                return Ok(Vec::new());
            }
            let mut find = db.prepare(TASK)?;
            let mut tasks = Vec::with_capacity(sensors.len());
            for insert in sensors {
                let id = insert.lease.id.0;
                let task = task_of(&mut find, id, &mut db.names)?.ok_or_else(|| {
                    let text = format!("a sensor was registered for task number {id}, which is not there");
                    Fault::Refused(StoreError::new(StoreErrorKind::Backend, text))
                })?;
                tasks.push(task);
            }
            let mut changed = db.counter("sensor")?;
            let (mut earlier, mut put) = (db.prepare(GENERATION)?, db.prepare(PUT)?);
            let mut stored = Vec::with_capacity(sensors.len());
            for (insert, (task, attempt)) in sensors.iter().zip(tasks) {
                changed += 1;
                let settings = insert.settings;
                let earlier: Option<i64> =
                    earlier.query_row([insert.lease.id.0], |row| row.get(0)).optional()?;
                let generation = earlier.unwrap_or(0).saturating_add(1);
                put.execute(params![
                    insert.lease.id.0,
                    insert.fingerprint.0.cast_signed(),
                    insert.lease.epoch,
                    attempt,
                    duration_micros(settings.interval),
                    duration_micros(settings.timeout),
                    settings.on_landed.code(),
                    settings.on_missed.code(),
                    insert.registered_at.as_micros(),
                    insert.times_out_at.as_micros(),
                    changed,
                    insert.kind.as_str(),
                    insert.context.as_str(),
                    settings.execution_timeout.map(duration_micros),
                    settings.poke_timeout.map(duration_micros),
                    settings.max_interval.map(duration_micros),
                    generation,
                    insert.registered_by.as_ref().map(Holder::as_str),
                ])?;
                let (generation, changed) = (generation.unsigned_abs(), changed.unsigned_abs());
                stored.push(SensorRecord::registered(insert.clone(), task, attempt, generation, changed));
            }
            db.set_counter("sensor", changed)?;
            Ok(stored)
        })
    }

    fn sensors(&mut self, tasks: &[TaskKey]) -> StoreResult<Vec<Option<SensorRecord>>> {
        self.read(|db| {
            let mut statement = db.prepare(OF_KEY)?;
            tasks
                .iter()
                .map(|key| {
                    let mut rows = statement.query((
                        key.namespace.as_str(),
                        key.workflow.as_str(),
                        key.run.as_str(),
                        key.task.as_str(),
                        map_index_value(key.map_index),
                    ))?;
                    rows.next()?.map(|row| records::sensor(row, key.clone(), &mut db.names)).transpose()
                })
                .collect()
        })
    }

    fn changed_sensors(&mut self, query: &SensorQuery) -> StoreResult<Vec<SensorRecord>> {
        self.read(|db| {
            let mut found = Vec::new();
            if query.limit == 0 || query.ranges.is_empty() {
                return Ok(found);
            }
            let mut statement = db.prepare(match query.which {
                WhichSensors::Waiting => CHANGED_WAITING,
                WhichSensors::All => CHANGED,
            })?;
            let mut tasks = db.prepare(TASK)?;
            let mut rows = statement.query([clamp(query.after)])?;
            while let Some(row) = rows.next()? {
                if query.covers(records::fingerprint(row, 1)?) {
                    found.push(with_task(row, &mut tasks, &mut db.names)?);
                    if found.len() == query.limit {
                        break;
                    }
                }
            }
            Ok(found)
        })
    }

    fn sensor_changes(&mut self) -> StoreResult<SensorChanges> {
        self.read(|db| {
            let (last, forgotten) = (db.counter("sensor")?, db.counter("forgotten")?);
            Ok(SensorChanges::new(last.unsigned_abs(), forgotten.unsigned_abs()))
        })
    }

    fn end_sensors_if_waiting(&mut self, sensors: &[LeaseRef]) -> StoreResult<Vec<Option<SensorRecord>>> {
        self.write(|db| {
            if sensors.is_empty() {
                return Ok(Vec::new());
            }
            let before = db.counter("sensor")?;
            let mut changed = before;
            let (mut find, mut tasks) = (db.prepare(IF_WAITING)?, db.prepare(TASK)?);
            let mut end = db.prepare(END)?;
            let mut ended = Vec::with_capacity(sensors.len());
            for lease in sensors {
                let mut rows = find.query((lease.id.0, lease.epoch))?;
                let record = rows.next()?.map(|row| with_task(row, &mut tasks, &mut db.names)).transpose()?;
                drop(rows);
                ended.push(match record {
                    Some(record) => {
                        changed += 1;
                        end.execute((lease.id.0, changed))?;
                        Some(SensorRecord {
                            state: SensorState::Ended,
                            changed: changed.unsigned_abs(),
                            ..record
                        })
                    }
                    None => None,
                });
            }
            if changed != before {
                db.set_counter("sensor", changed)?;
            }
            Ok(ended)
        })
    }

    fn put_worker(&mut self, worker: &PokerRow) -> StoreResult<()> {
        self.write(|db| db.put_worker(worker))
    }

    fn delete_worker(&mut self, name: &Holder) -> StoreResult<()> {
        self.write(|db| db.delete_worker(name))
    }

    fn forget_workers(&mut self, before: Timestamp, limit: usize) -> StoreResult<usize> {
        self.write(|db| db.forget_workers(before, limit))
    }

    fn live_workers(&mut self, now: Timestamp) -> StoreResult<Vec<PokerRow>> {
        self.read(|db| db.live_workers(now))
    }

    fn shard_leases(&mut self) -> StoreResult<Vec<ShardLease>> {
        self.read(|db| db.shard_leases())
    }

    fn put_shards_if_unchanged(&mut self, writes: &[ShardWrite]) -> StoreResult<Vec<bool>> {
        self.write(|db| db.put_shards_if_unchanged(writes))
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
