//! More lanes than a tick names.

use std::sync::Arc;

use stationmaster::admission::limits::{LimitSpec, Rate};
use stationmaster::admission::{Reason, Subject};
use stationmaster::id::LimitKey;
use stationmaster::service::{Admitter, Service};

use stationmaster::store::MemoryStore;
use stationmaster::testing::core::{marking, naming};

use super::*;

const NAMED: usize = 256;
const LANES: usize = 300;

/// A task with a key of its own.
fn own(n: usize) -> NewTask {
    db(&format!("task-{n:03}"), 1).limit(LimitKey::new(format!("own/{n:03}")).unwrap())
}

/// Another one with the same key.
fn again(n: usize) -> NewTask {
    let mut task = own(n);
    task.key.run = "again".try_into().unwrap();
    task
}

fn own_lanes() -> Vec<NewTask> {
    (0..LANES).map(own).collect()
}

#[test]
fn a_tick_names_the_lanes_that_were_known_first_and_says_that_there_are_more() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(10));
        scene.put(1, &own_lanes());
        let first = scene.tick(1, &Policy::Backfill);
        assert_eq!(names(&first.granted)[9], "task-009");
        assert!(first.more_lanes);
        let keys: Vec<&str> = first.refusals.iter().map(|lane| lane.lane.limits[0].as_str()).collect();
        assert_eq!(keys.len(), NAMED - 10, "of the first lanes ten had their only task admitted");
        assert_eq!(keys.last().map(|key| key.ends_with("255")), Some(true), "{:?}", keys.last());
        assert_eq!(first.refused_by_reason(), [("pool_full", (NAMED - 10) as u64)].into());

        let finish = |task: &TaskRecord| Finish::success(task.lease_ref());
        let ends: Vec<Finish> = first.granted[..2].iter().map(finish).collect();
        scene.store.write(|tx| tx.finish(at(2), &ends)).unwrap();
        let second = scene.tick(3, &Policy::Backfill);
        assert_eq!(names(&second.granted), ["task-010", "task-011"], "slots that return wake who waits");

        scene.pool("db", Slots::Unlimited);
        let third = scene.tick(4, &Policy::Backfill);
        assert_eq!((third.granted.len(), third.refusals.len(), third.more_lanes), (LANES - 12, 0, true));
        assert!(!scene.tick(5, &Policy::Backfill).more_lanes);
    });
}

#[test]
fn every_policy_names_the_same_lanes() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(0));
        scene.put(1, &own_lanes());
        let backfill = scene.tick(1, &Policy::Backfill);
        let reserve = scene.tick(1, &Policy::Reserve { after: secs(600) });
        assert_eq!((backfill.refusals.len(), backfill.more_lanes), (NAMED, true));
        assert_eq!((&backfill.refusals, true), (&reserve.refusals, reserve.more_lanes));
    });
}

/// The first lanes wait for tokens of an hour, and only what comes behind them may start.
#[test]
fn an_admitter_with_many_lanes_looks_and_wakes_with_the_next_token() {
    for store in stores() {
        let rate = Rate::new(1, secs(3_600)).unwrap();
        let rated = LimitSpec::of(LimitKey::new("own/").unwrap()).family().rate(rate);
        store.write(|tx| tx.define([PoolSpec::new("db", Slots::Unlimited)?], IfExists::Replace)).unwrap();
        store.write(|tx| tx.define([rated.clone()], IfExists::Replace)).unwrap();
        let twice: Vec<NewTask> = (0..LANES).map(own).chain((0..LANES).map(again)).collect();
        store.write(|tx| tx.enqueue(at(0), &twice)).unwrap();
        let mut admitter =
            Admitter::new(store.clone(), "holder".try_into().unwrap()).budget(10_000).lease(secs(9_000));
        assert_eq!(admitter.tick(at(0)).unwrap().granted.len(), LANES);
        for second in [1, 2, 3, 4] {
            let idle = admitter.tick(at(second)).unwrap();
            assert_eq!((idle.granted.len(), idle.refusals.len(), idle.more_lanes), (0, NAMED, true));
            assert!(idle.refusals.iter().all(|lane| matches!(lane.reason, Reason::RateSpent { .. })));
            assert_eq!(idle.next_due, Some(at(3_600)));
            assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
        }
        // It begins behind all that sleep, and fits.
        store.write(|tx| tx.enqueue(at(5), &[db("last", 1)])).unwrap();
        assert_eq!(names(&admitter.tick(at(5)).unwrap().granted), ["last"]);
        assert_eq!(admitter.tick(at(3_600)).unwrap().granted.len(), LANES);
        assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    }
}

