//! What a statement reads, compares and touches grows in proportion to what it is given. The server counts it, so no test
//! depends on how fast the machine is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use stationmaster::admission::limits::LimitSpec;
use stationmaster::admission::{Drain, IfExists, Subject};
use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::error::StoreErrorKind;
use stationmaster::id::{LimitKey, PoolName};
use stationmaster::ops::{AdmitRequest, Finish, Mark, StopBeforeStart};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::run::{ActiveQuery, RunBeat, RunClose, RunKey, RunRecord, RunStatus};
use stationmaster::sensor::{EndReason, NewSensor, Settings};
use stationmaster::shard::DEFAULT_CODES;
use stationmaster::store::PostgresStore;
use stationmaster::store::contract::{
    Ending, PokerRow, SensorQuery, ShardLease, ShardWrite, SurveyQuery, WhichSensors,
};
use stationmaster::task::Feed;
use stationmaster::testing::raw;
use stationmaster::{Error, LeaseRef, NewTask, Result, TaskKey, TaskRecord, TaskState, Timestamp};

use crate::postgres_server::relay::Relay;
use crate::postgres_server::{Plain, with};
use crate::scratch::{Scratch, url};

/// How many items there are at first, and then ten times as many: what the environment says, or this. A tick of 10,000 tasks
/// takes a client that is not optimized longer than the server waits for it on a busy machine.
const FEW: usize = 200;

/// Ten times as many items may be this much more rows.
const MOST_ROWS: f64 = 15.0;

/// And this much more buffers: one that the next row is in, too, is counted once, which is rare where there
/// are many. What is done for each pair of items is a hundred times as much.
const MOST_BUFFERS: f64 = 40.0;

/// What is less than this is not compared: a few rows more or less.
const LITTLE: f64 = 200.0;

/// Has the server say what each statement did.
const EXPLAINED: &str = "options=-c%20session_preload_libraries%3Dauto_explain%20-c%20auto_explain.log_min_duration%3D0\
    %20-c%20auto_explain.log_analyze%3Don%20-c%20auto_explain.log_timing%3Doff%20-c%20auto_explain.log_buffers%3Don\
    %20-c%20auto_explain.log_format%3Djson%20-c%20auto_explain.log_level%3Dnotice";

/// What a statement did at most: the rows that its steps read, compared and passed on, and the buffers that it touched.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    rows: f64,
    buffers: f64,
}

type Works = BTreeMap<String, Work>;

fn rows(step: &Value) -> f64 {
    let number = |field: &str| step[field].as_f64().unwrap_or(0.0);
    let removed = number("Rows Removed by Join Filter") + number("Rows Removed by Filter");
    let own = (number("Actual Rows") + removed) * number("Actual Loops");
    own + step["Plans"].as_array().into_iter().flatten().map(rows).sum::<f64>()
}

