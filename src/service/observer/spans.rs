//! Spans and events for subscribers of `tracing` (feature `tracing`). Without the feature there are none.
//!
//! | target | span, level | fields | events inside |
//! |---|---|---|---|
//! | `stationmaster::admitter` | `admit`, debug | `holder`, `budget` | debug `admitted`: `granted`, `promoted`, `deferred`, `conflicts`, `took_s`; trace `granted`, per task: `task`, `attempt`, `epoch`, `waited_s` |
//! | `stationmaster::reaper` | `reap`, debug | | debug `reaped`, or warn if leases expired: `expired`, `ready`, `retry`, `failed`, `forgotten`, `took_s`; debug `lease expired`, per task: `task`, `holder`, `became` |
//! | `stationmaster::poker` | `cycle`, debug | `worker` | debug `cycled`, or warn if pokes passed their deadline, a log panicked or kinds are unknown: `shards`, `gained`, `sensors`, `groups`, `loaded`, `due`, `poked`, `saved`, `unreachable`, `overran`, `late`, `held_back`, `landed`, `failed`, `timed_out`, `gave_up`, `unknown_kind`, `log_panics`, `outages`, `waiting`, `hung`, `took_s` |
//! | `stationmaster::poker` | `poke`, trace: one call of the host's poke, on the thread that makes it (async pokes have none) | `kind`, `targets` | the host's own |
//! | `stationmaster::delivery` | `deliver`, debug | | debug `delivered`, or warn if callbacks failed: `delivered`, `failed`, `waiting`, `took_s`; debug `callback failed`, per event: `task`, `seq`, `error` |
//! | `stationmaster::store` | – | | trace `transaction`: `mode`, `result`, `took_s`; by [`ObservedStore`](super::ObservedStore) |
//!
//! A tick that fails says so in a warning of its target: `error`, `result` (as in
//! [`metrics`](super::metrics)) and `took_s`. Nothing that happens per task or per poke is above debug.
//! Durations are numbers of seconds. What a host's store, poke or callback logs during a tick or poke lies in
//! its span; callbacks run in `deliver`.
//!
//! A subscriber that panics is not contained, as an [`Observer`](super::Observer) is: the panic passes
//! through the tick, and on a thread of the poker's its call counts as hung.

use std::time::Duration;

use chrono::{DateTime, Utc};

#[cfg(feature = "tracing")]
use super::watch::{became, result};
use crate::error::Result;
use crate::id::{Holder, SensorKind};
use crate::ops::Admission;
use crate::service::events::DeliveryReport;
use crate::service::poker::PokeReport;
use crate::service::reaper::ReapReport;
use crate::store::TxMode;
#[cfg(feature = "tracing")]
use crate::time;

/// A span that was entered, and is left when this is dropped.
#[must_use]
pub(in crate::service) struct Span {
    #[cfg(feature = "tracing")]
    _entered: tracing::span::EnteredSpan,
}

