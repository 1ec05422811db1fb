//! Pages, filters, places and counts of active runs.

use super::random::Random;
use super::world::{World, at};
use crate::id::{Namespace, WorkflowId};
use crate::run::{ActiveQuery, RunKey, RunPlace, RunRecord, RunStatus, StartMethod};
use crate::store::Store;

cases!("pages":
    every_page_size_gives_the_whole,
    a_page_goes_on_after_a_place_that_is_no_run,
    pages_are_stable_while_runs_come_and_go,
    pages_of_a_storm_come_by_id,
    filters_leave_out_what_is_not_asked_for,
    filters_and_pages_together,
    places_and_counts_are_those_of_the_runs,
);

fn run(namespace: &str, id: &str, start: i64, stop: Option<i64>) -> RunRecord {
    let run = RunRecord::open(RunKey::new(namespace, id).unwrap(), at(start));
    stop.into_iter().fold(run, |run, stop| run.closed(at(stop), RunStatus::Completed))
}

/// Runs in three namespaces that started before, at and after instant 100, with equal starts among them.
fn mixed() -> Vec<RunRecord> {
    let mut random = Random::new(7);
    let mut runs = Vec::new();
    for n in 0..120 {
        let start = random.instant(200) / 4 * 4;
        let stop = (!random.once_in(5)).then(|| start + random.instant_of_any_size(8));
        let mut run = run(["a", "b", "c"][n % 3], &format!("r{}", n * 7 % 120), start, stop);
        if random.once_in(3) {
            run.workflow = Some(WorkflowId::new(["u", "v"][n % 2]).unwrap());
        }
        if random.once_in(4) {
            run.status = RunStatus::Failed;
        }
        if random.once_in(3) {
            run.method = [StartMethod::Scheduled, StartMethod::Triggered][n % 2];
        }
        if random.once_in(3) {
            run.user = Some(["ann", "", "an\"n\0"][n % 3].into());
        }
        runs.push(run);
    }
    runs.push(run("a", "backwards", 110, Some(20)));
    runs
}

fn whole(world: World<'_>, query: &ActiveQuery) -> Vec<RunRecord> {
    world.read(|tx| tx.active_runs(query))
}

fn in_pages(world: World<'_>, query: &ActiveQuery, size: usize) -> Vec<RunRecord> {
    let mut found: Vec<RunRecord> = Vec::new();
    let mut query = query.clone().limit(size);
    loop {
        let page = whole(world, &query);
        assert!(page.len() <= size);
        let places = world.read(|tx| tx.active_run_places(&query));
        assert!(places.iter().eq(page.iter().map(RunRecord::place).collect::<Vec<_>>().iter()));
        assert_eq!(world.read(|tx| tx.count_active_runs(&query)), page.len() as u64);
        let Some(last) = page.last() else { return found };
        query = query.after(last.place());
        found.extend(page);
    }
}

fn every_page_size_gives_the_whole(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_runs(&mixed()));
    for query in [
        ActiveQuery::new(at(100), at(160)),
        ActiveQuery::new(at(100), at(101)),
        ActiveQuery::new(at(0), at(500)).namespace(Namespace::new("b").unwrap()),
        ActiveQuery::new(at(150), at(150)),
    ] {
        let all = whole(world, &query);
        for size in [1, 2, 3, 7, 1000, usize::MAX] {
            assert_eq!(in_pages(world, &query, size), all, "pages of {size} of {query:?}");
        }
        assert_eq!(whole(world, &query.clone().limit(0)), []);
    }
}

fn a_page_goes_on_after_a_place_that_is_no_run(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_runs(&mixed()));
    let query = ActiveQuery::new(at(100), at(160));
    let all = whole(world, &query);
    for start in [-5, 0, 50, 99, 100, 101, 104, 159, 160, 500] {
        for (namespace, id) in [("a", "r5"), ("b", "r"), ("bb", "x"), ("A", "\u{10ffff}"), ("z", "z")] {
            let place = RunPlace::new(at(start), RunKey::new(namespace, id).unwrap());
            let rest: Vec<RunRecord> = all.iter().filter(|run| run.place() > place).cloned().collect();
            let asked = query.clone().after(place);
            assert_eq!(whole(world, &asked), rest, "{asked:?}");
            assert_eq!(whole(world, &asked.limit(3)), rest[..rest.len().min(3)]);
        }
    }
}

