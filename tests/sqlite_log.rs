//! The write-ahead log of a SQLite file stays within its bound while somebody always reads.
#![cfg(all(feature = "sqlite", unix))]
#![allow(clippy::unwrap_used, clippy::panic)]

#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "respawn/mod.rs"]
mod respawn;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use respawn::{Respawned, say};
use stationmaster::admission::IfExists;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::store::Durability;
use stationmaster::store::SqliteStore;
use stationmaster::store::sqlite::SqliteOptions;
use stationmaster::store::sqlite::rusqlite::Connection;

const MIB: u64 = 1 << 20;
/// What each commit adds to the log, a little more in fact.
const COMMIT: u64 = MIB;
/// Commits of each writer: far more than the log may hold.
const COMMITS: usize = 300;
/// The documented bound, and what the writers commit between two looks at the log.
const BOUND: u64 = (128 + 2 * 32 + 16) * MIB;

/// Four that read for 20 ms each, one after another begins: there is no instant without a reader.
fn overlapping_readers<T>(path: &Path, body: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let is_over = &is_over;
            scope.spawn(move || {
                let conn = Connection::open(path).unwrap();
                std::thread::sleep(Duration::from_millis(5 * reader));
                while !is_over.load(Ordering::Relaxed) {
                    conn.execute_batch("BEGIN; SELECT count(*) FROM sm_pool").unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                    conn.execute_batch("COMMIT").unwrap();
                }
            });
        }
        let done = body();
        is_over.store(true, Ordering::Relaxed);
        done
    })
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::new().durability(Durability::Process)).unwrap()
}

/// Commits again and again, and returns the most bytes that the log had meanwhile.
fn write(path: &Path, name: &str) -> u64 {
    let (store, log) = (open(path), path.with_extension("db-wal"));
    let texts = ["a", "b"].map(|text| text.repeat(COMMIT as usize));
    let size = |at: usize| {
        let pool = PoolSpec::new(name, Slots::Limited(1)).unwrap().described(texts[at % 2].as_str());
        store.write(|tx| tx.define([&pool], IfExists::Replace)).unwrap();
        std::fs::metadata(&log).unwrap().len()
    };
    (0..COMMITS).map(size).max().unwrap()
}

#[test]
fn the_log_stays_bounded_under_overlapping_readers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    drop(open(&path));
    let most = overlapping_readers(&path, || write(&path, "big"));
    assert!(most <= BOUND, "the log grew to {} MiB", most / MIB);
}

#[test]
fn the_log_stays_bounded_under_writers_and_readers_of_several_processes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    drop(open(&path));
    let others = ["big 1", "big 2"]
        .map(|name| Respawned::new("another_process", &format!("{name}\n{}", path.display())));
    let seen: Vec<u64> = others.into_iter().map(|other| other.join().concat().parse().unwrap()).collect();
    let most = seen.into_iter().max().unwrap();
    assert!(most <= BOUND, "the log grew to {} MiB", most / MIB);
}

#[test]
fn another_process() {
    let Some(argument) = respawn::argument() else { return };
    let (name, path) = argument.split_once('\n').unwrap();
    let path = Path::new(path);
    say(&overlapping_readers(path, || write(path, name)).to_string());
}
