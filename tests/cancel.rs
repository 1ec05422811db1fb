//! Cancelling with a grace, on every store: what waits ends, a holder is asked, and no one retries what was cancelled.
#![allow(clippy::unwrap_used)]

mod stores;

use std::sync::Arc;
use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::error::{Error, Invalid};
use stationmaster::ops::{
    AdmitRequest, Cancellation, Cleared, Fenced, Finish, Finished, Mark, Marked, Registered, RetryAdvice,
};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::run::RunStatus;
use stationmaster::sensor::{EndReason, NewSensor, Settings};
use stationmaster::service::{Admitter, Service, Upkeep};
use stationmaster::store::Store;
use stationmaster::task::Feed;
use stationmaster::task::LeaseLoss;
use stationmaster::{LeaseRef, NewTask, Renewal, TaskKey, TaskRecord, TaskState, Timestamp};
use stores::{kinds, stores, told};

type Shared = Arc<dyn Store>;

const GRACE: Duration = Duration::from_secs(20);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn key(task: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", task).unwrap()
}

/// A task that would be retried and requeued again and again.
fn stubborn(name: &str) -> NewTask {
    let retry = RetryPolicy::fixed(secs(5)).build().unwrap();
    NewTask::new(key(name))
        .retry(retry)
        .lease_loss(LeaseLoss::Requeue { at_most: 99 })
        .attempts_as_runs(true)
        .feed(Feed::EndsAndSensors)
}

fn task(store: &Shared, name: &str) -> TaskRecord {
    store.read(|tx| tx.tasks(&[key(name)])).unwrap().remove(0).unwrap()
}

/// Admits all that is ready, with leases of a minute.
fn admit(store: &Shared, now: i64) -> Vec<TaskRecord> {
    let order = AdmitRequest::new(
        "holder".try_into().unwrap(),
        format!("tick {now}").try_into().unwrap(),
        99,
        secs(60),
    );
    store.write(|tx| tx.admit(at(now), &order)).unwrap().granted
}

/// Enqueues these tasks and starts them.
fn run(store: &Shared, names: &[&str]) -> Vec<LeaseRef> {
    let tasks: Vec<NewTask> = names.iter().map(|name| stubborn(name)).collect();
    store.write(|tx| tx.enqueue(at(0), &tasks)).unwrap();
    let leases: Vec<LeaseRef> = admit(store, 0).iter().map(TaskRecord::lease_ref).collect();
    assert!(store.write(|tx| tx.start(at(1), &leases)).unwrap().iter().all(|started| *started));
    leases
}

fn cancel(store: &Shared, now: i64, grace: Duration, names: &[&str]) -> Vec<Cancellation> {
    let keys: Vec<TaskKey> = names.iter().map(|name| key(name)).collect();
    store.write(|tx| tx.cancel(at(now), grace, &keys, "by hand")).unwrap()
}

fn sensor(lease: LeaseRef) -> NewSensor {
    let settings = Settings::new(secs(10), secs(600)).unwrap();
    NewSensor::new(lease, "file".try_into().unwrap(), PokeContext::from_json("{}").unwrap(), settings)
}

/// What holds at the end of each test.
fn is_sound(store: &Shared) {
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}

