//! What a metric is.

/// A metric that the crate tells of: what an exporter must know of it before the first value comes.
///
/// # Examples
///
/// ```
/// use stationmaster::service::metrics::{self, MetricKind};
/// let metric = &metrics::WAIT_SECONDS;
/// assert_eq!((metric.name, metric.kind), ("stationmaster_wait_seconds", MetricKind::Histogram));
/// assert!(metric.buckets.is_sorted());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name, by the conventions of Prometheus: counters end in `_total`, durations are in seconds.
    pub name: &'static str,
    /// Which method of the observer is told.
    pub kind: MetricKind,
    /// What it means, for people.
    pub help: &'static str,
    /// The names of its labels, in the order in which they come.
    pub labels: &'static [&'static str],
    /// Upper bounds that suit a histogram, rising; empty for other kinds.
    pub buckets: &'static [f64],
}

/// What a value of a metric means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MetricKind {
    /// It only grows: [`super::Observer::counter`].
    Counter,
    /// It stands somewhere: [`super::Observer::gauge`].
    Gauge,
    /// It is a distribution: [`super::Observer::histogram`].
    Histogram,
}

impl MetricKind {
    /// The word for it in Prometheus and OpenMetrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}
