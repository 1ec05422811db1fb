//! A fault at every call of every operation that writes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::sync::Arc;

use super::steps::{life, watch};
use super::{Fault, FaultStore, Snapshot, Step, When};
use crate::error::{Error, Result, StoreErrorKind};
use crate::store::{ReadTx, Store, TxMode};

/// The kinds of failure that a sweep tries.
pub const KINDS: [StoreErrorKind; 5] = [
    StoreErrorKind::Busy,
    StoreErrorKind::Conflict,
    StoreErrorKind::Full,
    StoreErrorKind::Io,
    StoreErrorKind::Indeterminate,
];

/// How much a sweep tried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sweep {
    /// Operations.
    pub operations: usize,
    /// Faults that occurred, each in its own run.
    pub faults: usize,
    /// Those of them after which the operation had taken effect.
    pub committed: usize,
    /// The calls that failed, by name; `begin` and `commit` are two of them.
    pub calls: BTreeSet<&'static str>,
}

/// Makes every call of every operation of [`life`] fail once, with each of [`KINDS`], before and after its
/// effect, on stores that `make` creates, and checks everything afterwards:
///
/// * the operation returns an error of the kind that occurred;
/// * the state equals the one before the operation, or, if the commit took effect, the one after it;
/// * the audit finds nothing, so that used slots are the sums of the leases;
/// * the same handle keeps working: the repeated operation does what it does without a fault.
///
/// Hosts may use it for their own stores.
///
/// # Panics
///
/// If one of these does not hold.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::store::MemoryStore;
/// let sweep = stationmaster::testing::sweep_faults(&|| Arc::new(MemoryStore::new()));
/// assert!(sweep.faults > 1_000 && sweep.committed > 100, "{sweep:?}");
/// ```
pub fn sweep_faults(make: &dyn Fn() -> Arc<dyn Store>) -> Sweep {
    let both = |kind: &StoreErrorKind| [(*kind, When::Before), (*kind, When::After)];
    let all: Vec<_> = KINDS.iter().flat_map(both).collect();
    sweep(&|_| all.clone(), make)
}

/// Sweeps as [`sweep_faults`] does, but with only this kind of failure. The calls of one operation fail
/// before their effect, those of the next one after it. For a store on a server, where a whole sweep takes
/// minutes.
///
/// # Panics
///
/// As [`sweep_faults`].
pub fn sample_faults(kind: StoreErrorKind, make: &dyn Fn() -> Arc<dyn Store>) -> Sweep {
    let when = |place: usize| if place.is_multiple_of(2) { When::After } else { When::Before };
    sweep(&|place| vec![(kind, when(place))], make)
}

/// Sweeps with the failures for each operation.
fn sweep(
    failures: &dyn Fn(usize) -> Vec<(StoreErrorKind, When)>,
    make: &dyn Fn() -> Arc<dyn Store>,
) -> Sweep {
    let mut sweep = Sweep::default();
    let steps = life();
    let clean = lived(make, &[]);
    for place in 0..steps.len() {
        let (past, step) = (&steps[..place], steps[place]);
        let before = look(&clean);
        apply(&clean, step).unwrap_or_else(|error| panic!("{} fails without a fault: {error}", step.name));
        let after = look(&clean);
        assert_ne!(before, after, "{} writes", step.name);
        let mut store = Some(lived(make, past));
        // Raised until a run passes without a fault; then all calls are known.
        let mut calls = u64::MAX;
        for (kind, when) in failures(place) {
            let mut at = 0;
            while at < calls {
                at += 1;
                let case = || format!("{}, call {at}, {when:?}, {kind:?}", step.name);
                let shaky = store.get_or_insert_with(|| lived(make, past));
                shaky.arm(Fault::new(at, when, kind));
                let answer = apply(shaky, step);
                let Some(struck) = shaky.disarm() else {
                    answer.unwrap_or_else(|error| panic!("{}: no fault, and {error}", case()));
                    assert_eq!(look(shaky), after, "{}", case());
                    calls = at - 1;
                    store = None;
                    break;
                };
                sweep.faults += 1;
                sweep.calls.insert(struck.call);
                let reported = match answer {
                    Err(Error::Store(error)) => error.kind(),
                    other => panic!("{} in {}: {other:?}", case(), struck.call),
                };
                if struck.is_committed() {
                    sweep.committed += 1;
                    assert_eq!(reported, StoreErrorKind::Indeterminate, "{}", case());
                    assert_eq!(look(shaky), after, "{} in {}", case(), struck.call);
                    store = None;
                } else {
                    assert_eq!(reported, kind, "{} in {}", case(), struck.call);
                    assert_eq!(look(shaky), before, "{} in {}", case(), struck.call);
                    assert_eq!(rehearse(shaky, step), after, "{} in {}: tried again", case(), struck.call);
                }
            }
        }
        sweep.operations += 1;
    }
    sweep
}

fn apply(store: &FaultStore, step: Step) -> Result<()> {
    store.transact(TxMode::Write, &mut |tx| (step.run)(tx))
}

/// Returns a store in which these steps were done.
fn lived(make: &dyn Fn() -> Arc<dyn Store>, past: &[Step]) -> FaultStore {
    let store = FaultStore::new(make());
    for step in past {
        apply(&store, *step).unwrap_or_else(|error| panic!("{} fails without a fault: {error}", step.name));
    }
    store
}

fn look(store: &FaultStore) -> Snapshot {
    let seen = store.read(snapshot).expect("a snapshot");
    assert_eq!(seen.audit(), []);
    seen
}

/// Returns a snapshot whose tasks and lanes are numbered from 1. A store need not reuse a number from a
/// transaction that was rolled back, so the tasks of a repeated `enqueue` may have higher ones.
fn snapshot(tx: &mut ReadTx<'_>) -> Result<Snapshot> {
    Ok(Snapshot::take(tx, &watch())?.numbered_from_one())
}

/// Returns what the step leads to, and undoes it.
fn rehearse(store: &FaultStore, step: Step) -> Snapshot {
    let mut seen = None;
    let undone = store.transact(TxMode::Write, &mut |tx| {
        (step.run)(tx)?;
        seen = Some(snapshot(tx)?);
        Err(Error::abort("a rehearsal"))
    });
    match (seen, undone) {
        (Some(seen), Err(Error::Aborted(_))) => seen,
        (_, undone) => panic!("{} cannot be tried again: {undone:?}", step.name),
    }
}
