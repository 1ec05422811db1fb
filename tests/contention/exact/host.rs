//! A process that ticks in its store, and does everything else in transactions of its own, which it keeps open, rolls
//! back, prepares and leaves behind.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stationmaster::admission::IfExists;
use stationmaster::admission::{Subject, Undefined};
use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::{Error, Result, StoreErrorKind};
use stationmaster::id::SensorKind;
use stationmaster::ops::{Cleared, Finish, Finished, Mark, Marked};
use stationmaster::sensor::{EndReason, NewSensor, Settings};
use stationmaster::service::{Admitter, Service, Upkeep};
use stationmaster::store::contract::Ending;
use stationmaster::store::postgres::tokio_postgres::Error as PgError;
use stationmaster::store::{Durability, PostgresStore, Tx};
use stationmaster::task::{LeaseLoss, TaskRecord, TaskState};
use stationmaster::testing::history::{LeaseId, Operation};
use stationmaster::{LeaseRef, NewTask, Renewal, TaskId, TaskKey};

use super::{LIMITS, POOLS, pool};
use crate::place::postgres::{Database, Level};
use crate::postgres_server::Plain;
use crate::postgres_server::host::Notify;
use crate::respawn::say;
use crate::worker::{Commit, Diary, Line, Random, grant, ids, write};

#[derive(Serialize, Deserialize)]
pub struct Orders {
    pub name: String,
    pub database: Database,
    pub seed: u64,
}

const LEASE: Duration = Duration::from_millis(600);

/// What a transaction has done, seen when it commits.
#[derive(Debug, Clone, Default)]
struct Effects {
    /// The leases that this process keeps.
    held: Vec<LeaseRef>,
    /// Its waiting sensors.
    sensing: Vec<LeaseRef>,
    ended: Vec<LeaseId>,
    succeeded: Vec<LeaseId>,
    cleared: Vec<i64>,
    renewed: Vec<(Vec<LeaseId>, u64)>,
    sizes: Vec<(String, u32)>,
}

impl Effects {
    fn operations(&self) -> Vec<Operation> {
        let renewed = self.renewed.iter().map(|(leases, until)| Operation::Renew(leases.clone(), *until));
        let sizes = self.sizes.iter().map(|(pool, slots)| Operation::Resize(pool.clone(), Some(*slots)));
        renewed.chain([Operation::End(self.ended.clone())]).chain(sizes).collect()
    }
}

/// The host's own statement failed.
#[derive(Debug)]
enum Failed {
    /// Nothing of the transaction happened.
    Refused(String),
    Lost,
}

struct Host {
    orders: Orders,
    level: &'static str,
    store: Arc<PostgresStore>,
    admitter: Admitter,
    upkeep: Upkeep,
    connection: Plain,
    random: Random,
    diary: Diary,
    /// What it did and what it bore, by kind.
    did: BTreeMap<String, usize>,
    now: Effects,
    rounds: u64,
}

/// Works until it is killed.
pub fn work(orders: Orders) {
    let level = match orders.database.level {
        Level::ReadCommitted => "READ COMMITTED",
        Level::RepeatableRead => "REPEATABLE READ",
        Level::Serializable => "SERIALIZABLE",
    };
    let options =
        orders.database.options().durability(Durability::Process).lock_timeout(Duration::from_secs(8));
    // A connection may be terminated as soon as it is made.
    let store = loop {
        match PostgresStore::connect(&orders.database.url, options.clone()) {
            Ok(store) => break Arc::new(store),
            Err(Error::Store(error)) if error.kind() == StoreErrorKind::Io => {}
            Err(error) => panic!("{error:?}"),
        }
    };
    let admitter = Admitter::new(store.clone(), orders.name.as_str().try_into().unwrap()).lease(LEASE);
    let mut host = Host {
        connection: connect(&orders.database.url),
        admitter,
        upkeep: Upkeep::new(store.clone()).grace(Duration::ZERO),
        store,
        random: Random(orders.seed),
        diary: Diary::default(),
        did: BTreeMap::new(),
        now: Effects::default(),
        rounds: 0,
        level,
        orders,
    };
    say("ready");
    loop {
        host.round();
        write(&Line::Errors(host.did.clone()));
    }
}

