//! The store's operations on sensors, and the trait that they share with events, workers and shards.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio_postgres::Row;

use super::super::error::{Fault, Outcome};
use super::super::listen::News;
use super::super::wire::ask;
use super::{Db, PostgresBackend, clamp, first, row};
use crate::canonical::PokeContext;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::fingerprint::Fingerprint;
use crate::id::{Holder, TaskKey};
use crate::lease::{LeaseRef, TaskNo};
use crate::sensor::{SensorEvent, SensorInsert, SensorRecord, Settings};
use crate::store::Moved;
use crate::store::contract::{
    EventNote, SensorQuery, SensorTx, ShardLease, ShardWrite, WhichSensors, Worker,
};
use crate::store::sql::codes::Code;
use crate::time::{duration_micros, micros, truncate};

/// The columns of [`sensor`], the task's key last.
macro_rules! sensor_columns {
    () => {
        "sensor.no, sensor.fingerprint, sensor.epoch, sensor.attempt, sensor.generation, sensor.interval, \
         sensor.timeout, sensor.on_landed, sensor.on_missed, sensor.registered_at, sensor.times_out_at, sensor.state, \
         sensor.changed, sensor.kind, sensor.context, sensor.execution, sensor.poke, sensor.max_interval, \
         task.namespace, task.workflow, task.run, task.task, task.map_index"
    };
}

/// Where a statement's own columns begin that stand behind [`sensor_columns`].
const AFTER_SENSOR: usize = 23;

macro_rules! task_of_sensor {
    () => {
        " CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = sensor.no OFFSET 0) task"
    };
}

/// 15 says which registration of its task in this call each is, from 1 on, 16 is 1 if it is the last of them,
/// 17 how many there are in all. Changes nothing unless all tasks are there; answers for those that are.
pub(super) const PUT: &str = "WITH found AS MATERIALIZED ( \
       SELECT given.*, task.namespace, task.workflow, task.run, task.task, task.map_index, task.attempt, \
         coalesce(sensor.generation, 0) + given.nth AS generation, counter.value + given.place AS changed \
       FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], \
         $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], \
         $14::text[], $15::bigint[], $16::bigint[]) WITH ORDINALITY \
         given (no, epoch, fingerprint, interval, timeout, execution, poke, max_interval, on_landed, on_missed, \
           registered_at, times_out_at, kind, context, nth, last, place) \
       CROSS JOIN (SELECT value FROM sm.counter WHERE name = 'sensor') counter \
       CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.no = given.no OFFSET 0) task \
       LEFT JOIN LATERAL (SELECT generation FROM sm.sensor WHERE sensor.no = given.no OFFSET 0) sensor ON true), \
     complete AS MATERIALIZED (SELECT count(*) = $17::bigint AS complete FROM found), \
     counted AS (UPDATE sm.counter SET value = value + $17::bigint \
       WHERE name = 'sensor' AND (SELECT complete FROM complete)), \
     put AS (INSERT INTO sm.sensor (no, epoch, state, changed, fingerprint, attempt, generation, interval, timeout, \
         execution, poke, max_interval, on_landed, on_missed, registered_at, times_out_at, kind, context) \
       SELECT found.no, found.epoch, 0, found.changed, found.fingerprint, found.attempt, found.generation, \
         found.interval, found.timeout, found.execution, found.poke, found.max_interval, found.on_landed, \
         found.on_missed, found.registered_at, found.times_out_at, found.kind, found.context \
       FROM found WHERE found.last = 1 AND (SELECT complete FROM complete) \
       ON CONFLICT (no) DO UPDATE SET epoch = excluded.epoch, state = excluded.state, changed = excluded.changed, \
         fingerprint = excluded.fingerprint, attempt = excluded.attempt, generation = excluded.generation, \
         interval = excluded.interval, timeout = excluded.timeout, execution = excluded.execution, \
         poke = excluded.poke, max_interval = excluded.max_interval, on_landed = excluded.on_landed, \
         on_missed = excluded.on_missed, registered_at = excluded.registered_at, \
         times_out_at = excluded.times_out_at, kind = excluded.kind, context = excluded.context) \
     SELECT place, namespace, workflow, run, task, map_index, attempt, generation, changed FROM found";
