//! Changing and deleting tasks, on every store: what waits, and nothing that was granted meanwhile.
#![allow(clippy::unwrap_used)]

mod stores;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stationmaster::admission::{Ageing, IfExists};
use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::error::{Error, Invalid};
use stationmaster::ops::{AdmitRequest, Changed, Cleared, Finish, Mark};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::sensor::{NewSensor, Settings};
use stationmaster::store::Store;
use stationmaster::task::TaskQuery;
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskRecord, TaskState, Timestamp};
use stores::stores;

type Shared = Arc<dyn Store>;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn key(task: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", task).unwrap()
}

fn keys(names: &[&str]) -> Vec<TaskKey> {
    names.iter().map(|name| key(name)).collect()
}

fn enqueue(store: &Shared, names: &[&str]) {
    let retry = RetryPolicy::fixed(Duration::from_secs(50)).max_attempts(2).build().unwrap();
    let tasks: Vec<NewTask> = names.iter().map(|name| NewTask::new(key(name)).retry(retry.clone())).collect();
    store.write(|tx| tx.enqueue(at(0), &tasks)).unwrap();
}

fn task(store: &Shared, name: &str) -> TaskRecord {
    store.read(|tx| tx.tasks(&[key(name)])).unwrap().remove(0).unwrap()
}

/// Admits as many as the budget says, with leases of a minute.
fn admit(store: &Shared, now: i64, budget: usize) -> Vec<TaskRecord> {
    static TICKS: AtomicUsize = AtomicUsize::new(0);
    let tick = format!("tick {}", TICKS.fetch_add(1, Ordering::Relaxed)).try_into().unwrap();
    let order = AdmitRequest::new("holder".try_into().unwrap(), tick, budget, Duration::from_secs(60));
    store.write(|tx| tx.admit(at(now), &order)).unwrap().granted
}

fn run(store: &Shared, now: i64, budget: usize) -> Vec<LeaseRef> {
    let leases: Vec<LeaseRef> = admit(store, now, budget).iter().map(TaskRecord::lease_ref).collect();
    store.write(|tx| tx.start(at(now), &leases)).unwrap();
    leases
}

fn names(tasks: &[TaskRecord]) -> Vec<&str> {
    tasks.iter().map(|task| task.key.task.as_str()).collect()
}

/// One task in each state, named after it.
fn one_of_each(store: &Shared) {
    for name in ["success", "failed", "sensing", "up_for_retry", "running"] {
        enqueue(store, &[name]);
        let lease = run(store, 1, 1)[0];
        let end = match name {
            "success" => Finish::success(lease),
            "up_for_retry" => Finish::failed(lease, "no route"),
            "sensing" => {
                let settings = Settings::new(Duration::from_secs(10), Duration::from_secs(600)).unwrap();
                let context = PokeContext::from_json("{}").unwrap();
                let sensor = NewSensor::new(lease, "file".try_into().unwrap(), context, settings);
                store.write(|tx| tx.register(at(2), std::slice::from_ref(&sensor))).unwrap();
                continue;
            }
            "failed" => {
                store.write(|tx| tx.mark(at(2), &[Mark::new(key(name), TaskState::Failed, "bad")])).unwrap();
                continue;
            }
            _ => continue,
        };
        store.write(|tx| tx.finish(at(2), std::slice::from_ref(&end))).unwrap();
    }
    enqueue(store, &["queued"]);
    admit(store, 3, 1);
    enqueue(store, &["scheduled"]);
    for name in ["success", "failed", "sensing", "up_for_retry", "running", "queued", "scheduled"] {
        assert_eq!(task(store, name).state.as_str(), name);
    }
}

/// What holds at the end of each test.
fn is_sound(store: &Shared) {
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}

#[test]
fn what_was_granted_meanwhile_says_so_and_is_not_changed() {
    for store in stores() {
        one_of_each(&store);
        let asked =
            ["scheduled", "queued", "running", "sensing", "failed", "unknown", "up_for_retry", "scheduled"];
        let before: Vec<TaskRecord> = asked[1..5].iter().map(|name| task(&store, name)).collect();
        let raise = |task: &mut NewTask| task.priority += 7;
        let changed = store.write(|tx| tx.change(at(5), &keys(&asked), raise)).unwrap();
        let [queued, running, sensing, failed] =
            [TaskState::Queued, TaskState::Running, TaskState::Sensing, TaskState::Failed]
                .map(Changed::NotWaiting);
        let done = Changed::Done;
        assert_eq!(changed, [done, queued, running, sensing, failed, Changed::Unknown, done, done]);
        assert_eq!(asked[1..5].iter().map(|name| task(&store, name)).collect::<Vec<_>>(), before);
        assert_eq!(["scheduled", "up_for_retry"].map(|name| task(&store, name).priority), [7; 2], "once");
        is_sound(&store);
    }
}

