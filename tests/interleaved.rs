//! What verbs and services do where other transactions write at the same time.
//!
//! The stores here have one writer at a time. A [`FaultStore`] does in between what another transaction would have
//! committed, or says that another one holds a row.
#![cfg(feature = "testing")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stationmaster::canonical::PokeContext;
use stationmaster::error::StoreErrorKind;
use stationmaster::ops::{AdmitRequest, Cleared, Finish, Finished, Mark, Marked, Registered};
use stationmaster::run::{RunRecord, RunStatus};
use stationmaster::sensor::{NewSensor, PokeOutcome, Settings};
use stationmaster::service::{PokeRequest, Poker, Service, Upkeep};
use stationmaster::store::contract::{Move, StoreTx};
use stationmaster::store::{MemoryStore, Tx};
use stationmaster::task::LeaseLoss;
use stationmaster::testing::FaultStore;
use stationmaster::{Error, LeaseRef, NewTask, Renewal, Result, TaskKey, TaskRecord, TaskState, Timestamp};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn key(name: &str) -> TaskKey {
    TaskKey::new("n", "w", "r", name).unwrap()
}

/// A store with tasks of these names whose attempts are recorded, admitted at 0 for 30 s, and their leases.
fn admitted(names: &[&str]) -> (Arc<FaultStore>, Vec<LeaseRef>) {
    let store = Arc::new(FaultStore::new(Arc::new(MemoryStore::new())));
    let new = |name: &&str| {
        NewTask::new(key(name)).attempts_as_runs(true).lease_loss(LeaseLoss::Requeue { at_most: 9 })
    };
    let tasks: Vec<NewTask> = names.iter().map(new).collect();
    let order = AdmitRequest::new("h".try_into().unwrap(), "tick".try_into().unwrap(), 99, secs(30));
    let admission = store.write(|tx| {
        tx.enqueue(at(0), &tasks)?;
        tx.admit(at(0), &order)
    });
    let leases: Vec<LeaseRef> = admission.unwrap().granted.iter().map(TaskRecord::lease_ref).collect();
    assert_eq!(leases.len(), names.len());
    (store, leases)
}

fn running(names: &[&str]) -> (Arc<FaultStore>, Vec<LeaseRef>) {
    let (store, leases) = admitted(names);
    assert_eq!(store.write(|tx| tx.start(at(1), &leases)).unwrap(), vec![true; leases.len()]);
    (store, leases)
}

fn task(store: &FaultStore, name: &str) -> TaskRecord {
    store.read(|tx| tx.tasks(&[key(name)])).unwrap().remove(0).unwrap()
}

fn sensor(lease: LeaseRef) -> NewSensor {
    let settings = Settings::new(secs(1), secs(3600)).unwrap();
    NewSensor::new(lease, "kind".try_into().unwrap(), PokeContext::from_json("{}").unwrap(), settings)
}

/// Moves a task as another transaction does, whatever its state.
fn moves(tx: &mut dyn StoreTx, lease: LeaseRef, to: TaskState) -> stationmaster::error::StoreResult<()> {
    let from = tx.tasks_by_id(&[lease.id])?.remove(0).unwrap().state;
    assert_eq!(tx.move_if(&[Move::new(lease, from, to)])?, [true]);
    Ok(())
}

/// By the state that it had read, the finish would not have closed the run that the start opened.
#[test]
fn a_finish_closes_the_run_that_a_start_opened_in_between() {
    let (store, leases) = admitted(&["a", "b"]);
    let lease = leases[0];
    let run = task(&store, "a").attempt_run(1).unwrap();
    let opened = RunRecord::open(run.clone(), at(1));
    store.interfere("move_if", 1, move |tx| {
        assert!(tx.start_if_queued(&[lease], at(1))?[0].is_some());
        tx.put_runs(std::slice::from_ref(&opened))
    });
    let ends = [Finish::success(leases[1]), Finish::success(lease), Finish::failed(lease, "")];
    let finished = store.write(|tx| tx.finish(at(2), &ends)).unwrap();
    let success = Finished::Ended(TaskState::Success);
    assert_eq!(finished, [success, success, Finished::Stale]);
    let run = store.read(|tx| tx.runs(std::slice::from_ref(&run))).unwrap().remove(0).unwrap();
    assert_eq!((run.stop, run.status), (Some(at(2)), RunStatus::Completed));
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}

#[test]
fn what_another_transaction_ended_in_between_is_not_ended_again() {
    let (store, leases) = running(&["a", "b", "c", "d"]);
    let lose = |lease: LeaseRef, to| store.interfere("move_if", 1, move |tx| moves(tx, lease, to));

    lose(leases[0], TaskState::Failed);
    let ends = [Finish::success(leases[0]), Finish::success(leases[1])];
    let finished = store.write(|tx| tx.finish(at(2), &ends)).unwrap();
    assert_eq!(finished, [Finished::Stale, Finished::Ended(TaskState::Success)]);

    lose(leases[2], TaskState::Skipped);
    let sensors = [sensor(leases[2]), sensor(leases[3])];
    let registered = store.write(|tx| tx.register(at(2), &sensors)).unwrap();
    assert!(matches!(registered[..], [Registered::Stale, Registered::Waiting(_)]), "{registered:?}");
    assert_eq!(store.read(|tx| tx.sensors(&[key("c")])).unwrap(), [None], "nothing was registered for it");

    lose(leases[0], TaskState::Scheduled);
    let cleared = store.write(|tx| tx.clear(at(3), &[key("a"), key("b"), key("b")])).unwrap();
    assert_eq!(cleared, [Cleared::NotEnded(TaskState::Scheduled), Cleared::Ready, Cleared::Ready]);

    lose(leases[0], TaskState::Success);
    let mark = |name: &str| Mark::new(key(name), TaskState::Failed, "by hand");
    let marked = store.write(|tx| tx.mark(at(4), &[mark("a"), mark("b"), mark("b")])).unwrap();
    let expected = [
        Marked::AlreadyEnded(TaskState::Success),
        Marked::Ended(TaskState::Scheduled),
        Marked::AlreadyEnded(TaskState::Failed),
    ];
    assert_eq!(marked, expected);
    assert_eq!(task(&store, "a").message, None);
}