fn connect(url: &str) -> Plain {
    loop {
        if let Ok(plain) = Plain::try_connect(url)
            && plain.try_ask("SET lock_timeout = '1s'; SET synchronous_commit = off").is_ok()
        {
            return plain;
        }
    }
}

impl Host {
    fn count(&mut self, what: &str) {
        *self.did.entry(what.to_owned()).or_default() += 1;
    }

    fn sql(&self, sql: &str) -> std::result::Result<(), Failed> {
        match self.connection.try_ask(sql) {
            Ok(_) => Ok(()),
            Err(error) => match error.downcast_ref::<PgError>().and_then(PgError::code) {
                Some(code) if !code.code().starts_with("57P") => Err(Failed::Refused(code.code().to_owned())),
                _ => Err(Failed::Lost),
            },
        }
    }

    /// Counts an error that a host lives with. Any other one fails the test.
    fn bear(&mut self, error: &Error) {
        use StoreErrorKind::{Busy, Conflict, Indeterminate, Io};
        let Error::Store(error) = error else { panic!("{error:?}") };
        assert!(matches!(error.kind(), Busy | Conflict | Indeterminate | Io), "{error:?}");
        self.count(&format!("{:?}", error.kind()));
    }

    fn round(&mut self) {
        self.rounds += 1;
        let done = match self.random.below(16) {
            0..=4 => self.tick(),
            5 => self.reap(),
            6 => self.define(),
            7 => self.forget(),
            _ => {
                self.transaction();
                Ok(())
            }
        };
        if let Err(error) = done {
            self.bear(&error);
        }
    }

    fn tick(&mut self) -> Result<()> {
        let Self { diary, admitter, .. } = self;
        let granted = diary.call(Operation::Admit(vec![]), || {
            let granted = admitter.admit(SystemClock.now(), 8)?.granted;
            let grants = Operation::Admit(granted.iter().map(grant).collect());
            Ok((granted, grants))
        })?;
        assert!(granted.is_sorted_by_key(TaskRecord::order), "a tick grants out of order: {granted:?}");
        self.now.held.extend(granted.iter().map(TaskRecord::lease_ref));
        self.count("ticks");
        Ok(())
    }

    fn reap(&mut self) -> Result<()> {
        let Self { diary, upkeep, .. } = self;
        let has_reaped = diary.call(Operation::Reap(vec![]), || {
            let reaped = upkeep.tick(SystemClock.now())?.reaped;
            let leases: Vec<LeaseRef> = reaped.iter().map(|reaped| reaped.task.lease_ref()).collect();
            Ok((!leases.is_empty(), Operation::Reap(ids(&leases))))
        })?;
        if has_reaped {
            self.count("reaped");
        }
        Ok(())
    }

    /// Resizes a pool, or deletes it and defines it again, in the store's own transactions.
    fn define(&mut self) -> Result<()> {
        let (name, slots) = POOLS[self.random.below(4) as usize];
        let Self { diary, store, random, .. } = self;
        if name == "rare" || random.below(2) == 0 {
            let deletion = diary.call(Operation::Resize(name.into(), Some(0)), || {
                let deleted = store.write(|tx| tx.undefine(&[Subject::Pool(name.try_into()?)]))?[0];
                let operation = match deleted {
                    Undefined::Removed => Operation::Resize(name.into(), Some(0)),
                    _ => Operation::End(vec![]),
                };
                Ok((deleted, operation))
            })?;
            std::thread::sleep(Duration::from_millis(random.below(20)));
            self.count(if deletion == Undefined::Removed { "pools deleted" } else { "deletions refused" });
        }
        let Self { diary, store, random, .. } = self;
        let slots = 1 + random.below(u64::from(slots) + 4) as u32;
        let size = Operation::Resize(name.into(), Some(slots));
        diary.call(size.clone(), || {
            Ok((store.write(|tx| tx.define([pool(name, slots)], IfExists::Replace))?, size))
        })?;
        self.count("pools defined");
        Ok(())
    }

    fn forget(&mut self) -> Result<()> {
        let now = SystemClock.now();
        self.store.write(|tx| tx.forget_ended(now, Duration::from_millis(500), 50))?;
        Ok(())
    }

