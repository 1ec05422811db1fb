//! What a cycle in which nothing lands costs the store.
#![cfg(feature = "sqlite")]

use std::sync::Arc;

use stationmaster::sensor::PokeOutcome;
use stationmaster::service::{PokeRequest, Service};
use stationmaster::store::Store;
use stationmaster::store::sqlite::{SqliteOptions, SqliteStore, rusqlite::Connection};

use crate::scene::*;

#[test]
fn pokes_that_end_nothing_write_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sensors.db");
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&path, SqliteOptions::new()).unwrap());
    let names: Vec<String> = (0..100).map(|n| format!("t{n}")).collect();
    let tasks: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), &name[..2])).collect();
    sense(&store, 0, "kind", &tasks, waits(10, 1_000_000));
    let poke = |_: &PokeRequest| PokeOutcome::NotYet;
    // Renewals are every 100 seconds.
    let mut poker = patient(&store).lease(secs(300)).kind("kind".try_into().unwrap(), poke);
    let other = Connection::open(&path).unwrap();
    // Changes with every commit of another connection.
    let version = || other.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)).unwrap();
    let mut ticks = |range: std::ops::Range<i64>| {
        range
            .map(|now| poker.tick(at(now)).unwrap())
            .map(|report| (report.poked, report.loaded))
            .fold((0, 0), |(poked, loaded), (more, others)| (poked + more, loaded + others))
    };
    assert_eq!(ticks(0..1).1, 100);
    let before = version();
    let (poked, loaded) = ticks(1..100);
    assert!((90..=110).contains(&poked), "10 targets every 10 seconds: {poked}");
    assert_eq!((loaded, version()), (0, before), "nothing was read, nothing written");
    ticks(100..101);
    let renewed = version();
    assert_eq!(renewed - before, 1, "but the renewal");
    ticks(101..200);
    assert_eq!(version(), renewed);
}
