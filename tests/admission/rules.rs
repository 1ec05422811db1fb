//! Definitions, families, rates and pauses, as a host meets them.

use std::sync::Arc;
use std::time::Duration;

use stationmaster::admission::limits::{LimitSpec, Rate};
use stationmaster::admission::{
    AirflowWindow, Defined, Definition, Drain, IfExists, Policy, Reason, Subject, Undefined,
};
use stationmaster::error::{Error, Invalid};
use stationmaster::id::LimitKey;
use stationmaster::ops::Finish;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::service::{Admitter, Service};
use stationmaster::store::MemoryStore;
use stationmaster::{NewTask, TaskRecord};

use crate::{Scene, at, db, names, on_every_store, secs};

fn limit(name: &str) -> LimitKey {
    LimitKey::new(name).unwrap()
}

fn of(name: &str, tenant: &str) -> NewTask {
    db(name, 1).limit(limit(tenant))
}

fn family(prefix: &str, max: u32) -> LimitSpec {
    LimitSpec::new(limit(prefix), max).unwrap().family()
}

impl Scene<'_> {
    fn define<D: Into<Definition>>(&self, what: impl IntoIterator<Item = D>, how: IfExists) -> Vec<Defined> {
        let definitions: Vec<Definition> = what.into_iter().map(Into::into).collect();
        self.store.write(|tx| tx.define(definitions.clone(), how)).unwrap()
    }

    fn drain(&self, subject: &Subject) -> Drain {
        self.store.read(|tx| tx.drain(std::slice::from_ref(subject))).unwrap()[0]
    }

    /// Ticks without a bound and returns the names of what was granted, in order.
    fn admits(&self, now: i64) -> Vec<TaskRecord> {
        self.tick(now, &Policy::Backfill).granted
    }
}

#[test]
fn a_definition_tells_what_became_of_it() {
    use Defined::{Changed, Created, Left, Same};
    on_every_store(|scene| {
        let pool = |slots| PoolSpec::new("db", Slots::Limited(slots)).unwrap();
        assert_eq!(scene.define([pool(4).described("x")], IfExists::Leave), [Created]);
        assert_eq!(scene.define([pool(4).described("x")], IfExists::Replace), [Same]);
        assert_eq!(scene.define([pool(9)], IfExists::Leave), [Left]);
        assert_eq!(scene.record("db").spec, pool(4).described("x"));
        // The second finds what the first did.
        assert_eq!(scene.define([pool(5), pool(5), pool(6)], IfExists::Change), [Changed, Same, Changed]);
        assert_eq!(scene.record("db").spec, pool(6).described("x"));
        assert_eq!(scene.define([pool(6)], IfExists::Replace), [Changed]);
        assert_eq!(scene.record("db").spec, pool(6));

        let mixed: [Definition; 3] =
            [family("t/", 2).into(), pool(6).into(), LimitSpec::of(limit("t/x")).into()];
        assert_eq!(scene.define(mixed.clone(), IfExists::Leave), [Created, Same, Created]);
        assert_eq!(scene.define(mixed, IfExists::Leave), [Same; 3]);
        let subjects = [
            Subject::Family(limit("t/")),
            Subject::Pool("db".try_into().unwrap()),
            Subject::Key(limit("t/")),
        ];
        let gone = scene.store.write(|tx| tx.undefine(&subjects)).unwrap();
        assert_eq!(gone, [Undefined::Removed, Undefined::Removed, Undefined::NotDefined]);
        assert!(scene.store.read(|tx| tx.families()).unwrap().is_empty());
    });
}

#[test]
fn a_bad_definition_undoes_its_whole_call() {
    on_every_store(|scene| {
        let good = LimitSpec::new(limit("k"), 1).unwrap();
        let mut huge = good.clone();
        huge.max = Some(u32::MAX);
        let refused = |definitions: Vec<LimitSpec>| {
            let refused = scene.store.write(|tx| tx.define(&definitions, IfExists::Replace)).unwrap_err();
            let Error::Invalid(invalid) = refused else { panic!("{refused}") };
            assert!(scene.store.read(|tx| tx.all_limits()).unwrap().is_empty());
            invalid
        };
        assert!(matches!(refused(vec![good.clone(), huge]), Invalid::TooLarge { .. }));
        assert!(matches!(refused(vec![good.clone(), family("t/", 0)]), Invalid::Zero { .. }));
        let many = (0..1_001).map(|n| family(&format!("{n}/"), 1));
        let many = std::iter::once(good).chain(many).collect();
        assert_eq!(refused(many), Invalid::TooMany { what: "families", count: 1_001, cap: 1_000 });
    });
}

