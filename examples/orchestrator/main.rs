//! A small workflow orchestrator on top of `stationmaster`: one process, one SQLite file or PostgreSQL schema, any POSIX
//! shell.
//!
//! ```text
//! cargo run --release --example orchestrator                       # the shipped workflow
//! cargo run --release --example orchestrator -- my.json --db my.db --workers 4
//! cargo run --release --example orchestrator --features postgres -- --db postgres://postgres@127.0.0.1:5432/test
//! ```
//!
//! Where to read on: `workflow` is the shape of the file, `graph` the dependencies, `run` the transaction that ends a
//! task and enqueues the next, `scheduler` one step of the loop, `worker` and `child` how commands run, `sensors` and
//! `kinds` how tasks wait, `session` how these parts work together.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod check;
mod child;
mod cli;
mod database;
mod graph;
mod held;
mod kinds;
mod report;
mod run;
mod scheduler;
mod screen;
mod sensors;
mod session;
mod trouble;
mod worker;
mod workflow;

use std::process::ExitCode;

use clap::Parser;
use stationmaster::clock::{Clock, SystemClock};

use crate::cli::Cli;
use crate::graph::Graph;
use crate::run::Run;
use crate::screen::say;
use crate::session::{End, Tally};
use crate::trouble::Trouble;

fn main() -> ExitCode {
    match orchestrate(&Cli::parse()) {
        Ok(code) => code,
        Err(trouble) => {
            eprintln!("error: {trouble}");
            ExitCode::from(trouble.exit_code())
        }
    }
}

fn orchestrate(cli: &Cli) -> Result<ExitCode, Trouble> {
    let source = workflow::read(&cli.workflow_file())?;
    check::check(&source.workflow)?;
    let graph = Graph::new(&source.workflow)?;
    let places = cli.places(&source.workflow.name)?;

    let store = places.database.open(&places.work)?;
    let run = Run::open(store.as_ref(), source, graph, places, SystemClock.now())?;
    let data = run.places.data(run.id());
    std::fs::create_dir_all(&data).map_err(|error| Trouble::io("make the directory", &data, &error))?;

    let how = if run.resumed { "resumed" } else { "begun" };
    say(format_args!(
        "run {} {how}: {} tasks, files in {}",
        run.id(),
        run.keys.len(),
        run.places.work.display()
    ));
    let tally = Tally::default();
    let end = session::work(&store, &run, cli.workers.into(), &tally)
        .inspect_err(|_| say(format_args!("run {}: stopped; the same command resumes it", run.id())))?;
    match end {
        End::RunOver => {
            let well = report::print(store.as_ref(), &run, &tally, SystemClock.now())?;
            Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        End::Interrupted => {
            say(format_args!("run {}: interrupted; the same command resumes it", run.id()));
            Ok(ExitCode::from(130))
        }
    }
}
