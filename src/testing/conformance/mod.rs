//! The contract of a store, as cases to run against it.
//!
//! The cases check every sentence of the traits in [`crate::store`]. The crate's stores run them, also
//! through decorators and in transactions that a host owns. Your own store can run them, too. A case gets a
//! fresh, empty store, works on it through `dyn` [`Store`] only, and panics if a result is not the promised
//! one. After each case [`crate::store::contract::TaskTx::audit`] must find nothing.
//!
//! * [`run`] and [`run_with`] run everything and panic at the end with the names and messages of what failed;
//! * [`failures`] returns them instead; [`cases`] returns the cases, for your own harness;
//! * [`model`] compares a store with [`crate::store::MemoryStore`], operation by operation, for as long as
//!   you like.
//!
//! What stores may differ in is an argument, [`Capabilities`]: nothing is skipped unless the caller names it.
//!
//! # Examples
//!
//! ```
//! use stationmaster::conformance;
//! use stationmaster::store::MemoryStore;
//!
//! conformance::run(&|| Box::new(MemoryStore::new()));
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// Names the cases of a module.
macro_rules! cases {
    ($group:literal: $($case:ident),+ $(,)?) => {
        pub(super) fn cases() -> Vec<$crate::conformance::Case> {
            vec![$($crate::conformance::Case { name: concat!($group, "::", stringify!($case)), run: $case }),+]
        }
    };
}

mod attempts;
mod cancels;
mod caps;
mod changes;
mod extremes;
mod feed;
mod grants;
mod keeping;
mod lanes;
mod leases;
mod limits;
mod listing;
mod model;
mod moves;
mod names;
mod ops;
mod pages;
mod poke_counts;
mod pools;
mod queues;
mod random;
mod retention;
mod rules;
mod runs;
mod scene;
mod sensors;
mod shares;
mod side;
mod signs;
mod snapshot;
mod steps;
mod tasks;
mod threads;
mod ticks;
mod transactions;
mod windows;
mod workers;
mod world;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use model::{check as model, compare};
pub use snapshot::{Snapshot, Watch};

use crate::store::Store;
use crate::testing::RawStoreExt;

/// One promise of a store.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Case {
    /// `area::what_holds`.
    pub name: &'static str,
    /// Runs it on an empty store; panics if the promise is broken.
    pub run: fn(&dyn Store),
}

/// What stores may differ in.
///
/// Default: one transaction at a time is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// Whether a reading transaction can be open beside a writing one, or waits for its end.
    pub readers: Readers,
}

/// What a reading transaction does while a writing one is open in another thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Readers {
    /// It waits for the writer's end.
    #[default]
    Wait,
    /// It continues, and sees what was committed before.
    GoOn,
}

impl Capabilities {
    /// Creates the least that a store must support.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what readers do beside a writer.
    #[must_use]
    pub fn readers(mut self, readers: Readers) -> Self {
        self.readers = readers;
        self
    }
}

/// A case that a store did not pass.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// The case.
    pub case: &'static str,
    /// The message with which it failed.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.case, self.message)
    }
}

/// Returns all cases for a store with these capabilities.
pub fn cases(capabilities: Capabilities) -> Vec<Case> {
    let mut all = [
        transactions::cases(),
        tasks::cases(),
        lanes::cases(),
        queues::cases(),
        grants::cases(),
        ticks::cases(),
        leases::cases(),
        cancels::cases(),
        caps::cases(),
        keeping::cases(),
        moves::cases(),
        changes::cases(),
        attempts::cases(),
        retention::cases(),
        pools::cases(),
        limits::cases(),
        listing::cases(),
        rules::cases(),
        shares::cases(),
        sensors::cases(),
        workers::cases(),
        poke_counts::cases(),
        runs::cases(),
        windows::cases(),
        pages::cases(),
        signs::cases(),
        names::cases(),
        feed::cases(),
        extremes::cases(),
        threads::cases(),
        model::cases(),
    ]
    .concat();
    if capabilities.readers == Readers::GoOn {
        all.extend(threads::beside_a_writer());
    }
    all
}

/// Runs all cases, each on a new store from `make`.
///
/// # Panics
///
/// With the names and messages of all cases that failed.
pub fn run(make: &dyn Fn() -> Box<dyn Store>) {
    run_with(Capabilities::new(), make);
}

/// Works like [`run`], for a store that can do more than the least.
///
/// # Panics
///
/// As [`run`].
pub fn run_with(capabilities: Capabilities, make: &dyn Fn() -> Box<dyn Store>) {
    let failures = failures(capabilities, make);
    let lines: Vec<String> = failures.iter().map(|failure| format!("  {failure}")).collect();
    assert!(
        failures.is_empty(),
        "{} of {} cases failed:\n{}",
        failures.len(),
        cases(capabilities).len(),
        lines.join("\n")
    );
}

/// Runs all cases, and returns those that failed.
pub fn failures(capabilities: Capabilities, make: &dyn Fn() -> Box<dyn Store>) -> Vec<Failure> {
    cases(capabilities)
        .into_iter()
        .filter_map(|case| {
            let attempt = AssertUnwindSafe(|| {
                let store = make();
                (case.run)(&*store);
                let found = store.read_raw(|raw| Ok(raw.audit()?)).expect("audit");
                assert!(found.is_empty(), "the audit found {found:?}");
            });
            catch_unwind(attempt).err().map(|panic| Failure { case: case.name, message: text(&*panic) })
        })
        .collect()
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let owned = panic.downcast_ref::<String>().cloned();
    owned.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}
