//! Looking ahead beside ticks and locked rows, and how often it waits for the server.

use std::time::Duration;

use stationmaster::ops::{AdmitRequest, Position};
use stationmaster::{TaskRecord, Timestamp};

use crate::postgres_server::Plain;
use crate::scratch::{ScratchStore, url};
use crate::task;

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn names(tasks: &[TaskRecord]) -> Vec<&str> {
    tasks.iter().map(|task| task.key.task.as_str()).collect()
}

/// What is locked is part of a preview. The tick passes it over.
#[test]
fn a_preview_waits_for_no_tick_and_for_no_task() {
    let ScratchStore { store, scratch } =
        ScratchStore::open(|options| options.statement_timeout(Duration::from_secs(20)));
    let tasks = [task("ready"), task("due").not_before(at(5)).priority(-1), task("free").priority(-2)];
    store.write(|tx| tx.enqueue(at(0), &tasks)).unwrap();
    let order =
        AdmitRequest::new("h".try_into().unwrap(), "tick".try_into().unwrap(), 9, Duration::from_secs(60));
    let (ticks, host) = (Plain::connect(&url()), Plain::connect(&url()));
    ticks.ask(&format!("BEGIN; LOCK TABLE {}.tick_lock IN EXCLUSIVE MODE", scratch.0));
    host.ask(&format!(
        "BEGIN; SELECT FROM {0}.ready ORDER BY rank LIMIT 1 FOR UPDATE; SELECT FROM {0}.idle FOR UPDATE",
        scratch.0
    ));
    let preview = store.read(|tx| tx.preview(at(9), &order)).unwrap();
    assert_eq!((names(&preview.granted), preview.promoted), (vec!["ready", "due", "free"], 1));
    let keys = [task("free").key, task("due").key];
    let positions = store.read(|tx| tx.positions(&keys, 9)).unwrap();
    assert_eq!(positions, [Position::Before(1), Position::NotReady]);
    ticks.ask("ROLLBACK");
    let tick = store.write(|tx| tx.admit(at(9), &order)).unwrap();
    assert_eq!((names(&tick.granted), tick.promoted), (vec!["free"], 0));
    // The bound of the instants rose over what was locked.
    let left = store.read(|tx| tx.preview(at(9), &order)).unwrap();
    assert_eq!((names(&left.granted), left.promoted), (vec!["ready", "due"], 1));
    host.ask("ROLLBACK");
    assert_eq!(store.read(|tx| tx.preview(at(9), &order)).unwrap(), left);
}
