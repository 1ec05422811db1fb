//! A process that works on a SQLite file is killed at random moments. After each kill the file is checked with plain SQL.
//!
//! `STATIONMASTER_KILLS` sets how many kills there are (200 without it).
#![cfg(feature = "sqlite")]

#[allow(dead_code, reason = "each test binary uses its own part")]
mod respawn;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use respawn::{Respawned, say};
use rusqlite::Connection;
use stationmaster::admission::limits::{self, LimitSpec};
use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{NewSensor, Poked, Settings};
use stationmaster::service::lifecycle::{
    Finish, Finished, Outcome, Registered, enqueue, finish, register, start,
};
use stationmaster::service::{
    Admitter, AdmitterOptions, PokeRequest, Poker, PokerOptions, Reaper, ReaperOptions, Service,
};
use stationmaster::store::sqlite::{SqliteOptions, Synchronous};
use stationmaster::store::{Inserted, Moved, SqliteStore, StoreExt};
use stationmaster::task::{AttemptRuns, LeaseLoss};
use stationmaster::{LeaseRef, NewTask, TaskKey};

/// Leases of a killed child expire this soon.
const LEASE: Duration = Duration::from_millis(40);

/// What a child does until it is killed: everything a task can go through, one acknowledged transaction after another.
#[test]
fn child() {
    let Some(argument) = respawn::argument() else { return };
    let (generation, path) = argument.split_once(' ').unwrap();
    let durable = generation.ends_with('5');
    let options =
        SqliteOptions::default().synchronous(if durable { Synchronous::Full } else { Synchronous::Normal });
    let store = Arc::new(SqliteStore::open(Path::new(path), options).unwrap());
    let pools = [
        PoolSpec::new("narrow", Slots::Limited(7)).unwrap(),
        PoolSpec::new("wide", Slots::Limited(64)).unwrap(),
    ];
    let database = limits::free("database").unwrap();
    let limit = LimitSpec::new(database.clone(), 9).unwrap();
    store.write(|tx| Ok((tx.put_pools(&pools)?, tx.put_limits(std::slice::from_ref(&limit))?))).unwrap();

    let mut admitter = Admitter::new(
        store.clone(),
        format!("child-{generation}").try_into().unwrap(),
        AdmitterOptions::default().lease(LEASE),
    )
    .unwrap();
    let mut reaper = Reaper::new(store.clone(), ReaperOptions::default());
    let options = PokerOptions::default().lease(LEASE).shards(NonZeroU32::new(4).unwrap()).threads(1);
    let mut poker = Poker::new(store.clone(), format!("poker-{generation}").try_into().unwrap(), options)
        .unwrap()
        .kind("coin".try_into().unwrap(), |request: &PokeRequest<'_>| {
            match request.context.as_str().len() % 3 {
                0 => Poked::NotYet,
                1 => Poked::Landed(Some("heads".into())),
                _ => Poked::Failed("tails".into()),
            }
        });
    let retry = RetryPolicy::fixed(Duration::from_millis(3)).max_attempts(3).build().unwrap();
    say("ready");
    for round in 0_u32.. {
        let tasks: Vec<NewTask> = (0..12)
            .map(|n| {
                let key =
                    TaskKey::new("crash", "w", format!("{generation}-{round}"), format!("t{n}")).unwrap();
                let task = NewTask::new(key)
                    .pool(["narrow", "wide"][n % 2].try_into().unwrap())
                    .pool_slots(1 + n as u32 % 3)
                    .retry(retry.clone())
                    .lease_loss(LeaseLoss::Requeue { at_most: 1000 })
                    .attempt_runs(AttemptRuns::Record);
                if n % 4 == 0 { task.limit(database.clone()) } else { task }
            })
            .collect();
        let inserted = store.write(|tx| enqueue(tx, SystemClock.now(), &tasks)).unwrap();
        for inserted in inserted {
            let Inserted::New(no) = inserted else { panic!("a key of this generation was there already") };
            say(&format!("enqueued {}", no.0));
        }
        reaper.tick(SystemClock.now()).unwrap();
        let granted = admitter.tick(SystemClock.now()).unwrap().granted;
        let leases: Vec<LeaseRef> = granted.iter().map(|task| task.lease_ref()).collect();
        for lease in &leases {
            say(&format!("admitted {} {}", lease.no.0, lease.epoch));
        }
        let started = store.write(|tx| start(tx, SystemClock.now(), &leases)).unwrap();
        let running: Vec<LeaseRef> = leases
            .iter()
            .zip(started)
            .filter(|(_, moved)| *moved == Moved::Yes)
            .map(|(lease, _)| *lease)
            .collect();
        for lease in &running {
            say(&format!("started {} {}", lease.no.0, lease.epoch));
        }
        let (sensing, finishing): (Vec<_>, Vec<_>) =
            running.into_iter().partition(|lease| lease.no.0 % 4 == 1);
        let sensors: Vec<NewSensor> = sensing
            .into_iter()
            .map(|lease| {
                let context = PokeContext::from_json(&format!(r#"{{"n":{}}}"#, lease.no.0 % 130)).unwrap();
                let settings = Settings::new(Duration::from_millis(1), Duration::from_millis(30)).unwrap();
                NewSensor::new(lease, "coin".try_into().unwrap(), context, settings)
            })
            .collect();
        let registered = store.write(|tx| register(tx, SystemClock.now(), &sensors)).unwrap();
        for (sensor, registered) in sensors.iter().zip(registered) {
            if let Registered::Waiting(_) = registered {
                say(&format!("registered {} {}", sensor.lease.no.0, sensor.lease.epoch));
            }
        }
        let finishes: Vec<Finish> = finishing
            .into_iter()
            .map(|lease| {
                let outcome = match lease.no.0 % 5 {
                    0 if lease.epoch < 3 => return Finish::failed(lease, "on purpose"),
                    1 if lease.epoch < 2 => Outcome::GivenBack,
                    _ => Outcome::Success { value: None },
                };
                Finish::new(lease, outcome)
            })
            .collect();
        let finished = store.write(|tx| finish(tx, SystemClock.now(), &finishes)).unwrap();
        for (asked, finished) in finishes.iter().zip(finished) {
            if let Finished::Ended(state) = finished {
                say(&format!("ended {} {} {state}", asked.lease.no.0, asked.lease.epoch));
            }
        }
        poker.tick(SystemClock.now()).unwrap();
    }
}

/// What the children acknowledged.
#[derive(Debug, Default)]
struct Acknowledged {
    enqueued: BTreeSet<i64>,
    /// Each grant, by task and epoch: none may be given twice.
    admitted: BTreeSet<(i64, i64)>,
    /// The largest epoch that was acknowledged for a task in any way, and the least it must have reached in it.
    reached: BTreeMap<i64, (i64, Reached)>,
    ended: BTreeMap<i64, (i64, String)>,
    operations: usize,
}

/// How far a task came under its latest acknowledged epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Reached {
    Admitted,
    Started,
    Registered,
    Ended,
}

