//! Admission against a naive oracle that walks the whole backlog: equal plans, equal order, equal reasons.
//!
//! `STATIONMASTER_WORLDS=10000` runs that many random worlds through the stores, too. A debug build enumerates the small
//! worlds of up to three tasks under one pair of limits, a release build those of up to four under three.

mod direct;
mod oracle;
#[cfg(feature = "postgres")]
#[path = "../scratch/mod.rs"]
mod scratch;
mod small;
mod store;
mod world;

use std::collections::BTreeSet;

use stationmaster::TaskId;
use stationmaster::store::{MemoryStore, Store};

/// Random worlds that the planner is compared on.
const RANDOM: u64 = 10_000;

/// Random worlds that go through the stores.
fn stored_worlds(unless_told: u64) -> u64 {
    std::env::var("STATIONMASTER_WORLDS").ok().map_or(unless_told, |n| n.parse().expect("a number of worlds"))
}

#[test]
fn every_small_world() {
    let (most_tasks, pairs, expected) = if cfg!(debug_assertions) {
        (3, &small::LIMITS[..1], 185_576)
    } else {
        (4, small::LIMITS, 14_988_984)
    };
    assert_eq!(small::every(most_tasks, pairs, |world| direct::check(world, usize::MAX)), expected);
}

#[test]
fn ten_thousand_random_worlds() {
    let mut reasons = BTreeSet::new();
    for number in 0..RANDOM {
        let world = world::random(number);
        direct::check(&world, 1 + number as usize % 40);
        let numbers: Vec<TaskId> = (1..).map(TaskId).take(world.waiting.len()).collect();
        reasons.extend(oracle::walk(&world, &numbers).left.values().map(|(_, reason)| reason.name()));
    }
    assert_eq!(reasons.len(), 6, "the worlds show every reason of these policies: {reasons:?}");
}

fn through(store: &dyn Store, worlds: u64) {
    for number in 0..stored_worlds(worlds) {
        store::check(store, &world::random(number));
    }
}

#[cfg(feature = "postgres")]
#[test]
fn random_worlds_through_postgres() {
    through(&scratch::ScratchStore::open(|options| options), 60);
}

#[test]
fn random_worlds_through_the_memory_store() {
    through(&MemoryStore::new(), 300);
}

#[cfg(feature = "sqlite")]
#[test]
fn random_worlds_through_sqlite() {
    use stationmaster::store::{SqliteStore, sqlite::SqliteOptions};
    through(&SqliteStore::in_memory(SqliteOptions::default()).unwrap(), 300);
}