/// A tick that is undone leaves no mark: neither of a pool, which it had filled, nor of a rate, whose token it had taken.
#[test]
fn what_was_marked_in_vain_does_not_sleep() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Unlimited);
        let rate = Rate::new(1, secs(3_600)).unwrap().burst(2).unwrap();
        let rated = LimitSpec::of(LimitKey::new("rated").unwrap()).rate(rate);
        scene.store.write(|tx| tx.define([rated.clone()], IfExists::Replace)).unwrap();
        let tasks: Vec<NewTask> =
            own_lanes().into_iter().map(|task| task.limit(LimitKey::new("rated").unwrap())).collect();
        scene.put(1, &tasks);
        assert_eq!(scene.admit(1, &scene.order(1)).granted.len(), 1);
        let grants = |slots: Slots| {
            scene.pool("db", slots);
            let undone: stationmaster::Result<()> = scene.store.write(|tx| {
                assert_eq!(tx.admit(at(1), &scene.order(usize::MAX))?.granted.len(), 1);
                Err(stationmaster::Error::abort("undone"))
            });
            assert!(undone.is_err());
            assert_eq!(scene.store.read(|tx| tx.audit()).unwrap(), []);
        };
        grants(Slots::Limited(2));
        grants(Slots::Unlimited);
        assert_eq!(names(&scene.tick(1, &Policy::Backfill).granted), ["task-001"]);
    });
}

/// A tick that may make no more marks ends, and the next one goes on behind what sleeps by then.
#[test]
fn a_tick_that_refuses_very_many_lanes_is_due_again_at_once() {
    let store = MemoryStore::new();
    let family = LimitSpec::new(LimitKey::new("own/").unwrap(), 1).unwrap().family();
    store.write(|tx| tx.define([PoolSpec::new("db", Slots::Unlimited)?], IfExists::Replace)).unwrap();
    store.write(|tx| tx.define([family.clone()], IfExists::Replace)).unwrap();
    let order = |name: &str| {
        let order = AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), 1_000, secs(60));
        marking(naming(order, 5), 50)
    };
    let tick = |second: i64, name: &str| store.write(|tx| tx.admit(at(second), &order(name))).unwrap();
    store.write(|tx| tx.enqueue(at(0), &(0..LANES).map(own).collect::<Vec<_>>())).unwrap();
    assert_eq!(tick(0, "all").granted.len(), LANES);
    store.write(|tx| tx.enqueue(at(1), &(0..LANES).map(again).collect::<Vec<_>>())).unwrap();
    store.write(|tx| tx.enqueue(at(1), &[db("last", 1)])).unwrap();

    let ticks = LANES / 50;
    for n in 0..ticks {
        let cut = tick(2, &format!("cut-{n}"));
        assert_eq!((cut.granted.len(), cut.next_due), (0, Some(at(2))), "{n}");
    }
    let last = tick(3, "last");
    assert_eq!((names(&last.granted), last.next_due), (vec!["last"], None));
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}

