//! Changing, deleting and holding beside whatever else takes a task from where it waits, at each level of a host.

use std::time::Duration;

use stationmaster::ops::Changed;
use stationmaster::store::Tx;
use stationmaster::task::TaskQuery;
use stationmaster::{Result, TaskState};

use super::hand::{Hand, Step};
use super::scene::{LEVELS, Scene, key, later, now, task};

/// What the host calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Change,
    Delete,
    Hold,
}

/// What takes the task from where it waits, or puts it elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Grant,
    Cancel,
    Later,
    Lane,
    Delete,
}

impl Call {
    fn call(self, tx: &mut Tx<'_>, name: &str) -> Result<String> {
        match self {
            Self::Change => {
                tx.change(now(), &[key(name)], |task| task.priority = 7).map(|done| format!("{:?}", done[0]))
            }
            Self::Delete => tx.delete(&[key(name)]).map(|done| format!("{:?}", done[0])),
            Self::Hold => {
                let held = tx.hold_tasks(&TaskQuery::waiting().queue(name.try_into()?))?;
                Ok(format!("{:?}", held.tasks.iter().map(|task| task.due).collect::<Vec<_>>()))
            }
        }
    }

    /// Returns what it says if it sees what was done beside it.
    fn after(self, beside: Option<Beside>) -> String {
        let due = (beside == Some(Beside::Later)).then(|| later(60));
        match (self, beside) {
            (Self::Hold, None | Some(Beside::Later | Beside::Lane)) => format!("{:?}", [due]),
            (Self::Hold, _) => "[]".into(),
            (_, Some(Beside::Grant)) => format!("{:?}", Changed::NotWaiting(TaskState::Queued)),
            (Self::Change, Some(Beside::Cancel)) => {
                format!("{:?}", Changed::NotWaiting(TaskState::Cancelled))
            }
            (_, Some(Beside::Delete)) => format!("{:?}", Changed::Unknown),
            _ => format!("{:?}", Changed::Done),
        }
    }
}

impl Beside {
    fn call(self, tx: &mut Tx<'_>, name: &str) -> Result<String> {
        let keys = [key(name)];
        match self {
            Self::Grant => unreachable!("a tick is not a host's"),
            Self::Cancel => tx.cancel(now(), Duration::ZERO, &keys, "m").map(drop)?,
            Self::Later => tx.change(now(), &keys, |task| task.not_before = Some(later(60))).map(drop)?,
            Self::Lane => tx.change(now(), &keys, |task| task.pool_slots = 2).map(drop)?,
            Self::Delete => tx.delete(&keys).map(drop)?,
        }
        Ok(String::new())
    }
}

/// Enqueues the task of a case, which has a queue of its own.
fn enqueue(scene: &Scene, name: &str) {
    let new = [task(name).queue(name.try_into().unwrap())];
    scene.store.write(|tx| tx.enqueue(now(), &new)).unwrap();
}

/// Ends a case: checks what the call said, that all counters are right, and takes the task away.
fn settle(scene: &Scene, two: Hand, said: Step, call: Call, seen: Option<Beside>, level: &str, of: &str) {
    match said {
        Step::Done(Ok(said)) => {
            assert!(seen.is_none() || level == LEVELS[0], "{of}: decided on what it saw before: {said}");
            assert_eq!(said, call.after(seen), "{of}");
            two.commit();
            if call == Call::Change && said == format!("{:?}", Changed::Done) {
                assert_eq!(scene.task(of).priority, 7, "{of}");
            }
        }
        Step::Done(Err(error)) => {
            assert!(seen.is_some() && level != LEVELS[0], "{of}: {error}");
            assert!(error.starts_with("Conflict"), "{of}: {error}");
            two.rollback();
        }
        Step::Waits(_) => panic!("{of} waits"),
    }
    scene.audit();
    scene.store.write(|tx| tx.cancel(now(), Duration::ZERO, &[key(of)], "over")).unwrap();
}

const CALLS: [Call; 3] = [Call::Change, Call::Delete, Call::Hold];

/// Something else was committed after the transaction began to read, and before its call.
#[test]
fn a_call_does_not_decide_on_what_was_there_before() {
    let scene = Scene::new();
    let mut number = 0;
    for level in LEVELS {
        for call in CALLS {
            for beside in [Beside::Grant, Beside::Cancel, Beside::Later, Beside::Lane, Beside::Delete] {
                number += 1;
                let name = format!("b{number}");
                enqueue(&scene, &name);
                let two = Hand::begin(&scene.scratch.0, level);
                two.sql("SELECT 1").done();
                match beside {
                    Beside::Grant => assert_eq!(scene.granted(now(), 9), [name.as_str()]),
                    _ => drop(scene.store.write(|tx| beside.call(tx, &name)).unwrap()),
                }
                let mine = name.clone();
                let said = two.call(move |tx| call.call(tx, &mine));
                settle(&scene, two, said, call, Some(beside), level, &name);
            }
        }
    }
}

/// Something else is open while the call comes. It waits, and then decides on what became of that.
#[test]
fn a_call_waits_for_who_holds_the_task() {
    let scene = Scene::new();
    let mut number = 0;
    for level in LEVELS {
        for call in CALLS {
            for beside in [Beside::Cancel, Beside::Later, Beside::Lane, Beside::Delete] {
                for commits in [true, false] {
                    number += 1;
                    let name = format!("w{number}");
                    enqueue(&scene, &name);
                    let one = Hand::begin(&scene.scratch.0, level);
                    let two = Hand::begin(&scene.scratch.0, level);
                    two.sql("SELECT 1").done();
                    let (theirs, mine) = (name.clone(), name.clone());
                    one.call(move |tx| beside.call(tx, &theirs)).done();
                    two.call(move |tx| call.call(tx, &mine)).waits();
                    if commits {
                        one.commit();
                    } else {
                        one.rollback();
                    }
                    let said = two.rest();
                    settle(&scene, two, said, call, commits.then_some(beside), level, &name);
                }
            }
        }
    }
}

/// The task waits where it was, until the transaction that holds it ends.
#[test]
fn what_is_held_stays() {
    for level in LEVELS {
        let scene = Scene::new();
        enqueue(&scene, "t");
        let (one, two) = (Hand::begin(&scene.scratch.0, level), Hand::begin(&scene.scratch.0, level));
        one.call(|tx| Call::Hold.call(tx, "t")).done();
        assert_eq!(scene.granted(now(), 9), [] as [&str; 0], "{level}: a tick passes it over");
        two.call(|tx| Call::Delete.call(tx, "t")).waits();
        one.call(|tx| Call::Change.call(tx, "t")).done();
        one.rollback();
        assert_eq!(two.rest().done(), Call::Delete.after(None), "{level}");
        two.commit();
        assert!(scene.store.read(|tx| tx.tasks(&[key("t")])).unwrap()[0].is_none(), "{level}");
        scene.audit();
    }
}
