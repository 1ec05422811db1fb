//! A busy pool of high priority and a free one of low priority (apache/airflow#45636).

use stationmaster::admission::limits;
use stationmaster::admission::{AirflowWindow, Policy};
use stationmaster::pool::Slots;
use stationmaster::{NewTask, TaskKey, TaskRecord};

use crate::{Scene, key, on_every_store};

fn task(pool: &str, name: &str, index: u32, priority: i32) -> NewTask {
    let key: TaskKey = key(name).mapped(index);
    let keys = [limits::workflow(&key), limits::task(&key), limits::task_in_run(&key)].map(Result::unwrap);
    let task = NewTask::new(key).pool(pool.try_into().unwrap()).priority(priority);
    keys.into_iter().fold(task, NewTask::limit)
}

/// A pool of 20 slots, 19 of them taken, for which 981 tasks of high priority wait; and another one, free, for which 100
/// of low priority do. Before each tick but the first a slot of the busy pool comes free. Answers the number of the first
/// tick that admits one of low priority, and how many of high priority were admitted by then.
fn first_low(scene: &Scene<'_>, policy: &Policy) -> (usize, usize) {
    scene.pool("busy", Slots::Limited(20));
    scene.pool("free", Slots::Limited(20));
    scene.pool("default_pool", Slots::Limited(0));
    scene.put(0, &(0..19).map(|n| task("busy", "running", n, 2)).collect::<Vec<_>>());
    let mut running = scene.tick(0, &Policy::Backfill).granted;
    scene.put(0, &(0..981).map(|n| task("busy", "high", n, 2)).collect::<Vec<_>>());
    scene.put(0, &(0..100).map(|n| task("free", "low", n, 1)).collect::<Vec<_>>());
    let mut high = 0;
    for tick in 1.. {
        let granted = scene.tick(tick as i64, policy).granted;
        let low = |task: &&TaskRecord| task.key.task.as_str() == "low";
        high += granted.iter().filter(|task| !low(task)).count();
        if granted.iter().any(|task| low(&task)) {
            return (tick, high);
        }
        running.extend(granted);
        scene.succeed(tick as i64, &running.remove(0));
    }
    unreachable!("the free pool is never admitted from")
}

#[test]
fn the_default_policy_admits_from_the_free_pool_at_once() {
    on_every_store(|scene| assert_eq!(first_low(scene, &Policy::Backfill), (1, 1)));
}

#[test]
fn so_does_a_reservation() {
    on_every_store(|scene| {
        let policy = Policy::Reserve { after: std::time::Duration::ZERO };
        assert_eq!(first_low(scene, &policy), (1, 1));
    });
}

/// As long as 21 tasks wait for the busy pool, they fill the window of 21: one open slot here and twenty there.
#[test]
fn airflows_window_hides_it_until_its_962nd_call() {
    on_every_store(|scene| {
        let policy = Policy::AirflowWindow(AirflowWindow::new(32));
        assert_eq!(first_low(scene, &policy), (962, 962));
    });
}