/// Who spends a budget before all lanes were read is due at once: a token may come for one of the others.
#[test]
fn a_spent_budget_hides_no_token() {
    let store = MemoryStore::new();
    let rated = LimitSpec::of(LimitKey::new("rated").unwrap()).rate(Rate::new(1, secs(10)).unwrap());
    store.write(|tx| tx.define([PoolSpec::new("db", Slots::Unlimited)?], IfExists::Replace)).unwrap();
    store.write(|tx| tx.define([rated.clone()], IfExists::Replace)).unwrap();
    let waits = |name: &str| db(name, 1).limit(LimitKey::new("rated").unwrap());
    store.write(|tx| tx.enqueue(at(0), &[own(0), waits("takes")])).unwrap();
    let order = |name: &str, budget: usize| {
        naming(AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), budget, secs(60)), 1)
    };
    let tick = |second: i64, name: &str, budget| {
        store.write(|tx| tx.admit(at(second), &order(name, budget))).unwrap()
    };
    assert_eq!(tick(0, "takes", 9).granted.len(), 2);
    store.write(|tx| tx.enqueue(at(1), &[again(0), own(1), waits("token")])).unwrap();
    let spent = tick(1, "spent", 1);
    assert_eq!((names(&spent.granted), spent.next_due), (vec!["task-000"], Some(at(1))));
    assert_eq!(tick(1, "none", 0).next_due, Some(at(10)), "it is to be called when there is a place");
    let rest = tick(1, "rest", 9);
    assert_eq!((names(&rest.granted), rest.next_due), (vec!["task-001"], Some(at(10))));
}

/// What makes a group sleep has another reason when the tick ends. Others in the group still wait for the token.
#[test]
fn a_token_is_reported_although_the_lane_that_was_marked_waits_for_more() {
    let store = MemoryStore::new();
    let (rated, single) = (LimitKey::new("rated").unwrap(), LimitKey::new("single").unwrap());
    let rate = LimitSpec::of(rated.clone()).rate(Rate::new(1, secs(10)).unwrap());
    store.write(|tx| tx.define([PoolSpec::new("db", Slots::Unlimited)?], IfExists::Replace)).unwrap();
    store
        .write(|tx| tx.define([rate.clone(), LimitSpec::new(single.clone(), 1)?], IfExists::Replace))
        .unwrap();
    let task = |name: &str, priority: i32, keys: &[&LimitKey]| {
        keys.iter().fold(db(name, 1).priority(priority), |task, key| task.limit((*key).clone()))
    };
    let tick = |second: i64, name: &str| {
        let order = AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), 9, secs(60));
        let order = naming(order, 1);
        store.write(|tx| tx.admit(at(second), &order)).unwrap()
    };
    let named = db("named", 1).pool("none".try_into().unwrap());
    let waiting = [
        named,
        task("takes", 9, &[&rated]),
        task("both", 5, &[&rated, &single]),
        task("waits", 1, &[&rated]),
    ];
    store.write(|tx| tx.enqueue(at(0), &waiting)).unwrap();
    assert_eq!(names(&tick(0, "first").granted), ["takes"]);
    let other = LimitKey::new("other").unwrap();
    let later = [task("next", 9, &[&rated, &other]), task("fills", 3, &[&single])];
    store.write(|tx| tx.enqueue(at(1), &later)).unwrap();
    let second = tick(10, "second");
    assert_eq!((names(&second.granted), second.next_due), (vec!["next", "fills"], Some(at(20))));
}

/// More marks end at once than a tick removes: it is due again at once. A tick that names queues leaves those of others.
#[test]
fn very_many_tokens_that_come_at_once_wake_lanes_in_several_ticks() {
    // On PostgreSQL nothing sleeps.
    for store in stores().filter(|store| store.info().backend != "postgres") {
        let rate = Rate::new(1, secs(10)).unwrap();
        let rated = LimitSpec::of(LimitKey::new("own/").unwrap()).family().rate(rate);
        store.write(|tx| tx.define([PoolSpec::new("db", Slots::Unlimited)?], IfExists::Replace)).unwrap();
        store.write(|tx| tx.define([rated.clone()], IfExists::Replace)).unwrap();
        let of_queue = |task: NewTask, n: usize| match n % 2 {
            0 => task,
            _ => task.queue("odd".try_into().unwrap()),
        };
        let tasks = (0..LANES).flat_map(|n| [of_queue(own(n), n), of_queue(again(n), n)]);
        let tasks: Vec<NewTask> = tasks.collect();
        store.write(|tx| tx.enqueue(at(0), &tasks)).unwrap();
        let order = |name: &str, marks: usize| {
            let request =
                AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), 1_000, secs(60));
            marking(naming(request, 5), marks)
        };
        let tick = |second: i64, order: &AdmitRequest| store.write(|tx| tx.admit(at(second), order)).unwrap();
        let all = tick(0, &order("all", 1_000));
        assert_eq!((all.granted.len(), all.next_due), (LANES, Some(at(10))));

        let odd = |name: &str| order(name, 50).serves(["odd".try_into().unwrap()]);
        let first = tick(10, &odd("odd-0"));
        assert!(
            (50..60).contains(&first.granted.len()),
            "{}: the five that it names, and 50",
            first.granted.len()
        );
        assert_eq!(first.next_due, Some(at(10)));
        let rest: usize = (1..4).map(|n| tick(10, &odd(&format!("odd-{n}"))).granted.len()).sum();
        assert_eq!(first.granted.len() + rest, LANES / 2);
        assert_eq!(tick(10, &order("even", 1_000)).granted.len(), LANES / 2);
        assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    }
}

