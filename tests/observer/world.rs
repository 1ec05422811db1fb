//! A small host: random calls over a store that sometimes fails, with all four services.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use stationmaster::admission::IfExists;
use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::error::{Result, StoreError, StoreErrorKind};
use stationmaster::feed::TaskEvent;
use stationmaster::ops::{Finish, Finished, Mark, Outcome, Registered};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{NewSensor, OnMissed, PokeOutcome, Settings};
use stationmaster::service::metrics::{finished, registered};
use stationmaster::service::{
    Admitter, FeedReader, ObservedStore, Observer, PokeRequest, Poker, Service, Upkeep,
};
use stationmaster::store::{Store, StoreInfo, Tx, TxMode};
use stationmaster::task::Feed;
use stationmaster::task::LeaseLoss;
use stationmaster::{Error, LeaseRef, NewTask, Renewal, TaskKey, TaskRecord, TaskState, Timestamp};

use crate::stores::Made;

#[derive(Debug, Clone)]
pub enum Op {
    Enqueue {
        slots: u32,
        retry: bool,
        wait: u64,
    },
    Admit {
        budget: usize,
    },
    Start {
        lease: usize,
    },
    Renew {
        lease: usize,
    },
    Finish {
        lease: usize,
        how: u8,
    },
    Register {
        lease: usize,
        target: u8,
    },
    Poke,
    Read,
    Reap,
    Advance {
        seconds: u64,
    },
    Mark {
        task: usize,
    },
    Clear {
        task: usize,
    },
    RollBack,
    /// The next transaction that writes fails like this; asked of admission, reaping and the feed.
    Fault {
        kind: u8,
    },
}

pub fn ops() -> impl Strategy<Value = Vec<Op>> {
    let lease = 0_usize..6;
    let op = prop_oneof![
        4 => (1_u32..=3, any::<bool>(), 0_u64..60).prop_map(|(slots, retry, wait)| Op::Enqueue { slots, retry, wait }),
        4 => (0_usize..4).prop_map(|budget| Op::Admit { budget }),
        6 => lease.clone().prop_map(|lease| Op::Start { lease }),
        1 => lease.clone().prop_map(|lease| Op::Renew { lease }),
        2 => (lease.clone(), 0_u8..4).prop_map(|(lease, how)| Op::Finish { lease, how }),
        6 => (lease, 0_u8..4).prop_map(|(lease, target)| Op::Register { lease, target }),
        3 => Just(Op::Poke),
        2 => Just(Op::Read),
        1 => Just(Op::Reap),
        3 => (0_u64..50).prop_map(|seconds| Op::Advance { seconds }),
        1 => (50_u64..400).prop_map(|seconds| Op::Advance { seconds }),
        1 => (0_usize..64).prop_map(|task| Op::Mark { task }),
        1 => (0_usize..64).prop_map(|task| Op::Clear { task }),
        1 => Just(Op::RollBack),
        1 => (0_u8..3).prop_map(|kind| Op::Fault { kind }),
    ];
    proptest::collection::vec(op, 1..200)
}

/// Fails once on request, and counts its transactions.
#[derive(Debug)]
struct Faulty {
    inner: Made,
    next: Mutex<Option<u8>>,
    counts: Mutex<BTreeMap<String, u64>>,
}

/// Runs a body once, and rolls back what it does.
pub fn without_effect(store: &Made, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) {
    // On PostgreSQL the commit goes along with the last verb, but not in a transaction that reads.
    let mode = if store.info().backend == "postgres" { TxMode::Read } else { TxMode::Write };
    let done = store.transact(mode, &mut |tx| body(tx).and(Err(Error::abort("on purpose"))));
    assert!(done.is_err());
}

impl Faulty {
    fn run(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let fault = if mode == TxMode::Write { self.next.lock().take() } else { None };
        let fail = |kind| Error::Store(StoreError::new(kind, "on purpose"));
        let Some(fault) = fault else { return self.inner.transact(mode, body) };
        let kinds = [StoreErrorKind::Io, StoreErrorKind::Conflict, StoreErrorKind::Full];
        let kind = kinds[usize::from(fault)];
        if kind != StoreErrorKind::Io {
            without_effect(&self.inner, body);
        }
        Err(fail(kind))
    }
}

impl Store for Faulty {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let answer = self.run(mode, body);
        let word = match &answer {
            Ok(()) => "ok",
            Err(Error::Store(error)) => error.kind().as_str(),
            Err(_) => "aborted",
        };
        let series =
            format!("mode={:?},result={word:?}", if mode == TxMode::Read { "read" } else { "write" });
        *self.counts.lock().entry(series).or_default() += 1;
        answer
    }
}

