//! Rows that nothing would ask for again go.

use std::sync::Arc;
use std::time::Duration;

use stationmaster::ops::Mark;
use stationmaster::service::{Service, Upkeep};
use stationmaster::{TaskState, Timestamp};

use crate::scratch::{Scratch, query, rows};
use crate::task;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn count(scratch: &Scratch, table: &str) -> i64 {
    rows(&format!("SELECT count(*) FROM \"{}\".{table}", scratch.0))[0].get(0)
}

/// A renewal may commit after its lease ended and its task was forgotten.
#[test]
fn heartbeats_of_tasks_that_are_gone_are_forgotten() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    let forget = || store.write(|tx| tx.forget_ended(at(9), Duration::ZERO, 10)).unwrap();
    store.write(|tx| tx.enqueue(at(0), &[task("gone"), task("here")])).unwrap();
    let end = Mark::new(task("gone").key, TaskState::Success, "");
    store.write(|tx| tx.mark(at(1), std::slice::from_ref(&end))).unwrap();
    let beat = |of: &str| {
        let found = rows(&format!("SELECT no FROM \"{}\".task WHERE task = '{of}'", scratch.0));
        let no: i64 = found[0].get(0);
        format!("INSERT INTO \"{}\".beat (no, epoch, expires_at) VALUES ({no}, 1, 0)", scratch.0)
    };
    let (late, of_another) = (beat("gone"), beat("here"));
    assert_eq!(forget(), 1);
    query(&format!("{late};{of_another}"));
    assert_eq!((count(&scratch, "beat"), forget(), count(&scratch, "beat")), (2, 0, 1));
    query(&format!("DELETE FROM \"{0}\".task; DELETE FROM \"{0}\".ready", scratch.0));
    assert_eq!(
        (forget(), count(&scratch, "beat")),
        (0, 0),
        "without any task all are of tasks that are gone"
    );
}

/// A host that gives names in its own transactions only forgets none.
#[test]
fn upkeep_forgets_names_that_were_not_given_for_a_day() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    query(&format!("INSERT INTO \"{}\".turn SELECT 'run ' || n, 0 FROM generate_series(1, 15) n", scratch.0));
    store.write(|tx| tx.serialize(&["today"])).unwrap();
    let left = count(&scratch, "turn");
    let mut upkeep = Upkeep::new(Arc::new(store));
    let ticks = (left as usize).div_ceil(10);
    (0..ticks).for_each(|tick| drop(upkeep.tick(at(tick as i64)).unwrap()));
    assert_eq!(rows(&format!("SELECT name FROM \"{}\".turn", scratch.0))[0].get::<_, &str>(0), "today");
    assert_eq!(count(&scratch, "turn"), 1);
}
