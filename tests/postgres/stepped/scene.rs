//! Tasks in each state that a verb starts from, and the verbs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::canonical::PokeContext;
use stationmaster::id::{Holder, LimitKey, RequestId, SensorKind};
use stationmaster::ops::{AdmitRequest, Finish, Mark, Outcome, RetryAdvice, StopBeforeStart};
use stationmaster::run::{RunClose, RunKey, RunRecord, RunStatus};
use stationmaster::sensor::{EndReason, NewSensor, Settings};
use stationmaster::store::contract::Ending;
use stationmaster::store::{PostgresStore, Tx};
use stationmaster::{LeaseRef, NewTask, Result, TaskKey, TaskRecord, TaskState, Timestamp};

use crate::pool;
use crate::postgres_server::Plain;
use crate::scratch::lent::Lent;
use crate::scratch::url;
use stationmaster::pool::Slots;
use stationmaster::task::Feed;

/// The isolation levels of a host.
pub const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// The instant of all calls.
pub fn now() -> Timestamp {
    Timestamp::from_micros(1_000_000_000)
}

/// An instant this many seconds later.
pub fn later(seconds: u64) -> Timestamp {
    now() + Duration::from_secs(seconds)
}

/// A store in a schema of its own.
pub struct Scene {
    pub store: PostgresStore,
    plain: Plain,
    pub scratch: Lent,
}

/// The verbs that a host may keep open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Enqueue,
    EnqueueInNewLane,
    Start,
    Renew,
    Succeed,
    Retry,
    GiveBack,
    Register,
    EndSensor,
    CancelReady,
    CancelLeased,
    CancelSensing,
    AskToStop,
    Clear,
    RecordRun,
    CloseRun,
    BeatRun,
}

pub const VERBS: [Verb; 17] = [
    Verb::Enqueue,
    Verb::EnqueueInNewLane,
    Verb::Start,
    Verb::Renew,
    Verb::Succeed,
    Verb::Retry,
    Verb::GiveBack,
    Verb::Register,
    Verb::EndSensor,
    Verb::CancelReady,
    Verb::CancelLeased,
    Verb::CancelSensing,
    Verb::AskToStop,
    Verb::Clear,
    Verb::RecordRun,
    Verb::CloseRun,
    Verb::BeatRun,
];

pub fn key(task: &str) -> TaskKey {
    TaskKey::new("n", "w", "r", task).unwrap()
}

/// A task whose attempts are runs, as those are what one can wait for in the most places.
pub fn task(name: &str) -> NewTask {
    let retry = stationmaster::backoff::RetryPolicy::fixed(Duration::from_secs(10)).build().unwrap();
    NewTask::new(key(name))
        .pool(pool("wide", 1).name)
        .attempts_as_runs(true)
        .retry(retry)
        .feed(Feed::EndsAndSensors)
}

fn run_key(name: &str) -> RunKey {
    RunKey::new("n", format!("run of {name}")).unwrap()
}

pub fn sensor(lease: LeaseRef) -> NewSensor {
    let settings = Settings::new(Duration::from_secs(10), Duration::from_secs(60)).unwrap();
    let context = PokeContext::from_json("{}").unwrap();
    NewSensor::new(lease, SensorKind::new("k").unwrap(), context, settings)
}

/// A tick with a name of its own, whose leases last for 60 s.
pub fn order(budget: usize) -> AdmitRequest {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    let request = RequestId::new(format!("tick {}", TICKS.fetch_add(1, Ordering::Relaxed))).unwrap();
    AdmitRequest::new(Holder::new("stepped").unwrap(), request, budget, Duration::from_secs(60))
}

impl Scene {
    pub fn new() -> Self {
        Self::of(Lent::new(), &url())
    }

    /// A scene on this server.
    pub fn at(server: &str) -> Self {
        Self::of(Lent::once(), server)
    }

