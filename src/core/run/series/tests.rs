//! Compares a series with a query for each bucket alone.

use proptest::prelude::*;

use super::*;
use crate::run::{RunKey, Suspension};
use crate::time::Timestamp;

fn overlap(spans: &[(i64, i64)], begin: i64, end: i64) -> u64 {
    (begin..end).filter(|at| spans.iter().any(|(from, to)| (from..to).contains(&at))).count() as u64
}

type Drawn = ((i64, Option<i64>), Vec<(i64, i64)>, usize, Vec<(i64, u32)>);

fn run(id: usize, ((start, stop), pauses, status, nodes): &Drawn) -> RunRecord {
    let mut run = RunRecord::open(RunKey::new("n", format!("{id}")).unwrap(), Timestamp::from_micros(*start));
    run.stop = stop.map(Timestamp::from_micros);
    run.status = [RunStatus::Running, RunStatus::Pending, RunStatus::Completed][status % 3];
    run.running = (*status > 5).then(|| Timestamp::from_micros(start + 2));
    let pause = |(from, length): &(i64, i64)| {
        Suspension::new(Timestamp::from_micros(*from), Some(Timestamp::from_micros(from + length)))
    };
    run.nodes = nodes.iter().map(|(since, nodes)| (Timestamp::from_micros(*since), *nodes)).collect();
    run.suspended = pauses.iter().map(pause).collect();
    run
}

proptest! {
    #[test]
    fn a_series_is_what_each_bucket_would_be_asked(
        drawn in proptest::collection::vec(
            ((-40_i64..60, proptest::option::of(-45_i64..70)), proptest::collection::vec((-30_i64..60, -9_i64..20), 0..3), 0_usize..9,
             proptest::collection::vec((-50_i64..70, 0_u32..5), 0..4)),
            0..12,
        ),
        begin in -20_i64..20, length in 0_i64..60, width in 1_u64..30,
    ) {
        let runs: Vec<RunRecord> = drawn.iter().enumerate().map(|(id, drawn)| run(id, drawn)).collect();
        let (end, as_of) = (begin + length, 55);
        let spec = SeriesSpec::new(Timestamp::from_micros(begin), Timestamp::from_micros(end), Duration::from_micros(width), SeriesBy::Nothing).unwrap();
        let mut series = Series::new(spec, Timestamp::from_micros(as_of));
        for run in &runs {
            series.add(run).unwrap();
        }
        let (_, buckets) = series.finish().remove(0);
        let mut edge = begin;
        for bucket in &buckets {
            let (from, to) = (edge, (edge + width as i64).min(end));
            edge = to;
            prop_assert_eq!((bucket.begin.as_micros(), bucket.end.as_micros()), (from, to));
            let within = |at: Timestamp| (from..to).contains(&at.as_micros());
            let (begin, end) = (Timestamp::from_micros(from), Timestamp::from_micros(to));
            let seen = |run: &&RunRecord| run.is_active(spec_begin(&buckets), spec_end(&buckets));
            prop_assert_eq!(bucket.active, runs.iter().filter(|run| run.is_active(begin, end)).count() as u64);
            prop_assert_eq!(bucket.starts, runs.iter().filter(seen).filter(|run| within(run.start)).count() as u64);
            prop_assert_eq!(bucket.stops, runs.iter().filter(seen).filter(|run| run.stop.is_some_and(within)).count() as u64);
            let work: u64 = runs.iter().filter(seen).map(|run| {
                let since = run.running.unwrap_or(run.start);
                if run.running.is_none() && run.status == RunStatus::Pending { return 0; }
                let until = run.stop.map_or(as_of, Timestamp::as_micros);
                let paused: Vec<_> = run.suspended.iter().map(|p| (p.from.as_micros(), p.to.unwrap().as_micros())).collect();
                // Checks each microsecond on its own.
                let works = |at: &i64| (since.as_micros()..until).contains(at) && overlap(&paused, *at, at + 1) == 0;
                (from..to).filter(works).map(|at| {
                    let latest = run.nodes.range(..=Timestamp::from_micros(at)).next_back();
                    latest.map_or(1, |(_, nodes)| u64::from(*nodes))
                }).sum::<u64>()
            }).sum();
            prop_assert_eq!(bucket.node_micros, work);
        }
        prop_assert_eq!(edge, end);
    }
}

fn spec_begin(buckets: &[Bucket]) -> Timestamp {
    buckets[0].begin
}

fn spec_end(buckets: &[Bucket]) -> Timestamp {
    buckets[buckets.len() - 1].end
}

#[test]
fn all_of_time_in_one_bucket_and_too_many_buckets() {
    let (first, last) = (Timestamp::from_micros(i64::MIN), Timestamp::from_micros(i64::MAX));
    let mut series =
        Series::new(SeriesSpec::new(first, last, Duration::MAX, SeriesBy::Nothing).unwrap(), last);
    series.add(&RunRecord::open(RunKey::new("n", "r").unwrap(), first).nodes(first, u32::MAX)).unwrap();
    let (_, buckets) = series.finish().remove(0);
    assert_eq!((buckets.len(), buckets[0].active, buckets[0].node_micros), (2, 1, u64::MAX));
    let refused = SeriesSpec::new(first, last, Duration::from_secs(1), SeriesBy::Nothing).unwrap_err();
    assert!(matches!(refused, Invalid::Buckets { cap: MAX_BUCKETS, .. }));
}

