//! The bounds of lanes and of due instants: they are not above what waits, and do not stay below it.

use std::time::Duration;

use stationmaster::ops::Finish;
use stationmaster::task::LeaseLoss;
use stationmaster::testing::planner_settings;
use stationmaster::{NewTask, TaskState};

use super::hand::Hand;
use super::open_tick::OpenTick;
use super::scene::{LEVELS, Scene, key, later, now, order, task};

const CANDIDATES: &str = include_str!("../../../src/store/postgres/tx/tick/candidates.sql");
const PROMOTE: &str = include_str!("../../../src/store/postgres/tx/promote.sql");

/// How many tasks are remembered one by one before a bound.
const MOST_EARLY: usize = 32;

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n:03}")).collect()
}

fn enqueue(scene: &Scene, names: &[String], change: impl Fn(NewTask) -> NewTask) {
    let tasks: Vec<NewTask> = names.iter().map(|name| change(task(name))).collect();
    scene.store.write(|tx| tx.enqueue(now(), &tasks)).unwrap();
}

/// A host that cancels these tasks and stays open.
fn cancelling(scene: &Scene, level: &str, names: &[String]) -> Hand {
    let host = Hand::begin(&scene.scratch.0, level);
    let marks: Vec<_> =
        names.iter().map(|name| stationmaster::ops::Mark::new(key(name), TaskState::Failed, "m")).collect();
    host.call(move |tx| tx.mark(now(), &marks).map(|marked| marked.len().to_string())).done();
    host
}

fn end(host: Hand, commits: bool) {
    match commits {
        true => host.commit(),
        false => host.rollback(),
    }
}

/// The next task that is granted brings the bound behind itself, and nothing stays early.
fn nothing_is_before_the_bound(scene: &Scene, of: &str) {
    enqueue(scene, &["last".to_owned()], |task| task);
    assert_eq!(scene.granted(later(100), 999), ["last"], "{of}");
    let last = scene.task("last").id.0;
    let reach = scene.numbers("SELECT no, cardinality(early) FROM sm.lane_use");
    assert_eq!(reach, [last + 1, 0], "{of}: the bound, and how many are early");
    scene.audit();
}

/// A grant of a few tasks, whose commit goes along, leaves what another one leaves.
#[test]
fn a_short_grant_counts_as_another_one_does() {
    let [short, long] = [Scene::new(), Scene::new()];
    let left = "SELECT concat('pool ', used) FROM sm.pool_use
        UNION ALL SELECT concat('lane ', ready, ' ', tasks, ' ', ARRAY[rank, logical_date, map_index, no], ' ', early)
          FROM sm.lane_use
        UNION ALL SELECT concat('tick ', at, ' ', nos, ' ', epochs) FROM sm.request
        UNION ALL SELECT row_to_json(lease)::text FROM sm.lease ORDER BY 1";
    for scene in [&short, &long] {
        enqueue(scene, &names("t", 20), |task| task);
    }
    // The first ones raise the bound. Those that are urgent are enqueued alone, and so stay early.
    for (budget, urgent) in [(5, 3), (1, 0), (2, 1), (9, 0), (16, 0)] {
        let expected = long.store.write(|tx| tx.admit(now(), &order(budget))).unwrap().granted;
        let granted = short.tick(budget);
        assert_eq!(granted, expected, "{budget}");
        assert_eq!(short.ask(left), long.ask(left), "{budget}");
        for scene in [&short, &long] {
            scene.audit();
            for name in names(&format!("urgent {budget} "), urgent) {
                enqueue(scene, &[name], |task| task.priority(9));
            }
        }
    }
}

/// The stamps of shares follow the grant under the same lock, so the commit must not go along with the grant.
#[test]
fn a_tick_with_shares_commits_once() {
    let scene = Scene::new();
    for (name, share) in [("a", "tenant/a"), ("b", "tenant/b")] {
        enqueue(&scene, &[name.to_owned()], |task| task.share(share.try_into().unwrap()));
    }
    assert_eq!(scene.tick(9).len(), 2);
    let written = "SELECT count(DISTINCT xmin) FROM (
        SELECT xmin::text FROM sm.lease UNION ALL SELECT xmin::text FROM sm.share_use
        UNION ALL SELECT xmin::text FROM sm.share_clock WHERE grants > 0) written";
    assert_eq!(scene.numbers(written), [1]);
    assert!(scene.numbers("SELECT grants FROM sm.share_clock") > vec![0], "stamps were noted");
    scene.audit();
}

/// A host has the first tasks of a lane locked. Ticks grant those behind them, and then these, if they still wait.
#[test]
fn a_locked_head_that_is_rolled_back() {
    for level in LEVELS {
        for locked in [1, 3, MOST_EARLY + 8] {
            for commits in [false, true] {
                let of = format!("{level}, {locked} locked, committed: {commits}");
                let scene = Scene::new();
                let names = names("t", 100);
                enqueue(&scene, &names, |task| task);
                let host = cancelling(&scene, level, &names[..locked]);
                for page in names[locked..].chunks(15) {
                    assert_eq!(scene.granted(now(), 15), page, "{of}");
                    scene.audit();
                }
                end(host, commits);
                scene.audit();
                let left = if commits { &[][..] } else { &names[..locked] };
                assert_eq!(scene.granted(now(), 999), left, "{of}");
                nothing_is_before_the_bound(&scene, &of);
            }
        }
    }
}

