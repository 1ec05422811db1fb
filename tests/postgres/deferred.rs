//! Ends that are sent with what follows them in their transaction.

use std::cell::Cell;
use std::time::Duration;

use stationmaster::canonical::PokeContext;
use stationmaster::error::Invalid;
use stationmaster::id::SensorKind;

use stationmaster::ops::{AdmitRequest, Finish, Finished};
use stationmaster::sensor::{NewSensor, Settings};
use stationmaster::store::PostgresStore;
use stationmaster::store::postgres::Wake;
use stationmaster::task::Feed;
use stationmaster::testing::watch_round_trips;
use stationmaster::{Error, LeaseRef, NewTask, Result, TaskRecord, TaskState, Timestamp};

use crate::scratch::{ScratchStore, rows};
use crate::task;

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// Enqueues these tasks, and has them started.
fn leases(store: &PostgresStore, tasks: &[NewTask]) -> Vec<LeaseRef> {
    let request = format!("tick of {}", tasks[0].key.task);
    let order = AdmitRequest::new(
        "h".try_into().unwrap(),
        request.as_str().try_into().unwrap(),
        tasks.len(),
        Duration::from_secs(60),
    );
    store.write(|tx| tx.enqueue(at(1), tasks)).unwrap();
    let granted = store.write(|tx| tx.admit(at(1), &order)).unwrap().granted;
    let leases: Vec<LeaseRef> = granted.iter().map(TaskRecord::lease_ref).collect();
    assert_eq!(store.write(|tx| tx.start(at(1), &leases)).unwrap(), vec![true; tasks.len()]);
    leases
}

fn ends(leases: &[LeaseRef]) -> Vec<Finish> {
    leases.iter().map(|lease| Finish::success(*lease)).collect()
}

fn state(store: &PostgresStore, name: &str) -> Option<TaskState> {
    let tasks = store.read(|tx| tx.tasks(&[task(name).key])).unwrap();
    tasks[0].as_ref().map(|task| task.state)
}

const ENDED: Finished = Finished::Ended(TaskState::Success);

#[test]
fn an_end_is_sent_with_the_next_verb_or_the_commit() {
    let ScratchStore { store, scratch: _scratch } = ScratchStore::open(|options| options);
    let leases = leases(&store, &["a", "b", "c", "d"].map(task));
    let trips = |work: &dyn Fn() -> Vec<Finished>, expected: usize| {
        let (ended, trips) = watch_round_trips(work);
        assert!(ended.iter().all(|end| *end == ENDED), "{ended:?}");
        assert_eq!(trips.len(), expected, "{trips:?}");
    };
    trips(&|| store.write(|tx| tx.finish(at(2), &ends(&leases[..1]))).unwrap(), 1);
    let then_last = || {
        store.write(|tx| {
            let ended = tx.finish(at(2), &ends(&leases[1..3]))?;
            tx.last(|tx| tx.enqueue(at(2), &[task("next")]))?;
            Ok(ended)
        })
    };
    trips(&|| then_last().unwrap(), 1);
    // What it reads is behind its end.
    let then_read = || {
        store.write(|tx| {
            let ended = tx.finish(at(2), &ends(&leases[3..]))?;
            let tasks = tx.tasks(&["a", "b", "c", "d"].map(|name| task(name).key))?;
            assert!(tasks.iter().all(|task| task.as_ref().unwrap().state == TaskState::Success));
            Ok(ended)
        })
    };
    trips(&|| then_read().unwrap(), 2);
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}

/// What was returned was wrong. So the transaction is run again, and what else it does is done once.
#[test]
fn an_end_that_finds_no_lease_is_found_out() {
    let ScratchStore { store, scratch: _scratch } = ScratchStore::open(|options| options);
    let order = |name: &str| {
        AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), 1, Duration::from_secs(60))
    };
    store.write(|tx| tx.admit(at(1), &order("first"))).unwrap();
    let ahead = order("ahead").answered("first".try_into().unwrap());
    let cases = ["nothing", "an enqueue", "a last enqueue", "a read", "a last tick", "an error"];
    for (round, follows) in cases.iter().enumerate() {
        let (name, next) = (format!("task {round}"), format!("next {round}"));
        // The store's next 64 transactions defer nothing.
        (0..64).for_each(|_| store.write(|tx| tx.finish(at(2), &[]).map(drop)).unwrap());
        let leases = leases(&store, &[task(&name)]);
        store.write(|tx| tx.finish(at(2), &[Finish::skipped(leases[0], "meanwhile")])).unwrap();
        let (runs, next) = (Cell::new(0), task(&next));
        let ended = store.write(|tx| {
            runs.set(runs.get() + 1);
            let ended = tx.finish(at(3), &ends(&leases))?;
            match *follows {
                "an enqueue" => drop(tx.enqueue(at(3), std::slice::from_ref(&next))?),
                "a last enqueue" => drop(tx.last(|tx| tx.enqueue(at(3), std::slice::from_ref(&next)))?),
                "a read" => drop(tx.all_pools()?),
                "a last tick" => drop(tx.last(|tx| tx.admit(at(3), &ahead))?),
                "an error" if ended == [ENDED] => return Err(Invalid::Zero { what: "an end" }.into()),
                _ => {}
            }
            Ok(ended)
        });
        assert_eq!((ended.unwrap(), runs.get()), (vec![Finished::Stale], 2), "{follows}");
        assert_eq!(state(&store, &name), Some(TaskState::Skipped));
        let expected = follows.contains("enqueue").then_some(TaskState::Scheduled);
        assert_eq!(state(&store, next.key.task.as_str()), expected, "{follows}");
    }
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}

