//! Runs and shards beside an open transaction of somebody else's. The hosts here are connections of the tests.

use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use stationmaster::ops::{AdmitRequest, StopBeforeStart};
use stationmaster::run::{ActiveQuery, RunBeat, RunClose, RunKey, RunRecord, RunStatus};
use stationmaster::store::PostgresStore;
use stationmaster::store::contract::{ShardLease, ShardWrite};
use stationmaster::testing::RawStoreExt;
use stationmaster::{Error, Timestamp};

use crate::postgres_server::Plain;
use crate::scratch::{Scratch, ScratchStore, url};

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn key(id: &str) -> RunKey {
    RunKey::new("n", id).unwrap()
}

/// Who waits for the test's own connection is found out.
fn open() -> ScratchStore {
    ScratchStore::open(|options| options.statement_timeout(Duration::from_secs(20)))
}

fn record(store: &PostgresStore, runs: &[RunRecord]) {
    store.write(|tx| tx.record_runs(runs, StopBeforeStart::Reject)).unwrap();
}

fn run(store: &PostgresStore, id: &str) -> RunRecord {
    store.read(|tx| tx.runs(&[key(id)])).unwrap().remove(0).unwrap()
}

/// A connection that has some run locked.
fn locked(scratch: &Scratch, id: &str) -> Plain {
    let other = Plain::connect(&url());
    other.ask(&format!("BEGIN; SELECT FROM {}.run WHERE id = '{id}' FOR UPDATE", scratch.0));
    other
}