#[test]
fn a_task_asks_for_something_else_from_then_on() {
    for store in stores() {
        let pools = ["default_pool", "gpu"].map(|name| PoolSpec::new(name, Slots::Limited(1)).unwrap());
        store.write(|tx| tx.define(&pools, IfExists::Replace)).unwrap();
        enqueue(&store, &["a", "b", "c"]);
        let move_on = |task: &mut NewTask| {
            task.pool = "gpu".try_into().unwrap();
            task.queue = "fast".try_into().unwrap();
            task.payload = format!("{} moved", task.key.task);
            task.limits.push("tenant".try_into().unwrap());
        };
        store.write(|tx| tx.change(at(1), &keys(&["b", "c"]), move_on)).unwrap();
        store.write(|tx| tx.change(at(1), &keys(&["c"]), |task| task.priority = 1)).unwrap();
        let granted = admit(&store, 2, 9);
        assert_eq!(names(&granted), ["c", "a"], "each pool has one slot, and c goes first");
        assert_eq!(granted[0].payload, "c moved");
        let queues = store.read(|tx| tx.queues()).unwrap();
        assert_eq!(queues.len(), 2);
        let leases: Vec<LeaseRef> = granted.iter().map(TaskRecord::lease_ref).collect();
        let ends: Vec<Finish> = leases.iter().map(|lease| Finish::success(*lease)).collect();
        store.write(|tx| tx.finish(at(3), &ends)).unwrap();
        assert_eq!(names(&admit(&store, 4, 9)), ["b"]);
        is_sound(&store);
    }
}

#[test]
fn a_due_instant_is_set_and_removed() {
    for store in stores() {
        one_of_each(&store);
        let later = |task: &mut NewTask| task.not_before = Some(at(900));
        store.write(|tx| tx.change(at(5), &keys(&["scheduled"]), later)).unwrap();
        let now = |task: &mut NewTask| task.not_before = None;
        store.write(|tx| tx.change(at(5), &keys(&["up_for_retry"]), now)).unwrap();
        let [scheduled, retry] = ["scheduled", "up_for_retry"].map(|name| task(&store, name));
        assert_eq!((scheduled.state, scheduled.due), (TaskState::Scheduled, Some(at(900))));
        assert_eq!((retry.state, retry.due, retry.ready_at), (TaskState::Scheduled, None, at(5)));
        assert_eq!(retry.message.as_deref(), Some("no route"));
        let granted = admit(&store, 6, 9);
        assert_eq!((names(&granted), granted[0].attempt), (vec!["up_for_retry"], 2), "its second attempt");
        assert_eq!(names(&admit(&store, 900, 9)), ["scheduled"]);
        is_sound(&store);
    }
}

#[test]
fn a_priority_that_ages_keeps_what_was_waited() {
    for store in stores() {
        let ageing = Ageing::Linear { period: Duration::from_secs(60) };
        let tasks = ["old", "young"].map(|name| NewTask::new(key(name)));
        store
            .write(|tx| {
                tx.enqueue_ageing(at(0), ageing, &tasks[..1])?;
                tx.enqueue_ageing(at(100), ageing, &tasks[1..])
            })
            .unwrap();
        let first = || {
            let waiting = store.read(|tx| tx.list_tasks(&TaskQuery::waiting())).unwrap().tasks;
            waiting[0].key.task.to_string()
        };
        let by = |more: i32| {
            let raise = |task: &mut NewTask| task.priority += more;
            store.write(|tx| tx.change_ageing(at(101), ageing, &keys(&["young"]), raise)).unwrap()
        };
        assert_eq!(first(), "old");
        by(1);
        assert_eq!(first(), "old", "one minute of a head start is less than a hundred seconds");
        by(1);
        assert_eq!(first(), "young");
        by(-2);
        let young = task(&store, "young");
        assert_eq!((young.rank, young.priority), (ageing.rank(0, at(100)), 0));
        is_sound(&store);
    }
}

#[test]
fn bad_input_changes_nothing() {
    for store in stores() {
        enqueue(&store, &["a", "b"]);
        let before = ["a", "b"].map(|name| task(&store, name));
        let refused = |edit: fn(&mut NewTask)| {
            store.write(|tx| tx.change(at(1), &keys(&["a", "b"]), edit)).unwrap_err().to_string()
        };
        // The first would do.
        let second = |task: &mut NewTask, is: fn(&mut NewTask)| match task.key.task.as_str() {
            "a" => task.priority = 9,
            _ => is(task),
        };
        let edits = [
            store.write(|tx| {
                tx.change(at(1), &keys(&["a", "b"]), |task| second(task, |task| task.pool_slots = 0))
            }),
            store.write(|tx| {
                tx.change(at(1), &keys(&["a", "b"]), |task| second(task, |task| task.key = key("c")))
            }),
        ];
        let [slots, renamed] = edits;
        assert!(matches!(slots, Err(Error::Invalid(Invalid::TaskSlots { slots: 0, .. }))), "{slots:?}");
        let Err(Error::Invalid(Invalid::KeyChanged { task: of })) = renamed else { panic!("{renamed:?}") };
        assert_eq!(*of, key("b"));
        let long = refused(|task| task.payload = "x".repeat((1 << 20) + 1));
        assert!(long.contains("1048577"), "{long}");
        assert_eq!(["a", "b"].map(|name| task(&store, name)), before);
        assert_eq!(store.write(|tx| tx.change(at(1), &[], |_| ())).unwrap(), []);
        assert_eq!(store.write(|tx| tx.delete(&[])).unwrap(), []);
        is_sound(&store);
    }
}