macro_rules! spans {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) => $span:expr;)+) => {$(
        $(#[$doc])*
        #[cfg(feature = "tracing")]
        pub(in crate::service) fn $name($($arg: $ty),*) -> Span {
            Span { _entered: $span.entered() }
        }

        $(#[$doc])*
        #[cfg(not(feature = "tracing"))]
        pub(in crate::service) fn $name($(_: $ty),*) -> Span {
            Span {}
        }
    )+};
}

macro_rules! events {
    ($($(#[$doc:meta])* fn $name:ident $(<$($t:ident),+>)? ($($arg:ident: $ty:ty),*) $body:block)+) => {$(
        $(#[$doc])*
        #[cfg(feature = "tracing")]
        pub(super) fn $name $(<$($t),+>)? ($($arg: $ty),*) $body

        $(#[$doc])*
        #[cfg(not(feature = "tracing"))]
        pub(super) fn $name $(<$($t),+>)? ($(_: $ty),*) {}
    )+};
}

spans! {
    /// An admission.
    fn admit(holder: &Holder, budget: usize) =>
        tracing::debug_span!(target: "stationmaster::admitter", "admit", %holder, budget);
    /// A reaper's tick.
    fn reap() => tracing::debug_span!(target: "stationmaster::reaper", "reap");
    /// A poker's tick.
    fn cycle(worker: &Holder) => tracing::debug_span!(target: "stationmaster::poker", "cycle", %worker);
    /// A call of a host's poke.
    fn poke(kind: &SensorKind, targets: usize) =>
        tracing::trace_span!(target: "stationmaster::poker", "poke", %kind, targets);
    /// A tick of a delivery.
    fn deliver() => tracing::debug_span!(target: "stationmaster::delivery", "deliver");
}

/// An event that is a warning if something is wrong. Level and fields of an event are fixed where it stands,
/// so there are two.
#[cfg(feature = "tracing")]
macro_rules! debug_or_warn {
    ($wrong:expr, $($rest:tt)+) => {
        if $wrong { tracing::warn!($($rest)+) } else { tracing::debug!($($rest)+) }
    };
}

/// What every failed tick says.
#[cfg(feature = "tracing")]
macro_rules! failed {
    ($target:literal, $answer:expr, $took_s:expr) => {
        if let Err(error) = $answer {
            tracing::warn!(target: $target, result = result($answer), took_s = $took_s, error = %error, "tick failed");
        }
    };
}

events! {
    /// An admission is over.
    fn admitted(now: DateTime<Utc>, conflicts: usize, took: Duration, answer: &Result<Admission>) {
        let took_s = took.as_secs_f64();
        failed!("stationmaster::admitter", answer, took_s);
        let Ok(admission) = answer else { return };
        let (granted, promoted) = (admission.granted.len(), admission.promoted);
        let deferred: u64 = admission.deferrals.iter().map(|deferral| deferral.tasks).sum();
        tracing::debug!(target: "stationmaster::admitter", granted, promoted, deferred, conflicts, took_s, "admitted");
        for task in &admission.granted {
            let waited_s = time::since(now, task.ready_at).as_secs_f64();
            let (attempt, epoch) = (task.attempt, task.epoch);
            tracing::trace!(target: "stationmaster::admitter", task = %task.key, attempt, epoch, waited_s, "granted");
        }
    }

    /// A reaper's tick is over.
    fn reaped(took: Duration, answer: &Result<ReapReport>) {
        let took_s = took.as_secs_f64();
        failed!("stationmaster::reaper", answer, took_s);
        let Ok(report) = answer else { return };
        let count = |word| report.reaped.iter().filter(|reaped| became(reaped.became) == word).count();
        let (ready, retry, failed) = (count("ready"), count("retry"), count("failed"));
        let (expired, forgotten) = (report.reaped.len(), report.forgotten);
        debug_or_warn!(expired > 0, target: "stationmaster::reaper",
            expired, ready, retry, failed, forgotten, took_s, "reaped");
        for reaped in &report.reaped {
            let holder = reaped.task.lease.as_ref().map(|lease| lease.holder.as_str());
            tracing::debug!(target: "stationmaster::reaper",
                task = %reaped.task.key, holder, became = became(reaped.became), "lease expired");
        }
    }

    /// A poker's tick is over.
    fn cycled<T>(took: Duration, report: &PokeReport, answer: &Result<T>) {
        let took_s = took.as_secs_f64();
        failed!("stationmaster::poker", answer, took_s);
        let wrong = report.overran + report.log_panics + report.unknown_kind > 0;
        debug_or_warn!(wrong, target: "stationmaster::poker",
            shards = report.shards, gained = report.gained, sensors = report.sensors, groups = report.groups,
            loaded = report.loaded, due = report.due, poked = report.poked, saved = report.saved,
            unreachable = report.unreachable, overran = report.overran, late = report.late,
            held_back = report.held_back, landed = report.landed, failed = report.failed,
            timed_out = report.timed_out, gave_up = report.gave_up, unknown_kind = report.unknown_kind,
            log_panics = report.log_panics, outages = report.backed_off, waiting = report.waiting,
            hung = report.hung, took_s, "cycled");
    }

    /// A tick of a delivery is over.
    fn delivered(took: Duration, answer: &Result<DeliveryReport>) {
        let took_s = took.as_secs_f64();
        failed!("stationmaster::delivery", answer, took_s);
        let Ok(report) = answer else { return };
        let (delivered, failed, waiting) = (report.delivered, report.failed.len(), report.waiting);
        debug_or_warn!(failed > 0, target: "stationmaster::delivery", delivered, failed, waiting, took_s, "delivered");
        for (event, error) in &report.failed {
            tracing::debug!(target: "stationmaster::delivery", task = %event.task, seq = event.seq, error, "callback failed");
        }
    }

    /// A transaction is over.
    fn transacted(mode: TxMode, took: Duration, answer: &Result<()>) {
        let (mode, result, took_s) = (mode.as_str(), result(answer), took.as_secs_f64());
        tracing::trace!(target: "stationmaster::store", mode, result, took_s, "transaction");
    }
}
