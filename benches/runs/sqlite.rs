//! The races on SQLite.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use stationmaster::id::Namespace;
use stationmaster::run::{ActiveQuery, RunKey, RunRecord};
use stationmaster::run::{RunClose, RunStatus};
use stationmaster::store::Durability;
use stationmaster::store::sqlite::rusqlite::Connection;
use stationmaster::store::sqlite::{SqliteOptions, SqliteStore};
use stationmaster::testing::raw;

use crate::bars::{Bars, figure};
use crate::data::{self, BASE, DAY, NOW, POINT, Random, Span, instant, namespace};
use crate::events::replay;
use crate::race::{Query, design, heading, race, row};
use crate::rivals::Rivals;

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::new().durability(Durability::Process)).expect("a store")
}

fn asked(query: &Query) -> ActiveQuery {
    query.namespaces.iter().fold(ActiveQuery::new(instant(query.begin), instant(query.end)), |asked, ns| {
        asked.namespace(Namespace::new(namespace(*ns)).expect("a name"))
    })
}

fn records(store: &SqliteStore, query: &Query) -> usize {
    let query = asked(query);
    let runs = store.read(|tx| tx.active_runs(&query)).expect("an answer");
    std::hint::black_box(runs).len()
}

fn places(store: &SqliteStore, query: &Query) -> usize {
    let query = asked(query);
    let places = store.read(|tx| Ok(raw(tx).active_run_places(&query)?)).expect("an answer");
    std::hint::black_box(places).len()
}

fn count(store: &SqliteStore, query: &Query) -> usize {
    let query = asked(query);
    store.read(|tx| tx.count_active_runs(&query)).expect("an answer") as usize
}

fn each(events: usize, took: Duration) -> f64 {
    took.as_secs_f64() * 1e6 / events as f64
}

/// The bytes per run of the indexes that exist for windows: freed when they are dropped.
fn index_bytes(path: &Path, runs: usize) -> Vec<(&'static str, f64)> {
    let conn = Connection::open(path).expect("a database");
    let free = || conn.query_row("PRAGMA freelist_count", [], |row| row.get::<_, i64>(0)).expect("a count");
    let indexes = ["sm_run_open", "sm_run_node_start", "sm_run_node_stop", "sm_run_key", "sm_run"];
    let mut sizes = Vec::new();
    for name in indexes {
        let before = free();
        let kind = if name == "sm_run" { "TABLE" } else { "INDEX" };
        conn.execute_batch(&format!("DROP {kind} {name}")).expect("dropped");
        sizes.push((name, (free() - before) as f64 * 4096.0 / runs as f64));
    }
    sizes
}

