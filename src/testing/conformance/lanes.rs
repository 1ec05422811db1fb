//! Lanes, their counters, and the pages of candidates.

use super::random::Random;
use super::steps::Steps;
use super::world::{World, at, limit, pool, task, to};
use crate::admission::{LaneId, LaneKey, LanePage, OrderKey};
use crate::lease::TaskId;
use crate::store::Store;
use crate::store::contract::StoreTx;
use crate::task::{NewTask, TaskState};

cases!("lanes":
    tasks_of_equal_needs_share_a_lane,
    lanes_come_by_number,
    counters_follow_the_tasks,
    candidates_come_in_order,
    pages_go_on_exactly_after_their_cursor,
    candidates_tell_since_when_they_are_ready_if_asked,
    a_cursor_need_not_be_a_task,
    several_pages_are_answered_one_after_another,
    unknown_and_empty_lanes_have_no_candidates,
    only_ready_tasks_are_candidates,
);

fn the_lane(world: World<'_>) -> LaneId {
    let lanes = world.read(|tx| tx.ready_lanes());
    assert_eq!(lanes.len(), 1, "{lanes:?}");
    lanes[0].id
}

fn page(tx: &mut dyn StoreTx, pages: &[LanePage]) -> crate::error::StoreResult<Vec<TaskId>> {
    let found = tx.candidates(pages)?;
    Ok(found.iter().map(|candidate| candidate.order.id).collect())
}

fn tasks_of_equal_needs_share_a_lane(store: &dyn Store) {
    let world = World(store);
    let (a, b) = (limit("a"), limit("b"));
    world.insert(&[
        task("1"),
        task("2").pool_slots(2),
        task("3").pool(pool("db")),
        task("4").limit(a.clone()),
        task("5").limit(b.clone()).limit(a.clone()),
        task("6").limit(a.clone()).limit(b.clone()),
        task("7").priority(5).payload("x"),
        task("8").limit(limit("ab")),
    ]);
    let mut lanes: Vec<(LaneKey, u64)> = world
        .read(|tx| tx.ready_lanes())
        .into_iter()
        .map(|lane| (LaneKey::clone(&lane.key), lane.ready))
        .collect();
    lanes.sort();
    let (db, default) = (pool("db"), pool("default_pool"));
    let key =
        |pool: &crate::id::PoolName, slots, limits: &[_]| LaneKey::new(pool.clone(), slots, limits.to_vec());
    let mut expected = vec![
        (key(&db, 1, &[]), 1),
        (key(&default, 1, &[]), 2),
        (key(&default, 2, &[]), 1),
        (key(&default, 1, std::slice::from_ref(&a)), 1),
        (key(&default, 1, &[a, b]), 2),
        (key(&default, 1, &[limit("ab")]), 1),
    ];
    expected.sort();
    assert_eq!(lanes, expected);
}

fn lanes_come_by_number(store: &dyn Store) {
    let world = World(store);
    let news: Vec<NewTask> = (0..20).map(|n| task(&n.to_string()).pool_slots(21 - n)).collect();
    world.insert(&news);
    let lanes = world.read(|tx| tx.ready_lanes());
    assert_eq!(lanes.len(), 20);
    assert!(lanes.windows(2).all(|pair| pair[0].id < pair[1].id), "{lanes:?}");
    let again = world.read(|tx| tx.ready_lanes());
    assert_eq!(lanes, again, "a lane keeps its number");
}

fn counters_follow_the_tasks(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&[task("a"), task("b"), task("c").not_before(at(50))]);
    let lane = the_lane(world);
    assert_eq!(world.ready(), 2);
    let lease = world.run(&ids[..1])[0];
    assert_eq!(world.ready(), 1, "a granted task is not ready");
    world.write(|tx| tx.promote_due(at(50)));
    assert_eq!(world.ready(), 2, "a promoted one is");
    world.shift(&[to(lease, TaskState::Scheduled)]);
    assert_eq!(world.ready(), 3, "so is one that was scheduled again");
    world.run(&ids);
    assert_eq!(world.read(|tx| tx.ready_lanes()), [], "a lane without ready tasks is left out");
    world.plain(&["d"]);
    assert_eq!(the_lane(world), lane, "and comes back under its number");
}

fn ordered(world: World<'_>) -> Vec<TaskId> {
    let mut random = Random::new(7);
    let mut news = Vec::new();
    for n in 0..60 {
        let mut new = task(&format!("{n}"))
            .priority(random.below(4) as i32 - 2)
            .logical_date(at(random.instant(3) - 1));
        if !random.once_in(3) {
            new.key = new.key.mapped(random.below(3) as u32);
        }
        news.push(new);
    }
    let ids = world.insert(&news);
    let mut tasks: Vec<_> = world.read(|tx| tx.tasks_by_id(&ids)).into_iter().flatten().collect();
    tasks.sort_by_key(|task| (-i64::from(task.priority), task.logical_date, task.key.map_index, task.id));
    tasks.iter().map(|task| task.id).collect()
}

