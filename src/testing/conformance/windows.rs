//! Which runs were active: the index against the rule.

use super::random::Random;
use super::world::{World, at, ends_of_time};
use crate::id::Namespace;
use crate::run::{ActiveQuery, RunKey, RunRecord, RunStatus};
use crate::store::Store;

cases!("windows":
    the_window_is_half_open_and_the_stop_inclusive,
    an_empty_window_holds_nothing,
    results_come_by_start_then_namespace_then_id,
    namespaces_are_a_filter,
    every_small_window_is_answered_exactly,
    lengths_around_powers_of_two,
    far_and_negative_times,
    storms_of_equal_starts,
    a_run_that_stops_before_it_starts_obeys_the_rule,
    any_set_under_change,
);

fn run(id: &str, start: i64, stop: Option<i64>) -> RunRecord {
    let run = RunRecord::open(RunKey::new("n", id).unwrap(), at(start));
    stop.into_iter().fold(run, |run, stop| run.closed(at(stop), RunStatus::Completed))
}

fn ask(world: World<'_>, query: &ActiveQuery) -> Vec<RunRecord> {
    world.read(|tx| tx.active_runs(query))
}

/// Applies the rule itself, written out again: what `[begin, end)` must return.
fn by_the_rule(runs: &[RunRecord], query: &ActiveQuery) -> Vec<RunRecord> {
    let (begin, end) = (query.begin, query.end);
    let mut hits: Vec<RunRecord> = runs
        .iter()
        .filter(|run| query.namespaces.is_empty() || query.namespaces.contains(&run.key.namespace))
        .filter(|run| begin < end && run.start < end && run.stop.is_none_or(|stop| stop >= begin))
        .cloned()
        .collect();
    hits.sort_by(|a, b| (a.start, &a.key).cmp(&(b.start, &b.key)));
    hits
}

fn compare(world: World<'_>, runs: &[RunRecord], begin: i64, end: i64) {
    let query = ActiveQuery::new(at(begin), at(end));
    let (found, expected) = (ask(world, &query), by_the_rule(runs, &query));
    let ids = |runs: &[RunRecord]| runs.iter().map(|run| run.key.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&found), ids(&expected), "[{begin}, {end})");
    assert_eq!(found, expected, "[{begin}, {end})");
}

fn the_window_is_half_open_and_the_stop_inclusive(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_runs(&[run("closed", 10, Some(20)), run("open", 10, None)]));
    for (begin, end, closed, open) in [
        (0, 10, false, false),
        (0, 11, true, true),
        (20, 21, true, true),
        (21, 22, false, true),
        (15, 16, true, true),
        (0, 99, true, true),
    ] {
        let found = ask(world, &ActiveQuery::new(at(begin), at(end)));
        let has = |id: &str| found.iter().any(|run| run.key.id.as_str() == id);
        assert_eq!((has("closed"), has("open")), (closed, open), "[{begin}, {end})");
    }
}

fn an_empty_window_holds_nothing(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_runs(&[run("closed", 0, Some(20)), run("open", 0, None)]));
    for (begin, end) in [(10, 10), (10, 9), (0, 0), (i64::MAX, i64::MIN)] {
        assert_eq!(ask(world, &ActiveQuery::new(at(begin), at(end))), [], "[{begin}, {end})");
    }
}

fn results_come_by_start_then_namespace_then_id(store: &dyn Store) {
    let world = World(store);
    let mut runs = Vec::new();
    for (start, stop) in [(5, Some(9)), (3, None), (5, None), (3, Some(300))] {
        for (namespace, id) in [("b", "x"), ("a", "y"), ("a", "x"), ("B", "z")] {
            let id = format!("{id}{}", runs.len() % 4 + usize::from(stop.is_some()) * 10);
            let mut run = run(&id, start, stop);
            run.key = RunKey::new(namespace, format!("{id}{start}")).unwrap();
            runs.push(run);
        }
    }
    world.write(|tx| tx.put_runs(&runs));
    compare(world, &runs, 0, 100);
    assert_eq!(ask(world, &ActiveQuery::new(at(0), at(100))).len(), 16);
}

fn namespaces_are_a_filter(store: &dyn Store) {
    let world = World(store);
    let mut runs = Vec::new();
    for namespace in ["a", "b", "c", "A", "ab"] {
        for (id, stop) in [("open", None), ("closed", Some(9))] {
            let mut run = run(id, 5, stop);
            run.key = RunKey::new(namespace, id).unwrap();
            runs.push(run);
        }
    }
    world.write(|tx| tx.put_runs(&runs));
    for names in [&["a"][..], &["c", "a"], &["b", "b", "b"], &["nobody"], &["nobody", "ab"], &[]] {
        let query = names.iter().fold(ActiveQuery::new(at(0), at(10)), |query, name| {
            query.namespace(Namespace::new(name).unwrap())
        });
        assert_eq!(ask(world, &query), by_the_rule(&runs, &query), "{names:?}");
    }
}

