//! Sensors, and the workers that look after them.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::parts::{section, sheet, table, task, when};
use super::{Look, Page};
use crate::dashboard::params::link;
use crate::dashboard::trouble::Trouble;
use crate::dashboard::words::{number, short, visible};
use crate::fingerprint::Fingerprint;
use crate::id::SensorKind;
use crate::sensor::{PokerRow, SensorRecord};
use crate::task::{TaskQuery, TaskState};

/// How many sensors are read for the figures by kind.
const SAMPLE: usize = 1_000;
const SHOWN: usize = 50;

#[derive(Default)]
struct Kind {
    sensors: usize,
    targets: BTreeSet<Fingerprint>,
}

pub(super) fn view(look: &Look<'_>) -> Result<Page, Trouble> {
    let query = TaskQuery::sensing().limit(SAMPLE);
    let (all, sensors) = look.store.read(|tx| {
        let counts = tx.count_tasks(super::overview::COUNTED)?;
        let all =
            counts.iter().find(|count| count.state == TaskState::Sensing).map_or(0, |count| count.tasks);
        let keys = tx.list_tasks(&query)?.keys();
        let sensors = if keys.is_empty() { Vec::new() } else { tx.sensors(&keys)? };
        Ok((all, sensors.into_iter().flatten().collect::<Vec<SensorRecord>>()))
    })?;
    let (pokers, shards) = look.store.read(|tx| tx.sensor_workers(look.now))?;
    let held = |name: &crate::id::Holder| {
        shards
            .iter()
            .filter(|shard| shard.kind.is_none())
            .filter(|shard| shard.holder.as_ref() == Some(name) && look.now < shard.expires_at)
            .count()
    };
    let rows = pokers.iter().map(|worker| {
        vec![
            html! { (visible(&worker.name)) },
            html! { (held(&worker.name)) " of " (worker.shards) },
            html! { (kinds(worker)) },
            when(worker.expires_at, look.now),
        ]
    });
    let orphans = shards.iter().filter(|shard| shard.kind.is_none() && shard.is_free(look.now)).count();
    let mut unserved: BTreeMap<&SensorKind, usize> = BTreeMap::new();
    for sensor in sensors.iter().filter(|sensor| !pokers.iter().any(|worker| worker.serves(&sensor.kind))) {
        *unserved.entry(&sensor.kind).or_default() += 1;
    }
    let pokers_of = html! {
        (table("Workers that poke sensors, and what each holds", &["Worker", "Shards", "Kinds", "Lease ends"], rows.collect(),
               "No worker pokes sensors."))
        @if pokers.is_empty() && all > 0 {
            p.notice { "Sensors wait, and no worker pokes them." }
        } @else if orphans > 0 && all > 0 {
            p.notice { (number(orphans)) " shards have no worker: their sensors are not poked." }
        }
        @if !pokers.is_empty() {
            @for (kind, sensors) in unserved.iter().take(SHOWN) {
                p.notice {
                    "No worker serves kind " (visible(kind)) ": of those counted here, "
                    (number(*sensors)) @if *sensors == 1 { " sensor is" } @else { " sensors are" } " not poked."
                }
            }
        }
    };
    let main = html! {
        (section("sharing", "Sharing", &sharing(all, &sensors)))
        (section("saved", "What sharing saved", &super::savings::saved(look)?))
        (section("pokers", "Workers and shards", &pokers_of))
        (section("sensors", "Registered", &registered(look, &sensors)))
        p.note { "Who reads the feed is under " a href="health#consumers" { "Health" } "." }
    };
    Ok(Page::of(look, "Sensors", "sensors", main))
}

fn kinds(worker: &PokerRow) -> String {
    worker.kinds.as_ref().map_or_else(
        || "all kinds".to_owned(),
        |kinds| match kinds.is_empty() {
            true => "none".to_owned(),
            false => kinds.iter().map(visible).collect::<Vec<_>>().join(", "),
        },
    )
}

fn sharing(all: u64, sensors: &[SensorRecord]) -> Markup {
    let mut kinds: BTreeMap<&str, Kind> = BTreeMap::new();
    // The cost of each alone, and the cost of those with the same target together, at the shortest of their
    // intervals.
    let (mut alone, mut together) = (0.0, BTreeMap::<Fingerprint, f64>::new());
    for sensor in sensors {
        let hourly = 3_600.0 / sensor.settings.interval.as_secs_f64().max(0.001);
        alone += hourly;
        let shared = together.entry(sensor.fingerprint).or_default();
        *shared = shared.max(hourly);
        let kind = kinds.entry(sensor.kind.as_str()).or_default();
        kind.sensors += 1;
        kind.targets.insert(sensor.fingerprint);
    }
    let targets: usize = kinds.values().map(|kind| kind.targets.len()).sum();
    let rows = kinds.iter().map(|(name, kind)| {
        let (sensors, targets) = (kind.sensors, kind.targets.len());
        vec![
            html! { (visible(name)) },
            html! { (number(sensors)) },
            html! { (number(targets)) },
            html! { (format!("{:.1}", sensors as f64 / targets.max(1) as f64)) },
        ]
    });
    let shared = together.values().fold(0.0, |sum, hourly| sum + hourly);
    if sensors.is_empty() {
        return html! { p.empty { "No sensor waits." } };
    }
    // The others may have the same targets as these, which the first part of a list cannot show.
    let is_sample = all > sensors.len() as u64;
    html! {
        (sheet(vec![
            ("Waiting", html! { (number(all)) }),
            ("Counted here", html! {
                (number(sensors.len())) @if is_sample { ", the first of the list. The others may share with them" }
            }),
            ("Different targets", html! { (number(targets)) }),
            ("Pokes an hour", html! {
                (number(format!("{shared:.0}"))) @if alone > shared {
                    " instead of " (number(format!("{alone:.0}"))) ": sharing saves "
                    (format!("{:.0}", (1.0 - shared / alone) * 100.0)) " %"
                }
            }),
        ]))
        (table("Kinds of the sensors counted here", &["Kind", "Sensors", "Different targets", "Sensors per poke"],
               rows.collect(), ""))
    }
}

fn registered(look: &Look<'_>, sensors: &[SensorRecord]) -> Markup {
    let row = |sensor: &SensorRecord| {
        vec![
            task(&sensor.task),
            html! { (visible(&sensor.kind)) },
            when(sensor.registered_at, look.now),
            when(sensor.times_out_at, look.now),
            html! { (short(sensor.settings.interval)) },
        ]
    };
    let rows = sensors.iter().take(SHOWN).map(row).collect();
    html! {
        (table("Sensors that wait, in the order of the list of tasks", &["Task", "Kind", "Registered", "Times out", "Every"], rows, "No sensor waits."))
        @if sensors.len() > SHOWN {
            p.note { "The first " (SHOWN) ". " a href=(link("tasks", [("state", "sensing")])) { "All of them" } }
        }
    }
}
