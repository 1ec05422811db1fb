//! How many tasks a second a number of processes end, from the first task until none is left.

use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::bars::{Bar, Sample};
use crate::programs::Program;
use crate::running::{Running, done_by};
use crate::{Bench, Outcome, Scene, words};

/// A run that lasts longer is counted as far as it came.
const LIMIT: Duration = Duration::from_secs(60);

/// Enough for one or two seconds of the fastest. Each connection makes its plans in its first transactions, and four
/// processes that end tasks one by one have a hundred connections.
const BATCH_TASKS: usize = 120_000;
const SINGLE_TASKS: usize = 24_000;
const EACH_TASKS: usize = 2_000;
const POOL_TASKS: usize = 8_000;
const MANY: usize = 1_000_000;
const FEW: usize = 20_000;
/// So that none of them is the last that waits.
const FIRST_OF_FEW: usize = 19_000;
/// One run lasts about a second, which is too short for a steady ratio.
const RUNS_OF_MILLION: usize = 4;

pub fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Starts workers, and returns when all are ready to begin.
pub fn workers(
    bench: &Bench,
    program: Program,
    url: &str,
    arguments: &[&str],
    count: usize,
) -> Outcome<Vec<Running>> {
    let spawn = |_| bench.programs.spawn(program, url, &words(arguments));
    let mut workers = (0..count).map(spawn).collect::<Outcome<Vec<Running>>>()?;
    workers.iter_mut().try_for_each(Running::ready)?;
    Ok(workers)
}

pub fn counts(workers: &[Running]) -> Vec<Vec<(f64, u64)>> {
    workers.iter().map(Running::counts).collect()
}

/// What is run: by whom, in which shape, by how many processes.
#[derive(Clone, Copy)]
struct Run {
    program: Program,
    shape: &'static str,
    processes: usize,
    /// Tasks that wait, and how many of them are run.
    waiting: usize,
    tasks: usize,
    slots: &'static str,
}

impl Run {
    fn of(program: Program, shape: &'static str, processes: usize, tasks: usize) -> Self {
        Self { program, shape, processes, waiting: tasks, tasks, slots: "unlimited" }
    }

    /// Returns tasks a second, on a fresh database.
    fn rate(self, bench: &mut Bench) -> Outcome<f64> {
        let url = bench.fresh(self.program, self.waiting, self.slots)?;
        let mut admin = bench.server.admin("run")?;
        let mut workers = workers(bench, self.program, &url, &["work", self.shape], self.processes)?;
        let tasks = self.tasks as u64;
        let (began, started) = (Instant::now(), seconds());
        workers.iter_mut().try_for_each(Running::go)?;
        while workers.iter().map(Running::done).sum::<u64>() < tasks && began.elapsed() < LIMIT {
            sleep(Duration::from_millis(2));
        }
        let mut ended =
            counts(&workers).iter().filter_map(|one| one.last()).map(|last| last.0).fold(started, f64::max);
        if let Some(is_empty) = self.program.is_empty() {
            while !admin.query_one(is_empty, &[])?.get::<_, bool>(0) && began.elapsed() < LIMIT {
                sleep(Duration::from_millis(2));
            }
            ended = seconds();
        }
        let counts = counts(&workers);
        let firsts = counts.iter().flatten().filter(|(_, count)| *count > 0).map(|(when, _)| *when);
        let first = firsts.fold(f64::INFINITY, f64::min);
        let done = done_by(&counts, f64::INFINITY) - done_by(&counts, first);
        // Nothing at all, or everything at the first look.
        if !first.is_finite() || ended <= first {
            return Ok(0.0);
        }
        Ok(done as f64 / (ended - first))
    }
}

fn scene(
    name: String,
    bars: Vec<Bar>,
    round: impl FnMut(&mut Bench) -> Outcome<Vec<Sample>> + 'static,
) -> Scene {
    Scene { name, bars, rounds: None, round: Box::new(round) }
}

fn processes(count: usize) -> String {
    if count == 1 { "1 process".into() } else { format!("{count} processes") }
}

/// Two runs beside each other, whose ratio must be at least this.
fn pair(name: &str, ours: Run, other: Run, limit: f64) -> Scene {
    let name = format!("{name}, {}", processes(ours.processes));
    let what = format!("{} to {}", ours.program.name(), other.program.name());
    scene(name, vec![Bar::at_least(what, limit)], move |bench| {
        Ok(vec![Sample::of(ours.rate(bench)?, other.rate(bench)?)])
    })
}

/// 24 places; each end is a commit of its own.
pub fn single() -> Vec<Scene> {
    let run = |program, processes| Run::of(program, "single", processes, SINGLE_TASKS);
    let scene = |n| pair("single", run(Program::Ours, n), run(Program::Graphile, n), 1.0);
    [1, 4].map(scene).into()
}

