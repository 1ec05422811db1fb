//! Opening a store leaves the file locks of everything else in the process as they are.
#![cfg(all(feature = "sqlite", unix))]
#![allow(clippy::unwrap_used, clippy::panic)]

mod scenes;

#[test]
fn no_commit_and_no_lock_is_lost_when_a_store_is_opened() {
    scenes::play("part");
}

#[test]
fn part() {
    scenes::part();
}
