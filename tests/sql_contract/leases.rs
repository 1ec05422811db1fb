//! Both fences: stale leases, and calls that took effect before.

use std::time::Duration;

use stationmaster::backoff::RetryPolicy;
use stationmaster::ops::{Finish, Finished};
use stationmaster::task::LeaseLoss;
use stationmaster::{LeaseRef, NewTask, TaskId, TaskRecord, Timestamp};

use crate::cancel::sensor;
use crate::world::{NOW, Why, databases, finish, key, values};

#[test]
fn a_stale_lease_fails_the_hosts_transaction_and_changes_nothing() {
    for make in databases() {
        let world = make();
        world.enqueue(&NewTask::new(key("t")).lease_loss(LeaseLoss::Requeue { at_most: 9 }), None);
        let stale = world.admit(NOW)[0].lease_ref();
        world.start(stale, NOW).unwrap();
        let started = world.state(&[key("t")]);
        world.start(stale, NOW + 1).unwrap();
        assert_eq!(world.state(&[key("t")]), started, "a second start changes nothing");
        let later = NOW + 60_000_000;
        assert_eq!(world.store.write(|tx| tx.reap(Timestamp::from_micros(later), 9)).unwrap().len(), 1);
        let lease = world.admit(later)[0].lease_ref();
        let before = world.state(&[key("t")]);

        let none = LeaseRef::new(TaskId(99), 1);
        for gone in [stale, LeaseRef::new(lease.id, lease.epoch + 1), none] {
            let refused = [
                world.start(gone, later),
                world.finish(gone, later, "success", None, None),
                world.finish(gone, later, "given_back", None, None),
            ];
            for refused in refused {
                assert_eq!(refused.unwrap_err().why(), Why::Stale);
            }
        }
        // As a host would do it: its own row goes with ours.
        world.host.batch(world.host.begin());
        world.host.ask("INSERT INTO orders VALUES (1, 'shipped')", &[]).unwrap();
        world.ask("finish", &finish(stale, later, "success", Some("x"), None)).unwrap_err();
        world.host.batch("ROLLBACK");
        let orders = world.host.ask("SELECT count(*) FROM orders", &[]).unwrap();
        assert_eq!((orders, world.state(&[key("t")])), (vec![values![0].into()], before));
        world.finish(lease, later, "success", None, None).unwrap();
    }
}

#[test]
fn a_finish_gives_back_all_pools_and_all_that_counts() {
    for make in databases() {
        let world = make();
        let names = ["success", "skipped", "failed", "given_back"];
        let task = |name: &str| {
            let task = NewTask::new(key(name)).pool("db".try_into().unwrap()).pool_slots(2);
            let task = task.also("keeps".try_into().unwrap(), 1);
            task.limit("a".try_into().unwrap()).limit_count("b".try_into().unwrap(), 5)
        };
        world.store.write(|tx| tx.enqueue(Timestamp::from_micros(NOW), &names.map(task))).unwrap();
        let used = || {
            let limits = ["a".try_into().unwrap(), "b".try_into().unwrap()];
            let pools = ["db".try_into().unwrap(), "keeps".try_into().unwrap()];
            let read = world.store.read(|tx| {
                assert_eq!(tx.audit()?, []);
                Ok((tx.pools(&pools)?, tx.limits(&limits)?))
            });
            let (pools, limits) = read.unwrap();
            let pools: Vec<i64> = pools.into_iter().flatten().map(|pool| pool.used).collect();
            (pools, limits.into_iter().map(|limit| limit.map_or(0, |limit| limit.used)).collect::<Vec<_>>())
        };
        for (task, left) in world.admit(NOW).into_iter().zip((0..4).rev()) {
            let outcome = task.key.task.as_str();
            world.start(task.lease_ref(), NOW).unwrap();
            world.finish(task.lease_ref(), NOW + 1, outcome, None, None).unwrap();
            assert_eq!(used(), (vec![2 * left, left], vec![left, 5 * left]), "{outcome}");
        }
    }
}

#[test]
fn a_repeated_finish_is_distinguished_from_a_stale_one() {
    for make in databases() {
        let world = make();
        let retry = RetryPolicy::fixed(Duration::from_secs(1)).build().unwrap();
        let tasks = ["success", "skipped", "failed", "given_back", "retried"];
        tasks.iter().for_each(|name| world.enqueue(&NewTask::new(key(name)).retry(retry.clone()), None));
        let again = |task: &TaskRecord, outcome: &str, text: Option<&str>, retry_at: Option<i64>| match world
            .finish(task.lease_ref(), NOW + 2, outcome, text, retry_at)
            .unwrap_err()
            .why()
        {
            Why::Repeated => true,
            Why::Stale => false,
            other => panic!("{other:?}"),
        };
        for tick in [NOW, NOW + 1] {
            for task in world.admit(tick) {
                let (outcome, retry_at) = match task.key.task.as_str() {
                    "retried" => ("failed", Some(NOW + 9)),
                    outcome => (outcome, None),
                };
                let text = (outcome != "given_back").then_some("x\u{1a}");
                if task.attempt > 1 {
                    continue;
                }
                world.finish(task.lease_ref(), NOW + 1, outcome, text, retry_at).unwrap();
                let before = world.state(std::slice::from_ref(&task.key));
                for other in ["success", "skipped", "failed", "given_back"] {
                    assert_eq!(again(&task, other, text, None), other == outcome, "{} as {other}", task.key);
                }
                assert!(!again(&task, "success", Some("y"), None), "another value is not stored");
                assert!(!again(&task, "success", None, None), "nor none");
                assert_eq!(world.state(std::slice::from_ref(&task.key)), before);
                // The crate reads what the statement wrote, and the other way round.
                let ends = [Finish::given_back(task.lease_ref())];
                let already =
                    world.store.write(|tx| tx.finish(Timestamp::from_micros(NOW + 2), &ends)).unwrap();
                assert_eq!(matches!(already[..], [Finished::Already(_)]), outcome == "given_back");
            }
        }
        let seen =
            tasks.map(|name| world.store.read(|tx| tx.tasks(&[key(name)])).unwrap().remove(0).unwrap());
        assert!(seen.iter().all(|task| task.attempt > 0), "each had its turn: {seen:?}");
    }
}

/// SQL does not compute the index of runs.
#[test]
fn recorded_attempts_are_refused() {
    for make in databases() {
        let world = make();
        let tasks = ["t", "sensor"].map(|name| NewTask::new(key(name)).attempts_as_runs(true));
        world.store.write(|tx| tx.enqueue(Timestamp::from_micros(NOW), &tasks)).unwrap();
        let leases: Vec<LeaseRef> = world.admit(NOW).iter().map(TaskRecord::lease_ref).collect();
        world.store.write(|tx| tx.start(Timestamp::from_micros(NOW), &leases[1..])).unwrap();
        let sensor = [sensor(leases[1])];
        world.store.write(|tx| tx.register(Timestamp::from_micros(NOW), &sensor)).unwrap();
        let before = world.state(&[key("t"), key("sensor")]);
        for refused in [
            world.start(leases[0], NOW),
            world.finish(leases[0], NOW, "success", None, None),
            world.cancel(leases[1].id.0, NOW, "skipped", "no"),
        ] {
            assert_eq!(refused.unwrap_err().why(), Why::Recorded);
        }
        assert_eq!(world.state(&[key("t"), key("sensor")]), before);
    }
}
