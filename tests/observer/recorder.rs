//! Observers: one that keeps what it receives, one that panics.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use stationmaster::service::Observer;
use stationmaster::service::metrics::Metric;

/// Values by `name{label="value",…}`.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Told {
    pub counters: BTreeMap<String, u64>,
    pub gauges: BTreeMap<String, f64>,
    pub histograms: BTreeMap<String, Vec<f64>>,
}

impl Told {
    pub fn counter(&self, series: &str) -> u64 {
        self.counters.get(series).copied().unwrap_or(0)
    }

    /// The sum over all series of a counter.
    pub fn sum(&self, name: &str) -> u64 {
        let of_it = |series: &&String| series.split('{').next() == Some(name);
        self.counters.iter().filter(|(series, _)| of_it(series)).map(|(_, count)| count).sum()
    }

    pub fn samples(&self, series: &str) -> &[f64] {
        self.histograms.get(series).map_or(&[], Vec::as_slice)
    }

    /// The names of everything that it received.
    pub fn names(&self) -> Vec<&str> {
        let series = self.counters.keys().chain(self.gauges.keys()).chain(self.histograms.keys());
        series.filter_map(|series| series.split('{').next()).collect()
    }
}

/// Keeps what it receives, and insists on what the descriptions promise.
#[derive(Debug, Default)]
pub struct Recorder(Mutex<Told>);

impl Recorder {
    pub fn told(&self) -> Told {
        self.0.lock().clone()
    }

    fn series(metric: &Metric, kind: &str, labels: &[(&'static str, &str)]) -> String {
        assert_eq!(metric.kind, kind, "{}", metric.name);
        let names: Vec<&str> = labels.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, metric.labels, "{}", metric.name);
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        format!("{}{{{}}}", metric.name, labels.join(","))
    }
}

impl Observer for Recorder {
    fn counter(&self, metric: &'static Metric, labels: &[(&'static str, &str)], more: u64) {
        assert!(more > 0, "{}", metric.name);
        *self.0.lock().counters.entry(Self::series(metric, "counter", labels)).or_default() += more;
    }

    fn gauge(&self, metric: &'static Metric, labels: &[(&'static str, &str)], value: f64) {
        self.0.lock().gauges.insert(Self::series(metric, "gauge", labels), value);
    }

    fn histogram(&self, metric: &'static Metric, labels: &[(&'static str, &str)], value: f64) {
        let series = Self::series(metric, "histogram", labels);
        self.0.lock().histograms.entry(series).or_default().push(value);
    }
}

/// Panics at each call, without the message that a panic prints.
#[derive(Debug)]
pub struct Panicking;

impl Observer for Panicking {
    fn counter(&self, _: &'static Metric, _: &[(&'static str, &str)], _: u64) {
        std::panic::resume_unwind(Box::new("on purpose"));
    }

    fn gauge(&self, _: &'static Metric, _: &[(&'static str, &str)], _: f64) {
        std::panic::resume_unwind(Box::new("on purpose"));
    }

    fn histogram(&self, _: &'static Metric, _: &[(&'static str, &str)], _: f64) {
        std::panic::resume_unwind(Box::new("on purpose"));
    }
}