#[test]
fn groups_are_rows() {
    let spec = |by| {
        SeriesSpec::new(Timestamp::UNIX_EPOCH, Timestamp::from_micros(9), Duration::from_micros(9), by)
            .unwrap()
    };
    let run = |namespace, id, workflow: Option<&str>| {
        let mut run = RunRecord::open(RunKey::new(namespace, id).unwrap(), Timestamp::from_micros(1));
        run.method = if workflow.is_some() { StartMethod::Triggered } else { StartMethod::Scheduled };
        workflow.into_iter().fold(run, |run, name| run.workflow(name.try_into().unwrap()))
    };
    let runs =
        [run("a", "1", Some("w")), run("a", "2", None), run("b", "1", Some("w")), run("a", "3", Some("w"))];
    for (by, expected) in [
        (SeriesBy::Nothing, vec![4]),
        (SeriesBy::Namespace, vec![3, 1]),
        (SeriesBy::Workflow, vec![1, 2, 1]),
        (SeriesBy::Method, vec![1, 3]),
        (SeriesBy::User { most: 9 }, vec![4]),
    ] {
        let mut series = Series::new(spec(by), Timestamp::from_micros(9));
        for run in &runs {
            series.add(run).unwrap();
        }
        let rows = series.finish();
        assert_eq!(rows.iter().map(|(_, buckets)| buckets[0].active).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn the_largest_users_have_rows_and_the_others_one_together() {
    let at = Timestamp::from_micros;
    let rows = |users: &[(Option<&str>, u32)], most| {
        let spec = SeriesSpec::new(at(0), at(10), Duration::from_micros(4), SeriesBy::User { most }).unwrap();
        let mut series = Series::new(spec, at(99));
        for (id, (user, nodes)) in users.iter().enumerate() {
            let run = RunRecord::open(RunKey::new("n", format!("{id}")).unwrap(), at(3)).nodes(at(0), *nodes);
            series.add(&user.iter().fold(run, |run, user| run.user(*user))).unwrap();
        }
        let rows = series.finish();
        rows.into_iter()
            .map(|(group, buckets)| {
                let work: Vec<u64> = buckets.iter().map(|bucket| bucket.node_micros).collect();
                (group.user, group.others, buckets[1].active, work)
            })
            .collect::<Vec<_>>()
    };
    let name = |name: &str| Some(name.to_owned());
    let users =
        [(Some("ann"), 1), (None, 3), (Some("bob"), 2), (Some("ann"), 4), (Some("cid"), 0), (Some("eve"), 2)];
    assert_eq!(
        rows(&users, 2),
        [(name("ann"), 0, 2, vec![5, 20, 10]), (None, 0, 1, vec![3, 12, 6]), (None, 3, 3, vec![4, 16, 8]),]
    );
    assert_eq!(rows(&users, 0), [(None, 5, 6, vec![12, 48, 24])]);
    let all = rows(&users, 9);
    let names: Vec<_> = all.iter().map(|(user, ..)| user.as_deref()).collect();
    assert_eq!(names, [Some("ann"), None, Some("bob"), Some("eve"), Some("cid")], "equal ones by name");
    assert_eq!(rows(&users, 4), all, "a single other one is named");
    assert_eq!(rows(&users, usize::MAX), all);
    assert_eq!(rows(&[], 2), []);
}

#[test]
fn all_rows_together_have_a_cap() {
    let spec = SeriesSpec::new(
        Timestamp::UNIX_EPOCH,
        Timestamp::from_micros(100_000),
        Duration::from_micros(1),
        SeriesBy::Namespace,
    )
    .unwrap();
    let mut series = Series::new(spec, Timestamp::UNIX_EPOCH);
    let run =
        |n: usize| RunRecord::open(RunKey::new(format!("n{n}"), "r").unwrap(), Timestamp::from_micros(5));
    let rows = MAX_SERIES_BUCKETS / 100_000;
    for n in (0..rows).chain([0]) {
        series.add(&run(n)).unwrap();
    }
    let refused = series.add(&run(rows)).unwrap_err();
    assert!(matches!(refused, Invalid::Buckets { cap: MAX_SERIES_BUCKETS, .. }));
    series.add(&run(1)).unwrap();
    let rows_made = series.finish();
    assert_eq!((rows_made.len(), rows_made[0].1[5].starts, rows_made[1].1[5].starts), (rows, 2, 2));
}

#[test]
fn a_run_that_was_suspended_when_it_was_closed_works_again_once_it_is_open() {
    let spec = SeriesSpec::new(
        Timestamp::UNIX_EPOCH,
        Timestamp::from_micros(100),
        Duration::from_micros(100),
        SeriesBy::Nothing,
    )
    .unwrap();
    let run = RunRecord::open(RunKey::new("n", "r").unwrap(), Timestamp::UNIX_EPOCH)
        .suspend(Timestamp::from_micros(10));
    let run = run.closed(Timestamp::from_micros(30), RunStatus::Killed).reopened(Timestamp::from_micros(40));
    let mut series = Series::new(spec, Timestamp::from_micros(100));
    series.add(&run).unwrap();
    assert_eq!(series.finish()[0].1[0].node_micros, 80, "without the 20 in which it was suspended");
    assert_eq!(run.suspend(Timestamp::from_micros(50)).suspended.len(), 2);
}
