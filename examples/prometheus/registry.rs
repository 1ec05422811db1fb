//! An observer that keeps the values it receives, and writes them in Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};
use std::sync::Mutex;

use stationmaster::service::{Observer, metrics};

/// Values by metric name, then by the text of the labels. One lock is enough, because services call it only a few
/// times per tick.
#[derive(Default)]
pub struct Registry(Mutex<BTreeMap<&'static str, BTreeMap<String, Value>>>);

/// The value of one series.
#[derive(Default)]
struct Value {
    /// The value of a counter or gauge, or the sum of a histogram.
    number: f64,
    /// How many measurements were at or below each of the metric's bounds, but above the previous one. The last number
    /// is of those above all bounds.
    buckets: Vec<u64>,
}

impl Registry {
    fn change(
        &self,
        metric: &metrics::Metric,
        labels: &[(&'static str, &str)],
        change: impl FnOnce(&mut Value),
    ) {
        let mut text = String::new();
        for (at, (name, value)) in labels.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(text, "{comma}{name}=\"{}\"", Escaped(value, true));
        }
        // A panic here would at worst leave a number behind.
        let mut all = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        change(all.entry(metric.name).or_default().entry(text).or_default());
    }

    /// Returns the whole page. Metrics without a value are listed, too.
    pub fn render(&self) -> String {
        let all = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut text = String::new();
        for metrics::Metric { name, kind, help, buckets, .. } in metrics::ALL.iter().copied() {
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {}", Escaped(help, false), kind);
            for (labels, value) in all.get(name).into_iter().flatten() {
                let braces = |labels: &str| match labels {
                    "" => String::new(),
                    labels => format!("{{{labels}}}"),
                };
                if *kind != "histogram" {
                    let _ = writeln!(text, "{name}{} {}", braces(labels), value.number);
                    continue;
                }
                let comma = if labels.is_empty() { "" } else { "," };
                let mut count = 0;
                let bounds = buckets.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
                for (bound, more) in bounds.zip(&value.buckets) {
                    count += more;
                    let _ = writeln!(text, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}");
                }
                let _ = writeln!(text, "{name}_sum{} {}", braces(labels), value.number);
                let _ = writeln!(text, "{name}_count{} {count}", braces(labels));
            }
        }
        text
    }
}

impl Observer for Registry {
    fn counter(&self, metric: &'static metrics::Metric, labels: &[(&'static str, &str)], more: u64) {
        self.change(metric, labels, |value| value.number += more as f64);
    }

    fn gauge(&self, metric: &'static metrics::Metric, labels: &[(&'static str, &str)], number: f64) {
        self.change(metric, labels, |value| value.number = number);
    }

    fn histogram(&self, metric: &'static metrics::Metric, labels: &[(&'static str, &str)], measured: f64) {
        self.change(metric, labels, |value| {
            value.number += measured;
            value.buckets.resize(metric.buckets.len() + 1, 0);
            value.buckets[metric.buckets.partition_point(|bound| *bound < measured)] += 1;
        });
    }
}

/// Text in which the format's special characters are escaped. Quotes are escaped only in labels.
struct Escaped<'a>(&'a str, bool);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' => f.write_str("\\\\"),
            '\n' => f.write_str("\\n"),
            '"' if self.1 => f.write_str("\\\""),
            c => f.write_char(c),
        })
    }
}
