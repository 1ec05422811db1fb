//! Work that comes in long pieces: the store sends it in short ones, so that each statement ends within the server's limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stationmaster::service::{Admitter, Service};
use stationmaster::store::{Inserted, PostgresStore};
use stationmaster::{NewTask, TaskId, Timestamp};

use crate::scratch::Scratch;
use crate::task;

/// One statement that handles all of them takes several times as long as the limit; one for 10,000 takes a fraction of it.
const TASKS: usize = 200_000;

/// The limit of the store under test.
const LIMIT: Duration = Duration::from_secs(1);

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn limited(scratch: &Scratch) -> PostgresStore {
    scratch.open(|options| options.statement_timeout(LIMIT))
}

fn tasks() -> Vec<NewTask> {
    (0..TASKS).map(|n| task(&n.to_string()).not_before(at(10))).collect()
}

#[test]
fn however_many_tasks_come_due_at_once_ticks_come_through() {
    let scratch = Scratch::new();
    let fill = scratch.open(|options| options.statement_timeout(Duration::ZERO));
    for piece in tasks().chunks(10_000) {
        fill.write(|tx| tx.enqueue(at(0), piece)).unwrap();
    }
    let mut admitter = Admitter::new(Arc::new(limited(&scratch)), "a".try_into().unwrap());
    let (mut promoted, mut granted) = (0, 0);
    for _ in 0..100 {
        // On a busy machine a single tick may still take too long; what must not happen is that none gets through.
        let Ok(tick) = admitter.tick(at(11)) else { continue };
        promoted += tick.promoted;
        granted += tick.granted.len();
        if promoted == TASKS {
            break;
        }
        assert_eq!(tick.next_due, Some(at(11)), "there is more to do at once");
    }
    assert_eq!((promoted, granted), (TASKS, 128), "promoted, and granted into the default pool");
}

#[test]
fn an_enqueue_of_any_length_is_sent_in_pieces_and_committed_as_one() {
    let scratch = Scratch::new();
    let some: Vec<NewTask> = (0..10_000).map(|n| task(&format!("some {n}"))).collect();
    let began = Instant::now();
    scratch.open(|options| options).write(|tx| tx.enqueue(at(0), &some)).unwrap();
    // On a slow machine more, but never enough for one statement with all.
    let limit = LIMIT.max(5 * began.elapsed());
    let store = scratch.open(|options| options.statement_timeout(limit));
    let mut all = tasks();
    all.push(all[0].clone());
    // On a busy machine even a piece may meet the limit now and then. One statement for all never ends within it.
    let inserted = (0..20).find_map(|_| store.write(|tx| tx.enqueue(at(0), &all)).ok()).unwrap();
    // Calls that met the limit have drawn numbers, too.
    let Inserted::New(TaskId(first)) = inserted[0] else { panic!("{:?}", inserted[0]) };
    let expected = (first..).map(|id| Inserted::New(TaskId(id))).take(TASKS);
    assert!(inserted[..TASKS].iter().cloned().eq(expected), "numbers rise across pieces");
    assert_eq!(inserted[TASKS], Inserted::Exists(TaskId(first)), "a key of an earlier piece is known");
    let more: Vec<NewTask> = (0..10_001).map(|n| task(&format!("more {n}"))).collect();
    let undone = store.write(|tx| {
        tx.enqueue(at(0), &more)?;
        Err::<(), _>(stationmaster::Error::abort("not this time"))
    });
    assert!(undone.is_err());
    let ends = [&more[0], &more[10_000]].map(|task| task.key.clone());
    let found = store.read(|tx| tx.tasks(&ends)).unwrap();
    assert_eq!(found, [None, None], "all of it or nothing");
}