#[test]
fn what_waits_ends_at_once() {
    for store in stores() {
        run(&store, &["retried", "sensing"]);
        let waiting = [stubborn("ready"), stubborn("later").not_before(at(500))];
        store.write(|tx| tx.enqueue(at(2), &waiting)).unwrap();
        let leases = ["retried", "sensing"].map(|name| task(&store, name).lease_ref());
        store
            .write(|tx| {
                tx.finish(at(2), &[Finish::failed(leases[0], "no route")])?;
                tx.register(at(2), &[sensor(leases[1])])
            })
            .unwrap();
        let names = ["ready", "unknown", "later", "retried", "sensing", "ready"];
        let states = [TaskState::Scheduled, TaskState::Scheduled, TaskState::UpForRetry, TaskState::Sensing];
        let [ready, later, retried, sensing] = states.map(Cancellation::Ended);
        let expected = [ready, Cancellation::Unknown, later, retried, sensing, ready];
        assert_eq!(cancel(&store, 3, GRACE, &names), expected);
        for name in ["ready", "later", "retried", "sensing"] {
            let ended = task(&store, name);
            assert_eq!((ended.state, ended.ended_at), (TaskState::Cancelled, Some(at(3))), "{name}");
            assert_eq!((ended.message.as_deref(), ended.due, ended.held_slots), (Some("by hand"), None, 0));
        }
        let events = told(&store);
        let told: Vec<_> = events.iter().map(|event| (event.task.task.as_str(), event.reason)).collect();
        let sensing = ("sensing", Some(EndReason::Cancelled));
        assert_eq!(told, [("ready", None), ("later", None), ("retried", None), sensing]);
        assert!(events.iter().all(|event| event.state == TaskState::Cancelled));
        let run = task(&store, "sensing").attempt_run(1).unwrap();
        let run = store.read(|tx| tx.runs(std::slice::from_ref(&run))).unwrap().remove(0).unwrap();
        assert_eq!((run.status, run.stop), (RunStatus::Killed, Some(at(3))));

        let again = cancel(&store, 4, GRACE, &["ready", "sensing"]);
        assert_eq!(again, [Cancellation::AlreadyEnded(TaskState::Cancelled); 2]);
        assert!(admit(&store, 900).is_empty(), "none of them comes back");
        is_sound(&store);
    }
}

#[test]
fn a_holder_is_asked_and_keeps_its_slots_until_it_ends() {
    for store in stores() {
        let pool = PoolSpec::new("default_pool", Slots::Limited(1)).unwrap();
        store.write(|tx| tx.define([&pool], IfExists::Replace)).unwrap();
        let lease = run(&store, &["running"])[0];
        store.write(|tx| tx.enqueue(at(1), &[stubborn("next")])).unwrap();
        let asked = Cancellation::AskedUntil(at(22));
        assert_eq!(cancel(&store, 2, GRACE, &["running", "running"]), [asked; 2]);
        let running = task(&store, "running");
        assert_eq!((running.state, running.held_slots), (TaskState::Running, 1));
        assert!(admit(&store, 3).is_empty(), "the work still uses the slot");
        let renewed = store.write(|tx| tx.renew(at(4), secs(60), &[lease])).unwrap();
        assert_eq!(renewed, [Renewal::Cancelled(at(22))]);
        assert!(renewed.fenced().is_ok(), "it is still the holder's");

        let failed = Finish::failed(lease, "was told to stop");
        let end = || store.write(|tx| tx.finish(at(5), std::slice::from_ref(&failed))).unwrap();
        assert_eq!(end(), [Finished::Ended(TaskState::Cancelled)]);
        assert_eq!(end(), [Finished::Already(TaskState::Cancelled)], "after a commit of unknown outcome");
        let ended = task(&store, "running");
        assert_eq!((ended.message.as_deref(), ended.lost, ended.forgiven), (Some("by hand"), 0, 0));
        let run = store.read(|tx| tx.runs(&[ended.attempt_run(1).unwrap()])).unwrap().remove(0).unwrap();
        assert_eq!(run.status, RunStatus::Killed);
        let granted = admit(&store, 6);
        assert_eq!(granted.iter().map(|task| task.key.task.as_str()).collect::<Vec<_>>(), ["next"]);
        assert!(admit(&store, 9_000).is_empty());
        is_sound(&store);
    }
}

/// What a holder says of the attempt under a lease.
type End = fn(LeaseRef) -> Finish;

