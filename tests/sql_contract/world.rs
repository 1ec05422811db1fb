//! A store, and a host with a driver of its own on the same database.

use stationmaster::admission::IfExists;
use stationmaster::admission::limits::LimitSpec;
use stationmaster::backoff::RetryPolicy;
use stationmaster::id::QueueName;
use stationmaster::ops::AdmitRequest;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::store::Store;
use stationmaster::task::LeaseLoss;
use stationmaster::testing::{Snapshot, Watch, raw};
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskRecord, Timestamp};

use crate::contract::statement;

pub const NOW: i64 = 1_000_000;

pub fn now() -> Timestamp {
    Timestamp::from_micros(NOW)
}

pub fn key(task: &str) -> TaskKey {
    TaskKey::new("prod", "nightly", "r1", task).unwrap()
}

/// What a host binds and reads.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Null,
    Int(i64),
    Text(String),
    #[cfg(feature = "postgres")]
    Ints(Vec<i64>),
    #[cfg(feature = "postgres")]
    Texts(Vec<Option<String>>),
}

impl Value {
    pub fn int(&self) -> i64 {
        match self {
            Self::Int(value) => *value,
            other => panic!("{other:?} is no number"),
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Self::Text(value) => value,
            other => panic!("{other:?} is no text"),
        }
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.into())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The arguments of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => { [$($crate::world::Value::from($value)),*] };
}
pub(crate) use values;

/// Why the contract refuses a statement, as the page lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    Stale,
    Repeated,
    Argument,
    Recorded,
    Unknown,
    State,
    Full,
}

impl Why {
    /// What the text says.
    fn of(text: &str) -> Self {
        let text = text.strip_prefix("stationmaster: ").unwrap_or_else(|| panic!("not ours: {text}"));
        let begins = |with: &[&str]| with.iter().any(|with| text.starts_with(with));
        match text {
            _ if begins(&["stale lease: "]) => Self::Stale,
            _ if begins(&["finished like this before: ", "cancelled like this before: "]) => Self::Repeated,
            _ if begins(&["the attempts of this task are recorded as runs: "]) => Self::Recorded,
            _ if begins(&["unknown task: "]) => Self::Unknown,
            _ if begins(&["cannot be cancelled: "]) => Self::State,
            _ if begins(&["too many tasks wait: "]) => Self::Full,
            _ if text.contains(" is refused: ") || text.contains(" are refused: ") => Self::Argument,
            _ => panic!("the page does not have this: {text}"),
        }
    }
}

/// A refusal of the database.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub code: String,
    pub text: String,
}

impl Refusal {
    /// What it means. Code and text say the same.
    pub fn why(&self) -> Why {
        let why = Why::of(&self.text);
        let code = match why {
            _ if !self.code.starts_with("SM") => "1811",
            Why::Stale => "SM001",
            Why::Repeated => "SM002",
            Why::Argument => "SM003",
            Why::Recorded => "SM004",
            Why::Unknown => "SM005",
            Why::State => "SM006",
            Why::Full => "SM007",
        };
        assert_eq!(self.code, code, "{}", self.text);
        why
    }
}

pub type Answer = Result<Vec<Vec<Value>>, Refusal>;

/// The host's own connection.
pub trait Host {
    /// As the page calls it.
    fn database(&self) -> &'static str;

    /// What begins a transaction that writes.
    fn begin(&self) -> &'static str;

    /// Runs one statement, whose names are the defaults.
    fn ask(&self, sql: &str, values: &[Value]) -> Answer;

    /// Runs statements without parameters.
    fn batch(&self, sql: &str);

    /// Every row of the store's tables, without what differs between two stores that did the same.
    fn rows(&self) -> Vec<String>;
}

/// A host and a store with one database.
pub struct World {
    pub host: Box<dyn Host>,
    pub store: Box<dyn Store>,
    /// Goes last.
    _place: Box<dyn std::any::Any>,
}

/// A way to make a world with nothing in it.
pub type Make = fn() -> World;

/// One for each database.
pub fn databases() -> Vec<Make> {
    vec![
        #[cfg(feature = "sqlite")]
        crate::sqlite::world,
        #[cfg(feature = "postgres")]
        crate::postgres::world,
    ]
}

impl World {
    pub fn new(host: Box<dyn Host>, store: Box<dyn Store>, place: Box<dyn std::any::Any>) -> Self {
        store
            .write(|tx| {
                tx.define(
                    [
                        PoolSpec::new("default_pool", Slots::Limited(3))?,
                        PoolSpec::new("db", Slots::Unlimited)?,
                        PoolSpec::new("keeps", Slots::Limited(9))?.sensing_keeps_slots(true),
                    ],
                    IfExists::Replace,
                )?;
                tx.define([LimitSpec::new("tenant".try_into()?, 5)?], IfExists::Replace)
            })
            .unwrap();
        Self { host, store, _place: place }
    }

