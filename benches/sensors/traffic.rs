//! What a steady cycle reads and writes, as SQLite counts it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use stationmaster::service::Service;
use stationmaster::store::Store;

use crate::bars::Bars;
use crate::fleet::{INTERVAL, now};
use crate::watched::{Traffic, Watched};
use crate::worker::{counting, cycle, poker, settle};

/// Long: intervals pass before it is renewed.
const LEASE: Duration = Duration::from_secs(4 * 3600);

/// Each of the shards, the worker, and what the one kind's pokes of the hour saved.
const RENEWED: u64 = 16 + 1 + 1;

pub(crate) fn steady(path: &Path, sensors: usize, targets: usize, bars: &mut Bars) {
    let watched = Arc::new(Watched::open(path));
    let store: Arc<dyn Store> = watched.clone();
    let poked = Arc::new(AtomicUsize::new(0));
    let mut poker =
        poker(&store, "watched", LEASE).kind("partition".try_into().expect("a name"), counting(&poked));
    let mut at = now() + Duration::from_secs(2 * 3600);
    let loaded = poker.tick(at).expect("a tick").loaded;
    assert_eq!(loaded, sensors);
    settle(&mut poker, at);
    at += INTERVAL;
    let ((), between) = watched.during(|| cycle(&mut poker, at, &poked, targets));
    at += LEASE / 3;
    let ((), renewing) = watched.during(|| cycle(&mut poker, at, &poked, targets));

    println!(
        "\nA steady cycle of {sensors}: {}.\nWith the renewal: {}.",
        summary(&between),
        summary(&renewing)
    );
    let sensors_read = |traffic: &Traffic| (traffic.read_of("sm_sensor") + traffic.read_of("sm_task")) as f64;
    bars.at_most(format!("{sensors}: rows written in a cycle without renewal"), between.written as f64, 0.0);
    bars.at_most(
        format!("{sensors}: rows written in a cycle with renewal"),
        renewing.written as f64,
        RENEWED as f64,
    );
    bars.at_most(
        format!("{sensors}: rows of sensors and tasks read"),
        sensors_read(&between) + sensors_read(&renewing),
        0.0,
    );
    let other = between.rows_read() - between.read_of("sm_counter");
    bars.at_most(format!("{sensors}: rows read besides the change cursor"), other as f64, 0.0);
}

fn summary(traffic: &Traffic) -> String {
    let by_table = ["sm_sensor", "sm_task", "sm_counter", "sm_worker", "sm_shard"];
    let reads = by_table.map(|table| format!("{} of {table}", traffic.read_of(table)));
    format!("{} rows written, {} read: {}", traffic.written, traffic.rows_read(), reads.join(", "))
}
