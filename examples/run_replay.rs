//! Replays starts, stops and deletions of runs from a file, and runs the queries between them.
//!
//! ```text
//! cargo run --release --example run_replay -- [--store memory|sqlite|postgres] FILE
//! ```
//!
//! FILE holds one JSON object per line; `-` is the standard input. Times are whole seconds; unknown fields are ignored.
//!
//! ```text
//! {"op":"start","ns":"prod","id":"r1","start":100}              opens a run, or opens it again
//! {"op":"stop","ns":"prod","id":"r1","stop":160}                closes it; a later line corrects the stop
//! {"op":"delete","ns":"prod","id":"r1"}
//! {"op":"query","ns":["prod","dev"],"begin":90,"end":120}       what was active in [begin, end)?
//! {"ns":"prod","id":"r2","start":100,"stop":null}               a whole run
//! {"ns":["prod"],"begin":90,"end":120}                          a query
//! ```
//!
//! Prints one line per query, `{"n":1,"runs":[["prod","r1"]]}`. Queries are numbered from 1, and runs are sorted by
//! namespace and id. A stop before its run's start is kept, and the usual rule is applied to it. A stop of a run that
//! was never started is counted on standard error. Exits with 2 if the file cannot be read.
//!
//! `--store postgres` (feature `postgres`) uses its own schema in the database that `STATIONMASTER_TEST_POSTGRES`
//! names, by default `postgres://postgres@127.0.0.1:5432/test`, and drops it at the end.

#[cfg(feature = "postgres")]
#[path = "../tests/scratch/mod.rs"]
mod scratch;

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use stationmaster::ops::StopBeforeStart;
use stationmaster::run::{ActiveQuery, RunClose, RunKey, RunRecord, RunStatus};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{Result, Timestamp};

/// The most changes that are written in one transaction.
const BATCH: usize = 10_000;

type Failure = Box<dyn std::error::Error>;

#[derive(Deserialize)]
struct Line {
    op: Option<String>,
    ns: Names,
    id: Option<String>,
    start: Option<i64>,
    stop: Option<i64>,
    begin: Option<i64>,
    end: Option<i64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Names {
    One(String),
    Many(Vec<String>),
}

#[derive(Serialize)]
struct Answer<'a> {
    n: usize,
    runs: Vec<[&'a str; 2]>,
}

/// A pending change of a run. It is written when there are enough of them or before a query.
enum Change {
    Put(RunRecord),
    Stop(i64),
    Delete,
}

struct Replay<W> {
    store: Box<dyn Store>,
    waiting: HashMap<RunKey, Change>,
    queries: usize,
    unknown: usize,
    out: W,
}

fn instant(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds.saturating_mul(1_000_000))
}

fn closed(key: RunKey, stop: i64) -> RunClose {
    RunClose::new(key, instant(stop), RunStatus::Completed)
}

fn need<T>(value: Option<T>, field: &str) -> std::result::Result<T, Failure> {
    value.ok_or_else(|| format!("the field {field:?} is missing").into())
}

impl<W: Write> Replay<W> {
    fn line(&mut self, line: Line) -> std::result::Result<(), Failure> {
        let op = line.op.as_deref().unwrap_or(if line.id.is_some() { "run" } else { "query" });
        if op == "query" {
            return self.query(line);
        }
        let Names::One(namespace) = &line.ns else { return Err("the field \"ns\" must be one name".into()) };
        let key = RunKey::new(namespace, need(line.id, "id")?)?;
        match op {
            "start" | "run" => {
                let run = RunRecord::open(key.clone(), instant(need(line.start, "start")?));
                let stop = line.stop.filter(|_| op == "run");
                let run =
                    stop.into_iter().fold(run, |run, stop| run.closed(instant(stop), RunStatus::Completed));
                self.waiting.insert(key, Change::Put(run));
            }
            "stop" => {
                let stop = need(line.stop, "stop")?;
                match self.waiting.remove(&key) {
                    Some(Change::Put(run)) => {
                        let run = run.closed(instant(stop), RunStatus::Completed);
                        self.waiting.insert(key, Change::Put(run));
                    }
                    Some(Change::Delete) => {
                        self.unknown += 1;
                        self.waiting.insert(key, Change::Delete);
                    }
                    Some(Change::Stop(_)) | None => {
                        self.waiting.insert(key, Change::Stop(stop));
                    }
                }
            }
            "delete" => {
                self.waiting.insert(key, Change::Delete);
            }
            other => return Err(format!("{other:?} is no operation").into()),
        }
        if self.waiting.len() >= BATCH {
            self.write()?;
        }
        Ok(())
    }

