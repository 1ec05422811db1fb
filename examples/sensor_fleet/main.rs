//! A fleet of sensors on a SQLite file, and processes that poll it.
//!
//! ```text
//! cargo run --release --example sensor_fleet
//! cargo run --release --example sensor_fleet -- --workers 3 --kill-one
//! cargo run --release --example sensor_fleet -- --sensors 20000 --poke-ms 100 --interval 180 --workers 1 --seconds 420
//! ```
//!
//! The first command ends after a few seconds. `--help` lists the options. All targets are poked at once when the
//! sensors have registered. The figures are for the time after that round, in which every group is poked once per
//! interval, at its own instant.
//!
//! With `--kill-one` a worker process is killed half-way. The takeover lasts until another worker has poked every
//! group that the killed one had poked last. It must not take longer than the lease and one interval. Exits with 1 if
//! it does.

mod cli;
mod fleet;
mod report;
mod system;
mod worker;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use cli::Options;
use report::Findings;
use worker::{Line, Orders};

type Failure = Box<dyn std::error::Error>;

/// A worker's number, and its report.
type Heard = (usize, Line);

fn spawn(options: &Options, path: &Path, number: usize, heard: &Sender<Heard>) -> Result<Child, Failure> {
    let orders = Orders { name: format!("worker-{number}"), path: path.into(), options: options.clone() };
    let mut child = Command::new(std::env::current_exe()?)
        .env(worker::ORDERS, serde_json::to_string(&orders)?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let out = child.stdout.take().ok_or("the worker has no output")?;
    let heard = heard.clone();
    std::thread::spawn(move || {
        for text in BufReader::new(out).lines().map_while(Result::ok) {
            // The last line of a killed worker may be half a line.
            if let Ok(line) = serde_json::from_str(&text)
                && heard.send((number, line)).is_err()
            {
                return;
            }
        }
    });
    Ok(child)
}

fn host(options: &Options) -> Result<ExitCode, Failure> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("fleet.db");
    fleet::register(options, &path)?;

    let (sender, heard) = channel();
    let began = Instant::now();
    let mut workers = Vec::new();
    for number in 0..options.workers {
        workers.push(spawn(options, &path, number, &sender)?);
    }
    let mut findings = Findings::new(options);
    let listen = |findings: &mut Findings, until: Instant| {
        while let Ok((number, line)) = heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
            findings.hear(number, line);
        }
    };
    let end = began + options.length();
    if options.kill_one {
        listen(&mut findings, end - options.lease - options.interval - Duration::from_secs(1));
        let killed = workers.first_mut().ok_or("there is no worker")?;
        findings.killed(0);
        killed.kill()?;
        killed.wait()?;
        if options.workers == 1 {
            workers.push(spawn(options, &path, 1, &sender)?);
        }
    }
    listen(&mut findings, end);
    for worker in &mut workers {
        // A worker leaves its shards when its standard input ends.
        drop(worker.stdin.take());
        worker.wait()?;
    }
    listen(&mut findings, Instant::now());
    Ok(if findings.print() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn main() -> Result<ExitCode, Failure> {
    if let Ok(orders) = std::env::var(worker::ORDERS) {
        worker::work(&serde_json::from_str(&orders)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => host(&options),
        Ok(None) => {
            println!("{}", cli::HELP);
            Ok(ExitCode::SUCCESS)
        }
        Err(problem) => {
            eprintln!("{problem}\n\n{}", cli::HELP);
            Ok(ExitCode::from(2))
        }
    }
}
