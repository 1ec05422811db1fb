//! Tasks that are ready with slots that they kept while they sensed.

use super::steps::Steps;
use super::world::{World, at, holder, limit, pool, sized, task, to};
use crate::admission::{LaneId, LanePage};
use crate::lease::{LeaseRef, TaskId};
use crate::store::Store;
use crate::store::contract::{GrantBatch, Move, SurveyQuery};
use crate::task::{TaskRecord, TaskState};

cases!("keeping":
    what_goes_on_keeps_its_slots_in_a_lane_of_its_own,
    its_pages_go_on_behind_their_cursor,
    its_grant_takes_no_slots,
    it_is_granted_beside_others_all_or_none,
    what_ends_it_gives_its_slots_back,
    what_it_kept_of_other_pools_comes_back_as_well,
);

/// Makes sensors of ready tasks that keep their slots, and lets them go on.
pub(super) fn resume(world: World<'_>, ids: &[TaskId]) {
    let leases = world.run(ids);
    for state in [TaskState::Sensing, TaskState::Scheduled] {
        let keeping = |lease: &LeaseRef| Move { keeps_slots: true, ..to(*lease, state) };
        let moves: Vec<Move> = leases.iter().map(keeping).collect();
        assert!(world.shift(&moves).iter().all(|moved| *moved));
    }
}

/// Three tasks of four slots with a limit key, of which the last two kept their slots.
fn scene(world: World<'_>) -> Vec<TaskId> {
    world.write(|tx| tx.put_pools(&[sized("db", 12)]));
    let news = ["a", "b", "c"].map(|name| task(name).pool(pool("db")).pool_slots(4).limit(limit("k")));
    let ids = world.insert(&news);
    resume(world, &ids[1..]);
    ids
}

fn what_goes_on_keeps_its_slots_in_a_lane_of_its_own(store: &dyn Store) {
    let world = World(store);
    let ids = scene(world);
    let TaskRecord { state, due, held_slots, lease, .. } = world.task(ids[1]);
    assert_eq!((state, due, held_slots, lease), (TaskState::Scheduled, None, 4, None));
    assert_eq!(world.used(&pool("db")), 8);

    let lanes = world.read(|tx| tx.ready_lanes());
    let [keeping, others] = &lanes[..] else { panic!("two lanes: {lanes:?}") };
    assert_eq!((keeping.keeps_slots, keeping.ready), (true, 2));
    assert_eq!((others.keeps_slots, others.ready), (false, 1));
    assert_eq!(keeping.id, LaneId(-others.id.0));
    assert_eq!(keeping.key, others.key);
    let lanes_of = |queue: &str| {
        let query = SurveyQuery::new().queues(Some([queue.try_into().unwrap()].into()));
        world.read(|tx| tx.survey(&query)).lanes
    };
    assert_eq!((lanes_of("default"), lanes_of("other")), (lanes.clone(), Vec::new()));

    let stats = world.read(|tx| tx.pool_stats(&[pool("db")])).remove(0).unwrap();
    assert_eq!((stats.scheduled, stats.sensing, stats.open), (12, 0, Some(4)));
    let queue = world.read(|tx| tx.queues()).remove(0);
    assert_eq!((queue.ready, queue.waiting, queue.leased, queue.sensing), (3, 3, 0, 0));
    let sums = world.read(|tx| tx.count_tasks(9));
    assert_eq!((sums.open, sums.ready), (3, 3));
    assert_eq!(world.read(|tx| tx.audit()), []);
}

fn its_pages_go_on_behind_their_cursor(store: &dyn Store) {
    let world = World(store);
    let news: Vec<_> = (0..6).map(|n| task(&n.to_string()).priority(-n)).collect();
    let ids = world.insert(&news);
    resume(world, &[ids[5], ids[1], ids[3]]);
    let lanes = world.read(|tx| tx.ready_lanes());
    let page = |at: usize, after, limit| {
        let page = LanePage::new(lanes[at].id, after, limit).with_ready_at(true);
        world.read(|tx| tx.candidates(&[page]))
    };
    let first = page(0, None, 2);
    let numbers =
        |found: &[crate::admission::Candidate]| found.iter().map(|task| task.order.id).collect::<Vec<_>>();
    assert_eq!(numbers(&first), [ids[1], ids[3]]);
    assert_eq!(first[0].ready_at, Some(world.task(ids[1]).ready_at));
    assert_eq!(numbers(&page(0, Some(first[1].order), 2)), [ids[5]]);
    assert_eq!(numbers(&page(0, Some(first[0].order), 1)), [ids[3]]);
    assert_eq!(numbers(&page(1, None, 9)), [ids[0], ids[2], ids[4]]);
    let both = [1, 0].map(|at| LanePage::new(lanes[at].id, None, 9));
    let both = world.read(|tx| tx.candidates(&both));
    assert_eq!(numbers(&both), [0, 2, 4, 1, 3, 5].map(|at| ids[at]));
}