/// What the calls answered and the state shows: what an observer should have been told.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Truth {
    pub counters: BTreeMap<String, u64>,
    pub deferred: BTreeMap<String, f64>,
    pub waited: Vec<f64>,
    pub calls_of_pokes: usize,
}

impl Truth {
    fn add(&mut self, series: &str, more: usize) {
        if more > 0 {
            *self.counters.entry(format!("stationmaster_{series}")).or_default() += more as u64;
        }
    }
}

pub struct World {
    faulty: Arc<Faulty>,
    store: Arc<dyn Store>,
    observer: Option<Arc<dyn Observer>>,
    admitter: Admitter,
    upkeep: Upkeep,
    poker: Poker,
    reader: FeedReader,
    pokes: Arc<Mutex<Vec<&'static str>>>,
    now: Timestamp,
    keys: Vec<TaskKey>,
    leases: Vec<LeaseRef>,
    pub truth: Truth,
    /// All answers, as text.
    pub answers: Vec<String>,
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl World {
    pub fn new(inner: Made, observer: Option<Arc<dyn Observer>>) -> Self {
        let faulty = Arc::new(Faulty { inner, next: Mutex::default(), counts: Mutex::default() });
        let store: Arc<dyn Store> = match &observer {
            Some(observer) => Arc::new(ObservedStore::new(Shared(faulty.clone()), observer.clone())),
            None => faulty.clone(),
        };
        store.write(|tx| tx.define([PoolSpec::new("small", Slots::Limited(3))?], IfExists::Replace)).unwrap();
        let pokes: Arc<Mutex<Vec<&'static str>>> = Arc::default();
        let heard = pokes.clone();
        let poke = move |request: &PokeRequest| {
            let (word, answer) = match request.context.as_str() {
                r#"{"target":0}"# => ("landed", PokeOutcome::Landed(Some("x".into()))),
                r#"{"target":1}"# => ("failed", PokeOutcome::Failed("no".into())),
                r#"{"target":2}"# => ("unreachable", PokeOutcome::Unreachable("down".into())),
                _ => ("not_yet", PokeOutcome::NotYet),
            };
            heard.lock().push(word);
            answer
        };
        let mut seen = HashSet::new();
        let callback = move |event: &TaskEvent| match event.seq.is_multiple_of(2) && seen.insert(event.seq) {
            true => Err("not the first time".into()),
            false => Ok(()),
        };
        let lease = secs(60);
        let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap()).lease(lease);
        let mut upkeep = Upkeep::new(store.clone()).grace(Duration::ZERO).retain_ended_for(secs(300));
        let poker = Poker::new(store.clone(), "p".try_into().unwrap());
        let poker = poker.wait_for_answers(secs(60)).retry_window(secs(20)).lease(secs(40));
        let mut poker = poker.kind("file".try_into().unwrap(), poke);
        let mut reader = FeedReader::new(store.clone(), "c".try_into().unwrap(), callback).limit(3);
        if let Some(observer) = &observer {
            admitter = admitter.observed_by(observer.clone());
            upkeep = upkeep.observed_by(observer.clone());
            poker = poker.observed_by(observer.clone());
            reader = reader.observed_by(observer.clone());
        }
        Self {
            faulty,
            store,
            observer,
            admitter,
            upkeep,
            poker,
            reader,
            pokes,
            now: Timestamp::UNIX_EPOCH,
            keys: Vec::new(),
            leases: Vec::new(),
            truth: Truth::default(),
            answers: Vec::new(),
        }
    }

    fn lease(&self, at: usize) -> LeaseRef {
        match self.leases.len() {
            0 => LeaseRef::new(stationmaster::TaskId(99), 1),
            length => self.leases[length - 1 - at % length],
        }
    }

    /// The tasks as they are, read past the observer.
    pub fn tasks(&self) -> Vec<TaskRecord> {
        let keys = &self.keys;
        (&self.faulty.inner as &dyn Store).read(|tx| tx.tasks(keys)).unwrap().into_iter().flatten().collect()
    }

    pub fn step(&mut self, op: &Op) {
        let before: BTreeMap<TaskKey, TaskState> =
            self.tasks().into_iter().map(|task| (task.key, task.state)).collect();
        if matches!(op, Op::Admit { .. } | Op::Reap | Op::Read) {
            // It stays for one of these.
        } else if !matches!(op, Op::Fault { .. }) {
            self.faulty.next.lock().take();
        }
        let answer = self.act(op);
        self.answers.push(answer);
        for task in self.tasks() {
            let was = before.get(&task.key).copied();
            let promoted = was == Some(TaskState::UpForRetry) && task.state == TaskState::Scheduled;
            if was.is_some_and(|was| was != task.state) && !promoted {
                self.truth.add(&format!("task_moves_total{{to={:?}}}", task.state.as_str()), 1);
            }
        }
    }