/// The same for tasks that wait for an instant.
#[test]
fn a_locked_due_task_that_is_rolled_back() {
    for locked in [1, 3, MOST_EARLY + 8] {
        for commits in [false, true] {
            let of = format!("{locked} locked, committed: {commits}");
            let scene = Scene::new();
            let names = names("t", 100);
            enqueue(&scene, &names, |task| task.not_before(later(5)));
            let host = cancelling(&scene, "READ COMMITTED", &names[..locked]);
            assert_eq!(scene.granted(later(6), 999), &names[locked..], "{of}");
            scene.audit();
            assert_eq!(scene.granted(later(7), 999), [""; 0], "{of}");
            end(host, commits);
            let left = if commits { &[][..] } else { &names[..locked] };
            assert_eq!(scene.granted(later(8), 999), left, "{of}");
            enqueue(&scene, &["later".to_owned()], |task| task.not_before(later(20)));
            assert_eq!(scene.granted(later(21), 9), ["later"], "{of}");
            enqueue(&scene, &["earlier".to_owned()], |task| task.not_before(later(2)));
            assert_eq!(scene.granted(later(22), 9), ["earlier"], "{of}");
            scene.audit();
            let reach = scene.numbers("SELECT (due > 0)::int, cardinality(early) FROM sm.tick");
            assert_eq!(reach, [1, 0], "{of}: the bound, and how many are early");
            nothing_is_before_the_bound(&scene, &of);
        }
    }
}

/// A way in which tasks come to stand before a bound that has risen over them.
type Way = fn(&Scene, &[String]);

fn finish(scene: &Scene, names: &[String], end: fn(stationmaster::LeaseRef) -> Finish) {
    let ends: Vec<Finish> = names.iter().map(|name| end(scene.lease(name))).collect();
    scene
        .store
        .write(|tx| {
            tx.start(now(), &ends.iter().map(|end| end.lease).collect::<Vec<_>>())?;
            tx.finish(now(), &ends)
        })
        .unwrap();
}

/// What each way does with tasks that were granted. The last ones are new.
const WAYS: [(&str, Way); 6] = [
    ("given back", |scene, names| finish(scene, names, Finish::given_back)),
    ("retried", |scene, names| finish(scene, names, |lease| Finish::failed(lease, "m"))),
    ("cleared", |scene, names| {
        finish(scene, names, Finish::success);
        scene
            .store
            .write(|tx| tx.clear(now(), &names.iter().map(|name| key(name)).collect::<Vec<_>>()))
            .unwrap();
    }),
    ("requeued", |scene, names| {
        // The others are renewed.
        let mut others = scene.tick_at(now(), 0);
        assert!(others.is_empty());
        for no in scene.numbers("SELECT no FROM sm.lease ORDER BY no") {
            others.extend(
                scene.store.read(|tx| tx.tasks_by_id(&[stationmaster::TaskId(no)])).unwrap().remove(0),
            );
        }
        others.retain(|task| !names.iter().any(|name| task.key == key(name)));
        let leases: Vec<_> = others.iter().map(|task| task.lease_ref()).collect();
        let reaped = scene.store.write(|tx| {
            tx.renew(now(), Duration::from_secs(9_000), &leases)?;
            tx.reap(later(61), 999)
        });
        assert_eq!(reaped.unwrap().len(), names.len());
    }),
    ("of a higher priority", |scene, names| {
        let of = |name: &String| format!("{name} first");
        enqueue(scene, &names.iter().map(of).collect::<Vec<_>>(), |task| task.priority(9));
    }),
    ("committed late", |scene, names| {
        let late = Hand::begin(&scene.scratch.0, "READ COMMITTED");
        let tasks: Vec<NewTask> = names.iter().map(|name| task(&format!("{name} late"))).collect();
        late.call(move |tx| tx.enqueue(now(), &tasks).map(|done| done.len().to_string())).done();
        enqueue(scene, &["between".to_owned()], |task| task);
        assert_eq!(scene.granted(now(), 9), ["between"]);
        late.commit();
    }),
];

