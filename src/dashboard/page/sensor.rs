//! A task's sensor: what it waits for, when it is poked, and with which sensors it shares a poke.

use std::time::Duration;

use maud::{Markup, html};

use super::Look;
use super::parts::{both, payload, sheet, table};
use crate::dashboard::words::{number, short, visible};
use crate::id::TaskKey;
use crate::sensor::{SensorRecord, SensorState, interval_at, life, next_poke};
use crate::store::ReadTx;
use crate::task::TaskQuery;
use crate::time::Timestamp;

/// How many sensors are compared with it.
const COMPARED: usize = 1_000;

pub(super) struct Sensor {
    record: SensorRecord,
    log: Vec<(Timestamp, String)>,
    pokes: Option<Pokes>,
}

/// What is known of the pokes of a sensor that waits.
struct Pokes {
    /// The sensors that wait for the same target.
    others: Vec<SensorRecord>,
    /// Whether all sensors were compared with it.
    is_all: bool,
    /// Whether a worker pokes its kind.
    is_served: bool,
}

impl Sensor {
    pub(super) fn read(tx: &mut ReadTx<'_>, now: Timestamp, key: &TaskKey) -> crate::Result<Option<Self>> {
        let keys = std::slice::from_ref(key);
        let Some(record) = tx.sensors(keys)?.pop().flatten() else { return Ok(None) };
        let log = tx.sensor_log(keys)?.pop().unwrap_or_default();
        let is_waiting = record.state == SensorState::Waiting;
        let pokes = if is_waiting { Some(Pokes::read(tx, now, &record)?) } else { None };
        Ok(Some(Self { record, log, pokes }))
    }

    pub(super) fn shown(&self, look: &Look<'_>) -> Markup {
        let (sensor, now) = (&self.record, look.now);
        let row = |(at, what): &(Timestamp, String)| vec![both(*at, now), html! { (visible(what)) }];
        let rows = self.log.iter().map(row).collect();
        let times_out = if sensor.times_out_at <= now { "Timed out" } else { "Times out" };
        let mut facts = vec![
            ("Kind", html! { (visible(&sensor.kind)) }),
            ("State", html! { (format!("{:?}", sensor.state).to_lowercase()) }),
            ("Registered", both(sensor.registered_at, now)),
            (times_out, both(sensor.times_out_at, now)),
            ("Poked every", every(sensor, now)),
        ];
        facts.extend(self.pokes.iter().flat_map(|pokes| pokes.shown(sensor, &self.log, now)));
        facts.extend([
            ("Registrations", html! { (sensor.generation) }),
            ("Fingerprint", html! { (sensor.fingerprint) }),
            ("Context", payload(look, Some(sensor.context.as_str()))),
        ]);
        html! {
            (sheet(facts))
            @if self.pokes.as_ref().is_some_and(|pokes| pokes.is_served) {
                p.note { "The store keeps no pokes. When they are due follows from the interval. The log of the worker has each of them." }
            }
            (table("What happened to it, without pokes", &["At", "What"], rows, "Nothing is known."))
        }
    }
}

/// The interval at this instant.
fn interval(sensor: &SensorRecord, now: Timestamp) -> Duration {
    interval_at(&sensor.settings, now.saturating_duration_since(sensor.registered_at))
}

fn every(sensor: &SensorRecord, now: Timestamp) -> Markup {
    let interval = interval(sensor, now);
    html! {
        (short(interval))
        @if let Some(longest) = sensor.settings.max_interval.filter(|longest| *longest > interval) {
            " now, later up to " (short(longest))
        }
    }
}

/// Returns true if the last outage in this log has not ended.
fn is_out(log: &[(Timestamp, String)]) -> bool {
    let mut lines = log.iter().rev().map(|(_, line)| line.as_str());
    let last = lines.find(|line| *line == life::OUTAGE_BEGAN || line.starts_with(life::OUTAGE_ENDED));
    last == Some(life::OUTAGE_BEGAN)
}

impl Pokes {
    fn read(tx: &mut ReadTx<'_>, now: Timestamp, sensor: &SensorRecord) -> crate::Result<Self> {
        let page = tx.list_tasks(&TaskQuery::sensing().limit(COMPARED))?;
        let keys = page.keys();
        let found = if keys.is_empty() { Vec::new() } else { tx.sensors(&keys)? };
        let is_same = |other: &SensorRecord| {
            other.state == SensorState::Waiting
                && (&other.kind, other.fingerprint) == (&sensor.kind, sensor.fingerprint)
                && other.id != sensor.id
        };
        let (workers, _) = tx.sensor_workers(now)?;
        Ok(Self {
            others: found.into_iter().flatten().filter(is_same).collect(),
            is_all: page.next.is_none(),
            is_served: workers.iter().any(|worker| worker.serves(&sensor.kind)),
        })
    }

    fn shown(
        &self,
        sensor: &SensorRecord,
        log: &[(Timestamp, String)],
        now: Timestamp,
    ) -> Vec<(&'static str, Markup)> {
        let shared = html! {
            @match self.others.len() {
                0 => "no other sensor",
                1 => "1 other sensor",
                others => { (number(others)) " other sensors" },
            }
            @if !self.is_all { " of the first " (number(COMPARED)) " of the list" }
        };
        let mut lines = vec![("Shared with", shared)];
        if !self.is_served {
            let none =
                html! { "not due: no worker pokes this kind. See " a href="sensors#pokers" { "Sensors" } };
            lines.push(("Next poke", none));
        } else if is_out(log) {
            lines.push(("Next poke", html! { "later than usual, because its target could not be checked" }));
        } else {
            // The sensors of a target are poked together, at the shortest of their intervals.
            let all = self.others.iter().chain([sensor]).map(|one| interval(one, now));
            let interval = all.min().unwrap_or(sensor.settings.interval);
            let grid = next_poke(sensor.fingerprint, interval, now);
            // The first of them that times out is poked once more then, for all of them.
            let ends = self.others.iter().chain([sensor]).map(|one| one.times_out_at);
            let next = ends.filter(|at| *at > now).min().map_or(grid, |at| at.min(grid));
            let last = Some(grid - interval).filter(|last| *last > sensor.registered_at);
            let last = last.map_or_else(
                || html! { "when it registered, or soon after" },
                |last| html! { "was due " (both(last, now)) },
            );
            lines.extend([("Last poke", last), ("Next poke", html! { "due " (both(next, now)) })]);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_lasts_until_the_log_says_that_it_ended() {
        let at = Timestamp::from_micros;
        let log = |lines: &[String]| lines.iter().map(|line| (at(0), line.clone())).collect::<Vec<_>>();
        let (began, ended) = (life::OUTAGE_BEGAN.to_owned(), life::outage_ended(at(0), at(9)));
        assert!(!is_out(&[]));
        assert!(is_out(&log(&[began.clone(), "taken over by poker-2".to_owned()])));
        assert!(!is_out(&log(&[began.clone(), ended.clone()])));
        assert!(is_out(&log(&[began.clone(), ended, began])));
    }
}
