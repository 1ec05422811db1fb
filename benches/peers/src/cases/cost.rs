//! What a task costs the server from its enqueue to its end: bytes of log, and versions of rows that die.

use std::thread::sleep;
use std::time::{Duration, Instant};

use postgres::Client;

use crate::bars::{Bar, Sample};
use crate::cases::throughput::workers;
use crate::programs::Program;
use crate::running::Running;
use crate::{Bench, Outcome, Scene, words};

const BATCH_TASKS: usize = 20_000;
const SINGLE_TASKS: usize = 4_000;
const LIMIT: Duration = Duration::from_secs(120);

/// A task's share of the log and of what dies.
struct Cost {
    log: f64,
    dead: f64,
}

/// Each update and each deletion leaves a version that is dead.
const DEAD: &str = "SELECT coalesce(sum(n_tup_upd + n_tup_del), 0)::float8 FROM pg_stat_user_tables";

fn number(admin: &mut Client, query: &str) -> Outcome<f64> {
    Ok(admin.query_one(query, &[])?.get(0))
}

/// `enqueue`: the arguments that enqueue all tasks. `shape`: how one worker runs them.
fn measure(
    bench: &mut Bench,
    program: Program,
    enqueue: &[&str],
    shape: &str,
    tasks: usize,
) -> Outcome<Cost> {
    let url = bench.fresh(program, 0, "unlimited")?;
    // A checkpoint in between would put whole pages into the log, and a vacuum its own records.
    let mut settings = bench.server.admin("postgres")?;
    for sql in ["ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()", "CHECKPOINT"] {
        settings.batch_execute(sql)?;
    }
    sleep(Duration::from_millis(200));
    let mut admin = bench.server.admin("run")?;
    let (log, before) =
        ("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8", number(&mut admin, DEAD)?);
    let began = number(&mut admin, log)?;
    bench.programs.call(program, &url, &words(enqueue))?;
    let mut all = workers(bench, program, &url, &["work", shape], 1)?;
    all.iter_mut().try_for_each(Running::go)?;
    let clock = Instant::now();
    while (all.iter().map(Running::done).sum::<u64>() as usize) < tasks && clock.elapsed() < LIMIT {
        sleep(Duration::from_millis(5));
    }
    if let Some(is_empty) = program.is_empty() {
        while !admin.query_one(is_empty, &[])?.get::<_, bool>(0) && clock.elapsed() < LIMIT {
            sleep(Duration::from_millis(5));
        }
    }
    let logged = number(&mut admin, log)? - began;
    let done = all.iter().map(Running::done).sum::<u64>() as f64;
    // A server process reports what it did when it ends, or a second later.
    drop(all);
    sleep(Duration::from_millis(1_500));
    let dead = number(&mut bench.server.admin("run")?, DEAD)? - before;
    for sql in ["ALTER SYSTEM RESET autovacuum", "SELECT pg_reload_conf()"] {
        settings.batch_execute(sql)?;
    }
    Ok(Cost { log: logged / done, dead: dead / done })
}

pub fn cost() -> Vec<Scene> {
    let (all, some) = (BATCH_TASKS.to_string(), SINGLE_TASKS.to_string());
    let batch = Scene {
        name: "cost as batch64, enqueued in bulk".into(),
        bars: vec![
            Bar::at_most("log to graphile's, bytes a task", 1.4),
            Bar::at_most("dead versions a task", 2.2),
            Bar::given("dead versions a task to graphile's"),
        ],
        rounds: None,
        round: Box::new(move |bench| {
            let ours = measure(bench, Program::Ours, &["fill", &all], "sequence", BATCH_TASKS)?;
            let graphile = measure(bench, Program::Graphile, &["fill", &all], "batch", BATCH_TASKS)?;
            let dead = [Sample::Plain(ours.dead), Sample::of(ours.dead, graphile.dead)];
            Ok([&[Sample::of(ours.log, graphile.log)], &dead[..]].concat())
        }),
    };
    let single = Scene {
        name: "cost as single, enqueued one by one".into(),
        bars: vec![
            Bar::at_most("log to graphile's, bytes a task", 1.4),
            Bar::given("dead versions a task to graphile's"),
        ],
        rounds: None,
        round: Box::new(move |bench| {
            let enqueue = ["enqueue", "1", &some];
            let ours = measure(bench, Program::Ours, &enqueue, "single", SINGLE_TASKS)?;
            let graphile = measure(bench, Program::Graphile, &enqueue, "single", SINGLE_TASKS)?;
            Ok(vec![Sample::of(ours.log, graphile.log), Sample::of(ours.dead, graphile.dead)])
        }),
    };
    vec![batch, single]
}