/// A store whose ticks make 50 marks at most: a tick that finds more awake than that is due again at once.
struct Marked(Arc<dyn Store>, std::cell::Cell<usize>);

impl Marked {
    /// The memory store and SQLite. PostgreSQL removes all marks.
    fn each(check: impl Fn(Self)) {
        for store in stores().filter(|store| store.info().backend != "postgres") {
            check(Self(store, std::cell::Cell::new(0)));
        }
    }

    fn define(&self, pools: &[PoolSpec], limits: &[LimitSpec]) {
        let write = |tx: &mut stationmaster::store::Tx<'_>| {
            tx.define(pools, IfExists::Replace)?;
            tx.define(limits, IfExists::Replace)
        };
        self.0.write(write).unwrap();
    }

    fn put(&self, tasks: impl Iterator<Item = NewTask>) {
        let tasks: Vec<NewTask> = tasks.collect();
        self.0.write(|tx| tx.enqueue(at(1), &tasks)).unwrap();
    }

    fn tick(&self) -> Admission {
        self.1.set(self.1.get() + 1);
        let request = format!("tick-{}", self.1.get());
        let order =
            AdmitRequest::new("h".try_into().unwrap(), (*request).try_into().unwrap(), 9_999, secs(60));
        let admission = self.0.write(|tx| tx.admit(at(2), &marking(naming(order.clone(), 5), 50))).unwrap();
        assert_eq!(self.0.read(|tx| tx.audit()).unwrap(), []);
        admission
    }

    /// Ticks until all that is refused sleeps.
    fn settle(&self) {
        assert!((0..20).any(|_| self.tick().next_due.is_none()));
    }

    /// The tasks that the next tick grants, of which nothing but what fits is awake.
    fn woken(&self) -> Vec<String> {
        let tick = self.tick();
        assert_eq!(tick.next_due, None, "more is awake than may be");
        names(&tick.granted).into_iter().map(str::to_owned).collect()
    }

    fn pause(&self, subject: Subject) {
        self.0.write(|tx| tx.pause(std::slice::from_ref(&subject))).unwrap();
    }

    fn resume(&self, subject: Subject) {
        self.0.write(|tx| tx.resume(std::slice::from_ref(&subject))).unwrap();
    }
}

fn limit(key: &str, max: u32) -> LimitSpec {
    LimitSpec::new(LimitKey::new(key).unwrap(), max).unwrap()
}

/// A task alone in a pool.
fn in_pool(n: usize) -> NewTask {
    NewTask::new(own(n).key).pool(format!("pool-{n:03}").as_str().try_into().unwrap())
}