/// A verb that is overtaken again and again returns an error that says so, and changes nothing.
#[test]
fn a_verb_that_is_always_overtaken_is_a_conflict() {
    let (store, leases) = running(&["a"]);
    let lease = leases[0];
    store.write(|tx| tx.mark(at(2), &[Mark::new(key("a"), TaskState::Failed, "")])).unwrap();
    let before = task(&store, "a");
    let overtaken = |verb: &dyn Fn(&mut Tx<'_>) -> Result<()>| {
        let times = Arc::new(AtomicUsize::new(0));
        let counted = times.clone();
        store.interfere("move_if", usize::MAX, move |tx| {
            counted.fetch_add(1, Ordering::SeqCst);
            let is_ready = tx.tasks_by_id(&[lease.id])?.remove(0).unwrap().state == TaskState::Scheduled;
            moves(tx, lease, if is_ready { TaskState::UpForRetry } else { TaskState::Scheduled })
        });
        let mut runs = 0;
        let refused = store
            .write(|tx| {
                runs += 1;
                // The first change lets it wait again. Then it is in another state each time.
                stationmaster::testing::raw(tx).move_if(&[])?;
                match verb(tx) {
                    Err(Error::Store(error)) => {
                        assert_eq!(error.kind(), StoreErrorKind::Conflict, "{error}");
                        Err(Error::abort("seen"))
                    }
                    other => other,
                }
            })
            .unwrap_err();
        store.interfere("none", 1, |_| Ok(()));
        assert!(matches!(refused, Error::Aborted(_)), "{refused}");
        assert_eq!((runs, task(&store, "a")), (1, before.clone()));
        times.load(Ordering::SeqCst)
    };
    let rounds = overtaken(&|tx| tx.mark(at(3), &[Mark::new(key("a"), TaskState::Skipped, "")]).map(drop));
    assert!((3..100).contains(&rounds), "{rounds}");
}

#[test]
fn upkeep_passes_over_what_others_hold_and_asks_again_after_a_pause() {
    let (store, leases) = running(&["task", "run", "free"]);
    let mut upkeep = Upkeep::new(store.clone()).grace(Duration::ZERO);
    store.others_hold(&[leases[0].id], &[task(&store, "run").attempt_run(1).unwrap()]);
    let renewed = store.write(|tx| tx.renew(at(30), secs(1), &leases[..1])).unwrap();
    assert_eq!(renewed, [Renewal::Busy]);
    let report = upkeep.tick(at(60)).unwrap();
    let reaped: Vec<_> = report.reaped.iter().map(|reaped| reaped.task.key.clone()).collect();
    assert_eq!((reaped, report.next_due), (vec![key("free")], Some(at(61))), "not at once, and not late");
    assert_eq!(task(&store, "run").state, TaskState::Running);
    store.others_hold(&[], &[]);
    assert_eq!(upkeep.tick(at(61)).unwrap().reaped.len(), 2);
}

#[test]
fn a_poker_keeps_a_sensor_whose_task_or_run_another_transaction_holds() {
    let (store, leases) = running(&["task", "run", "free"]);
    let sensors: Vec<NewSensor> = leases.iter().copied().map(sensor).collect();
    store.write(|tx| tx.register(at(2), &sensors)).unwrap();
    let mut poker = Poker::new(store.clone(), "p".try_into().unwrap())
        .wait_for_answers(secs(60))
        .kind("kind".try_into().unwrap(), |_: &PokeRequest| PokeOutcome::Landed(None));
    store.others_hold(&[leases[0].id], &[task(&store, "run").attempt_run(1).unwrap()]);
    let report = poker.tick(at(3)).unwrap();
    assert_eq!((report.landed, report.sensors), (1, 2), "two wait for the others");
    assert!(report.next_due.is_some_and(|due| due <= at(4)), "{:?}", report.next_due);
    assert_eq!(task(&store, "task").state, TaskState::Sensing);

    // One of them was ended by the other transaction, the other one was not.
    store.write(|tx| tx.mark(at(3), &[Mark::new(key("run"), TaskState::Skipped, "")])).unwrap();
    store.others_hold(&[], &[]);
    let report = poker.tick(at(4)).unwrap();
    assert_eq!((report.landed, report.sensors), (1, 0));
    assert_eq!(task(&store, "task").state, TaskState::Success);
    assert_eq!(task(&store, "run").state, TaskState::Skipped);
}
