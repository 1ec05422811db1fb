//! Random operations: after each of them every store answers as a map of records does.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use stationmaster::error::Result;
use stationmaster::id::{Namespace, WorkflowId};
use stationmaster::ops::StopBeforeStart;
use stationmaster::run::{
    ActiveQuery, Bucket, RunBeat, RunClose, RunKey, RunRecord, RunStatus, SeriesBy, StartMethod,
};
use stationmaster::store::{Store, Tx};
use stationmaster::testing::raw;
use stationmaster::{Error, Timestamp};

use super::is_long;
use crate::stores::kinds;

#[derive(Debug, Clone)]
enum Op {
    Put {
        key: u8,
        start: i64,
        length: Option<i64>,
        workflow: bool,
    },
    Close {
        key: u8,
        at: i64,
    },
    Stop {
        key: u8,
        at: i64,
    },
    Reopen {
        key: u8,
    },
    Suspend {
        key: u8,
        at: i64,
    },
    Resize {
        key: u8,
        at: i64,
        nodes: u32,
    },
    Beat {
        key: u8,
        at: i64,
    },
    Delete {
        key: u8,
    },
    Forget {
        before: i64,
        limit: usize,
    },
    /// With pages of up to 3 runs; a larger number asks for the whole only.
    Query {
        begin: i64,
        length: i64,
        filter: u8,
        page: usize,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let instant = || prop_oneof![-40_i64..120, Just(0), Just(64), -1_000_000_i64..1_000_000];
    let key = || 0_u8..24;
    let length = prop_oneof![0_i64..9, Just(31), Just(32), Just(33), -3_i64..0, 0_i64..500];
    let op = prop_oneof![
        6 => (key(), instant(), proptest::option::of(length), any::<bool>())
            .prop_map(|(key, start, length, workflow)| Op::Put { key, start, length, workflow }),
        2 => (key(), instant()).prop_map(|(key, at)| Op::Close { key, at }),
        2 => (key(), instant()).prop_map(|(key, at)| Op::Stop { key, at }),
        1 => key().prop_map(|key| Op::Reopen { key }),
        1 => (key(), instant()).prop_map(|(key, at)| Op::Suspend { key, at }),
        2 => (key(), instant(), 0_u32..9).prop_map(|(key, at, nodes)| Op::Resize { key, at, nodes }),
        1 => (key(), instant()).prop_map(|(key, at)| Op::Beat { key, at }),
        1 => key().prop_map(|key| Op::Delete { key }),
        1 => (instant(), 1_usize..5).prop_map(|(before, limit)| Op::Forget { before, limit }),
        6 => (instant(), prop_oneof![-2_i64..70, 0_i64..2_000_000], 0_u8..64, 1_usize..7)
            .prop_map(|(begin, length, filter, page)| Op::Query { begin, length, filter, page }),
    ];
    proptest::collection::vec(op, 50)
}

fn key(number: u8) -> RunKey {
    RunKey::new(["a", "b", "c"][usize::from(number % 3)], format!("r{number}")).expect("a plain name")
}

type Model = BTreeMap<RunKey, RunRecord>;

fn check(condition: bool, what: impl FnOnce() -> String) -> Result<()> {
    if condition { Ok(()) } else { Err(Error::abort(what())) }
}

fn apply(tx: &mut Tx<'_>, model: &mut Model, op: &Op) -> Result<()> {
    match op {
        Op::Put { key: number, start, length, workflow } => {
            let mut run = RunRecord::open(key(*number), Timestamp::from_micros(*start));
            if let Some(length) = length {
                run = run.closed(Timestamp::from_micros(start + length), RunStatus::Completed);
            }
            run.method = [StartMethod::Manual, StartMethod::Scheduled][usize::from(number % 2)];
            run.user = (number % 5 < 2).then(|| ["ann", "bob"][usize::from(number % 5)].to_owned());
            run.workflow = workflow.then(|| WorkflowId::new("w")).transpose()?;
            model.insert(run.key.clone(), run.clone());
            tx.record_runs(&[run], StopBeforeStart::Store)
        }
        Op::Close { key: number, at } => {
            let close = RunClose::new(key(*number), Timestamp::from_micros(*at), RunStatus::Failed);
            let moved = raw(tx).close_runs_if_open(std::slice::from_ref(&close))?;
            let open = model.get_mut(&close.key).filter(|run| run.stop.is_none());
            check((moved == [true]) == open.is_some(), || format!("{op:?} answers {moved:?}"))?;
            if let Some(run) = open {
                *run = run.clone().closed(close.stop.max(run.start), close.status);
            }
            Ok(())
        }
        Op::Stop { key: number, at } => {
            let close = RunClose::new(key(*number), Timestamp::from_micros(*at), RunStatus::Killed);
            if let Some(run) = model.get_mut(&close.key) {
                *run = run.clone().closed(close.stop, close.status);
            }
            tx.stop_runs(&[close], StopBeforeStart::Store).map(drop)
        }
        Op::Reopen { key: number } => change(tx, model, *number, |run| {
            let now = run.stop.unwrap_or(run.start);
            run.reopened(now)
        }),
        Op::Suspend { key: number, at } => {
            change(tx, model, *number, |run| run.suspend(Timestamp::from_micros(*at)))
        }
        Op::Resize { key: number, at, nodes } => {
            change(tx, model, *number, |run| run.nodes(Timestamp::from_micros(*at), *nodes))
        }
        Op::Beat { key: number, at } => {
            let beat = RunBeat::new(key(*number), Timestamp::from_micros(*at));
            let moved = tx.beat_runs(std::slice::from_ref(&beat))?;
            let open = model.get_mut(&beat.key).filter(|run| run.stop.is_none());
            check((moved == [true]) == open.is_some(), || format!("{op:?} answers {moved:?}"))?;
            if let Some(run) = open {
                run.heartbeat = Some(run.heartbeat.map_or(beat.at, |last| last.max(beat.at)));
            }
            Ok(())
        }
        Op::Delete { key: number } => {
            let deleted = tx.delete_runs(&[key(*number)])?;
            check(deleted == usize::from(model.remove(&key(*number)).is_some()), || format!("{op:?}"))
        }
        Op::Forget { before, limit } => {
            let before = Timestamp::from_micros(*before);
            let old = |run: &RunRecord| run.start < before && run.stop.is_some_and(|stop| stop < before);
            let expected = model.values().filter(|run| old(run)).count().min(*limit);
            let gone = tx.forget_stopped_runs(before, *limit)?;
            check(gone == expected, || format!("{op:?} took {gone}, not {expected}"))?;
            let keys: Vec<RunKey> = model.keys().cloned().collect();
            let there = tx.runs(&keys)?;
            for (key, found) in keys.iter().zip(&there) {
                check(found.is_some() || old(&model[key]), || format!("{op:?} took {key:?}"))?;
            }
            check(there.iter().filter(|found| found.is_none()).count() == gone, || {
                format!("{op:?} counts wrongly")
            })?;
            model.retain(|key, _| {
                keys.iter().zip(&there).any(|(known, found)| known == key && found.is_some())
            });
            Ok(())
        }
        Op::Query { begin, length, filter, page } => {
            let mut query =
                ActiveQuery::new(Timestamp::from_micros(*begin), Timestamp::from_micros(begin + length));
            for (bit, name) in ["a", "b"].into_iter().enumerate() {
                if filter >> bit & 1 == 1 {
                    query = query.namespace(Namespace::new(name)?);
                }
            }
            if filter & 4 == 4 {
                query = query.status(RunStatus::Running);
            }
            if filter & 8 == 8 {
                query = query.workflow(WorkflowId::new("w")?);
            }
            if filter & 16 == 16 {
                query = query.method(StartMethod::Scheduled);
            }
            if filter & 32 == 32 {
                query = query.user("ann");
            }
            let mut expected: Vec<RunRecord> =
                model.values().filter(|run| query.wants(run)).cloned().collect();
            expected.sort_by_key(RunRecord::place);
            let found = tx.active_runs(&query)?;
            check(found == expected, || format!("{op:?}: {found:#?} is not {expected:#?}"))?;
            check(tx.count_active_runs(&query)? == expected.len() as u64, || format!("{op:?}: the count"))?;
            node_hours(tx, &query, &expected)?;
            if *page > 3 {
                return Ok(());
            }
            let mut paged = Vec::new();
            query = query.limit(*page);
            loop {
                let runs = tx.active_runs(&query)?;
                let Some(last) = runs.last() else { break };
                query = query.after(last.place());
                paged.extend(runs);
            }
            check(paged == expected, || format!("{op:?}: pages {paged:#?} are not {expected:#?}"))
        }
    }
}

/// A row of a series: its user, workflow and start method, and of each bucket the runs that were active, started and
/// stopped, and the node-microseconds.
type Row = (Option<String>, Option<WorkflowId>, Option<StartMethod>, Vec<[u64; 4]>);

/// The numbers of each bucket are those that are counted run by run, and the time at work that of each single
/// microsecond: of all runs together, and of each group.
fn node_hours(tx: &mut Tx<'_>, query: &ActiveQuery, runs: &[RunRecord]) -> Result<()> {
    let (begin, end) = (query.begin.as_micros(), query.end.as_micros());
    if !(begin..begin + 70).contains(&end) {
        return Ok(());
    }
    let all: Vec<&RunRecord> = runs.iter().collect();
    let groups = |by: fn(&RunRecord) -> Row| {
        let mut rows: Vec<Row> = runs.iter().map(by).collect();
        rows.sort();
        rows.dedup();
        for row in &mut rows {
            let group: Vec<&RunRecord> = runs.iter().filter(|run| by(run) == *row).collect();
            row.3 = counted(&group, begin, end);
        }
        rows
    };
    let mut users = groups(|run| (run.user.clone(), None, None, Vec::new()));
    users.sort_by_key(|row| std::cmp::Reverse(row.3.iter().map(|bucket| bucket[3]).sum::<u64>()));
    let methods = groups(|run| (None, None, Some(run.method), Vec::new()));
    let workflows =
        groups(|run| (Some(run.key.namespace.to_string()), run.workflow.clone(), None, Vec::new()));
    same(tx, query, SeriesBy::Nothing, &[(None, None, None, counted(&all, begin, end))])?;
    same(tx, query, SeriesBy::Method, &methods)?;
    // The namespace stands where users do.
    same(tx, query, SeriesBy::Workflow, &workflows)?;
    for most in [0, 1, 9] {
        let mut rows = users.clone();
        if rows.len() > most + 1 {
            let of_the_first = |run: &&RunRecord| users[..most].iter().any(|row| row.0 == run.user);
            let others: Vec<&RunRecord> = runs.iter().filter(|run| !of_the_first(run)).collect();
            rows.truncate(most);
            rows.push((None, None, None, counted(&others, begin, end)));
        }
        same(tx, query, SeriesBy::User { most }, &rows)?;
    }
    Ok(())
}

const AS_OF: i64 = 60;
const WIDTH: usize = 7;

/// Counts each bucket on its own.
fn counted(runs: &[&RunRecord], begin: i64, end: i64) -> Vec<[u64; 4]> {
    let at = Timestamp::from_micros;
    let works = |run: &RunRecord, micros: i64| {
        let rests = run
            .suspended
            .iter()
            .any(|span| span.from <= at(micros) && span.to.is_none_or(|to| at(micros) < to));
        run.start <= at(micros) && at(micros) < run.stop.unwrap_or(at(AS_OF)) && !rests
    };
    let nodes = |run: &RunRecord, micros: i64| {
        let mut known = run.nodes.iter().filter(|(since, _)| **since <= at(micros));
        known.next_back().map_or(1, |(_, nodes)| u64::from(*nodes))
    };
    let bucket = |from: i64| {
        let to = end.min(from + WIDTH as i64);
        let within = |instant: Timestamp| (at(from)..at(to)).contains(&instant);
        let count = |holds: &dyn Fn(&RunRecord) -> bool| runs.iter().filter(|run| holds(run)).count() as u64;
        let work = |micros| {
            runs.iter().filter(move |run| works(run, micros)).map(move |run| nodes(run, micros)).sum::<u64>()
        };
        [
            count(&|run| run.is_active(at(from), at(to))),
            count(&|run| within(run.start)),
            count(&|run| run.stop.is_some_and(within)),
            (from..to).map(work).sum(),
        ]
    };
    (begin..end).step_by(WIDTH).map(bucket).collect()
}

fn same(tx: &mut Tx<'_>, query: &ActiveQuery, by: SeriesBy, expected: &[Row]) -> Result<()> {
    let rows =
        tx.run_series(query, Duration::from_micros(WIDTH as u64), by, Timestamp::from_micros(AS_OF))?;
    let found: Vec<Row> = rows
        .into_iter()
        .map(|(group, buckets)| {
            let name = group.namespace.map(|name| name.to_string()).or(group.user);
            let numbers = |bucket: &Bucket| [bucket.active, bucket.starts, bucket.stops, bucket.node_micros];
            (name, group.workflow, group.method, buckets.iter().map(numbers).collect())
        })
        .collect();
    check(found == expected, || format!("{query:?} by {by:?}: {found:?} is not {expected:?}"))
}

fn change(
    tx: &mut Tx<'_>,
    model: &mut Model,
    number: u8,
    with: impl FnOnce(RunRecord) -> RunRecord,
) -> Result<()> {
    match model.get_mut(&key(number)) {
        Some(run) => {
            *run = with(run.clone());
            tx.record_runs(std::slice::from_ref(run), StopBeforeStart::Store)
        }
        None => Ok(()),
    }
}

/// One sequence in a transaction that is undone, so that the next one finds the store empty.
fn run(store: &dyn Store, ops: &[Op]) -> Result<(), String> {
    const DONE: &str = "the sequence is done";
    let outcome = store.write(|tx| {
        let mut model = Model::new();
        ops.iter().try_for_each(|op| apply(tx, &mut model, op))?;
        Err::<(), Error>(Error::abort(DONE))
    });
    match outcome {
        Err(Error::Aborted(why)) if why.to_string() == DONE => Ok(()),
        Err(error) => Err(error.to_string()),
        Ok(()) => Err("a transaction that failed was committed".to_owned()),
    }
}

#[test]
fn any_sequence() {
    let [here, on_a_server] = if is_long() { [20_000, 2_000] } else { [1_000, 20] };
    for kind in kinds() {
        let (cases, store) = (kind.cases(here, on_a_server), kind.shared());
        let config = ProptestConfig {
            cases,
            failure_persistence: None,
            max_shrink_iters: 2_000,
            ..Default::default()
        };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let outcome = runner.run(&ops(), |ops| run(&*store, &ops).map_err(TestCaseError::fail));
        if let Err(error) = outcome {
            panic!("{}: {error}", kind.name);
        }
    }
}
