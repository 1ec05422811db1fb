//! A keeper renews what is held, and tells what is not: on every store, by a clock that stands still until it is moved.
#![allow(clippy::unwrap_used)]

mod stores;

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::time::Duration;

use stationmaster::clock::{Clock, ManualClock, SystemClock};
use stationmaster::error::{Error, Invalid};
use stationmaster::ops::{Finish, Finished};
use stationmaster::service::{
    Admitter, KeepReport, Keeper, Kept, LoopHandle, Report, Service, Upkeep, WakingStore, drive,
};
use stationmaster::store::{MemoryStore, Store, StoreInfo, Tx, TxMode};
use stationmaster::testing::FaultStore;
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskRecord, TaskState, Timestamp};
use stores::stores;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn key(name: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", name).unwrap()
}

fn admitter(store: &Arc<dyn Store>, name: &str) -> Admitter {
    Admitter::new(store.clone(), name.try_into().unwrap()).lease(secs(60))
}

fn enqueue(store: &Arc<dyn Store>, names: &[&str]) {
    let tasks: Vec<NewTask> = names.iter().map(|name| NewTask::new(key(name))).collect();
    store.write(|tx| tx.enqueue(at(0), &tasks)).unwrap();
}

/// Tasks of these names, granted at 0 for 60 s, and a keeper.
fn granted(store: &Arc<dyn Store>, names: &[&str]) -> (Vec<TaskRecord>, Keeper) {
    enqueue(store, names);
    let mut admitter = admitter(store, "holder");
    let tasks = admitter.tick(at(0)).unwrap().granted;
    assert_eq!(tasks.len(), names.len());
    (tasks, admitter.keeper())
}

/// Ends the leases that have expired at this second.
fn reap(store: &Arc<dyn Store>, now: i64) -> usize {
    Upkeep::new(store.clone()).grace(Duration::ZERO).tick(at(now)).unwrap().reaped.len()
}

fn state(store: &Arc<dyn Store>, name: &str) -> TaskState {
    store.read(|tx| tx.tasks(&[key(name)])).unwrap().remove(0).unwrap().state
}

/// Moves the clock to when the keeper is due, and ticks it.
fn next(keeper: &mut Keeper, clock: &ManualClock) -> KeepReport {
    clock.set(keeper.next_due().unwrap().max(clock.now()));
    let report = keeper.tick(clock.now()).unwrap();
    assert_eq!(report.next_due(), keeper.next_due());
    report
}

