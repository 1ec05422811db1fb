//! From what a tick did to what its observer is told.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::metrics::*;
use super::pokes::PokeTally;
use super::spans::{self, Span};
use super::{Metric, Observer};
use crate::admission::Reason;
use crate::error::{Error, Result};
use crate::id::Holder;
use crate::ops::{Admission, Finished};
use crate::service::events::DeliveryReport;
use crate::service::poker::PokeReport;
use crate::service::reaper::ReapReport;
use crate::task::TaskState;
use crate::time;

/// The observer of a service, if it has one.
#[derive(Clone, Default)]
pub(in crate::service) struct Watch(Option<Arc<dyn Observer>>);

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Watch(observed)" } else { "Watch(nobody)" })
    }
}

impl From<Arc<dyn Observer>> for Watch {
    fn from(observer: Arc<dyn Observer>) -> Self {
        Self(Some(observer))
    }
}

/// A tick that goes on.
pub(in crate::service) struct Tick {
    service: &'static str,
    began: Instant,
    /// Left when the tick is over.
    _span: Span,
}

impl Tick {
    pub(in crate::service) fn admitter(holder: &Holder, budget: usize) -> Self {
        Self::begin("admitter", spans::admit(holder, budget))
    }

    pub(in crate::service) fn reaper() -> Self {
        Self::begin("reaper", spans::reap())
    }

    pub(in crate::service) fn poker(worker: &Holder) -> Self {
        Self::begin("poker", spans::cycle(worker))
    }

    pub(in crate::service) fn delivery() -> Self {
        Self::begin("delivery", spans::deliver())
    }

    fn begin(service: &'static str, span: Span) -> Self {
        Self { service, began: Instant::now(), _span: span }
    }
}

/// Calls an observer. What it does wrong must not hold up a service.
pub(super) fn safely(call: impl FnOnce()) {
    // The panic was printed by the hook; there is nobody else to tell.
    let _ = catch_unwind(AssertUnwindSafe(call));
}

/// The label of how something ended.
pub(super) fn result<T>(result: &Result<T>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(Error::Store(error)) => error.kind().as_str(),
        Err(Error::Aborted(_)) => "aborted",
        Err(Error::Stale { .. }) => "stale",
        Err(Error::Repeated { .. }) => "repeated",
        #[cfg(feature = "tokio")]
        Err(Error::Runtime(_)) => "no_runtime",
        Err(_) => "invalid",
    }
}

/// The label of what became of a task.
pub(super) fn became(finished: Finished) -> &'static str {
    match finished {
        Finished::Ended(TaskState::Success) => "success",
        Finished::Ended(TaskState::Skipped) => "skipped",
        Finished::Ended(_) => "failed",
        Finished::RetryAt(_) => "retry",
        Finished::Ready => "ready",
        Finished::Already(_) => "already",
        Finished::Stale => "stale",
    }
}

