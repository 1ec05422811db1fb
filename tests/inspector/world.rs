//! A store with known content, and the program on it.

use std::any::Any;
use std::cell::RefCell;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use stationmaster::admission::IfExists;
use stationmaster::admission::limits::{LimitSpec, Rate};
use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::ops::{AdmitRequest, Finish, StopBeforeStart};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::run::{RunKey, RunRecord, RunStatus, StartMethod};
use stationmaster::sensor::{NewSensor, Settings};
use stationmaster::service::{FeedReader, Poker, Service};
use stationmaster::store::Store;
use stationmaster::task::Feed;
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskState, Timestamp};

#[cfg(feature = "postgres")]
#[path = "../scratch/mod.rs"]
pub mod scratch;

pub const HOUR: Duration = Duration::from_secs(3_600);

/// A name that moves the cursor, reverses text and is wide.
pub const HOSTILE: &str = "漢字\u{1b}]0;owned\u{7}\u{9b}2J\r\n\u{202e}b/c";

/// A store with known content.
pub struct World {
    pub name: &'static str,
    pub store: Arc<dyn Store>,
    /// What names the store to the program.
    pub at: Vec<String>,
    /// When it was filled.
    pub now: Timestamp,
    /// It has poked once, and holds its shards for an hour.
    pub poker: RefCell<Poker>,
    _keep: Box<dyn Any>,
}

/// What the program printed.
pub struct Shown {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Shown {
    pub fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("text");
        let code = output.status.code().expect("an end by itself");
        Self { code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// Checks the code, and returns what was printed.
    pub fn ends(self, code: i32) -> String {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        self.out
    }

    /// Checks the code, and returns what was printed as JSON lines.
    pub fn lines(self, code: i32) -> Vec<Value> {
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.ends(code).lines().map(parse).collect()
    }

    /// Checks the code, and returns the only line as JSON.
    pub fn line(self, code: i32) -> Value {
        let mut lines = self.lines(code);
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0)
    }
}

impl World {
    /// The program on this store. It finds nothing on its input, and no variable changes what it prints.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stationmaster"));
        command.args(&self.at).args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_remove("STATIONMASTER_DB").env_remove("NO_COLOR").env("TERM", "xterm");
        command
    }

    pub fn show(&self, args: &[&str]) -> Shown {
        Shown::of(self.command(args).output().unwrap())
    }

    pub fn json(&self, args: &[&str]) -> Shown {
        self.show(&[&["--json"], args].concat())
    }

    /// The program with something on its input.
    pub fn feed(&self, args: &[&str], input: &str) -> Shown {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Shown::of(child.wait_with_output().unwrap())
    }

    /// Makes a counter of pool db wrong, by three.
    pub fn spoil(&self) {
        #[cfg(feature = "sqlite")]
        if self.name == "sqlite" {
            let db = stationmaster::store::sqlite::rusqlite::Connection::open(&self.at[1]).unwrap();
            db.execute_batch("UPDATE sm_pool SET used = used + 3 WHERE name = 'db'").unwrap();
        }
        #[cfg(feature = "postgres")]
        if self.name == "postgres" {
            scratch::query(&format!(
                "UPDATE \"{}\".pool_use SET used = used + 3 WHERE name = 'db'",
                self.at[3]
            ));
        }
    }

    /// One more task waits for the same as `wait`.
    pub fn senses_more(&self, name: &str) {
        let (task, now) = (NewTask::new(key(name)), SystemClock.now());
        self.store.write(|tx| tx.enqueue(now, std::slice::from_ref(&task))).unwrap();
        let granted = self.store.write(|tx| tx.admit(now, &order("tick-3"))).unwrap().granted;
        let sensor = wait(granted.iter().find(|task| task.key == key(name)).unwrap().lease_ref());
        self.store.write(|tx| tx.register(now, std::slice::from_ref(&sensor))).unwrap();
    }

    pub fn state(&self, key: &TaskKey) -> Option<TaskState> {
        let task = self.store.read(|tx| tx.tasks(std::slice::from_ref(key))).unwrap().remove(0);
        task.map(|task| task.state)
    }
}

fn order(request: &str) -> AdmitRequest {
    AdmitRequest::new("worker-1".try_into().unwrap(), request.try_into().unwrap(), 10, HOUR)
        .started()
        .serves(["default".try_into().unwrap()])
}