#[test]
fn an_end_whose_transaction_fails_is_not_made() {
    let ScratchStore { store, scratch: _scratch } = ScratchStore::open(|options| options);
    let leases = leases(&store, &[task("a")]);
    let (failed, trips) = watch_round_trips(|| {
        store.write(|tx| {
            tx.finish(at(2), &ends(&leases))?;
            Result::<()>::Err(Invalid::Zero { what: "on purpose" }.into())
        })
    });
    assert!(matches!(failed, Err(Error::Invalid(_))), "{failed:?}");
    assert_eq!(trips.len(), 1, "it is looked whether the body was told the truth");
    assert_eq!(state(&store, "a"), Some(TaskState::Running));
}

/// What a transaction does before it commits comes behind its ends.
#[test]
fn an_end_is_made_however_the_transaction_concludes() {
    for wake in [Wake::Beside, Wake::InTransaction] {
        let ScratchStore { store, scratch: _scratch } = ScratchStore::open(|options| options.wake(wake));
        let leases = leases(&store, &["a", "b", "c", "sensor"].map(task));
        let settings = Settings::new(Duration::from_secs(10), Duration::from_secs(60)).unwrap();
        let context = PokeContext::from_json("{}").unwrap();
        let sensor = NewSensor::new(leases[3], SensorKind::new("k").unwrap(), context, settings);
        let registered = store.write(|tx| {
            tx.register(at(2), std::slice::from_ref(&sensor))?;
            tx.finish(at(2), &ends(&leases[..1]))
        });
        assert_eq!(registered.unwrap(), [ENDED], "a change is numbered");
        let repeated = store.write(|tx| {
            tx.enqueue(at(2), &[task("a")])?;
            tx.finish(at(2), &ends(&leases[1..2]))
        });
        assert_eq!(repeated.unwrap(), [ENDED], "what others did is flushed");
        let ticked = store.write(|tx| {
            let ended = tx.finish(at(2), &ends(&leases[2..3]))?;
            let order = AdmitRequest::new(
                "h".try_into().unwrap(),
                "tick".try_into().unwrap(),
                1,
                Duration::from_secs(60),
            );
            tx.admit(at(2), &order)?;
            Ok(ended)
        });
        assert_eq!(ticked.unwrap(), [ENDED]);
        for name in ["a", "b", "c"] {
            assert_eq!(state(&store, name), Some(TaskState::Success), "{name}, {wake:?}");
        }
        assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    }
}

/// An attempt that is recorded as a run needs more than one statement.
#[test]
fn an_end_that_has_to_do_more_does_it() {
    let ScratchStore { store, scratch } = ScratchStore::open(|options| options);
    let leases = leases(&store, &[task("recorded").attempts_as_runs(true)]);
    let open = format!("SELECT count(*) FROM \"{}\".run WHERE stop IS NULL", scratch.0);
    assert_eq!(rows(&open)[0].get::<_, i64>(0), 1);
    assert_eq!(store.write(|tx| tx.finish(at(2), &ends(&leases))).unwrap(), [ENDED]);
    assert_eq!(rows(&open)[0].get::<_, i64>(0), 0);
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}

/// Readers of the feed are woken for it.
#[test]
fn an_end_that_the_feed_reports_is_news() {
    for wake in [Wake::Beside, Wake::InTransaction] {
        news_of_an_end(wake);
    }
}

fn news_of_an_end(wake: Wake) {
    let ScratchStore { store, scratch } = ScratchStore::open(|options| options.wake(wake));
    let other = scratch.open(|options| options);
    let leases = leases(&store, &["a", "b"].map(|name| task(name).feed(Feed::Ends)));
    let (heard, hears) = std::sync::mpsc::channel();
    let _listening = other.on_change(move |change| heard.send(change.events()).unwrap_or(())).unwrap();
    let order = |name: &str| {
        AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), 1, Duration::from_secs(60))
    };
    store.write(|tx| tx.finish(at(2), &ends(&leases[..1]))).unwrap();
    let until_fed = || while !hears.recv_timeout(Duration::from_secs(9)).unwrap() {};
    until_fed();
    // The tick itself makes the end.
    store.write(|tx| tx.admit(at(2), &order("first"))).unwrap();
    let order = order("second").answered("first".try_into().unwrap());
    let tick = || {
        store.write(|tx| {
            tx.finish(at(2), &ends(&leases[1..]))?;
            tx.last(|tx| tx.admit(at(2), &order))
        })
    };
    let (ticked, trips) = watch_round_trips(tick);
    assert_eq!((ticked.unwrap().granted.len(), trips.len()), (0, 1), "{trips:?}");
    until_fed();
}