    /// A host's transaction: some verbs, some of which are rolled back, and an end.
    fn transaction(&mut self) {
        match self.open_transaction() {
            Ok(()) => {}
            Err(Failed::Refused(code)) => {
                self.count(&code);
                if self.sql("ROLLBACK").is_err() {
                    self.connection = connect(&self.orders.database.url);
                }
            }
            Err(Failed::Lost) => {
                self.count("connections lost");
                self.connection = connect(&self.orders.database.url);
            }
        }
    }

    fn open_transaction(&mut self) -> std::result::Result<(), Failed> {
        let will_prepare = self.random.below(5) == 0;
        let notify = if will_prepare || self.random.below(2) == 0 { Notify::No } else { Notify::Yes };
        self.sql(&format!("BEGIN ISOLATION LEVEL {}", self.level))?;
        if self.random.below(2) == 0 {
            self.sql("SELECT 1")?;
        }
        let mut effects = self.now.clone();
        for _ in 0..1 + self.random.below(4) {
            let is_guarded = self.random.below(3) == 0;
            let before = effects.clone();
            if is_guarded {
                self.sql("SAVEPOINT here")?;
            }
            let verb = self.random.below(9);
            let pause = [0, 0, 1, 20][self.random.below(4) as usize];
            let (random, name, round) = (&mut self.random, &self.orders.name, self.rounds);
            let schema = self.orders.database.options().schema;
            let done = self.connection.call(&schema, notify, |tx| {
                let mut verbs = Verbs { tx, random, name, round, effects: &mut effects };
                verbs.call(verb)
            });
            if let Err(error) = done {
                self.bear(&error);
                let is_lost = matches!(&error, Error::Store(error) if error.kind() == StoreErrorKind::Io);
                return Err(if is_lost { Failed::Lost } else { Failed::Refused("verbs refused".into()) });
            }
            std::thread::sleep(Duration::from_millis(self.random.below(pause + 1)));
            if is_guarded && self.random.below(2) == 0 {
                self.sql("ROLLBACK TO here")?;
                effects = before;
                self.count("rolled back to a savepoint");
            }
        }
        if self.level == "READ COMMITTED" && self.random.below(12) == 0 {
            self.define_last(notify, &mut effects)?;
        }
        let cleared = std::mem::take(&mut effects.cleared);
        write(&Line::Cleared(cleared));
        if !will_prepare && self.random.below(4) == 0 {
            self.count("rolled back");
            return self.sql("ROLLBACK");
        }
        self.end(will_prepare, effects);
        Ok(())
    }

    /// Definitions in a host's transaction, before which some are rolled back. All ticks wait for its end.
    fn define_last(&mut self, notify: Notify, effects: &mut Effects) -> std::result::Result<(), Failed> {
        let (name, slots) = POOLS[self.random.below(4) as usize];
        let slots = 1 + self.random.below(u64::from(slots) + 4) as u32;
        let schema = self.orders.database.options().schema;
        for (savepoint, slots) in [("SAVEPOINT there", slots + 50), ("ROLLBACK TO there", slots)] {
            self.sql(savepoint)?;
            if let Err(error) =
                self.connection.call(&schema, notify, |tx| tx.define([pool(name, slots)], IfExists::Replace))
            {
                self.bear(&error);
                return Err(Failed::Refused("definitions refused".into()));
            }
        }
        effects.sizes.push((name.to_owned(), slots));
        self.count("defined in a host's transaction");
        Ok(())
    }

