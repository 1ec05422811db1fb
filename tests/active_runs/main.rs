//! The index of active runs against the rule, on every store, with every row that it reads counted; of PostgreSQL those that it
//! answers, since what it reads is tested with its plans.
//!
//! `STATIONMASTER_RUNS=long` takes the sets in the sizes of docs/active-runs.md and more random sequences.
#![allow(clippy::panic, clippy::expect_used)]

#[path = "../../benches/runs/data.rs"]
#[allow(dead_code)]
mod data;
mod sequences;
#[path = "../stores/mod.rs"]
mod stores;

use data::{BASE, DAY, NOW, POINT, Random, Span, instant, namespace};
use stationmaster::id::Namespace;
use stationmaster::run::{ActiveQuery, RunRecord, RunStatus, StartMethod};
use stationmaster::store::Store;
use stationmaster::store::contract::MOST_SEEKS;
use stationmaster::store::contract::RunPlace;
use stationmaster::testing::count_run_reads;
use stationmaster::testing::raw;
use stores::kinds;

fn is_long() -> bool {
    std::env::var("STATIONMASTER_RUNS").is_ok_and(|form| form == "long")
}

fn size(short: usize, long: usize) -> usize {
    if is_long() { long } else { short }
}

/// A window, and the numbers of the namespaces that are asked about; none for all.
struct Asked {
    begin: i64,
    end: i64,
    namespaces: Vec<usize>,
}

fn asked(begin: i64, end: i64, namespaces: &[usize]) -> Asked {
    Asked { begin, end, namespaces: namespaces.to_vec() }
}

impl Asked {
    fn query(&self) -> ActiveQuery {
        self.namespaces.iter().fold(ActiveQuery::new(instant(self.begin), instant(self.end)), |query, ns| {
            query.namespace(Namespace::new(namespace(*ns)).expect("a plain name"))
        })
    }

    fn by_the_rule(&self, spans: &[Span]) -> Vec<RunPlace> {
        let hits = spans.iter().enumerate().filter(|(_, span)| {
            (self.namespaces.is_empty() || self.namespaces.contains(&span.ns))
                && span.is_active(self.begin, self.end)
        });
        let mut places: Vec<RunPlace> = hits.map(|(rank, span)| span.record(rank).place()).collect();
        places.sort_unstable();
        places
    }
}

fn load(store: &dyn Store, spans: &[Span]) {
    for (chunk, from) in spans.chunks(10_000).zip((0..).step_by(10_000)) {
        let runs: Vec<RunRecord> = (from..).zip(chunk).map(|(rank, span)| span.record(rank)).collect();
        store.write(|tx| Ok(raw(tx).put_runs(&runs)?)).expect("written");
    }
}

fn places(store: &dyn Store, query: &ActiveQuery) -> Vec<RunPlace> {
    store.read(|tx| Ok(raw(tx).active_run_places(query)?)).expect("read")
}

/// Every answer equals the rule's, and not a row more was read.
fn check(spans: &[Span], windows: &[Asked]) {
    let mut known: Vec<usize> = spans.iter().map(|span| span.ns).collect();
    known.sort_unstable();
    known.dedup();
    for kind in kinds() {
        let (name, store) = (kind.name, kind.shared());
        load(&*store, spans);
        for asked in windows {
            let query = asked.query();
            let at = format!("{name}: [{}, {}) of {:?}", asked.begin, asked.end, asked.namespaces);
            let expected = asked.by_the_rule(spans);
            let (runs, reads) = count_run_reads(|| store.read(|tx| tx.active_runs(&query)).expect("read"));
            assert!(runs.iter().map(RunRecord::place).eq(expected.iter().cloned()), "{at}");
            let refused = spans.iter().filter(|span| span.stop.is_some_and(|stop| stop < span.start)).count();
            assert!((expected.len()..=expected.len() + refused).contains(&reads.rows), "{at}: {reads:?}");
            let namespaces = if asked.namespaces.is_empty() { known.len() } else { asked.namespaces.len() };
            assert!(reads.seeks <= MOST_SEEKS * namespaces, "{at}: {reads:?}");

            assert_eq!(places(&*store, &query), expected, "{at}");
            let count = store.read(|tx| tx.count_active_runs(&query)).expect("read");
            assert_eq!(count, expected.len() as u64, "{at}");
            let sizes = [1.max(expected.len() / 3), 1.max(expected.len() / 20)];
            for size in sizes {
                let mut paged = Vec::new();
                let mut query = query.clone().limit(size);
                loop {
                    let (page, reads) = count_run_reads(|| places(&*store, &query));
                    let earlier = paged.last().is_none_or(|last: &RunPlace| last.start < query.begin);
                    let surrounding =
                        if earlier { expected.iter().filter(|p| p.start < query.begin).count() } else { 0 };
                    let most = page.len() + surrounding + namespaces + refused;
                    assert!(reads.rows <= most, "{at}: a page of {} read {reads:?}", page.len());
                    let Some(last) = page.last() else { break };
                    query = query.after(last.clone());
                    paged.extend(page);
                }
                assert_eq!(paged, expected, "{at}: pages of {size}");
            }
        }
    }
}

#[test]
fn the_set_of_the_document() {
    let count = size(12_000, 400_000);
    let end = count as i64;
    let mut windows = Vec::new();
    for begin in [0, end / 2, end - 5] {
        for namespaces in [&[0][..], &[0, 1, 2], &[0, 1, 2, 3, 4, 5], &[], &[3, 3, 77]] {
            windows.push(asked(begin, begin + 5, namespaces));
        }
    }
    windows.extend([
        asked(-9, 0, &[]),
        asked(end, end + 9, &[]),
        asked(end + 1, end + 9, &[]),
        asked(7, 7, &[]),
    ]);
    check(&data::seed(count), &windows);
}

