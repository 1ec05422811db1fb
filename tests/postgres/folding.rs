//! Folds where no admitter runs.

use std::sync::Arc;

use stationmaster::Timestamp;
use stationmaster::service::{Service, Upkeep};

use crate::postgres_server::Plain;
use crate::scratch::{Scratch, query, rows, url};
use crate::task;

/// As many deltas as two folds take, none of which changes a sum.
const DELTAS: i64 = 15_000;

fn scene() -> Scratch {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[task("waits")])).unwrap();
    query(&format!(
        "INSERT INTO \"{0}\".delta (lane, ready, tasks, slots, leases, came) \
         SELECT lane, 0, 0, 0, 0, 0 FROM \"{0}\".task, generate_series(1, {DELTAS})",
        scratch.0
    ));
    scratch
}

fn deltas(scratch: &Scratch) -> i64 {
    rows(&format!("SELECT count(*) FROM \"{}\".delta", scratch.0))[0].get(0)
}

#[test]
fn upkeep_folds_what_no_tick_folds() {
    let scratch = scene();
    let store = Arc::new(scratch.open(|options| options));
    store.write(|tx| tx.tasks(&[task("waits").key])).unwrap();
    assert_eq!(deltas(&scratch), DELTAS + 1, "a host's own transactions fold nothing");
    Upkeep::new(store.clone()).tick(Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(deltas(&scratch), 0);
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}

#[test]
fn upkeep_does_not_wait_for_who_keeps_ticks_out() {
    let scratch = scene();
    let host = Plain::connect(&url());
    host.ask(&format!("BEGIN; LOCK TABLE \"{}\".tick_lock IN SHARE ROW EXCLUSIVE MODE", scratch.0));
    let mut upkeep = Upkeep::new(Arc::new(scratch.open(|options| options)));
    // It would wait for as long as the host is open, and then fail.
    upkeep.tick(Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(deltas(&scratch), DELTAS + 1);
}