fn its_grant_takes_no_slots(store: &dyn Store) {
    let world = World(store);
    let ids = scene(world);
    // There is room for nothing that misses a slot.
    world.write(|tx| tx.put_pools(&[sized("db", 1)]));
    assert!(!world.admit_if_room(&ids[..1]));
    let granted = world.admit(&ids[1..]);
    assert_eq!(granted.iter().map(|task| task.held_slots).collect::<Vec<_>>(), [4, 4]);
    assert_eq!(world.used(&pool("db")), 8);
    let used = world.read(|tx| tx.limits(&[limit("k")])).remove(0).unwrap().used;
    assert_eq!(used, 2, "it counts against its keys");
    assert_eq!(world.ready(), 1);
    assert_eq!(world.read(|tx| tx.audit()), []);
    world.end(&granted.iter().map(TaskRecord::lease_ref).collect::<Vec<_>>());
    assert_eq!(world.used(&pool("db")), 0, "they come back once");
    assert_eq!(world.read(|tx| tx.audit()), []);
}

fn it_is_granted_beside_others_all_or_none(store: &dyn Store) {
    let world = World(store);
    let ids = scene(world);
    let gone = world.plain(&["gone"])[0];
    world.admit(&[gone]);
    let holder = holder("h");
    let asked = [ids[2], gone, ids[0]];
    let batch = GrantBatch::new(&asked, &holder, at(10), at(100)).whole();
    assert!(world.write(|tx| tx.grant_if_open(&batch)).tasks.is_empty(), "one of them is not ready");
    assert_eq!((world.ready(), world.used(&pool("db"))), (3, 8));
    let asked = [ids[2], ids[0]];
    let batch = GrantBatch::new(&asked, &holder, at(10), at(100)).whole();
    let granted = world.write(|tx| tx.grant_if_open(&batch));
    assert!(granted.is_whole(&batch), "{granted:?}");
    assert_eq!(granted.tasks.iter().map(|task| task.id).collect::<Vec<_>>(), asked);
    assert_eq!((world.ready(), world.used(&pool("db"))), (1, 12));
    assert_eq!(world.read(|tx| tx.audit()), []);
}

fn what_ends_it_gives_its_slots_back(store: &dyn Store) {
    let world = World(store);
    let ids = scene(world);
    let ended = [(ids[1], TaskState::Cancelled, None), (ids[2], TaskState::UpForRetry, Some(at(50)))];
    for (left, (id, state, due)) in [1, 0].into_iter().zip(ended) {
        let ending = Move { due, ..to(world.task(id).lease_ref(), state) };
        assert_eq!(world.shift(&[ending]), [true]);
        assert_eq!((world.task(id).held_slots, world.used(&pool("db"))), (0, 4 * left));
        assert_eq!(world.read(|tx| tx.audit()), []);
    }
    assert_eq!(world.ready(), 1);
    assert_eq!(world.write(|tx| tx.promote_due(at(99))), 1, "what is tried again waits as any other task");
    let lanes = world.read(|tx| tx.ready_lanes());
    assert_eq!(lanes.iter().map(|lane| (lane.keeps_slots, lane.ready)).collect::<Vec<_>>(), [(false, 2)]);
}

fn what_it_kept_of_other_pools_comes_back_as_well(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[sized("db", 9), sized("gpu", 9)]));
    let news = ["a", "b"].map(|name| task(name).pool(pool("db")).pool_slots(2).also(pool("gpu"), 3));
    let ids = world.insert(&news);
    resume(world, &ids);
    let used = || [world.used(&pool("db")), world.used(&pool("gpu"))];
    assert_eq!(used(), [4, 6]);
    let granted = world.admit(&ids[..1]);
    assert_eq!(used(), [4, 6]);
    world.end(&[granted[0].lease_ref()]);
    assert_eq!(used(), [2, 3]);
    assert_eq!(world.shift(&[to(world.task(ids[1]).lease_ref(), TaskState::Success)]), [true]);
    assert_eq!(used(), [0, 0]);
    assert_eq!(world.read(|tx| tx.audit()), []);
}
