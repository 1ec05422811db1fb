//! Admission against a naive oracle that walks the whole backlog: equal plans, equal order, equal reasons.
//!
//! `STATIONMASTER_WORLDS=10000` runs that many random worlds through the stores, too. A release build enumerates the
//! small worlds of up to four tasks under three pairs of limits. A debug build is slower: it
//! enumerates those of up to three tasks under one pair, and gives a store a sample.

mod ahead;
mod contenders;
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
use stores::{Kind, kinds};

/// Whether a store gets only some of the worlds.
const IS_SAMPLED: bool = cfg!(debug_assertions);

/// Random worlds that the planner is compared on.
const RANDOM: u64 = if IS_SAMPLED { 3_000 } else { 10_000 };

/// Random worlds that go through a store.
fn stored_worlds(kind: &Kind, on_a_server: u32) -> u64 {
    let named = std::env::var("STATIONMASTER_WORLDS").ok().map(|n| n.parse().expect("a number of worlds"));
    named.unwrap_or_else(|| kind.cases(if IS_SAMPLED { 50 } else { 300 }, on_a_server).into())
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
fn random_worlds_of_the_planner() {
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
        for number in 0..stored_worlds(&kind, 8) {
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
        for number in 0..stored_worlds(&kind, 8) {
            store::check_paged(&store, &world::random(number), 1 + number as usize % 5);
        }
    }
}

/// Contenders with more lanes than a page has.
#[test]
fn shares_in_pages_through_every_store() {
    for kind in kinds() {
        let store = kind.make();
        for number in 0..stored_worlds(&kind, 8) {
            store::check_paged(&store, &contenders::of_shares(number), 1 + number as usize % 2);
        }
    }
}

/// What comes between ticks wakes what it should.
#[test]
fn random_series_in_pages_through_every_store() {
    for kind in kinds() {
        for number in 0..stored_worlds(&kind, 3) {
            series::check(&kind.make(), number, 1 + number as usize % 5);
        }
    }
}

/// Those of up to two tasks.
#[test]
fn small_worlds_through_every_store() {
    for kind in kinds() {
        let (store, seen) = (kind.make(), Cell::new(0));
        let stride = kind.stride(197).max(if IS_SAMPLED { 7 } else { 1 });
        let worlds = small::every(2, &small::LIMITS[..1], |world| {
            if seen.replace(seen.get() + 1_usize).is_multiple_of(stride) {
                store::check(&store, world);
            }
        });
        assert_eq!(worlds, 5_864);
    }
}