    fn end(&mut self, prepares: bool, effects: Effects) {
        let operations = effects.operations();
        let gid = format!("{}.{}.{}", self.orders.database.schema, self.orders.name, self.rounds);
        let (fate, pause) = (self.random.below(8), Duration::from_millis(self.random.below(20)));
        let mut diary = std::mem::take(&mut self.diary);
        let mut how = "committed";
        let became = diary.commit(&operations, || {
            let end = if prepares { format!("PREPARE TRANSACTION '{gid}'") } else { "COMMIT".to_owned() };
            match self.sql(&end) {
                Ok(()) if !prepares => return Commit::Done,
                Ok(()) => {}
                Err(Failed::Refused(code)) => {
                    self.count(&code);
                    return Commit::Undone;
                }
                Err(Failed::Lost) => return Commit::Unknown,
            }
            std::thread::sleep(pause);
            // Somebody else may settle it first.
            match fate {
                0 => {
                    how = "prepared and left";
                    Commit::Unknown
                }
                1 | 2 if self.sql(&format!("ROLLBACK PREPARED '{gid}'")).is_ok() => {
                    how = "prepared and rolled back";
                    Commit::Undone
                }
                3.. if self.sql(&format!("COMMIT PREPARED '{gid}'")).is_ok() => {
                    how = "prepared and committed";
                    Commit::Done
                }
                _ => Commit::Unknown,
            }
        });
        self.diary = diary;
        match became {
            Commit::Undone if how == "committed" => {}
            Commit::Unknown if how == "committed" => self.count("ends of unknown outcome"),
            _ => self.count(how),
        }
        if became == Commit::Done && !effects.succeeded.is_empty() {
            self.count("succeeded");
            write(&Line::Succeeded(effects.succeeded.clone()));
        }
        if became != Commit::Undone {
            self.now = Effects { held: effects.held, sensing: effects.sensing, ..Effects::default() };
        }
        if became == Commit::Unknown && how == "committed" {
            self.connection = connect(&self.orders.database.url);
        }
    }
}

/// The verbs of one call, and what they did.
struct Verbs<'a, 't> {
    tx: &'a mut Tx<'t>,
    random: &'a mut Random,
    name: &'a str,
    round: u64,
    effects: &'a mut Effects,
}

impl Verbs<'_, '_> {
    fn call(&mut self, verb: u64) -> Result<()> {
        match verb {
            0 | 1 => self.enqueue(),
            2 => self.start(),
            3 => self.renew(),
            4 | 5 => self.finish(),
            6 => self.register(),
            7 => self.end_sensors(),
            _ => self.change_any(),
        }
    }

    fn enqueue(&mut self) -> Result<()> {
        let now = SystemClock.now();
        let tag = self.random.below(1 << 40);
        let retry = RetryPolicy::fixed(Duration::from_millis(4)).max_attempts(3).build()?;
        let tasks: Vec<NewTask> = (0..8 + self.random.below(4))
            .map(|n| {
                let (pool, slots) = match POOLS[n as usize % POOLS.len()] {
                    ("rare", _) if self.random.below(25) > 0 => POOLS[2],
                    often => often,
                };
                let run = format!("{}.{tag}", self.round);
                let key = TaskKey::new("exact", self.name, run, n.to_string())?;
                let mut task = NewTask::new(key)
                    .pool(pool.try_into()?)
                    .pool_slots((1 + self.random.below(3) as u32).min(slots))
                    .priority(self.random.below(2) as i32)
                    .retry(retry.clone())
                    .attempts_as_runs(self.random.below(4) == 0)
                    .lease_loss(LeaseLoss::Requeue { at_most: u32::MAX });
                for (key, _) in LIMITS {
                    if self.random.below(3) == 0 {
                        task = task.limit(key.try_into()?);
                    }
                }
                let later = Duration::from_millis(self.random.below(300));
                Ok(if self.random.below(4) == 0 { task.not_before(now + later) } else { task })
            })
            .collect::<Result<_>>()?;
        self.tx.enqueue(now, &tasks)?;
        Ok(())
    }

    /// Some of these leases.
    fn some(&mut self, of: impl Fn(&Effects) -> &Vec<LeaseRef>) -> Vec<LeaseRef> {
        let mut some = of(self.effects).clone();
        let random = &mut *self.random;
        some.retain(|_| random.below(3) > 0);
        some
    }

    fn start(&mut self) -> Result<()> {
        let held = self.effects.held.clone();
        self.tx.start(SystemClock.now(), &held)?;
        Ok(())
    }

