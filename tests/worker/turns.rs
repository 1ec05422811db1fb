//! What follows the last two tasks of a run, when both end at once on PostgreSQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stationmaster::clock::{Clock, SystemClock};
use stationmaster::service::{Attempt, LoopHandle, WakingStore};
use stationmaster::store::Store;
use stationmaster::{Result, TaskState};

use crate::scene::*;
use crate::stores::scratch::{ScratchStore, rows};

/// What the handlers share.
#[derive(Default)]
struct Seen {
    /// How many of the two ends have looked for the other task.
    looks: AtomicUsize,
    /// How many have enqueued the successor.
    enqueued: AtomicUsize,
}

/// Whether a statement on this schema waits for a lock.
fn one_waits(schema: &str) -> bool {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE";
    rows(&format!("{waiting} '%\"{schema}\".%'"))[0].get::<_, i64>(0) > 0
}

/// Ends one of the two, and enqueues the successor if both have ended. The first end stays open until the other waits
/// for it. If the other took no turn, it stays open until that has looked, too.
fn end(attempt: &Attempt, seen: &Seen, schema: &str) -> Result<()> {
    if attempt.task().key.task.as_str() == "right" {
        until("the other is ending", || seen.looks.load(Ordering::SeqCst) > 0);
    }
    let mut is_last = false;
    attempt.in_turn(&["ns/w/r"]).end((), |tx| {
        let both = tx.tasks(&[key("left"), key("right")])?;
        is_last = both.iter().flatten().all(|task| task.state == TaskState::Success);
        if seen.looks.fetch_add(1, Ordering::SeqCst) == 0 {
            until("the other waits", || one_waits(schema) || seen.looks.load(Ordering::SeqCst) > 1);
        }
        if is_last {
            tx.enqueue(SystemClock.now(), &[task("successor")])?;
        }
        Ok(())
    })?;
    seen.enqueued.fetch_add(usize::from(is_last), Ordering::SeqCst);
    Ok(())
}

#[test]
fn of_two_that_end_at_once_the_second_enqueues_what_follows() {
    let scratch = ScratchStore::open(|options| options);
    let schema = scratch.scratch.0.to_string();
    let handle = LoopHandle::new();
    let store: Arc<dyn Store> = Arc::new(WakingStore::new(scratch, handle.clone()));
    enqueue(&store, &[task("left"), task("right")]);
    let seen = Arc::new(Seen::default());
    let shared = seen.clone();
    let worker = worker(&store).handler(move |attempt: &Attempt| match attempt.task().key.task.as_str() {
        "successor" => Ok(()),
        _ => end(attempt, &shared, &schema),
    });
    let running = run(worker, &handle);
    until("both have ended", || ["left", "right"].iter().all(|name| state(&store, name).is_end()));
    running.stop();
    assert_eq!(["left", "right"].map(|name| state(&store, name)), [TaskState::Success; 2]);
    assert_eq!(seen.enqueued.load(Ordering::SeqCst), 1);
    assert!(store.read(|tx| tx.tasks(&[key("successor")])).unwrap()[0].is_some());
}
