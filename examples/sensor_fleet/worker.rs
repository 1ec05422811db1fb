//! A worker process: pokes, and reports to the host line by line.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::sensor::PokeOutcome;
use stationmaster::service::kinds::Condition;
use stationmaster::service::{PokeRequest, Poker, Service};
use stationmaster::store::{SqliteStore, Store, StoreInfo, Tx, TxMode};

use crate::cli::Options;
use crate::fleet::Target;
use crate::{Failure, fleet, system};

/// The environment variable that makes this program a worker.
pub(crate) const ORDERS: &str = "STATIONMASTER_FLEET_WORKER";

/// How long a worker sleeps at most.
const NAP: Duration = Duration::from_millis(50);

#[derive(Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) options: Options,
}

/// A worker's report. Times are in microseconds.
#[derive(Serialize, Deserialize)]
pub(crate) enum Line {
    /// A target was poked at this instant, this long after it was due.
    Poke { target: usize, at: i64, late: i64 },
    /// A tick that poked, loaded or wrote something.
    Tick { took: u64, poked: usize, saved: usize, loaded: usize, writes: usize },
    /// The worker's state, reported from time to time.
    State { at: i64, sensors: usize, cpu: Option<Duration>, resident: Option<f64> },
}

/// Counts write transactions.
#[derive(Debug)]
struct Counted {
    store: SqliteStore,
    writes: AtomicUsize,
}

impl Store for Counted {
    fn info(&self) -> StoreInfo {
        self.store.info()
    }

    fn transact(
        &self,
        mode: TxMode,
        body: &mut dyn FnMut(&mut Tx<'_>) -> stationmaster::Result<()>,
    ) -> stationmaster::Result<()> {
        self.writes.fetch_add(usize::from(mode == TxMode::Write), Ordering::Relaxed);
        self.store.transact(mode, body)
    }
}

/// Lines to print at the end of the tick.
type Lines = Arc<Mutex<Vec<Line>>>;

fn take(lines: &Lines) -> Vec<Line> {
    std::mem::take(&mut lines.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Pokes a target that never lands.
fn poke(request: &PokeRequest, options: &Options, lines: &Lines) -> PokeOutcome {
    let at = SystemClock.now();
    // A target is due on a grid of the interval, shifted by its fingerprint.
    let interval = options.interval.as_micros() as i64;
    let shift = (request.fingerprint().0 % interval.unsigned_abs()) as i64;
    let late = (at.as_micros() - shift).rem_euclid(interval);
    std::thread::sleep(options.poke);
    match Target::read(&request.context) {
        Ok(Target { n }) => {
            let line = Line::Poke { target: n, at: at.as_micros(), late };
            lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            PokeOutcome::NotYet
        }
        Err(wrong) => wrong,
    }
}

/// Pokes until the host closes the standard input.
pub(crate) fn work(orders: &Orders) -> Result<(), Failure> {
    let stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&stopped);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop.store(true, Ordering::Relaxed);
    });

    let store = Arc::new(Counted { store: fleet::open(&orders.path)?, writes: AtomicUsize::new(0) });
    let options = &orders.options;
    let min_interval = options.interval.min(Duration::from_secs(1));
    let (lines, own) = (Lines::default(), options.clone());
    let into = Arc::clone(&lines);
    let mut poker = Poker::new(store.clone(), orders.name.as_str().try_into()?)
        .lease(options.lease)
        .threads(options.threads)
        .min_interval(min_interval)
        .kind(Target::kind()?, move |request: &PokeRequest| poke(request, &own, &into));

    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut stated = Instant::now();
    while !stopped.load(Ordering::Relaxed) {
        let report = poker.tick(SystemClock.now())?;
        let writes = store.writes.swap(0, Ordering::Relaxed);
        let mut said = take(&lines);
        if writes + report.poked + report.loaded > 0 {
            said.push(Line::Tick {
                took: report.duration.as_micros() as u64,
                poked: report.poked,
                saved: report.saved,
                loaded: report.loaded,
                writes,
            });
        }
        if report.loaded > 0 || stated.elapsed() > Duration::from_secs(1) {
            stated = Instant::now();
            said.push(Line::State {
                at: SystemClock.now().as_micros(),
                sensors: report.sensors,
                cpu: system::cpu(),
                resident: system::resident(),
            });
        }
        for line in said {
            serde_json::to_writer(&mut out, &line)?;
            out.write_all(b"\n")?;
        }
        out.flush()?;
        let wait = report.next_due.map_or(NAP, |due| due.saturating_duration_since(SystemClock.now()));
        std::thread::sleep(wait.min(NAP));
    }
    Ok(poker.leave()?)
}