fn print_bytes(set: &str, sizes: &[(&'static str, f64)], bars: &mut Bars) {
    let list: Vec<String> = sizes.iter().map(|(name, bytes)| format!("{name} {}", figure(*bytes))).collect();
    println!("\nBytes per run, {set}: {}.", list.join(", "));
    if sizes[0].0 == "sm_run_open" {
        bars.at_most(
            format!("bytes per run of the index, {set}"),
            sizes[..3].iter().map(|(_, bytes)| bytes).sum(),
            110.0,
        );
    }
}

/// The document's own set, and its nine queries.
pub(crate) fn document(runs: usize, bars: &mut Bars) {
    let dir = tempfile::tempdir().expect("a folder");
    let spans = data::seed(runs);
    let store = open(&dir.path().join("ours.db"));
    let (events, took) = replay(&store, &spans);
    let rivals = Rivals::load(&dir.path().join("rivals.db"), &spans, true);
    println!(
        "\nReplay of {events} events: {} us each; the table alone {}.",
        figure(each(events, took)),
        figure(each(events, rivals.bare))
    );
    let mut designs = [
        design("full scan", |query| rivals.full_scan(query)),
        design("(ns, start, stop)", |query| rivals.by_start(query)),
        design("earliest start", |query| rivals.by_earliest(query)),
        design("hour rows", |query| rivals.by_hours(query)),
        design("**index**", |query| records(&store, query)),
        design("**again**", |query| records(&store, query)),
    ];
    heading(&format!("SQLite, the document's set of {runs}, whole records, us"), &designs);
    let runs = runs as i64;
    for begin in [0, runs / 2, runs - 5] {
        for namespaces in [1, 3, 6] {
            let query = Query { begin, end: begin + 5, namespaces: (0..namespaces).collect() };
            let medians = race(&mut designs, &vec![query; 15], &spans);
            let label = format!("[{begin}, {}) of {namespaces}", begin + 5);
            row(&label, &medians);
            bars.at_most(format!("document's {label}: us"), medians.micros[5], 100.0);
            bars.at_least(
                format!("document's {label}: x full scan"),
                medians.micros[0] / medians.micros[5],
                500.0,
            );
        }
    }
    drop(designs);
    drop(store);
    print_bytes("document's set", &index_bytes(&dir.path().join("ours.db"), spans.len()), bars);
}

/// The queries of the heavy-tailed set: label, and one query per try.
pub(crate) fn groups(tries: usize) -> Vec<(String, Vec<Query>)> {
    let mut random = Random(7);
    let mut groups = Vec::new();
    for (window, length) in
        [("12 h", DAY / 2), ("5 min a month ago", 300), ("7 d", 7 * DAY), ("1 s, around it", 1)]
    {
        for who in ["one", "biggest", "all"] {
            let queries = (0..tries).map(|_| {
                let begin = match length {
                    300 => NOW - 31 * DAY + random.below(DAY),
                    1 => BASE + 20 * DAY + random.below(155 * DAY),
                    _ => NOW - length,
                };
                let namespaces = match who {
                    "one" => vec![random.below(100) as usize],
                    "biggest" => vec![0],
                    _ => Vec::new(),
                };
                Query { begin, end: begin + length, namespaces }
            });
            groups.push((format!("{window}, {who}"), queries.collect()));
        }
    }
    groups
}

pub(crate) fn heavy_tailed(runs: usize, bars: &mut Bars) {
    let dir = tempfile::tempdir().expect("a folder");
    let spans = data::heavy_tailed(runs);
    let path = dir.path().join("ours.db");
    let store = open(&path);
    let (events, took) = replay(&store, &spans);
    let rivals = Rivals::load(&dir.path().join("rivals.db"), &spans, true);
    println!(
        "\nReplay of {events} events: {} us each; the table alone {}.",
        figure(each(events, took)),
        figure(each(events, rivals.bare))
    );
    let (last, seed) = (Cell::new(0), Cell::new(0));
    let mut designs = [
        design("full scan", |query| rivals.full_scan(query)),
        design("(ns, start, stop)", |query| rivals.by_start(query)),
        design("earliest start", |query| rivals.by_earliest(query)),
        design("hour rows", |query| rivals.by_hours(query)),
        design("**index**", |query| {
            last.set(records(&store, query));
            last.get()
        }),
        design("**again**", |query| records(&store, query)),
        design("places", |query| places(&store, query)),
        design("count", |query| count(&store, query)),
        design("limit", |_| {
            seed.set(seed.get() + 1);
            rivals.limit(last.get(), seed.get())
        }),
    ];
    heading(&format!("SQLite, {runs} heavy-tailed runs, whole records, us"), &designs);
    for (label, queries) in groups(41) {
        let medians = race(&mut designs, &queries, &spans);
        row(&label, &medians);
        let (full, ours, limit) = (medians.micros[0], medians.micros[5], medians.micros[8]);
        let first = medians.micros[4];
        match label.as_str() {
            "5 min a month ago, one" => bars.at_least(format!("{label}: x full scan"), full / ours, 1000.0),
            "5 min a month ago, biggest" => {
                bars.at_least(format!("{label}: x full scan"), full / ours, 300.0)
            }
            "5 min a month ago, all" => bars.at_least(format!("{label}: x full scan"), full / ours, 50.0),
            "7 d, biggest" | "12 h, all" => {
                bars.at_most(format!("{label}: x the limit, first asked"), first / limit, 2.5);
            }
            _ => {}
        }
    }
    drop(designs);
    pages(&store, &spans);
    closes(&store, &path, bars);
    drop(store);
    print_bytes("heavy-tailed", &index_bytes(&path, spans.len()), bars);
    print_bytes("heavy-tailed, rivals", &rivals.bytes, bars);
}

/// A wide window, page by page.
fn pages(store: &SqliteStore, spans: &[Span]) {
    for (label, namespaces) in [("the biggest", vec![0]), ("all", Vec::new())] {
        let query = Query { begin: NOW - 7 * DAY, end: NOW, namespaces };
        let mut asked = asked(&query).limit(500);
        let (mut found, mut pages, mut slowest) = (0, 0, Duration::ZERO);
        let began = std::time::Instant::now();
        loop {
            let began = std::time::Instant::now();
            let page = store.read(|tx| tx.active_runs(&asked)).expect("a page");
            slowest = slowest.max(began.elapsed());
            let Some(last) = page.last() else { break };
            asked = asked.after(last.place());
            (found, pages) = (found + page.len(), pages + 1);
        }
        assert_eq!(found, query.hits(spans));
        println!(
            "\n7 d of {label} in {pages} pages of 500: {} us a page, the slowest {}.",
            figure(began.elapsed().as_secs_f64() * 1e6 / f64::from(pages.max(1))),
            figure(slowest.as_secs_f64() * 1e6)
        );
    }
}

/// The pages that a close writes, for a run of a second and one of 150 days.
fn closes(store: &SqliteStore, path: &Path, bars: &mut Bars) {
    let log = path.with_extension("db-wal");
    let bytes = || std::fs::metadata(&log).map_or(0, |data| data.len());
    let flush = || {
        let conn = Connection::open(path).expect("a database");
        conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("a checkpoint");
    };
    let mut most = 0;
    for (id, length) in [("short", 1), ("long", 150 * DAY)] {
        let key = RunKey::new(namespace(0), id).expect("a name");
        let run = RunRecord::open(key.clone(), instant(BASE + 10 * DAY));
        store.write(|tx| Ok(raw(tx).put_runs(std::slice::from_ref(&run))?)).expect("written");
        flush();
        let close = RunClose::new(key, instant(BASE + 10 * DAY + length), RunStatus::Completed);
        store.write(|tx| Ok(raw(tx).close_runs_if_open(std::slice::from_ref(&close))?)).expect("closed");
        let pages = bytes() / 4096;
        println!("\nClosing a run of {length} s writes {pages} pages.");
        most = most.max(pages);
    }
    bars.at_most("pages that a close writes, run of 150 days", most as f64, 8.0);
}

pub(crate) fn adversaries(runs: usize, bars: &mut Bars) {
    let middle = BASE + 15 * DAY;
    let far = 30 * DAY - DAY / 10;
    let midnight = BASE + 20 * DAY;
    let sets = [
        (
            "one ancient run",
            data::ancient(runs),
            vec![("5 min in the middle", middle, 300), ("last hour", BASE + 30 * DAY - 3600, 3600)],
        ),
        (
            "all over a point",
            data::over_a_point(runs),
            vec![
                ("5 min 29.9 d after", POINT + far, 300),
                ("5 min 29.9 d before", POINT - far, 300),
                ("the point", POINT, 1),
            ],
        ),
        (
            "storms",
            data::storm(30, runs / 20),
            vec![("10 s at the end", midnight + 3590, 10), ("5 min after it", midnight + 3601, 300)],
        ),
    ];
    for (name, spans, windows) in sets {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("ours.db");
        let store = open(&path);
        let (events, took) = replay(&store, &spans);
        let rivals = Rivals::load(&dir.path().join("rivals.db"), &spans, false);
        println!(
            "\nReplay of {events} events: {} us each; the table alone {}.",
            figure(each(events, took)),
            figure(each(events, rivals.bare))
        );
        let mut designs = [
            design("full scan", |query| rivals.full_scan(query)),
            design("(ns, start, stop)", |query| rivals.by_start(query)),
            design("earliest start", |query| rivals.by_earliest(query)),
            design("**index**", |query| records(&store, query)),
            design("**again**", |query| records(&store, query)),
        ];
        heading(&format!("SQLite, {name}, {} runs, us", spans.len()), &designs);
        for (label, begin, length) in windows {
            let query = Query { begin, end: begin + length, namespaces: vec![0] };
            let medians = race(&mut designs, &vec![query; 15], &spans);
            row(label, &medians);
            if medians.hits * 2 > spans.len() {
                continue;
            }
            bars.at_most(
                format!("{name}, {label}: us less 1.5 per hit"),
                medians.micros[4] - 1.5 * medians.hits as f64,
                50.0,
            );
        }
        drop(designs);
        drop(store);
        print_bytes(name, &index_bytes(&path, spans.len()), bars);
    }
}