#[test]
fn a_family_limits_each_of_its_keys_apart_and_leaves_nothing_behind() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Unlimited);
        scene.define(
            [family("t/", 1), LimitSpec::new(limit("t/b"), 2).unwrap(), LimitSpec::of(limit("t/c"))],
            IfExists::Leave,
        );
        let tasks: Vec<NewTask> = ["a", "b", "c", "d"]
            .iter()
            .flat_map(|key| (1..=3).map(move |n| of(&format!("{key}{n}"), &format!("t/{key}"))))
            .collect();
        scene.put(0, &tasks);
        let granted = scene.admits(1);
        assert_eq!(names(&granted), ["a1", "b1", "b2", "c1", "c2", "c3", "d1"]);
        assert_eq!(scene.why("a2"), "limit t/a: 1 of 1");
        let limits = scene.store.read(|tx| tx.limits(&["t/a", "t/c", "t/"].map(limit))).unwrap();
        let max: Vec<_> = limits.iter().flatten().map(|limit| (limit.max, limit.is_defined)).collect();
        assert_eq!(max, [(Some(1), false), (None, true)]);
        // A family that is changed holds at once, and one that is removed limits nothing.
        scene.define([family("t/", 2)], IfExists::Change);
        assert_eq!(names(&scene.admits(2)), ["a2", "d2"]);
        scene.store.write(|tx| tx.undefine(&[Subject::Family(limit("t/"))])).unwrap();
        let rest = scene.admits(3);
        assert_eq!(names(&rest), ["a3", "d3"]);
        for task in ["a1", "a2", "a3"] {
            scene.start(4, &[scene.task(task)]);
            scene.succeed(5, &scene.task(task));
        }
        assert_eq!(scene.store.read(|tx| tx.limits(&[limit("t/a")])).unwrap(), [None], "the last has gone");
    });
}

#[test]
fn a_pause_stops_what_is_admitted_and_not_what_runs() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(9));
        let gpu = |name: &str| of(name, "t/a").queue("gpu".try_into().unwrap());
        let subjects = [
            Subject::Queue("gpu".try_into().unwrap()),
            Subject::Pool("db".try_into().unwrap()),
            Subject::Key(limit("t/a")),
            Subject::Family(limit("t/")),
        ];
        for (n, subject) in (0..).zip(&subjects) {
            let now = n * 10;
            scene.put(now, &["runs", "senses", "waits"].map(|name| gpu(&format!("{name}{n}"))));
            let granted = scene.admit(now, &scene.order(2)).granted;
            scene.start(now, &granted);
            assert_eq!(scene.drain(subject), Drain::Open);
            assert_eq!(
                scene.store.write(|tx| tx.pause(&[subject.clone(), subject.clone()])).unwrap(),
                [true, false]
            );
            // A program that starts and defines what it needs resumes nothing.
            scene.define([PoolSpec::new("db", Slots::Limited(9)).unwrap()], IfExists::Replace);

            let tick = scene.tick(now + 1, &Policy::Reserve { after: Duration::ZERO });
            assert_eq!(names(&tick.granted), [""; 0]);
            assert_eq!(tick.refusals[0].reason, Reason::Paused { subject: subject.clone() });
            assert_eq!(scene.why(&format!("waits{n}")), format!("{subject}: paused"));
            assert_eq!(scene.drain(subject), Drain::Draining { leases: 2 });
            scene.succeed(now + 2, &granted[0]);
            assert_eq!(scene.drain(subject), Drain::Draining { leases: 1 });
            scene.succeed(now + 2, &granted[1]);
            assert_eq!(scene.drain(subject), Drain::Drained);
            assert_eq!(scene.store.read(|tx| tx.paused()).unwrap(), std::slice::from_ref(subject));

            assert_eq!(scene.store.write(|tx| tx.resume(std::slice::from_ref(subject))).unwrap(), [true]);
            let granted = scene.admits(now + 3);
            assert_eq!(names(&granted), [format!("waits{n}")]);
            scene.start(now + 4, &granted);
            scene.succeed(now + 4, &granted[0]);
        }
    });
}

#[test]
fn a_task_of_two_paused_subjects_waits_for_both() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(9));
        scene.put(0, &[of("a", "t/a"), of("b", "u")]);
        let [key, prefix] = [Subject::Key(limit("t/a")), Subject::Family(limit("t/"))];
        scene.store.write(|tx| tx.pause(&[prefix.clone(), key.clone()])).unwrap();
        assert_eq!(names(&scene.admits(1)), ["b"], "the other goes on");
        assert_eq!(scene.why("a"), "limit t/a: paused; also limits t/*: paused");
        scene.store.write(|tx| tx.resume(std::slice::from_ref(&key))).unwrap();
        assert_eq!(scene.why("a"), "limits t/*: paused");
        scene.store.write(|tx| tx.resume(std::slice::from_ref(&prefix))).unwrap();
        assert_eq!(names(&scene.admits(2)), ["a"]);
    });
}

