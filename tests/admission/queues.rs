//! Queues: who may take what, what other queues keep, and what no one serves.

use stationmaster::admission::{AirflowWindow, Policy, Reason};
use stationmaster::error::{Error, Invalid};
use stationmaster::id::QueueName;
use stationmaster::ops::AdmitRequest;
use stationmaster::pool::Slots;
use stationmaster::service::{Admitter, Service};
use stationmaster::store::ReadTx;
use stationmaster::{NewTask, Result, TaskRecord};

use crate::stores::stores;
use crate::{Scene, at, db, key, names, on_every_store, secs};

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

fn of(name: &str, task: NewTask) -> NewTask {
    task.queue(queue(name))
}

impl Scene<'_> {
    /// A request of this holder for all tasks of these queues, under leases of ten seconds.
    fn serving(&self, holder: &str, queues: &[&str]) -> AdmitRequest {
        let mut order = self.order(usize::MAX).serves(queues.iter().map(|name| queue(name)));
        (order.holder, order.lease) = (holder.try_into().unwrap(), secs(10));
        order
    }

    fn read<T>(&self, mut body: impl FnMut(&mut ReadTx<'_>) -> Result<T>) -> T {
        self.store.read(|tx| body(tx)).unwrap()
    }

    fn why_at(&self, now: i64, task: &str) -> String {
        self.read(|tx| tx.explain(at(now), &[key(task)]))[0].to_string()
    }
}

#[test]
fn a_tick_takes_what_it_serves() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(9));
        scene.put(0, &[of("gpu", db("g1", 1)), db("d1", 1), of("gpu", db("g2", 1)), of("cpu", db("c1", 1))]);
        let gpu = scene.admit(0, &scene.serving("a", &["gpu"]));
        assert_eq!(names(&gpu.granted), ["g1", "g2"]);
        assert!(gpu.refusals.is_empty(), "it tells of nothing that it does not serve: {:?}", gpu.refusals);
        assert_eq!(scene.record("db").used, 2);
        let both = scene.admit(0, &scene.serving("b", &["cpu", "default"]));
        assert_eq!(names(&both.granted), ["d1", "c1"]);
        assert_eq!(gpu.granted[0].lane.queue, queue("gpu"));
    });
}

/// Capacity belongs to the pool, whatever queue the task is in that holds it.
#[test]
fn what_other_queues_hold_counts() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(2));
        scene.put(0, &[of("gpu", db("g1", 2)), db("d1", 1)]);
        scene.admit(0, &scene.serving("a", &["gpu"]));
        let full = scene.admit(0, &scene.serving("b", &["default"]));
        assert!(full.granted.is_empty());
        assert_eq!(full.refused_by_reason(), [("pool_full", 1)].into());
    });
}

#[test]
fn a_big_task_of_another_queue_gets_the_next_slots_while_somebody_serves_it() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(4));
        scene.put(0, &[db("run", 1)]);
        let reserve =
            |holder, queues| scene.serving(holder, queues).policy(Policy::Reserve { after: secs(5) });
        let running = scene.admit(0, &reserve("b", &["default"])).granted;
        scene.put(1, &[of("gpu", db("big", 4)), db("small", 1), db("more", 1)]);
        // No holder has announced that it serves gpu.
        let small = scene.admit(7, &reserve("b", &["default"]));
        assert_eq!(names(&small.granted), ["small", "more"]);
        let told = scene.admit(8, &reserve("a", &["gpu"]));
        assert_eq!(told.refused_by_reason(), [("pool_full", 1)].into());
        scene.put(8, &[db("last", 1)]);
        let kept = scene.admit(9, &reserve("b", &["default"]));
        assert_eq!(kept.refused_by_reason(), [("reserved", 1)].into(), "{:?}", kept.granted);
        // It fits, and its own admitter comes later.
        for task in running.iter().chain(&small.granted) {
            scene.succeed(10, task);
        }
        let beside = scene.admit(10, &reserve("b", &["default"]));
        assert!(beside.granted.is_empty());
        let big = scene.task("big").id;
        let kept_for = Reason::Reserved { pool: "db".try_into().unwrap(), open: 4, task: big };
        assert_eq!(beside.refusals[0].reason, kept_for);
        // No holder has announced for two leases that it serves gpu.
        assert_eq!(names(&scene.admit(28, &reserve("b", &["default"])).granted), ["last"]);
    });
}

