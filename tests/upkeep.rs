//! Upkeep that was itself held up ends no lease whose holder could not renew it meanwhile: on every store.
#![allow(clippy::unwrap_used)]

mod stores;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use stationmaster::ops::AdmitRequest;
use stationmaster::service::{Service, Upkeep};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::testing::raw;
use stationmaster::{LeaseRef, NewTask, Renewal, TaskKey, Timestamp};
use stores::stores;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Starts a task of this name at this second, under a lease of this many seconds.
fn run(store: &Arc<dyn Store>, name: &str, now: i64, lease: u64) -> LeaseRef {
    let task = NewTask::new(TaskKey::new("ns", "w", "r", name).unwrap());
    let request = format!("{name}-{now}").as_str().try_into().unwrap();
    let order = AdmitRequest::new("holder".try_into().unwrap(), request, 1, secs(lease));
    let admission = store.write(|tx| {
        tx.enqueue(at(now), std::slice::from_ref(&task))?;
        tx.admit(at(now), &order)
    });
    let granted = admission.unwrap().granted[0].lease_ref();
    assert_eq!(store.write(|tx| tx.start(at(now), &[granted])).unwrap(), [true]);
    granted
}

fn renewed(store: &Arc<dyn Store>, now: i64, lease: LeaseRef) -> bool {
    store.write(|tx| tx.renew(at(now), secs(60), &[lease])).unwrap() == [Renewal::Renewed]
}

fn reaped(upkeep: &mut Upkeep, now: i64) -> usize {
    upkeep.tick(at(now)).unwrap().reaped.len()
}

#[test]
fn a_machine_that_slept_reaps_nobody_who_slept_with_it() {
    for store in stores() {
        let mut upkeep = Upkeep::new(store.clone());
        let (alive, dead) = (run(&store, "alive", 0, 60), run(&store, "dead", 0, 60));
        assert_eq!(reaped(&mut upkeep, 1), 0);
        assert_eq!(reaped(&mut upkeep, 21), 0);
        // Suspended for ten minutes. Upkeep is the first that wakes.
        assert_eq!(reaped(&mut upkeep, 600), 0, "their holders slept, too");
        assert!(renewed(&store, 601, alive));
        assert_eq!(reaped(&mut upkeep, 619), 0);
        assert_eq!(reaped(&mut upkeep, 620), 1, "a grace later at the latest");
        assert!(renewed(&store, 621, alive) && !renewed(&store, 621, dead));
    }
}

#[test]
fn upkeep_that_just_started_waits_for_those_who_may_still_renew() {
    for store in stores() {
        let alive = run(&store, "alive", 0, 60);
        let mut upkeep = Upkeep::new(store.clone());
        assert_eq!(reaped(&mut upkeep, 100), 0, "it cannot know why nobody renewed");
        assert!(renewed(&store, 101, alive));
        assert_eq!(reaped(&mut upkeep, 120), 0);
        // What expires after that is ended when it expires.
        for now in [140, 160] {
            assert_eq!(reaped(&mut upkeep, now), 0);
        }
        assert_eq!(reaped(&mut upkeep, 161), 1);
    }
}

/// Where writers take turns. On PostgreSQL an open transaction holds up neither upkeep nor a renewal. What
/// holds up both there has a test below.
#[test]
fn upkeep_that_waited_for_other_writers_reaps_nobody_who_waited_behind_it() {
    for kind in stores::kinds().iter().filter(|kind| kind.name != "postgres") {
        let store = kind.shared();
        let mut upkeep = Upkeep::new(store.clone());
        assert_eq!(reaped(&mut upkeep, 0) + reaped(&mut upkeep, 20), 0);
        let alive = run(&store, "alive", 20, 10);
        assert_eq!(reaped(&mut upkeep, 21), 0);
        let (locked, wait) = mpsc::channel();
        std::thread::scope(|scope| {
            let store = &store;
            scope.spawn(move || {
                let hold = store.write(|tx| {
                    raw(tx).put_pools(&[])?;
                    raw(tx).next_expiry()?;
                    locked.send(()).unwrap();
                    std::thread::sleep(secs(2));
                    Ok(())
                });
                hold.unwrap();
            });
            wait.recv().unwrap();
            assert_eq!(reaped(&mut upkeep, 30), 0, "a renewal would have waited, too");
        });
        assert!(renewed(&store, 32, alive));
    }
}

