//! Admission against a naive oracle that walks the whole backlog: equal plans, equal order, equal reasons.
//!
//! `STATIONMASTER_WORLDS=10000` runs that many random worlds through the stores, too. A debug build enumerates the small
//! worlds of up to three tasks under one pair of limits, a release build those of up to four under three.

mod ahead;
mod direct;
mod oracle;
mod series;
mod small;
mod store;
#[path = "../stores/mod.rs"]
mod stores;
mod world;

use std::cell::Cell;
use std::collections::BTreeSet;

use stationmaster::TaskId;
use stores::kinds;

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
    assert_eq!(small::every_beside(most_tasks, pairs, |world| direct::check(world, usize::MAX)), expected);
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
    assert_eq!(reasons.len(), 8, "the worlds show every reason of these policies: {reasons:?}");
}

#[test]
fn random_worlds_through_every_store() {
    for kind in kinds() {
        let store = kind.make();
        for number in 0..stored_worlds(kind.cases(300, 15).into()) {
            store::check(&store, &world::random(number));
            store::check_window(&store, &world::random(number));
        }
    }
}

/// What a tick with many lanes does, forced upon few.
#[test]
fn random_worlds_in_pages_through_every_store() {
    for kind in kinds() {
        let store = kind.make();
        for number in 0..stored_worlds(kind.cases(300, 15).into()) {
            store::check_paged(&store, &world::random(number), 1 + number as usize % 5);
        }
    }
}

/// What comes between ticks wakes what it should.
#[test]
fn random_series_in_pages_through_every_store() {
    for kind in kinds() {
        for number in 0..stored_worlds(kind.cases(300, 5).into()) {
            series::check(&kind.make(), number, 1 + number as usize % 5);
        }
    }
}

/// Those of up to two tasks.
#[test]
fn small_worlds_through_every_store() {
    for kind in kinds() {
        let (store, stride, seen) = (kind.make(), kind.stride(197), Cell::new(0));
        let worlds = small::every(2, &small::LIMITS[..1], |world| {
            if seen.replace(seen.get() + 1_usize).is_multiple_of(stride) {
                store::check(&store, world);
            }
        });
        assert_eq!(worlds, 5_864);
    }
}