/// What task `wait` waits for.
fn wait(lease: LeaseRef) -> NewSensor {
    let context = PokeContext::from_json(r#"{"url":"https://example.org/secret"}"#).unwrap();
    let settings = Settings::new(Duration::from_secs(90), 24 * HOUR).unwrap();
    NewSensor::new(lease, "http".try_into().unwrap(), context, settings)
}

pub fn key(task: &str) -> TaskKey {
    TaskKey::new("prod", "nightly", "r1", task).unwrap()
}

pub fn hostile() -> TaskKey {
    TaskKey::new(HOSTILE, HOSTILE, HOSTILE, HOSTILE).unwrap()
}

/// A filled store of each kind that is compiled in.
pub fn worlds() -> Vec<World> {
    let wanted = std::env::var("STATIONMASTER_STORES").ok();
    let is_wanted = |name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    let mut worlds = Vec::new();
    #[cfg(feature = "sqlite")]
    if is_wanted("sqlite") {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db").to_str().unwrap().to_owned();
        let store = stationmaster::store::SqliteStore::open(&path, Default::default()).unwrap();
        worlds.push(filled("sqlite", store, vec!["--db".into(), path], folder));
    }
    #[cfg(feature = "postgres")]
    if is_wanted("postgres") {
        let scratch = scratch::lent::Lent::new();
        let store = scratch.open(|options| options);
        let at = ["--db", &scratch::url(), "--schema", scratch.0.as_str()].map(str::to_owned).to_vec();
        worlds.push(filled("postgres", store, at, scratch));
    }
    let _ = is_wanted("");
    worlds
}

/// Fills a store. Of its tasks only `load` has a lease.
fn filled(name: &'static str, store: impl Store + 'static, at: Vec<String>, keep: impl Any) -> World {
    let (store, now): (Arc<dyn Store>, _) = (Arc::new(store), SystemClock.now());
    let db = PoolSpec::new("db", Slots::Limited(1)).unwrap().described(format!("one at a time {HOSTILE}"));
    let limits = [
        LimitSpec::new("tenant/".try_into().unwrap(), 2).unwrap().family(),
        LimitSpec::of("api".try_into().unwrap()).rate(Rate::new(80, Duration::from_secs(60)).unwrap()),
    ];
    let retry = RetryPolicy::fixed(HOUR).max_attempts(3).build().unwrap();
    let first = [
        NewTask::new(key("fail")).feed(Feed::Ends).payload("select 'secret'"),
        NewTask::new(key("again")).retry(retry),
        NewTask::new(key("wait")),
        NewTask::new(key("done")).feed(Feed::Ends),
    ];
    let gpu = || "gpu".try_into().unwrap();
    let second = [
        NewTask::new(key("load")).pool("db".try_into().unwrap()).payload("copy secret.sql"),
        NewTask::new(key("check")).pool("db".try_into().unwrap()).limit("tenant/acme".try_into().unwrap()),
        NewTask::new(TaskKey::new("prod", "films", "r/1", "render").unwrap().mapped(3)).queue(gpu()),
        NewTask::new(hostile()).queue(gpu()).payload(HOSTILE),
        NewTask::new(key("later")).not_before(now + 2 * HOUR),
    ];
    store
        .write(|tx| {
            tx.define([db.clone()], IfExists::Replace)?;
            tx.define(&limits, IfExists::Replace)?;
            tx.enqueue(now - HOUR, &first)
        })
        .unwrap();
    let early = now - HOUR / 2;
    let granted = store.write(|tx| tx.admit(early, &order("tick-1"))).unwrap().granted;
    let lease = |name: &str| granted.iter().find(|task| task.key == key(name)).unwrap().lease_ref();
    let sensor = wait(lease("wait"));
    let message = format!("no route to host {HOSTILE}");
    let finishes = [
        Finish::failed(lease("fail"), &*message),
        Finish::failed(lease("again"), "busy"),
        Finish::success_with(lease("done"), "secret rows"),
    ];
    store
        .write(|tx| {
            tx.finish(early, &finishes)?;
            tx.register(early, std::slice::from_ref(&sensor))
        })
        .unwrap();
    store.write(|tx| tx.enqueue(now, &second)).unwrap();
    let granted: Vec<LeaseRef> = {
        let admission = store.write(|tx| tx.admit(now, &order("tick-2"))).unwrap();
        admission.granted.iter().map(|task| task.lease_ref()).collect()
    };
    assert_eq!(granted.len(), 1, "the other one needs the same slot");
    store.write(|tx| tx.note(now, &[(granted[0], "12 of 40 files".into())])).unwrap();
    let run = |id: &str, hours: u32| RunRecord::open(RunKey::new("prod", id).unwrap(), now - hours * HOUR);
    let runs = [
        run("nightly-1", 2).workflow("nightly".try_into().unwrap()).user("ann").attributes("{\"secret\":1}"),
        run("old", 9)
            .method(StartMethod::Scheduled)
            .nodes(now - 9 * HOUR, 3)
            .nodes(now - HOUR * 17 / 2, 4)
            .closed(now - 8 * HOUR, RunStatus::Failed),
        run(HOSTILE, 1).user(HOSTILE),
    ];
    store.write(|tx| tx.record_runs(&runs, StopBeforeStart::Reject)).unwrap();
    let mut poker = Poker::new(store.clone(), "poker-1".try_into().unwrap()).lease(HOUR);
    poker.tick(now).unwrap();
    let mut reader = FeedReader::new(store.clone(), "billing".try_into().unwrap(), |_| Err("later".into()));
    reader.tick(now).unwrap();
    let poker = RefCell::new(poker);
    World { name, store, at, now, poker, _keep: Box::new(keep) }
}
