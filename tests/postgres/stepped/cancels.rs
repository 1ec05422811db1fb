//! A cancel beside whatever else one may do with a task: whichever comes first, the task is not tried again.

use stationmaster::ops::{Cancellation, Finish, Finished};
use stationmaster::{LeaseRef, Renewal, TaskState};
use std::time::Duration;

use super::hand::{Hand, Step};
use super::orders::{self, Actor, Steps};
use super::scene::{LEVELS, Scene, Verb, key, later, now, sensor, task};

/// What holders do beside a cancel.
const BESIDE: [Verb; 4] = [Verb::Succeed, Verb::Retry, Verb::GiveBack, Verb::Register];

fn begin_running(scene: &Scene, name: &str) -> LeaseRef {
    let lease = scene.lease(name);
    scene.store.write(|tx| tx.start(now(), &[lease])).unwrap();
    lease
}

/// Returns what becomes of a running task for which this verb and a cancel were committed, in whatever order: what waits
/// when the cancel comes ends at once.
fn after_both(verb: Verb) -> TaskState {
    if verb == Verb::Succeed { TaskState::Success } else { TaskState::Cancelled }
}

/// Each verb and a cancel, in both orders, at each level, with the first committed or rolled back while the second
/// waits for it.
#[test]
fn a_cancel_beside_what_a_holder_does() {
    let scene = Scene::new();
    let name =
        |level: &str, verb: Verb, first: bool, commits: bool| format!("{level} {verb:?} {first} {commits}");
    let mut cases = Vec::new();
    for level in LEVELS {
        for verb in BESIDE {
            for first in [true, false] {
                cases.extend([true, false].map(|commits| (level, verb, first, commits)));
            }
        }
    }
    let names: Vec<String> =
        cases.iter().map(|(level, verb, first, commits)| name(level, *verb, *first, *commits)).collect();
    scene.admitted(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for ((level, verb, cancel_is_first, commits), of) in cases.into_iter().zip(names) {
        let lease = begin_running(&scene, &of);
        let [first, second] = if cancel_is_first { [Verb::AskToStop, verb] } else { [verb, Verb::AskToStop] };
        let one = Hand::begin(&scene.scratch.0, level);
        let two = Hand::begin(&scene.scratch.0, level);
        two.sql("SELECT 1").done();
        let (mine, theirs) = (of.clone(), of.clone());
        one.call(move |tx| first.call(tx, &mine, Some(lease))).done();
        two.call(move |tx| second.call(tx, &theirs, Some(lease))).waits();
        if commits {
            one.commit();
        } else {
            one.rollback();
        }
        let state = || scene.task(&of).state;
        match two.rest() {
            Step::Done(Ok(_)) => {
                two.commit();
                match (commits, cancel_is_first) {
                    (true, _) => assert_eq!(state(), after_both(verb), "{of}"),
                    (false, true) => {
                        assert!(![TaskState::Cancelled, TaskState::Running].contains(&state()), "{of}")
                    }
                    (false, false) => {
                        let lease = scene.task(&of).lease.expect("its holder is asked");
                        assert_eq!(lease.cancel_at, Some(later(30)), "{of}");
                    }
                }
            }
            Step::Done(Err(error)) => {
                assert!(commits && level != "READ COMMITTED", "{of}: {error}");
                assert!(error.starts_with("Conflict"), "{of}: {error}");
                two.rollback();
            }
            Step::Waits(_) => unreachable!(),
        }
        scene.audit();
    }
}

/// What runs in all orders beside a cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Fail,
    Reap,
    Register,
    Cancel,
}

impl Beside {
    /// Begins, looks, and does it. The commit is the fourth step.
    fn steps(self, level: &str, name: &str, lease: LeaseRef) -> Steps {
        let (begin, look, name) =
            (format!("BEGIN ISOLATION LEVEL {level}"), name.to_owned(), name.to_owned());
        let does = move |hand: &Hand| {
            let name = name.clone();
            hand.call(move |tx| match self {
                Self::Fail => Verb::Retry.call(tx, &name, Some(lease)),
                Self::Reap => tx.reap(later(3_600), 10).map(|reaped| reaped.len().to_string()),
                Self::Register => Verb::Register.call(tx, &name, Some(lease)),
                Self::Cancel => Verb::AskToStop.call(tx, &name, None),
            })
        };
        vec![
            Box::new(move |hand| hand.sql(&begin)),
            Box::new(move |hand| {
                let look = key(&look);
                hand.call(move |tx| tx.tasks(&[look]).map(|tasks| tasks.len().to_string()))
            }),
            Box::new(does),
        ]
    }
}

