//! How many tasks a second are enqueued.

use std::thread;
use std::time::Duration;

use crate::bars::{Bar, Sample};
use crate::cases::throughput::workers;
use crate::programs::Program;
use crate::{Bench, Outcome, Scene, words};

const ALONE: usize = 2_000;
const BY_MANY: usize = 6_000;
const BULK: usize = 40_000;
/// Enough that the first ticks of admitters, which find nothing yet, hardly matter.
const BESIDE: usize = 24_000;
const IDLE: &str = "16";
/// For how long idle admitters are left alone before the first enqueue: they connect, prepare their statements, and tick.
const SETTLING: Duration = Duration::from_secs(2);

/// Returns the only figure behind this word.
fn rate(bench: &Bench, program: Program, url: &str, arguments: &[&str]) -> Outcome<f64> {
    let numbers = bench.programs.ask(program, url, "rate", &words(arguments))?;
    numbers.first().copied().ok_or_else(|| format!("{}: no rate", program.name()).into())
}

/// One by one, each a transaction of its own.
fn one_by_one(bench: &mut Bench, program: Program, connections: usize) -> Outcome<f64> {
    let url = bench.fresh(program, 0, "unlimited")?;
    let count = if connections == 1 { ALONE } else { BY_MANY };
    rate(bench, program, &url, &["enqueue", &connections.to_string(), &count.to_string()])
}

/// 1,000 a transaction.
fn in_bulk(bench: &mut Bench, program: Program) -> Outcome<f64> {
    let url = bench.fresh(program, 0, "unlimited")?;
    rate(bench, program, &url, &["fill", &BULK.to_string()])
}

pub fn enqueue() -> Vec<Scene> {
    let singly = Scene {
        name: "enqueue, one by one".into(),
        bars: vec![
            Bar::at_least("8 connections, to 1", 2.5),
            Bar::at_least("8 connections, to graphile's 8", 2.0),
            Bar::at_least("8 connections, to pg-boss' 8", 1.0),
            Bar::given("1 connection, to graphile's 1"),
        ],
        rounds: None,
        round: Box::new(|bench| {
            let alone = one_by_one(bench, Program::Ours, 1)?;
            let graphile_alone = one_by_one(bench, Program::Graphile, 1)?;
            let ours = one_by_one(bench, Program::Ours, 8)?;
            let graphile = one_by_one(bench, Program::Graphile, 8)?;
            let boss = one_by_one(bench, Program::PgBoss, 8)?;
            let others = [alone, graphile, boss].map(|other| Sample::of(ours, other));
            Ok([&others[..], &[Sample::of(alone, graphile_alone)]].concat())
        }),
    };
    let bulk = Scene {
        name: "enqueue, in bulk".into(),
        bars: vec![Bar::at_least("to awa's COPY", 0.95)],
        rounds: None,
        round: Box::new(|bench| {
            let (ours, awa) = (in_bulk(bench, Program::Ours)?, in_bulk(bench, Program::Awa)?);
            Ok(vec![Sample::of(ours, awa)])
        }),
    };
    vec![singly, bulk]
}

/// The enqueue rate beside 16 admitters that have nothing to do, to the rate without them.
pub fn idle() -> Vec<Scene> {
    let one = |(name, slots, due): (&str, &'static str, &'static str)| Scene {
        name: format!("idle, {name}"),
        bars: vec![Bar::at_least("beside 16 idle admitters, to none", 0.8)],
        rounds: None,
        round: Box::new(move |bench| {
            let count = BESIDE.to_string();
            let url = bench.fresh(Program::Ours, 0, slots)?;
            let alone = rate(bench, Program::Ours, &url, &["enqueue", "8", &count, due])?;
            let url = bench.fresh(Program::Ours, 0, slots)?;
            let mut idlers = workers(bench, Program::Ours, &url, &["idle", IDLE], 1)?;
            idlers.iter_mut().try_for_each(|idler| idler.go())?;
            thread::sleep(SETTLING);
            let beside = rate(bench, Program::Ours, &url, &["enqueue", "8", &count, due])?;
            Ok(vec![Sample::of(beside, alone)])
        }),
    };
    [("tasks of a full pool", "0", "now"), ("tasks that are not due", "unlimited", "tomorrow")]
        .map(one)
        .into()
}
