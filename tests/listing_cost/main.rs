//! What a list costs does not depend on how many tasks there are. SQLite says how many steps its machine took, PostgreSQL
//! how many rows its scans read and how many buffers it touched, so no test depends on how fast the machine is.
//!
//! `STATIONMASTER_LIST_TASKS=1000000 cargo test --release --all-features --test listing_cost -- --nocapture` prints the
//! figures at a million tasks.
#![cfg(all(feature = "testing", any(feature = "sqlite", feature = "postgres")))]
#![allow(clippy::unwrap_used)]

#[cfg(feature = "dashboard")]
mod figures;
#[cfg(feature = "dashboard")]
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../dashboard/http.rs"]
mod http;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../postgres_server/mod.rs"]
mod postgres_server;
#[cfg(feature = "postgres")]
#[path = "../scratch/mod.rs"]
mod scratch;
#[cfg(feature = "sqlite")]
mod sqlite;
mod world;

use std::collections::BTreeMap;

use stationmaster::store::ReadTx;
use stationmaster::task::TaskQuery;
use world::World;

/// The tasks of the larger store, if the environment does not say. The smaller one has a tenth.
const TASKS: usize = 20_000;

/// The tasks of a page.
const PAGE: usize = 100;

/// The most buffers that are touched for a task: it is in an index, in two tables with an index each, and its lease may have a note.
const BUFFERS: u64 = 24;

/// What pages and counts cost, by the question.
type Costs = BTreeMap<String, Cost>;

/// What the pages of one question cost together.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    /// The tasks that were returned.
    pub returned: u64,
    /// Steps of the machine, or rows that were read.
    pub work: u64,
    /// Buffers, where the store counts them.
    pub buffers: u64,
}

/// What is asked: the first two pages of each list that the documentation says reads what it returns, and the counts.
fn questions() -> Vec<(String, Ask)> {
    let mut all: Vec<(String, Ask)> = Vec::new();
    for (name, query) in World::lists() {
        let ask = move |tx: &mut ReadTx<'_>| {
            let first = tx.list_tasks(&query.clone().limit(PAGE)).unwrap();
            let Some(next) = first.next else { return first.tasks.len() };
            let second = tx.list_tasks(&query.clone().limit(PAGE).after(next)).unwrap();
            first.tasks.len() + second.tasks.len()
        };
        all.push((name.to_owned(), Box::new(ask)));
    }
    all.push(("counts by state, up to 100".into(), Box::new(|tx| tx.count_tasks(100).unwrap().len())));
    all
}

/// The tasks of the larger store.
fn tasks() -> usize {
    std::env::var("STATIONMASTER_LIST_TASKS").map_or(TASKS, |tasks| tasks.parse().expect("a number"))
}

/// Returns true if something costs clearly more of more tasks. Half as much again is what higher trees may cost.
fn grows(few: u64, many: u64) -> bool {
    many > few + few / 2 + 50
}

type Ask = Box<dyn Fn(&mut ReadTx<'_>) -> usize>;

/// Asks the same of a store and of one with ten times as many tasks, and prints both. `of` fills a store and measures.
fn compare(store: &str, of: impl Fn(usize) -> Costs) {
    let many = tasks();
    let (few, costs) = (of(many / 10), of(many));
    println!("{store}, {} and {many} tasks, two pages of {PAGE}", many / 10);
    println!("{:44} {:>8} {:>16} {:>16}", "", "returned", "work", "buffers");
    let mut complaints = Vec::new();
    for (question, cost) in &costs {
        let small = few[question];
        let beside = |few: u64, many: u64| format!("{few} {many}");
        println!(
            "{question:44} {:>8} {:>16} {:>16}",
            cost.returned,
            beside(small.work, cost.work),
            beside(small.buffers, cost.buffers)
        );
        assert!(cost.returned > 0, "{question} found nothing");
        assert_eq!(cost.returned, small.returned, "{question} found as much of fewer tasks");
        if grows(small.work, cost.work) {
            let (few, many) = (small.work, cost.work);
            complaints.push(format!("{question}: {few} work, and {many} of ten times as many tasks"));
        }
        // Where few pages hold everything the server may find another way. A count walks the pages that leases were in.
        if !question.starts_with("counts") && cost.buffers > BUFFERS * cost.returned {
            complaints.push(format!("{question}: {} buffers for {} tasks", cost.buffers, cost.returned));
        }
    }
    assert!(complaints.is_empty(), "{store}: {complaints:#?}");
}

/// A list that passes over what has ended, to see that this is counted.
fn undocumented() -> TaskQuery {
    TaskQuery::ended().queue("nowhere".try_into().unwrap()).limit(PAGE)
}