fn pages_are_stable_while_runs_come_and_go(store: &dyn Store) {
    let world = World(store);
    let runs = mixed();
    world.write(|tx| tx.put_runs(&runs));
    let mut query = ActiveQuery::new(at(100), at(160)).limit(4);
    let before = whole(world, &ActiveQuery::new(at(100), at(160)));
    let (mut seen, mut gone, mut random) = (Vec::new(), Vec::new(), Random::new(3));
    loop {
        let page = whole(world, &query);
        let Some(last) = page.last() else { break };
        query = query.after(last.place());
        seen.extend(page.into_iter().map(|run| run.key));
        let lost = before[random.index(before.len())].key.clone();
        let new = run("b", &format!("new{}", seen.len()), random.instant(160), None);
        world.write(|tx| {
            tx.put_runs(std::slice::from_ref(&new))?;
            tx.delete_runs(std::slice::from_ref(&lost))
        });
        gone.push(lost);
    }
    let mut twice = seen.clone();
    twice.sort();
    twice.dedup();
    assert_eq!(twice.len(), seen.len(), "no run is in two pages");
    for run in before.iter().filter(|run| !gone.contains(&run.key)) {
        assert!(seen.contains(&run.key), "{:?} stayed and was not seen", run.key);
    }
}

fn pages_of_a_storm_come_by_id(store: &dyn Store) {
    let world = World(store);
    let runs: Vec<RunRecord> = (0..90)
        .map(|n| run(["a", "b"][n % 2], &format!("{:02}", n * 37 % 90), 100, Some(100 + n as i64)))
        .collect();
    world.write(|tx| tx.put_runs(&runs));
    for query in [ActiveQuery::new(at(100), at(101)), ActiveQuery::new(at(130), at(140))] {
        let all = whole(world, &query);
        assert!(all.len() > 50);
        assert_eq!(in_pages(world, &query, 7), all);
    }
}

fn filters_leave_out_what_is_not_asked_for(store: &dyn Store) {
    let world = World(store);
    let runs = mixed();
    world.write(|tx| tx.put_runs(&runs));
    let query = ActiveQuery::new(at(80), at(160));
    let (u, v) = (WorkflowId::new("u").unwrap(), WorkflowId::new("v").unwrap());
    for query in [
        query.clone().status(RunStatus::Failed),
        query.clone().status(RunStatus::Failed).status(RunStatus::Running).status(RunStatus::Failed),
        query.clone().status(RunStatus::Rejected),
        query.clone().workflow(u.clone()),
        query.clone().workflow(u).workflow(v.clone()),
        query.clone().workflow(v.clone()).status(RunStatus::Completed),
        query.clone().method(StartMethod::Triggered),
        query.clone().method(StartMethod::Triggered).method(StartMethod::Scheduled),
        query.clone().user("ann"),
        query.clone().user("").user("an\"n\0"),
        query.clone().user("bob"),
        query.clone().user("ann").method(StartMethod::Manual).status(RunStatus::Completed),
        query.workflow(v).user("").user("ann"),
    ] {
        let mut expected: Vec<RunRecord> = runs.iter().filter(|run| query.wants(run)).cloned().collect();
        expected.sort_by_key(RunRecord::place);
        assert_eq!(whole(world, &query), expected, "{query:?}");
        assert_eq!(world.read(|tx| tx.count_active_runs(&query)), expected.len() as u64);
    }
}

fn filters_and_pages_together(store: &dyn Store) {
    let world = World(store);
    let mut runs = mixed();
    runs.extend((0..600).map(|n| {
        let status = if n % 97 == 0 { RunStatus::Failed } else { RunStatus::Completed };
        let user = if n % 89 == 0 { "ann" } else { "bob" };
        run("many", &format!("{n:03}"), 100 + n / 10, None).status(status).user(user)
    }));
    world.write(|tx| tx.put_runs(&runs));
    let query = ActiveQuery::new(at(100), at(200));
    for query in [query.clone().status(RunStatus::Failed), query.user("ann").method(StartMethod::Manual)] {
        let all = whole(world, &query);
        assert!(all.len() > 5);
        for size in [1, 3, 8] {
            assert_eq!(in_pages(world, &query, size), all);
        }
    }
}

fn places_and_counts_are_those_of_the_runs(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_runs(&mixed()));
    for begin in (0..220).step_by(11) {
        let query = ActiveQuery::new(at(begin), at(begin + 20));
        let places: Vec<RunPlace> = whole(world, &query).iter().map(RunRecord::place).collect();
        assert_eq!(world.read(|tx| tx.active_run_places(&query)), places);
        assert_eq!(world.read(|tx| tx.count_active_runs(&query)), places.len() as u64);
    }
}
