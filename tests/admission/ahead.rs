//! What may be asked about tasks that wait, and what it costs.

use std::sync::Arc;

use stationmaster::admission::limits::{LimitSpec, Rate};
use stationmaster::admission::{AirflowWindow, IfExists, Policy, Reason, Subject};
use stationmaster::error::{Invalid, StoreErrorKind};
use stationmaster::id::{LimitKey, QueueName};
use stationmaster::ops::Position::{Before, MoreThan, NotReady, Unknown};
use stationmaster::ops::{AdmitRequest, Explanation, Position};
use stationmaster::pool::Slots;
use stationmaster::store::{ReadTx, Store};
use stationmaster::testing::{Fault, FaultStore, When};
use stationmaster::{Error, Result, TaskKey};

use super::{Scene, at, db, key, names, on_every_store, secs};
use crate::stores::stores;

/// How many calls of the store a transaction that reads makes, its begin and its commit included.
fn calls(store: &Arc<dyn Store>, mut body: impl FnMut(&mut ReadTx<'_>) -> Result<()>) -> u64 {
    let faulty = FaultStore::new(Arc::clone(store));
    let untouched = (1..).find(|call| {
        faulty.arm(Fault::new(*call, When::Before, StoreErrorKind::Full));
        let done = (&faulty as &dyn Store).read(&mut body);
        assert!(
            done.is_ok() || matches!(&done, Err(Error::Store(error)) if error.kind() == StoreErrorKind::Full)
        );
        faulty.disarm().is_none()
    });
    untouched.unwrap() - 1
}

/// Tasks of many pools, with many limits: one call asks about all of them.
#[test]
fn explaining_many_tasks_takes_as_many_calls_as_explaining_one() {
    for store in stores() {
        let scene = Scene { store: &*store, ticks: 0.into() };
        let keys: Vec<TaskKey> = (0..50).map(|n| key(&n.to_string())).collect();
        for n in 0..50 {
            scene.pool(&format!("p{n}"), Slots::Limited(1));
            let limit = format!("l{n}").as_str().try_into().unwrap();
            scene.put(
                0,
                &[db(&n.to_string(), 1).pool(format!("p{n}").as_str().try_into().unwrap()).limit(limit)],
            );
        }
        scene.admit(0, &scene.order(0).serves(["gpu".try_into().unwrap()]));
        let of = |keys: &[TaskKey]| calls(&store, |tx| tx.explain(at(0), keys).map(drop));
        assert_eq!((of(&keys[..1]), of(&keys)), (11, 11), "nine, a begin and a commit");
    }
}

/// Four obstacles stand before a task at once. Each is reported, and disappears when it is over, whatever the
/// others do.
#[test]
fn all_that_stands_before_a_task_is_explained_at_once() {
    on_every_store(|scene| {
        let (api, tenant): (LimitKey, LimitKey) = ("api".try_into().unwrap(), "t".try_into().unwrap());
        let rate = Rate::new(6, secs(60)).unwrap();
        scene.pool("db", Slots::Limited(1));
        let limits = [LimitSpec::of(api.clone()).rate(rate), LimitSpec::new(tenant.clone(), 1).unwrap()];
        let queue = [Subject::Queue(QueueName::default_queue())];
        let of = |name: &str| db(name, 1).limit(api.clone()).limit(tenant.clone());
        scene.store.write(|tx| tx.define(limits.clone(), IfExists::Leave)).unwrap();
        scene.put(0, &[of("runs"), of("waits").priority(-1), of("later").not_before(at(7))]);
        let runs = scene.admit(0, &scene.order(9)).granted.remove(0);
        scene.store.write(|tx| tx.pause(&queue)).unwrap();

        let explain = |now: i64, name: &str| {
            scene.store.read(|tx| tx.explain(at(now), &[key(name)])).unwrap().remove(0)
        };
        let names = |why: &Explanation| why.reasons().map(Reason::name).collect::<Vec<_>>();
        let all = ["paused", "pool_full", "limit_reached", "rate_spent"];
        let why = explain(1, "waits");
        assert_eq!((names(&why), why.changes_at()), (all.to_vec(), Some(at(10))));
        assert_eq!(
            why.to_string(),
            "queue default: paused; also pool db: 0 open of 1, needs 1; also limit t: 1 of 1; also limit api: \
             6 starts in 60 s used up, the next at 1970-01-01 00:00:10 UTC"
        );
        let later = explain(1, "later");
        assert_eq!((names(&later), later.changes_at()), (all.to_vec(), Some(at(7))));
        assert!(
            later.to_string().starts_with("not before 1970-01-01 00:00:07 UTC; also queue default: paused")
        );

        scene.store.write(|tx| tx.resume(&queue)).unwrap();
        assert_eq!(names(&explain(1, "waits")), all[1..]);
        scene.succeed(2, &runs);
        assert_eq!(names(&explain(2, "waits")), all[3..]);
        assert_eq!(explain(10, "waits"), Explanation::Fits);
    });
}

impl Scene<'_> {
    fn positions(&self, tasks: &[&str], most: u64) -> Vec<Position> {
        let keys: Vec<TaskKey> = tasks.iter().map(|task| key(task)).collect();
        self.store.read(|tx| tx.positions(&keys, most)).unwrap()
    }
}