pub(super) const OF_KEYS: &str = concat!(
    "SELECT ",
    sensor_columns!(),
    ", given.place FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[]) WITH ORDINALITY \
       given (namespace, workflow, run, task, map_index, place) \
     CROSS JOIN LATERAL (SELECT * FROM sm.task WHERE task.namespace = given.namespace \
       AND task.workflow = given.workflow AND task.run = given.run AND task.task = given.task \
       AND task.map_index = given.map_index OFFSET 0) task \
     CROSS JOIN LATERAL (SELECT * FROM sm.sensor WHERE sensor.no = task.no OFFSET 0) sensor"
);

/// 1 the place to go on after, 2 how many. 3 is how many codes there are, 4 the remainder of 2 to the 64th by
/// that; 5 and 6 are the ranges of codes, none of them for all: a code is computed on the fingerprint without
/// its sign.
macro_rules! changed {
    ($state:literal) => {
        concat!(
            "SELECT ",
            sensor_columns!(),
            " FROM (SELECT * FROM sm.sensor WHERE ",
            $state,
            "sensor.changed > $1::bigint AND (cardinality($5::bigint[]) = 0 \
               OR EXISTS (SELECT FROM unnest($5::bigint[], $6::bigint[]) span (low, high) \
                 WHERE (sensor.fingerprint % $3::bigint \
                   + CASE WHEN sensor.fingerprint < 0 THEN $3::bigint + $4::bigint ELSE 0 END) % $3::bigint \
                   BETWEEN span.low AND span.high - 1)) \
             ORDER BY sensor.changed LIMIT $2::bigint) sensor",
            task_of_sensor!()
        )
    };
}

pub(super) const CHANGED: &str = changed!("");
pub(super) const CHANGED_WAITING: &str = changed!("sensor.state = 0 AND ");
pub(super) const LAST: &str = "SELECT value FROM sm.counter WHERE name = $1::text";
/// No registration is named twice.
pub(super) const END: &str = concat!(
    "WITH found AS MATERIALIZED ( \
       SELECT given.place, sensor.no, counter.value + given.place AS changed \
       FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY given (no, epoch, place) \
       CROSS JOIN (SELECT value FROM sm.counter WHERE name = 'sensor') counter \
       CROSS JOIN LATERAL (SELECT no FROM sm.sensor WHERE sensor.no = given.no AND sensor.epoch = given.epoch \
         AND sensor.state = 0 OFFSET 0) sensor), \
     counted AS (UPDATE sm.counter SET value = found.last FROM (SELECT max(changed) AS last FROM found) found \
       WHERE counter.name = 'sensor' AND found.last IS NOT NULL), \
     ended AS (UPDATE sm.sensor SET state = 1, changed = found.changed FROM found WHERE sensor.no = found.no \
       RETURNING sensor.*, found.place) \
     SELECT ",
    sensor_columns!(),
    ", sensor.place FROM ended sensor",
    task_of_sensor!()
);

fn length(row: &Row, at: usize) -> Outcome<Option<Duration>> {
    Ok(row::value::<Option<i64>>(row, at)?.map(|micros| Duration::from_micros(micros.unsigned_abs())))
}

/// The ranges that hold some codes, those that touch as one; none if they hold every code.
fn spans(query: &SensorQuery) -> (Vec<i64>, Vec<i64>) {
    let mut ranges: Vec<(i64, i64)> = query
        .ranges
        .iter()
        .filter(|range| !range.is_empty())
        .map(|range| (range.start().into(), range.end().into()))
        .collect();
    ranges.sort_unstable();
    let mut spans: Vec<(i64, i64)> = Vec::with_capacity(ranges.len());
    for (low, high) in ranges {
        match spans.last_mut() {
            Some(last) if low <= last.1 => last.1 = last.1.max(high),
            _ => spans.push((low, high)),
        }
    }
    if let [(0, high)] = spans[..]
        && high >= i64::from(query.codes.get())
    {
        spans.clear();
    }
    spans.into_iter().unzip()
}

