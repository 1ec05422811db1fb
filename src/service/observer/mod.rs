//! Numbers for a host's metrics.
//!
//! An [`Observer`] is told three things: a counter went up, a gauge stands at a value, a value was measured
//! for a histogram. Each comes with its [`Metric`] (name, help, labels, buckets), so a host that exports
//! metrics needs no list of its own. Services tell it when they are given one:
//! [`Admitter::observed_by`](super::Admitter::observed_by),
//! [`Reaper::observed_by`](super::Reaper::observed_by), [`Poker::observed_by`](super::Poker::observed_by),
//! [`Delivery::observed_by`](super::Delivery::observed_by). An [`ObservedStore`] tells it of transactions and
//! of what they did to tasks; [`finished`] and [`registered`] tell it of answers that only the caller sees.
//!
//! # Metrics
//!
//! All of them: [`metrics::ALL`]; each with its meaning and labels: [`metrics`]. Names and labels are part of
//! the crate's interface. Values of labels are words of the crate's, except that of `kind`, which is the name
//! of a kind of sensors: as many as the host defines.
//!
//! # Rules
//!
//! * An observer is told after the fact: what a service did when its tick is over, what a transaction did
//!   when it is committed. It is called on the thread of the tick or transaction, so it should be quick. It
//!   must not use the store that it observes.
//! * An observer that panics changes nothing: the panic is caught, that one number is lost, and the next one
//!   is told as before. (Where panics abort the program, they do so here, too.)
//! * Nothing is told of zero: a counter that did not move is not called. Gauges are told at each tick.
//! * Two services of one kind in a process overwrite each other's gauges. Give each an observer that adds a
//!   label of its own.
//! * Without an observer nothing is counted, and no memory is taken; with one, the crate itself takes none.
//!
//! With feature `tracing`, the same edges have spans and events: see [`spans`].
//!
//! # Examples
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use stationmaster::service::observer::{Metric, Observer, metrics};
//! use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! use stationmaster::store::{MemoryStore, StoreExt};
//! use stationmaster::time::from_micros;
//! use stationmaster::{NewTask, TaskKey};
//!
//! #[derive(Default)]
//! struct Granted(AtomicU64);
//!
//! impl Observer for Granted {
//!     fn counter(&self, metric: &'static Metric, _labels: &[(&'static str, &str)], more: u64) {
//!         if metric.name == metrics::GRANTED.name {
//!             self.0.fetch_add(more, Ordering::Relaxed);
//!         }
//!     }
//! }
//!
//! let (store, observer) = (Arc::new(MemoryStore::new()), Arc::new(Granted::default()));
//! let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
//! store.write(|tx| tx.enqueue(from_micros(0), &[task.clone()]))?;
//! let admitter = Admitter::new(store, "worker-1".try_into()?, AdmitterOptions::default())?;
//! admitter.observed_by(observer.clone()).tick(from_micros(0))?;
//! assert_eq!(observer.0.load(Ordering::Relaxed), 1);
//! # Ok::<(), stationmaster::Error>(())
//! ```

mod answers;
mod metric;
pub mod metrics;
mod pokes;
pub mod spans;
mod store;
mod watch;

use std::sync::Arc;

pub use answers::{finished, registered};
pub use metric::{Metric, MetricKind};
pub(super) use pokes::{PokeOutcome, PokeTally};
pub use store::ObservedStore;
pub(super) use watch::{Tick, Watch};

/// Hears what the services count and measure. All methods do nothing unless they are written.
///
/// `labels` has one value for each of [`Metric::labels`], in that order.
pub trait Observer: Send + Sync {
    /// A counter went up by `more`, which is at least 1.
    fn counter(&self, metric: &'static Metric, labels: &[(&'static str, &str)], more: u64) {
        let _ = (metric, labels, more);
    }

    /// A gauge stands at this value.
    fn gauge(&self, metric: &'static Metric, labels: &[(&'static str, &str)], value: f64) {
        let _ = (metric, labels, value);
    }

    /// A value was measured. Durations are in seconds.
    fn histogram(&self, metric: &'static Metric, labels: &[(&'static str, &str)], value: f64) {
        let _ = (metric, labels, value);
    }
}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn counter(&self, metric: &'static Metric, labels: &[(&'static str, &str)], more: u64) {
        O::counter(self, metric, labels, more);
    }

    fn gauge(&self, metric: &'static Metric, labels: &[(&'static str, &str)], value: f64) {
        O::gauge(self, metric, labels, value);
    }

    fn histogram(&self, metric: &'static Metric, labels: &[(&'static str, &str)], value: f64) {
        O::histogram(self, metric, labels, value);
    }
}