    fn ticked<T>(&mut self, service: &str, answer: &Result<T>) {
        let word = match answer {
            Ok(_) => "ok",
            Err(Error::Store(error)) => error.kind().as_str(),
            Err(_) => "?",
        };
        self.truth.add(&format!("ticks_total{{service={service:?},result={word:?}}}"), 1);
    }

    fn became(&mut self, metric: &str, answers: &[Finished]) {
        for answer in answers {
            let word = match answer {
                Finished::Ended(state) => state.as_str(),
                Finished::RetryAt(_) => "retry",
                Finished::Ready => "ready",
                Finished::Already(_) => "already",
                _ => "stale",
            };
            self.truth.add(&format!("{metric}{{became={word:?}}}"), 1);
        }
    }

    fn calls(&mut self, call: &str, answers: &[bool]) {
        let stale = answers.iter().filter(|answer| !**answer).count();
        self.truth.add(&format!("stale_calls_total{{call={call:?}}}"), stale);
    }

    fn act(&mut self, op: &Op) -> String {
        let now = self.now;
        match *op {
            Op::Enqueue { slots, retry, wait } => {
                let key = TaskKey::new("ns", "w", "r", format!("t{}", self.keys.len())).unwrap();
                let policy = RetryPolicy::fixed(secs(7)).max_attempts(1 + 2 * u32::from(retry));
                let loss = if retry { LeaseLoss::Requeue { at_most: 1 } } else { LeaseLoss::Fail };
                let mut task = NewTask::new(key.clone())
                    .pool("small".try_into().unwrap())
                    .pool_slots(slots)
                    .feed(Feed::EndsAndSensors);
                task = task.retry(policy.build().unwrap()).lease_loss(loss);
                if wait > 30 {
                    task = task.not_before(now + secs(wait));
                }
                self.keys.push(key);
                self.truth.add("tasks_enqueued_total{}", 1);
                format!("{:?}", self.store.write(|tx| tx.enqueue(now, std::slice::from_ref(&task))).unwrap())
            }
            Op::Admit { budget } => {
                let conflict = *self.faulty.next.lock() == Some(1);
                let answer = self.admitter.admit(now, budget);
                // An idle one only looks, and leaves the fault to the next that writes.
                let met = conflict && self.faulty.next.lock().is_none();
                self.truth.add("admission_conflicts_total{}", usize::from(met));
                self.ticked("admitter", &answer);
                if let Ok(admission) = &answer {
                    self.truth.add("granted_total{}", admission.granted.len());
                    self.truth.add("promoted_total{}", admission.promoted);
                    self.truth.waited.extend(
                        admission
                            .granted
                            .iter()
                            .map(|task| now.saturating_duration_since(task.ready_at).as_secs_f64()),
                    );
                    self.truth.deferred = admission
                        .refused_by_reason()
                        .into_iter()
                        .map(|(name, tasks)| (name.to_owned(), tasks as f64))
                        .collect();
                    self.leases.extend(admission.granted.iter().map(TaskRecord::lease_ref));
                }
                format!("{answer:?}")
            }
            Op::Start { lease } => {
                let lease = self.lease(lease);
                let answers = self.store.write(|tx| tx.start(now, &[lease])).unwrap();
                self.calls("start", &answers);
                format!("{answers:?}")
            }
            Op::Renew { lease } => {
                let lease = self.lease(lease);
                let answers = self.store.write(|tx| tx.renew(now, secs(60), &[lease])).unwrap();
                self.calls("renew", &[answers == [Renewal::Renewed]]);
                format!("{answers:?}")
            }
            Op::Finish { lease, how } => {
                let outcome = match how {
                    0 => Outcome::Success { value: None },
                    1 => Outcome::Skipped { message: "no need".into() },
                    2 => Outcome::GivenBack,
                    _ => return self.finish(Finish::failed(self.lease(lease), "no")),
                };
                self.finish(Finish::new(self.lease(lease), outcome))
            }
            Op::Register { lease, target } => {
                let context = PokeContext::from_json(&format!(r#"{{"target":{target}}}"#)).unwrap();
                let mut settings = Settings::new(secs(5), secs(120)).unwrap();
                if target == 3 {
                    settings = settings.on_missed(OnMissed::Skip);
                }
                let kind = "file".try_into().unwrap();
                let sensor = NewSensor::new(self.lease(lease), kind, context, settings);
                let answers = self.store.write(|tx| tx.register(now, std::slice::from_ref(&sensor))).unwrap();
                let word = match &answers[0] {
                    Registered::Waiting(_) => "waiting",
                    Registered::NotRunning => "not_running",
                    _ => "stale",
                };
                self.truth.add(&format!("registered_total{{answer={word:?}}}"), 1);
                if let Some(observer) = &self.observer {
                    registered(&**observer, &answers);
                }
                format!("{answers:?}")
            }
            Op::Poke => {
                let mut answer = self.poker.tick(now);
                self.ticked("poker", &answer);
                let calls = std::mem::take(&mut *self.pokes.lock());
                self.truth.calls_of_pokes += calls.len();
                for word in calls {
                    self.truth.add(&format!("pokes_total{{kind=\"file\",outcome={word:?}}}"), 1);
                }
                if let Ok(report) = &mut answer {
                    report.duration = Duration::ZERO;
                    report.by_kind.values_mut().for_each(|own| own.duration = Duration::ZERO);
                    let own = report.by_kind.get("file").map_or((0, 0), |own| (own.poked, own.saved));
                    assert_eq!(own, (report.poked, report.saved), "one kind");
                    assert_eq!(report.due, report.poked, "nothing hangs, and all kinds are known");
                    for (series, more) in [
                        ("pokes_saved_total{kind=\"file\"}", report.saved),
                        ("poke_groups_due_total{}", report.due),
                        ("sensors_loaded_total{}", report.loaded),
                        ("shards_gained_total{}", report.gained),
                        ("sensors_ended_total{reason=\"landed\"}", report.landed),
                        ("sensors_ended_total{reason=\"failed\"}", report.failed),
                        ("sensors_ended_total{reason=\"timed_out\"}", report.timed_out),
                        ("sensors_ended_total{reason=\"unreachable\"}", report.gave_up),
                    ] {
                        self.truth.add(series, more);
                    }
                }
                format!("{answer:?}")
            }
            Op::Read => {
                let answer = self.reader.tick(now);
                self.ticked("feed", &answer);
                if let Ok(report) = &answer {
                    self.truth.add("events_total{result=\"accepted\"}", report.accepted);
                    self.truth.add("events_total{result=\"refused\"}", usize::from(report.refused.is_some()));
                }
                format!("{answer:?}")
            }
            Op::Reap => {
                let answer = self.upkeep.tick(now);
                self.ticked("upkeep", &answer);
                if let Ok(report) = &answer {
                    let became: Vec<Finished> = report.reaped.iter().map(|reaped| reaped.became).collect();
                    self.became("reaped_total", &became);
                    self.truth.add("forgotten_total{}", report.forgotten);
                    self.truth.add("feed_forgotten_total{}", report.feed_forgotten);
                }
                format!("{answer:?}")
            }
            Op::Advance { seconds } => {
                self.now = now + secs(seconds);
                String::new()
            }
            Op::Mark { task } => {
                let Some(key) = self.keys.get(task) else { return String::new() };
                let marks = [Mark::new(key.clone(), TaskState::Failed, "by hand")];
                format!("{:?}", self.store.write(|tx| tx.mark(now, &marks)).unwrap())
            }
            Op::Clear { task } => {
                let Some(key) = self.keys.get(task) else { return String::new() };
                format!("{:?}", self.store.write(|tx| tx.clear(now, std::slice::from_ref(key))).unwrap())
            }
            Op::RollBack => {
                let task = NewTask::new(TaskKey::new("ns", "w", "r", "never").unwrap());
                let answer: Result<()> = self.store.write(|tx| {
                    tx.enqueue(now, std::slice::from_ref(&task))?;
                    Err(Error::abort("on purpose"))
                });
                format!("{answer:?}")
            }
            Op::Fault { kind } => {
                *self.faulty.next.lock() = Some(kind);
                String::new()
            }
        }
    }

    fn finish(&mut self, what: Finish) -> String {
        let now = self.now;
        let answers = self.store.write(|tx| tx.finish(now, std::slice::from_ref(&what))).unwrap();
        self.became("finished_total", &answers);
        if let Some(observer) = &self.observer {
            finished(&**observer, &answers);
        }
        format!("{answers:?}")
    }

    /// What an observer should have been told by now.
    pub fn whole_truth(&self) -> Truth {
        let mut truth = self.truth.clone();
        for (labels, count) in &*self.faulty.counts.lock() {
            truth.add(&format!("transactions_total{{{labels}}}"), *count as usize);
        }
        truth
    }
}

/// So that the world keeps a hand on the store behind the observer.
#[derive(Debug)]
struct Shared(Arc<Faulty>);

impl Store for Shared {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.0.transact(mode, body)
    }
}