fn note(works: &Mutex<Works>, schema: &str, notice: &str) {
    let Some((_, plan)) = notice.split_once("plan:\n") else { return };
    let plan: Value = serde_json::from_str(plan).unwrap();
    let text = plan["Query Text"].as_str().unwrap().replace(&format!("\"{schema}\"."), "sm.");
    let number = |field: &str| plan["Plan"][field].as_f64().unwrap();
    let mut works = works.lock().unwrap();
    let work = works.entry(text).or_default();
    work.rows = work.rows.max(rows(&plan["Plan"]));
    work.buffers = work.buffers.max(number("Shared Hit Blocks") + number("Shared Read Blocks"));
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

fn key(n: usize) -> TaskKey {
    TaskKey::new("n", "w", "r", format!("t{n:05}")).unwrap()
}

fn keys(from: usize, to: usize) -> Vec<TaskKey> {
    (from..to).map(key).collect()
}

/// Tasks that need the same, or something else each.
fn tasks(from: usize, to: usize, apart: bool) -> Vec<NewTask> {
    let retry = RetryPolicy::fixed(Duration::from_secs(10)).build().unwrap();
    let new = |n| {
        let task = NewTask::new(key(n))
            .pool("wide".try_into().unwrap())
            .attempts_as_runs(true)
            .retry(retry.clone())
            .feed(Feed::EndsAndSensors);
        if apart { task.limit(limit(n)) } else { task }
    };
    (from..to).map(new).collect()
}

fn limit(n: usize) -> LimitKey {
    LimitKey::new(format!("k{n}")).unwrap()
}

/// Calls again if the server ended a tick whose client took too long between two statements, as it may on a busy machine.
fn patiently<T>(mut call: impl FnMut() -> Result<T>) -> T {
    let lost = |error: &Error| matches!(error, Error::Store(error) if error.kind() == StoreErrorKind::Io);
    for _ in 0..9 {
        match call() {
            Err(error) if lost(&error) => {}
            done => return done.unwrap(),
        }
    }
    panic!("ticks are ended again and again");
}

/// Makes a tick for at most this many tasks, and returns their leases.
fn tick(store: &PostgresStore, second: i64, budget: usize) -> Vec<LeaseRef> {
    let name = format!("tick {second}");
    let order = AdmitRequest::new(
        "h".try_into().unwrap(),
        name.as_str().try_into().unwrap(),
        budget,
        Duration::from_secs(60),
    );
    let granted = patiently(|| store.write(|tx| tx.admit(at(second), &order))).granted;
    granted.iter().map(TaskRecord::lease_ref).collect()
}

/// Folds all that is to be folded. A tick takes 10,000 deltas at most, and what is left would be work for others.
fn settle(store: &PostgresStore, second: i64) {
    let query = || SurveyQuery::new().promote(at(second), 0);
    while patiently(|| store.write(|tx| Ok(raw(tx).survey(&query())?))).is_behind {}
}

/// Everything that can be done with this many tasks at once.
fn of_tasks(store: &PostgresStore, scratch: &Scratch, count: usize, apart: bool) {
    let ready = tasks(0, count, apart);
    let due: Vec<NewTask> =
        tasks(count, 2 * count, apart).into_iter().map(|task| task.not_before(at(5))).collect();
    for tasks in [&ready, &ready, &due] {
        store.write(|tx| tx.enqueue(at(0), tasks)).unwrap();
        settle(store, 0);
    }
    let order = AdmitRequest::new(
        "h".try_into().unwrap(),
        "ahead".try_into().unwrap(),
        count,
        Duration::from_secs(60),
    );
    let ahead =
        store.read(|tx| Ok((tx.preview(at(6), &order)?, tx.positions(&keys(0, 2 * count), count as u64)?)));
    let (preview, positions) = ahead.unwrap();
    assert_eq!((preview.granted.len(), preview.promoted, positions.len()), (count, count, 2 * count));
    // One is locked, so the tick plans twice.
    let host = Plain::connect(&url());
    host.ask(&format!("BEGIN; SELECT FROM \"{}\".ready LIMIT 1 FOR UPDATE", scratch.0));
    let mut leases = tick(store, 1, count);
    assert_eq!(leases.len(), count - 1);
    host.ask("ROLLBACK");
    leases.extend(tick(store, 2, count));
    let lost = tick(store, 6, count);
    assert_eq!((leases.len(), lost.len()), (count, count));
    let minute = Duration::from_secs(9_000);
    store.write(|tx| tx.start(at(7), &leases)).unwrap();
    store.write(|tx| tx.start(at(7), &lost)).unwrap();
    for second in 8..11 {
        store.write(|tx| tx.renew(at(second), minute, &leases)).unwrap();
    }
    store.read(|tx| tx.next_expiry()).unwrap();
    assert_eq!(store.write(|tx| tx.reap(at(100), 2 * count)).unwrap().len(), count);
    settle(store, 100);
    let quarter = count / 4;
    let ends: Vec<Finish> = leases[..3 * quarter]
        .iter()
        .enumerate()
        .map(|(n, lease)| match n / quarter {
            0 => Finish::success(*lease),
            1 => Finish::failed(*lease, "m"),
            _ => Finish::given_back(*lease),
        })
        .collect();
    store.write(|tx| tx.finish(at(101), &ends)).unwrap();
    settle(store, 101);
    of_sensors(store, &leases[3 * quarter..]);
    settle(store, 104);
    let again = tick(store, 200, count);
    store
        .write(|tx| {
            tx.finish(at(201), &again.iter().map(|lease| Finish::given_back(*lease)).collect::<Vec<_>>())
        })
        .unwrap();
    settle(store, 201);
    let marks: Vec<Mark> =
        keys(0, count).into_iter().map(|key| Mark::new(key, TaskState::Skipped, "m")).collect();
    store.write(|tx| tx.mark(at(202), &marks)).unwrap();
    settle(store, 202);
    store.write(|tx| tx.clear(at(203), &keys(0, count))).unwrap();
    settle(store, 203);
    let read = store.read(|tx| {
        tx.explain(at(204), &keys(0, count))?;
        let found = tx.tasks(&keys(0, count))?;
        let ids: Vec<_> = found.iter().flatten().map(|task| task.id).collect();
        assert_eq!(tx.tasks_by_id(&ids)?.len(), count);
        tx.audit()
    });
    assert_eq!(read.unwrap(), []);
    store.read(|tx| Ok(raw(tx).survey(&SurveyQuery::new())?)).unwrap();
    store.write(|tx| tx.mark(at(205), &marks)).unwrap();
    store.write(|tx| tx.forget_ended(at(9_999), Duration::ZERO, count)).unwrap();
    let names: Vec<String> = (0..count).map(|n| format!("name {n}")).collect();
    store.write(|tx| tx.serialize(&names)).unwrap();
}

fn of_sensors(store: &PostgresStore, leases: &[LeaseRef]) {
    let settings = Settings::new(Duration::from_secs(10), Duration::from_secs(1_000)).unwrap();
    let new = |lease: &LeaseRef| {
        let context = PokeContext::from_json("{}").unwrap();
        NewSensor::new(*lease, "kind".try_into().unwrap(), context, settings)
    };
    let sensors: Vec<NewSensor> = leases.iter().map(new).collect();
    let registered = store.write(|tx| tx.register(at(102), &sensors)).unwrap();
    assert!(registered.iter().all(|registered| registered.is_waiting()));
    let read = store.read(|tx| {
        for which in [WhichSensors::Waiting, WhichSensors::All] {
            let all = std::iter::once(0..u32::MAX).collect();
            raw(tx).changed_sensors(&SensorQuery::new(0, DEFAULT_CODES, all, which, leases.len()))?;
        }
        tx.sensors(&keys(0, leases.len()))
    });
    assert_eq!(read.unwrap().len(), leases.len());
    let landed = || Ending::new(EndReason::Landed, TaskState::Success);
    let ends: Vec<_> = leases.iter().map(|lease| (*lease, landed())).collect();
    store.write(|tx| tx.end_sensors(at(103), &ends)).unwrap();
    let events = store.read(|tx| tx.feed(0, usize::MAX)).unwrap();
    assert!(events.len() >= leases.len());
    let half = events.len() as u64 / 2;
    store.write(|tx| Ok(raw(tx).forget_feed(half, Timestamp::MIN, leases.len())?)).unwrap();
    store.write(|tx| Ok(raw(tx).forget_feed(0, at(9_999), events.len())?)).unwrap();
}

fn of_runs(store: &PostgresStore, _: &Scratch, count: usize) {
    let run = |n: usize| RunKey::new(format!("n{}", n % 7), format!("run {n}")).unwrap();
    let start = |n: usize| at(1_000 + n as i64);
    let open: Vec<RunRecord> =
        (0..count).map(|n| RunRecord::open(run(n), start(n)).heartbeat(start(n))).collect();
    let closed: Vec<RunRecord> = (count..2 * count)
        .map(|n| RunRecord::open(run(n), start(n)).closed(at(90_000 + n as i64), RunStatus::Completed))
        .collect();
    for runs in [&open, &closed] {
        store.write(|tx| tx.record_runs(runs, StopBeforeStart::Reject)).unwrap();
    }
    let beats: Vec<RunBeat> = (0..count).map(|n| RunBeat::new(run(n), at(40_000))).collect();
    store.write(|tx| tx.beat_runs(&beats)).unwrap();
    let close = |n| RunClose::new(run(n), at(50_000), RunStatus::Completed);
    let closes: Vec<RunClose> = (0..count / 2).map(close).collect();
    store.write(|tx| tx.close_runs(&closes)).unwrap();
    store.write(|tx| tx.stop_runs(&closes, StopBeforeStart::Store)).unwrap();
    let dead = RunStatus::Killed;
    store.write(|tx| tx.close_silent_runs(at(99_000), Duration::from_secs(1), dead, count)).unwrap();
    let query = ActiveQuery::new(at(0), at(99_000));
    let read = store.read(|tx| {
        for query in [&query, &query.clone().limit(count / 2), &query.clone().namespace("n1".try_into()?)] {
            tx.active_runs(query)?;
            tx.active_run_places(query)?;
            tx.count_active_runs(query)?;
        }
        tx.runs(&(0..count).map(run).collect::<Vec<_>>())
    });
    assert_eq!(read.unwrap().len(), count);
    store.write(|tx| tx.delete_runs(&(0..count / 2).map(run).collect::<Vec<_>>())).unwrap();
    store.write(|tx| tx.forget_stopped_runs(at(200_000), count)).unwrap();
}

fn of_definitions(store: &PostgresStore, count: usize) {
    let names: Vec<PoolName> = (0..count).map(|n| PoolName::new(format!("p{n}")).unwrap()).collect();
    let specs: Vec<PoolSpec> =
        names.iter().map(|name| PoolSpec::new(name.as_str(), Slots::Limited(9)).unwrap()).collect();
    let limits: Vec<LimitSpec> = (0..count).map(|n| LimitSpec::new(limit(n), 9).unwrap()).collect();
    let keys: Vec<LimitKey> = (0..count).map(limit).collect();
    store.write(|tx| tx.define(&specs, IfExists::Replace)).unwrap();
    store.write(|tx| tx.define(&limits, IfExists::Replace)).unwrap();
    let read = store.read(|tx| {
        tx.pools(&names)?;
        tx.pool_stats(&names)?;
        tx.limits(&keys)?;
        Ok((tx.all_pools()?.len(), tx.all_limits()?.len()))
    });
    assert_eq!(read.unwrap(), (count + 2, count));
    let pools: Vec<Subject> = names.into_iter().map(Subject::Pool).collect();
    let keys: Vec<Subject> = keys.into_iter().map(Subject::Key).collect();
    for subjects in [&pools, &keys] {
        store.write(|tx| tx.pause(subjects)).unwrap();
        let drained = store.read(|tx| tx.drain(subjects)).unwrap();
        assert!(drained.iter().all(|drain| *drain == Drain::Drained));
        store.write(|tx| tx.resume(subjects)).unwrap();
        store.write(|tx| tx.undefine(subjects)).unwrap();
    }
}

fn of_workers(store: &PostgresStore, count: usize) {
    let name = |n: usize| stationmaster::id::Holder::new(format!("w{n}")).unwrap();
    let put = store.write(|tx| {
        for n in 0..9 {
            raw(tx).put_worker(&PokerRow::new(name(n), DEFAULT_CODES, std::num::NonZeroU32::MIN, at(9)))?;
        }
        let write = |n: usize, was| {
            let lease = ShardLease::new(u32::try_from(n).unwrap(), Some(name(n % 9)), was + 1, at(9));
            ShardWrite::new(was, lease).ended(at(9))
        };
        for was in 0..2 {
            let writes: Vec<ShardWrite> = (0..count).map(|n| write(n, was)).collect();
            assert!(raw(tx).put_shards_if_unchanged(&writes)?.iter().all(|put| *put));
        }
        Ok(raw(tx).delete_worker(&name(0))?)
    });
    put.unwrap();
}

/// What the store does with this many items at once.
type Task = fn(&PostgresStore, &Scratch, usize);

/// What each statement did, of those that `edit` left as they are and of those that it gave another form.
fn works(edit: fn(&str) -> Option<String>, task: Task, count: usize) -> Works {
    let scratch = Scratch::new();
    drop(scratch.open(|options| options));
    let works = Arc::new(Mutex::new(Works::new()));
    let (noted, schema) = (Arc::clone(&works), scratch.0.to_string());
    let relay = Relay::start(&url(), edit, move |notice| note(&noted, &schema, notice));
    let options = scratch.options().statement_timeout(Duration::from_secs(120));
    let store = PostgresStore::connect(&with(&relay.url(), EXPLAINED), options).unwrap();
    store.write(|tx| tx.define([PoolSpec::new("wide", Slots::Unlimited)?], IfExists::Replace)).unwrap();
    task(&store, &scratch, count);
    drop(store);
    relay.until_idle();
    let works = works.lock().unwrap();
    works.clone()
}

/// What grows too much from so few items to ten times as many, and of how many statements. The most that one grows comes
/// last.
fn complaints(edit: fn(&str) -> Option<String>, task: Task, few: usize) -> (Vec<String>, usize, f64) {
    let (of_few, of_many) = (works(edit, task, few), works(edit, task, 10 * few));
    let (mut found, mut most) = (Vec::new(), 0.0_f64);
    for (text, many) in &of_many {
        // A call for many items is sent in pieces, which may be other statements.
        let Some(few) = of_few.get(text) else { continue };
        for (what, bound, few, many) in
            [("rows", MOST_ROWS, few.rows, many.rows), ("buffers", MOST_BUFFERS, few.buffers, many.buffers)]
        {
            let ratio = many / few.max(LITTLE);
            if what == "rows" {
                most = most.max(ratio);
            }
            if ratio > bound {
                found.push(format!("{few} {what}, and {many} for ten times as many items: {text}"));
            }
        }
    }
    (found, of_few.len(), most)
}

fn everything(store: &PostgresStore, scratch: &Scratch, count: usize, apart: bool) {
    of_tasks(store, scratch, count, apart);
    of_runs(store, scratch, count);
    of_workers(store, count);
    of_definitions(store, count);
}

#[test]
fn ten_times_as_many_items_are_ten_times_as_much_work() {
    let shapes: [(&str, Task); 2] = [
        ("one lane each", |store, scratch, count| everything(store, scratch, count, true)),
        ("all in one lane", |store, scratch, count| everything(store, scratch, count, false)),
    ];
    let few = std::env::var("STATIONMASTER_ITEMS").map_or(FEW, |items| items.parse().expect("a number"));
    for (shape, task) in shapes {
        let (found, statements, most) = complaints(|_| None, task, few);
        assert!(found.is_empty(), "{shape}: {}", found.join("\n\n"));
        assert!(statements > 60, "only {statements} statements were sent");
        println!(
            "{shape}, {few} items and ten times as many: {statements} statements, at most {most:.1} times as many rows"
        );
    }
}

/// With words that have the server walk all open runs of a namespace for each run.
#[test]
fn the_count_sees_what_is_done_for_each_pair() {
    let bent = |sql: &str| Some(sql.replace("num_nulls(run.stop) = 1", "run.stop IS NULL"));
    let (found, ..) = complaints(bent, of_runs, 100);
    assert!(found.iter().any(|found| found.contains("open AS MATERIALIZED")), "{found:?}");
}