fn candidates_come_in_order(store: &dyn Store) {
    let world = World(store);
    let expected = ordered(world);
    let lane = the_lane(world);
    let found = world.read(|tx| tx.candidates(&[LanePage::new(lane, None, 1000)]));
    assert!(found.iter().all(|candidate| candidate.lane == lane));
    assert_eq!(found.iter().map(|candidate| candidate.order.id).collect::<Vec<_>>(), expected);
    let tasks = world.read(|tx| tx.tasks_by_id(&expected));
    let orders: Vec<OrderKey> = tasks.into_iter().flatten().map(|task| task.order()).collect();
    assert_eq!(found.iter().map(|candidate| candidate.order).collect::<Vec<_>>(), orders);
}

fn pages_go_on_exactly_after_their_cursor(store: &dyn Store) {
    let world = World(store);
    let expected = ordered(world);
    let lane = the_lane(world);
    for size in [1, 7, 60, 61] {
        let (mut after, mut found) = (None, Vec::new());
        loop {
            let page = world.read(|tx| tx.candidates(&[LanePage::new(lane, after, size)]));
            found.extend(page.iter().map(|candidate| candidate.order.id));
            after = page.last().map(|candidate| candidate.order);
            assert!(found.len() <= expected.len(), "pages of {size} repeat a task");
            if page.len() < size {
                break;
            }
        }
        assert_eq!(found, expected, "in pages of {size}");
    }
    assert_eq!(world.read(|tx| page(tx, &[LanePage::new(lane, None, 0)])), []);
    assert_eq!(world.read(|tx| page(tx, &[LanePage::new(lane, None, usize::MAX)])), expected);
}

fn candidates_tell_since_when_they_are_ready_if_asked(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c"]);
    world.insert(&[task("due").not_before(at(30))]);
    let mut again = super::world::to(world.run(&ids[..1])[0], crate::task::TaskState::Scheduled);
    again.ended_at = Some(at(25));
    world.shift(&[again]);
    world.write(|tx| tx.promote_due(at(40)));
    let lane = world.read(|tx| tx.ready_lanes())[0].id;
    let page = LanePage::new(lane, None, 9);
    let ready_at = |page: LanePage| -> Vec<_> {
        world.read(|tx| tx.candidates(&[page])).iter().map(|candidate| candidate.ready_at).collect()
    };
    assert_eq!(ready_at(page), [None; 4]);
    let (a, b, c, due) = (Some(at(25)), Some(at(0)), Some(at(0)), Some(at(30)));
    assert_eq!(ready_at(page.with_ready_at(true)), [a, b, c, due]);
    let after = Some(world.task(ids[1]).order());
    assert_eq!(ready_at(LanePage::new(lane, after, 1).with_ready_at(true)), [c]);
}

fn a_cursor_need_not_be_a_task(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&[task("a").priority(1), task("b").priority(-1)]);
    let lane = the_lane(world);
    let after = |rank, date: i64, map, id| {
        let order = OrderKey::new(rank, at(date), map, TaskId(id));
        world.read(|tx| page(tx, &[LanePage::new(lane, Some(order), 9)]))
    };
    assert_eq!(after(i64::MIN, 0, None, 0), ids);
    assert_eq!(after(-1, -1, Some(u32::MAX), i64::MAX), ids);
    assert_eq!(after(-1, 0, None, ids[0].0 - 1), ids);
    assert_eq!(after(-1, 0, None, ids[0].0), ids[1..]);
    assert_eq!(after(-1, 0, Some(0), i64::MIN), ids[1..]);
    assert_eq!(after(1, 0, None, ids[1].0), []);
    assert_eq!(after(i64::MAX, 0, None, 0), []);
}

fn several_pages_are_answered_one_after_another(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&[
        task("a1"),
        task("b1").pool_slots(2).priority(9),
        task("a2"),
        task("b2").pool_slots(2).priority(10),
        task("a3"),
    ]);
    let lanes = world.read(|tx| tx.ready_lanes());
    let lane = |slots| lanes.iter().find(|lane| lane.key.slots == slots).unwrap().id;
    let pages = [LanePage::new(lane(2), None, 9), LanePage::new(lane(1), None, 2)];
    assert_eq!(world.read(|tx| page(tx, &pages)), [ids[3], ids[1], ids[0], ids[2]]);
    let pages = [pages[1], pages[0]];
    assert_eq!(world.read(|tx| page(tx, &pages)), [ids[0], ids[2], ids[3], ids[1]]);
    let cursor = world.task(ids[2]).order();
    let pages = [LanePage::new(lane(1), Some(cursor), 9), LanePage::new(lane(2), None, 1)];
    assert_eq!(world.read(|tx| page(tx, &pages)), [ids[4], ids[3]]);
}

fn unknown_and_empty_lanes_have_no_candidates(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a"]);
    let lane = the_lane(world);
    world.admit(&ids);
    for lane in [lane, LaneId(lane.0 + 1000), LaneId(-1)] {
        assert_eq!(world.read(|tx| page(tx, &[LanePage::new(lane, None, 9)])), []);
    }
}

fn only_ready_tasks_are_candidates(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&["ready", "queued", "running", "ended", "retried"].map(task));
    world.insert(&[task("later").not_before(at(99))]);
    let lane = the_lane(world);
    world.admit(&ids[1..2]);
    let leases = world.run(&ids[2..]);
    let mut retry = to(leases[2], TaskState::UpForRetry);
    retry.due = Some(at(500));
    world.shift(&[to(leases[1], TaskState::Success), retry]);
    assert_eq!(world.read(|tx| page(tx, &[LanePage::new(lane, None, 9)])), ids[..1]);
    assert_eq!(world.ready(), 1);
}