#[test]
fn heavy_tailed_lengths() {
    let spans = data::heavy_tailed(size(8_000, 300_000));
    let mut random = Random(1);
    let mut windows = Vec::new();
    for namespaces in [&[0][..], &[40], &[3, 97], &[]] {
        let month = NOW - 31 * DAY + random.below(DAY);
        let around = BASE + 20 * DAY + random.below(155 * DAY);
        windows.extend([
            asked(NOW - DAY / 2, NOW, namespaces),
            asked(NOW - 7 * DAY, NOW, namespaces),
            asked(month, month + 300, namespaces),
            asked(around, around + 1, namespaces),
        ]);
    }
    check(&spans, &windows);
}

/// Whether a run passes a filter.
type Holds = fn(&RunRecord) -> bool;

/// Filters by user, start method and status read as many rows as the same window without them, and never more. There is no
/// index by them: docs/active-runs.md §4 says what that costs.
#[test]
fn filters_read_no_more_than_their_window() {
    let spans = data::heavy_tailed(size(8_000, 300_000));
    let run = |(rank, span): (usize, &Span)| {
        let run = span.record(rank).user(format!("user-{}", rank % 100));
        if rank % 2 == 0 { run.method(StartMethod::Manual) } else { run }
    };
    let runs: Vec<RunRecord> = spans.iter().enumerate().map(run).collect();
    let (begin, end) = (NOW - 7 * DAY, NOW);
    let window = ActiveQuery::new(instant(begin), instant(end));
    let filters: [(ActiveQuery, Holds); 3] = [
        (window.clone().user("user-7"), |run| run.user.as_deref() == Some("user-7")),
        (window.clone().method(StartMethod::Manual), |run| run.method == StartMethod::Manual),
        (window.clone().status(RunStatus::Failed), |run| run.status == RunStatus::Failed),
    ];
    for kind in kinds() {
        let (name, store) = (kind.name, kind.shared());
        for chunk in runs.chunks(10_000) {
            store.write(|tx| Ok(raw(tx).put_runs(chunk)?)).expect("written");
        }
        let read =
            |query: &ActiveQuery| count_run_reads(|| store.read(|tx| tx.active_runs(query)).expect("read"));
        let (all, whole) = read(&window);
        assert_eq!(whole.rows, all.len());
        for (query, holds) in &filters {
            let (found, reads) = read(query);
            assert!(found.iter().eq(all.iter().filter(|run| holds(run))), "{name}: {query:?}");
            println!("{name}: {} of {} runs, {} rows read", found.len(), all.len(), reads.rows);
            assert!(
                reads.rows <= whole.rows && reads.seeks <= whole.seeks,
                "{name}: {reads:?} and {whole:?}"
            );
            // A page ends where it is full.
            let (page, reads) = read(&query.clone().limit(5));
            assert_eq!(page, found[..page.len()], "{name}: {query:?}");
            assert!(page.len() == 5.min(found.len()) && reads.rows <= whole.rows + 1, "{name}: {reads:?}");
        }
    }
}

#[test]
fn one_ancient_run() {
    let middle = BASE + 15 * DAY;
    let windows =
        [(middle, 300), (middle, 1), (BASE + 30 * DAY - 3600, 3600), (BASE + 300 * DAY, 300), (BASE - 9, 9)];
    check(
        &data::ancient(size(5_000, 200_000)),
        &windows.map(|(begin, length)| asked(begin, begin + length, &[0])),
    );
}

#[test]
fn all_runs_over_one_point() {
    let far = 30 * DAY - DAY / 10;
    let windows = [(POINT, 1), (POINT + far, 300), (POINT - far, 300), (POINT - 1, 1), (POINT + 31 * DAY, 9)];
    check(
        &data::over_a_point(size(3_000, 100_000)),
        &windows.map(|(begin, length)| asked(begin, begin + length, &[])),
    );
}

#[test]
fn a_storm_of_equal_starts() {
    let midnight = BASE + 2 * DAY;
    let windows = [(3590, 10), (3601, 300), (0, 1), (-300, 300), (1800, 1), (-DAY, 3 * DAY)];
    check(
        &data::storm(5, size(800, 10_000)),
        &windows.map(|(from, length)| asked(midnight + from, midnight + from + length, &[0])),
    );
}

#[test]
fn lengths_around_powers_of_two() {
    let (mut spans, mut windows) = (Vec::new(), Vec::new());
    for power in [0, 1, 2, 5, 12, 20, 31] {
        for length in [(1 << power) - 1, 1 << power, (1 << power) + 1] {
            for start in [0, 1, -1, 1 << power, -(1 << power), (1 << power) - 1] {
                spans.push(Span { ns: power as usize % 3, start, stop: Some(start + length) });
            }
        }
        for edge in [-(1 << power), -1, 0, 1 << power, (1 << power) + 1, 2 << power] {
            windows.extend([-1, 0, 1].map(|near| asked(edge + near, edge + near + 1, &[])));
            windows.extend([-1, 0, 1].map(|near| asked(near, edge.max(0) + near, &[0, 2])));
        }
    }
    check(&spans, &windows);
}

#[test]
fn stops_before_starts_are_the_only_rows_refused() {
    let mut random = Random(5);
    let spans: Vec<Span> = (0..800)
        .map(|_| {
            let start = random.below(2_000);
            Span { ns: 0, start, stop: Some(start - 20 + random.below(60)) }
        })
        .collect();
    let windows: Vec<Asked> = (0..60).map(|n| asked(n * 40, n * 40 + 1 + random.below(60), &[])).collect();
    check(&spans, &windows);
}
