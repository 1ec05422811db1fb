//! What a metric is.

/// A metric of the crate: what an exporter must know about it before the first value arrives.
///
/// # Examples
///
/// ```
/// use stationmaster::service::metrics;
/// let metric = &metrics::WAIT_SECONDS;
/// assert_eq!((metric.name, metric.kind), ("stationmaster_wait_seconds", "histogram"));
/// assert!(metric.buckets.is_sorted());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Metric {
    /// Its name, by the conventions of Prometheus: counters end in `_total`, durations are in seconds.
    pub name: &'static str,
    /// Its type, as Prometheus and OpenMetrics name it: a `"counter"` only grows, a `"gauge"` has a current
    /// value, a `"histogram"` is a distribution. The method of [`super::Observer`] that is called has the
    /// same name.
    pub kind: &'static str,
    /// What it means, for human readers.
    pub help: &'static str,
    /// The names of its labels, in the order in which they are passed.
    pub labels: &'static [&'static str],
    /// Suitable upper bounds for a histogram, rising. Empty for other kinds.
    pub buckets: &'static [f64],
}