    fn renew(&mut self) -> Result<()> {
        let now = SystemClock.now();
        let held = self.effects.held.clone();
        let renewals = self.tx.renew(now, LEASE, &held)?;
        let renewed: Vec<LeaseRef> = held
            .iter()
            .zip(&renewals)
            .filter(|(_, renewal)| **renewal == Renewal::Renewed)
            .map(|(lease, _)| *lease)
            .collect();
        self.effects.renewed.push((ids(&renewed), (now + LEASE).as_micros().unsigned_abs()));
        let lost: Vec<LeaseRef> = held
            .iter()
            .zip(&renewals)
            .filter(|(_, renewal)| renewal.is_lost())
            .map(|(lease, _)| *lease)
            .collect();
        self.effects.held.retain(|lease| !lost.contains(lease));
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let leases = self.some(|effects| &effects.held);
        let finishes: Vec<Finish> = leases
            .iter()
            .map(|lease| match self.random.below(5) {
                0 => Finish::failed(*lease, "on purpose"),
                1 => Finish::given_back(*lease),
                _ => Finish::success(*lease),
            })
            .collect();
        let finished = self.tx.finish(SystemClock.now(), &finishes)?;
        self.effects.held.retain(|lease| !leases.contains(lease));
        for (lease, finished) in leases.iter().zip(finished) {
            match finished {
                Finished::Stale | Finished::Already(_) => continue,
                Finished::Ended(TaskState::Success) => self.effects.succeeded.extend(ids(&[*lease])),
                _ => {}
            }
            self.effects.ended.extend(ids(&[*lease]));
        }
        Ok(())
    }

    fn register(&mut self) -> Result<()> {
        let now = SystemClock.now();
        let leases = self.some(|effects| &effects.held);
        self.tx.start(now, &leases)?;
        let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(60))?;
        let context = PokeContext::from_json("{}")?;
        let kind = SensorKind::new("coin")?;
        let sensor = |lease: &LeaseRef| NewSensor::new(*lease, kind.clone(), context.clone(), settings);
        let sensors: Vec<NewSensor> = leases.iter().map(sensor).collect();
        let registered = self.tx.register(now, &sensors)?;
        for (lease, registered) in leases.iter().zip(registered) {
            if registered.is_waiting() {
                self.effects.held.retain(|other| other != lease);
                self.effects.sensing.push(*lease);
                self.effects.ended.extend(ids(&[*lease]));
            }
        }
        Ok(())
    }

    fn end_sensors(&mut self) -> Result<()> {
        let leases = self.some(|effects| &effects.sensing);
        let ends: Vec<(LeaseRef, Ending)> = leases
            .iter()
            .map(|lease| {
                let to = [TaskState::Success, TaskState::Scheduled][self.random.below(2) as usize];
                (*lease, Ending::new(EndReason::Landed, to))
            })
            .collect();
        let ended = self.tx.end_sensors(SystemClock.now(), &ends)?;
        self.effects.sensing.retain(|lease| !leases.contains(lease));
        for ((lease, ending), _) in ends.iter().zip(ended).filter(|(_, ended)| *ended) {
            if ending.to == TaskState::Success {
                self.effects.succeeded.extend(ids(&[*lease]));
            }
        }
        Ok(())
    }

    /// Cancels tasks of any process, or makes ended ones ready again.
    fn change_any(&mut self) -> Result<()> {
        let now = SystemClock.now();
        let most = self.effects.held.iter().map(|lease| lease.id.0).max().unwrap_or(100);
        let numbers: Vec<TaskId> =
            (0..6).map(|_| TaskId(most - self.random.below(most.unsigned_abs().min(200)) as i64)).collect();
        let tasks: Vec<TaskRecord> = self.tx.tasks_by_id(&numbers)?.into_iter().flatten().collect();
        let keys: Vec<TaskKey> = tasks.iter().map(|task| task.key.clone()).collect();
        if self.random.below(2) == 0 {
            let cleared = self.tx.clear(now, &keys)?;
            let ready = tasks.iter().zip(cleared).filter(|(_, cleared)| *cleared == Cleared::Ready);
            self.effects.cleared.extend(ready.map(|(task, _)| task.id.0));
            return Ok(());
        }
        let marks: Vec<Mark> =
            keys.iter().map(|key| Mark::new(key.clone(), TaskState::Skipped, "no")).collect();
        let marked = self.tx.mark(now, &marks)?;
        // The row is locked now, so this is the epoch that was ended.
        let ended = self.tx.tasks(&keys)?;
        for (marked, task) in marked.iter().zip(ended) {
            let (Marked::Ended(TaskState::Queued | TaskState::Running), Some(task)) = (marked, task) else {
                continue;
            };
            self.effects.ended.extend(ids(&[LeaseRef::new(task.id, task.epoch)]));
        }
        Ok(())
    }
}
