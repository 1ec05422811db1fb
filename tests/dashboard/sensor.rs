//! What a task's page says of its sensor.

use std::time::Duration;

use stationmaster::NewTask;
use stationmaster::canonical::PokeContext;
use stationmaster::ops::AdmitRequest;
use stationmaster::sensor::{NewSensor, PokeOutcome, Settings};
use stationmaster::service::{PokeRequest, Poker, Service};

use crate::stage::{Stage, at, fact};
use crate::world::key;

/// Two sensors of one target, and one of another.
fn stage() -> Stage {
    stage_until(|_| 3_600)
}

/// The same, which time out after these seconds.
fn stage_until(timeout: impl Fn(&str) -> u64) -> Stage {
    let stage = Stage::new();
    stage.enqueue(0, &["a", "b", "c"].map(|name| NewTask::new(key(name))));
    let order =
        AdmitRequest::new("w".try_into().unwrap(), "r".try_into().unwrap(), 3, Duration::from_secs(60))
            .started();
    let granted = stage.store.write(|tx| tx.admit(at(0), &order)).unwrap().granted;
    let sensors = granted.iter().map(|task| {
        let (path, every) = match task.key.task.as_str() {
            "a" => ("one", 40),
            "b" => ("one", 20),
            _ => ("two", 40),
        };
        let context = PokeContext::from_json(&format!("{{\"path\":\"{path}\"}}")).unwrap();
        let timeout = Duration::from_secs(timeout(task.key.task.as_str()));
        let settings = Settings::new(Duration::from_secs(every), timeout).unwrap();
        NewSensor::new(task.lease_ref(), "file_exists".parse().unwrap(), context, settings)
    });
    let sensors: Vec<NewSensor> = sensors.collect();
    stage.store.write(|tx| tx.register(at(0), &sensors)).unwrap();
    stage
}

fn page(stage: &Stage, second: i64, task: &str) -> String {
    stage.body(second, &format!("task?namespace=prod&workflow=nightly&run=2026-01-31&task={task}"))
}

/// The instant in a fact, in seconds.
fn instant(body: &str, name: &str) -> i64 {
    let text = fact(body, name).unwrap_or_else(|| panic!("{name}: {body}"));
    let (_, absolute) = text.split_once(" · ").unwrap_or_else(|| panic!("{name}: {text}"));
    chrono::NaiveDateTime::parse_from_str(absolute, "%Y-%m-%d %H:%M:%S UTC").unwrap().and_utc().timestamp()
}

#[test]
fn a_sensor_says_when_it_is_poked_and_with_how_many_it_shares_that() {
    let stage = stage();
    let body = page(&stage, 100, "a");
    assert_eq!(fact(&body, "Shared with").as_deref(), Some("1 other sensor"));
    assert_eq!(fact(&body, "Next poke").as_deref(), Some("not due: no worker pokes this kind. See Sensors"));
    assert_eq!(fact(&body, "Last poke"), None);

    let poke = |_: &PokeRequest| PokeOutcome::NotYet;
    let poker =
        Poker::new(stage.store.clone(), "poker-1".try_into().unwrap()).lease(Duration::from_secs(3_600));
    poker.kind("file_exists".try_into().unwrap(), poke).tick(at(100)).unwrap();
    for (task, every, shared) in
        [("a", 20, "1 other sensor"), ("b", 20, "1 other sensor"), ("c", 40, "no other sensor")]
    {
        let body = page(&stage, 200, task);
        assert_eq!(fact(&body, "Shared with").as_deref(), Some(shared), "{task}");
        let (last, next) = (instant(&body, "Last poke"), instant(&body, "Next poke"));
        assert_eq!(next - last, every, "{task}: those that share a poke are poked at the shortest interval");
        assert!(last <= 200 && 200 <= next, "{task}: {last} {next}");
    }
    // It has ended, so nothing is due.
    stage.store.write(|tx| tx.cancel(at(210), Duration::ZERO, &[key("a")], "")).unwrap();
    let body = page(&stage, 220, "a");
    assert!(fact(&body, "Next poke").is_none() && fact(&body, "Shared with").is_none(), "{body}");
    assert_eq!(fact(&page(&stage, 220, "b"), "Shared with").as_deref(), Some("no other sensor"));
}

#[test]
fn an_interval_that_grows_is_shown_as_it_is_now() {
    let stage = Stage::new();
    stage.enqueue(0, &[NewTask::new(key("a"))]);
    let lease = stage.run(0, 1).remove(0).lease_ref();
    let settings = Settings::new(Duration::from_secs(10), Duration::from_secs(3_600)).unwrap();
    let settings = settings.max_interval(Duration::from_secs(40)).unwrap();
    let context = PokeContext::from_json("{}").unwrap();
    let sensor = NewSensor::new(lease, "file_exists".parse().unwrap(), context, settings);
    stage.store.write(|tx| tx.register(at(0), std::slice::from_ref(&sensor))).unwrap();
    let every = |second: i64| fact(&page(&stage, second, "a"), "Poked every").unwrap();
    assert_eq!([5, 15, 1_000].map(every), ["10s now, later up to 40s", "20s now, later up to 40s", "40s"]);
    let times_out = |second: i64, name: &str| fact(&page(&stage, second, "a"), name).is_some();
    assert!(times_out(3_599, "Times out") && times_out(3_601, "Timed out"));
}

#[test]
fn an_outage_is_shown_instead_of_a_due_time() {
    let stage = stage();
    let poke = |_: &PokeRequest| PokeOutcome::Unreachable("down".into());
    let poker = Poker::new(stage.store.clone(), "poker-1".try_into().unwrap()).lease(Duration::from_secs(30));
    let mut poker = poker.kind("file_exists".try_into().unwrap(), poke);
    // Outages are stored with a renewal.
    (100..200).for_each(|second| drop(poker.tick(at(second)).unwrap()));
    let says = |body: &str| fact(body, "Next poke").unwrap();
    assert_eq!(says(&page(&stage, 200, "a")), "later than usual, because its target could not be checked");
}

/// The poke at the timeout of the first sensor of a target is for all that wait for it.
#[test]
fn a_timeout_before_the_interval_ends_is_the_next_poke() {
    let stage = stage_until(|name| if name == "a" { 3_570 } else { 3_600 });
    let poke = |_: &PokeRequest| PokeOutcome::NotYet;
    let mut poker = Poker::new(stage.store.clone(), "poker-1".try_into().unwrap())
        .lease(Duration::from_secs(9_000))
        .kind("file_exists".try_into().unwrap(), poke);
    poker.tick(at(3_500)).unwrap();
    let next = |second, task| instant(&page(&stage, second, task), "Next poke");
    for second in 3_500..3_570 {
        assert_eq!(next(second, "a"), next(second, "b"), "they share their pokes");
        assert!(next(second, "a") <= 3_570, "at {second}");
    }
    assert_eq!(next(3_569, "b"), 3_570);
}