    pub fn is_sqlite(&self) -> bool {
        self.host.database() == "SQLite"
    }

    /// Runs one statement of the contract in the transaction that is open.
    pub fn ask(&self, name: &str, values: &[Value]) -> Answer {
        self.host.ask(statement(self.host.database(), name), values)
    }

    /// Runs one statement of the contract in the host's own transaction.
    pub fn run(&self, name: &str, values: &[Value]) -> Answer {
        self.host.batch(self.host.begin());
        let done = self.ask(name, values);
        self.host.batch(if done.is_ok() { "COMMIT" } else { "ROLLBACK" });
        done
    }

    pub fn enqueue(&self, task: &NewTask, rank: Option<i64>) {
        self.run("enqueue", &arguments(task, rank)).unwrap();
    }

    pub fn admit(&self, at: i64) -> Vec<TaskRecord> {
        admit(&*self.store, at)
    }

    pub fn start(&self, lease: LeaseRef, at: i64) -> Answer {
        self.run("start", &values![at, lease.id.0, lease.epoch])
    }

    pub fn finish(
        &self,
        lease: LeaseRef,
        at: i64,
        outcome: &str,
        text: Option<&str>,
        retry_at: Option<i64>,
    ) -> Answer {
        self.run("finish", &finish(lease, at, outcome, text, retry_at))
    }

    pub fn cancel(&self, id: i64, at: i64, outcome: &str, message: &str) -> Answer {
        self.run("cancel", &values![at, id, outcome, message])
    }

    pub fn cancel_by(&self, id: i64, at: i64, message: &str, deadline: i64) -> Answer {
        self.run("cancel_by", &values![at, id, message, deadline])
    }

    /// The id of a task, as a host finds it.
    pub fn id(&self, key: &TaskKey) -> i64 {
        let values = values![
            key.namespace.as_str(),
            key.workflow.as_str(),
            key.run.as_str(),
            key.task.as_str(),
            key.map_index.map(i64::from),
        ];
        self.ask("status", &values).unwrap()[0][0].int()
    }

    /// All that can be seen through the store, and every row.
    pub fn state(&self, keys: &[TaskKey]) -> (Snapshot, Vec<String>) {
        // A host leaves that to pokers.
        self.store.write(|tx| Ok(raw(tx).number_changes(1_000)?)).unwrap();
        let limits = ["tenant", "a", "b", "\"é\\"].map(|key| key.try_into().unwrap());
        let watch = Watch { tasks: keys.into(), limits: limits.into(), ..Watch::default() };
        let seen = self.store.read(|tx| Ok(Snapshot::take(tx, &watch)?)).unwrap();
        assert_eq!(seen.audit(), []);
        (seen, self.host.rows())
    }
}

/// What `enqueue` takes for a task.
pub fn arguments(task: &NewTask, rank: Option<i64>) -> [Value; 17] {
    let key = &task.key;
    let limits = serde_json::to_string(&task.check(now()).unwrap().lane.limits).unwrap();
    let retry = (task.retry != RetryPolicy::none()).then(|| serde_json::to_string(&task.retry).unwrap());
    let losses = match task.lease_loss {
        default if default == LeaseLoss::default() => None,
        LeaseLoss::Requeue { at_most } => Some(i64::from(at_most)),
        _ => Some(0),
    };
    values![
        NOW,
        key.namespace.as_str(),
        key.workflow.as_str(),
        key.run.as_str(),
        key.task.as_str(),
        key.map_index.map(i64::from),
        task.pool.as_str(),
        i64::from(task.pool_slots),
        limits,
        i64::from(task.priority),
        rank,
        task.logical_date.map(Timestamp::as_micros),
        task.not_before.map(Timestamp::as_micros),
        retry,
        losses,
        &*task.payload,
        (task.queue.as_str() != QueueName::DEFAULT).then(|| task.queue.as_str()),
    ]
}

/// What `finish` takes. The text is the value of a success and the message of anything else.
pub fn finish(
    lease: LeaseRef,
    at: i64,
    outcome: &str,
    text: Option<&str>,
    retry_at: Option<i64>,
) -> [Value; 7] {
    let (value, message) = if outcome == "success" { (text, None) } else { (None, text) };
    values![at, lease.id.0, lease.epoch, outcome, value, message, retry_at]
}

/// Arguments of `enqueue` that are taken.
pub fn good() -> [Value; 17] {
    let mut task = NewTask::new(key("t"));
    task = task.limit("a".try_into().unwrap()).limit("b".try_into().unwrap());
    arguments(&task, None)
}

pub fn admit(store: &dyn Store, at: i64) -> Vec<TaskRecord> {
    let order = AdmitRequest::new(
        "h".try_into().unwrap(),
        format!("tick {at}").as_str().try_into().unwrap(),
        99,
        std::time::Duration::from_secs(9),
    );
    store.write(|tx| tx.admit(Timestamp::from_micros(at), &order)).unwrap().granted
}
