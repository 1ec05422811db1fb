//! Metrics for hosts: their names, the emitter, and a store that counts.
//!
//! Each service's report describes its own numbers ([`Reported`]). So this module knows no service.

mod answers;
mod capacity;
mod emitter;
mod metric;
pub mod metrics;
pub mod spans;
mod store;

use std::sync::Arc;

pub(super) use answers::became;
pub(super) use emitter::{Emitter, Reported, Tick};
use metrics::Metric;
pub use store::ObservedStore;

/// Receives what the services count and measure. By default every method does nothing.
///
/// An observer receives three things: a counter went up, a gauge has a value, a value was measured for a
/// histogram. Each comes with its [`Metric`] (name, help, labels, buckets), so a host that exports metrics
/// needs no list of its own. `labels` has one value for each of [`Metric::labels`], in that order.
///
/// Services report to the observer set by [`Admitter::observed_by`](super::Admitter::observed_by),
/// [`Keeper::observed_by`](super::Keeper::observed_by), [`Upkeep::observed_by`](super::Upkeep::observed_by),
/// [`Poker::observed_by`](super::Poker::observed_by),
/// [`FeedReader::observed_by`](super::FeedReader::observed_by). An [`ObservedStore`] reports transactions and
/// what they did to tasks. [`metrics::finished`] and [`metrics::registered`] report what only the caller of a
/// verb sees, and [`metrics::capacity`] what pools, queues and limits hold.
///
/// # Rules
///
/// * An observer is called after the fact: when a service's tick is over, or when a transaction is committed.
///   It is called on the thread of the tick or transaction, so it should be quick. It must not use the store
///   that it observes.
/// * A panic in an observer changes nothing. It is caught, that one number is lost, and the next one is
///   reported as before. (Where panics abort the program, they do so here as well.)
/// * Zeros are not reported: a counter that did not move is not called. Gauges are reported at each tick.
/// * Two services of one kind in a process overwrite each other's gauges. Give each an observer that adds its
///   own label.
/// * Without an observer nothing is counted. The crate allocates no memory for metrics, with or without one.
///
/// With feature `tracing`, the same places emit spans and events: see [`spans`].
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use stationmaster::service::metrics::{self, Metric};
/// use stationmaster::service::{Admitter, Observer, Service};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::{NewTask, TaskKey, Timestamp};
///
/// #[derive(Default)]
/// struct Granted(AtomicU64);
///
/// impl Observer for Granted {
///     fn counter(&self, metric: &'static Metric, _labels: &[(&'static str, &str)], more: u64) {
///         if metric.name == metrics::GRANTED.name {
///             self.0.fetch_add(more, Ordering::Relaxed);
///         }
///     }
/// }
///
/// let (store, observer) = (Arc::new(MemoryStore::new()), Arc::new(Granted::default()));
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
/// store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[task.clone()]))?;
/// let admitter = Admitter::new(store, "worker-1".try_into()?);
/// admitter.observed_by(observer.clone()).tick(Timestamp::UNIX_EPOCH)?;
/// assert_eq!(observer.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub trait Observer: Send + Sync {
    /// Receives an increase of a counter by `more`, which is at least 1.
    fn counter(&self, metric: &'static Metric, labels: &[(&'static str, &str)], more: u64) {
        let _ = (metric, labels, more);
    }

    /// Receives the current value of a gauge.
    fn gauge(&self, metric: &'static Metric, labels: &[(&'static str, &str)], value: f64) {
        let _ = (metric, labels, value);
    }

    /// Receives a measured value. Durations are in seconds.
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
