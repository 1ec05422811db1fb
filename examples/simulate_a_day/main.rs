//! A day of 200 workflows in seconds: how a host tests its scheduling with a clock that it moves itself, and plans
//! capacity.
//!
//! ```text
//! cargo run --release --example simulate_a_day                                    # a day made from seed 1
//! cargo run --release --example simulate_a_day -- --workload mine.json --target-wait 30s --percentile 95
//! ```
//!
//! The services are those of production: [`Admitter`](stationmaster::service::Admitter),
//! [`Upkeep`](stationmaster::service::Upkeep), [`Poker`](stationmaster::service::Poker) and the verbs of a
//! transaction, over a [`MemoryStore`](stationmaster::store::MemoryStore). Only the host around them is simulated:
//! workers that take time, fail and crash, targets that land, and the clock. The same seed gives the same day, to the
//! last line of its trace.
//!
//! Where to read on: `day` is the simulation, `workload` the shape of the file, `spread` how random numbers follow
//! from the seed, `landing` a poke without a clock, `verify` what must hold at the end, `plan` the planner.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod calendar;
mod check;
mod cli;
mod cron;
mod day;
mod generate;
mod graph;
mod landing;
mod ledger;
mod plan;
mod report;
mod spread;
mod trace;
mod trouble;
mod verify;
mod worker;
mod workload;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;

use crate::cli::Cli;
use crate::day::Day;
use crate::report::Report;
use crate::trace::Trace;
use crate::trouble::Trouble;
use crate::workload::Workload;

/// The most violations that are printed.
const LISTED: usize = 20;

fn main() -> ExitCode {
    match simulate(&Cli::parse()) {
        Ok(code) => code,
        Err(trouble) => {
            eprintln!("error: {trouble}");
            ExitCode::from(if matches!(trouble, Trouble::Input(_)) { 2 } else { 1 })
        }
    }
}

fn simulate(cli: &Cli) -> Result<ExitCode, Trouble> {
    let mut workload = match &cli.workload {
        Some(file) => Workload::read(file)?,
        None => generate::workload(cli.seed)?,
    };
    workload.list_the_default_pool();
    cli.resize(&mut workload)?;
    check::check(&workload)?;
    if let Some(file) = &cli.write_workload {
        workload.write(file)?;
        return Ok(ExitCode::SUCCESS);
    }

    let began = Instant::now();
    let trace = Trace::new(workload.begin, cli.trace.as_deref())?;
    let day = Day::new(&workload, &workload.pools, cli.seed, cli.hours, trace)?.run()?;
    let violations = verify::violations(&day)?;
    eprintln!("simulated in {:.2} s", began.elapsed().as_secs_f64());

    let began = Instant::now();
    let plan = match cli.no_plan {
        true => None,
        false => Some(plan::plan(&workload, cli.seed, cli.hours, cli.goal())?),
    };
    if let Some(plan) = &plan {
        eprintln!("planned with {} days in {:.2} s", plan.days, began.elapsed().as_secs_f64());
    }

    let report = Report {
        seed: cli.seed,
        hours: cli.hours,
        workflows: workload.workflows.len(),
        trace: format!("{:016x}", day.trace),
        counts: day.counts,
        pools: report::pools(&day),
        plan,
        violations,
    };
    match cli.json {
        true => println!("{}", serde_json::to_string_pretty(&report)?),
        false => report.print(),
    }
    for violation in report.violations.iter().take(LISTED) {
        eprintln!("does not hold: {violation}");
    }
    match report.violations.len() {
        0 => {
            eprintln!("all {} checks hold", verify::CHECKS.len());
            Ok(ExitCode::SUCCESS)
        }
        count => {
            eprintln!("{count} violations");
            Ok(ExitCode::FAILURE)
        }
    }
}
