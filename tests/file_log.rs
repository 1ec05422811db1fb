//! The log files of sensors, through a poker.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use stationmaster::canonical::PokeContext;
use stationmaster::sensor::{NewSensor, PokeOutcome, Settings};
use stationmaster::service::{Admitter, FileLog, PokeRequest, Poker, Service};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskRecord, Timestamp};
use stores::kinds;

mod stores;

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
        assert!(lines.len() >= 5, "{text}");
        let start = "1970-01-01 00:00:00.000 UTC registered by h: table, fingerprint ";
        assert!(lines[0].starts_with(start), "{text}");
        assert!(lines[1].starts_with("1970-01-01 00:00:00.000 UTC poked by p together with "), "{text}");
        assert_eq!(lines[2], r#"1970-01-01 00:00:00.000 UTC poke table {"table":"sales"} not yet"#);
        assert!(lines[lines.len() - 2].ends_with(r#"{"table":"sales"} landed: two\nlines"#), "{text}");
        assert!(lines[lines.len() - 1].ends_with(r" UTC landed: two\nlines"), "{text}");
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
    assert!(failures >= 15 && failures.is_multiple_of(3), "{failures}");
    assert!(log.last_failure().unwrap().starts_with(dir.path().join("w").to_str().unwrap()));
}

/// The whole life of a sensor that two workers poked, each with a file of its own, as read on either machine.
#[test]
fn a_reader_joins_the_file_and_the_store_and_names_who_it_cannot_see() {
    for kind in kinds() {
        let store = kind.shared();
        sense(&store, 1);
        let key = TaskKey::new("ns", "w", "2026-01-01T00:00:00+00:00", "../wait").unwrap().mapped(0);
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let logs = [0, 1].map(|at| FileLog::new(dirs[at].path(), FileLog::AIRFLOW).unwrap());
        let make = |name: &str, log: &FileLog| {
            let poke = |request: &PokeRequest| match request.now.as_micros() / 1_000_000 {
                0..20 => PokeOutcome::Progress("3 of 5 partitions are there".into()),
                20..120 => PokeOutcome::Unreachable("no route".into()),
                120..150 => PokeOutcome::NotYet,
                _ => PokeOutcome::Failed("never".into()),
            };
            Poker::new(store.clone(), name.try_into().unwrap())
                .wait_for_answers(Duration::from_secs(60))
                .max_pause(Duration::from_secs(10))
                .kind("table".try_into().unwrap(), poke)
                .log(log.clone())
        };
        let mut first = make("first", &logs[0]);
        let mut reader = logs[0].reader(&*store, key.clone(), 1, 3);
        assert_eq!(reader().unwrap().len(), 1, "what the store has");
        for now in 0..50 {
            first.tick(at(now)).unwrap();
        }
        let new = reader().unwrap();
        assert!(new.iter().any(|line| line.ends_with("not yet: 3 of 5 partitions are there")), "{new:?}");
        assert!(new.iter().all(|line| !line.contains(" registered by ")), "it was read before: {new:?}");
        drop(first);
        let mut second = make("second", &logs[1]);
        for now in 50..160 {
            second.tick(at(now)).unwrap();
        }
        let whole = [0, 1].map(|at| logs[at].reader(&*store, key.clone(), 1, usize::MAX)().unwrap());
        for (lines, [seen, hidden]) in whole.iter().zip([["first", "second"], ["second", "first"]]) {
            let text = lines.join("\n");
            let mut place = 0;
            for part in [
                " UTC registered by h: table, ",
                " UTC an outage began: ",
                " UTC taken over by second from first",
                " UTC the outage ended after ",
                " UTC its task became failed: never",
            ] {
                let found =
                    text[place..].find(part).unwrap_or_else(|| panic!("{part} {}\n{text}", kind.name));
                assert_eq!(text.matches(part).count(), 1, "{part} {text}");
                place += found + part.len();
            }
            let says = |line: &str| {
                let poked = format!(" UTC poked by {seen}");
                line.ends_with(&poked) || line.ends_with(&(poked + " together with 0 others"))
            };
            assert!(text.lines().any(says), "{text}");
            assert!(
                text.contains(&format!(" UTC poked by {hidden}: the file of its machine has its pokes")),
                "{text}"
            );
        }
        assert!(whole[0].iter().any(|line| line.contains(" could not look: no route")));
        assert!(whole[1].iter().any(|line| line.ends_with(" UTC failed: never")));
        assert_eq!(logs[0].reader(&*store, key.clone(), 1, 2)().unwrap(), whole[0][whole[0].len() - 2..]);
        let of_store = store.read(|tx| tx.sensor_log(&[key.clone(), key.clone().mapped(7)])).unwrap();
        assert_eq!((of_store[0].len(), of_store[1].len()), (5, 0), "{of_store:?}");
    }
}

#[test]
fn a_log_keeps_its_last_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    sense(&store, 1);
    let log = FileLog::new(dir.path(), "{attempt}.log").unwrap().most_bytes(2_000);
    let poke = |_: &PokeRequest| PokeOutcome::NotYet;
    let mut poker = Poker::new(store.clone(), "p".try_into().unwrap())
        .wait_for_answers(Duration::from_secs(60))
        .kind("table".try_into().unwrap(), poke)
        .log(log.clone());
    let sizes =
        || ["1.log", "1.log~1"].map(|name| fs::metadata(dir.path().join(name)).map_or(0, |file| file.len()));
    for now in 0..900 {
        poker.tick(at(now)).unwrap();
        assert!(sizes().into_iter().all(|size| size <= 1_000), "{:?}", sizes());
    }
    assert!(sizes()[1] > 800, "{:?}", sizes());
    let key = TaskKey::new("ns", "w", "2026-01-01T00:00:00+00:00", "../wait").unwrap().mapped(0);
    let lines = log.reader(&*store, key, 1, usize::MAX)().unwrap();
    assert!(lines.len() > 15 && lines.is_sorted_by(|one, next| one[..23] <= next[..23]), "{lines:#?}");
    assert_eq!(log.failures(), 0);
}
