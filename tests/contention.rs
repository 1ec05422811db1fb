//! Several processes admit on one SQLite file at once. What each was granted and gave back is checked afterwards.
//!
//! `STATIONMASTER_CONTENTION_SECONDS` sets how long they do (10 without it).
#![cfg(feature = "sqlite")]

#[allow(dead_code, reason = "each test binary uses its own part")]
mod respawn;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use respawn::{Respawned, say};
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::service::lifecycle::{Finish, Finished, enqueue, finish};
use stationmaster::service::{Admitter, AdmitterOptions};
use stationmaster::store::sqlite::{SqliteOptions, Synchronous};
use stationmaster::store::{SqliteStore, StoreExt};
use stationmaster::{NewTask, TaskKey};

const PROCESSES: usize = 4;
const POOLS: [(&str, u32); 3] = [("one", 1), ("three", 3), ("sixteen", 16)];

fn seconds() -> u64 {
    std::env::var("STATIONMASTER_CONTENTION_SECONDS").map_or(10, |text| text.parse().unwrap())
}

/// Nanoseconds of a clock that all processes of the machine share.
fn instant() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default().synchronous(Synchronous::Normal)).unwrap()
}

/// Admits, holds for a moment, gives back, and keeps the backlog filled. Any error ends it, and so fails the test.
#[test]
fn child() {
    let Some(argument) = respawn::argument() else { return };
    let (name, path) = argument.split_once(' ').unwrap();
    let store = Arc::new(open(Path::new(path)));
    let options = AdmitterOptions::default().budget(6).lease(Duration::from_secs(600));
    let mut admitter = Admitter::new(store.clone(), name.try_into().unwrap(), options).unwrap();
    let end = Instant::now() + Duration::from_secs(seconds());
    let mut said = String::new();
    let mut round = 0;
    while Instant::now() < end {
        round += 1;
        let tasks: Vec<NewTask> = (0_u32..6)
            .map(|n| {
                let (pool, slots) = POOLS[n as usize % 3];
                let key = TaskKey::new("contention", name, format!("{round}"), format!("{n}")).unwrap();
                NewTask::new(key)
                    .pool(pool.try_into().unwrap())
                    .pool_slots((1 + (n + round) % 5).min(slots))
                    .priority((n % 2) as i32)
            })
            .collect();
        store.write(|tx| enqueue(tx, SystemClock.now(), &tasks)).unwrap();
        let granted = admitter.admit(SystemClock.now(), 6).unwrap().granted;
        let at = instant();
        for task in &granted {
            let slots = task.lane.slots;
            said += &format!("granted {at} {} {} {} {slots}\n", task.no.0, task.epoch, task.lane.pool);
        }
        std::thread::sleep(Duration::from_micros(u64::from(round * 7919 % 900)));
        let finishes: Vec<Finish> = granted.iter().map(|task| Finish::success(task.lease_ref())).collect();
        let at = instant();
        for task in &granted {
            said += &format!("released {at} {}\n", task.no.0);
        }
        let finished = store.write(|tx| finish(tx, SystemClock.now(), &finishes)).unwrap();
        assert!(finished.iter().all(|finished| matches!(finished, Finished::Ended(_))));
    }
    said.lines().for_each(say);
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Before the call that gives the slots back: from now on they may be another's.
    Released { no: i64 },
    /// After the call that granted: from now on they surely are the holder's.
    Granted { no: i64, epoch: i64, pool: String, slots: i64 },
}

fn parse(line: &str) -> (u128, Event) {
    let words: Vec<&str> = line.split(' ').collect();
    let (at, no) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    match words[0] {
        "released" => (at, Event::Released { no }),
        _ => {
            let (epoch, slots) = (words[3].parse().unwrap(), words[5].parse().unwrap());
            (at, Event::Granted { no, epoch, pool: words[4].to_owned(), slots })
        }
    }
}

/// Sweeps over what was surely held at each instant. Answers the first violation.
fn violation(mut events: Vec<(u128, Event)>) -> Option<String> {
    events.sort();
    let mut held: BTreeMap<i64, (String, i64)> = BTreeMap::new();
    let mut used: BTreeMap<String, i64> = BTreeMap::new();
    let mut grants = BTreeMap::new();
    for (at, event) in events {
        match event {
            Event::Released { no } => {
                let Some((pool, slots)) = held.remove(&no) else {
                    return Some(format!("task {no} was released at {at} without a grant"));
                };
                *used.entry(pool).or_default() -= slots;
            }
            Event::Granted { no, epoch, pool, slots } => {
                if grants.insert((no, epoch), at).is_some() {
                    return Some(format!("epoch {epoch} of task {no} was granted twice"));
                }
                if held.insert(no, (pool.clone(), slots)).is_some() {
                    return Some(format!("task {no} was held twice at {at}"));
                }
                let size =
                    POOLS.iter().find(|(name, _)| *name == pool).map_or(0, |(_, size)| i64::from(*size));
                let used = used.entry(pool.clone()).or_default();
                *used += slots;
                if *used > size {
                    return Some(format!("pool {pool} had {used} of {size} slots taken at {at}"));
                }
            }
        }
    }
    None
}

#[test]
fn the_check_rejects_broken_histories() {
    let granted =
        |at, no, epoch, pool: &str, slots| (at, Event::Granted { no, epoch, pool: pool.into(), slots });
    let released = |at, no| (at, Event::Released { no });
    let fine = vec![granted(1, 1, 1, "one", 1), released(2, 1), granted(2, 2, 1, "one", 1)];
    assert_eq!(violation(fine), None);
    for broken in [
        vec![granted(1, 1, 1, "one", 1), granted(2, 2, 1, "one", 1), released(3, 1)],
        vec![granted(1, 1, 1, "three", 2), granted(1, 2, 1, "three", 2)],
        vec![granted(1, 1, 1, "sixteen", 1), granted(2, 1, 2, "sixteen", 1)],
        vec![granted(1, 1, 1, "sixteen", 1), released(2, 1), granted(3, 1, 1, "sixteen", 1)],
        vec![released(1, 1)],
    ] {
        assert!(violation(broken.clone()).is_some(), "{broken:?}");
    }
}

#[test]
fn processes_never_oversubscribe() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("contention.db");
    let store = open(&path);
    let pools = POOLS.map(|(name, slots)| PoolSpec::new(name, Slots::Limited(slots)).unwrap());
    store.write(|tx| Ok(tx.put_pools(&pools)?)).unwrap();
    let children: Vec<Respawned> =
        (0..PROCESSES).map(|n| Respawned::new("child", &format!("p{n} {}", path.display()))).collect();
    let said: Vec<Vec<String>> = children.into_iter().map(Respawned::join).collect();
    let grants: Vec<usize> =
        said.iter().map(|lines| lines.iter().filter(|line| line.starts_with("granted")).count()).collect();
    let events = said.iter().flatten().map(|line| parse(line)).collect();
    assert_eq!(violation(events), None);
    let found = store.read(|tx| Ok(tx.audit()?)).unwrap();
    assert!(found.is_empty(), "{found:?}");
    println!("{PROCESSES} processes, {} s: grants {grants:?}, 0 violations, 0 errors", seconds());
    assert!(grants.iter().all(|grants| *grants > 0), "a process was starved: {grants:?}");
}
