//! Sensors: registration in bulk, the steady cycle, landings, takeover and first load.
//!
//! ```text
//! cargo bench --bench sensors
//! STATIONMASTER_SENSORS=1000000 cargo bench --bench sensors      also a million: three minutes and 1.5 GB on disk
//! STATIONMASTER_SENSORS=1000 cargo bench --bench sensors         a small form: the shape of the tables, not their figures
//! ```
//!
//! 40 % of the sensors wait for a target that another one waits for. The limit is hand-written SQL in the same run; of tries that are
//! repeated the fastest is reported. A bar that is
//! missed is marked, and makes the program fail, except in the small form.

mod bare;
#[path = "../shared/bars.rs"]
mod bars;
mod fleet;
mod landing;
mod measure;
mod traffic;
mod watched;
mod worker;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bars::{Bars, figure};
use stationmaster::store::{MemoryStore, Store};

/// Registers a fleet in the store, and answers how long that took, and the CPU time.
fn registration(store: &Arc<dyn Store>, sensors: usize, targets: usize) -> [Duration; 2] {
    let leases = fleet::running(store, sensors);
    let waiting = fleet::waiting(&leases, targets);
    let (began, before) = (Instant::now(), measure::cpu());
    fleet::registered(store, &waiting);
    [began.elapsed(), measure::cpu() - before]
}

fn bare_registration(path: &Path, sensors: usize, targets: usize) -> [Duration; 2] {
    let leases = fleet::running(&worker::open(path), sensors);
    let waiting = fleet::waiting(&leases, targets);
    let before = measure::cpu();
    let took = bare::register(path, &waiting);
    [took, measure::cpu() - before]
}

fn per_second(sensors: usize, took: Duration) -> f64 {
    sensors as f64 / took.as_secs_f64()
}

/// The fastest of a few tries, since other work slows them down; of one, where that takes long.
fn fastest(sensors: usize, mut once: impl FnMut() -> [Duration; 2]) -> [Duration; 2] {
    let tries = if sensors > 100_000 { 1 } else { 7 };
    (0..tries).map(|_| once()).min().unwrap_or_default()
}

fn size(sensors: usize, bars: &mut Bars) {
    let targets = sensors - sensors * 2 / 5;
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("fleet.db");
    let fresh = || {
        std::fs::read_dir(dir.path()).expect("a folder").for_each(|file| {
            std::fs::remove_file(file.expect("a file").path()).expect("removed");
        })
    };

    let [limit, limit_cpu] = fastest(sensors, || {
        fresh();
        bare_registration(&path, sensors, targets)
    });
    let [took, cpu] = fastest(sensors, || {
        fresh();
        registration(&worker::open(&path), sensors, targets)
    });
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let [in_memory, _] = registration(&memory, sensors, targets);
    drop(memory);
    let (_, read) = bare::read(&path);
    let figures = worker::in_a_process(&path, sensors, targets);

    println!(
        "\n### {sensors} sensors, {targets} targets\n\n| what | measured | limit | times |\n|---|---|---|---|"
    );
    let row = |what: &str, measured: f64, unit: &str, limit: Option<f64>| {
        let ratio = limit.map_or(String::new(), |limit| figure((measured / limit).max(limit / measured)));
        let limit = limit.map_or(String::new(), |limit| format!("{} {unit}", figure(limit)));
        println!("| {what} | {} {unit} | {limit} | {ratio} |", figure(measured));
    };
    let ms = |seconds: f64| seconds * 1e3;
    row("registration, SQLite", per_second(sensors, took), "/s", Some(per_second(sensors, limit)));
    row("the same per second of CPU", per_second(sensors, cpu), "/s", Some(per_second(sensors, limit_cpu)));
    row("registration, memory", per_second(sensors, in_memory), "/s", None);
    row("first load", ms(figures.load_s), "ms", Some(ms(read.as_secs_f64())));
    row("first load, CPU", ms(figures.load_cpu_s), "ms", None);
    row("takeover", ms(figures.takeover_s), "ms", Some(ms(read.as_secs_f64())));
    row("cycle with a poke of every target", ms(figures.cycle_s), "ms", None);
    row("the same, CPU", ms(figures.cycle_cpu_s), "ms", None);
    row("tick with nothing due, CPU", figures.idle_cpu_s * 1e6, "µs", None);
    row("resident memory after seven cycles", figures.resident_mib, "MiB", None);
    row("the most it ever was", figures.most_mib, "MiB", None);

    match sensors {
        20_000 => {
            bars.at_least("20k: sensors registered in a second", per_second(sensors, took), 50_000.0);
            bars.at_most("20k: first load, s", figures.load_s, 1.0);
            bars.at_most("20k: steady cycle, ms of CPU", ms(figures.cycle_cpu_s), 60.0);
        }
        1_000_000 => {
            bars.at_most("1M: resident, MiB", figures.most_mib, 1024.0);
            bars.at_most("1M: steady cycle, s of CPU", figures.cycle_cpu_s, 2.0);
        }
        _ => {}
    }
    traffic::steady(&path, sensors, targets, bars);
}

fn main() -> ExitCode {
    if worker::obey() {
        return ExitCode::SUCCESS;
    }
    let most = std::env::var("STATIONMASTER_SENSORS").map_or(20_000, |text| text.parse().expect("a number"));
    let mut bars = Bars::default();
    for sensors in [1_000, 20_000, 1_000_000] {
        if sensors <= most {
            size(sensors, &mut bars);
        }
    }
    for members in [1_000, 5_000] {
        landing::fan_out(members, &mut bars);
    }
    bars.print();
    if bars.missed() && most >= 20_000 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