/// Whatever the holder says, the task is not tried again; and what it has done is not denied.
#[test]
fn what_a_holder_reports_of_a_task_that_was_cancelled() {
    let ends: [(&str, End, TaskState); 5] = [
        ("success", |lease| Finish::success_with(lease, "7"), TaskState::Success),
        ("skip", |lease| Finish::skipped(lease, "not needed"), TaskState::Skipped),
        ("failure", |lease| Finish::failed(lease, "no"), TaskState::Cancelled),
        (
            "advice",
            |lease| {
                let (message, retry) = ("no".into(), RetryAdvice::After(Duration::ZERO));
                Finish::new(lease, stationmaster::ops::Outcome::Failed { message, retry })
            },
            TaskState::Cancelled,
        ),
        ("given back", Finish::given_back, TaskState::Cancelled),
    ];
    for store in stores() {
        for (nth, (name, end, expected)) in ends.into_iter().enumerate() {
            for is_queued in [false, true] {
                let name = format!("{name} {is_queued}");
                store.write(|tx| tx.enqueue(at(0), &[stubborn(&name)])).unwrap();
                let lease = admit(&store, 10 * nth as i64 + i64::from(is_queued))[0].lease_ref();
                if !is_queued {
                    store.write(|tx| tx.start(at(80), &[lease])).unwrap();
                }
                assert_eq!(cancel(&store, 80, GRACE, &[&name]), [Cancellation::AskedUntil(at(100))]);
                let finished = store.write(|tx| tx.finish(at(90), &[end(lease)])).unwrap();
                assert_eq!(finished, [Finished::Ended(expected)], "{name}");
                assert_eq!(store.write(|tx| tx.reap(at(900), 9)).unwrap(), [], "{name}");
                assert_eq!(store.write(|tx| tx.renew(at(91), secs(9), &[lease])).unwrap(), [Renewal::Lost]);
            }
        }
        assert!(admit(&store, 9_000).is_empty());
        is_sound(&store);
    }
}

/// A success, among others that end in one statement, is reported in the same call as a failure.
#[test]
fn ends_of_many_that_were_cancelled() {
    for store in stores() {
        let leases = run(&store, &["a", "b", "c"]);
        cancel(&store, 2, GRACE, &["a", "b"]);
        let ends =
            [Finish::success(leases[0]), Finish::failed(leases[1], "no"), Finish::failed(leases[2], "no")];
        let finished = store.write(|tx| tx.finish(at(3), &ends)).unwrap();
        let [success, cancelled] = [TaskState::Success, TaskState::Cancelled].map(Finished::Ended);
        assert_eq!(finished, [success, cancelled, Finished::RetryAt(at(8))]);
        is_sound(&store);
    }
}

#[test]
fn upkeep_ends_it_at_the_deadline_however_often_it_was_renewed() {
    for store in stores() {
        let leases = run(&store, &["deaf", "dead", "kept"]);
        cancel(&store, 2, GRACE, &["deaf"]);
        cancel(&store, 2, secs(600), &["dead"]);
        let mut upkeep = Upkeep::new(store.clone()).grace(Duration::ZERO);
        for now in [3, 12, 21] {
            let renewed = store.write(|tx| tx.renew(at(now), secs(60), &[leases[0], leases[2]])).unwrap();
            assert_eq!(renewed, [Renewal::Cancelled(at(22)), Renewal::Renewed]);
            let report = upkeep.tick(at(now)).unwrap();
            assert_eq!((report.reaped, report.next_due), (vec![], Some(at(22))));
        }
        let report = upkeep.tick(at(22)).unwrap();
        let cancelled = Finished::Ended(TaskState::Cancelled);
        let told: Vec<_> = report.reaped.iter().map(|of| (of.task.key.clone(), of.became)).collect();
        assert_eq!(told, [(key("deaf"), cancelled)]);
        let ended = task(&store, "deaf");
        assert_eq!((ended.state, ended.message.as_deref()), (TaskState::Cancelled, Some("by hand")));
        assert_eq!((ended.ended_at, ended.lost), (Some(at(22)), 0));
        // Fenced off: what it did after all is not recorded.
        let late = store.write(|tx| tx.finish(at(23), &[Finish::success(leases[0])])).unwrap();
        assert_eq!(late, [Finished::Stale]);

        // The second holder died before its deadline: its task is not requeued either.
        let report = upkeep.tick(at(60)).unwrap();
        assert_eq!(report.reaped.iter().map(|of| of.became).collect::<Vec<_>>(), [cancelled]);
        assert_eq!(task(&store, "dead").state, TaskState::Cancelled);
        assert_eq!(task(&store, "kept").state, TaskState::Running);
        is_sound(&store);
    }
}