/// One place, one task at a time.
pub fn each() -> Vec<Scene> {
    let run = |program, processes| Run::of(program, "each", processes, EACH_TASKS);
    let scene = |(n, limit)| pair("each", run(Program::Ours, n), run(Program::Graphile, n), limit);
    [(1, 1.0), (4, 0.8)].map(scene).into()
}

/// 64 at a time, in sequence and with ends that overlap the next grants. The batches of a process that is alone have
/// a connection each, those of several share one.
pub fn batch64() -> Vec<Scene> {
    let one = |n: usize| {
        let run = move |program, shape| Run::of(program, shape, n, BATCH_TASKS);
        let mut bars = vec![
            Bar::at_least("overlapping, to graphile's fastest form", 0.6),
            Bar::at_least("in sequence, to graphile's fastest form", 0.5),
            Bar::at_least("overlapping, to awa", 1.3),
            Bar::at_least("in sequence, to awa", 1.3),
        ];
        if n > 1 {
            bars.push(Bar::given("overlapping, to the same with a connection for each batch"));
        }
        if n == 8 {
            bars.push(Bar::at_least("overlapping, to 1 process of ours", 1.0));
            bars.push(Bar::at_least("in sequence, to 1 process of ours", 1.0));
        }
        scene(format!("batch64, {}", processes(n)), bars, move |bench| {
            let overlap =
                run(Program::Ours, if n == 1 { "overlap" } else { "overlap_on_one" }).rate(bench)?;
            let graphile = run(Program::Graphile, "batch").rate(bench)?;
            let sequence = run(Program::Ours, "sequence").rate(bench)?;
            let awa = run(Program::Awa, "batch").rate(bench)?;
            let mut samples = vec![
                Sample::of(overlap, graphile),
                Sample::of(sequence, graphile),
                Sample::of(overlap, awa),
                Sample::of(sequence, awa),
            ];
            if n > 1 {
                samples.push(Sample::of(overlap, run(Program::Ours, "overlap").rate(bench)?));
            }
            if n == 8 {
                let alone = |shape| Run::of(Program::Ours, shape, 1, BATCH_TASKS);
                samples.push(Sample::of(overlap, alone("overlap").rate(bench)?));
                samples.push(Sample::of(sequence, alone("sequence").rate(bench)?));
            }
            Ok(samples)
        })
    };
    [1, 4, 8].map(one).into()
}

/// A pool of 64 slots, 16 a tick.
pub fn pool64() -> Vec<Scene> {
    let run = |program, n| Run { slots: "64", ..Run::of(program, "pool", n, POOL_TASKS) };
    let scene = |(n, limit)| pair("pool64", run(Program::Ours, n), run(Program::Before, n), limit);
    [(1, 2.2), (4, 3.0), (8, 3.0)].map(scene).into()
}

/// The crate's `Worker` beside the verbs in the same shape: 24 places, ends that share transactions. Its rate counts
/// handlers that returned, of which at most 24 are not committed when the last one returns.
pub fn worker() -> Vec<Scene> {
    let bars = |what: &str| Bar::at_least(format!("{what}, to the verbs by hand"), 0.9);
    let one = |n: usize| {
        let run = move |shape| Run::of(Program::Ours, shape, n, SINGLE_TASKS);
        let bars = vec![bars("handlers on threads"), bars("handlers as futures")];
        scene(format!("worker, {}", processes(n)), bars, move |bench| {
            let by_hand = run("by_hand").rate(bench)?;
            let (threads, futures) = (run("worker").rate(bench)?, run("worker_async").rate(bench)?);
            Ok(vec![Sample::of(threads, by_hand), Sample::of(futures, by_hand)])
        })
    };
    [1, 4].map(one).into()
}

/// The first tasks of a million that wait, and of far fewer.
pub fn million() -> Vec<Scene> {
    let run = |waiting| Run { waiting, ..Run::of(Program::Ours, "sequence", 4, FIRST_OF_FEW) };
    let bars = vec![Bar::at_least("1,000,000 waiting, to 20,000", 0.95)];
    let round = move |bench: &mut Bench| {
        let (mut few, mut many) = (0.0, 0.0);
        for _ in 0..RUNS_OF_MILLION {
            few += run(FEW).rate(bench)?;
            many += run(MANY).rate(bench)?;
        }
        let runs = RUNS_OF_MILLION as f64;
        Ok(vec![Sample::of(many / runs, few / runs)])
    };
    vec![scene("million, 4 processes".into(), bars, round)]
}
