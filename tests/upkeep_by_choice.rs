//! What upkeep does by choice, in bounded pieces and with a report: on every store.
#![allow(clippy::unwrap_used)]

mod stores;

use std::sync::Arc;
use std::time::Duration;

use stationmaster::ops::{AdmitRequest, Mark, StopBeforeStart};
use stationmaster::run::{RunClose, RunKey, RunRecord, RunStatus};
use stationmaster::service::{Service, Upkeep, UpkeepReport};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{NewTask, TaskKey, TaskState, Timestamp};
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

/// Upkeep whose clock jumps.
fn at_once(store: &Arc<dyn Store>) -> Upkeep {
    Upkeep::new(store.clone()).grace(Duration::ZERO)
}

fn tick(upkeep: &mut Upkeep, now: i64) -> UpkeepReport {
    let report = upkeep.tick(at(now)).unwrap();
    assert!(report.errors.is_empty(), "{report:?}");
    report
}

/// Tasks that ended in this state at this second.
fn ended(store: &Arc<dyn Store>, state: TaskState, now: i64, names: &[&str]) {
    let tasks: Vec<NewTask> = names.iter().map(|name| NewTask::new(key(name))).collect();
    let marks: Vec<Mark> = names.iter().map(|name| Mark::new(key(name), state, "done")).collect();
    store
        .write(|tx| {
            tx.enqueue(at(now), &tasks)?;
            tx.mark(at(now), &marks)
        })
        .unwrap();
}

fn left(store: &Arc<dyn Store>, names: &[&str]) -> Vec<bool> {
    let keys: Vec<TaskKey> = names.iter().map(|name| key(name)).collect();
    store.read(|tx| tx.tasks(&keys)).unwrap().iter().map(Option::is_some).collect()
}

fn run(id: &str, start: i64) -> RunRecord {
    RunRecord::open(RunKey::new("ns", id).unwrap(), at(start))
}

fn record(store: &Arc<dyn Store>, runs: &[RunRecord]) {
    store.write(|tx| tx.record_runs(runs, StopBeforeStart::Reject)).unwrap();
}

fn ids(runs: &[RunRecord]) -> Vec<&str> {
    runs.iter().map(|run| run.key.id.as_str()).collect()
}

#[test]
fn each_end_is_kept_for_its_own_time() {
    for store in stores() {
        let names = ["succeeded", "failed", "skipped"];
        for (name, state) in names.iter().zip([TaskState::Success, TaskState::Failed, TaskState::Skipped]) {
            ended(&store, state, 0, &[name]);
        }
        let mut upkeep = at_once(&store)
            .retain_ended_for(secs(10))
            .retain_state_for(TaskState::Failed, secs(100))
            .retain_state_for(TaskState::Skipped, Duration::MAX);
        assert_eq!(tick(&mut upkeep, 10).forgotten, 0, "at the instant itself they stay");
        assert_eq!(tick(&mut upkeep, 11).forgotten, 1);
        assert_eq!(left(&store, &names), [false, true, true]);
        assert_eq!(tick(&mut upkeep, 101).forgotten, 1);
        assert_eq!(tick(&mut upkeep, 1_000_000_000).forgotten, 0);
        assert_eq!(left(&store, &names), [false, false, true], "it is kept for ever");
        // Without a default the others are kept for ever.
        ended(&store, TaskState::Success, 0, &["another"]);
        let mut upkeep = at_once(&store).retain_state_for(TaskState::Skipped, secs(1));
        assert_eq!(tick(&mut upkeep, 99).forgotten, 1);
        assert_eq!(left(&store, &["skipped", "another"]), [false, true]);
    }
}

#[test]
fn what_is_kept_for_long_is_not_walked_past() {
    for store in stores() {
        ended(&store, TaskState::Failed, 0, &["a", "b", "c", "d", "e"]);
        ended(&store, TaskState::Success, 1, &["f", "g", "h"]);
        let mut upkeep = at_once(&store)
            .limit(2)
            .retain_ended_for(secs(10))
            .retain_state_for(TaskState::Failed, secs(100));
        let first = tick(&mut upkeep, 50);
        assert_eq!((first.forgotten, first.next_due), (2, Some(at(50))), "there may be more");
        let second = tick(&mut upkeep, 50);
        assert_eq!((second.forgotten, second.next_due), (1, None));
        let third = tick(&mut upkeep, 101);
        assert_eq!((third.forgotten, third.next_due), (2, Some(at(101))));
    }
}