/// Everything that a preview might have changed.
fn seen(scene: &Scene<'_>) -> String {
    let names = ["ready", "due", "gpu", "later"].map(key);
    let read = scene.store.read(|tx| {
        let told = tx.queues()?;
        Ok(format!("{:?} {told:?} {:?} {:?}", tx.tasks(&names)?, tx.all_pools()?, tx.all_limits()?))
    });
    read.unwrap()
}

#[test]
fn a_preview_admits_what_is_due_and_changes_nothing() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(2));
        let gpu = |name: &str| db(name, 1).queue("gpu".try_into().unwrap());
        scene.put(
            0,
            &[
                db("ready", 1),
                db("due", 1).not_before(at(5)).priority(1).limit("k".try_into().unwrap()),
                gpu("gpu").not_before(at(5)).priority(2),
                db("later", 1).not_before(at(9)),
            ],
        );
        let before = seen(scene);
        let order = scene.order(9).serves([QueueName::default_queue()]);
        let preview = |now, order: &AdmitRequest| scene.store.read(|tx| tx.preview(at(now), order)).unwrap();
        assert_eq!((names(&preview(4, &order).granted), preview(4, &order).promoted), (vec!["ready"], 0));
        let due = preview(5, &order);
        assert_eq!((names(&due.granted), due.promoted, due.next_due), (vec!["due", "ready"], 2, Some(at(9))));
        assert_eq!(
            due.granted,
            scene
                .store
                .read(|tx| {
                    let found = tx.tasks(&["due", "ready"].map(key))?;
                    Ok(found.into_iter().flatten().collect::<Vec<_>>())
                })
                .unwrap(),
            "as they are, without leases"
        );
        // From all queues, nothing is admitted, and all of it is reported.
        let told = preview(9, &scene.order(0));
        assert_eq!((told.granted.len(), told.refused_by_reason()), (0, [("budget_spent", 4)].into()));
        assert_eq!(seen(scene), before);

        // A name that was used counts as a new one.
        let order = scene.order(1);
        assert_eq!(names(&scene.admit(9, &order).granted), ["gpu"]);
        assert_eq!(names(&preview(9, &order).granted), ["due"]);
    });
}

/// In a transaction that writes, a preview sees what the transaction did.
#[test]
fn a_preview_sees_what_its_transaction_enqueued() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(9));
        let order = scene.order(9);
        let tasks = [db("a", 1), db("b", 1).not_before(at(5))];
        let mut later = None;
        let admission = scene.store.write(|tx| {
            tx.enqueue(at(0), &tasks)?;
            let preview = tx.preview(at(5), &order)?;
            assert_eq!(names(&preview.granted), ["a", "b"]);
            let admission = tx.admit(at(5), &order)?;
            later = Some(tx.preview(at(6), &order)?);
            Ok(admission)
        });
        assert_eq!(names(&admission.unwrap().granted), ["a", "b"]);
        assert!(later.unwrap().granted.is_empty());
    });
}

#[test]
fn a_bad_request_is_refused_as_by_a_tick() {
    on_every_store(|scene| {
        let none = scene.order(1).serves([]);
        let window = scene.order(1).serves([QueueName::default_queue()]);
        let window = window.policy(Policy::AirflowWindow(AirflowWindow::new(16)));
        for (order, expected) in [(none, Invalid::NoQueues), (window, Invalid::WindowWith { what: "queues" })]
        {
            let refused = scene.store.read(|tx| tx.preview(at(0), &order)).unwrap_err();
            assert!(matches!(&refused, Error::Invalid(invalid) if *invalid == expected), "{refused:?}");
        }
    });
}