impl Db<'_> {
    /// The sensor in [`sensor_columns`].
    fn sensor(&mut self, row: &Row) -> Outcome<SensorRecord> {
        let task = row::key(row, 18, &mut self.names)?;
        let kind = self.names.kind(row, 13)?;
        let fingerprint = Fingerprint(row::value::<i64>(row, 1)?.cast_unsigned());
        // It was canonical when it was stored, so its fingerprint says whether it still is what it was.
        let vouched = |context: &PokeContext| Fingerprint::new(&kind, context) == fingerprint;
        let context = PokeContext::vouched(row::value(row, 14)?, vouched).ok_or_else(|| {
            Fault::Damaged(format!("the poke context of task {task} and its fingerprint differ"))
        })?;
        Ok(SensorRecord {
            no: TaskNo(row::value(row, 0)?),
            epoch: row::value(row, 2)?,
            task,
            attempt: row::count(row, 3)?,
            generation: row::number(row, 4)?,
            kind,
            context,
            fingerprint,
            settings: Settings {
                interval: Duration::from_micros(row::number(row, 5)?),
                timeout: Duration::from_micros(row::number(row, 6)?),
                execution_timeout: length(row, 15)?,
                poke_timeout: length(row, 16)?,
                max_interval: length(row, 17)?,
                on_landed: row::code(row, 7)?,
                on_missed: row::code(row, 8)?,
            },
            registered_at: row::instant(row, 9)?,
            times_out_at: row::instant(row, 10)?,
            state: row::code(row, 11)?,
            changed: row::number(row, 12)?,
        })
    }

    /// Sensors with their places in an argument of this length.
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

    fn put_sensors(&mut self, sensors: &[SensorInsert]) -> Outcome<Vec<SensorRecord>> {
        let mut counts: HashMap<TaskNo, i64> = HashMap::with_capacity(sensors.len());
        let nth = sensors.iter().map(|sensor| {
            let count = counts.entry(sensor.lease.no).or_default();
            *count += 1;
            *count
        });
        let nth: Vec<i64> = nth.collect();
        let is_last =
            |(sensor, nth): (&SensorInsert, &i64)| i64::from(counts.get(&sensor.lease.no) == Some(nth));
        let last: Vec<i64> = sensors.iter().zip(&nth).map(is_last).collect();
        let numbers = |number: fn(&SensorInsert) -> i64| -> Vec<i64> { sensors.iter().map(number).collect() };
        let lengths = |length: fn(&Settings) -> Option<Duration>| -> Vec<Option<i64>> {
            sensors.iter().map(|sensor| length(&sensor.settings).map(duration_micros)).collect()
        };
        let texts = |text: fn(&SensorInsert) -> &str| -> Vec<String> {
            sensors.iter().map(|sensor| text(sensor).to_owned()).collect()
        };
        let rows = self.one(ask!(
            PUT,
            numbers(|sensor| sensor.lease.no.0),
            numbers(|sensor| sensor.lease.epoch),
            numbers(|sensor| sensor.fingerprint.0.cast_signed()),
            numbers(|sensor| duration_micros(sensor.settings.interval)),
            numbers(|sensor| duration_micros(sensor.settings.timeout)),
            lengths(|settings| settings.execution_timeout),
            lengths(|settings| settings.poke_timeout),
            lengths(|settings| settings.max_interval),
            numbers(|sensor| sensor.settings.on_landed.code()),
            numbers(|sensor| sensor.settings.on_missed.code()),
            numbers(|sensor| micros(sensor.registered_at)),
            numbers(|sensor| micros(sensor.times_out_at)),
            texts(|sensor| sensor.kind.as_str()),
            texts(|sensor| sensor.context.as_str()),
            nth,
            last,
            clamp(sensors.len()),
        ))?;
        let mut stored = vec![None; sensors.len()];
        for row in &rows {
            let at = row::place(row, 0)?;
            let (Some(insert), Some(stored)) = (sensors.get(at), stored.get_mut(at)) else { continue };
            let insert = SensorInsert {
                registered_at: truncate(insert.registered_at),
                times_out_at: truncate(insert.times_out_at),
                ..insert.clone()
            };
            let (task, attempt) = (row::key(row, 1, &mut self.names)?, row::count(row, 6)?);
            let (generation, changed) = (row::number(row, 7)?, row::number(row, 8)?);
            *stored = Some(SensorRecord::registered(insert, task, attempt, generation, changed));
        }
        let missing = |(sensor, stored): (&SensorInsert, &Option<_>)| match stored {
            Some(_) => None,
            None => Some(sensor.lease.no.0),
        };
        if let Some(no) = sensors.iter().zip(&stored).find_map(missing) {
            let text = format!("a sensor was registered for task number {no}, which is not there");
            return Err(Fault::Refused(StoreError::new(StoreErrorKind::Backend, text)));
        }
        Ok(stored.into_iter().flatten().collect())
    }

    fn sensors(&mut self, tasks: &[TaskKey]) -> Outcome<Vec<Option<SensorRecord>>> {
        let texts = |text: fn(&TaskKey) -> &str| -> Vec<String> {
            tasks.iter().map(|key| text(key).to_owned()).collect()
        };
        let rows = self.one(ask!(
            OF_KEYS,
            texts(|key| key.namespace.as_str()),
            texts(|key| key.workflow.as_str()),
            texts(|key| key.run.as_str()),
            texts(|key| key.task.as_str()),
            tasks.iter().map(|key| row::map_index_value(key.map_index)).collect::<Vec<i64>>(),
        ))?;
        self.placed_sensors(&rows, tasks.len())
    }

    fn changed_sensors(&mut self, query: &SensorQuery) -> Outcome<Vec<SensorRecord>> {
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
        let rows =
            self.one(ask!(statement, clamp(query.after), clamp(query.limit), codes, remainder, lows, highs))?;
        let mut found = rows.iter().map(|row| self.sensor(row)).collect::<Outcome<Vec<_>>>()?;
        found.sort_unstable_by_key(|sensor| sensor.changed);
        Ok(found)
    }

    fn last(&mut self, counter: &'static str) -> Outcome<u64> {
        let rows = self.one(ask!(LAST, counter))?;
        row::number(first(&rows)?, 0)
    }

    /// Of a registration that is named twice the second finds it ended.
    fn end_sensors_if_waiting(&mut self, sensors: &[LeaseRef]) -> Outcome<Vec<Option<SensorRecord>>> {
        let mut seen = std::collections::HashSet::with_capacity(sensors.len());
        let given: Vec<usize> = (0..sensors.len()).filter(|at| seen.insert(sensors[*at])).collect();
        let rows = self.one(ask!(
            END,
            given.iter().map(|at| sensors[*at].no.0).collect::<Vec<i64>>(),
            given.iter().map(|at| sensors[*at].epoch).collect::<Vec<i64>>(),
        ))?;
        let mut answers = vec![None; sensors.len()];
        for (at, ended) in given.iter().zip(self.placed_sensors(&rows, given.len())?) {
            answers[*at] = ended;
        }
        Ok(answers)
    }
}