    fn of(scratch: Lent, server: &str) -> Self {
        // A wait here is a mistake.
        let options = scratch.options().lock_timeout(Duration::from_secs(5));
        let store = PostgresStore::connect(server, options).unwrap();
        store
            .write(|tx| {
                tx.define([stationmaster::pool::PoolSpec::new("wide", Slots::Unlimited)?], IfExists::Replace)
            })
            .unwrap();
        Self { store, plain: Plain::connect(&url()), scratch }
    }

    /// Returns the crate's or a test's text with this schema, and with these values for `$1`, `$2`, ….
    pub fn sql(&self, text: &str, values: &[&str]) -> String {
        let mut sql = text.replace("sm.", &format!("\"{}\".", self.scratch.0));
        for (at, value) in values.iter().enumerate().rev() {
            sql = sql.replace(&format!("${}::", at + 1), &format!("'{value}'::"));
        }
        sql
    }

    /// Runs a text on a connection of its own, and returns the rows.
    pub fn ask(&self, text: &str) -> Vec<Vec<Option<String>>> {
        self.plain.ask(&self.sql(text, &[]))
    }

    /// Returns the numbers in the rows of a text.
    pub fn numbers(&self, text: &str) -> Vec<i64> {
        self.ask(text).into_iter().flatten().map(|value| value.unwrap().parse().unwrap()).collect()
    }

    /// Brings a task for each name and verb into the state that the verb starts from.
    pub fn prepare(&self, needed: &[(Verb, String)]) {
        let names = |wanted: &[Verb]| -> Vec<&str> {
            needed.iter().filter(|(verb, _)| wanted.contains(verb)).map(|(_, name)| name.as_str()).collect()
        };
        let queued = names(&[Verb::Start]);
        let running = names(&[
            Verb::Renew,
            Verb::Succeed,
            Verb::Retry,
            Verb::GiveBack,
            Verb::Register,
            Verb::CancelLeased,
            Verb::AskToStop,
        ]);
        let sensing = names(&[Verb::EndSensor, Verb::CancelSensing]);
        let ended = names(&[Verb::Clear]);
        let ready = names(&[Verb::CancelReady]);
        let leased: Vec<&str> = [&queued[..], &running, &sensing, &ended].concat();
        let leases = self.admitted(&leased);
        let under = |names: &[&str]| -> Vec<LeaseRef> {
            let place = |name: &&str| leases[leased.iter().position(|other| other == name).unwrap()];
            names.iter().map(place).collect()
        };
        let (to_run, to_sense, to_end) = (under(&running), under(&sensing), under(&ended));
        self.store
            .write(|tx| {
                tx.start(now(), &[&to_run[..], &to_sense, &to_end].concat())?;
                tx.finish(now(), &to_end.iter().map(|lease| Finish::success(*lease)).collect::<Vec<_>>())?;
                tx.register(now(), &to_sense.iter().map(|lease| sensor(*lease)).collect::<Vec<_>>())?;
                tx.enqueue(now(), &ready.iter().map(|name| task(name)).collect::<Vec<_>>())?;
                let open: Vec<RunRecord> = names(&[Verb::CloseRun, Verb::BeatRun])
                    .into_iter()
                    .map(|name| RunRecord::open(run_key(name), now()))
                    .collect();
                tx.record_runs(&open, StopBeforeStart::Reject)
            })
            .unwrap();
    }

    /// Enqueues tasks of these names and admits them. Returns their leases, in the order of the names.
    pub fn admitted(&self, names: &[&str]) -> Vec<LeaseRef> {
        let tasks: Vec<NewTask> = names.iter().map(|name| task(name)).collect();
        self.store.write(|tx| tx.enqueue(now(), &tasks)).unwrap();
        let granted = self.tick(10_000);
        let lease = |name: &&str| granted.iter().find(|task| task.key == key(name)).unwrap().lease_ref();
        names.iter().map(lease).collect()
    }

    /// Makes a tick.
    pub fn tick(&self, budget: usize) -> Vec<TaskRecord> {
        self.tick_at(now(), budget)
    }

