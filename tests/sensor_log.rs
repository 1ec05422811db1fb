//! The log of one sensor that two processes poke, one of which is killed in an outage.
//! `cargo test --all-features --test sensor_log -- --nocapture` prints it.
#![cfg(all(feature = "testing", feature = "postgres"))]

#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "respawn/mod.rs"]
mod respawn;
#[path = "scratch/mod.rs"]
mod scratch;

use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use respawn::Respawned;
use serde::{Deserialize, Serialize};
use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::sensor::{NewSensor, PokeOutcome, Settings};
use stationmaster::service::{Admitter, FileLog, PokeRequest, Poker, Service};
use stationmaster::store::Store;
use stationmaster::store::postgres::{PostgresOptions, PostgresStore, Schema};
use stationmaster::testing::raw;
use stationmaster::{NewTask, TaskKey};

/// What a process that pokes receives.
#[derive(Serialize, Deserialize)]
struct Orders {
    schema: String,
    name: String,
    logs: PathBuf,
    /// The file from which pokes read what the target is like.
    target: PathBuf,
}

fn now() -> stationmaster::Timestamp {
    SystemClock.now()
}

/// The entry of the processes that poke.
#[test]
fn child() {
    let Some(orders) = respawn::argument() else { return };
    let orders: Orders = serde_json::from_str(&orders).unwrap();
    let options = PostgresOptions::new().schema(Schema::new(orders.schema).unwrap());
    let store: Arc<dyn Store> = Arc::new(PostgresStore::connect(&scratch::url(), options).unwrap());
    let target = orders.target;
    let poke = move |_: &PokeRequest| match fs::read_to_string(&target).unwrap().as_str() {
        "down" => PokeOutcome::Unreachable("connection refused".into()),
        "complete" => PokeOutcome::Landed(Some("5 of 5 partitions".into())),
        partial => PokeOutcome::Progress(partial.to_owned()),
    };
    let mut poker = Poker::new(store, orders.name.as_str().try_into().unwrap())
        .shards(NonZeroU32::MIN)
        .lease(Duration::from_secs(2))
        .min_interval(Duration::from_millis(100))
        .max_pause(Duration::from_secs(1))
        .kind("partitions".try_into().unwrap(), poke)
        .log(FileLog::new(orders.logs, FileLog::AIRFLOW).unwrap());
    loop {
        poker.tick(now()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until something is so.
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(120), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Becomes what the pokes find, at once.
fn set(target: &Path, to: &str) {
    let next = target.with_extension("next");
    fs::write(&next, to).unwrap();
    fs::rename(next, target).unwrap();
}

fn register(store: &Arc<dyn Store>, key: &TaskKey) {
    store.write(|tx| tx.enqueue(now(), &[NewTask::new(key.clone())])).unwrap();
    let granted = Admitter::new(store.clone(), "runner".try_into().unwrap()).tick(now()).unwrap().granted;
    let lease = granted[0].lease_ref();
    let context = PokeContext::from_json(r#"{"table":"sales","day":"2026-01-01"}"#).unwrap();
    let settings = Settings::new(Duration::from_millis(500), Duration::from_secs(3_600)).unwrap();
    let sensor = NewSensor::new(lease, "partitions".try_into().unwrap(), context, settings);
    store
        .write(|tx| {
            tx.start(now(), &[lease])?;
            tx.register(now(), std::slice::from_ref(&sensor))
        })
        .unwrap();
}

#[test]
fn one_sensor_from_its_registration_through_a_kill_and_an_outage_to_its_end() {
    let scratch = scratch::Scratch::new();
    let schema = scratch.0.as_str();
    let store: Arc<dyn Store> = Arc::new(scratch.open(|options| options));
    let work = tempfile::tempdir().unwrap();
    let target = work.path().join("target");
    set(&target, "3 of 5 partitions are there");
    let key = TaskKey::new("prod", "nightly", "2026-01-01", "wait_for_sales").unwrap();
    let logs = |name: &str| FileLog::new(work.path().join(name), FileLog::AIRFLOW).unwrap();
    let spawn = |name: &str| {
        let (schema, logs) = (schema.to_owned(), work.path().join(name));
        let orders = Orders { schema, name: name.to_owned(), logs, target: target.clone() };
        Respawned::new("child", &serde_json::to_string(&orders).unwrap())
    };
    let (of_ada, of_bo) = (logs("ada"), logs("bo"));
    let all = |log: &FileLog| log.reader(&*store, key.clone(), 1, usize::MAX)().unwrap().join("\n");
    let says = |log: &FileLog, part: &str| wait_for(part, || all(log).contains(part));

    let ada = spawn("ada");
    register(&store, &key);
    says(&of_ada, "not yet: 3 of 5 partitions are there");
    let _bo = spawn("bo");
    set(&target, "down");
    says(&of_ada, "could not look: connection refused");
    let is_stored = || !store.read(|tx| Ok(raw(tx).outages(None)?)).unwrap().is_empty();
    wait_for("the outage is stored", is_stored);
    ada.kill();
    says(&of_bo, "could not look: connection refused");
    set(&target, "4 of 5 partitions are there");
    says(&of_bo, "not yet: 4 of 5 partitions are there");
    // The other machine's reader learns it from the store, which learns it with the next renewal.
    says(&of_ada, "the outage ended after ");
    set(&target, "complete");
    says(&of_bo, "its task became success");

    for (log, parts) in [
        (&of_ada, ["poked by ada together with 0 others", "poked by bo: the file of its machine"]),
        (&of_bo, ["landed: 5 of 5 partitions", "poked by ada: the file of its machine"]),
    ] {
        let text = all(log);
        println!("{text}\n");
        assert!(parts.into_iter().all(|part| text.contains(part)), "{text}");
        let mut place = 0;
        for part in [
            "registered by runner: partitions, ",
            "an outage began: ",
            "taken over by bo from ada",
            "the outage ended after ",
            "its task became success",
        ] {
            let found = text[place..].find(part).unwrap_or_else(|| panic!("{part}\n{text}"));
            assert_eq!(text.matches(part).count(), 1, "{part}\n{text}");
            place += found;
        }
    }
}
