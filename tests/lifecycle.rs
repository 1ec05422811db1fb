//! A task's way through the services, on every store, by a clock that the test moves.

mod stores;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use stationmaster::admission::IfExists;
use stationmaster::admission::Reason;
use stationmaster::admission::limits::LimitSpec;
use stationmaster::backoff::RetryPolicy;
use stationmaster::canonical::PokeContext;
use stationmaster::id::LimitKey;
use stationmaster::ops::{
    AdmitRequest, Explanation, Finish, Finished, Mark, Marked, Outcome, Registered, RetryAdvice,
};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::run::{ActiveQuery, RunStatus};
use stationmaster::sensor::{EndReason, NewSensor, OnLanded, OnMissed, PokeOutcome, SensorRecord, Settings};
use stationmaster::service::{Admitter, Poke, PokeLog, PokeRequest, Poker, Service, Upkeep};
use stationmaster::store::{Inserted, Store};
use stationmaster::task::Feed;
use stationmaster::task::{LeaseLoss, attempt_run_id};
use stationmaster::testing::raw;
use stationmaster::{LeaseRef, NewTask, Renewal, TaskKey, TaskRecord, TaskState, Timestamp};
use stores::{stores, told};

type Shared = Arc<dyn Store>;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn key(task: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", task).unwrap()
}

fn put(store: &Shared, now: i64, tasks: &[NewTask]) {
    store.write(|tx| tx.enqueue(at(now), tasks)).unwrap();
}

fn task(store: &Shared, name: &str) -> TaskRecord {
    store.read(|tx| tx.tasks(&[key(name)])).unwrap().remove(0).unwrap()
}

/// Admits with leases of ten seconds, and starts.
fn run(store: &Shared, now: i64) -> Vec<LeaseRef> {
    let mut admitter = Admitter::new(store.clone(), "holder".try_into().unwrap()).lease(secs(10));
    let granted = admitter.tick(at(now)).unwrap().granted;
    let leases: Vec<LeaseRef> = granted.iter().map(|task| task.lease_ref()).collect();
    let started = store.write(|tx| tx.start(at(now), &leases)).unwrap();
    assert!(started.iter().all(|moved| *moved));
    leases
}

/// For upkeep whose clock jumps.
fn at_once(store: &Shared) -> Upkeep {
    Upkeep::new(store.clone()).grace(Duration::ZERO)
}

fn end(store: &Shared, now: i64, finish_: Finish) -> Finished {
    store.write(|tx| tx.finish(at(now), std::slice::from_ref(&finish_))).unwrap().remove(0)
}

fn used(store: &Shared, pool: &str) -> i64 {
    store.read(|tx| tx.pools(&[pool.try_into()?])).unwrap().remove(0).unwrap().used
}

