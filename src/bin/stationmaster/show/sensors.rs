//! Tasks that wait as sensors.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::NaiveTime;
use stationmaster::id::SensorKind;
use stationmaster::sensor::SensorRecord;
use stationmaster::store::Store;
use stationmaster::store::contract::PokerRow;
use stationmaster::task::TaskQuery;
use stationmaster::{TaskKey, Timestamp};

use super::tasks::walk;
use super::{Found, goes_on, mapped, nothing, output};
use crate::args::Page;
use crate::screen::{Field, Screen, field, key, maybe};
use crate::text::visible;
use crate::times::{Moment, short};

/// How many sensors are read at once.
const AT_ONCE: usize = 1_000;

pub fn list(store: &dyn Store, screen: &mut Screen, query: &TaskQuery, page: &Page) -> Found {
    let mut keys: Vec<TaskKey> = Vec::new();
    let next = walk(store, query, page, |tasks| keys.extend(tasks.into_iter().map(|task| task.key)))?;
    let mut sensors: Vec<SensorRecord> = Vec::new();
    for keys in keys.chunks(AT_ONCE) {
        sensors.extend(store.read(|tx| tx.sensors(keys))?.into_iter().flatten());
    }
    if sensors.is_empty() && next.is_none() {
        let saved = saved_today(store, screen.now)?;
        let found = nothing(screen, "No task waits as a sensor like this.");
        screen.say(&saved);
        return found;
    }
    table(screen, &sensors)?;
    let now = screen.now;
    if !screen.is_json() {
        // Sensors of a page may share pokes with sensors of other pages, so a part of the list would seem to save less
        // than it does.
        if next.is_some() || page.after.is_some() {
            let first = store.read(|tx| {
                let keys = tx.list_tasks(&query.clone().limit(AT_ONCE))?.keys();
                tx.sensors(&keys)
            })?;
            let first: Vec<SensorRecord> = first.into_iter().flatten().collect();
            screen.say(&sharing(&first, &format!("the first {} like these", first.len())));
        } else {
            screen.say(&sharing(&sensors, "these"));
        }
        screen.say(&saved_today(store, screen.now)?);
        missing(screen, &store.read(|tx| tx.sensor_workers(now))?.0, &sensors);
    }
    if let Some(next) = next {
        goes_on(screen, &next);
    }
    Ok(!sensors.is_empty())
}

/// Returns what these sensors save: those with the same target share a poke, at the shortest of their intervals.
fn sharing(sensors: &[SensorRecord], whose: &str) -> String {
    let hourly = |sensor: &SensorRecord| 3_600.0 / sensor.settings.interval.as_secs_f64().max(0.001);
    let mut together = BTreeMap::new();
    for sensor in sensors {
        let shared = together.entry(sensor.fingerprint).or_insert(0.0_f64);
        *shared = shared.max(hourly(sensor));
    }
    let (alone, shared) = (sensors.iter().map(hourly).sum::<f64>(), together.values().sum::<f64>());
    let saved = 100.0 * (1.0 - shared / alone.max(1e-9));
    format!("Sharing saves {saved:.0} % of the pokes of {whose}: {shared:.0} an hour, not {alone:.0}.")
}

/// Returns how many pokes workers made today, and how many sharing saved, of all sensors.
fn saved_today(store: &dyn Store, now: Timestamp) -> Result<String, super::Stop> {
    // A worker's clock may be a little ahead.
    let hours = Moment::Today(NaiveTime::MIN).at(now)..now + Duration::from_secs(3_600);
    let counts = store.read(|tx| tx.poke_counts(hours.clone()))?;
    let poked: u64 = counts.iter().map(|counts| counts.poked).sum();
    let saved: u64 = counts.iter().map(|counts| counts.saved).sum();
    let share = match poked + saved {
        0 => String::new(),
        all => format!(" ({:.0} %)", saved as f64 * 100.0 / all as f64),
    };
    Ok(format!("All pokes since 00:00 UTC: {poked} made, {saved} saved{share}."))
}

/// Lists the kinds that no worker serves.
pub fn missing(screen: &mut Screen, workers: &[PokerRow], sensors: &[SensorRecord]) {
    if workers.is_empty() && !sensors.is_empty() {
        screen.say("No worker pokes them.");
        return;
    }
    let mut unserved: BTreeMap<&SensorKind, usize> = BTreeMap::new();
    for sensor in sensors.iter().filter(|sensor| !workers.iter().any(|worker| worker.serves(&sensor.kind))) {
        *unserved.entry(&sensor.kind).or_default() += 1;
    }
    for (kind, sensors) in unserved {
        screen.say(&format!("No worker serves kind {}: {sensors} of these are not poked.", visible(kind)));
    }
}

pub fn of(store: &dyn Store, screen: &mut Screen, keys: &[TaskKey]) -> Found {
    let sensors = store.read(|tx| tx.sensors(keys))?;
    let found: Vec<&SensorRecord> = sensors.iter().flatten().collect();
    for (at, sensor) in found.iter().enumerate() {
        if screen.is_json() {
            let line = screen.record(sensor).map_err(output)?;
            screen.line(&line);
        } else {
            if at > 0 {
                screen.say("");
            }
            sheet(screen, sensor, Some(&sensor.task));
        }
    }
    if !screen.is_json() {
        let missing = keys.iter().zip(&sensors).filter(|(_, sensor)| sensor.is_none());
        for (key, _) in missing {
            let hint = mapped::hint(store, keys)?;
            screen.say(&format!("{}: it has no sensor{}.", visible(key), visible(hint)));
        }
    }
    Ok(found.len() == keys.len())
}

fn table(screen: &mut Screen, sensors: &[SensorRecord]) -> Result<(), super::Stop> {
    if screen.is_json() {
        for sensor in sensors {
            let line = screen.record(sensor).map_err(output)?;
            screen.line(&line);
        }
        return Ok(());
    }
    let mut heads = vec!["task", "kind", "since", "times out", "every"];
    let row = |sensor: &SensorRecord| {
        let (since, until) = (screen.when(sensor.registered_at), screen.when(sensor.times_out_at));
        vec![key(&sensor.task), field(&sensor.kind), since, until, field(short(sensor.settings.interval))]
    };
    let mut rows: Vec<Vec<Field>> = sensors.iter().map(row).collect();
    if screen.shows_payloads() {
        heads.push("context");
        rows.iter_mut().zip(sensors).for_each(|(row, sensor)| row.push(field(sensor.context.as_str())));
    }
    screen.table(&heads, rows);
    Ok(())
}

/// Shows everything about one sensor, and if given its task.
pub fn sheet(screen: &mut Screen, sensor: &SensorRecord, task: Option<&TaskKey>) {
    let payload = screen.shows_payloads();
    let ends = if sensor.times_out_at <= screen.now { "timed out" } else { "times out" };
    let lines = [
        ("task", task.map_or_else(|| field(""), key)),
        ("kind", field(&sensor.kind)),
        ("state", field(format!("{:?}", sensor.state).to_lowercase())),
        ("since", screen.when(sensor.registered_at)),
        (ends, screen.when(sensor.times_out_at)),
        ("every", field(short(sensor.settings.interval))),
        ("registrations", field(sensor.generation)),
        ("fingerprint", field(sensor.fingerprint)),
        ("context", maybe(Some(sensor.context.as_str()).filter(|_| payload))),
    ];
    screen.sheet(lines);
}