/// Waits until a statement on this schema waits for a row.
fn until_one_waits(scratch: &Scratch) {
    let (plain, began) = (Plain::connect(&url()), Instant::now());
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%\"{}\".%'",
        scratch.0
    );
    while plain.number(&waiting) == 0 {
        assert!(began.elapsed() < Duration::from_secs(15), "nothing waits");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn heartbeats_pass_a_locked_run_over_and_find_it_open() {
    let ScratchStore { store, scratch } = open();
    record(&store, &[RunRecord::open(key("a"), at(0)).heartbeat(at(1)), RunRecord::open(key("b"), at(0))]);
    let host = locked(&scratch, "a");
    let beats = ["a", "b", "c"].map(|id| RunBeat::new(key(id), at(9)));
    assert_eq!(store.write(|tx| tx.beat_runs(&beats)).unwrap(), [true, true, false]);
    assert_eq!((run(&store, "a").heartbeat, run(&store, "b").heartbeat), (Some(at(1)), Some(at(9))));
    host.ask("ROLLBACK");
    assert_eq!(store.write(|tx| tx.beat_runs(&beats)).unwrap(), [true, true, false]);
    assert_eq!(run(&store, "a").heartbeat, Some(at(9)));
}

/// A host holds a run for longer than it may be silent, and rolls back.
#[test]
fn a_heartbeat_that_met_a_lock_keeps_its_run_open() {
    let ScratchStore { store, scratch } = open();
    let open = |id| RunRecord::open(key(id), at(0));
    record(&store, &[open("watched").heartbeat(at(1)), open("not yet watched"), open("ends")]);
    let close = |now| {
        let (silent_for, dead) = (Duration::from_micros(9), RunStatus::Killed);
        let closed = store.write(|tx| tx.close_silent_runs(at(now), silent_for, dead, 10)).unwrap();
        closed.into_iter().map(|run| (run.key, run.heartbeat)).collect::<Vec<_>>()
    };
    let ids = ["watched", "not yet watched", "ends"];
    let hosts = ids.map(|id| locked(&scratch, id));
    for now in [80, 90] {
        let beats = ids.map(|id| RunBeat::new(key(id), at(now)));
        assert_eq!(store.write(|tx| tx.beat_runs(&beats)).unwrap(), [true; 3]);
    }
    assert_eq!(close(200), [], "while it is locked it is passed over");
    hosts.iter().for_each(|host| drop(host.ask("ROLLBACK")));
    assert_eq!(close(99), []);
    assert_eq!(run(&store, "watched").heartbeat, Some(at(90)));
    let end = RunClose::new(key("ends"), at(95), RunStatus::Completed);
    assert_eq!(store.write(|tx| tx.close_runs(std::slice::from_ref(&end))).unwrap(), [true]);
    let (watched, new) = ((key("watched"), Some(at(90))), (key("not yet watched"), Some(at(90))));
    let mut closed = close(100);
    closed.sort();
    assert_eq!(closed, [new, watched]);
    assert_eq!(kept_beats(&scratch), 0);
}

fn kept_beats(scratch: &Scratch) -> i64 {
    Plain::connect(&url()).number(&format!("SELECT count(*) FROM {}.run_beat", scratch.0))
}

#[test]
fn heartbeats_that_were_kept_apart_go_with_their_runs() {
    let ScratchStore { store, scratch } = open();
    let open = |id| RunRecord::open(key(id), at(0));
    record(&store, &[open("ends"), open("goes on")]);
    let beat = |id, now| store.write(|tx| tx.beat_runs(&[RunBeat::new(key(id), at(now))])).unwrap();
    for id in ["ends", "goes on"] {
        let host = locked(&scratch, id);
        assert_eq!([beat(id, 5), beat(id, 7)], [[true], [true]]);
        host.ask("ROLLBACK");
    }
    assert_eq!(kept_beats(&scratch), 4);
    assert_eq!(beat("goes on", 6), [true]);
    assert_eq!(kept_beats(&scratch), 3, "one that came later stays");
    assert_eq!(beat("goes on", 8), [true]);
    assert_eq!(kept_beats(&scratch), 2);
    let end = RunClose::new(key("ends"), at(9), RunStatus::Completed);
    store.write(|tx| tx.close_runs(std::slice::from_ref(&end))).unwrap();
    assert_eq!(store.write(|tx| tx.forget_stopped_runs(at(50), 9)).unwrap(), 1);
    assert_eq!((kept_beats(&scratch), run(&store, "goes on").heartbeat), (0, Some(at(8))));
}

#[test]
fn silent_and_stopped_runs_that_are_locked_are_passed_over() {
    let ScratchStore { store, scratch } = open();
    let silent = |id| RunRecord::open(key(id), at(0)).heartbeat(at(1));
    let stopped = |id| RunRecord::open(key(id), at(0)).closed(at(3), RunStatus::Completed);
    record(&store, &[silent("a"), silent("b"), stopped("c"), stopped("d")]);
    let (silent, stopped) = (locked(&scratch, "a"), locked(&scratch, "c"));
    let dead = RunStatus::Killed;
    let closed = store.write(|tx| tx.close_silent_runs(at(99), Duration::from_micros(9), dead, 1)).unwrap();
    assert_eq!(closed.iter().map(|run| &run.key).collect::<Vec<_>>(), [&key("b")], "the next one instead");
    assert_eq!(store.write(|tx| tx.forget_stopped_runs(at(50), 1)).unwrap(), 1, "another one instead");
    assert_eq!(store.write(|tx| tx.forget_stopped_runs(at(50), 9)).unwrap(), 1, "the closed one");
    silent.ask("ROLLBACK");
    stopped.ask("ROLLBACK");
    assert_eq!(
        store.write(|tx| tx.close_silent_runs(at(99), Duration::from_micros(9), dead, 9)).unwrap().len(),
        1
    );
    assert_eq!(store.write(|tx| tx.forget_stopped_runs(at(50), 9)).unwrap(), 2);
}

/// Somebody replaces the run while it is about to be closed: with another start, or closed.
#[test]
fn a_close_decides_on_the_run_as_it_is_when_it_gets_the_lock() {
    let ScratchStore { store, scratch } = open();
    record(&store, &[RunRecord::open(key("a"), at(5)), RunRecord::open(key("b"), at(5))]);
    let host = Plain::connect(&url());
    host.ask(&format!(
        "BEGIN; UPDATE {0}.run SET start = 40 WHERE id = 'a'; UPDATE {0}.run SET stop = 7, node = 7 WHERE id = 'b'",
        scratch.0
    ));
    let closes = ["b", "a"].map(|id| RunClose::new(key(id), at(50), RunStatus::Completed));
    let closed = scope(|scope| {
        let closing = scope.spawn(|| store.write(|tx| tx.close_runs(&closes)).unwrap());
        until_one_waits(&scratch);
        host.ask("COMMIT");
        closing.join().unwrap()
    });
    assert_eq!(closed, [false, true]);
    assert_eq!((run(&store, "a").start, run(&store, "a").stop), (at(40), Some(at(50))));
    assert_eq!(run(&store, "b").stop, Some(at(7)));
    let found =
        |from, to| store.read(|tx| tx.active_runs(&ActiveQuery::new(at(from), at(to)))).unwrap().len();
    assert_eq!((found(41, 42), found(51, 60), found(20, 30)), (1, 0, 0), "it is filed by the new start");
}

/// A transaction that uses a new namespace, or files a run farther away, keeps no other waiting. So both may
/// be noted twice.
#[test]
fn namespaces_and_levels_that_were_noted_twice_count_once() {
    let ScratchStore { store, scratch } = open();
    record(
        &store,
        &[
            RunRecord::open(key("a"), at(1000)).closed(at(9000), RunStatus::Completed),
            RunRecord::open(key("b"), at(1000)),
        ],
    );
    let (plain, schema) = (Plain::connect(&url()), &scratch.0);
    plain.ask(&format!(
        "INSERT INTO {schema}.namespace (no, name) SELECT no, name FROM {schema}.namespace;
         INSERT INTO {schema}.level (ns, bit, mask, before, after) SELECT ns, bit, mask, 0, after FROM {schema}.level"
    ));
    let window = ActiveQuery::new(at(5000), at(6000));
    let named = window.clone().namespace("n".try_into().unwrap());
    for query in [&window, &named, &window.clone().limit(9)] {
        let found =
            store.read(|tx| Ok((tx.active_runs(query)?.len(), tx.active_run_places(query)?.len()))).unwrap();
        assert_eq!(found, (2, 2), "{query:?}");
    }
    assert_eq!(store.read(|tx| tx.count_active_runs(&window)).unwrap(), 2);
    assert_eq!(store.write(|tx| tx.forget_stopped_runs(at(9001), 9)).unwrap(), 1);
}

#[test]
fn what_reaches_no_farther_than_a_later_run_is_not_kept() {
    let ScratchStore { store, scratch } = open();
    for stop in 1..40 {
        let (id, other) = (format!("a{stop}"), format!("b{stop}"));
        record(
            &store,
            &[
                RunRecord::open(key(&id), at(-1)).closed(at(stop), RunStatus::Completed),
                RunRecord::open(key(&other), at(-stop)),
            ],
        );
        let close = [RunClose::new(key(&other), at(1), RunStatus::Completed)];
        assert_eq!(store.write(|tx| tx.close_runs(&close)).unwrap(), [true]);
    }
    let rows =
        format!("SELECT max(count) FROM (SELECT count(*) FROM {}.level GROUP BY ns, bit) level", scratch.0);
    assert_eq!(Plain::connect(&url()).number(&rows), 1);
    let found = store.read(|tx| tx.count_active_runs(&ActiveQuery::new(at(-30), at(-29)))).unwrap();
    assert_eq!(found, 10);
}

#[test]
fn a_shard_is_taken_by_the_epoch_that_it_has_under_the_lock() {
    let ScratchStore { store, scratch } = open();
    let write = |shard, was, epoch| {
        let lease = ShardLease::new(shard, Some("w".try_into().unwrap()), epoch, at(9));
        ShardWrite::new(was, lease)
    };
    let put = |writes: &[ShardWrite]| {
        store.write_raw(|tx| tx.put_shards_if_unchanged(writes).map_err(Error::Store)).unwrap()
    };
    assert_eq!(put(&[write(0, 0, 1), write(1, 0, 1), write(2, 3, 4)]), [true, true, false]);
    let host = Plain::connect(&url());
    host.ask(&format!("BEGIN; UPDATE {}.shard SET epoch = 2 WHERE shard = 1", scratch.0));
    let written = scope(|scope| {
        let writing = scope.spawn(|| put(&[write(1, 1, 2), write(0, 1, 2)]));
        until_one_waits(&scratch);
        host.ask("COMMIT");
        writing.join().unwrap()
    });
    assert_eq!(written, [false, true]);
    host.ask(&format!(
        "BEGIN; INSERT INTO {}.shard (shard, kind, holder, epoch, expires_at, load) VALUES (5, '', 'other', 1, 9, 0)",
        scratch.0
    ));
    let written = scope(|scope| {
        let writing = scope.spawn(|| put(&[write(5, 0, 1)]));
        until_one_waits(&scratch);
        host.ask("COMMIT");
        writing.join().unwrap()
    });
    assert_eq!(written, [false]);
}

/// A task whose run somebody else has locked is left for later, and so it must not be in the way of others.
#[test]
fn upkeep_reaches_what_is_behind_the_tasks_that_it_passes_over() {
    let ScratchStore { store, scratch } = open();
    let names: Vec<String> = (0..9).map(|n| format!("t{n}")).collect();
    let task = |name: &String| crate::task(name).attempts_as_runs(true);
    let tasks: Vec<_> = names.iter().map(task).collect();
    store.write(|tx| tx.enqueue(at(0), &tasks)).unwrap();
    let order =
        AdmitRequest::new("h".try_into().unwrap(), "tick".try_into().unwrap(), 9, Duration::from_micros(9));
    let granted = store.write(|tx| tx.admit(at(1), &order)).unwrap().granted;
    let leases: Vec<_> = granted.iter().map(|task| task.lease_ref()).collect();
    assert_eq!(store.write(|tx| tx.start(at(2), &leases)).unwrap(), [true; 9]);
    let runs: Vec<RunKey> = granted.iter().map(|task| task.attempt_run(1).unwrap()).collect();
    let hosts: Vec<Plain> = runs[..7].iter().map(|run| locked(&scratch, run.id.as_str())).collect();
    let reaped = |limit| -> Vec<usize> {
        let reaped = store.write(|tx| tx.reap(at(99), limit)).unwrap();
        let place = |id| granted.iter().position(|task| task.id == id).unwrap();
        reaped.iter().map(|reaped| place(reaped.task.id)).collect()
    };
    assert_eq!(reaped(0), [0; 0]);
    assert_eq!(reaped(1), [7]);
    assert_eq!(reaped(2), [8]);
    assert_eq!(reaped(2), [0; 0]);
    for host in &hosts {
        host.ask("ROLLBACK");
    }
    assert_eq!(reaped(2), [0, 1]);
    assert_eq!(reaped(9), [2, 3, 4, 5, 6]);
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}
