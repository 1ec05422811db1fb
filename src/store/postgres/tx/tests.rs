//! Each statement repeats the parts that it shares with others, so that it can be read alone. The parts must
//! stay equal.

mod functions;

use super::{attempt, insert, tick};

/// Returns the part of a statement after the place where it finds its tasks.
fn from<'s>(sql: &'s str, mark: &str) -> &'s str {
    &sql[sql.find(mark).unwrap()..]
}

#[test]
fn tasks_are_read_alike_by_key_and_by_number() {
    let head = |sql: &'static str| &sql[..sql.find(" FROM unnest(").unwrap()];
    assert_eq!(head(insert::BY_KEY), head(insert::BY_NO));
    let stands = "CROSS JOIN LATERAL ( SELECT 0::bigint AS state";
    assert_eq!(from(insert::BY_KEY, stands), from(insert::BY_NO, stands));
}

#[test]
fn tasks_are_locked_alike_whether_others_are_waited_for_or_passed_over() {
    assert_eq!(attempt::LOCK_FREE_TASKS.replace(" SKIP LOCKED", ""), attempt::LOCK_TASKS);
}

#[test]
fn candidates_are_locked_and_otherwise_alike() {
    assert_eq!(tick::CANDIDATES_LOCKED.replace("FOR UPDATE SKIP LOCKED", "OFFSET 0"), tick::CANDIDATES);
}