#[test]
fn silent_runs_are_closed_in_pieces() {
    for store in stores() {
        let runs: Vec<RunRecord> = ["a", "b", "c"]
            .iter()
            .zip([10, 20, 80])
            .map(|(id, beat)| run(id, 0).heartbeat(at(beat)))
            .collect();
        record(&store, &runs);
        record(&store, &[run("never beat", 0)]);
        let mut upkeep = at_once(&store).limit(1).close_runs_silent_for(secs(60), RunStatus::Killed);
        assert_eq!(tick(&mut upkeep, 70).silent_runs, [], "60 s are not too long");
        let first = tick(&mut upkeep, 81);
        assert_eq!((ids(&first.silent_runs), first.next_due), (vec!["a"], Some(at(81))));
        assert_eq!(ids(&tick(&mut upkeep, 81).silent_runs), ["b"]);
        assert_eq!(tick(&mut upkeep, 81).next_due, None);
        let found = store.read(|tx| tx.runs(&[runs[0].key.clone(), run("never beat", 0).key])).unwrap();
        let end = found[0].as_ref().map(|run| (run.status, run.stop));
        assert_eq!(end, Some((RunStatus::Killed, Some(at(10)))), "at its last heartbeat");
        assert!(found[1].as_ref().is_some_and(|run| run.stop.is_none()));
    }
}

/// As for leases: what held upkeep up may have held up those who send heartbeats.
#[test]
fn a_run_has_a_grace_to_beat_again() {
    for store in stores() {
        record(&store, &[run("alive", 0).heartbeat(at(0)), run("dead", 0).heartbeat(at(0))]);
        let mut upkeep = Upkeep::new(store.clone()).close_runs_silent_for(secs(60), RunStatus::Killed);
        assert_eq!(tick(&mut upkeep, 500).silent_runs, [], "it just started");
        assert_eq!(tick(&mut upkeep, 519).silent_runs, []);
        let beat = stationmaster::run::RunBeat::new(run("alive", 0).key, at(510));
        assert_eq!(store.write(|tx| tx.beat_runs(std::slice::from_ref(&beat))).unwrap(), [true]);
        assert_eq!(ids(&tick(&mut upkeep, 520).silent_runs), ["dead"]);
        // The machine sleeps.
        assert_eq!(tick(&mut upkeep, 1_000).silent_runs, []);
        assert_eq!(ids(&tick(&mut upkeep, 1_020).silent_runs), ["alive"]);
    }
}

#[test]
fn stopped_runs_are_forgotten_in_pieces() {
    for store in stores() {
        let runs = ["a", "b", "c", "open"].map(|id| run(id, 0));
        record(&store, &runs);
        let closes: Vec<RunClose> = runs
            .iter()
            .zip([10, 20, 90])
            .map(|(run, stop)| RunClose::new(run.key.clone(), at(stop), RunStatus::Completed))
            .collect();
        store.write(|tx| tx.stop_runs(&closes, StopBeforeStart::Reject)).unwrap();
        let mut upkeep = at_once(&store).limit(1).retain_runs_for(secs(60));
        let ticks = [0; 3].map(|_| tick(&mut upkeep, 100));
        assert_eq!(ticks.each_ref().map(|tick| tick.runs_forgotten), [1, 1, 0]);
        assert_eq!(ticks.map(|tick| tick.next_due), [Some(at(100)), Some(at(100)), None]);
        let left = store.read(|tx| tx.runs(&runs.each_ref().map(|run| run.key.clone()))).unwrap();
        assert_eq!(left.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, true, true]);
    }
}