impl Acknowledged {
    fn take(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<i64>().unwrap();
        self.operations += 1;
        let reached = match words[0] {
            "ready" => return,
            "enqueued" => {
                assert!(self.enqueued.insert(number(1)), "number {} was given twice", words[1]);
                return;
            }
            "admitted" => {
                assert!(self.admitted.insert((number(1), number(2))), "a grant was given twice: {line}");
                assert!(!self.ended.contains_key(&number(1)), "a task that ended was admitted again: {line}");
                Reached::Admitted
            }
            "started" => Reached::Started,
            "registered" => Reached::Registered,
            "ended" => {
                self.ended.insert(number(1), (number(2), words[3].to_owned()));
                Reached::Ended
            }
            other => panic!("a child said {other}"),
        };
        self.reached.insert(number(1), (number(2), reached));
    }

    /// Compares with the file. The states are those of the schema: 0 ready, 5 scheduled for later, 6 to 8 ended.
    fn check(&self, db: &Connection) {
        let mut rows = BTreeMap::new();
        let mut select = db.prepare("SELECT no, epoch, state, first_started_at FROM sm_task").unwrap();
        let mut found = select.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            let row: (i64, i64, i64, Option<i64>) =
                (row.get(0).unwrap(), row.get(1).unwrap(), row.get(2).unwrap(), row.get(3).unwrap());
            rows.insert(row.0, (row.1, row.2, row.3));
        }
        for no in &self.enqueued {
            assert!(rows.contains_key(no), "enqueued task {no} is lost");
        }
        for (no, (epoch, reached)) in &self.reached {
            let (stored, state, first_started) = rows[no];
            assert!(stored >= *epoch, "grant {epoch} of task {no} is lost: the file has {stored}");
            if stored == *epoch {
                let kept = match reached {
                    Reached::Admitted => true,
                    Reached::Started => state != 1,
                    Reached::Registered => !matches!(state, 1 | 2),
                    Reached::Ended => state >= 6,
                };
                assert!(kept, "task {no} had {reached:?} under epoch {epoch} and is in state {state} again");
            }
            assert!(*reached < Reached::Started || first_started.is_some());
        }
        for (no, (epoch, state)) in &self.ended {
            let names = [
                "scheduled",
                "queued",
                "running",
                "up_for_retry",
                "sensing",
                "later",
                "success",
                "failed",
                "skipped",
            ];
            let (stored, found, _) = rows[no];
            assert_eq!(
                (stored, names[found as usize]),
                (*epoch, state.as_str()),
                "the end of task {no} is lost"
            );
        }
    }
}

