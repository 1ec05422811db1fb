//! Sets of runs with the same numbers everywhere: the recipes of docs/active-runs.md. Times are whole seconds.

use stationmaster::Timestamp;
use stationmaster::run::{RunKey, RunRecord, RunStatus, StartMethod};

pub(crate) const DAY: i64 = 86_400;
pub(crate) const BASE: i64 = 1_000_000;
/// The instant of the storm of runs that all contain it.
pub(crate) const POINT: i64 = BASE + 60 * DAY;

/// One run: the number of its namespace, its start, and its stop unless it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    pub(crate) ns: usize,
    pub(crate) start: i64,
    pub(crate) stop: Option<i64>,
}

impl Span {
    pub(crate) fn is_active(&self, begin: i64, end: i64) -> bool {
        begin < end && self.start < end && self.stop.is_none_or(|stop| stop >= begin)
    }

    /// The run of this rank, about 280 bytes of it.
    pub(crate) fn record(&self, rank: usize) -> RunRecord {
        let key = RunKey::new(namespace(self.ns), id(rank)).expect("a plain name");
        let run = RunRecord::open(key, instant(self.start))
            .workflow(format!("workflow-{:04}", rank % 997).try_into().expect("a plain name"))
            .method(StartMethod::Scheduled)
            .user("service-account@example.org")
            .attributes(format!(
                "{{\"artifact\":\"pipeline-{:05}\",\"version\":\"6.10.{}\",\"scope\":\"USER\",\"profile\":\"SYSTEM:native\",\
                 \"cluster\":\"europe-west1-d\",\"parent\":\"trigger-{rank:09}\",\"logical\":{}}}",
                rank % 4999,
                rank % 17,
                self.start
            ));
        match self.stop {
            Some(stop) => run.closed(instant(stop), RunStatus::Completed),
            None => run,
        }
    }
}

pub(crate) fn namespace(ns: usize) -> String {
    format!("ns{ns:02}")
}

pub(crate) fn id(rank: usize) -> String {
    format!("r{rank:07}")
}

pub(crate) fn instant(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

/// Splitmix64 (Steele, Lea, Flood, OOPSLA 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: i64) -> i64 {
        (self.next() % end.unsigned_abs().max(1)) as i64
    }

    /// In [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.unit(), self.unit());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

/// The document's own set: runs of a second, one after another, in six namespaces.
pub(crate) fn seed(count: usize) -> Vec<Span> {
    (0..count).map(|i| Span { ns: i % 6, start: i as i64, stop: Some(i as i64 + 1) }).collect()
}

/// The end of the heavy-tailed set.
pub(crate) const NOW: i64 = BASE + 180 * DAY;

/// Heavy-tailed lengths over 180 days in 100 namespaces, the biggest with 19 % of the runs; by start.
pub(crate) fn heavy_tailed(count: usize) -> Vec<Span> {
    let mut random = Random(42);
    let mut sums: Vec<f64> = Vec::new();
    for ns in 0..100 {
        sums.push(sums.last().copied().unwrap_or(0.0) + 1.0 / (ns as f64 + 1.0));
    }
    let whole = sums[99];
    let mut spans: Vec<Span> = (0..count)
        .map(|_| {
            let wanted = random.unit() * whole;
            let ns = sums.partition_point(|sum| *sum <= wanted).min(99);
            let u = random.unit();
            let (start, length) = if u < 0.001 {
                (BASE + random.below(180 * DAY), Some(7 * DAY + random.below(83 * DAY)))
            } else if u < 0.006 {
                let back = -(1.0 - random.unit()).ln() * 3.0 * DAY as f64;
                (NOW - 1 - back as i64, None)
            } else {
                let length = (300_f64.ln() + 1.6 * random.normal()).exp() as i64;
                (BASE + random.below(180 * DAY), Some(length.clamp(1, 2 * DAY)))
            };
            Span { ns, start, stop: length.map(|length| start + length).filter(|stop| *stop < NOW) }
        })
        .collect();
    spans.sort_unstable_by_key(|span| (span.start, span.ns, span.stop));
    spans
}

/// Short runs of 30 days, one as long as all of them, and one that never ended.
pub(crate) fn ancient(count: usize) -> Vec<Span> {
    let mut random = Random(11);
    let now = BASE + 30 * DAY;
    let mut spans: Vec<Span> = (0..count)
        .map(|_| {
            let start = BASE + random.below(30 * DAY);
            Span { ns: 0, start, stop: Some(start + 1 + random.below(300)) }
        })
        .collect();
    spans.push(Span { ns: 0, start: BASE, stop: Some(now - 1) });
    spans.push(Span { ns: 0, start: BASE, stop: None });
    spans.sort_unstable_by_key(|span| span.start);
    spans
}

/// Runs that all contain one instant.
pub(crate) fn over_a_point(count: usize) -> Vec<Span> {
    let mut random = Random(12);
    let mut spans: Vec<Span> = (0..count)
        .map(|_| {
            let start = POINT - random.below(30 * DAY);
            Span { ns: 0, start, stop: Some(POINT + random.below(30 * DAY)) }
        })
        .collect();
    spans.sort_unstable_by_key(|span| span.start);
    spans
}

/// Midnights at which this many runs start in the same second.
pub(crate) fn storm(midnights: i64, each: usize) -> Vec<Span> {
    let mut random = Random(13);
    let mut spans = Vec::new();
    for midnight in 0..midnights {
        let start = BASE + midnight * DAY;
        spans.extend((0..each).map(|_| Span { ns: 0, start, stop: Some(start + 1800 + random.below(1801)) }));
    }
    spans
}
