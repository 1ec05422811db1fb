// What the program does with one build of the crate, which is `sm` here. Included once for each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::Utc;
use sm::admission::IfExists;
use sm::error::{Error, Result, StoreErrorKind};
use sm::ops::{Finish, Finished, Outcome};
use sm::pool::{PoolSpec, Slots};
use sm::service::{Admitter, Service, Upkeep};
use sm::store::postgres::{self, PostgresOptions, PostgresStore, Schema};
use sm::store::sqlite::{self, Prefix, SqliteOptions, SqliteStore, SqliteTx, rusqlite};
use sm::store::{Durability, Store};
use sm::task::LeaseLoss;
use sm::{LeaseRef, NewTask, TaskKey, TaskState};

use crate::place::Place;
use crate::say;

/// Leases of processes that were refused expire this soon.
const LEASE: Duration = Duration::from_millis(700);

pub fn prefix() -> Prefix {
    Prefix::new("jobs_").unwrap()
}

pub fn open_with(place: &Place, apply_migrations: bool) -> Result<Arc<dyn Store>> {
    Ok(match place {
        Place::Sqlite(path) => {
            let options = SqliteOptions::new().prefix(prefix()).durability(Durability::Process);
            Arc::new(SqliteStore::open(path, options.apply_migrations(apply_migrations))?)
        }
        Place::Postgres { url, schema } => {
            let options = PostgresOptions::new().schema(Schema::new(schema)?).durability(Durability::Process);
            Arc::new(PostgresStore::connect(url, options.apply_migrations(apply_migrations))?)
        }
    })
}

pub fn open(place: &Place) -> Result<Arc<dyn Store>> {
    open_with(place, true)
}

/// Whether and how a store was refused for its schema.
pub fn refusal<T>(done: Result<T>) -> Option<String> {
    match done {
        Err(Error::Store(error)) if error.kind() == StoreErrorKind::Schema => Some(error.to_string()),
        Err(error) => panic!("{error:?}"),
        Ok(_) => None,
    }
}

/// Brings the schema as far as this build does: by opening, or to its end. On a connection of the caller's own.
pub fn upgrade(place: &Place, to_its_end: bool) -> Result<()> {
    match place {
        Place::Sqlite(path) => {
            let conn = rusqlite::Connection::open(path).unwrap();
            conn.busy_timeout(Duration::from_secs(10)).unwrap();
            conn.pragma_update(None, "synchronous", "OFF").unwrap();
            upgrade_on(&conn, to_its_end)
        }
        Place::Postgres { schema, .. } => {
            let schema = Schema::new(schema)?;
            Ok(place.with_client(async |client| match to_its_end {
                true => postgres::finish_upgrade(client, &schema).await,
                false => postgres::migrate(client, &schema).await,
            })?)
        }
    }
}

pub fn upgrade_on(conn: &rusqlite::Connection, to_its_end: bool) -> Result<()> {
    Ok(match to_its_end {
        true => sqlite::finish_upgrade(conn, &prefix())?,
        false => sqlite::migrate(conn, &prefix())?,
    })
}

/// The text for hosts that migrate by hand.
pub fn text_from(place: &Place, version: u32) -> String {
    match place {
        Place::Sqlite(_) => sqlite::migrations_sql_from(&prefix(), version),
        Place::Postgres { schema, .. } => {
            postgres::migrations_sql_from(&Schema::new(schema).unwrap(), version)
        }
    }
}

fn task(name: &str, round: u32, n: u32) -> NewTask {
    let key = TaskKey::new("rolling", "w", format!("{name}-{round}"), n.to_string()).unwrap();
    NewTask::new(key)
        .pool("narrow".try_into().unwrap())
        .payload(format!("{name}-{round}/{n}"))
        .lease_loss(LeaseLoss::Requeue { at_most: 1_000 })
}

pub fn enqueue(store: &dyn Store) -> Result<()> {
    store.write(|tx| tx.enqueue(Utc::now(), &[task("one", 0, 0)])).map(drop)
}

/// Enqueues a task in the host's own transaction, which stays open until `end` is called.
pub fn in_host_transaction(place: &Place, name: &str, end: impl FnOnce()) -> Result<()> {
    let new = task(name, 0, 0);
    match place {
        Place::Sqlite(path) => {
            let mut conn = rusqlite::Connection::open(path).unwrap();
            conn.busy_timeout(Duration::from_secs(10)).unwrap();
            let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
            SqliteTx::attach(&tx, &prefix())?.enqueue(Utc::now(), &[new])?;
            end();
            tx.commit().unwrap();
        }
        Place::Postgres { schema, .. } => {
            let schema = Schema::new(schema)?;
            place.with_client(async |client| {
                let tx = client.transaction().await.unwrap();
                postgres::tx(&tx, &schema, move |tx| tx.enqueue(Utc::now(), &[new])).await?;
                end();
                tx.commit().await.unwrap();
                Ok::<_, Error>(())
            })?;
        }
    }
    Ok(())
}