#[test]
fn the_earliest_deadline_counts() {
    for store in stores() {
        let lease = run(&store, &["t"])[0];
        let until = |seconds| [Cancellation::AskedUntil(at(seconds))];
        let message = |message: &str, now: i64, grace: u64| {
            store.write(|tx| tx.cancel(at(now), secs(grace), &[key("t")], message)).unwrap()
        };
        assert_eq!(message("first", 2, 30), until(32));
        assert_eq!(message("later", 3, 30), until(32), "a second call does not prolong it");
        assert_eq!(task(&store, "t").message.as_deref(), Some("first"));
        assert_eq!(message("sooner", 4, 10), until(14));
        assert_eq!(task(&store, "t").message.as_deref(), Some("sooner"));
        let renewed = store.write(|tx| tx.renew(at(5), secs(60), &[lease])).unwrap();
        assert_eq!(renewed, [Renewal::Cancelled(at(14))]);
        // The deadline has passed, and no upkeep came by: it ends now, by the word that was given.
        assert_eq!(message("last", 14, 30), [Cancellation::Ended(TaskState::Running)]);
        let ended = task(&store, "t");
        assert_eq!((ended.state, ended.message.as_deref()), (TaskState::Cancelled, Some("sooner")));
        assert_eq!(message("again", 15, 30), [Cancellation::AlreadyEnded(TaskState::Cancelled)]);
        is_sound(&store);
    }
}

#[test]
fn without_a_grace_the_holder_is_fenced_at_once() {
    for store in stores() {
        let lease = run(&store, &["t", "u"])[0];
        assert_eq!(cancel(&store, 2, Duration::ZERO, &["t"]), [Cancellation::Ended(TaskState::Running)]);
        assert_eq!(task(&store, "t").state, TaskState::Cancelled);
        let stale = store.write(|tx| tx.finish(at(3), &[Finish::success(lease)])).unwrap();
        assert_eq!(stale, [Finished::Stale]);
        // Every grace fits: a deadline beyond the last instant is the last instant.
        assert_eq!(cancel(&store, 2, Duration::MAX, &["u"]), [Cancellation::AskedUntil(Timestamp::MAX)]);
        is_sound(&store);
    }
}

#[test]
fn a_task_that_was_cancelled_does_not_begin_to_wait() {
    for store in stores() {
        let lease = run(&store, &["t"])[0];
        cancel(&store, 2, GRACE, &["t"]);
        let sensors = [sensor(lease), sensor(lease)];
        let registered = store.write(|tx| tx.register(at(3), &sensors)).unwrap();
        assert_eq!(registered, [Registered::Cancelled, Registered::Cancelled]);
        assert!(registered.fenced().is_ok());
        assert_eq!(task(&store, "t").state, TaskState::Cancelled);
        assert_eq!(store.read(|tx| tx.sensors(&[key("t")])).unwrap(), [None]);
        let reasons: Vec<_> = told(&store).iter().map(|event| event.reason).collect();
        assert_eq!(reasons, [None], "it was no sensor");
        let again = store.write(|tx| tx.register(at(3), &sensors[..1])).unwrap();
        assert_eq!(again, [Registered::Stale]);
        is_sound(&store);
    }
}