fn every_small_window_is_answered_exactly(store: &dyn Store) {
    let world = World(store);
    let mut runs = Vec::new();
    for start in -9..9 {
        for length in [0, 1, 2, 3, 4, 5, 7, 8, 9] {
            runs.push(run(&format!("{start}+{length}"), start, Some(start + length)));
        }
        runs.push(run(&format!("{start}"), start, None));
    }
    world.write(|tx| tx.put_runs(&runs));
    for begin in -11..20 {
        for end in begin..20 {
            compare(world, &runs, begin, end);
        }
    }
}

fn lengths_around_powers_of_two(store: &dyn Store) {
    let world = World(store);
    let (mut runs, mut edges) = (Vec::new(), Vec::new());
    for power in [0, 1, 4, 10, 31, 32, 40, 52] {
        for length in [(1_i64 << power) - 1, 1 << power, (1 << power) + 1] {
            for start in [0, -1, 1 << power, (1 << power) - 1, -(1 << power)] {
                runs.push(run(&format!("{start}+{length}"), start, Some(start + length)));
                edges.extend([start, start + length]);
            }
        }
    }
    runs.sort_by(|a, b| a.key.cmp(&b.key));
    runs.dedup_by(|a, b| a.key == b.key);
    world.write(|tx| tx.put_runs(&runs));
    let mut random = Random::new(1);
    for _ in 0..400 {
        let begin = edges[random.index(edges.len())] + random.instant(3) - 1;
        let end = match random.below(3) {
            0 => edges[random.index(edges.len())] + random.instant(3) - 1,
            1 => begin + (1 << random.below(53)),
            _ => begin + 1,
        };
        compare(world, &runs, begin, end);
    }
}

fn far_and_negative_times(store: &dyn Store) {
    let world = World(store);
    let (first, last) = ends_of_time();
    let (first, last) = (first.as_micros(), last.as_micros());
    let edges = [first, first + 1, -1_000_000_007, -1, 0, 1, 1_000_000_007, last - 1, last];
    let mut runs = Vec::new();
    for (index, start) in edges.iter().enumerate() {
        for stop in &edges[index..] {
            runs.push(run(&format!("{start}..{stop}"), *start, Some(*stop)));
        }
        runs.push(run(&format!("{start}"), *start, None));
    }
    world.write(|tx| tx.put_runs(&runs));
    for begin in edges {
        for end in edges {
            compare(world, &runs, begin, end);
        }
    }
}

fn storms_of_equal_starts(store: &dyn Store) {
    let world = World(store);
    let runs: Vec<RunRecord> =
        (0..300).map(|n| run(&format!("{n:03}"), 1000, (n % 3 != 0).then_some(1000 + n / 30))).collect();
    world.write(|tx| tx.put_runs(&runs));
    for (begin, end) in [(0, 1000), (0, 1001), (1000, 1001), (1003, 1004), (1009, 2000), (1010, 2000)] {
        compare(world, &runs, begin, end);
    }
}

fn a_run_that_stops_before_it_starts_obeys_the_rule(store: &dyn Store) {
    let world = World(store);
    let runs = [run("a", 10, Some(3)), run("b", 16, Some(15)), run("c", 0, Some(-64)), run("d", 5, Some(6))];
    world.write(|tx| tx.put_runs(&runs));
    for begin in -70..20 {
        for end in [begin + 1, begin + 2, begin + 8, 11, 20] {
            compare(world, &runs, begin, end);
        }
    }
}

fn any_set_under_change(store: &dyn Store) {
    let world = World(store);
    let mut random = Random::new(2);
    let mut runs: Vec<RunRecord> = Vec::new();
    for _ in 0..60 {
        let changed: Vec<RunRecord> = (0..1 + random.below(6))
            .map(|_| {
                let start = random.instant(1 << 12) - (1 << 11);
                let stop = (!random.once_in(4)).then(|| start + random.instant_of_any_size(13) - 2);
                run(&random.below(80).to_string(), start, stop)
            })
            .collect();
        world.write(|tx| tx.put_runs(&changed));
        for run in changed {
            runs.retain(|old| old.key != run.key);
            runs.push(run);
        }
        if random.once_in(3) {
            let gone = runs.swap_remove(random.index(runs.len())).key;
            assert_eq!(world.write(|tx| tx.delete_runs(std::slice::from_ref(&gone))), 1);
        }
        for _ in 0..8 {
            let begin = random.instant(1 << 13) - (1 << 12);
            compare(world, &runs, begin, begin + random.instant_of_any_size(13));
        }
    }
}
