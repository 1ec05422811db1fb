//! Turns the numbers in a report into calls of an observer.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Observer;
use super::metrics::{Metric, TICK_SECONDS, TICKS};
use super::spans::{self, Span};
use crate::error::Error;

/// The observer of a service, if it has one.
#[derive(Clone, Default)]
pub(in crate::service) struct Emitter(Option<Arc<dyn Observer>>);

impl fmt::Debug for Emitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Emitter(observed)" } else { "Emitter(unobserved)" })
    }
}

impl From<Arc<dyn Observer>> for Emitter {
    fn from(observer: Arc<dyn Observer>) -> Self {
        Self(Some(observer))
    }
}

/// The report of a tick, which describes its own metrics and events.
pub(in crate::service) trait Reported {
    /// Emits the report's numbers.
    fn emit(&self, to: &Emitter);

    /// Emits the report's events for subscribers of `tracing`.
    #[cfg(feature = "tracing")]
    fn trace(&self, took_s: f64);
}

/// A tick in progress.
pub(in crate::service) struct Tick {
    service: &'static str,
    began: Instant,
    /// Left when the tick is over.
    _span: Span,
}

impl Tick {
    pub(in crate::service) fn begin(service: &'static str, span: Span) -> Self {
        Self { service, began: Instant::now(), _span: span }
    }
}

/// Calls an observer. Its panics must not disturb a service.
pub(super) fn safely(call: impl FnOnce()) {
    // The panic hook has printed the panic already.
    let _ = catch_unwind(AssertUnwindSafe(call));
}

/// Returns the label for how something ended.
pub(super) fn result(error: Option<&Error>) -> &'static str {
    match error {
        None => "ok",
        Some(Error::Store(error)) => error.kind().as_str(),
        Some(Error::Aborted(_)) => "aborted",
        Some(Error::Stale { .. }) => "stale",
        Some(Error::Repeated { .. }) => "repeated",
        #[cfg(feature = "tokio")]
        Some(Error::NoRuntime | Error::RuntimeShutDown) => "no_runtime",
        Some(_) => "invalid",
    }
}

impl Emitter {
    pub(in crate::service) fn counter(
        &self,
        metric: &'static Metric,
        labels: &[(&'static str, &str)],
        more: usize,
    ) {
        if let Some(observer) = self.0.as_deref().filter(|_| more > 0) {
            safely(|| observer.counter(metric, labels, more as u64));
        }
    }

    pub(in crate::service) fn gauge(
        &self,
        metric: &'static Metric,
        labels: &[(&'static str, &str)],
        value: u64,
    ) {
        if let Some(observer) = self.0.as_deref() {
            safely(|| observer.gauge(metric, labels, value as f64));
        }
    }

    pub(in crate::service) fn seconds(
        &self,
        metric: &'static Metric,
        labels: &[(&'static str, &str)],
        length: Duration,
    ) {
        if let Some(observer) = self.0.as_deref() {
            safely(|| observer.histogram(metric, labels, length.as_secs_f64()));
        }
    }

    pub(in crate::service) fn has_observer(&self) -> bool {
        self.0.is_some()
    }

    /// Emits how a tick ended, and what its report describes. A failed tick may have a report as well.
    pub(in crate::service) fn ticked(
        &self,
        tick: &Tick,
        report: Option<&impl Reported>,
        error: Option<&Error>,
    ) {
        let took = tick.began.elapsed();
        self.counter(&TICKS, &[("service", tick.service), ("result", result(error))], 1);
        self.seconds(&TICK_SECONDS, &[("service", tick.service)], took);
        spans::failed(tick.service, took, error);
        let Some(report) = report else { return };
        #[cfg(feature = "tracing")]
        report.trace(took.as_secs_f64());
        if self.has_observer() {
            report.emit(self);
        }
    }
}