/// A cancel and each of these in all 70 orders of two times four steps. When both took effect the task is cancelled, or
/// becomes so at its deadline.
#[test]
fn all_orders_of_a_cancel_and_another() {
    use Beside::{Cancel, Fail, Reap, Register};
    let scene = Scene::new();
    let (one, two) = (Hand::new(&scene.scratch.0), Hand::new(&scene.scratch.0));
    let (mut waited, mut ended) = (0, 0);
    for level in LEVELS {
        for other in [Fail, Reap, Register, Cancel] {
            // Upkeep runs at READ COMMITTED alone.
            if level != "READ COMMITTED" && other == Reap {
                continue;
            }
            let every = if level == "READ COMMITTED" { 1 } else { 5 };
            for (nth, order) in orders::all(4, 4).iter().enumerate().step_by(every) {
                let name = format!("{level} {other:?} {nth}");
                scene.admitted(&[&name]);
                let lease = begin_running(&scene, &name);
                let mut a = Actor::new(&one, Cancel.steps(level, &name, lease));
                let mut b = Actor::new(&two, other.steps(level, &name, lease));
                orders::run(order, &mut a, &mut b);
                let of = format!("{name}: {:?} {:?}", a.said, b.said);
                assert!(a.has_committed || b.has_committed, "{of}");
                waited += usize::from(a.has_waited) + usize::from(b.has_waited);
                if a.has_committed {
                    scene.store.write(|tx| tx.reap(later(30), 10)).unwrap();
                    assert_eq!(scene.task(&name).state, TaskState::Cancelled, "{of}");
                    ended += 1;
                } else {
                    assert_ne!(level, "READ COMMITTED", "{of}");
                }
                scene.store.write(|tx| Verb::CancelReady.call(tx, &name, None)).unwrap();
            }
            scene.audit();
        }
    }
    assert!(waited > 100 && ended > 250, "{waited} {ended}");
}

/// A tick passes over a ready task that is being cancelled, and never grants it once it was.
#[test]
fn a_tick_beside_an_open_cancel() {
    for level in LEVELS {
        for commits in [true, false] {
            let scene = Scene::new();
            scene.prepare(&[(Verb::CancelReady, "t".into())]);
            let host = Hand::begin(&scene.scratch.0, level);
            host.call(|tx| Verb::AskToStop.call(tx, "t", None)).done();
            assert_eq!(scene.tick(10).len(), 0, "{level}: passed over");
            if commits {
                host.commit();
                assert_eq!(scene.tick(10).len(), 0, "{level}: it has ended");
                assert_eq!(scene.task("t").state, TaskState::Cancelled);
            } else {
                host.rollback();
                assert_eq!(scene.tick(10).len(), 1, "{level}: no one cancelled it");
            }
            scene.audit();
        }
    }
}

/// A cancel that looked before the task was granted finds a lease, and asks.
#[test]
fn a_cancel_of_what_was_granted_meanwhile() {
    let scene = Scene::new();
    scene.prepare(&[(Verb::CancelReady, "t".into())]);
    let other = Hand::begin(&scene.scratch.0, "READ COMMITTED");
    // Holds the row, so that the cancel has read the task as ready when it waits.
    other.sql(&scene.sql("SELECT FROM sm.ready FOR UPDATE", &[])).done();
    let host = Hand::begin(&scene.scratch.0, "READ COMMITTED");
    host.call(|tx| Verb::AskToStop.call(tx, "t", None)).waits();
    // As a grant that was committed while the cancel waited.
    let lease =
        "INSERT INTO sm.lease (no, epoch, lane, slots, expires_at, queued_at, attempt, ready_at, holder)
        SELECT no, 1, lane, 1, 2000000000, 1000000000, 1, ready_at, 'h' FROM sm.ready";
    other.sql(&scene.sql(lease, &[])).done();
    other.sql(&scene.sql("DELETE FROM sm.ready", &[])).done();
    other.commit();
    let Step::Done(done) = host.rest() else { unreachable!() };
    let asked = format!("{:?}", [Cancellation::AskedUntil(later(30))]);
    assert_eq!(done.unwrap(), asked);
    host.commit();
    let task = scene.task("t");
    assert_eq!((task.state, task.lease.unwrap().cancel_at), (TaskState::Queued, Some(later(30))));
}

