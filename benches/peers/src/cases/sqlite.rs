//! SQLite with a flush each commit: one process, beside apalis.

use std::fs;

use crate::bars::{Bar, Sample};
use crate::programs::Program;
use crate::{Bench, Outcome, Scene, words};

fn rate(bench: &mut Bench, program: Program, what: &str, count: &str) -> Outcome<f64> {
    bench.programs.prepare(program)?;
    let path = bench.folder.join("sqlite.db").display().to_string();
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{path}{suffix}"));
    }
    let numbers = bench.programs.ask(program, &path, "rate", &words(&["sqlite", what, count]))?;
    numbers.first().copied().ok_or_else(|| format!("{}: no rate", program.name()).into())
}

pub fn sqlite() -> Vec<Scene> {
    let round = |bench: &mut Bench| {
        let mut samples = Vec::new();
        for (what, count) in [("each", "1000"), ("enqueue", "2000"), ("fill", "20000")] {
            let ours = rate(bench, Program::Ours, what, count)?;
            samples.push(Sample::of(ours, rate(bench, Program::Apalis, what, count)?));
        }
        Ok(samples)
    };
    vec![Scene {
        name: "SQLite at FULL, to apalis-sqlite".into(),
        bars: vec![
            Bar::at_least("one task at a time (apalis fetches ten)", 1.0),
            Bar::at_least("enqueued one by one", 1.0),
            Bar::at_least("enqueued 1,000 a call", 1.0),
        ],
        rounds: None,
        round: Box::new(round),
    }]
}