#[test]
fn what_ticks_granted_is_forgotten_where_nobody_admits() {
    for store in stores() {
        let order =
            |name: &str| AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), 1, secs(1_000));
        for (now, name) in [(1, "a"), (2, "b"), (50, "c")] {
            store.write(|tx| tx.enqueue(at(0), &[NewTask::new(key(name))])).unwrap();
            assert_eq!(store.write(|tx| tx.admit(at(now), &order(name))).unwrap().granted.len(), 1);
        }
        let mut upkeep = at_once(&store).limit(1).retain_requests_for(secs(30));
        let ticks = [0; 3].map(|_| tick(&mut upkeep, 60));
        assert_eq!(ticks.each_ref().map(|tick| tick.requests_forgotten), [1, 1, 0]);
        assert_eq!(ticks.map(|tick| tick.next_due), [Some(at(60)), Some(at(60)), Some(at(1_001))]);
        store.write(|tx| tx.enqueue(at(61), &[NewTask::new(key("d"))])).unwrap();
        let again = |name| store.write(|tx| tx.admit(at(61), &order(name))).unwrap().granted[0].key.clone();
        assert_eq!(again("c"), key("c"), "it is remembered");
        assert_eq!(again("a"), key("d"), "it is new");
    }
}

#[test]
fn overdue_tasks_become_ready_where_nobody_admits() {
    for store in stores() {
        let tasks = ["a", "b", "c", "later"].map(|name| NewTask::new(key(name)).not_before(at(10)));
        let tasks = tasks
            .into_iter()
            .enumerate()
            .map(|(i, task)| if i == 3 { task.not_before(at(99)) } else { task });
        store.write(|tx| tx.enqueue(at(0), &tasks.clone().collect::<Vec<_>>())).unwrap();
        assert_eq!(tick(&mut at_once(&store), 20).promoted, 0, "by choice");
        let mut upkeep = at_once(&store).limit(2).promotes(true);
        assert_eq!(tick(&mut upkeep, 9).promoted, 0);
        let ticks = [0; 2].map(|_| tick(&mut upkeep, 20));
        assert_eq!(ticks.each_ref().map(|tick| tick.promoted), [2, 1]);
        assert_eq!(ticks.map(|tick| tick.next_due), [Some(at(20)), None]);
        let waiting = store.read(|tx| tx.tasks(&["a", "b", "c", "later"].map(key))).unwrap();
        let due: Vec<bool> = waiting.iter().flatten().map(|task| task.due.is_some()).collect();
        assert_eq!(due, [false, false, false, true]);
    }
}

#[test]
fn an_audit_is_due_once_per_interval() {
    for store in stores() {
        let mut upkeep = Upkeep::new(store.clone()).audit_every(secs(100)).repairs(true);
        let mut audits = |now| {
            let report = tick(&mut upkeep, now);
            assert_eq!(report.repaired, []);
            (report.audited.map(|found| found.len()), report.next_due)
        };
        assert_eq!(audits(0), (None, Some(at(20))), "not with each start of a process");
        assert_eq!(audits(90), (None, Some(at(100))), "within a grace");
        assert_eq!(audits(99).0, None);
        assert_eq!(audits(100).0, Some(0));
        assert_eq!(audits(101).0, None);
        assert_eq!(audits(200).0, Some(0));
        // A clock that is set back by days.
        assert_eq!(audits(-1_000_000).0, None);
        assert_eq!(audits(-999_900).0, Some(0));
    }
}