/// What must hold in every committed state, in plain SQL.
fn check_file(db: &Connection) {
    let text = |sql: &str| db.query_row(sql, [], |row| row.get::<_, String>(0)).unwrap();
    let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(text("PRAGMA integrity_check"), "ok");
    for (what, sql) in [
        (
            "a pool's used slots are not the sum of its leases",
            "SELECT count(*) FROM sm_pool p WHERE used <> (SELECT ifnull(sum(t.slots), 0) FROM sm_task t
             JOIN sm_lane l ON l.no = t.lane WHERE l.pool = p.name AND t.state IN (1, 2))",
        ),
        ("a pool is oversubscribed", "SELECT count(*) FROM sm_pool WHERE used > slots"),
        (
            "a limit's count is not that of its tasks",
            "SELECT count(*) FROM sm_cap c WHERE used <> (SELECT count(*) FROM sm_task t JOIN sm_lane l ON l.no = t.lane,
             json_each(l.limits) k WHERE k.value = c.key AND t.state IN (1, 2)) OR used > max",
        ),
        (
            "a lane's ready count is not that of its tasks",
            "SELECT count(*) FROM sm_lane l WHERE ready <>
             (SELECT count(*) FROM sm_task t WHERE t.lane = l.no AND t.state = 0)",
        ),
        (
            "a lane's count is not that of its tasks, or it has none",
            "SELECT count(*) FROM sm_lane l WHERE tasks = 0 OR tasks <> (SELECT count(*) FROM sm_task t WHERE t.lane = l.no)",
        ),
        (
            "a limit's count of lanes is not theirs, or nothing keeps it",
            "SELECT count(*) FROM sm_cap c WHERE lanes = 0 AND max IS NULL
             OR lanes <> (SELECT count(*) FROM sm_lane l, json_each(l.limits) k WHERE k.value = c.key)",
        ),
        (
            "a task's count of events is not that of its events",
            "SELECT count(*) FROM sm_task t LEFT JOIN (SELECT no, count(*) AS kept FROM sm_event GROUP BY no) e
             ON e.no = t.no WHERE t.events <> ifnull(kept, 0)",
        ),
        (
            "a lease does not fit its task's state",
            "SELECT count(*) FROM sm_task WHERE (state IN (1, 2)) <> (expires_at IS NOT NULL AND holder IS NOT NULL)
             OR (state IN (1, 2)) <> (held_slots > 0)",
        ),
        (
            "a task is sensing without a waiting sensor, or the reverse",
            "SELECT (SELECT count(*) FROM sm_task t LEFT JOIN sm_sensor s ON s.no = t.no AND s.epoch = t.epoch AND s.state = 0
             WHERE (t.state = 4) <> (s.no IS NOT NULL))
             + (SELECT count(*) FROM sm_sensor s LEFT JOIN sm_task t ON t.no = s.no WHERE s.state = 0 AND t.state IS NOT 4)",
        ),
        (
            "the index of runs does not hold just the attempts under way as open",
            "SELECT (SELECT count(*) FROM sm_run WHERE stop IS NULL)
             <> (SELECT count(*) FROM sm_task WHERE state IN (2, 4))",
        ),
        ("a key stands for two tasks", "SELECT count(*) - count(DISTINCT workflow || run || '/' || task) FROM sm_task"),
    ] {
        assert_eq!(count(sql), 0, "{what}");
    }
}

#[test]
fn survives_kills_at_random_moments() {
    let kills: u32 = std::env::var("STATIONMASTER_KILLS").map_or(200, |text| text.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("crash.db");
    let mut acknowledged = Acknowledged::default();
    let mut seed = u64::from(std::process::id());
    for generation in 0..kills {
        let child = Respawned::new("child", &format!("{generation} {}", path.display()));
        // Every seventh kill may come before the file is open, that is within the migration in the first round.
        if generation % 7 != 0 {
            assert_eq!(child.line().as_deref(), Some("ready"), "generation {generation}");
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros(2_000 + (seed >> 33) % 20_000));
        for line in child.kill() {
            acknowledged.take(&line);
        }
        if path.exists() {
            let db = Connection::open(&path).unwrap();
            let tables: i64 = db
                .query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'sm_task'", [], |row| row.get(0))
                .unwrap();
            if tables == 1 {
                check_file(&db);
                acknowledged.check(&db);
            }
        }
    }
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let found = store.read(|tx| Ok(tx.audit()?)).unwrap();
    assert!(found.is_empty(), "{found:?}");
    println!("{kills} kills, {} acknowledged operations, 0 violations", acknowledged.operations);
    assert!(acknowledged.operations > kills as usize, "the children hardly worked");
    assert!(acknowledged.reached.values().any(|(_, reached)| *reached == Reached::Registered));
}