#[test]
fn a_definition_wakes_the_lanes_of_its_keys_alone() {
    Marked::each(|store| {
        store.define(&[PoolSpec::new("db", Slots::Unlimited).unwrap()], &[limit("own/", 1).family()]);
        let last = |run: &str| {
            let mut task = db("task-last", 1).limit(LimitKey::new("own/\u{10FFFF}\u{10FFFF}z").unwrap());
            task.key.run = run.try_into().unwrap();
            task
        };
        store.put((0..LANES).map(own).chain([last("first")]));
        assert_eq!(store.tick().granted.len(), LANES + 1);
        store.put((0..LANES).map(again).chain([last("again")]));
        store.settle();

        store.define(
            &[PoolSpec::new("other", Slots::Limited(1)).unwrap()],
            &[limit("other", 1), limit("own/0/", 1).family()],
        );
        store.pause(Subject::Queue("default".try_into().unwrap()));
        store.pause(Subject::Family(LimitKey::new("own/").unwrap()));
        assert_eq!(store.woken(), [""; 0]);
        store.resume(Subject::Queue("default".try_into().unwrap()));
        store.resume(Subject::Family(LimitKey::new("own/").unwrap()));
        assert_eq!(store.woken(), [""; 0]);

        store.define(&[], &[limit("own/107", 2)]);
        assert_eq!(store.woken(), ["task-107"]);
        store.define(&[], &[limit("own/10", 2).family()]);
        let tens = (100..110).filter(|n| *n != 107).map(|n| format!("task-{n}"));
        assert_eq!(store.woken(), tens.collect::<Vec<_>>());
        store.define(&[], &[limit("own/\u{10FFFF}", 2).family()]);
        assert_eq!(store.woken(), ["task-last"]);
        store.0.write(|tx| tx.undefine(&[Subject::Family(LimitKey::new("own/").unwrap())])).unwrap();
        assert_eq!(store.woken().len(), LANES - 10);
    });
}

#[test]
fn the_end_of_a_pause_wakes_what_it_refused_alone() {
    Marked::each(|store| {
        store.define(&[PoolSpec::new("db", Slots::Unlimited).unwrap()], &[]);
        let key = |n: usize| Subject::Key(LimitKey::new(format!("own/{n:03}")).unwrap());
        for n in 0..LANES {
            store.pause(key(n));
        }
        let of_queue = |n: usize| {
            in_pool(n)
                .pool("db".try_into().unwrap())
                .queue(format!("queue-{n:03}").as_str().try_into().unwrap())
        };
        store.put((0..LANES).map(own));
        store.put((LANES..2 * LANES).map(of_queue));
        for n in LANES..2 * LANES {
            store.pause(Subject::Queue(format!("queue-{n:03}").as_str().try_into().unwrap()));
        }
        store.settle();

        store.resume(key(107));
        assert_eq!(store.woken(), ["task-107"]);
        store.resume(Subject::Queue("queue-307".try_into().unwrap()));
        assert_eq!(store.woken(), ["task-307"]);
        store.define(&[PoolSpec::new("db", Slots::Limited(999)).unwrap()], &[limit("own/108", 9)]);
        assert_eq!(store.woken(), [""; 0]);
        assert_eq!(store.0.read(|tx| tx.audit()).unwrap(), []);
    });
}

#[test]
fn a_pool_that_is_defined_or_grows_wakes_what_it_refused_alone() {
    Marked::each(|store| {
        store.put((0..LANES).map(in_pool));
        store.settle();
        let pool = |n: usize, slots| PoolSpec::new(&*format!("pool-{n:03}"), slots).unwrap();
        let none: Vec<PoolSpec> = (100..200).map(|n| pool(n, Slots::Limited(0))).collect();
        store.define(&none, &[]);
        store.settle();

        store.define(&[pool(7, Slots::Limited(1))], &[]);
        assert_eq!(store.woken(), ["task-007"]);
        store.define(&[pool(107, Slots::Limited(1)), pool(108, Slots::Unlimited)], &[]);
        assert_eq!(store.woken(), ["task-107", "task-108"]);
        store.pause(Subject::Pool("pool-109".try_into().unwrap()));
        store.define(&[pool(109, Slots::Limited(1))], &[]);
        assert_eq!(store.woken(), [""; 0]);
        store.resume(Subject::Pool("pool-109".try_into().unwrap()));
        assert_eq!(store.woken(), ["task-109"]);
        store.0.write(|tx| tx.undefine(&[Subject::Pool("pool-110".try_into().unwrap())])).unwrap();
        assert_eq!(store.woken(), [""; 0]);
    });
}