fn is_ready(future: impl Future<Output = ()>) -> bool {
    pin!(future).poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// To be wrapped.
#[derive(Debug)]
struct Shared(Arc<dyn Store>);

impl Store for Shared {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn transact(
        &self,
        mode: TxMode,
        body: &mut dyn FnMut(&mut Tx<'_>) -> stationmaster::Result<()>,
    ) -> stationmaster::Result<()> {
        self.0.transact(mode, body)
    }
}

/// Counts how often the holder is notified.
fn counted(kept: &Kept) -> Arc<AtomicUsize> {
    let told = Arc::new(AtomicUsize::new(0));
    let counter = told.clone();
    kept.on_lost(move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    told
}

fn times(told: &AtomicUsize) -> usize {
    told.load(Ordering::SeqCst)
}

#[test]
fn leases_are_renewed_for_as_long_as_their_handles_live() {
    for store in stores() {
        let (tasks, mut keeper) = granted(&store, &["a", "b"]);
        let (clock, kept) = (ManualClock::new(at(0)), keeper.keep(&tasks[0]));
        let dropped = keeper.keep(&tasks[1]);
        for third in 1..=10 {
            assert_eq!(next(&mut keeper, &clock).renewed, 2, "both in one call");
            assert_eq!(clock.now(), at(third * 20));
            assert_eq!(reap(&store, third * 20 + 19), 0);
        }
        assert!(kept.holds(at(259)) && !kept.holds(at(260)));
        drop(dropped);
        assert_eq!(next(&mut keeper, &clock).renewed, 1);
        assert_eq!(reap(&store, 260), 1, "it is not renewed any more");
        assert!(kept.holds(at(260)) && !kept.is_lost());

        store.write(|tx| tx.finish(at(260), &[Finish::success(kept.lease())])).unwrap();
        drop(kept);
        assert_eq!(keeper.next_due(), None);
        assert!(keeper.tick(at(999)).unwrap().is_idle());
    }
}

#[test]
fn leases_that_were_granted_at_different_times_are_soon_renewed_together() {
    for store in stores() {
        enqueue(&store, &["a", "b", "c", "d"]);
        let mut admitter = admitter(&store, "holder");
        let (mut keeper, clock) = (admitter.keeper(), ManualClock::new(at(0)));
        let mut kept = Vec::new();
        for second in [0, 5, 9, 14] {
            let task = admitter.admit(at(second), 1).unwrap().granted.remove(0);
            kept.push(keeper.keep(&task));
        }
        assert_eq!((next(&mut keeper, &clock).renewed, clock.now()), (3, at(20)), "of age 20, 15 and 11");
        assert_eq!((next(&mut keeper, &clock).renewed, clock.now()), (4, at(34)), "of age 14, and 20");
        assert_eq!((next(&mut keeper, &clock).renewed, clock.now()), (4, at(54)));
    }
}

#[test]
fn a_store_that_fails_for_a_while_costs_no_lease() {
    for store in stores() {
        let faults = Arc::new(FaultStore::new(store.clone()));
        let (tasks, _) = granted(&store, &["a"]);
        let (mut keeper, clock) = (Keeper::new(faults.clone(), secs(60)), ManualClock::new(at(0)));
        let kept = keeper.keep(&tasks[0]);
        faults.refuse(TxMode::Write, 8);
        for _ in 0..8 {
            let report = next(&mut keeper, &clock);
            assert!(report.error.is_some() && report.renewed == 0 && !report.is_idle());
        }
        assert_eq!(next(&mut keeper, &clock).renewed, 1);
        assert!(clock.now() < at(60) && !kept.is_lost());
        assert_eq!(keeper.next_due(), Some(clock.now() + secs(20)));
        assert_eq!(reap(&store, 60), 0);
    }
}

#[test]
fn a_holder_whose_lease_could_not_be_renewed_is_notified_when_it_expires() {
    for store in stores() {
        let faults = Arc::new(FaultStore::new(store.clone()));
        let (tasks, _) = granted(&store, &["a"]);
        let (mut keeper, clock) = (Keeper::new(faults.clone(), secs(60)), ManualClock::new(at(0)));
        let kept = keeper.keep(&tasks[0]);
        let (told, lost) = (counted(&kept), kept.lost());
        faults.refuse(TxMode::Write, 1_000);
        let report = loop {
            let report = next(&mut keeper, &clock);
            if !report.expired.is_empty() {
                break report;
            }
            assert!(clock.now() < at(60) && kept.holds(clock.now()) && !kept.is_lost());
        };
        assert_eq!((clock.now(), &report.expired[..]), (at(60), &[kept.lease()][..]));
        assert!(report.lost.is_empty() && report.error.is_some());
        assert!(kept.is_lost() && !kept.holds(clock.now()) && is_ready(lost));
        assert_eq!(times(&told), 1);

        // The store is back before upkeep: the holder may record how it ended.
        faults.refuse(TxMode::Write, 0);
        let report = next(&mut keeper, &clock);
        assert!(report.renewed == 1 && report.expired.is_empty());
        assert!(kept.holds(clock.now()) && kept.is_lost(), "who was told to stop has stopped");
        let finish = [Finish::given_back(kept.lease())];
        assert_eq!(store.write(|tx| tx.finish(clock.now(), &finish)).unwrap(), [Finished::Ready]);
        assert_eq!(times(&told), 1);
    }
}

/// The call may take long, because the store was in trouble.
#[test]
fn a_holder_is_notified_of_the_expiry_before_the_store_is_asked_once_more() {
    for store in stores() {
        let faults = Arc::new(FaultStore::new(store.clone()));
        let (tasks, _) = granted(&store, &["a"]);
        let (mut keeper, clock) = (Keeper::new(faults.clone(), secs(60)), ManualClock::new(at(0)));
        let kept = keeper.keep(&tasks[0]);
        faults.refuse(TxMode::Write, 1_000);
        while keeper.next_due() < Some(at(60)) {
            next(&mut keeper, &clock);
        }
        faults.refuse(TxMode::Write, 0);
        let ((sender, seen), told) = (mpsc::channel(), counted(&kept));
        faults.interfere("renew_if_leased", 1, move |_| {
            sender.send(times(&told)).unwrap();
            Ok(())
        });
        let report = next(&mut keeper, &clock);
        assert_eq!((clock.now(), seen.recv().unwrap()), (at(60), 1));
        assert_eq!((report.renewed, report.expired), (1, vec![kept.lease()]));
    }
}

/// It goes with the next renewal, again after a failure, and makes no call of its own.
#[test]
fn what_a_holder_says_is_written_with_the_next_renewal() {
    for store in stores() {
        let faults = Arc::new(FaultStore::new(store.clone()));
        let (tasks, _) = granted(&store, &["a", "b", "c"]);
        let mut keeper = Keeper::new(faults.clone(), secs(60));
        let kept: Vec<Kept> = tasks.iter().map(|task| keeper.keep(task)).collect();
        let noted = || {
            let tasks = store.read(|tx| tx.tasks(&[key("a"), key("b")])).unwrap();
            let lease = |task: Option<TaskRecord>| task.unwrap().lease.unwrap();
            let notes = tasks.into_iter().map(lease).map(|lease| (lease.note, lease.noted_at));
            notes.collect::<Vec<_>>()
        };
        let said = |text: &str, second| (Some(text.to_owned()), Some(at(second)));
        kept[0].note(at(1), "begun");
        kept[0].note(at(2), "half");
        kept[2].note(at(2), "of one that ends first");
        store.write(|tx| tx.finish(at(3), &[Finish::success(kept[2].lease())])).unwrap();
        assert_eq!(keeper.next_due(), Some(at(20)), "a note hurries no renewal");
        faults.refuse(TxMode::Write, 1);
        assert!(keeper.tick(at(20)).unwrap().error.is_some());
        assert_eq!(noted(), [(None, None), (None, None)]);
        kept[1].note(at(21), "é".repeat(600));
        let report = keeper.tick(at(25)).unwrap();
        assert_eq!((report.renewed, report.lost.len()), (2, 1));
        assert_eq!(noted(), [said("half", 2), said(&"é".repeat(512), 21)]);
        // One that was not written yet gives way to a newer one, also if the store fails.
        kept[0].note(at(26), "older");
        faults.refuse(TxMode::Write, 1);
        assert!(keeper.tick(at(45)).unwrap().error.is_some());
        kept[0].note(at(46), "newer");
        assert_eq!(keeper.tick(at(50)).unwrap().renewed, 2);
        assert_eq!(noted(), [said("newer", 46), said(&"é".repeat(512), 21)]);
        // What was said once is written once.
        store.write(|tx| tx.note(at(51), &[(kept[0].lease(), "by another way".into())])).unwrap();
        assert_eq!(keeper.tick(at(75)).unwrap().renewed, 2);
        assert_eq!(noted()[0], said("by another way", 51));
    }
}

#[test]
fn what_is_too_long_is_refused_and_of_several_the_last_counts() {
    for store in stores() {
        let (tasks, _) = granted(&store, &["a"]);
        let lease = tasks[0].lease_ref();
        let long = [(lease, "fits".into()), (lease, "x".repeat(1_025))];
        let refused = store.write(|tx| tx.note(at(1), &long)).unwrap_err();
        assert!(refused.to_string().contains("1025"), "{refused}");
        let note = || {
            let task = store.read(|tx| tx.tasks(&[key("a")])).unwrap().remove(0).unwrap();
            task.lease.unwrap().note
        };
        assert_eq!(note(), None);
        let stale = LeaseRef::new(lease.id, lease.epoch - 1);
        let notes = [(lease, "x".repeat(1_024)), (stale, "stale".into()), (lease, "last".into())];
        assert_eq!(store.write(|tx| tx.note(at(1), &notes)).unwrap(), [true, false, true]);
        assert_eq!(note().as_deref(), Some("last"));
    }
}

/// A process that starts again under its name goes on with what it holds, or gives it back.
#[test]
fn a_holder_that_starts_again_finds_its_leases() {
    for store in stores() {
        granted(&store, &["a", "b"]);
        enqueue(&store, &["of another"]);
        admitter(&store, "other").tick(at(0)).unwrap();
        let me = "holder".try_into().unwrap();
        let mine = store.read(|tx| tx.leases_of(&me, None, 99)).unwrap();
        assert_eq!(mine.iter().map(|task| task.key.task.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let mut again = Keeper::new(store.clone(), secs(60));
        let kept: Vec<Kept> = mine.iter().map(|task| again.keep(task)).collect();
        assert_eq!(again.tick(at(20)).unwrap().renewed, 2);
        assert!(kept.iter().all(|kept| kept.holds(at(79))));
        assert_eq!(reap(&store, 60), 1, "that of the other");
        store.write(|tx| tx.finish(at(61), &[Finish::success(kept[0].lease())])).unwrap();
        drop(kept.into_iter().next());
        let mine = store.read(|tx| tx.leases_of(&me, None, 99)).unwrap();
        let back: Vec<Finish> = mine.iter().map(|task| Finish::given_back(task.lease_ref())).collect();
        assert_eq!(store.write(|tx| tx.finish(at(62), &back)).unwrap(), [Finished::Ready]);
        assert_eq!(state(&store, "b"), TaskState::Scheduled);
        assert!(store.read(|tx| tx.leases_of(&me, None, 99)).unwrap().is_empty());
    }
}

#[test]
fn a_lost_lease_is_reported_once_in_every_way() {
    for store in stores() {
        let (tasks, mut keeper) = granted(&store, &["a", "b"]);
        let kept: Vec<Kept> = tasks.iter().map(|task| keeper.keep(task)).collect();
        let (told, lost) = (counted(&kept[0]), kept[0].lost());
        store.write(|tx| tx.finish(at(1), &[Finish::given_back(kept[0].lease())])).unwrap();
        let successor = admitter(&store, "other").admit(at(2), 1).unwrap().granted.remove(0);
        assert_eq!(successor.key, tasks[0].key);

        assert!(kept[0].holds(at(19)) && !kept[0].is_lost(), "no one knows yet");
        let report = keeper.tick(at(20)).unwrap();
        assert_eq!((report.renewed, report.lost), (1, vec![kept[0].lease()]));
        assert!(kept[0].is_lost() && !kept[0].holds(at(20)) && is_ready(lost) && is_ready(kept[0].lost()));
        assert_eq!((times(&told), times(&counted(&kept[0]))), (1, 1), "at once, for who asks later");
        assert!(!kept[1].is_lost() && kept[1].holds(at(79)) && !is_ready(kept[1].lost()));

        let report = keeper.tick(at(40)).unwrap();
        assert_eq!((report.renewed, report.lost.len(), times(&told)), (1, 0, 1));
        // The successor's lease is another one. Of the lost one the next handle is another, too.
        let (next, again) = (keeper.keep(&successor), keeper.keep(&tasks[0]));
        drop(kept);
        let report = keeper.tick(at(50)).unwrap();
        assert_eq!((report.renewed, report.lost), (1, vec![again.lease()]));
        assert!(again.is_lost() && !next.is_lost());
    }
}

#[test]
fn a_busy_lease_is_asked_for_again_soon() {
    for store in stores() {
        let faults = Arc::new(FaultStore::new(store.clone()));
        let (tasks, _) = granted(&store, &["a", "b"]);
        let (mut keeper, clock) = (Keeper::new(faults.clone(), secs(60)), ManualClock::new(at(0)));
        let kept: Vec<Kept> = tasks.iter().map(|task| keeper.keep(task)).collect();
        faults.others_hold(&[tasks[0].id], &[]);
        let report = next(&mut keeper, &clock);
        assert_eq!((report.renewed, report.busy, clock.now()), (1, 1, at(20)));
        let report = next(&mut keeper, &clock);
        assert_eq!((report.renewed, report.busy), (0, 1), "the other one is not asked for again");
        assert!(clock.now() <= at(21));
        faults.others_hold(&[], &[]);
        assert_eq!(next(&mut keeper, &clock).renewed, 1);
        assert!(clock.now() < at(25) && kept.iter().all(|kept| !kept.is_lost()));

        // And one that stays busy is reported when it expires.
        faults.others_hold(&[tasks[1].id], &[]);
        while next(&mut keeper, &clock).expired.is_empty() {}
        assert_eq!((clock.now(), kept[0].is_lost(), kept[1].is_lost()), (at(80), false, true));
    }
}

#[test]
fn a_keeper_that_was_held_up_asks_the_store_before_it_tells() {
    for store in stores() {
        let (tasks, mut keeper) = granted(&store, &["a", "b"]);
        let kept: Vec<Kept> = tasks.iter().map(|task| keeper.keep(task)).collect();
        let is_held = |now| kept.iter().map(|kept| (kept.holds(at(now)), kept.is_lost())).collect::<Vec<_>>();
        assert_eq!(is_held(600), [(false, false); 2], "a holder that asks knows without the keeper");
        // The machine slept for ten minutes, and all of it. No one had the tasks meanwhile.
        assert_eq!(keeper.tick(at(600)).unwrap().renewed, 2);
        assert_eq!(is_held(659), [(true, false); 2]);

        // This time only the keeper was held up, and upkeep was not.
        assert_eq!(reap(&store, 660), 2);
        let report = keeper.tick(at(1_200)).unwrap();
        assert_eq!((report.lost.len(), report.expired.len()), (2, 0));
        assert_eq!(is_held(1_200), [(false, true); 2]);
    }
}

#[test]
fn a_keeper_that_was_held_up_with_the_store_tells_at_its_first_tick() {
    for store in stores() {
        let faults = Arc::new(FaultStore::new(store.clone()));
        let (tasks, _) = granted(&store, &["a"]);
        let mut keeper = Keeper::new(faults.clone(), secs(60));
        let kept = keeper.keep(&tasks[0]);
        faults.refuse(TxMode::Write, 1);
        let report = keeper.tick(at(600)).unwrap();
        assert_eq!((report.expired, kept.is_lost()), (vec![kept.lease()], true));
        assert!(report.next_due > Some(at(600)), "it does not ask without a pause");
    }
}

#[test]
fn what_is_still_kept_at_the_end_is_given_back() {
    for store in stores() {
        let faults = Arc::new(FaultStore::new(store.clone()));
        let (tasks, _) = granted(&store, &["a", "b", "c", "d"]);
        let keeper = Keeper::new(faults.clone(), secs(60));
        let mut kept: Vec<Kept> = tasks.iter().map(|task| keeper.keep(task)).collect();
        store.write(|tx| tx.start(at(1), &[tasks[0].lease_ref(), tasks[1].lease_ref()])).unwrap();
        store.write(|tx| tx.finish(at(2), &[Finish::success(tasks[1].lease_ref())])).unwrap();
        drop(kept.remove(3));
        let told: Vec<_> = kept.iter().map(counted).collect();

        faults.refuse(TxMode::Write, 1);
        assert!(matches!(keeper.give_back(at(3)), Err(Error::Store(_))));
        assert!(kept.iter().all(|kept| kept.holds(at(3)) && !kept.is_lost()), "nothing happened");
        assert_eq!(keeper.give_back(at(3)).unwrap(), 2, "one was finished, and one was dropped");
        let states = ["a", "b", "c", "d"].map(|name| state(&store, name));
        assert_eq!(
            states,
            [TaskState::Scheduled, TaskState::Success, TaskState::Scheduled, TaskState::Queued]
        );
        assert!(kept.iter().all(|kept| kept.is_lost() && !kept.holds(at(3))));
        assert!(told.iter().all(|told| times(told) == 1));
        assert_eq!((keeper.give_back(at(4)).unwrap(), keeper.next_due()), (0, None));
        assert!(store.read(|tx| tx.audit()).unwrap().is_empty());
    }
}

#[test]
fn a_lease_may_be_kept_twice_and_is_renewed_once() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (tasks, mut keeper) = granted(&store, &["a"]);
    let (one, other) = (keeper.keep(&tasks[0]), keeper.keep(&tasks[0]));
    drop(one);
    assert_eq!(keeper.tick(at(20)).unwrap().renewed, 1);
    assert!(other.holds(at(79)));
    drop(other);
    assert_eq!(keeper.next_due(), None);
}

#[test]
fn a_task_that_is_not_leased_is_lost_at_the_next_tick() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    enqueue(&store, &["a"]);
    let task = store.read(|tx| tx.tasks(&[key("a")])).unwrap().remove(0).unwrap();
    let mut keeper = Keeper::new(store, secs(60));
    let kept = keeper.keep(&task);
    assert!(!kept.holds(at(0)));
    assert_eq!(keeper.tick(at(0)).unwrap().lost, [kept.lease()]);
}

#[test]
fn what_a_holder_does_when_it_is_notified_disturbs_no_other() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let (tasks, mut keeper) = granted(&store, &["a", "b", "c"]);
    let kept: Vec<Kept> = tasks.iter().map(|task| keeper.keep(task)).collect();
    assert_eq!(reap(&store, 60), 3);
    let (told, mine, again) = (counted(&kept[2]), keeper.keep(&tasks[0]), keeper.clone());
    kept[0].on_lost(|| std::panic::resume_unwind(Box::new("on purpose")));
    let ((sender, due), task) = (mpsc::channel(), tasks[0].clone());
    kept[1].on_lost(move || {
        drop(mine);
        let kept = again.keep(&task);
        let before = again.next_due();
        drop(kept);
        sender.send((before, again.next_due())).unwrap();
    });
    assert_eq!(keeper.tick(at(60)).unwrap().lost.len(), 3);
    assert_eq!(due.recv().unwrap(), (Some(at(20)), None));
    assert!(kept.iter().all(Kept::is_lost) && times(&told) == 1);
    assert_eq!(keeper.next_due(), None);
}

#[test]
fn a_driver_is_woken_if_it_would_come_too_late() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    enqueue(&store, &["a", "b", "c", "d"]);
    let mut admitter = admitter(&store, "holder");
    let (mut keeper, handle) = (admitter.keeper(), LoopHandle::new());
    keeper.woken_by(&handle);
    keeper.tick(at(0)).unwrap();
    let mut keep = |keeper: &Keeper, now| {
        let (task, seen) = (admitter.admit(at(now), 1).unwrap().granted.remove(0), handle.seen());
        (keeper.keep(&task), handle.seen() != seen)
    };
    let (_first, woken) = keep(&keeper, 10);
    assert!(woken, "it did not know of any");
    let (_later, woken) = keep(&keeper, 11);
    assert!(!woken, "it comes in time");
    let (_earlier, woken) = keep(&keeper, 9);
    assert!(woken);
    assert_eq!(keeper.tick(at(12)).unwrap().next_due, Some(at(29)));
    let (_later, woken) = keep(&keeper, 13);
    assert!(!woken, "it is due at 29 again");
}

#[test]
fn a_driven_keeper_renews_what_is_kept_while_it_sleeps() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    enqueue(&store, &["a"]);
    let mut admitter = admitter(&store, "holder");
    let (keeper, handle) = (admitter.keeper(), LoopHandle::new());
    let (reports, told) = mpsc::channel();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            drive(&mut keeper.clone(), &SystemClock, &handle, secs(3_600), |report| {
                drop(reports.send(report.unwrap()));
                ControlFlow::Continue(())
            });
        });
        // Whatever comes, the loop is stopped before anything is checked: the scope waits for it.
        let told = || told.recv_timeout(secs(60));
        let first = told();
        // Granted half a minute ago, so it is due at once.
        let task = admitter.admit(SystemClock.now() - secs(30), 1).unwrap().granted.remove(0);
        let kept = keeper.keep(&task);
        let second = std::iter::from_fn(|| told().ok()).find(|report| !report.is_idle());
        handle.stop();
        assert!(first.unwrap().is_idle(), "there is nothing to keep");
        assert_eq!(second.map(|report| report.renewed), Some(1));
        assert!(kept.holds(SystemClock.now()));
    });
}

