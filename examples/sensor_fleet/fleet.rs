//! Creates the fleet.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stationmaster::admission::IfExists;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::Settings;
use stationmaster::service::Admitter;
use stationmaster::service::kinds::Condition;
use stationmaster::store::SqliteStore;
use stationmaster::{NewTask, TaskKey};

use crate::Failure;
use crate::cli::Options;

/// At most this many tasks per transaction.
const BULK: usize = 20_000;

/// The target of a sensor. Sensors with the same target share its pokes.
#[derive(Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) n: usize,
}

impl Condition for Target {
    const KIND: &'static str = "target";
    const EXAMPLE: &'static str = r#"{"n": 7}"#;
}

pub(crate) fn open(path: &Path) -> stationmaster::Result<SqliteStore> {
    SqliteStore::open(path, Default::default())
}

/// Runs tasks and registers them as sensors. Returns how long the registrations took.
fn register_all(options: &Options, store: Arc<SqliteStore>) -> Result<Duration, Failure> {
    let pool = PoolSpec::new("wide", Slots::Unlimited)?;
    store.write(|tx| tx.define([&pool], IfExists::Replace))?;
    let settings = Settings::new(options.interval, Duration::from_secs(7 * 86_400))?;
    let mut admitter =
        Admitter::new(store.clone(), "host".try_into()?).lease(Duration::from_secs(3600)).budget(BULK);
    let mut took = Duration::ZERO;
    for first in (0..options.sensors).step_by(BULK) {
        let numbers = first..options.sensors.min(first + BULK);
        let tasks: Vec<NewTask> = numbers
            .map(|n| {
                Ok(NewTask::new(TaskKey::new("fleet", "waits", "run", format!("task-{n}"))?)
                    .pool("wide".try_into()?))
            })
            .collect::<Result<_, Failure>>()?;
        let now = SystemClock.now();
        store.write(|tx| tx.enqueue(now, &tasks))?;
        let granted = admitter.admit(now, BULK)?.granted;
        let leases: Vec<_> = granted.iter().map(|task| task.lease_ref()).collect();
        store.write(|tx| tx.start(now, &leases))?;
        let sensors = (first..)
            .zip(leases)
            .map(|(n, lease)| Target { n: n % options.targets() }.sensor(lease, settings))
            .collect::<Result<Vec<_>, _>>()?;
        let began = Instant::now();
        store.write(|tx| tx.register(SystemClock.now(), &sensors))?;
        took += began.elapsed();
    }
    Ok(took)
}

/// Registers the fleet in a new file, and prints how fast that was.
pub(crate) fn register(options: &Options, path: &Path) -> Result<(), Failure> {
    let took = register_all(options, Arc::new(open(path)?))?;
    let (sensors, targets) = (options.sensors, options.targets());
    let speed = sensors as f64 / took.as_secs_f64();
    println!("{sensors} sensors of {targets} targets registered in {took:.1?}: {speed:.0} a second");
    Ok(())
}