    /// Makes a tick at this instant.
    pub fn tick_at(&self, at: Timestamp, budget: usize) -> Vec<TaskRecord> {
        self.store.write(|tx| tx.last(|tx| tx.admit(at, &order(budget)))).unwrap().granted
    }

    /// Makes a tick, and returns the names of the tasks that it granted.
    pub fn granted(&self, at: Timestamp, budget: usize) -> Vec<String> {
        self.tick_at(at, budget).into_iter().map(|task| task.key.task.to_string()).collect()
    }

    /// Returns the task with this name.
    pub fn task(&self, name: &str) -> TaskRecord {
        self.store.read(|tx| tx.tasks(&[key(name)])).unwrap().remove(0).unwrap()
    }

    /// Fails the test if a counter is wrong.
    #[track_caller]
    pub fn audit(&self) {
        assert_eq!(self.store.read(|tx| tx.audit()).unwrap(), []);
    }

    /// Returns the lease of the task with this name.
    pub fn lease(&self, name: &str) -> LeaseRef {
        self.task(name).lease_ref()
    }
}

impl Verb {
    /// Calls the verb on the task with this name, whose lease was read before.
    pub fn call(self, tx: &mut Tx<'_>, name: &str, lease: Option<LeaseRef>) -> Result<String> {
        let lease = || lease.unwrap();
        let text = |done: &dyn std::fmt::Debug| format!("{done:?}");
        match self {
            Self::Enqueue => tx.enqueue(now(), &[task(name)]).map(|done| text(&done.len())),
            Self::EnqueueInNewLane => {
                let new = task(name).limit(LimitKey::new(name)?);
                tx.enqueue(now(), &[new]).map(|done| text(&done.len()))
            }
            Self::Start => tx.start(now(), &[lease()]).map(|done| text(&done)),
            Self::Renew => tx.renew(now(), Duration::from_secs(90), &[lease()]).map(|done| text(&done)),
            Self::Succeed => tx.finish(now(), &[Finish::success(lease())]).map(|done| text(&done)),
            Self::Retry => {
                let outcome = Outcome::Failed { message: "m".into(), retry: RetryAdvice::Policy };
                tx.finish(now(), &[Finish::new(lease(), outcome)]).map(|done| text(&done))
            }
            Self::GiveBack => tx.finish(now(), &[Finish::given_back(lease())]).map(|done| text(&done)),
            Self::Register => tx.register(now(), &[sensor(lease())]).map(|done| text(&done[0].is_waiting())),
            Self::EndSensor => {
                let ending = Ending::new(EndReason::Landed, TaskState::Success);
                tx.end_sensors(now(), &[(lease(), ending)]).map(|done| text(&done))
            }
            Self::CancelReady | Self::CancelLeased | Self::CancelSensing => {
                tx.mark(now(), &[Mark::new(key(name), TaskState::Failed, "m")]).map(|done| text(&done))
            }
            Self::AskToStop => {
                tx.cancel(now(), Duration::from_secs(30), &[key(name)], "m").map(|done| text(&done))
            }
            Self::Clear => tx.clear(now(), &[key(name)]).map(|done| text(&done)),
            Self::RecordRun => tx
                .record_runs(&[RunRecord::open(run_key(name), now())], StopBeforeStart::Reject)
                .map(|done| text(&done)),
            Self::CloseRun => {
                let close = RunClose::new(run_key(name), now(), RunStatus::Completed);
                tx.close_runs(&[close]).map(|done| text(&done))
            }
            Self::BeatRun => tx
                .beat_runs(&[stationmaster::run::RunBeat::new(run_key(name), now())])
                .map(|done| text(&done)),
        }
    }

    /// Returns true if the verb is called with a lease.
    pub fn has_lease(self) -> bool {
        use Verb::{EndSensor, GiveBack, Register, Renew, Retry, Start, Succeed};
        matches!(self, Start | Renew | Succeed | Retry | GiveBack | Register | EndSensor)
    }
}