/// A start tells nothing, but loses nothing either.
#[test]
fn a_queued_task_that_was_cancelled_may_be_started() {
    for store in stores() {
        store.write(|tx| tx.enqueue(at(0), &[stubborn("t")])).unwrap();
        let lease = admit(&store, 0)[0].lease_ref();
        assert_eq!(cancel(&store, 1, GRACE, &["t"]), [Cancellation::AskedUntil(at(21))]);
        assert_eq!(store.write(|tx| tx.start(at(2), &[lease])).unwrap(), [true]);
        let reaped = store.write(|tx| tx.reap(at(21), 9)).unwrap();
        assert_eq!(reaped[0].became, Finished::Ended(TaskState::Cancelled));
        is_sound(&store);
    }
}

#[test]
fn marks_and_clears_are_orders_of_their_own() {
    for store in stores() {
        run(&store, &["marked", "cleared"]);
        cancel(&store, 2, GRACE, &["marked", "cleared"]);
        let mark = Mark::new(key("marked"), TaskState::Success, "done by hand");
        assert_eq!(
            store.write(|tx| tx.mark(at(3), std::slice::from_ref(&mark))).unwrap(),
            [Marked::Ended(TaskState::Running)]
        );
        assert_eq!(task(&store, "marked").state, TaskState::Success);
        assert_eq!(
            store.write(|tx| tx.clear(at(3), &[key("cleared")])).unwrap(),
            [Cleared::NotEnded(TaskState::Running)]
        );
        store.write(|tx| tx.reap(at(22), 9)).unwrap();
        assert_eq!(store.write(|tx| tx.clear(at(23), &[key("cleared")])).unwrap(), [Cleared::Ready]);
        let again = admit(&store, 24).remove(0);
        let lease = again.lease.clone().unwrap();
        assert_eq!((lease.cancel_at, lease.expires_at), (None, at(84)), "nothing of the cancel is left");
        let failed = store.write(|tx| tx.finish(at(25), &[Finish::failed(again.lease_ref(), "no")])).unwrap();
        assert_eq!(failed, [Finished::RetryAt(at(30))]);
        let mark = Mark::new(key("cleared"), TaskState::Cancelled, "no longer");
        store.write(|tx| tx.mark(at(26), std::slice::from_ref(&mark))).unwrap();
        assert_eq!(task(&store, "cleared").state, TaskState::Cancelled, "an end as the others");
        is_sound(&store);
    }
}

#[test]
fn a_cancelled_task_is_forgotten_like_any_that_ended() {
    for store in stores() {
        store.write(|tx| tx.enqueue(at(0), &[stubborn("t")])).unwrap();
        cancel(&store, 2, GRACE, &["t"]);
        assert_eq!(store.write(|tx| tx.forget_ended(at(100), secs(99), 9)).unwrap(), 0);
        assert_eq!(store.write(|tx| tx.forget_ended(at(103), secs(99), 9)).unwrap(), 1);
        is_sound(&store);
    }
}

#[test]
fn a_message_that_is_too_long_is_refused_before_anything_is_written() {
    for store in stores() {
        run(&store, &["t"]);
        let long = "x".repeat((1 << 20) + 1);
        let refused = store.write(|tx| tx.cancel(at(2), GRACE, &[key("t")], &long)).unwrap_err();
        assert!(matches!(refused, Error::Invalid(Invalid::TooManyBytes { what: "a cancel's message", .. })));
        assert_eq!(task(&store, "t").lease.unwrap().cancel_at, None);
        assert_eq!(store.write(|tx| tx.cancel(at(2), GRACE, &[], "of nothing")).unwrap(), []);
    }
}