#[test]
fn a_cancel_in_the_same_process_is_learnt_before_the_lease_is_due() {
    for store in stores() {
        let (tasks, mut keeper) = granted(&store, &["a", "b"]);
        let (handle, both) = (LoopHandle::new(), tasks.iter().map(|task| keeper.keep(task)));
        let kept: Vec<Kept> = both.collect();
        keeper.woken_by(&handle);
        handle.wake();
        assert_eq!(keeper.tick(at(1)).unwrap().renewed, 0, "a wake for anything else");

        let waking = WakingStore::new(Shared(store.clone()), handle.clone());
        waking.write(|tx| tx.enqueue(at(1), &[NewTask::new(key("waits"))])).unwrap();
        waking.write(|tx| tx.cancel(at(1), secs(30), &[key("waits")], "by hand")).unwrap();
        assert_eq!(keeper.tick(at(1)).unwrap().renewed, 0, "a cancel of what nobody holds");
        waking.write(|tx| tx.cancel(at(1), secs(30), &[key("a")], "by hand")).unwrap();
        let report = keeper.tick(at(2)).unwrap();
        assert_eq!((report.renewed, &report.cancelled[..]), (2, &[tasks[0].lease_ref()][..]));
        assert_eq!(kept[0].cancelled(), Some(at(31)));
        assert_eq!((keeper.tick(at(2)).unwrap().renewed, keeper.next_due()), (0, Some(at(22))));
    }
}

