//! Signs of life, silence, and forgetting.

use super::random::Random;
use super::world::{World, at};
use crate::run::{ActiveQuery, RunBeat, RunClose, RunKey, RunRecord, RunStatus};
use crate::store::Store;
use crate::time::Timestamp;

cases!("signs":
    only_open_runs_beat,
    a_heartbeat_never_goes_back,
    a_run_is_silent_after_its_last_heartbeat,
    runs_that_are_not_watched_are_never_silent,
    the_longest_silent_come_first,
    only_closed_runs_are_forgotten,
    forgetting_is_done_in_steps,
    forgetting_is_exact_at_every_instant,
);

fn key(id: &str) -> RunKey {
    RunKey::new("n", id).unwrap()
}

fn run(id: &str, start: i64, stop: Option<i64>) -> RunRecord {
    let run = RunRecord::open(key(id), at(start));
    stop.into_iter().fold(run, |run, stop| run.closed(at(stop), RunStatus::Completed))
}

fn heartbeat(world: World<'_>, id: &str) -> Option<i64> {
    let run = world.read(|tx| tx.runs(&[key(id)])).remove(0).expect("the run is there");
    run.heartbeat.map(Timestamp::as_micros)
}

fn silent(world: World<'_>, before: i64, limit: usize) -> Vec<String> {
    let runs = world.read(|tx| tx.silent_runs(at(before), limit));
    runs.iter().map(|run| run.key.id.to_string()).collect()
}

fn only_open_runs_beat(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| {
        tx.put_runs(&[run("open", 1, None), run("closed", 1, Some(2)), run("paused", 1, None).suspend(at(3))])
    });
    let beats = ["open", "closed", "nobody", "paused"].map(|id| RunBeat::new(key(id), at(50)));
    let stranger = RunBeat::new(RunKey::new("nowhere", "open").unwrap(), at(50));
    let answers =
        world.write(|tx| tx.beat_runs_if_open(&[&beats[..], std::slice::from_ref(&stranger)].concat()));
    assert_eq!(answers, [true, false, false, true, false]);
    assert_eq!((heartbeat(world, "open"), heartbeat(world, "closed")), (Some(50), None));
    assert_eq!(heartbeat(world, "paused"), Some(50));
}

fn a_heartbeat_never_goes_back(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_runs(&[run("a", 1, None)]));
    for (beat, expected) in [(10, 10), (30, 30), (20, 30), (30, 30), (31, 31)] {
        let moved = world.write(|tx| tx.beat_runs_if_open(&[RunBeat::new(key("a"), at(beat))]));
        assert_eq!((moved, heartbeat(world, "a")), (vec![true], Some(expected)));
    }
    let several = [50, 70, 60].map(|beat| RunBeat::new(key("a"), at(beat)));
    world.write(|tx| tx.beat_runs_if_open(&several));
    assert_eq!(heartbeat(world, "a"), Some(70));
}

fn a_run_is_silent_after_its_last_heartbeat(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_runs(&[run("a", 1, None).heartbeat(at(10))]));
    assert_eq!(silent(world, 10, 9), [""; 0]);
    assert_eq!(silent(world, 11, 9), ["a"]);
    world.write(|tx| tx.beat_runs_if_open(&[RunBeat::new(key("a"), at(20))]));
    assert_eq!((silent(world, 20, 9).len(), silent(world, 21, 9).len()), (0, 1));
    world.write(|tx| tx.close_runs_if_open(&[RunClose::new(key("a"), at(30), RunStatus::Killed)]));
    assert_eq!(silent(world, 99, 9), [""; 0]);
    assert_eq!(heartbeat(world, "a"), Some(20), "a closed run keeps its last heartbeat");
}

fn runs_that_are_not_watched_are_never_silent(store: &dyn Store) {
    let world = World(store);
    let watched = run("watched", 1, None).heartbeat(at(5));
    let paused = watched.clone().suspend(at(6));
    world.write(|tx| {
        tx.put_runs(&[run("no sign", 1, None), run("closed", 1, Some(9)).heartbeat(at(5)), paused.clone()])
    });
    assert_eq!(silent(world, i64::MAX, 9), [""; 0]);
    world.write(|tx| tx.put_runs(&[paused.clone().resume(at(8))]));
    assert_eq!((silent(world, 8, 9).len(), silent(world, 9, 9).len()), (0, 1), "to resume is a sign of life");
    world.write(|tx| tx.delete_runs(&[key("watched")]));
    assert_eq!(silent(world, i64::MAX, 9), [""; 0]);
}