impl SensorTx for PostgresBackend<'_> {
    fn put_sensors(&mut self, sensors: &[SensorInsert]) -> StoreResult<Vec<SensorRecord>> {
        self.tell(
            News::Sensors,
            |db| if sensors.is_empty() { Ok(Vec::new()) } else { db.put_sensors(sensors) },
        )
    }

    fn sensors(&mut self, tasks: &[TaskKey]) -> StoreResult<Vec<Option<SensorRecord>>> {
        self.read(|db| if tasks.is_empty() { Ok(Vec::new()) } else { db.sensors(tasks) })
    }

    fn changed_sensors(&mut self, query: &SensorQuery) -> StoreResult<Vec<SensorRecord>> {
        self.read(|db| db.changed_sensors(query))
    }

    fn last_sensor_change(&mut self) -> StoreResult<u64> {
        self.read(|db| db.last("sensor"))
    }

    fn last_forgotten_change(&mut self) -> StoreResult<u64> {
        self.read(|db| db.last("forgotten"))
    }

    fn end_sensors_if_waiting(&mut self, sensors: &[LeaseRef]) -> StoreResult<Vec<Option<SensorRecord>>> {
        self.tell(News::Sensors, |db| {
            if sensors.is_empty() { Ok(Vec::new()) } else { db.end_sensors_if_waiting(sensors) }
        })
    }

    fn note_events(&mut self, events: &[EventNote]) -> StoreResult<()> {
        self.tell(News::Events, |db| if events.is_empty() { Ok(()) } else { db.note_events(events) })
    }

    fn events(&mut self, after: u64, limit: usize) -> StoreResult<Vec<SensorEvent>> {
        self.read(|db| if limit == 0 { Ok(Vec::new()) } else { db.events(after, limit) })
    }

    fn acknowledge_events(&mut self, seqs: &[u64]) -> StoreResult<usize> {
        self.write(|db| if seqs.is_empty() { Ok(0) } else { db.acknowledge_events(seqs) })
    }

    fn forget_events(&mut self, before: DateTime<Utc>, limit: usize) -> StoreResult<usize> {
        self.write(|db| if limit == 0 { Ok(0) } else { db.forget_events(before, limit) })
    }

    fn kept_by_events(&mut self, before: DateTime<Utc>, limit: usize) -> StoreResult<usize> {
        self.read(|db| if limit == 0 { Ok(0) } else { db.kept_by_events(before, limit) })
    }

    fn put_worker(&mut self, worker: &Worker) -> StoreResult<()> {
        self.write(|db| db.put_worker(worker))
    }

    fn delete_worker(&mut self, name: &Holder) -> StoreResult<()> {
        self.write(|db| db.delete_worker(name))
    }

    fn forget_workers(&mut self, before: DateTime<Utc>, limit: usize) -> StoreResult<usize> {
        self.write(|db| if limit == 0 { Ok(0) } else { db.forget_workers(before, limit) })
    }

    fn live_workers(&mut self, now: DateTime<Utc>) -> StoreResult<Vec<Worker>> {
        self.read(|db| db.live_workers(now))
    }

    fn shard_leases(&mut self) -> StoreResult<Vec<ShardLease>> {
        self.read(|db| db.shard_leases())
    }

    fn put_shards_if_unchanged(&mut self, writes: &[ShardWrite]) -> StoreResult<Vec<Moved>> {
        self.write(|db| if writes.is_empty() { Ok(Vec::new()) } else { db.put_shards_if_unchanged(writes) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::{DEFAULT_CODES, ShardRange};

    #[test]
    fn ranges_that_touch_are_one_and_all_codes_are_none() {
        let asked = |ranges: &[(u32, u32)]| {
            let ranges = ranges.iter().filter_map(|(low, high)| ShardRange::new(*low, *high)).collect();
            spans(&SensorQuery::new(0, DEFAULT_CODES, ranges, WhichSensors::All, 9))
        };
        assert_eq!(asked(&[(5, 9), (2, 5), (7, 8), (20, 20), (11, 12)]), (vec![2, 11], vec![9, 12]));
        assert_eq!(asked(&[(5000, 10_000), (0, 5000)]), (vec![], vec![]));
        assert_eq!(asked(&[(0, u32::MAX)]), (vec![], vec![]));
        assert_eq!(asked(&[(0, 9_999)]), (vec![0], vec![9_999]));
    }
}
