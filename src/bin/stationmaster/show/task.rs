//! Everything about one task.

use serde_json::{Value, json};
use stationmaster::ops::{Explanation, Position};
use stationmaster::sensor::SensorRecord;
use stationmaster::store::Store;
use stationmaster::task::PastAttempt;
use stationmaster::{TaskKey, TaskRecord, TaskState, Timestamp};

use super::before::before;
use super::explain::{MOST_BEFORE, lines as reasons};
use super::sensors::sheet as sensor_sheet;
use super::tasks::needs;
use super::{Found, mapped, output};
use crate::key::typed;
use crate::screen::{
    Screen, field, json as json_field, key as key_field, keys as keys_field, maybe, number, state,
};
use crate::text::visible;
use crate::times::must_stop;

struct Life {
    task: TaskRecord,
    attempts: Vec<PastAttempt>,
    sensor: Option<SensorRecord>,
    log: Vec<(Timestamp, String)>,
    why: Explanation,
    position: Position,
    /// Which tasks go before it.
    before: Option<String>,
}

pub fn show(store: &dyn Store, screen: &mut Screen, keys: &[TaskKey]) -> Found {
    let now = screen.now;
    let mut lives = store.read(|tx| {
        let tasks = tx.tasks(keys)?;
        let attempts = tx.attempts(keys)?;
        let sensors = tx.sensors(keys)?.into_iter().zip(tx.sensor_log(keys)?);
        let whys = tx.explain(now, keys)?;
        let positions = tx.positions(keys, MOST_BEFORE)?;
        let explained = whys.into_iter().zip(positions);
        let known = tasks.into_iter().zip(attempts).zip(sensors).zip(explained);
        let life = |(((task, attempts), (sensor, log)), (why, position))| {
            Option::map(task, |task| Life { task, attempts, sensor, log, why, position, before: None })
        };
        Ok(known.map(life).collect::<Vec<Option<Life>>>())
    })?;
    let found = lives.iter().all(Option::is_some);
    for (at, (key, life)) in keys.iter().zip(&mut lives).enumerate() {
        if at > 0 {
            screen.say("");
        }
        match life {
            None if screen.is_json() => screen.line(&json!({ "key": key, "task": null })),
            None => {
                let hint = mapped::hint(store, keys)?;
                screen.say(&format!("{}: there is no such task{}.", visible(key), visible(hint)));
            }
            Some(life) if screen.is_json() => {
                let line = lines(screen, life).map_err(output)?;
                screen.line(&line);
            }
            Some(life) => {
                life.before = before(store, &life.task, life.position)?;
                sheet(screen, life);
            }
        }
    }
    Ok(found)
}

fn lines(screen: &Screen, life: &Life) -> std::io::Result<Value> {
    Ok(json!({
        "key": life.task.key,
        "task": screen.record(&life.task)?,
        "why": life.why,
        "position": life.position,
        "attempts": life.attempts,
        "sensor": life.sensor.as_ref().map(|sensor| screen.record(sensor)).transpose()?,
        "sensor_log": life.log.iter().map(|(at, what)| json!({ "at": at, "what": what })).collect::<Vec<_>>(),
    }))
}

fn sheet(screen: &mut Screen, life: &Life) {
    let task = &life.task;
    let (lease, now) = (task.lease.as_ref(), screen.now);
    let has_ended = lease.is_some_and(|lease| lease.expires_at <= now);
    let lease_ends = if has_ended { "lease ended" } else { "lease until" };
    let payload = screen.shows_payloads();
    // A task keeps the instants and the message of its previous attempt until the next ones replace them.
    let is_over = task.state.is_end() || task.state == TaskState::UpForRetry;
    let is_cancelled = lease.is_some_and(|lease| lease.cancel_at.is_some());
    let message = if is_over || is_cancelled { "message" } else { "message before" };
    let ended = if is_over { "ended" } else { "ended before" };
    let is_ready = |_: &Timestamp| task.due.is_none() && !task.state.is_end();
    let is_begun = |at: &Timestamp| task.state != TaskState::Queued && Some(*at) >= task.queued_at;
    let mut lines = vec![
        ("task", key_field(&task.key)),
        ("typed as", json_field(&typed(&task.key))),
        ("id", field(task.id.0)),
        ("state", state(task.state)),
    ];
    // The state above and the instant below already say this.
    let said = matches!(life.why, Explanation::NotBefore { .. } | Explanation::NotWaiting(_));
    let reasons = reasons(&life.why, life.position, Some(task)).into_iter().skip(said.into());
    lines.extend(reasons.map(|(text, _)| ("waits for", field(text))));
    lines.extend(life.before.as_ref().map(|before| ("", keys_field(before))));
    lines.extend([
        (message, maybe(task.message.as_ref())),
        ("needs", needs(&task.lane)),
        ("priority", field(task.priority)),
        ("attempt", field(task.attempt)),
        ("lost leases", maybe(Some(task.lost).filter(|lost| *lost > 0))),
        ("held by", maybe(lease.map(|lease| &lease.holder))),
        (lease_ends, screen.maybe_when(lease.map(|lease| lease.expires_at))),
        ("its holder", maybe(lease.and_then(|lease| lease.cancel_at).map(|at| must_stop(at, now)))),
        ("says", maybe(lease.and_then(|lease| lease.note.as_ref()))),
        ("said", screen.maybe_when(lease.and_then(|lease| lease.noted_at))),
        ("not before", screen.maybe_when(task.due)),
        ("enqueued", screen.when(task.enqueued_at)),
        ("ready", screen.maybe_when(Some(task.ready_at).filter(is_ready))),
        ("granted", screen.maybe_when(task.queued_at)),
        ("started", screen.maybe_when(task.started_at.filter(is_begun))),
        (ended, screen.maybe_when(task.ended_at)),
        ("payload", maybe(Some(&task.payload).filter(|_| payload))),
        ("value", maybe(task.value.as_ref().filter(|_| payload))),
    ]);
    screen.sheet(lines);
    if !life.attempts.is_empty() {
        screen.say("\nAttempts:");
        let row = |past: &PastAttempt| {
            let message = maybe(past.message.as_ref());
            let ended = screen.when(past.ended_at);
            vec![number(past.attempt), maybe(past.holder.as_ref()), ended, state(past.became), message]
        };
        let rows: Vec<_> = life.attempts.iter().map(row).collect();
        screen.table(&["attempt", "held by", "ended", "became", "message"], rows);
    }
    if let Some(sensor) = &life.sensor {
        screen.say("\nSensor:");
        sensor_sheet(screen, sensor, None);
        let rows: Vec<_> = life.log.iter().map(|(at, what)| vec![screen.when(*at), field(what)]).collect();
        if !rows.is_empty() {
            screen.say("\nWhat happened to it, without pokes:");
            screen.table(&["at", "what"], rows);
        }
    }
}