/// The keeper hears of the cancel between the grant and the call that gives it the lease.
#[test]
fn a_cancel_before_the_lease_is_kept_is_learnt_at_once() {
    for store in stores() {
        let (tasks, mut keeper) = granted(&store, &["a"]);
        let handle = LoopHandle::new();
        keeper.woken_by(&handle);
        let waking = WakingStore::new(Shared(store.clone()), handle.clone());
        waking.write(|tx| tx.cancel(at(1), secs(30), &[key("a")], "by hand")).unwrap();
        assert_eq!(keeper.tick(at(1)).unwrap().renewed, 0, "it keeps nothing yet");

        let kept = keeper.keep(&tasks[0]);
        assert!(keeper.next_due() <= Some(at(1)), "{:?}", keeper.next_due());
        assert_eq!(keeper.tick(at(2)).unwrap().cancelled, [tasks[0].lease_ref()]);
        assert_eq!(kept.cancelled(), Some(at(31)));

        enqueue(&store, &["b"]);
        let later = admitter(&store, "holder").tick(at(3)).unwrap().granted.remove(0);
        let _kept = keeper.keep(&later);
        assert_eq!(keeper.next_due(), Some(at(22)), "what is granted later is due at its third");
    }
}

#[test]
fn a_lease_too_short_is_refused() {
    let mut keeper = Keeper::new(Arc::new(MemoryStore::new()), Duration::from_micros(999));
    let refused = keeper.tick(at(0)).unwrap_err();
    assert!(matches!(refused, Error::Invalid(Invalid::Duration { .. })), "{refused}");
}