fn the_longest_silent_come_first(store: &dyn Store) {
    let world = World(store);
    let runs: Vec<RunRecord> = [(30, "a"), (10, "b"), (20, "c"), (40, "d")]
        .map(|(beat, id)| run(id, 1, None).heartbeat(at(beat)))
        .to_vec();
    world.write(|tx| tx.put_runs(&runs));
    assert_eq!(silent(world, 40, 9), ["b", "c", "a"]);
    assert_eq!(silent(world, 40, 2), ["b", "c"]);
    let whole = world.read(|tx| tx.silent_runs(at(40), 1));
    assert_eq!(whole, [runs[1].clone()]);
}

fn left(world: World<'_>) -> Vec<String> {
    let (first, last) = super::world::ends_of_time();
    let runs = world.read(|tx| tx.active_runs(&ActiveQuery::new(first, last)));
    let mut ids: Vec<String> = runs.iter().map(|run| run.key.id.to_string()).collect();
    ids.sort();
    ids
}

fn only_closed_runs_are_forgotten(store: &dyn Store) {
    let world = World(store);
    let runs = [
        run("ancient and open", -1_000_000, None),
        run("ancient and long", -1_000_000, Some(500)),
        run("old", 5, Some(6)),
        run("on the instant", 90, Some(100)),
        run("before it", 90, Some(99)),
        run("backwards", 200, Some(50)),
        run("paused", 5, None).suspend(at(6)),
    ];
    world.write(|tx| tx.put_runs(&runs));
    assert_eq!(world.write(|tx| tx.forget_stopped_runs(at(100), 99)), 2);
    let kept = ["ancient and long", "ancient and open", "backwards", "on the instant", "paused"];
    assert_eq!(left(world), kept);
    let all = world.write(|tx| tx.forget_stopped_runs(at(i64::MAX), 99));
    assert_eq!((all, left(world)), (3, vec!["ancient and open".to_string(), "paused".to_string()]));
}

fn forgetting_is_done_in_steps(store: &dyn Store) {
    let world = World(store);
    let mut runs = Vec::new();
    for n in 0..40 {
        let mut run = run(&format!("{n}"), n, Some(2 * n));
        run.key = RunKey::new(["a", "b", "c"][n as usize % 3], format!("{n}")).unwrap();
        runs.push(run);
    }
    world.write(|tx| tx.put_runs(&runs));
    let mut steps = Vec::new();
    loop {
        let gone = world.write(|tx| tx.forget_stopped_runs(at(60), 7));
        assert!(gone <= 7);
        steps.push(gone);
        assert_eq!(left(world).len(), 40 - steps.iter().sum::<usize>());
        if gone < 7 {
            break;
        }
    }
    assert_eq!(steps, [7, 7, 7, 7, 2]);
    assert_eq!(world.write(|tx| tx.forget_stopped_runs(at(60), 0)), 0);
}

fn forgetting_is_exact_at_every_instant(store: &dyn Store) {
    let world = World(store);
    let mut random = Random::new(11);
    let mut runs: Vec<RunRecord> = (0..150)
        .map(|n| {
            let start = random.instant(200) - 100;
            let stop = (!random.once_in(6)).then(|| start + random.instant_of_any_size(8) - 1);
            run(&format!("{n:03}"), start, stop)
        })
        .collect();
    world.write(|tx| tx.put_runs(&runs));
    for before in (-110..330).step_by(9) {
        let (first, last) = super::world::ends_of_time();
        world.write(|tx| tx.forget_stopped_runs(at(before), usize::MAX));
        let gone = |run: &RunRecord| run.start < at(before) && run.stop.is_some_and(|stop| stop < at(before));
        runs.retain(|run| !gone(run));
        let kept = world.read(|tx| tx.active_runs(&ActiveQuery::new(first, last)));
        let mut expected = runs.clone();
        expected.sort_by_key(RunRecord::place);
        assert_eq!(kept, expected, "before {before}");
    }
}