    /// Writes the pending changes in one transaction.
    fn write(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let (mut puts, mut stops, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        for (key, change) in self.waiting.drain() {
            match change {
                Change::Put(run) => puts.push(run),
                Change::Stop(at) => stops.push(closed(key, at)),
                Change::Delete => gone.push(key),
            }
        }
        let stopped = self.store.write(|tx| {
            tx.record_runs(&puts, StopBeforeStart::Store)?;
            tx.delete_runs(&gone)?;
            tx.stop_runs(&stops, StopBeforeStart::Store)
        })?;
        self.unknown += stopped.iter().filter(|stopped| !stopped.is_known()).count();
        Ok(())
    }

    fn query(&mut self, line: Line) -> std::result::Result<(), Failure> {
        self.write()?;
        self.queries += 1;
        let names = match line.ns {
            Names::One(name) => vec![name],
            Names::Many(names) => names,
        };
        let mut query =
            ActiveQuery::new(instant(need(line.begin, "begin")?), instant(need(line.end, "end")?));
        for name in &names {
            query = query.namespace(name.as_str().try_into()?);
        }
        // A query without namespaces covers all of them.
        let places = match names.is_empty() {
            true => Vec::new(),
            false => self.store.read(|tx| tx.active_run_places(&query))?,
        };
        let mut runs: Vec<[&str; 2]> =
            places.iter().map(|place| [place.key.namespace.as_str(), place.key.id.as_str()]).collect();
        runs.sort_unstable();
        serde_json::to_writer(&mut self.out, &Answer { n: self.queries, runs })?;
        writeln!(self.out)?;
        Ok(())
    }
}

#[cfg(feature = "sqlite")]
fn sqlite() -> Result<Box<dyn Store>> {
    Ok(Box::new(stationmaster::store::SqliteStore::in_memory(Default::default())?))
}

#[cfg(not(feature = "sqlite"))]
fn sqlite() -> Result<Box<dyn Store>> {
    Err(stationmaster::Error::abort("this build has no SQLite: add the feature sqlite"))
}

#[cfg(feature = "postgres")]
fn postgres() -> Result<Box<dyn Store>> {
    Ok(Box::new(scratch::ScratchStore::open(|options| options)))
}

#[cfg(not(feature = "postgres"))]
fn postgres() -> Result<Box<dyn Store>> {
    Err(stationmaster::Error::abort("this build has no PostgreSQL: add the feature postgres"))
}

fn replay(store: Box<dyn Store>, file: &str) -> std::result::Result<usize, Failure> {
    let reader: Box<dyn BufRead> = match file {
        "-" => Box::new(BufReader::new(std::io::stdin())),
        _ => Box::new(BufReader::new(File::open(file)?)),
    };
    let out = BufWriter::new(std::io::stdout().lock());
    let mut replay = Replay { store, waiting: HashMap::new(), queries: 0, unknown: 0, out };
    for (number, text) in (1..).zip(reader.lines()) {
        let text = text.map_err(|error| format!("line {number}: {error}"))?;
        if text.trim().is_empty() {
            continue;
        }
        let line = serde_json::from_str(&text).map_err(|error| format!("line {number}: {error}"))?;
        replay.line(line).map_err(|error| format!("line {number}: {error}"))?;
    }
    replay.write()?;
    replay.out.flush()?;
    Ok(replay.unknown)
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut store: Result<Box<dyn Store>> = Ok(Box::new(MemoryStore::new()));
    if let Some(at) = arguments.iter().position(|argument| argument == "--store") {
        store = match arguments.get(at + 1).map(String::as_str) {
            Some("memory") => store,
            Some("sqlite") => sqlite(),
            Some("postgres") => postgres(),
            other => {
                let text = format!("{other:?} is no store: name memory, sqlite or postgres");
                Err(stationmaster::Error::abort(text))
            }
        };
        arguments.drain(at..arguments.len().min(at + 2));
    }
    let [file] = arguments.as_slice() else {
        eprintln!("usage: run_replay [--store memory|sqlite|postgres] FILE");
        return ExitCode::from(2);
    };
    match store.map_err(Failure::from).and_then(|store| replay(store, file)) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(unknown) => {
            eprintln!("{unknown} stops were of runs that were never started, or deleted before");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{file}: {error}");
            ExitCode::from(2)
        }
    }
}