#[test]
fn each_start_takes_a_token_and_none_comes_back_but_with_time() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Unlimited);
        let rate = Rate::new(6, secs(60)).unwrap().burst(2).unwrap();
        scene.define([LimitSpec::of(limit("api")).rate(rate)], IfExists::Leave);
        scene.put(0, &["a", "b", "c", "d"].map(|name| of(name, "api")));
        let tick = scene.tick(0, &Policy::Backfill);
        assert_eq!(names(&tick.granted), ["a", "b"]);
        let spent = Reason::RateSpent { limit: limit("api"), rate, next: at(10) };
        assert_eq!((&tick.refusals[0].reason, tick.next_due), (&spent, Some(at(10))));
        assert_eq!(spent.changes_at(), Some(at(10)));
        let token_at =
            || scene.store.read(|tx| tx.limits(&[limit("api")])).unwrap().remove(0).unwrap().token_at;
        assert_eq!(token_at(), Some(at(10)));
        assert_eq!(scene.store.read(|tx| tx.all_limits()).unwrap()[0].token_at, token_at());
        // What is given back has taken its token, and takes another one.
        scene.store.write(|tx| tx.finish(at(1), &[Finish::given_back(tick.granted[0].lease_ref())])).unwrap();
        assert_eq!(names(&scene.admits(9)), [""; 0]);
        assert_eq!(names(&scene.admits(10)), ["a"]);
        assert_eq!(token_at(), Some(at(20)));
        // A clock that steps back makes none.
        for now in [0, 5, 19] {
            let tick = scene.tick(now, &Policy::Backfill);
            assert_eq!((names(&tick.granted).len(), tick.next_due), (0, Some(at(20))), "{now}");
        }
        assert_eq!(names(&scene.admits(1_000)), ["c", "d"], "no more than the burst comes together");
        scene.put(1_000, &["e", "f", "g"].map(|name| of(name, "api")));
        assert_eq!(names(&scene.admits(1_019)), ["e"]);
        // Removing the rate and defining it again keeps what is owed.
        let key = [Subject::Key(limit("api"))];
        scene.store.write(|tx| tx.undefine(&key)).unwrap();
        scene.define([LimitSpec::of(limit("api")).rate(rate)], IfExists::Leave);
        assert_eq!(names(&scene.admits(1_019)), [""; 0]);
        assert_eq!(names(&scene.admits(1_020)), ["f"]);
    });
}

#[test]
fn a_rate_of_a_family_gives_each_key_tokens_of_its_own() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Unlimited);
        let rate = Rate::new(1, secs(10)).unwrap();
        scene.define([LimitSpec::of(limit("t/")).rate(rate).family()], IfExists::Leave);
        scene.put(0, &["a1", "a2", "b1", "b2"].map(|name| of(name, &format!("t/{}", &name[..1]))));
        assert_eq!(names(&scene.admits(0)), ["a1", "b1"]);
        assert_eq!(names(&scene.admits(10)), ["a2", "b2"]);
    });
}

#[test]
fn the_window_leaves_out_what_is_paused_and_refuses_what_it_does_not_know() {
    on_every_store(|scene| {
        scene.pool("db", Slots::Limited(9));
        scene.put(0, &[of("a", "k"), db("b", 1)]);
        let window = Policy::AirflowWindow(AirflowWindow::new(1));
        scene.store.write(|tx| tx.pause(&[Subject::Key(limit("k"))])).unwrap();
        assert_eq!(names(&scene.tick(1, &window).granted), ["b"], "it takes no place of the window");
        let rate = Rate::new(1, secs(1)).unwrap();
        for (spec, what) in [(family("t/", 1), "families"), (LimitSpec::of(limit("k")).rate(rate), "rates")] {
            scene.define([&spec], IfExists::Replace);
            let order = scene.order(9).policy(window.clone());
            let refused = scene.store.write(|tx| tx.admit(at(1), &order)).unwrap_err();
            assert!(
                matches!(refused, Error::Invalid(Invalid::WindowWith { what: is }) if is == what),
                "{refused}"
            );
            scene.store.write(|tx| tx.undefine(&[spec.subject()])).unwrap();
        }
    });
}

/// So a driver ticks when there is a token, although nothing wakes it.
#[test]
fn an_admitter_is_due_when_the_next_token_comes() {
    let store = Arc::new(MemoryStore::new());
    let rate = Rate::new(1, secs(10)).unwrap();
    store.write(|tx| tx.define([LimitSpec::of(limit("api")).rate(rate)], IfExists::Leave)).unwrap();
    let task = |name: &str| NewTask::new(crate::key(name)).limit(limit("api"));
    store.write(|tx| tx.enqueue(at(0), &[task("a"), task("b")])).unwrap();
    let mut admitter = Admitter::new(store, "h".try_into().unwrap());
    let first = admitter.tick(at(0)).unwrap();
    assert_eq!((first.granted.len(), first.next_due), (1, Some(at(10))));
    // Also when it only looks.
    for now in [1, 2] {
        let idle = admitter.tick(at(now)).unwrap();
        assert_eq!((idle.granted.len(), idle.next_due), (0, Some(at(10))));
    }
    assert_eq!(admitter.tick(at(10)).unwrap().granted.len(), 1);
}