#[test]
fn what_one_upkeep_missed_another_that_was_awake_may_end() {
    for store in stores() {
        let upkeep = || Upkeep::new(store.clone());
        let (mut slept, mut awake) = (upkeep(), upkeep());
        run(&store, "dead", 0, 60);
        for now in [1, 21] {
            assert_eq!(reaped(&mut slept, now) + reaped(&mut awake, now), 0);
        }
        assert_eq!(reaped(&mut awake, 41), 0);
        assert_eq!((reaped(&mut slept, 70), reaped(&mut awake, 60)), (0, 1));
    }
}

#[cfg(feature = "testing")]
#[test]
fn an_outage_that_all_saw_costs_nobody_a_lease() {
    use stationmaster::store::TxMode;
    use stationmaster::testing::FaultStore;
    for store in stores() {
        let faulty = Arc::new(FaultStore::new(store.clone()));
        let mut upkeep = Upkeep::new(faulty.clone());
        assert_eq!(reaped(&mut upkeep, 0) + reaped(&mut upkeep, 20), 0);
        let alive = run(&store, "alive", 20, 15);
        faulty.refuse(TxMode::Write, 10);
        for now in 25..35 {
            upkeep.tick(at(now)).unwrap_err();
        }
        assert_eq!(reaped(&mut upkeep, 35), 0);
        assert!(renewed(&store, 36, alive));
    }
}

#[test]
fn a_limit_of_none_is_refused() {
    let refused = Upkeep::new(Arc::new(MemoryStore::new())).limit(0).tick(at(0)).unwrap_err();
    assert_eq!(refused.to_string(), "upkeep's limit of 0 is refused: give at least 1");
}

/// Enqueues two tasks of which the first has a retry policy that `poison` makes unreadable, and loses their leases twice.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
fn a_poisoned_row_among_others(store: Arc<dyn Store>, poison: impl Fn()) {
    use stationmaster::TaskState;
    use stationmaster::backoff::RetryPolicy;
    use stationmaster::ops::Finished;
    use stationmaster::task::LeaseLoss;
    let retry = RetryPolicy::fixed(secs(1)).build().unwrap();
    let tasks = ["poisoned", "sound"].map(|name| {
        let task = NewTask::new(TaskKey::new("ns", "w", "r", name).unwrap()).retry(retry.clone());
        task.lease_loss(LeaseLoss::Requeue { at_most: 1 })
    });
    store.write(|tx| tx.enqueue(at(0), &tasks)).unwrap();
    poison();
    let mut upkeep = Upkeep::new(store.clone()).grace(Duration::ZERO);
    for (now, became) in [
        (0, [Finished::Ready, Finished::Ready]),
        (20, [Finished::Ended(TaskState::Failed), Finished::RetryAt(at(31))]),
    ] {
        let request = format!("tick-{now}").as_str().try_into().unwrap();
        let order = AdmitRequest::new("holder".try_into().unwrap(), request, 9, secs(10));
        assert_eq!(store.write(|tx| tx.admit(at(now), &order)).unwrap().granted.len(), 2);
        let reaped = upkeep.tick(at(now + 10)).unwrap().reaped;
        assert_eq!(reaped.iter().map(|reaped| reaped.became).collect::<Vec<_>>(), became);
    }
    let task = store.read(|tx| tx.tasks(&[tasks[0].key.clone()])).unwrap().remove(0).unwrap();
    let message = task.message.unwrap();
    assert!(message.contains("its retry policy cannot be read"), "{message}");
}

