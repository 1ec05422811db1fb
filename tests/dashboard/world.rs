//! A store with something of everything in it, some of it hostile.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::admission::limits::{LimitSpec, Rate};
use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::id::LimitKey;
use stationmaster::ops::{AdmitRequest, Finish, StopBeforeStart};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::run::{RunKey, RunRecord, RunStatus, StartMethod};
use stationmaster::sensor::{NewSensor, Settings};
use stationmaster::store::{SqliteStore, Store};
use stationmaster::{NewTask, TaskKey, TaskRecord, TaskState};

/// What would show if a page took a name for markup.
pub const HOSTILE: &str =
    "<script>window.pwned=1</script>\"'><img src=x onerror=\"window.pwned=1\">&amp;\u{202e}";
pub const SECRET: &str = "a-payload-nobody-asked-for";

pub struct World {
    pub store: Arc<SqliteStore>,
    pub folder: tempfile::TempDir,
}

pub fn key(task: &str) -> TaskKey {
    TaskKey::new("prod", "nightly", "2026-01-31", task).unwrap()
}

fn limit(key: &str) -> LimitKey {
    LimitKey::new(key).unwrap()
}

impl World {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("jobs.db"), Default::default()).unwrap();
        let world = Self { store: Arc::new(store), folder };
        world.define();
        world.fill();
        world
    }

    pub fn file(&self) -> std::path::PathBuf {
        Path::new(self.folder.path()).join("jobs.db")
    }

    fn define(&self) {
        let rate = Rate::new(3, Duration::from_secs(60)).unwrap().burst(3).unwrap();
        self.store
            .write(|tx| {
                tx.define([PoolSpec::new("db", Slots::Limited(2))?], IfExists::Replace)?;
                tx.define([PoolSpec::new(HOSTILE, Slots::Unlimited)?], IfExists::Replace)?;
                tx.define([LimitSpec::new(limit("tenant"), 5)?.rate(rate)], IfExists::Replace)?;
                Ok(())
            })
            .unwrap();
    }

    /// One task of each state, and more that wait.
    fn fill(&self) {
        let retry = RetryPolicy::exponential(Duration::from_secs(3_600)).max_attempts(3).build().unwrap();
        let names = ["fails", "succeeds", "retries", "senses", HOSTILE];
        let first: Vec<NewTask> = names.iter().map(|name| NewTask::new(key(name))).collect();
        let first: Vec<NewTask> = first
            .into_iter()
            .map(|task| if task.key.task.as_str() == "retries" { task.retry(retry.clone()) } else { task })
            .collect();
        let now = SystemClock.now() - Duration::from_secs(90);
        self.store.write(|tx| tx.enqueue(now, &first)).unwrap();
        let granted = self.admit(names.len());
        let of = |name: &str| granted.iter().find(|task| task.key.task.as_str() == name).unwrap().lease_ref();
        let settings = Settings::new(Duration::from_secs(30), Duration::from_secs(3_600)).unwrap();
        let context = PokeContext::from_json(r#"{"path":"/data/ready"}"#).unwrap();
        let sensor = NewSensor::new(of("senses"), "file_exists".parse().unwrap(), context, settings);
        self.store
            .write(|tx| {
                let ends = [
                    Finish::failed(of("fails"), HOSTILE),
                    Finish::success(of("succeeds")),
                    Finish::failed(of("retries"), "no route to host"),
                    Finish::failed(of(HOSTILE), HOSTILE),
                ];
                tx.finish(now, &ends)?;
                tx.register(now, std::slice::from_ref(&sensor))?;
                Ok(())
            })
            .unwrap();
        // Two run in `db`; the others wait for it.
        let tasks: Vec<NewTask> = (0..60)
            .map(|at| {
                let task = NewTask::new(key(&format!("load-{at:02}"))).pool("db".parse().unwrap());
                task.limit(limit("tenant")).payload(SECRET)
            })
            .collect();
        self.store.write(|tx| tx.enqueue(now, &tasks)).unwrap();
        self.admit(10);
        self.store
            .write(|tx| {
                let run = |id: &str, hours: u64| {
                    let key = RunKey::new("prod", id)?;
                    Ok::<_, stationmaster::Error>(RunRecord::open(
                        key,
                        now - Duration::from_secs(hours * 3_600),
                    ))
                };
                let ended =
                    run("ended", 5)?.closed(now - Duration::from_secs(3 * 3_600), RunStatus::Completed);
                let old = run(HOSTILE, 30)?.user(HOSTILE);
                let old = old.closed(now - Duration::from_secs(28 * 3_600), RunStatus::Failed);
                let hours_ago = |hours: u64| now - Duration::from_secs(hours * 3_600);
                let ended = ended.user("ann").method(StartMethod::Scheduled);
                let ended = ended.nodes(hours_ago(5), 8).nodes(hours_ago(4), 2);
                tx.record_runs(&[run("open", 2)?, ended, old], StopBeforeStart::Reject)
            })
            .unwrap();
    }

    /// Grants up to this many tasks, and starts them.
    fn admit(&self, budget: usize) -> Vec<TaskRecord> {
        let request = format!("{budget}").as_str().try_into().unwrap();
        let lease = Duration::from_secs(600);
        let order = AdmitRequest::new("worker-1".try_into().unwrap(), request, budget, lease).started();
        self.store.write(|tx| tx.admit(SystemClock.now(), &order)).unwrap().granted
    }

    /// Four slots that two shares hold as their weights of 3 and 1 say, and of each more that waits.
    pub fn shared_pool(&self) {
        self.store
            .write(|tx| {
                tx.define([PoolSpec::new("gpu", Slots::Limited(4))?], IfExists::Replace)?;
                tx.define([LimitSpec::of("team/big".parse()?).weight(3)], IfExists::Replace)
            })
            .unwrap();
        self.share("team/big", 8);
        self.share(HOSTILE, 8);
        assert_eq!(self.admit(100).len(), 4);
    }

    /// Enqueues this many tasks of this share.
    pub fn share(&self, share: &str, tasks: usize) {
        let task = |at: usize| {
            NewTask::new(key(&format!("{share}-{at}")))
                .pool("gpu".parse().unwrap())
                .share(share.parse().unwrap())
        };
        let tasks: Vec<NewTask> = (0..tasks).map(task).collect();
        self.store.write(|tx| tx.enqueue(SystemClock.now(), &tasks)).unwrap();
    }

    pub fn enqueue(&self, name: &str) {
        let task = NewTask::new(key(name)).pool("db".parse().unwrap());
        self.store.write(|tx| tx.enqueue(SystemClock.now(), std::slice::from_ref(&task))).unwrap();
    }

    pub fn task(&self, name: &str) -> TaskRecord {
        self.store.read(|tx| tx.tasks(&[key(name)])).unwrap().pop().flatten().unwrap()
    }

    pub fn state(&self, name: &str) -> TaskState {
        self.task(name).state
    }

    pub fn shared(&self) -> Arc<dyn Store> {
        self.store.clone()
    }
}
