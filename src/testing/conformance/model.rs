//! Any sequence of operations: a store must return what the memory store does.

use std::ops::Range;
use std::sync::Arc;

use super::ops::Op;
use super::random::Random;
use super::side::Side;
use crate::error::Error;
use crate::store::{MemoryStore, Store, TxMode};
use crate::testing::RawStoreExt;

cases!("model": answers_as_the_memory_store_does);

fn answers_as_the_memory_store_does(store: &dyn Store) {
    compare(store, &MemoryStore::new(), 0, 300);
}

/// Runs one random sequence of this many operations for each seed, on a store that `make` just made and on a
/// [`MemoryStore`], and compares every result and, after every operation, everything that can be seen.
///
/// # Panics
///
/// At the first difference, naming the seed, the step and the operation. The same seed makes the same
/// sequence.
///
/// # Examples
///
/// ```
/// use stationmaster::conformance;
/// use stationmaster::store::MemoryStore;
///
/// conformance::model(&|| Box::new(MemoryStore::new()), 0..3, 50);
/// ```
pub fn check(make: &dyn Fn() -> Box<dyn Store>, seeds: Range<u64>, steps: usize) {
    for seed in seeds {
        compare(&*make(), &MemoryStore::new(), seed, steps);
    }
}

/// Runs the sequence of one seed on two empty stores and compares them as [`check`] does.
///
/// # Panics
///
/// At the first difference.
pub fn compare(left: &dyn Store, right: &dyn Store, seed: u64, steps: usize) {
    let mut random = Random::new(seed);
    let (mut left, mut right) = (Side::new(left), Side::new(right));
    let mut now = 1000;
    for step in 0..steps {
        // Callers read their clocks before they wait for each other, so instants arrive in any order.
        now += random.instant(30) - if random.once_in(8) { 60 } else { 0 };
        let (before, _) = look(&left);
        let op = Op::draw(&mut random, &before, now);
        let undo = random.once_in(8);
        let at = || format!("seed {seed}, step {step}, {op:?}");
        let answers = [run(&mut left, &op, undo), run(&mut right, &op, undo)];
        assert_eq!(answers[0], answers[1], "{}: the answers differ", at());
        let (seen, expected) = (look(&left), look(&right));
        assert_same(&seen, &expected, &at());
        assert!(seen.0.audit.is_empty(), "{}: the audit found {:?}", at(), seen.0.audit);
        if answers[0].is_err() {
            assert!(seen.0 == before, "{}: a transaction that failed left something", at());
        }
    }
}

type Seen = (super::snapshot::Snapshot, Vec<Arc<crate::admission::LaneKey>>);

fn assert_same(left: &Seen, right: &Seen, at: &str) {
    if left == right {
        return;
    }
    let lines = |seen: &Seen| -> Vec<String> { format!("{seen:#?}").lines().map(String::from).collect() };
    let (left, right) = (lines(left), lines(right));
    let first = left.iter().zip(&right).position(|(a, b)| a != b).unwrap_or(left.len().min(right.len()));
    let part = |lines: &[String]| lines[first.saturating_sub(12)..(first + 6).min(lines.len())].join("\n");
    panic!("{at}: what is seen differs\nleft:\n{}\nright:\n{}", part(&left), part(&right));
}

fn look(side: &Side<'_>) -> Seen {
    side.store.read_raw(|tx| Ok(side.look(tx)?)).expect("a read transaction")
}

/// Does it in one transaction, and undoes it by an error on request.
fn run(side: &mut Side<'_>, op: &Op, undo: bool) -> Result<String, String> {
    let store = side.store;
    let mut inserted = Vec::new();
    let mut done = String::new();
    // Not `write`: a conflict is a result here, not to be tried again.
    let answer = store.transact(TxMode::Write, &mut |tx| {
        done = side.apply(op, tx.raw(), &mut inserted)?;
        if undo { Err(Error::abort("on purpose")) } else { Ok(()) }
    });
    match answer {
        Ok(()) => {
            side.learn(&inserted);
            store
                .write_raw(|tx| tx.number_changes(1_000).map_err(Error::from))
                .expect("the feed is numbered");
            Ok(done)
        }
        Err(Error::Store(error)) => Err(format!("{:?}", error.kind())),
        Err(error) => Err(error.to_string()),
    }
}