#[test]
fn a_keeper_tells_the_holder_once_and_its_loss_at_the_deadline() {
    for store in stores() {
        store.write(|tx| tx.enqueue(at(0), &[stubborn("t"), stubborn("u")])).unwrap();
        let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap()).lease(secs(60));
        let mut keeper = admitter.keeper();
        let granted = admitter.tick(at(0)).unwrap().granted;
        let kept: Vec<_> = granted.iter().map(|task| keeper.keep(task)).collect();
        let heard = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let hears = heard.clone();
        kept[0].on_cancelled(move |deadline| hears.lock().push(deadline));
        cancel(&store, 10, secs(80), &["t"]);
        assert_eq!((kept[0].cancelled(), heard.lock().len()), (None, 0), "no one has asked");

        let report = keeper.tick(at(20)).unwrap();
        assert_eq!((report.renewed, report.cancelled), (2, vec![kept[0].lease()]));
        assert_eq!((kept[0].cancelled(), kept[1].cancelled()), (Some(at(90)), None));
        assert!(!kept[0].is_lost() && kept[0].holds(at(79)), "it is still the holder's");
        let report = keeper.tick(at(40)).unwrap();
        assert_eq!((report.renewed, report.cancelled), (2, vec![]), "told once");
        assert!(kept[0].holds(at(89)) && !kept[0].holds(at(90)), "and not beyond the deadline");
        let late = heard.clone();
        kept[0].on_cancelled(move |deadline| late.lock().push(deadline));
        assert_eq!(*heard.lock(), [at(90); 2]);

        while keeper.next_due().unwrap() < at(90) {
            keeper.tick(keeper.next_due().unwrap()).unwrap();
        }
        assert!(!kept[0].is_lost());
        assert_eq!(keeper.tick(at(90)).unwrap().expired, [kept[0].lease()]);
        assert!(kept[0].is_lost() && !kept[1].is_lost());
        store.write(|tx| tx.reap(at(90), 9)).unwrap();
        let lost = keeper.tick(keeper.next_due().unwrap()).unwrap().lost;
        assert_eq!(lost, [kept[0].lease()]);
        is_sound(&store);
    }
}