#[test]
fn beside_the_slots_that_are_kept_smaller_tasks_go_on() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(4));
        let reserve =
            |holder, queues| scene.serving(holder, queues).policy(Policy::Reserve { after: secs(5) });
        scene.admit(0, &reserve("a", &["gpu"]));
        scene.put(0, &[of("gpu", db("g1", 3)), of("gpu", db("g2", 3))]);
        scene.put(1, &[db("two", 2), db("one", 1), db("more", 1)]);
        assert_eq!(names(&scene.admit(4, &reserve("b", &["default"])).granted), ["two", "one", "more"]);
        let again: Vec<_> = ["two", "one", "more"].map(|name| scene.task(name)).into();
        again.iter().for_each(|task| scene.succeed(4, task));
        scene.put(4, &[db("two more", 2), db("and one", 1), db("and more", 1)]);
        let beside = scene.admit(6, &reserve("b", &["default"]));
        assert_eq!(names(&beside.granted), ["and one"], "three of four are kept");
        assert_eq!(beside.refused_by_reason(), [("reserved", 2)].into());
        assert_eq!(names(&scene.admit(6, &reserve("a", &["gpu"])).granted), ["g1"]);
    });
}

#[test]
fn a_queue_that_nobody_serves_is_reported() {
    on_every_store(|scene| {
        scene.put(0, &[of("gpu", NewTask::new(key("g"))), NewTask::new(key("d"))]);
        assert_eq!(
            scene.why_at(0, "g"),
            "it fits: the next tick that serves its queue admits it, unless tasks before it take what is open",
            "nobody has told anything"
        );
        scene.admit(1, &scene.serving("a", &["default", "spare"]));
        assert_eq!(scene.why_at(1, "g"), "queue gpu: no one serves it; tasks that wait in it: 1");
        let queues = scene.read(|tx| tx.queues());
        let seen: Vec<_> = queues
            .iter()
            .map(|queue| (queue.name.as_str(), queue.waiting, queue.leased, queue.served_until))
            .collect();
        let served = Some(at(21));
        assert_eq!(seen, [("default", 0, 1, served), ("gpu", 1, 0, None), ("spare", 0, 0, served)]);
        scene.admit(5, &scene.serving("b", &["gpu", "gpu"]));
        assert_eq!(scene.why_at(24, "g"), "it is queued, so it does not wait for admission");
        scene.put(6, &[of("gpu", NewTask::new(key("g2")))]);
        assert_eq!(
            scene.why_at(24, "g2"),
            "it fits: the next tick that serves its queue admits it, unless tasks before it take what is open"
        );
        assert_eq!(scene.why_at(25, "g2"), "queue gpu: no one serves it; tasks that wait in it: 1");
    });
}

#[test]
fn it_is_announced_once_in_a_lease() {
    on_every_store(|scene| {
        let announced_at = |now| {
            scene.admit(now, &scene.serving("a", &["gpu"]));
            let queues = scene.read(|tx| tx.queues());
            queues[0].served_until.unwrap()
        };
        assert_eq!(announced_at(0), at(20));
        assert_eq!(announced_at(9), at(20));
        assert_eq!(announced_at(10), at(30));
        scene.admit(11, &scene.serving("a", &["cpu"]));
        let names: Vec<_> = scene.read(|tx| tx.queues()).into_iter().map(|queue| queue.name).collect();
        assert_eq!(
            names,
            [queue("cpu"), queue("gpu")],
            "another set is told at once, and the first one counts on"
        );
    });
}

#[test]
fn an_idle_admitter_tells_once_in_a_lease() {
    for store in stores() {
        let admitter = Admitter::new(store.clone(), "a".try_into().unwrap()).serves([queue("gpu")]);
        let mut admitter = admitter.lease(secs(10));
        let told = || store.read(|tx| tx.queues()).unwrap()[0].served_until.unwrap();
        for (now, until) in [(0, 20), (4, 20), (9, 20), (10, 30), (12, 30), (25, 45)] {
            let idle = admitter.tick(at(now)).unwrap();
            assert!(idle.granted.is_empty());
            assert_eq!(told(), at(until), "at {now}");
            assert_eq!(idle.next_due, Some(at(until - 10)), "its driver wakes it to tell again");
        }
        store
            .write(|tx| tx.enqueue(at(26), &[of("gpu", NewTask::new(key("g"))), NewTask::new(key("d"))]))
            .unwrap();
        let granted: Vec<TaskRecord> = admitter.tick(at(26)).unwrap().granted;
        assert_eq!(names(&granted), ["g"]);
        assert!(admitter.tick(at(27)).unwrap().granted.is_empty());
    }
}

#[test]
fn queues_that_cannot_be_served_are_refused() {
    on_every_store(|scene| {
        let refused = |order: &AdmitRequest| match scene.store.write(|tx| tx.admit(at(0), order)) {
            Err(Error::Invalid(invalid)) => invalid,
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(&scene.serving("a", &[])), Invalid::NoQueues);
        let window = Policy::AirflowWindow(AirflowWindow::new(8));
        assert_eq!(
            refused(&scene.serving("a", &["gpu"]).policy(window)),
            Invalid::WindowWith { what: "queues" }
        );
        assert!(scene.read(|tx| tx.queues()).is_empty(), "nothing was told");
    });
}
