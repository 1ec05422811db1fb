//! Workers at full load while something else is open: a host's transaction, or a reader's snapshot.
//!
//! Each worker enqueues as many tasks as it ends, so as many wait at the end as at the beginning.

use std::thread::sleep;
use std::time::Duration;

use crate::bars::{Bar, Sample};
use crate::cases::throughput::{counts, seconds, workers};
use crate::programs::Program;
use crate::running::{Longest, Running, rate_between};
use crate::{Bench, Outcome, Scene, words};

const WAITING: usize = 200_000;
/// How long the load runs before it is measured, and for how long it is measured before it is disturbed.
const WARM: Duration = Duration::from_secs(10);
const BEFORE: f64 = 3.0;
/// What lasts longer than this meets autovacuum, which comes once a minute. So it is compared with a whole minute.
const MINUTE: f64 = 60.0;
/// What a host does in its transaction before it leaves it open.
const VERBS: [&str; 6] = ["enqueue", "start", "renew", "finish", "register", "cancel"];

fn load(bench: &mut Bench) -> Outcome<Vec<Running>> {
    let url = bench.fresh(Program::Ours, WAITING, "unlimited")?;
    let mut all = workers(bench, Program::Ours, &url, &["work", "load"], 4)?;
    all.iter_mut().try_for_each(Running::go)?;
    sleep(WARM);
    Ok(all)
}

/// Returns the longest of all workers since it was last asked, and the sums of what failed.
pub fn longest(workers: &mut [Running]) -> Outcome<Longest> {
    let mut all = Longest::default();
    for worker in workers {
        let one = worker.longest()?;
        all.end = all.end.max(one.end);
        all.renewal = all.renewal.max(one.renewal);
        all.errors += one.errors;
        all.lost += one.lost;
    }
    Ok(all)
}

/// Returns the rates while hosts have transactions open, and before.
fn beside_hosts(bench: &Bench, all: &[Running], verb: &str, length: &str, hosts: &str) -> Outcome<Sample> {
    let url = bench.server.url("run");
    let mut host = bench.programs.spawn(Program::Ours, &url, &words(&["host", verb, length, hosts]))?;
    host.ready()?;
    sleep(Duration::from_secs_f64(BEFORE));
    host.go()?;
    host.ended()?;
    let open = host.counts();
    let (Some((began, _)), Some((ended, _))) = (open.first(), open.last()) else {
        return Err(format!("the host did not say when it began to {verb}").into());
    };
    let counts = counts(all);
    let rate = |from, to| rate_between(&counts, from, to);
    Ok(Sample::of(rate(began + 0.1, ended - 0.05), rate(began - BEFORE, *began)))
}

pub fn interference(bench: &Bench) -> Vec<Scene> {
    let one = |(name, length, hosts, once): (&str, &'static str, &'static str, bool)| {
        let ratio = |verb: &&str| Bar::at_least(format!("a host that did {verb}: during to before"), 0.9);
        let mut bars: Vec<Bar> = VERBS.iter().map(ratio).collect();
        bars.extend([
            Bar::at_most("longest finish, s", 0.5).worst(),
            Bar::at_most("longest renewal, s", 0.5).worst(),
            Bar::at_most("errors", 0.0).worst(),
        ]);
        // Autovacuum comes once a minute. In one order, it would be the same verb that meets it in each round.
        let mut order: Vec<usize> = (0..VERBS.len()).collect();
        let round = move |bench: &mut Bench| {
            let mut all = load(bench)?;
            longest(&mut all)?;
            let mut samples = vec![Sample::Plain(0.0); VERBS.len()];
            for at in &order {
                samples[*at] = beside_hosts(bench, &all, VERBS[*at], length, hosts)?;
            }
            order.rotate_left(1);
            let worst = longest(&mut all)?;
            samples.extend([worst.end, worst.renewal, worst.errors].map(Sample::Plain));
            Ok(samples)
        };
        let rounds = once.then_some(1);
        Scene { name: format!("interference, {name}"), bars, rounds, round: Box::new(round) }
    };
    let mut lengths = vec![
        ("a transaction of 5 s", "5", "1", false),
        ("20 hosts of 1 s at a time", "1", "20", false),
        ("a transaction of 15 s", "15", "1", false),
        ("a transaction of 60 s", "60", "1", true),
    ];
    if bench.short {
        lengths.truncate(2);
    }
    lengths.into_iter().map(one).collect()
}

pub fn snapshot(bench: &Bench) -> Vec<Scene> {
    let one = |(length, once): (f64, bool)| Scene {
        name: format!("snapshot of {length} s"),
        bars: vec![
            Bar::at_least("during to before", 0.8),
            Bar::at_least("the last tenth to before", 0.8),
            Bar::at_least("within a minute after it closed, to before", 0.95),
        ],
        rounds: once.then_some(1),
        round: Box::new(move |bench| beside_snapshot(bench, length)),
    };
    let mut lengths = vec![(10.0, false), (600.0, true)];
    if bench.short {
        lengths.truncate(1);
    }
    lengths.into_iter().map(one).collect()
}

fn beside_snapshot(bench: &mut Bench, length: f64) -> Outcome<Vec<Sample>> {
    let all = load(bench)?;
    let mut reader = bench.server.admin("run")?;
    let base = if length > MINUTE { MINUTE } else { BEFORE };
    sleep(Duration::from_secs_f64(base));
    let began = seconds();
    // The first query takes the snapshot.
    reader
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY; SELECT count(*) FROM pg_class")?;
    sleep(Duration::from_secs_f64(length));
    let ended = seconds();
    reader.batch_execute("COMMIT")?;
    let rate = |from, to| rate_between(&counts(&all), from, to);
    let before = rate(began - base, began);
    let (during, last) = (rate(began, ended), rate(ended - length / 10.0, ended));
    // The best five seconds in a row of the minute; looked for until they suffice.
    let mut after: f64 = 0.0;
    while seconds() < ended + MINUTE && after < 0.95 * before {
        sleep(Duration::from_secs(1));
        let now = seconds();
        if now >= ended + 5.0 {
            after = after.max(rate(now - 5.0, now));
        }
    }
    Ok([during, last, after].map(|rate| Sample::of(rate, before)).into())
}