fn audited(store: &Shared) {
    let found = store.read(|tx| tx.audit()).unwrap();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn a_failing_task_is_retried_by_its_policy_and_then_fails() {
    for store in stores() {
        let retry = RetryPolicy::fixed(secs(30)).max_attempts(2).build().unwrap();
        put(&store, 0, &[NewTask::new(key("t")).retry(retry)]);
        let first = run(&store, 0)[0];
        assert_eq!(end(&store, 1, Finish::failed(first, "no route")), Finished::RetryAt(at(31)));
        assert_eq!(used(&store, "default_pool"), 0);
        assert_eq!(task(&store, "t").state, TaskState::UpForRetry);
        let why = store.read(|tx| tx.explain(at(1), &[key("t")])).unwrap().remove(0);
        assert_eq!(why, Explanation::NotBefore { due: at(31), also: vec![] });
        assert!(run(&store, 30).is_empty());
        let second = run(&store, 31)[0];
        assert_eq!(second.epoch, first.epoch + 1);
        assert_eq!(end(&store, 32, Finish::success(first)), Finished::Stale, "the first lease is fenced");
        assert_eq!(end(&store, 32, Finish::failed(second, "again")), Finished::Ended(TaskState::Failed));
        let task = task(&store, "t");
        assert_eq!((task.attempt, task.ended_at), (2, Some(at(32))));
        assert_eq!(task.message.as_deref(), Some("again (attempt 2 of 2 failed)"));
        assert_eq!(end(&store, 33, Finish::success(second)), Finished::Stale);
        audited(&store);
    }
}

#[test]
fn advice_changes_what_the_policy_decides() {
    for store in stores() {
        let retry = RetryPolicy::fixed(secs(30)).max_attempts(9).build().unwrap();
        for (advice, became) in [
            (RetryAdvice::Policy, Finished::RetryAt(at(30))),
            (RetryAdvice::NotBefore(secs(60)), Finished::RetryAt(at(60))),
            (RetryAdvice::NotBefore(secs(6)), Finished::RetryAt(at(30))),
            (RetryAdvice::After(secs(6)), Finished::RetryAt(at(6))),
            (RetryAdvice::Never, Finished::Ended(TaskState::Failed)),
        ] {
            let name = format!("{advice:?}");
            put(&store, 0, &[NewTask::new(key(&name)).retry(retry.clone())]);
            let lease = run(&store, 0)[0];
            let outcome = Outcome::Failed { message: "no".into(), retry: advice };
            assert_eq!(end(&store, 0, Finish::new(lease, outcome)), became, "{name}");
        }
    }
}

#[test]
fn a_dead_holders_slots_come_back_with_its_lease() {
    for store in stores() {
        let tasks = [
            NewTask::new(key("fails")).lease_loss(LeaseLoss::Fail),
            NewTask::new(key("again")).lease_loss(LeaseLoss::Requeue { at_most: 1 }),
        ];
        put(&store, 0, &tasks);
        let leases = run(&store, 0);
        let renewed = store.write(|tx| tx.renew(at(9), secs(10), &leases)).unwrap();
        assert_eq!(renewed, [Renewal::Renewed; 2]);
        let mut upkeep = at_once(&store);
        let early = upkeep.tick(at(18)).unwrap();
        assert!(early.reaped.is_empty() && early.next_due == Some(at(19)));
        let reaped = upkeep.tick(at(19)).unwrap().reaped;
        let became: Vec<_> =
            reaped.iter().map(|reaped| (reaped.task.key.task.as_str(), reaped.became)).collect();
        assert_eq!(became, [("fails", Finished::Ended(TaskState::Failed)), ("again", Finished::Ready)]);
        assert_eq!(used(&store, "default_pool"), 0);
        let stale = store.write(|tx| tx.renew(at(20), secs(10), &leases)).unwrap();
        assert_eq!(stale, [Renewal::Lost; 2]);
        assert_eq!(end(&store, 20, Finish::success(leases[1])), Finished::Stale);
        // Forgiven once; the second loss counts, and the policy has no retries.
        run(&store, 20);
        assert_eq!(upkeep.tick(at(30)).unwrap().reaped[0].became, Finished::Ended(TaskState::Failed));
        let message = task(&store, "again").message.unwrap();
        assert!(message.starts_with("lease lost: holder did not renew it in time"), "{message}");
        audited(&store);
    }
}

#[test]
fn a_cleared_task_is_forgiven_lost_leases_again() {
    for store in stores() {
        put(&store, 0, &[NewTask::new(key("t")).lease_loss(LeaseLoss::Requeue { at_most: 1 })]);
        let mut upkeep = at_once(&store);
        let mut lose = |now| {
            run(&store, now);
            upkeep.tick(at(now + 10)).unwrap().reaped[0].became
        };
        assert_eq!([lose(0), lose(10)], [Finished::Ready, Finished::Ended(TaskState::Failed)]);
        store.write(|tx| tx.clear(at(20), &[key("t")])).unwrap();
        assert_eq!(task(&store, "t").lost, 0);
        assert_eq!([lose(20), lose(30)], [Finished::Ready, Finished::Ended(TaskState::Failed)]);
        audited(&store);
    }
}

#[test]
fn what_is_given_back_cleanly_uses_up_no_forgiveness_of_lost_leases() {
    for store in stores() {
        put(&store, 0, &[NewTask::new(key("t")).lease_loss(LeaseLoss::Requeue { at_most: 2 })]);
        let mut upkeep = at_once(&store);
        let mut lose = |now| {
            run(&store, now);
            let became = upkeep.tick(at(now + 10)).unwrap().reaped[0].became;
            let task = task(&store, "t");
            (became, task.lost, task.forgiven)
        };
        let give_back = |now| {
            let lease = run(&store, now)[0];
            assert_eq!(end(&store, now, Finish::new(lease, Outcome::GivenBack)), Finished::Ready);
        };
        (0..3).for_each(give_back);
        assert_eq!(lose(10), (Finished::Ready, 1, 4));
        give_back(20);
        assert_eq!(lose(30), (Finished::Ready, 2, 6));
        assert_eq!(lose(50), (Finished::Ended(TaskState::Failed), 3, 6), "and the last is counted, too");
        audited(&store);
    }
}

#[test]
fn what_is_given_back_is_ready_at_once_and_does_not_count() {
    for store in stores() {
        let retry = RetryPolicy::fixed(secs(1)).max_attempts(2).build().unwrap();
        put(&store, 0, &[NewTask::new(key("t")).retry(retry)]);
        for now in 0..5 {
            let lease = run(&store, now)[0];
            assert_eq!(end(&store, now, Finish::new(lease, Outcome::GivenBack)), Finished::Ready);
        }
        let lease = run(&store, 5)[0];
        assert_eq!(end(&store, 5, Finish::failed(lease, "no")), Finished::RetryAt(at(6)));
        audited(&store);
    }
}

#[test]
fn a_tick_may_be_asked_for_again_and_grants_nothing_twice() {
    for store in stores() {
        put(&store, 0, &[NewTask::new(key("a")), NewTask::new(key("b"))]);
        let order = AdmitRequest::new("h".try_into().unwrap(), "tick-1".try_into().unwrap(), 1, secs(10));
        let first = store.write(|tx| tx.admit(at(0), &order)).unwrap().granted;
        assert_eq!(first.len(), 1);
        let again = store.write(|tx| tx.admit(at(1), &order)).unwrap().granted;
        assert_eq!(again, first);
        assert_eq!(used(&store, "default_pool"), 1);
        end(&store, 2, Finish::success(first[0].lease_ref()));
        assert!(store.write(|tx| tx.admit(at(3), &order)).unwrap().granted.is_empty());
    }
}

#[test]
fn pools_and_limits_bound_what_runs_and_say_why() {
    for store in stores() {
        let tenant = LimitKey::new("acme").unwrap();
        store
            .write(|tx| {
                tx.define([PoolSpec::new("db", Slots::Limited(5))?], IfExists::Replace)?;
                tx.define([LimitSpec::new(tenant.clone(), 1)?], IfExists::Replace)
            })
            .unwrap();
        let db =
            |name: &str, slots: u32| NewTask::new(key(name)).pool("db".try_into().unwrap()).pool_slots(slots);
        let tasks = [
            db("four", 4).priority(9),
            db("two", 2).priority(8),
            db("one", 1).priority(7),
            db("six", 6),
            NewTask::new(key("nowhere")).pool("nowhere".try_into().unwrap()),
            NewTask::new(key("acme-1")).limit(tenant.clone()),
            NewTask::new(key("acme-2")).limit(tenant.clone()),
            NewTask::new(key("later")).not_before(at(60)),
        ];
        put(&store, 0, &tasks);
        let leases = run(&store, 0);
        let running: Vec<_> = store
            .read(|tx| tx.tasks_by_id(&leases.iter().map(|lease| lease.id).collect::<Vec<_>>()))
            .unwrap()
            .into_iter()
            .map(|task| task.unwrap().key.task.to_string())
            .collect();
        assert_eq!(running, ["four", "one", "acme-1"], "smaller ones pass, in order of priority");
        let why = |name: &str| store.read(|tx| tx.explain(at(0), &[key(name)])).unwrap()[0].to_string();
        assert_eq!(why("two"), "pool db: 0 open of 5, needs 2");
        assert_eq!(why("six"), "pool db: has 5 slots in all, needs 6");
        assert_eq!(why("nowhere"), "pool nowhere: does not exist");
        assert_eq!(why("acme-2"), "limit acme: 1 of 1");
        assert_eq!(why("later"), "not before 1970-01-01 00:01:00 UTC");
        assert_eq!(why("one"), "it is running, so it does not wait for admission");
        assert_eq!(why("ghost"), "there is no such task");
        let names = ["ghost", "later", "two", "one"];
        let all = store.read(|tx| tx.explain(at(0), &names.map(key))).unwrap();
        assert_eq!(names.map(why).to_vec(), all.iter().map(ToString::to_string).collect::<Vec<_>>());
        let changes: Vec<_> = all.iter().map(Explanation::changes_at).collect();
        assert_eq!(changes, [None, Some(at(60)), None, None]);

        let mut admitter = Admitter::new(store.clone(), "other".try_into().unwrap());
        let admission = admitter.tick(at(1)).unwrap();
        assert!(admission.granted.is_empty());
        assert_eq!(admission.next_due, Some(at(60)));
        let waiting: u64 = admission.refusals.iter().map(|refusal| refusal.tasks).sum();
        assert_eq!(waiting, 4, "two, six, nowhere, acme-2");
        assert!(
            admission.refusals.iter().any(|refusal| matches!(refusal.reason, Reason::LimitReached { .. }))
        );

        // A busy pool may shrink; it then admits nothing until enough came back.
        store.write(|tx| tx.define([PoolSpec::new("db", Slots::Limited(2))?], IfExists::Replace)).unwrap();
        let pool = store.read(|tx| tx.pools(&["db".try_into()?])).unwrap().remove(0).unwrap();
        assert_eq!(pool.open(), Some(-3));
        end(&store, 2, Finish::success(leases[0]));
        assert_eq!(why("two"), "pool db: 1 open of 2, needs 2");
        end(&store, 2, Finish::success(leases[1]));
        assert_eq!(
            why("two"),
            "it fits: the next tick that serves its queue admits it, unless tasks before it take what is open"
        );
        audited(&store);
    }
}

fn context(text: &str) -> PokeContext {
    PokeContext::from_json(text).unwrap()
}

fn waits(interval: u64, timeout: u64) -> Settings {
    Settings::new(secs(interval), secs(timeout)).unwrap()
}

/// Enqueues, runs and registers a sensor of kind "file" for each name.
fn sense(store: &Shared, now: i64, names: &[&str], path: &str, settings: Settings) -> Vec<LeaseRef> {
    let tasks: Vec<NewTask> = names
        .iter()
        .map(|name| NewTask::new(key(name)).attempts_as_runs(true).feed(Feed::EndsAndSensors))
        .collect();
    put(store, now, &tasks);
    register_all(store, now, &run(store, now), path, settings)
}

fn register_all(
    store: &Shared,
    now: i64,
    leases: &[LeaseRef],
    path: &str,
    settings: Settings,
) -> Vec<LeaseRef> {
    let kind = || "file".try_into().unwrap();
    let sensors: Vec<NewSensor> = leases
        .iter()
        .map(|lease| NewSensor::new(*lease, kind(), context(&format!(r#"{{"path":"{path}"}}"#)), settings))
        .collect();
    let registered = store.write(|tx| tx.register(at(now), &sensors)).unwrap();
    assert!(
        registered.iter().all(|registered| matches!(registered, Registered::Waiting(_))),
        "{registered:?}"
    );
    leases.to_vec()
}

/// Gives the outcome that the test asks for, and counts.
#[derive(Clone)]
struct Oracle(Arc<(AtomicUsize, Mutex<PokeOutcome>)>);

impl Oracle {
    fn new(answer: PokeOutcome) -> Self {
        Self(Arc::new((AtomicUsize::new(0), Mutex::new(answer))))
    }

    fn say(&self, answer: PokeOutcome) {
        *self.0.1.lock() = answer;
    }

    fn asked(&self) -> usize {
        self.0.0.load(Ordering::SeqCst)
    }
}

impl Poke for Oracle {
    fn poke(&self, _: &PokeRequest) -> PokeOutcome {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        self.0.1.lock().clone()
    }
}

fn poker(store: &Shared, name: &str, oracle: &Oracle) -> Poker {
    Poker::new(store.clone(), name.try_into().unwrap())
        .shards(NonZeroU32::new(3).unwrap())
        .lease(secs(30))
        .wait_for_answers(secs(60))
        .kind("file".try_into().unwrap(), oracle.clone())
}

#[test]
fn sensors_give_their_slots_back_and_share_a_poke() {
    for store in stores() {
        let names: Vec<String> = (0..40).map(|n| format!("s{n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        sense(&store, 0, &names, "/in.csv", waits(10, 100));
        assert_eq!(used(&store, "default_pool"), 0);
        let oracle = Oracle::new(PokeOutcome::NotYet);
        let mut poker = poker(&store, "p", &oracle);
        let report = poker.tick(at(0)).unwrap();
        assert_eq!((report.loaded, report.groups, report.poked, report.saved), (40, 1, 1, 39));
        let quiet = poker.tick(at(0)).unwrap();
        assert_eq!((quiet.loaded, quiet.poked), (0, 0), "no change, nothing due: nothing to do");
        for now in 1..=20 {
            poker.tick(at(now)).unwrap();
        }
        assert_eq!(oracle.asked(), 3, "once at registration, then once in ten seconds");
        oracle.say(PokeOutcome::Landed(Some("2 MB".into())));
        let landed: usize = (21..=30).map(|now| poker.tick(at(now)).unwrap().landed).sum();
        assert_eq!(landed, 40);
        for name in names {
            let task = task(&store, name);
            assert_eq!((task.state, task.value.as_deref()), (TaskState::Success, Some("2 MB")));
        }
        let events = told(&store);
        assert_eq!(events.len(), 40);
        assert!(events.iter().all(|event| event.reason == Some(EndReason::Landed)));
        audited(&store);
    }
}

#[test]
fn sensors_that_join_one_by_one_do_not_poke_their_target_each_time() {
    for store in stores() {
        let oracle = Oracle::new(PokeOutcome::NotYet);
        let mut poker = poker(&store, "p", &oracle);
        for n in 0..5 {
            sense(&store, 0, &[&format!("s{n}")], "/in", waits(60, 1000));
            poker.tick(at(0)).unwrap();
        }
        assert_eq!(oracle.asked(), 1);
        poker.tick(at(1)).unwrap();
        assert_eq!(oracle.asked(), 2, "one look for all that joined, when the floor allows it");
        for now in 2..=61 {
            poker.tick(at(now)).unwrap();
        }
        assert_eq!(oracle.asked(), 3, "and then on the grid");
    }
}

#[test]
fn a_sensor_times_out_even_when_its_poke_cannot_look() {
    for store in stores() {
        sense(&store, 0, &["fails"], "/a", waits(10, 25));
        sense(&store, 0, &["skips"], "/b", waits(10, 25).on_missed(OnMissed::Skip));
        let oracle = Oracle::new(PokeOutcome::Unreachable("no route".into()));
        let mut poker = poker(&store, "p", &oracle);
        let mut timed_out = Vec::new();
        for now in 0..30 {
            let report = poker.tick(at(now)).unwrap();
            assert!(report.next_due.is_some_and(|due| due > at(now)), "a tick leaves nothing due behind");
            timed_out.extend((report.timed_out > 0).then_some((now, report.timed_out)));
        }
        assert_eq!(timed_out, [(25, 2)]);
        assert_eq!(task(&store, "fails").state, TaskState::Failed);
        assert_eq!(task(&store, "skips").state, TaskState::Skipped);
        assert!(task(&store, "fails").message.unwrap().starts_with("sensor timed out after 25.000 s"));
        audited(&store);
    }
}

#[test]
fn a_panicking_poke_is_contained() {
    for store in stores() {
        sense(&store, 0, &["t"], "/a", waits(10, 25));
        let poke = |_: &PokeRequest| -> PokeOutcome { std::panic::panic_any("out of cheese") };
        let mut poker = Poker::new(store.clone(), "p".try_into().unwrap())
            .wait_for_answers(secs(60))
            .kind("file".try_into().unwrap(), poke);
        let report = poker.tick(at(0)).unwrap();
        assert_eq!((report.poked, report.unreachable, report.sensors), (1, 1, 1));
    }
}

#[test]
fn a_poke_that_says_never_is_retried_by_the_tasks_policy() {
    for store in stores() {
        let retry = RetryPolicy::fixed(secs(5)).max_attempts(2).build().unwrap();
        put(&store, 0, &[NewTask::new(key("t")).retry(retry).feed(Feed::EndsAndSensors)]);
        register_all(&store, 0, &run(&store, 0), "/a", waits(10, 100));
        let oracle = Oracle::new(PokeOutcome::Failed("bad credentials".into()));
        let mut poker = poker(&store, "p", &oracle);
        assert_eq!(poker.tick(at(1)).unwrap().failed, 1);
        assert_eq!((task(&store, "t").state, task(&store, "t").due), (TaskState::UpForRetry, Some(at(6))));
        register_all(&store, 6, &run(&store, 6), "/a", waits(10, 100));
        let sensor = store.read(|tx| tx.sensors(&[key("t")])).unwrap().remove(0).unwrap();
        assert_eq!(sensor.generation, 2);
        assert_eq!(poker.tick(at(7)).unwrap().failed, 1);
        assert_eq!(task(&store, "t").state, TaskState::Failed);
        let failed = Some(EndReason::Failed);
        let to: Vec<_> =
            told(&store).iter().map(|event| (event.attempt, event.reason, event.state)).collect();
        assert_eq!(to, [(1, failed, TaskState::UpForRetry), (2, failed, TaskState::Failed)]);
    }
}

#[test]
fn a_landed_sensor_may_resume_its_task_with_the_value() {
    for store in stores() {
        sense(&store, 0, &["t"], "/a", waits(10, 100).on_landed(OnLanded::Resume));
        let oracle = Oracle::new(PokeOutcome::Landed(Some("part-7".into())));
        assert_eq!(poker(&store, "p", &oracle).tick(at(1)).unwrap().landed, 1);
        let resumed = task(&store, "t");
        assert_eq!((resumed.state, resumed.value.as_deref()), (TaskState::Scheduled, Some("part-7")));
        let lease = run(&store, 2)[0];
        assert_eq!(task(&store, "t").attempt, 2);
        assert_eq!(end(&store, 3, Finish::success(lease)), Finished::Ended(TaskState::Success));
        audited(&store);
    }
}

#[test]
fn a_task_tells_by_its_value_that_it_is_resumed_until_its_attempt_fails() {
    for store in stores() {
        let retry = RetryPolicy::fixed(secs(5)).max_attempts(2).build().unwrap();
        let waits = || waits(10, 100).on_landed(OnLanded::Resume);
        let oracle = Oracle::new(PokeOutcome::Landed(None));
        let mut poker = poker(&store, "p", &oracle);
        let mut lands = |now| assert_eq!(poker.tick(at(now)).unwrap().landed, 1);
        let value = || task(&store, "t").value;
        let nothing = Some(String::new());

        put(&store, 0, &[NewTask::new(key("t")).retry(retry)]);
        let first = run(&store, 0);
        assert_eq!(value(), None, "it has still to wait");
        register_all(&store, 0, &first, "/a", waits());
        lands(1);
        let resumed = run(&store, 1)[0];
        assert_eq!(value(), nothing, "it landed, without a value");
        end(&store, 1, Finish::given_back(resumed));
        run(&store, 2);
        assert_eq!(value(), nothing, "given back");
        assert_eq!(at_once(&store).tick(at(20)).unwrap().reaped.len(), 1);
        let again = run(&store, 20)[0];
        assert_eq!(value(), nothing, "its lease was lost");
        assert_eq!(end(&store, 20, Finish::failed(again, "why")), Finished::RetryAt(at(25)));
        at_once(&store).tick(at(25)).unwrap();
        let retried = run(&store, 25);
        assert_eq!(value(), None, "a retry waits again");
        register_all(&store, 25, &retried, "/a", waits());
        lands(26);
        run(&store, 26);
        assert_eq!(value(), nothing);
        audited(&store);
    }
}

#[test]
fn a_pool_may_let_sensing_tasks_keep_their_slots() {
    for store in stores() {
        let pool = PoolSpec::new("licence", Slots::Limited(1)).unwrap().sensing_keeps_slots(true);
        store.write(|tx| tx.define([&pool], IfExists::Replace)).unwrap();
        put(&store, 0, &[NewTask::new(key("t")).pool(pool.name.clone())]);
        register_all(&store, 0, &run(&store, 0), "/a", waits(10, 100));
        assert_eq!(used(&store, "licence"), 1);
        audited(&store);
        let oracle = Oracle::new(PokeOutcome::Landed(None));
        poker(&store, "p", &oracle).tick(at(1)).unwrap();
        assert_eq!(used(&store, "licence"), 0);
        audited(&store);
    }
}

#[test]
fn only_a_running_task_under_its_own_lease_registers() {
    for store in stores() {
        put(&store, 0, &[NewTask::new(key("queued"))]);
        let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
        let queued = admitter.tick(at(0)).unwrap().granted[0].lease_ref();
        let sensor = |lease| NewSensor::new(lease, "file".try_into().unwrap(), context("{}"), waits(1, 9));
        let stale = LeaseRef::new(queued.id, queued.epoch + 1);
        let refused = store.write(|tx| tx.register(at(0), &[sensor(queued), sensor(stale)])).unwrap();
        assert_eq!(refused, [Registered::NotRunning, Registered::Stale]);
        assert_eq!(task(&store, "queued").state, TaskState::Queued);
        store.write(|tx| tx.start(at(0), &[queued])).unwrap();
        let twice = store.write(|tx| tx.register(at(0), &[sensor(queued), sensor(queued)])).unwrap();
        assert!(matches!(&twice[..], [Registered::Waiting(_), Registered::Stale]), "{twice:?}");
        audited(&store);
    }
}

#[test]
fn a_marked_task_leaves_wherever_it_is() {
    for store in stores() {
        sense(&store, 0, &["sensing"], "/a", waits(10, 100));
        put(&store, 0, &[NewTask::new(key("running"))]);
        let lease = run(&store, 0)[0];
        put(&store, 0, &[NewTask::new(key("waiting")).not_before(at(99))]);
        let oracle = Oracle::new(PokeOutcome::NotYet);
        let mut poker = poker(&store, "p", &oracle);
        assert_eq!(poker.tick(at(0)).unwrap().sensors, 1);

        let names = ["sensing", "running", "waiting", "running", "ghost"];
        let marks = names.map(|name| Mark::new(key(name), TaskState::Skipped, "not needed"));
        let marked = store.write(|tx| tx.mark(at(1), &marks)).unwrap();
        let was = [
            Marked::Ended(TaskState::Sensing),
            Marked::Ended(TaskState::Running),
            Marked::Ended(TaskState::Scheduled),
            Marked::AlreadyEnded(TaskState::Skipped),
            Marked::Unknown,
        ];
        assert_eq!(marked, was);
        assert_eq!(end(&store, 2, Finish::success(lease)), Finished::Stale);
        assert_eq!(poker.tick(at(10)).unwrap().sensors, 0, "a sensor taken away is not poked");
        let events = told(&store);
        assert_eq!(
            (events.len(), events[0].reason),
            (1, Some(EndReason::Cancelled)),
            "the others are not in the feed"
        );
        let nothing =
            store.write(|tx| tx.mark(at(3), &[Mark::new(key("running"), TaskState::Running, "")])).unwrap();
        assert_eq!(nothing, [Marked::NotAnEnd]);
        assert_eq!(used(&store, "default_pool"), 0);
        audited(&store);
    }
}

#[test]
fn workers_share_the_shards_and_take_over_from_the_dead() {
    for store in stores() {
        let names: Vec<String> = (0..60).map(|n| format!("s{n}")).collect();
        for name in &names {
            sense(&store, 0, &[name], &format!("/{name}"), waits(10, 1000));
        }
        let oracle = Oracle::new(PokeOutcome::NotYet);
        let mut first = poker(&store, "a", &oracle);
        let mut second = poker(&store, "b", &oracle);
        assert_eq!(first.tick(at(0)).unwrap().sensors, 60);
        assert_eq!(second.tick(at(0)).unwrap().sensors, 0, "nothing is taken from a live worker");
        let kept = first.tick(at(10)).unwrap();
        assert_eq!(kept.shards, 2, "but it gives up what exceeds its quota when it renews");
        let taken = second.tick(at(10)).unwrap();
        assert_eq!((taken.shards, kept.sensors + taken.sensors), (1, 60));
        assert!(taken.sensors > 0);

        for now in 11..=40 {
            if now == 21 {
                oracle.0.0.store(0, Ordering::SeqCst);
            }
            first.tick(at(now)).unwrap();
            second.tick(at(now)).unwrap();
        }
        assert_eq!(oracle.asked(), 120, "each target once in each interval, whoever pokes it");

        // The second dies; its lease of 30 s ends, and the first takes its shard at its next renewal.
        let alone: Vec<u32> = (41..=90).map(|now| first.tick(at(now)).unwrap().shards).collect();
        assert_eq!(alone.first(), Some(&2));
        assert_eq!(alone.last(), Some(&3));
        assert_eq!(first.tick(at(91)).unwrap().sensors, 60);

        // A clean leave hands over at once.
        first.leave().unwrap();
        let mut third = poker(&store, "c", &oracle);
        assert_eq!(third.tick(at(92)).unwrap().sensors, 60);
    }
}

#[derive(Default, Clone)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl PokeLog for Lines {
    fn poked(&self, sensor: &SensorRecord, now: Timestamp, answer: &PokeOutcome) {
        self.0.lock().push(format!(
            "{} {} {} {answer:?}",
            now.as_micros() / 1_000_000,
            sensor.task.task,
            sensor.attempt
        ));
    }
}

#[test]
fn every_sensor_of_a_group_has_its_line_in_the_log() {
    for store in stores() {
        sense(&store, 0, &["a", "b"], "/in", waits(10, 100));
        let lines = Lines::default();
        let oracle = Oracle::new(PokeOutcome::NotYet);
        poker(&store, "p", &oracle).log(lines.clone()).tick(at(3)).unwrap();
        assert_eq!(*lines.0.lock(), ["3 a 1 NotYet", "3 b 1 NotYet"]);
        assert_eq!(oracle.asked(), 1);
    }
}

#[test]
fn recorded_attempts_are_in_the_index_of_runs() {
    for store in stores() {
        let retry = RetryPolicy::fixed(secs(5)).max_attempts(3).build().unwrap();
        let recorded = NewTask::new(key("t")).retry(retry).attempts_as_runs(true);
        put(&store, 0, &[recorded.lease_loss(LeaseLoss::Fail)]);
        let active = |begin: i64, end: i64| {
            let query = ActiveQuery::new(at(begin), at(end)).namespace("ns".try_into().unwrap());
            let runs = store.read(|tx| tx.active_runs(&query)).unwrap();
            runs.into_iter().map(|run| (run.key.id.to_string(), run.status)).collect::<Vec<_>>()
        };
        let id = task(&store, "t").id;
        let id = |attempt| attempt_run_id(&key("t"), id, attempt);
        let first = run(&store, 0)[0];
        assert_eq!(active(0, 1), [(id(1), RunStatus::Running)]);
        end(&store, 2, Finish::failed(first, "no"));
        assert_eq!(active(0, 1), [(id(1), RunStatus::Failed)]);
        assert_eq!(active(3, 7), []);
        let _lost = run(&store, 7);
        at_once(&store).tick(at(20)).unwrap();
        assert_eq!(active(10, 11), [(id(2), RunStatus::Failed)]);
        register_all(&store, 25, &run(&store, 25), "/a", waits(10, 100));
        assert_eq!(active(26, 27), [(id(3), RunStatus::Running)], "an attempt goes on while its task senses");
        poker(&store, "p", &Oracle::new(PokeOutcome::Landed(None))).tick(at(30)).unwrap();
        assert_eq!(active(26, 27), [(id(3), RunStatus::Completed)]);
        assert_eq!(active(0, 100).len(), 3);
    }
}

#[test]
fn enqueueing_again_changes_nothing_and_bad_tasks_are_refused_whole() {
    for store in stores() {
        put(&store, 0, &[NewTask::new(key("t")).priority(1)]);
        let again = store.write(|tx| tx.enqueue(at(5), &[NewTask::new(key("t")).priority(2)])).unwrap();
        assert!(matches!(again[0], Inserted::Exists(_)));
        assert_eq!((task(&store, "t").priority, task(&store, "t").enqueued_at), (1, at(0)));
        for bad in [
            NewTask::new(key("bad")).pool_slots(0),
            NewTask::new(key("bad")).pool_slots(u32::MAX),
            NewTask::new(key("bad")).payload("x".repeat(stationmaster::bounds::MAX_TEXT_BYTES + 1)),
            (0..17).fold(NewTask::new(key("bad")), |task, n| task.limit(n.to_string().try_into().unwrap())),
        ] {
            let refused = store.write(|tx| tx.enqueue(at(5), &[NewTask::new(key("good")), bad.clone()]));
            assert!(matches!(refused, Err(stationmaster::Error::Invalid(_))), "{refused:?}");
        }
        let none = store.read(|tx| tx.tasks(&[key("good"), key("bad")])).unwrap();
        assert_eq!(none, [None, None]);
    }
}

#[test]
fn old_ended_tasks_are_forgotten_when_asked_for() {
    for store in stores() {
        put(&store, 0, &[NewTask::new(key("old"))]);
        let lease = run(&store, 0)[0];
        end(&store, 1, Finish::success(lease));
        put(&store, 1, &[NewTask::new(key("open"))]);
        let mut keeps = at_once(&store);
        assert_eq!(keeps.tick(at(1_000_000)).unwrap().forgotten, 0);
        let mut forgets = at_once(&store).retain_ended_for(secs(60));
        assert_eq!(forgets.tick(at(61)).unwrap().forgotten, 0);
        assert_eq!(forgets.tick(at(62)).unwrap().forgotten, 1);
        assert_eq!(task(&store, "open").state, TaskState::Scheduled);
    }
}

#[test]
fn workers_that_died_long_ago_are_forgotten_by_the_living() {
    for store in stores() {
        let tick = |name: &str, now| {
            Poker::new(store.clone(), name.try_into().unwrap())
                .lease(secs(30))
                .shards(NonZeroU32::new(3).unwrap())
                .tick(at(now))
                .unwrap();
        };
        let known = || -> Vec<String> {
            let workers =
                store.read(|tx| Ok(raw(tx).live_workers(Timestamp::from_micros(i64::MIN))?)).unwrap();
            assert!(workers.iter().all(|worker| worker.shards.get() == 3));
            workers.iter().map(|worker| worker.name.to_string()).collect()
        };
        tick("a", 0);
        tick("b", 100);
        tick("c", 24 * 3600 + 30);
        assert_eq!(known(), ["a", "b", "c"], "a expired a day ago, and not longer");
        tick("c", 24 * 3600 + 31);
        assert_eq!(known(), ["b", "c"]);
    }
}