/// Defines a pool whose description names who did so.
pub fn describe(store: &dyn Store, name: &str, text: &str) -> Result<()> {
    let pool = PoolSpec::new(name, Slots::Limited(1))?.described(text.to_owned());
    store.write(|tx| tx.define([&pool], IfExists::Replace)).map(drop)
}

pub fn descriptions(store: &dyn Store) -> Result<BTreeMap<String, String>> {
    let pools = store.read(|tx| tx.all_pools())?;
    Ok(pools.into_iter().map(|pool| (pool.spec.name.to_string(), pool.spec.description)).collect())
}

/// Enqueues and works until the parent says stop, and then until nothing is left; or until it is refused. Says what
/// was acknowledged.
pub fn work(place: &Place, name: &str) {
    static STOPS: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        // The parent closes it.
        let _ = std::io::stdin().read_line(&mut String::new());
        STOPS.store(true, Ordering::Relaxed);
    });
    let store = match open(place) {
        Ok(store) => store,
        opened => return say(&format!("refused {}", refusal(opened).expect("it was not opened"))),
    };
    store.write(|tx| tx.define([PoolSpec::new("narrow", Slots::Limited(5))?], IfExists::Replace)).unwrap();
    let mut worker = Worker {
        name: name.to_owned(),
        admitter: Admitter::new(store.clone(), name.try_into().unwrap()).lease(LEASE),
        upkeep: Upkeep::new(store.clone()).grace(Duration::ZERO),
        store,
    };
    say("ready");
    for round in 1.. {
        let stops = STOPS.load(Ordering::Relaxed);
        match worker.round(round, !stops) {
            Ok(open) if stops && open == 0 => return say("stopped"),
            Ok(_) => std::thread::sleep(Duration::from_millis(2)),
            Err(error) if error.is_retryable() => say(&format!("again {error}")),
            Err(error) => return say(&format!("refused {}", refusal::<()>(Err(error)).unwrap())),
        }
    }
}

struct Worker {
    name: String,
    store: Arc<dyn Store>,
    admitter: Admitter,
    upkeep: Upkeep,
}

impl Worker {
    /// Returns how many tasks have not ended.
    fn round(&mut self, round: u32, enqueues: bool) -> Result<u64> {
        let (name, store) = (&self.name, &self.store);
        if enqueues {
            let tasks: Vec<NewTask> = (0..3).map(|n| task(name, round, n)).collect();
            store.write(|tx| tx.enqueue(Utc::now(), &tasks))?;
            for task in &tasks {
                say(&format!("enqueued {}", task.payload));
            }
            if round % 8 == 0 {
                let text = format!("by {name} in {round}");
                describe(&**store, &format!("pool-{name}"), &text)?;
                let read = descriptions(&**store)?;
                assert_eq!(read[&format!("pool-{name}")], text);
            }
        }
        self.upkeep.tick(Utc::now().into())?;
        let granted = self.admitter.tick(Utc::now().into())?.granted;
        let leases: Vec<LeaseRef> = granted.iter().map(|task| task.lease_ref()).collect();
        let started = store.write(|tx| tx.start(Utc::now(), &leases))?;
        std::thread::sleep(Duration::from_millis(3));
        let value = Some(name.clone());
        let running: Vec<_> = granted.iter().zip(started).filter(|(_, is_ours)| *is_ours).collect();
        let finishes: Vec<Finish> = running
            .iter()
            .map(|(task, _)| Finish::new(task.lease_ref(), Outcome::Success { value: value.clone() }))
            .collect();
        let finished = store.write(|tx| tx.finish(Utc::now(), &finishes))?;
        for ((task, _), finished) in running.iter().zip(finished) {
            if let Finished::Ended(_) = finished {
                say(&format!("done {}", task.payload));
            }
        }
        let counts = store.read(|tx| tx.count_tasks(1))?;
        Ok(counts.iter().filter(|count| !count.state.is_end()).map(|count| count.tasks).sum())
    }
}

/// Checks what is left in a store by what all processes said.
pub fn check(place: &Place, enqueued: &[String], done: &[(String, String)]) {
    let store = open(place).unwrap();
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    let mut by: BTreeMap<&str, &str> = BTreeMap::new();
    for (payload, name) in done {
        assert!(by.insert(payload, name).is_none(), "{payload} was done twice");
    }
    let keys: Vec<TaskKey> = enqueued
        .iter()
        .map(|payload| {
            let (run, task) = payload.split_once('/').unwrap();
            TaskKey::new("rolling", "w", run, task).unwrap()
        })
        .collect();
    for (payload, task) in enqueued.iter().zip(store.read(|tx| tx.tasks(&keys)).unwrap()) {
        let task = task.unwrap_or_else(|| panic!("{payload} is lost"));
        assert_eq!((task.state, &task.payload), (TaskState::Success, payload));
        assert_eq!(task.value.as_deref(), by.get(&**payload).copied(), "{payload}");
    }
}
