//! A worker in a process of its own: what it costs is not mixed with what it took to make the fleet.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stationmaster::Timestamp;
use stationmaster::sensor::PokeOutcome;
use stationmaster::service::{PokeRequest, Poker, Service};
use stationmaster::store::Durability;
use stationmaster::store::Store;
use stationmaster::store::sqlite::{SqliteOptions, SqliteStore};

use crate::bars::median;
use crate::fleet::{INTERVAL, now};
use crate::measure::{cpu, memory};

const LEASE: Duration = Duration::from_secs(90);
const CYCLES: usize = 7;

/// What one worker measured of itself.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) load_s: f64,
    pub(crate) load_cpu_s: f64,
    /// A cycle in which every target is poked once, and the leases are renewed.
    pub(crate) cycle_s: f64,
    pub(crate) cycle_cpu_s: f64,
    /// A tick in which nothing is due.
    pub(crate) idle_cpu_s: f64,
    pub(crate) takeover_s: f64,
    pub(crate) resident_mib: f64,
    pub(crate) most_mib: f64,
}

pub(crate) fn open(path: &Path) -> Arc<dyn Store> {
    let options = SqliteOptions::new().durability(Durability::Process);
    Arc::new(SqliteStore::open(path, options).expect("a store"))
}

pub(crate) fn poker(store: &Arc<dyn Store>, name: &str, lease: Duration) -> Poker {
    Poker::new(Arc::clone(store), name.try_into().expect("a name")).lease(lease).threads(2)
}

/// Ticks until no poke runs and all outcomes were processed: due times count from the tick that processes an outcome. A poke may
/// return after the tick has looked for outcomes, so two ticks must find nothing.
pub(crate) fn settle(poker: &mut Poker, at: Timestamp) {
    let mut idle = 0;
    while idle < 2 {
        let report = poker.tick(at).expect("a tick");
        idle = if report.in_flight + report.waiting + report.poked == 0 { idle + 1 } else { 0 };
    }
}

/// Ticks until all these targets were poked once more.
pub(crate) fn cycle(poker: &mut Poker, at: Timestamp, poked: &AtomicUsize, targets: usize) {
    let before = poked.load(Ordering::Relaxed);
    for tick in 0.. {
        let report = poker.tick(at).expect("a tick");
        let reached = poked.load(Ordering::Relaxed) - before;
        if reached >= targets {
            assert_eq!((reached, report.loaded), (targets, 0), "only what is due, and nothing read anew");
            return settle(poker, at);
        }
        assert!(tick < 10_000, "{reached} of {targets} targets were poked");
    }
}

/// A poke that only counts.
pub(crate) fn counting(
    poked: &Arc<AtomicUsize>,
) -> impl Fn(&PokeRequest) -> PokeOutcome + Send + Sync + use<> {
    let poked = Arc::clone(poked);
    move |_| {
        poked.fetch_add(1, Ordering::Relaxed);
        PokeOutcome::NotYet
    }
}

/// Works on the fleet in this file, whose sensors registered long ago.
pub(crate) fn work(path: &Path, sensors: usize, targets: usize) -> Figures {
    let store = open(path);
    let poked = Arc::new(AtomicUsize::new(0));
    let kind = || "partition".try_into().expect("a name");
    let mut poker = poker(&store, "first", LEASE).kind(kind(), counting(&poked));
    let mut at = now() + Duration::from_secs(3600);

    let (began, before) = (Instant::now(), cpu());
    let loaded = poker.tick(at).expect("a tick").loaded;
    let (load_s, load_cpu_s) = (began.elapsed().as_secs_f64(), (cpu() - before).as_secs_f64());
    assert_eq!(loaded, sensors);
    settle(&mut poker, at);

    let (mut walls, mut cpus) = (Vec::new(), Vec::new());
    for _ in 0..CYCLES {
        at += INTERVAL;
        let (began, before) = (Instant::now(), cpu());
        cycle(&mut poker, at, &poked, targets);
        walls.push(began.elapsed().as_secs_f64());
        cpus.push((cpu() - before).as_secs_f64());
    }
    let before = cpu();
    for _ in 0..100 {
        poker.tick(at).expect("a tick");
    }
    let idle_cpu_s = (cpu() - before).as_secs_f64() / 100.0;
    let (resident_mib, most_mib) = (memory("VmRSS"), memory("VmHWM"));
    drop(poker);

    let mut heir = self::poker(&store, "second", LEASE).kind(kind(), counting(&poked));
    let began = Instant::now();
    let taken_over = heir.tick(at + LEASE).expect("a tick").loaded;
    let takeover_s = began.elapsed().as_secs_f64();
    assert_eq!(taken_over, sensors);
    let (cycle_s, cycle_cpu_s) = (median(&mut walls), median(&mut cpus));
    Figures { load_s, load_cpu_s, cycle_s, cycle_cpu_s, idle_cpu_s, takeover_s, resident_mib, most_mib }
}

const ORDERS: &str = "STATIONMASTER_SENSORS_WORKER";

/// In a child, does what it was made for; in the parent, answers at once.
pub(crate) fn obey() -> bool {
    let Ok(orders) = std::env::var(ORDERS) else { return false };
    let (sensors, targets, path): (usize, usize, String) = serde_json::from_str(&orders).expect("orders");
    let figures = work(Path::new(&path), sensors, targets);
    println!("{}", serde_json::to_string(&figures).expect("figures"));
    true
}

/// Has a child work on this file.
pub(crate) fn in_a_process(path: &Path, sensors: usize, targets: usize) -> Figures {
    let orders = serde_json::to_string(&(sensors, targets, path)).expect("orders");
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    let out = child.env(ORDERS, orders).stderr(std::process::Stdio::inherit()).output().expect("a child");
    assert!(out.status.success(), "the worker ended with {}", out.status);
    serde_json::from_slice(&out.stdout).expect("figures")
}
