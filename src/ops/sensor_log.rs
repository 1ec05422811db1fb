//! What the store knows about the lives of sensors.

use std::collections::BTreeMap;

use crate::core::task::attempt::is_of_latest_grants;
use crate::error::Result;
use crate::id::{Holder, TaskKey};
use crate::sensor::{OutageRow, SensorRecord, SensorState, ShardTake, life};
use crate::shard::{code, range};
use crate::store::ReadTx;
use crate::task::{PastAttempt, TaskRecord, TaskState};
use crate::time::Timestamp;

/// The life of a sensor, as far as the store knows it.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// What happened, each with its attempt and instant.
    pub(crate) lines: Vec<(u32, Timestamp, String)>,
    /// The attempt of the latest registration.
    pub(crate) attempt: u32,
    /// The workers that poked the latest registration, each with the instant at which it began to.
    pub(crate) workers: Vec<(Timestamp, Holder)>,
}

impl ReadTx<'_> {
    /// Returns what the store knows about the life of each task as a sensor, in order, each line with its
    /// instant. The lines are its latest registration, the workers that took it over, outages of its target,
    /// and its ends, including those of earlier attempts. The list is empty for a task that is unknown or was
    /// never a sensor.
    ///
    /// Pokes are in the log of the worker that made them.
    /// [`FileLog::reader`](crate::service::FileLog::reader) reads both.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn sensor_log(&mut self, tasks: &[TaskKey]) -> Result<Vec<Vec<(Timestamp, String)>>> {
        let lives = sensor_lives(self, tasks)?;
        let lines = |life: Life| life.lines.into_iter().map(|(_, at, line)| (at, line)).collect();
        Ok(lives.into_iter().map(lines).collect())
    }
}

/// Returns the lives of these tasks as sensors.
pub(crate) fn sensor_lives(tx: &mut ReadTx<'_>, keys: &[TaskKey]) -> Result<Vec<Life>> {
    let tx = tx.raw();
    let tasks = tx.tasks(keys)?;
    let sensors = tx.sensors(keys)?;
    let ids: Vec<_> = tasks.iter().flatten().map(|task| task.id).collect();
    let mut attempts = tx.attempts(&ids)?.into_iter();
    let targets: Vec<_> = sensors.iter().flatten().map(|sensor| sensor.fingerprint).collect();
    if targets.is_empty() {
        return Ok(keys.iter().map(|_| Life::default()).collect());
    }
    let (takes, outages) = (tx.shard_takes()?, tx.outages(Some(&targets))?);
    let life = |(task, sensor): (&Option<TaskRecord>, &Option<SensorRecord>)| {
        let mut past = task.as_ref().and_then(|_| attempts.next()).unwrap_or_default();
        past.retain(|past| task.as_ref().is_some_and(|task| is_of_latest_grants(past.epoch, task.epoch)));
        match (task, sensor) {
            (Some(task), Some(sensor)) => Life::of(task, sensor, &past, &takes, &outages),
            _ => Life::default(),
        }
    };
    Ok(tasks.iter().zip(&sensors).map(life).collect())
}

impl Life {
    fn of(
        task: &TaskRecord,
        sensor: &SensorRecord,
        past: &[PastAttempt],
        takes: &[ShardTake],
        outages: &[OutageRow],
    ) -> Self {
        let attempt = sensor.attempt;
        let mut life = Self { attempt, ..Self::default() };
        let began = sensor.registered_at;
        // An attempt that ended as a sensor has no holder.
        for past in past.iter().filter(|past| past.holder.is_none() && past.started_at.is_some()) {
            life.lines.push((past.attempt, past.ended_at, became(past.became, past.message.as_deref())));
        }
        let mut ended = past.iter().find(|past| past.attempt == attempt).map(|past| past.ended_at);
        if ended.is_none() && sensor.state == SensorState::Ended {
            ended = task.ended_at.filter(|_| task.attempt == attempt);
            let line = became(task.state, task.message.as_deref());
            life.lines.extend(ended.map(|at| (attempt, at, line)));
        }
        // If the end was not kept, it was before the next attempt began.
        let next = past.iter().filter(|past| past.attempt > attempt).filter_map(|past| past.queued_at);
        let next = next.chain(task.queued_at.filter(|_| task.attempt > attempt)).min();
        let next = next.filter(|_| sensor.state == SensorState::Ended);
        let until = ended.or(next).unwrap_or(Timestamp::MAX);
        life.lines.push((attempt, began, life::registered(sensor)));
        life.took(sensor, takes, until);
        for outage in outages.iter().filter(|outage| outage.fingerprint == sensor.fingerprint) {
            let over = outage.until.filter(|over| *over <= until);
            if outage.since > until || over.is_some_and(|over| over < began) {
                continue;
            }
            life.lines.push((attempt, outage.since.max(began), life::OUTAGE_BEGAN.to_owned()));
            life.lines.extend(over.map(|over| (attempt, over, life::outage_ended(outage.since, over))));
        }
        // Lines of one instant stay in the order in which they were found, except that the end comes last.
        life.lines.sort_by_key(|(_, at, line)| (*at, line.starts_with(BECAME)));
        life
    }

    /// Adds the workers that held the sensor's shard while it waited.
    fn took(&mut self, sensor: &SensorRecord, takes: &[ShardTake], until: Timestamp) {
        let covers = |take: &&ShardTake| {
            let code = code(sensor.fingerprint, take.codes);
            take.kind.as_ref().is_none_or(|kind| *kind == sensor.kind)
                && range(take.codes, take.shards, take.shard).contains(&code)
        };
        let mut mine: Vec<&ShardTake> = takes.iter().filter(covers).filter(|take| take.at <= until).collect();
        mine.sort_by_key(|take| (take.at, take.epoch));
        // Once the kind has been lent, every change of its worker is recorded for the kind, not for the
        // shard.
        let lent = mine.iter().find(|take| take.kind.is_some()).map(|take| take.at);
        mine.retain(|take| take.kind.is_some() || lent.is_none_or(|lent| take.at < lent));
        let began = sensor.registered_at;
        let mut workers = BTreeMap::new();
        for (place, take) in mine.iter().enumerate() {
            // A sensor that registered while its shard had no worker has no previous worker.
            let is_new = began >= take.left_at.min(take.at);
            if is_new {
                workers.clear();
            }
            if take.at > began {
                let before = place.checked_sub(1).filter(|_| !is_new).and_then(|place| mine.get(place));
                let line = life::taken(&take.holder, before.map(|take| &take.holder));
                self.lines.push((sensor.attempt, take.at, line));
            }
            workers.entry(&take.holder).or_insert(take.at.max(began));
        }
        self.workers = workers.into_iter().map(|(worker, since)| (since, worker.clone())).collect();
    }
}

/// The beginning of the last line of a registration.
const BECAME: &str = "its task became ";

fn became(state: TaskState, text: Option<&str>) -> String {
    let text = text.map_or_else(String::new, |text| format!(": {text}"));
    format!("{BECAME}{state}{text}")
}