impl Watch {
    pub(super) fn counter(&self, metric: &'static Metric, labels: &[(&'static str, &str)], more: usize) {
        if let Some(observer) = self.0.as_deref().filter(|_| more > 0) {
            safely(|| observer.counter(metric, labels, more as u64));
        }
    }

    fn gauge(&self, metric: &'static Metric, labels: &[(&'static str, &str)], value: u64) {
        if let Some(observer) = self.0.as_deref() {
            safely(|| observer.gauge(metric, labels, value as f64));
        }
    }

    pub(super) fn seconds(&self, metric: &'static Metric, labels: &[(&'static str, &str)], length: Duration) {
        if let Some(observer) = self.0.as_deref() {
            safely(|| observer.histogram(metric, labels, length.as_secs_f64()));
        }
    }

    pub(in crate::service) fn has_observer(&self) -> bool {
        self.0.is_some()
    }

    fn ticked<T>(&self, tick: &Tick, answer: &Result<T>) -> Duration {
        let took = tick.began.elapsed();
        self.counter(&TICKS, &[("service", tick.service), ("result", result(answer))], 1);
        self.seconds(&TICK_SECONDS, &[("service", tick.service)], took);
        took
    }

    /// An admission is over. It was decided again so many times.
    pub(in crate::service) fn admitted(
        &self,
        tick: Tick,
        now: DateTime<Utc>,
        conflicts: usize,
        answer: &Result<Admission>,
    ) {
        let took = self.ticked(&tick, answer);
        spans::admitted(now, conflicts, took, answer);
        self.counter(&ADMISSION_CONFLICTS, &[], conflicts);
        let (true, Ok(admission)) = (self.has_observer(), answer) else { return };
        self.counter(&GRANTED, &[], admission.granted.len());
        self.counter(&PROMOTED, &[], admission.promoted);
        for task in &admission.granted {
            self.seconds(&WAIT_SECONDS, &[], time::since(now, task.ready_at));
        }
        for name in Reason::NAMES {
            let of_name = admission.deferrals.iter().filter(|deferral| deferral.reason.name() == name);
            self.gauge(&DEFERRED, &[("reason", name)], of_name.map(|deferral| deferral.tasks).sum());
        }
    }

    /// A reaper's tick is over.
    pub(in crate::service) fn reaped(&self, tick: Tick, answer: &Result<ReapReport>) {
        let took = self.ticked(&tick, answer);
        spans::reaped(took, answer);
        let Ok(report) = answer else { return };
        for word in ["ready", "retry", "failed"] {
            let count = report.reaped.iter().filter(|reaped| became(reaped.became) == word).count();
            self.counter(&REAPED, &[("became", word)], count);
        }
        self.counter(&FORGOTTEN, &[], report.forgotten);
        self.counter(&EVENTS_FORGOTTEN, &[], report.events_forgotten);
        self.gauge(&KEPT_BY_EVENTS, &[], report.kept_by_events as u64);
    }

    /// A poker's tick is over. What it did counts, also if it failed later on.
    pub(in crate::service) fn poked<T>(
        &self,
        tick: Tick,
        report: &PokeReport,
        tally: &mut PokeTally,
        answer: &Result<T>,
    ) {
        let took = self.ticked(&tick, answer);
        spans::cycled(took, report, answer);
        self.poke_answers(report, tally);
        if answer.is_err() {
            return;
        }
        let gauges = [
            (&SHARDS, report.shards as usize),
            (&SHARDS_UNCLAIMED, report.unclaimed as usize),
            (&POKER_NAME_TAKEN, usize::from(report.name_taken_until.is_some())),
            (&SENSORS, report.sensors),
            (&POKE_GROUPS, report.groups),
            (&POKE_GROUPS_WAITING, report.waiting),
            (&POKES_IN_FLIGHT, report.in_flight),
            (&POKE_THREADS, report.threads),
            (&POKE_THREADS_HUNG, report.hung),
            (&OUTAGES, report.backed_off),
        ];
        for (metric, value) in gauges {
            self.gauge(metric, &[], value as u64);
        }
    }

    /// What answers did, outside of a tick or in one.
    pub(in crate::service) fn poke_answers(&self, report: &PokeReport, tally: &mut PokeTally) {
        tally.tell(self);
        let counters = [
            (&POKES_SAVED, report.saved),
            (&POKES_LATE, report.late),
            (&POKES_HELD_BACK, report.held_back),
            (&GROUPS_DUE, report.due),
            (&SENSORS_LOADED, report.loaded),
            (&SENSORS_UNKNOWN_KIND, report.unknown_kind),
            (&SHARDS_GAINED, report.gained),
            (&LOG_PANICS, report.log_panics),
        ];
        for (metric, more) in counters {
            self.counter(metric, &[], more);
        }
        let ends = [
            ("landed", report.landed),
            ("failed", report.failed),
            ("timed_out", report.timed_out),
            ("unreachable", report.gave_up),
        ];
        for (reason, more) in ends {
            self.counter(&SENSORS_ENDED, &[("reason", reason)], more);
        }
    }

    /// A tick of a delivery is over. It had called back for so many events when it failed, if it did.
    pub(in crate::service) fn delivered(&self, tick: Tick, answer: &Result<DeliveryReport>) {
        let took = self.ticked(&tick, answer);
        spans::delivered(took, answer);
        let Ok(report) = answer else { return };
        self.counter(&EVENTS, &[("result", "delivered")], report.delivered);
        self.counter(&EVENTS, &[("result", "failed")], report.failed.len());
    }
}
