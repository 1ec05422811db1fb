//! The races in memory: keys only, an index per namespace.

use std::collections::BTreeMap;
use std::time::Instant;

use coitrees::{COITree, GenericInterval, Interval, IntervalTree};
use iset::IntervalMap;
use stationmaster::testing::core::RunIndex;

use crate::bars::{Bars, figure};
use crate::data::{self, BASE, DAY, POINT, Span, instant};
use crate::race::{Design, Query, design, heading, race, row};
use crate::sqlite::groups;

/// A number above every stop, for designs that know no open end.
const OPEN: i64 = i32::MAX as i64;

struct All {
    index: Vec<RunIndex>,
    iset: Vec<IntervalMap<i64, u32>>,
    tree: Vec<COITree<u32, u32>>,
    starts: Vec<BTreeMap<(i64, u32), i64>>,
}

fn timed<T>(what: &str, runs: usize, make: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let made = make();
    println!("- {what}: {} ns a run to build", figure(began.elapsed().as_secs_f64() * 1e9 / runs as f64));
    made
}

impl All {
    fn build(spans: &[Span], namespaces: usize) -> Self {
        println!("\nBuilt of {} runs, one after another:\n", spans.len());
        let ranked = || spans.iter().zip(0_u32..);
        let index = timed("index", spans.len(), || {
            let mut index = vec![RunIndex::new(); namespaces];
            for (span, rank) in ranked() {
                index[span.ns].insert(instant(span.start), span.stop.map(instant), rank);
            }
            index
        });
        let bytes: usize = index.iter().map(RunIndex::bytes).sum();
        println!("- index: {} bytes a run", figure(bytes as f64 / spans.len() as f64));
        let iset = timed("iset", spans.len(), || {
            let mut maps: Vec<IntervalMap<i64, u32>> = (0..namespaces).map(|_| IntervalMap::new()).collect();
            for (span, rank) in ranked() {
                maps[span.ns].force_insert(span.start..span.stop.unwrap_or(OPEN) + 1, rank);
            }
            maps
        });
        let tree = timed("coitrees (static)", spans.len(), || {
            let mut lists: Vec<Vec<Interval<u32>>> = vec![Vec::new(); namespaces];
            for (span, rank) in ranked() {
                let last = span.stop.unwrap_or(OPEN) as i32;
                lists[span.ns].push(Interval::new(span.start as i32, last, rank));
            }
            lists.iter().map(COITree::new).collect()
        });
        let starts = timed("B-tree by start", spans.len(), || {
            let mut maps = vec![BTreeMap::new(); namespaces];
            for (span, rank) in ranked() {
                maps[span.ns].insert((span.start, rank), span.stop.unwrap_or(OPEN));
            }
            maps
        });
        Self { index, iset, tree, starts }
    }

    fn asked(&self, query: &Query) -> Vec<usize> {
        if query.namespaces.is_empty() { (0..self.index.len()).collect() } else { query.namespaces.clone() }
    }

    fn designs<'a>(&'a self, spans: &'a [Span]) -> Vec<Design<'a>> {
        let collect = |keys: &mut Vec<u32>, key: u32| keys.push(key);
        vec![
            design("full scan", move |query| {
                let mut keys = Vec::new();
                let any = query.namespaces.is_empty();
                for (span, rank) in spans.iter().zip(0_u32..) {
                    if (any || query.namespaces.contains(&span.ns)) && span.is_active(query.begin, query.end)
                    {
                        collect(&mut keys, rank);
                    }
                }
                std::hint::black_box(keys).len()
            }),
            design("B-tree by start", move |query| {
                let mut keys = Vec::new();
                for ns in self.asked(query) {
                    let earlier = self.starts[ns].range(..(query.end, 0));
                    earlier
                        .filter(|(_, stop)| **stop >= query.begin)
                        .for_each(|((_, rank), _)| keys.push(*rank));
                }
                std::hint::black_box(keys).len()
            }),
            design("iset", move |query| {
                let mut keys = Vec::new();
                for ns in self.asked(query) {
                    keys.extend(self.iset[ns].values(query.begin..query.end).copied());
                }
                std::hint::black_box(keys).len()
            }),
            design("coitrees (static)", move |query| {
                let mut keys = Vec::new();
                for ns in self.asked(query) {
                    self.tree[ns]
                        .query(query.begin as i32, (query.end - 1) as i32, |hit| keys.push(*hit.metadata()));
                }
                std::hint::black_box(keys).len()
            }),
            design("**index**", move |query| {
                let mut keys = Vec::new();
                for ns in self.asked(query) {
                    keys.extend(self.index[ns].active(instant(query.begin), instant(query.end)).copied());
                }
                std::hint::black_box(keys).len()
            }),
        ]
    }
}

pub(crate) fn heavy_tailed(runs: usize, bars: &mut Bars) {
    let spans = data::heavy_tailed(runs);
    let all = All::build(&spans, 100);
    let bytes: usize = all.index.iter().map(RunIndex::bytes).sum();
    bars.at_most(format!("memory, {runs}: bytes per run"), bytes as f64 / runs as f64, 110.0);
    let mut designs = all.designs(&spans);
    heading(&format!("Memory, {runs} heavy-tailed runs, keys, us"), &designs);
    for (label, queries) in groups(41) {
        let medians = race(&mut designs, &queries, &spans);
        row(&label, &medians);
        if label.ends_with("one") && !label.starts_with("7 d") {
            let bar = if runs > 1_000_000 { 60.0 } else { 20.0 };
            bars.at_most(format!("memory, {runs}, {label}: us"), medians.micros[4], bar);
        }
    }
}

pub(crate) fn adversaries(runs: usize) {
    let middle = BASE + 15 * DAY;
    let far = 30 * DAY - DAY / 10;
    let midnight = BASE + 20 * DAY;
    let sets = [
        ("one ancient run", data::ancient(runs), vec![("5 min in the middle", middle, 300)]),
        (
            "all over a point",
            data::over_a_point(runs),
            vec![("5 min 29.9 d after", POINT + far, 300), ("the point", POINT, 1)],
        ),
        (
            "storms",
            data::storm(30, runs / 20),
            vec![("10 s at the end", midnight + 3590, 10), ("5 min after it", midnight + 3601, 300)],
        ),
    ];
    for (name, spans, windows) in sets {
        let all = All::build(&spans, 1);
        let mut designs = all.designs(&spans);
        heading(&format!("Memory, {name}, {} runs, keys, us", spans.len()), &designs);
        for (label, begin, length) in windows {
            let query = Query { begin, end: begin + length, namespaces: vec![0] };
            row(label, &race(&mut designs, &vec![query; 41], &spans));
        }
        drop(designs);
        let mut index = all.index.into_iter().next().expect("one namespace");
        let began = Instant::now();
        for (span, rank) in spans.iter().zip(0..).filter(|(span, _)| span.stop.is_some()) {
            index.remove(instant(span.start), span.stop.map(instant), rank);
            index.insert(instant(span.start), None, rank);
            index.remove(instant(span.start), None, rank);
            index.insert(instant(span.start), span.stop.map(instant), rank);
        }
        let each = began.elapsed().as_secs_f64() * 1e9 / spans.len() as f64 / 2.0;
        println!("\nA close or re-opening: {} ns.", figure(each));
    }
}