#[cfg(feature = "sqlite")]
#[test]
fn one_poisoned_row_stops_neither_upkeep_nor_admission_on_sqlite() {
    use stationmaster::store::{SqliteStore, sqlite::SqliteOptions, sqlite::rusqlite::Connection};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.db");
    let store = Arc::new(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
    a_poisoned_row_among_others(store, || {
        let poison =
            r#"UPDATE sm_task SET retry = '{"delay_s":1,"curve":"of 2031"}' WHERE task = 'poisoned'"#;
        assert_eq!(Connection::open(&path).unwrap().execute(poison, []).unwrap(), 1);
    });
}

#[cfg(feature = "postgres")]
#[test]
fn one_poisoned_row_stops_neither_upkeep_nor_admission_on_postgres() {
    let scratch = stores::scratch::Scratch::new();
    a_poisoned_row_among_others(Arc::new(scratch.open(|options| options)), || {
        let poison = r#"SET retry = '{"delay_s":1,"curve":"of 2031"}' WHERE task = 'poisoned'"#;
        stores::scratch::query(&format!("UPDATE \"{}\".task {poison}", scratch.0));
    });
}

/// Several processes, one of which keeps the table of leases locked: renewals are refused as busy, and asked again behind upkeep's tick.
#[cfg(feature = "postgres")]
#[test]
fn holders_kept_waiting_by_another_writer_keep_their_leases_on_postgres() {
    use stationmaster::clock::{Clock, SystemClock};
    use stationmaster::service::{LoopHandle, drive};
    use std::ops::ControlFlow;

    let scratch = stores::scratch::Scratch::new();
    let holders = scratch.open(|options| options.lock_timeout(secs(1)));
    let others: Arc<dyn Store> = Arc::new(scratch.open(|options| options));
    let mut upkeep = Upkeep::new(others);
    let begin = SystemClock.now();
    upkeep.tick(begin - secs(20)).unwrap();
    upkeep.tick(begin).unwrap();

    let tasks = ["a", "b", "c", "d"].map(|name| NewTask::new(TaskKey::new("ns", "w", "r", name).unwrap()));
    let order = AdmitRequest::new("holder".try_into().unwrap(), "tick".try_into().unwrap(), 4, secs(2));
    let leases: Vec<LeaseRef> = holders
        .write(|tx| {
            tx.enqueue(begin, &tasks)?;
            let granted = tx.admit(begin, &order)?.granted;
            Ok(granted.iter().map(|task| task.lease_ref()).collect())
        })
        .unwrap();
    let (schema, stop) = (scratch.0.clone(), LoopHandle::new());
    let mut reaped = 0;
    std::thread::scope(|scope| {
        let (stop, leases, holders) = (&stop, &leases, &holders);
        scope.spawn(move || {
            let lock = format!("BEGIN; LOCK TABLE \"{schema}\".lease IN ACCESS EXCLUSIVE MODE");
            stores::scratch::with_client(move |client| async move {
                client.batch_execute(&lock).await.unwrap();
                client.batch_execute("SELECT pg_sleep(5); ROLLBACK").await.unwrap();
            });
            stop.wait(secs(3));
            stop.stop();
        });
        scope.spawn(move || {
            while !stop.is_stopped() {
                // Busy is no answer: asked again at the next beat.
                if let Ok(renewed) = holders.write(|tx| tx.renew(SystemClock.now(), secs(2), leases)) {
                    assert_eq!(renewed, [Renewal::Renewed; 4]);
                }
                stop.wait(Duration::from_millis(600));
            }
        });
        drive(&mut upkeep, &SystemClock, stop, secs(1), |report| {
            reaped += report.map_or(0, |report| report.reaped.len());
            ControlFlow::Continue(())
        });
    });
    assert_eq!(reaped, 0, "their renewals were asked in time");
}
