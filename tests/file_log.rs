//! The log files of sensors, through a poker.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use stationmaster::canonical::PokeContext;
use stationmaster::sensor::{NewSensor, PokeOutcome, Settings};
use stationmaster::service::{Admitter, FileLog, PokeRequest, Poker, Service};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskRecord, Timestamp};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

/// Sensors of one group, one for each index.
fn sense(store: &Arc<dyn Store>, count: u32) {
    let key = TaskKey::new("ns", "w", "2026-01-01T00:00:00+00:00", "../wait").unwrap();
    let tasks: Vec<NewTask> = (0..count).map(|index| NewTask::new(key.clone().mapped(index))).collect();
    store.write(|tx| tx.enqueue(at(0), &tasks)).unwrap();
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
    let leases: Vec<LeaseRef> =
        admitter.tick(at(0)).unwrap().granted.iter().map(TaskRecord::lease_ref).collect();
    let settings = Settings::new(Duration::from_secs(10), Duration::from_secs(1_000)).unwrap();
    let context = PokeContext::from_json(r#"{"table":"sales"}"#).unwrap();
    let sensors: Vec<NewSensor> = leases
        .iter()
        .map(|lease| NewSensor::new(*lease, "table".try_into().unwrap(), context.clone(), settings))
        .collect();
    store
        .write(|tx| {
            tx.start(at(0), &leases)?;
            tx.register(at(0), &sensors)
        })
        .unwrap();
}

fn poker(store: &Arc<dyn Store>, log: &FileLog) -> Poker {
    let poke = |request: &PokeRequest| match request.now >= at(10) {
        true => PokeOutcome::Landed(Some("two\nlines".into())),
        false => PokeOutcome::NotYet,
    };
    Poker::new(store.clone(), "p".try_into().unwrap())
        .wait_for_answers(Duration::from_secs(60))
        .kind("table".try_into().unwrap(), poke)
        .log(log.clone())
}

fn until_all_landed(poker: &mut Poker, count: usize) {
    let landed: usize = (0..30).map(|now| poker.tick(at(now)).unwrap().landed).sum();
    assert_eq!(landed, count);
}

#[test]
fn each_attempt_has_its_file_and_each_poke_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    sense(&store, 100);
    let log = FileLog::new(dir.path().join("logs"), FileLog::AIRFLOW).unwrap();
    let mut poker = poker(&store, &log);
    until_all_landed(&mut poker, 100);
    let task = "logs/dag_id=w/run_id=2026-01-01T00:00:00+00:00/task_id=..%2Fwait";
    for index in 0..100 {
        let text =
            fs::read_to_string(dir.path().join(format!("{task}/map_index={index}/attempt=1.log"))).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() >= 2, "{text}");
        assert_eq!(lines[0], r#"1970-01-01 00:00:00.000 UTC poke table {"table":"sales"} not yet"#);
        assert!(lines[lines.len() - 1].ends_with(r#"{"table":"sales"} landed: two\nlines"#), "{text}");
    }
    assert_eq!(log.failures(), 0);
    #[cfg(target_os = "linux")]
    {
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let ours = open.filter_map(|entry| fs::read_link(entry.path()).ok());
        assert_eq!(ours.filter(|path| path.starts_with(dir.path())).count(), 0);
    }
    // Until here, so that what it or its log holds open was counted.
    drop(poker);
}

#[test]
fn a_log_that_cannot_be_written_is_counted_and_holds_nobody_up() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    sense(&store, 3);
    // Where a directory should be there is a file.
    fs::write(dir.path().join("w"), "").unwrap();
    let log = FileLog::new(dir.path(), "{workflow}/{map_index}/{attempt}.log").unwrap();
    until_all_landed(&mut poker(&store, &log), 3);
    let failures = log.failures();
    assert!(failures >= 6 && failures.is_multiple_of(3), "{failures}");
    assert!(log.last_failure().unwrap().starts_with(dir.path().join("w").to_str().unwrap()));
}