/// Renewals neither wait for an open cancel nor are they waited for, whichever table their rows are in.
#[test]
fn renewals_and_an_open_cancel_do_not_wait_for_each_other() {
    for level in LEVELS {
        let scene = Scene::new();
        let lease = scene.admitted(&["t"])[0];
        let renew = || scene.store.write(|tx| tx.renew(now(), Duration::from_secs(90), &[lease])).unwrap()[0];
        assert_eq!(renew(), Renewal::Renewed);
        let host = Hand::begin(&scene.scratch.0, level);
        host.call(|tx| Verb::AskToStop.call(tx, "t", None)).done();
        assert_eq!(renew(), Renewal::Busy, "{level}: it is held, and not lost");
        assert_eq!(scene.store.write(|tx| tx.reap(later(3_600), 9)).unwrap(), [], "{level}");
        host.commit();
        assert_eq!(renew(), Renewal::Cancelled(later(30)), "{level}");
        assert_eq!(scene.store.read(|tx| tx.next_expiry()).unwrap(), Some(later(30)));
        assert_eq!(scene.store.write(|tx| tx.reap(later(29), 9)).unwrap(), [], "{level}");
        let reaped = scene.store.write(|tx| tx.reap(later(30), 9)).unwrap();
        assert_eq!(reaped[0].became, Finished::Ended(TaskState::Cancelled), "{level}");
        scene.audit();
    }
}

/// A change leaves a task waiting at another place. A cancel by SQL that waited for it finds it there.
#[test]
fn a_cancel_by_sql_finds_what_was_changed_meanwhile() {
    let scene = Scene::new();
    scene.store.write(|tx| tx.enqueue(now(), &[task("t")])).unwrap();
    let (one, two) = (Hand::begin(&scene.scratch.0, LEVELS[0]), Hand::begin(&scene.scratch.0, LEVELS[0]));
    one.call(|tx| tx.change(now(), &[key("t")], |task| task.priority += 1).map(|done| format!("{done:?}")))
        .done();
    let (schema, id) = (scene.scratch.0.to_string(), scene.task("t").id.0);
    two.sql(&format!("SELECT \"{schema}\".cancel(1, {id}, 'cancelled', 'by SQL')")).waits();
    one.commit();
    assert!(matches!(two.rest(), Step::Done(Ok(_))));
    two.commit();
    assert_eq!(scene.task("t").state, TaskState::Cancelled);
    scene.audit();
}

/// Of two cancels one waits for the other, and the sooner deadline counts.
#[test]
fn two_cancels() {
    for level in LEVELS {
        let scene = Scene::new();
        let lease = scene.admitted(&["t"])[0];
        let (one, two) = (Hand::begin(&scene.scratch.0, level), Hand::begin(&scene.scratch.0, level));
        two.sql("SELECT 1").done();
        one.call(|tx| Verb::AskToStop.call(tx, "t", None)).done();
        let sooner = |seconds| Duration::from_secs(seconds);
        two.call(move |tx| {
            tx.cancel(now(), sooner(10), &[key("t")], "sooner").map(|done| format!("{done:?}"))
        })
        .waits();
        one.commit();
        match two.rest() {
            Step::Done(Ok(_)) => two.commit(),
            Step::Done(Err(error)) => {
                assert!(level != "READ COMMITTED" && error.starts_with("Conflict"), "{level}: {error}");
                two.rollback();
                scene.store.write(|tx| tx.cancel(now(), sooner(10), &[key("t")], "sooner")).unwrap();
            }
            Step::Waits(_) => unreachable!(),
        }
        let task = scene.task("t");
        assert_eq!(
            (task.lease.unwrap().cancel_at, task.message.as_deref()),
            (Some(later(10)), Some("sooner"))
        );
        let registered = scene.store.write(|tx| {
            tx.start(now(), &[lease])?;
            tx.register(now(), &[sensor(lease)])
        });
        assert!(!registered.unwrap()[0].is_waiting());
        let ended = scene.store.write(|tx| tx.finish(now(), &[Finish::given_back(lease)])).unwrap();
        assert_eq!(ended, [Finished::Stale], "{level}: the registration ended it");
        scene.audit();
    }
}
