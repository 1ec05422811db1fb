//! The conformance suite, on every store of the crate and on stores that are broken on purpose.

mod bent;
mod mutants;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
#[path = "../scratch/mod.rs"]
mod scratch;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::sync::Arc;

use bent::{Bent, Fault};
use stationmaster::conformance::{self, Capabilities};
use stationmaster::service::{LoopHandle, ObservedStore, Observer, WakingStore};
use stationmaster::store::{MemoryStore, Store};

fn memory() -> Box<dyn Store> {
    Box::new(MemoryStore::new())
}

#[test]
fn memory_store() {
    conformance::run(&memory);
}

#[test]
fn memory_store_behind_a_decorator() {
    conformance::run(&|| Box::new(Bent::new(memory(), Fault::None)));
}

#[test]
fn a_store_that_wakes() {
    let waking = || WakingStore::new(stationmaster::store::MemoryStore::new(), LoopHandle::new());
    conformance::run(&|| Box::new(waking()));
}

#[test]
fn a_store_that_is_observed() {
    struct Nobody;
    impl Observer for Nobody {}
    let observed = || ObservedStore::new(stationmaster::store::MemoryStore::new(), Arc::new(Nobody));
    conformance::run(&|| Box::new(observed()));
}

#[test]
fn the_same_seed_makes_the_same_sequence() {
    conformance::model(&|| Box::new(Bent::new(memory(), Fault::None)), 0..40, 120);
}

#[test]
fn cases_are_named_once() {
    let mut names: Vec<&str> = conformance::cases(Capabilities::new()).iter().map(|case| case.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    assert!(count > 130, "{count}");
}