#[test]
fn what_waits_or_ended_is_deleted() {
    for store in stores() {
        one_of_each(&store);
        let asked =
            ["scheduled", "queued", "running", "sensing", "up_for_retry", "failed", "unknown", "failed"];
        let deleted = store.write(|tx| tx.delete(&keys(&asked))).unwrap();
        let [queued, running, sensing] =
            [TaskState::Queued, TaskState::Running, TaskState::Sensing].map(Changed::NotWaiting);
        let done = Changed::Done;
        assert_eq!(deleted, [done, queued, running, sensing, done, done, Changed::Unknown, done]);
        let left = store.read(|tx| tx.list_tasks(&TaskQuery::all())).unwrap();
        let mut left = names(&left.tasks);
        left.sort_unstable();
        assert_eq!(left, ["queued", "running", "sensing", "success"]);
        assert!(admit(&store, 900, 9).is_empty());
        enqueue(&store, &["failed"]);
        assert_eq!(task(&store, "failed").attempt, 0, "another task of that key");
        is_sound(&store);
    }
}

/// Failed tasks are run again or discarded, a page at a time, and each as it was listed.
#[test]
fn a_page_that_is_held_is_retried_or_discarded() {
    for store in stores() {
        let all: Vec<String> = (0..7).map(|n| format!("t{n}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        enqueue(&store, &all);
        let marks: Vec<Mark> =
            all.iter().map(|name| Mark::new(key(name), TaskState::Failed, "bad")).collect();
        store.write(|tx| tx.mark(at(1), &marks)).unwrap();
        let failed = TaskQuery::new([TaskState::Failed]);

        let page = store.write(|tx| {
            let page = tx.hold_tasks(&failed.clone().limit(2))?;
            assert_eq!(tx.clear(at(2), &page.keys())?, [Cleared::Ready; 2]);
            Ok(page)
        });
        let page = page.unwrap();
        assert_eq!(names(&page.tasks), ["t6", "t5"]);
        let mut query = failed.clone().limit(2).after(page.next.unwrap());
        let mut gone = Vec::new();
        loop {
            let page = store
                .write(|tx| {
                    let page = tx.hold_tasks(&query)?;
                    assert!(tx.delete(&page.keys())?.iter().all(|deleted| *deleted == Changed::Done));
                    Ok(page)
                })
                .unwrap();
            gone.extend(page.tasks.iter().map(|task| task.key.task.to_string()));
            let Some(next) = page.next else { break };
            query = query.after(next);
        }
        assert_eq!(gone, ["t4", "t3", "t2", "t1", "t0"]);
        assert_eq!(store.write(|tx| tx.hold_tasks(&failed)).unwrap().tasks, []);
        assert!(store.read(|tx| tx.list_tasks(&failed)).unwrap().tasks.is_empty());
        assert_eq!(admit(&store, 3, 9).len(), 2);
        is_sound(&store);
    }
}

/// Writers change, delete and admit the same tasks at once: each is granted as it was changed last, or gone.
#[test]
fn changes_and_grants_take_turns() {
    for store in stores() {
        let all: Vec<String> = (0..60).map(|n| format!("t{n}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        enqueue(&store, &all);
        let (mut changed, mut gone, mut granted) = (Vec::new(), Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            let changer = scope.spawn(|| {
                let mut done = Vec::new();
                for part in all.chunks(5) {
                    let edit = |task: &mut NewTask| {
                        task.payload = "changed".into();
                        task.pool_slots = 2;
                    };
                    let answers = store.write(|tx| tx.change(at(1), &keys(part), edit)).unwrap();
                    done.extend(part.iter().zip(answers).filter(|(_, answer)| *answer == Changed::Done));
                }
                done.into_iter().map(|(name, _)| *name).collect::<Vec<_>>()
            });
            let deleter = scope.spawn(|| {
                let mut done = Vec::new();
                for part in all.rchunks(4).take(8) {
                    let answers = store.write(|tx| tx.delete(&keys(part))).unwrap();
                    done.extend(part.iter().zip(answers).filter(|(_, answer)| *answer == Changed::Done));
                }
                done.into_iter().map(|(name, _)| *name).collect::<Vec<_>>()
            });
            for tick in 0..30 {
                granted.extend(admit(&store, 10 + tick, 3));
            }
            changed = changer.join().unwrap();
            gone = deleter.join().unwrap();
        });
        for task in &granted {
            let name = task.key.task.as_str();
            assert!(!gone.contains(&name), "{name} was deleted and granted");
            let is_changed = task.payload == "changed";
            assert_eq!(
                (is_changed, task.held_slots),
                (changed.contains(&name), if is_changed { 2 } else { 1 })
            );
        }
        let left = store.read(|tx| tx.list_tasks(&TaskQuery::all())).unwrap().tasks.len();
        assert_eq!(left + gone.len(), all.len());
        is_sound(&store);
    }
}