#[test]
fn positions_count_the_tasks_of_a_pool_in_all_queues() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(1));
        scene.pool("web", Slots::Limited(1));
        let web = |name: &str| db(name, 1).pool("web".try_into().unwrap());
        scene.put(0, &[db("leased", 1).priority(99)]);
        scene.tick(0, &Policy::Backfill);
        scene.put(
            0,
            &[
                db("a", 1),
                db("big", 7).priority(5),
                db("gpu", 1).priority(3).queue("gpu".try_into().unwrap()),
                db("limited", 1).priority(4).limit("k".try_into().unwrap()),
                db("due", 1).priority(9).not_before(at(5)),
                web("w"),
                web("w first").priority(7),
                db("lost", 1).pool("nowhere".try_into().unwrap()),
            ],
        );
        let all = ["a", "gpu", "limited", "big", "due", "leased", "w", "w first", "lost", "ghost", "a"];
        let ahead = [Before(0), NotReady, NotReady, Before(1), Before(0), Before(0), Unknown];
        let exact = [&[Before(3), Before(2), Before(1)], &ahead[..], &[Before(3)]].concat();
        for most in [3, 4, 100, u64::MAX] {
            assert_eq!(scene.positions(&all, most), exact, "{most}");
        }
        assert_eq!(scene.positions(&all[..4], 1), [MoreThan(1), MoreThan(1), Before(1), Before(0)]);
        assert_eq!(scene.positions(&all[..4], 0), [MoreThan(0), MoreThan(0), MoreThan(0), Before(0)]);
        assert_eq!(scene.positions(&[], 9), []);
        let first = |pool: &str, most| {
            let pool = pool.try_into().unwrap();
            let tasks = scene.store.read(|tx| tx.first_ready(&pool, most)).unwrap();
            tasks.into_iter().map(|task| task.key.task.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(first("db", 3), ["big", "limited", "gpu"]);
        assert_eq!(first("db", u64::MAX), ["big", "limited", "gpu", "a"]);
        assert_eq!(first("web", 1), ["w first"]);
        assert_eq!((first("db", 0), first("unknown", 9)), (vec![], vec![]));
        scene.tick(5, &Policy::Backfill);
        assert_eq!(scene.positions(&["due", "a"], 9), [Before(0), Before(4)], "it is ready now");
    });
}

#[test]
fn positions_are_written_as_json() {
    let positions = [Before(3), MoreThan(100), NotReady, Unknown];
    let json = serde_json::to_string(&positions).unwrap();
    assert_eq!(json, r#"[{"before":3},{"more_than":100},"not_ready","unknown"]"#);
    assert_eq!(serde_json::from_str::<Vec<Position>>(&json).unwrap(), positions);
}

/// However many tasks, lanes and pools there are.
#[test]
fn looking_ahead_takes_few_calls() {
    for store in stores() {
        let scene = Scene { store: &*store, ticks: 0.into() };
        let mut keys: Vec<TaskKey> = Vec::new();
        for (tasks, overdue) in [(3, false), (120, false), (120, true)] {
            let name = |n| format!("{tasks} {overdue} {n}");
            let new = (0..tasks).map(|n| {
                let pool = format!("p{} {overdue}", n % 40);
                scene.pool(&pool, Slots::Limited(500));
                let task = db(&name(n), 1 + n % 3).pool(pool.as_str().try_into().unwrap());
                let task = task.limit(format!("l{n} {overdue}").as_str().try_into().unwrap());
                if overdue { task.not_before(at(5)) } else { task }
            });
            scene.put(0, &new.collect::<Vec<_>>());
            keys.extend((0..tasks).map(|n| key(&name(n))));
            let positions = calls(&store, |tx| tx.positions(&keys, 100).map(drop));
            assert_eq!(positions, 5, "three, a begin and a commit");
            let pool = format!("p0 {overdue}").as_str().try_into().unwrap();
            let first = calls(&store, |tx| tx.first_ready(&pool, 100).map(drop));
            assert_eq!(first, if overdue { 3 } else { 5 }, "what is overdue is not ready");
            let order = scene.order(1_000);
            let preview = calls(&store, |tx| tx.preview(at(9), &order).map(drop));
            assert_eq!(preview, if overdue { 8 } else { 5 }, "{tasks} tasks");
        }
    }
}