/// The leases are ended whatever becomes of the rest, and the report tells of both.
#[cfg(feature = "testing")]
#[test]
fn a_part_that_fails_undoes_and_stops_no_other() {
    use stationmaster::error::StoreErrorKind;
    use stationmaster::testing::{Fault, FaultStore, When};
    let mut failed = 0;
    for call in 1.. {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let order = AdmitRequest::new("h".try_into().unwrap(), "t".try_into().unwrap(), 1, secs(10));
        record(&store, &[run("silent", 0).heartbeat(at(0))]);
        store
            .write(|tx| {
                tx.enqueue(at(0), &[NewTask::new(key("lost")), NewTask::new(key("due")).not_before(at(50))])?;
                tx.admit(at(0), &order)
            })
            .unwrap();
        let faulty = Arc::new(FaultStore::new(store.clone()));
        let mut upkeep = at_once(&(faulty.clone() as Arc<dyn Store>))
            .close_runs_silent_for(secs(60), RunStatus::Killed)
            .promotes(true)
            .audit_every(secs(50));
        tick(&mut upkeep, 0);
        faulty.arm(Fault::new(call, When::Before, StoreErrorKind::Io));
        let answer = upkeep.tick(at(100));
        let Some(struck) = faulty.disarm() else { break };
        let done = [left(&store, &["lost"])[0]];
        let Ok(report) = answer else { continue };
        failed += 1;
        assert_eq!((done, report.reaped.len()), ([true], 1), "{struck:?}");
        let parts = [report.silent_runs.len(), report.promoted, usize::from(report.audited.is_some())];
        assert_eq!(parts.iter().sum::<usize>(), 2, "{struck:?}: {report:?}");
        assert!(report.errors.len() == 1 && report.next_due == Some(at(101)), "{struck:?}: {report:?}");
        let again = upkeep.tick(at(101)).unwrap();
        assert!(again.errors.is_empty(), "{again:?}");
        let parts = [parts[0] + again.silent_runs.len(), parts[1] + again.promoted];
        assert_eq!(parts, [1, 1], "{struck:?}");
    }
    assert!(failed >= 8, "{failed}");
}

/// Each failure is reported, and an audit that failed is made again soon, not after its interval.
#[cfg(feature = "testing")]
#[test]
fn several_parts_that_fail_are_all_reported_and_an_audit_is_made_again_soon() {
    use stationmaster::error::StoreErrorKind;
    use stationmaster::store::TxMode;
    use stationmaster::testing::{Fault, FaultStore, When};
    let mut both = 0;
    for call in 1.. {
        let faulty = Arc::new(FaultStore::new(Arc::new(MemoryStore::new())));
        let mut upkeep =
            at_once(&(faulty.clone() as Arc<dyn Store>)).retain_runs_for(secs(60)).audit_every(secs(3_600));
        tick(&mut upkeep, 0);
        // Only an audit reads in a transaction that reads alone.
        faulty.refuse(TxMode::Read, 1);
        faulty.arm(Fault::new(call, When::Before, StoreErrorKind::Full));
        let answer = upkeep.tick(at(3_600));
        let struck = faulty.disarm();
        let Ok(report) = answer else { continue };
        let kinds: Vec<StoreErrorKind> = report
            .errors
            .iter()
            .map(|error| match error {
                stationmaster::Error::Store(error) => error.kind(),
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(kinds.last(), Some(&StoreErrorKind::Io), "the audit failed");
        assert_eq!(report.next_due, Some(at(3_601)));
        let again = upkeep.tick(at(3_601)).unwrap();
        assert_eq!((again.errors.len(), again.audited), (0, Some(vec![])), "{struck:?}");
        match struck {
            Some(_) => {
                assert_eq!(kinds, [StoreErrorKind::Full, StoreErrorKind::Io]);
                both += 1;
            }
            None => break,
        }
    }
    assert!(both >= 2, "{both}");
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_done() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    ended(&store, TaskState::Success, 0, &["stays"]);
    let forgets = || at_once(&store).retain_ended_for(Duration::ZERO);
    for (mut upkeep, why) in [
        (
            forgets().retain_state_for(TaskState::Running, secs(1)),
            "tasks that are running have not ended, so they are never forgotten: name an end",
        ),
        (
            forgets().close_runs_silent_for(Duration::ZERO, RunStatus::Killed),
            "the silence of a dead run must be a microsecond or more",
        ),
        (forgets().audit_every(Duration::ZERO), "the interval of audits must be a microsecond or more"),
        (forgets().limit(0), "upkeep's limit of 0 is refused: give at least 1"),
    ] {
        assert_eq!(upkeep.tick(at(9)).unwrap_err().to_string(), why);
        assert_eq!(left(&store, &["stays"]), [true]);
    }
}
