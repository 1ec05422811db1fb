//! What a metric is.

/// A metric that the crate tells of: what an exporter must know of it before the first value comes.
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
    /// What its values mean, as Prometheus and OpenMetrics name it: `"counter"` only grows, `"gauge"` stands
    /// somewhere, `"histogram"` is a distribution. The method of [`super::Observer`] that is called has the
    /// same name.
    pub kind: &'static str,
    /// What it means, for people.
    pub help: &'static str,
    /// The names of its labels, in the order in which they come.
    pub labels: &'static [&'static str],
    /// Upper bounds that suit a histogram, rising; empty for other kinds.
    pub buckets: &'static [f64],
}
