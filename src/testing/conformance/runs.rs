//! Runs: kept, corrected, closed and deleted.

use super::world::{World, at, ends_of_time};
use crate::run::{ActiveQuery, RunClose, RunKey, RunRecord, RunStatus, StartMethod, Suspension};
use crate::store::Store;

cases!("runs":
    a_run_is_stored_as_it_was_put,
    found_by_key_in_the_order_of_the_arguments,
    a_run_is_replaced_under_its_key,
    of_equal_keys_in_one_call_the_last_counts,
    a_corrected_run_is_found_in_its_new_place_only,
    only_open_runs_are_closed,
    a_stop_before_the_start_is_stored_as_the_start,
    deleted_runs_are_gone,
);

fn key(namespace: &str, id: &str) -> RunKey {
    RunKey::new(namespace, id).unwrap()
}

fn run(id: &str, start: i64, stop: Option<i64>) -> RunRecord {
    let run = RunRecord::open(key("n", id), at(start));
    stop.into_iter().fold(run, |run, stop| run.closed(at(stop), RunStatus::Completed))
}

fn active(world: World<'_>, begin: i64, end: i64) -> Vec<String> {
    let runs = world.read(|tx| tx.active_runs(&ActiveQuery::new(at(begin), at(end))));
    runs.iter().map(|run| run.key.id.to_string()).collect()
}

fn a_run_is_stored_as_it_was_put(store: &dyn Store) {
    let world = World(store);
    let statuses = [
        RunStatus::Pending,
        RunStatus::Starting,
        RunStatus::Running,
        RunStatus::Suspended,
        RunStatus::Resuming,
        RunStatus::Completed,
        RunStatus::Failed,
        RunStatus::Killed,
        RunStatus::Rejected,
    ];
    let mut runs = vec![run("bare", 3, None), run("closed", -3, Some(3))];
    for (status, micros) in statuses.into_iter().zip(0..) {
        let mut full = RunRecord::open(key("n", &format!("{micros}")), at(micros))
            .workflow("w".try_into().unwrap())
            .method(
                [StartMethod::Manual, StartMethod::Scheduled, StartMethod::Triggered][micros as usize % 3],
            )
            .user("")
            .attributes("{\"a\": 1}")
            .running(at(micros + 1))
            .heartbeat(at(micros - 1));
        full.suspended =
            (0..micros).map(|n| Suspension::new(at(n), (n % 2 == 0).then(|| at(n + 1)))).collect();
        full.nodes = (0..micros).map(|n| (at(n - 4), [0, 1, u32::MAX][n as usize % 3])).collect();
        full.status = status;
        runs.push(full);
    }
    world.write(|tx| tx.put_runs(&runs));
    let keys: Vec<RunKey> = runs.iter().map(|run| run.key.clone()).collect();
    let found: Vec<RunRecord> = world.read(|tx| tx.runs(&keys)).into_iter().flatten().collect();
    assert_eq!(found, runs);
    let (first, last) = ends_of_time();
    let listed = world.read(|tx| tx.active_runs(&ActiveQuery::new(first, last)));
    assert_eq!(listed.len(), runs.len());
    assert!(listed.iter().all(|run| runs.contains(run)), "the index answers whole records");
}

fn found_by_key_in_the_order_of_the_arguments(store: &dyn Store) {
    let world = World(store);
    let other = RunRecord::open(key("m", "a"), at(9));
    world.write(|tx| tx.put_runs(&[run("a", 1, None), run("b", 2, None), other.clone()]));
    let asked = [key("n", "b"), key("m", "b"), key("m", "a"), key("n", "a"), key("n", "b")];
    let found = world.read(|tx| tx.runs(&asked));
    let (a, b) = (Some(run("a", 1, None)), Some(run("b", 2, None)));
    assert_eq!(found, [b.clone(), None, Some(other), a, b]);
}

fn a_run_is_replaced_under_its_key(store: &dyn Store) {
    let world = World(store);
    for version in [
        run("a", 10, None),
        run("a", 10, Some(20)).user("x"),
        run("a", 10, Some(30)),
        run("a", 10, None).attributes("re-opened"),
        run("a", 5, Some(5)),
    ] {
        world.write(|tx| tx.put_runs(std::slice::from_ref(&version)));
        assert_eq!(world.read(|tx| tx.runs(&[key("n", "a")])), [Some(version)]);
    }
}

fn of_equal_keys_in_one_call_the_last_counts(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_runs(&[run("a", 10, None), run("b", 1, None), run("a", 20, Some(25))]));
    assert_eq!(world.read(|tx| tx.runs(&[key("n", "a")])), [Some(run("a", 20, Some(25)))]);
    assert_eq!(active(world, 0, 15), ["b"]);
    assert_eq!(active(world, 0, 25), ["b", "a"]);
}

fn a_corrected_run_is_found_in_its_new_place_only(store: &dyn Store) {
    let world = World(store);
    let seen = || {
        [active(world, 0, 10), active(world, 20, 30), active(world, 1_000_000, 1_000_001)].map(|a| a.len())
    };
    for (version, expected) in [
        (run("a", 5, None), [1, 1, 1]),
        (run("a", 5, Some(9)), [1, 0, 0]),
        (run("a", 5, Some(25)), [1, 1, 0]),
        (run("a", 15, Some(25)), [0, 1, 0]),
        (run("a", 15, Some(1_000_000)), [0, 1, 1]),
        (run("a", 40, None), [0, 0, 1]),
    ] {
        world.write(|tx| tx.put_runs(std::slice::from_ref(&version)));
        assert_eq!(seen(), expected, "{version:?}");
    }
}

fn only_open_runs_are_closed(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_runs(&[run("a", 10, None).user("u"), run("b", 10, Some(20))]));
    let close = |id: &str, stop| RunClose::new(key("n", id), at(stop), RunStatus::Killed);
    let closes = [close("b", 99), close("nobody", 99), close("a", 30), close("a", 40)];
    let answers = world.write(|tx| tx.close_runs_if_open(&closes));
    assert_eq!(answers, [false, false, true, false]);
    let closed = run("a", 10, None).user("u").closed(at(30), RunStatus::Killed);
    let found = world.read(|tx| tx.runs(&["a", "b"].map(|id| key("n", id))));
    assert_eq!(found, [Some(closed), Some(run("b", 10, Some(20)))]);
    assert_eq!(active(world, 25, 99), ["a"]);
    assert_eq!(active(world, 31, 99), [""; 0]);
}

fn a_stop_before_the_start_is_stored_as_the_start(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_runs(&[run("a", 10, None)]));
    let closes = [RunClose::new(key("n", "a"), at(3), RunStatus::Failed)];
    assert_eq!(world.write(|tx| tx.close_runs_if_open(&closes)), [true]);
    let expected = run("a", 10, None).closed(at(10), RunStatus::Failed);
    assert_eq!(world.read(|tx| tx.runs(&[key("n", "a")])), [Some(expected)]);
    assert_eq!((active(world, 10, 11).len(), active(world, 11, 12).len()), (1, 0));
}

fn deleted_runs_are_gone(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_runs(&[run("a", 1, None), run("b", 1, Some(2)), run("c", 1, Some(2))]));
    let asked = ["b", "nobody", "a", "b"].map(|id| key("n", id));
    assert_eq!(world.write(|tx| tx.delete_runs(&asked)), 2);
    assert_eq!(world.read(|tx| tx.runs(&asked)), [None, None, None, None]);
    assert_eq!(active(world, 0, 99), ["c"]);
    assert_eq!(world.write(|tx| tx.delete_runs(&asked)), 0);
}