/// Ticks find at once what comes to stand before a bound, in the order of admission.
#[test]
fn what_comes_before_a_bound_is_found() {
    for (way, comes) in WAYS {
        for count in [1, 5, MOST_EARLY, MOST_EARLY + 8] {
            let scene = Scene::new();
            let names = names("t", 50);
            enqueue(&scene, &names, |task| task.lease_loss(LeaseLoss::Requeue { at_most: 9 }));
            assert_eq!(scene.granted(now(), 999), names);
            for one_by_one in [false, true] {
                let of = format!("{count} {way}, one by one: {one_by_one}");
                let chosen: Vec<String> = names.iter().skip(3).take(count).cloned().collect();
                match one_by_one {
                    true if ["given back", "retried", "cleared"].contains(&way) => {
                        chosen.chunks(1).for_each(|name| comes(&scene, name));
                    }
                    true => continue,
                    false => comes(&scene, &chosen),
                }
                scene.audit();
                let found = scene.granted(later(50), 999);
                assert_eq!(found.len(), count, "{of}");
                assert!(
                    found.iter().zip(&chosen).all(|(found, name)| found.starts_with(&**name)),
                    "{of}: {found:?}"
                );
                scene.audit();
            }
            nothing_is_before_the_bound(&scene, way);
        }
    }
}

/// A tick that rolls back has granted nothing, and the bound is where it was.
#[test]
fn what_a_tick_granted_that_was_rolled_back_is_found() {
    let scene = Scene::new();
    let names = names("t", 60);
    enqueue(&scene, &names, |task| task);
    assert_eq!(scene.granted(now(), 20), &names[..20]);
    assert_eq!(OpenTick::begin(&scene, now(), 30).rollback(), 30);
    assert_eq!(scene.granted(now(), 20), &names[20..40]);
    let due = |at: u64| move |task: NewTask| task.not_before(later(at));
    enqueue(&scene, &["due".to_owned()], due(5));
    assert_eq!(OpenTick::begin(&scene, later(6), 99).rollback(), 21);
    assert_eq!(scene.granted(later(6), 99).len(), 21);
    nothing_is_before_the_bound(&scene, "rolled back");
}

/// How many tasks leave dead rows behind.
const DEAD: usize = 8_000;

/// How many buffers a statement touches in all, as the server counts them.
fn buffers(scene: &Scene, before: &str, statement: &str) -> i64 {
    let settings: String = planner_settings().iter().map(|set| format!("SET LOCAL {set};")).collect();
    let plan = scene.ask(&format!(
        "BEGIN; {settings} {before}; EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}; ROLLBACK"
    ));
    let plan: serde_json::Value = serde_json::from_str(plan.last().unwrap()[0].as_deref().unwrap()).unwrap();
    let plan = &plan[0]["Plan"];
    ["Shared Hit Blocks", "Shared Read Blocks"].iter().map(|what| plan[*what].as_i64().unwrap()).sum()
}

/// An old snapshot keeps the dead rows of all that was granted, and their entries in the index.
#[test]
fn a_page_reads_no_dead_rows() {
    let scene = Scene::new();
    let reader = Hand::begin(&scene.scratch.0, "REPEATABLE READ");
    reader.sql("SELECT txid_current_snapshot()").done();
    enqueue(&scene, &names("t", DEAD), |task| task);
    while scene.tick(999).len() == 999 {}
    enqueue(&scene, &names("more", 10), |task| task);
    let page = |rank: &str| {
        let bound = scene.ask(
            "SELECT digest::text, rank, logical_date, map_index, no FROM sm.lane_use ORDER BY version DESC LIMIT 1",
        );
        let column = |at: usize| format!("{{{}}}", bound[0][at].as_deref().unwrap());
        let rank = if rank.is_empty() { column(1) } else { rank.to_owned() };
        let page = [&column(0), &rank, &column(2), &column(3), &column(4), "{512}", "{}", "{}"];
        buffers(&scene, "SELECT", &scene.sql(&CANDIDATES.replace("{lock}", "OFFSET 0"), &page))
    };
    let (bound, begin) = (page(""), page("{-9223372036854775808}"));
    assert!(begin > 120, "the dead rows are there: {begin} buffers");
    assert!(bound * 5 < begin, "{bound} buffers behind the bound, {begin} from the beginning");
    reader.rollback();
}

/// The same for tasks that wait for an instant.
#[test]
fn a_promotion_reads_no_dead_rows() {
    let scene = Scene::new();
    let reader = Hand::begin(&scene.scratch.0, "REPEATABLE READ");
    reader.sql("SELECT txid_current_snapshot()").done();
    enqueue(&scene, &names("t", DEAD), |task| task.not_before(later(5)));
    assert_eq!(scene.tick_at(later(6), 1).len(), 1);
    enqueue(&scene, &names("more", 3), |task| task.not_before(later(7)));
    scene.tick_at(later(6), 1);
    let promote = |due: &str| {
        let values = [&later(8).as_micros().to_string(), "10000"];
        buffers(&scene, &scene.sql(due, &[]), &scene.sql(PROMOTE, &values))
    };
    let (bound, begin) = (promote("SELECT"), promote("UPDATE sm.tick SET due = 0"));
    assert!(begin > 200, "the dead rows are there: {begin} buffers");
    assert!(bound * 3 < begin, "{bound} buffers behind the bound, {begin} from the beginning");
    reader.rollback();
}
