//! From the commit of the enqueue to the first line of the handler, in an idle system.

use crate::bars::{Bar, Sample};
use crate::programs::Program;
use crate::{Bench, Outcome, Scene, words};

fn measure(bench: &mut Bench, program: Program, how: &[&str], samples: &str) -> Outcome<[f64; 2]> {
    let url = bench.fresh(program, 0, "unlimited")?;
    let numbers =
        bench.programs.ask(program, &url, "latency", &words(&[&["latency", samples], how].concat()))?;
    <[f64; 2]>::try_from(numbers).map_err(|numbers| format!("{}: latency {numbers:?}", program.name()).into())
}

/// From an enqueue to the handler of the crate's `Worker`, beside a loop of verbs.
pub fn of_worker(bench: &Bench) -> Scene {
    let samples = if bench.short { "300" } else { "2000" };
    let bars = vec![
        Bar::at_most("p50 of a worker, to the verbs by hand, us", 1.1),
        Bar::at_most("p99 of a worker, to the verbs by hand, us", 1.1),
    ];
    let round = move |bench: &mut Bench| {
        let by_hand = measure(bench, Program::Ours, &["transaction"], samples)?;
        let worker = measure(bench, Program::Ours, &["transaction", "worker"], samples)?;
        Ok([0, 1].map(|at| Sample::of(worker[at], by_hand[at])).to_vec())
    };
    Scene {
        name: format!("worker, latency, {samples} samples a run"),
        bars,
        rounds: None,
        round: Box::new(round),
    }
}

pub fn latency(bench: &Bench) -> Vec<Scene> {
    let samples = if bench.short { "300" } else { "2000" };
    let bars = vec![
        Bar::at_most("p50 by default, to graphile, us", 1.6),
        Bar::at_most("p99 by default, to graphile, us", 1.6),
        Bar::at_most("p50 with the wake-up in the transaction, us", 1.4),
        Bar::at_most("p99 with the wake-up in the transaction, us", 1.4),
    ];
    let round = move |bench: &mut Bench| {
        let default = measure(bench, Program::Ours, &["default"], samples)?;
        let graphile = measure(bench, Program::Graphile, &[], samples)?;
        let within = measure(bench, Program::Ours, &["transaction"], samples)?;
        let beside = |ours: [f64; 2]| [0, 1].map(|at| Sample::of(ours[at], graphile[at]));
        Ok([beside(default), beside(within)].concat())
    };
    let name = format!("latency, {samples} samples a run");
    vec![Scene { name, bars, rounds: None, round: Box::new(round) }]
}