/// A naive model of one task, and any sequence of verbs on it.
mod any_sequence {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone, Copy)]
    enum Do {
        Admit,
        Start,
        Renew,
        Cancel(u64),
        Succeed,
        Fail,
        GiveBack,
        Register,
        Resume,
        Reap,
        Clear,
    }

    /// What is known of the task, worked out from the words of the specification.
    #[derive(Debug, Clone, Copy)]
    struct Model {
        state: TaskState,
        expires: i64,
        deadline: Option<i64>,
        due: Option<i64>,
    }

    impl Model {
        /// The lease is over; a task that was cancelled goes nowhere else.
        fn leaves(&mut self, to: TaskState, due: Option<i64>) {
            let is_asked = self.deadline.is_some();
            let (to, due) = match to {
                TaskState::Success => (to, None),
                _ if is_asked => (TaskState::Cancelled, None),
                _ => (to, due),
            };
            *self = Self { state: to, expires: 0, deadline: None, due };
        }

        fn does(&mut self, what: Do, now: i64) {
            use TaskState::{Queued, Running, Scheduled, Sensing, Success, UpForRetry};
            let is_leased = matches!(self.state, Queued | Running);
            match what {
                Do::Admit
                    if matches!(self.state, Scheduled | UpForRetry)
                        && self.due.is_none_or(|due| due <= now) =>
                {
                    *self = Self { state: Queued, expires: now + 60, deadline: None, due: None };
                }
                Do::Start if self.state == Queued => self.state = Running,
                Do::Renew if is_leased => {
                    let until = self.deadline.map_or(now + 60, |deadline| deadline.min(now + 60));
                    self.expires = self.expires.max(until);
                }
                Do::Cancel(grace) if is_leased => {
                    let deadline = now + grace as i64;
                    let deadline = self.deadline.map_or(deadline, |before| before.min(deadline));
                    self.deadline = Some(deadline);
                    self.expires = self.expires.min(deadline);
                    if deadline <= now {
                        self.leaves(TaskState::Cancelled, None);
                    }
                }
                Do::Cancel(_) if !self.state.is_end() => self.leaves(TaskState::Cancelled, None),
                Do::Succeed if is_leased => self.leaves(Success, None),
                Do::Fail if is_leased => self.leaves(UpForRetry, Some(now + 5)),
                Do::GiveBack if is_leased => self.leaves(Scheduled, None),
                Do::Register if self.state == Running => self.leaves(Sensing, None),
                Do::Resume if self.state == Sensing => self.leaves(Scheduled, None),
                Do::Reap if is_leased && self.expires <= now => self.leaves(Scheduled, None),
                Do::Clear if self.state.is_end() => self.leaves(Scheduled, None),
                _ => {}
            }
        }
    }

    fn does(store: &Shared, what: Do, now: i64) {
        let lease = task(store, "t").lease_ref();
        let key = [key("t")];
        store
            .write(|tx| {
                let order = || {
                    let tick = format!("tick {now}").try_into().unwrap();
                    AdmitRequest::new("h".try_into().unwrap(), tick, 9, secs(60))
                };
                match what {
                    Do::Admit => tx.admit(at(now), &order()).map(drop),
                    Do::Start => tx.start(at(now), &[lease]).map(drop),
                    Do::Renew => tx.renew(at(now), secs(60), &[lease]).map(drop),
                    Do::Cancel(grace) => tx.cancel(at(now), secs(grace), &key, "why").map(drop),
                    Do::Succeed => tx.finish(at(now), &[Finish::success(lease)]).map(drop),
                    Do::Fail => tx.finish(at(now), &[Finish::failed(lease, "no")]).map(drop),
                    Do::GiveBack => tx.finish(at(now), &[Finish::given_back(lease)]).map(drop),
                    Do::Register => tx.register(at(now), &[sensor(lease)]).map(drop),
                    Do::Resume => {
                        let ending = stationmaster::store::contract::Ending::new(
                            EndReason::Landed,
                            TaskState::Scheduled,
                        );
                        tx.end_sensors(at(now), &[(lease, ending)]).map(drop)
                    }
                    Do::Reap => tx.reap(at(now), 9).map(drop),
                    Do::Clear => tx.clear(at(now), &key).map(drop),
                }
            })
            .unwrap();
    }

    fn verbs() -> impl Strategy<Value = Do> {
        prop_oneof![
            4 => Just(Do::Admit),
            3 => Just(Do::Start),
            3 => Just(Do::Renew),
            3 => (0..100_u64).prop_map(Do::Cancel),
            1 => Just(Do::Cancel(0)),
            1 => Just(Do::Succeed),
            2 => Just(Do::Fail),
            1 => Just(Do::GiveBack),
            1 => Just(Do::Register),
            1 => Just(Do::Resume),
            2 => Just(Do::Reap),
            2 => Just(Do::Clear),
        ]
    }

    #[test]
    fn is_what_the_words_of_the_specification_come_to() {
        for kind in kinds() {
            let config = ProptestConfig {
                failure_persistence: None,
                ..ProptestConfig::with_cases(kind.cases(300, 6))
            };
            let sequence = prop::collection::vec((verbs(), 1..40_i64), 1..40);
            proptest!(config, |(sequence in sequence)| {
                let store = kind.shared();
                store.write(|tx| tx.enqueue(at(0), &[stubborn("t")])).unwrap();
                let mut model = Model { state: TaskState::Scheduled, expires: 0, deadline: None, due: None };
                let mut now = 0;
                for (what, later) in &sequence {
                    now += later;
                    does(&store, *what, now);
                    model.does(*what, now);
                    let seen = task(&store, "t");
                    prop_assert_eq!(seen.state, model.state, "{:?} at {}", what, now);
                    let lease = seen.lease.map(|lease| (lease.expires_at, lease.cancel_at));
                    let expected = seen.state.is_leased().then_some((at(model.expires), model.deadline.map(at)));
                    prop_assert_eq!(lease, expected, "{:?} at {}", what, now);
                }
                is_sound(&store);
            });
        }
    }
}
