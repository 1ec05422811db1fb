//! Pools: their sizes and their counters.

use super::world::{World, at, limit, pool, rows, sized, task, to};
use crate::admission::Undefined;
use crate::admission::limits::LimitSpec;
use crate::bounds::MAX_SLOTS;
use crate::id::PoolName;
use crate::lease::{LeaseRef, TaskId};
use crate::pool::{DEFAULT_POOL_SLOTS, PoolRecord, PoolSpec, PoolStats, Slots};
use crate::store::Store;
use crate::store::contract::SurveyQuery;
use crate::task::{NewTask, TaskState};

cases!("pools":
    a_store_is_born_with_the_default_pool,
    a_pool_is_stored_as_it_was_put,
    changing_a_pool_keeps_what_is_used,
    a_busy_pool_can_be_shrunk,
    all_pools_come_by_name,
    found_by_name_in_the_order_of_the_arguments,
    slots_are_taken_up_to_the_last_one,
    an_unlimited_pool_is_never_full,
    an_unknown_pool_has_no_slots,
    each_pool_has_its_own_condition,
    slots_come_back,
    a_pool_in_use_is_not_deleted,
    a_deleted_pool_can_come_back,
    stats_sum_slots_by_state,
    all_pools_of_a_task_come_and_go_together,
    a_grant_needs_room_in_every_pool_and_limit,
);

/// Tasks of this pool, one for each of these numbers of slots.
fn of_sizes(world: World<'_>, name: &str, sizes: &[u32]) -> Vec<TaskId> {
    let one = |(at, slots): (usize, &u32)| task(&format!("{name} {at}")).pool(pool(name)).pool_slots(*slots);
    world.insert(&sizes.iter().enumerate().map(one).collect::<Vec<_>>())
}

fn a_store_is_born_with_the_default_pool(store: &dyn Store) {
    let world = World(store);
    let spec = PoolSpec::new(PoolName::DEFAULT, Slots::Limited(DEFAULT_POOL_SLOTS)).unwrap();
    assert_eq!(world.read(|tx| tx.all_pools()), [PoolRecord::new(spec, 0)]);
    world.write(|tx| tx.put_pools(&[sized(PoolName::DEFAULT, 7)]));
    let pools = world.read(|tx| tx.all_pools());
    assert_eq!(pools, [PoolRecord::new(sized(PoolName::DEFAULT, 7), 0)], "it is resized as any other");
}

fn a_pool_is_stored_as_it_was_put(store: &dyn Store) {
    let world = World(store);
    let spec = PoolSpec::new("db", Slots::Unlimited).unwrap();
    let specs = [spec.described("for 'loads'").sensing_keeps_slots(true), sized("none", 0)];
    world.write(|tx| tx.put_pools(&specs));
    let stored = world.read(|tx| tx.pools(&["db", "none"].map(pool)));
    assert_eq!(stored, specs.map(|spec| Some(PoolRecord::new(spec, 0))));
}

fn changing_a_pool_keeps_what_is_used(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[sized("db", 5)]));
    let id = world.insert(&[task("a").pool(pool("db")).pool_slots(3)])[0];
    world.admit(&[id]);
    for spec in [sized("db", 9).described("x"), PoolSpec::new("db", Slots::Unlimited).unwrap()] {
        world.write(|tx| tx.put_pools(std::slice::from_ref(&spec)));
        assert_eq!(world.read(|tx| tx.pools(&[pool("db")])), [Some(PoolRecord::new(spec, 3))]);
    }
}

fn a_busy_pool_can_be_shrunk(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[sized("db", 5)]));
    let id = world.insert(&[task("a").pool(pool("db")).pool_slots(4)])[0];
    let lease = world.run(&[id])[0];
    world.write(|tx| tx.put_pools(&[sized("db", 2)]));
    let record = world.read(|tx| tx.pools(&[pool("db")])).remove(0).unwrap();
    assert_eq!((record.used, record.open()), (4, Some(-2)), "open slots are negative then");
    assert!(!world.admit_if_room(&of_sizes(world, "db", &[1])), "negative is not unlimited");
    world.shift(&[to(lease, TaskState::Success)]);
    assert_eq!(world.used(&pool("db")), 0);
}

fn all_pools_come_by_name(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&["b", "a", "Z", "é", "aa", "e\u{301}"].map(|name| sized(name, 1))));
    let names: Vec<_> = world.read(|tx| tx.all_pools()).into_iter().map(|pool| pool.spec.name).collect();
    assert_eq!(names, ["Z", "a", "aa", "b", "default_pool", "e\u{301}", "é"].map(pool));
}

fn found_by_name_in_the_order_of_the_arguments(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[sized("a", 1), sized("b", 2)]));
    let asked = ["b", "nobody", "a", "b"].map(pool);
    let found = world.read(|tx| tx.pools(&asked));
    let sizes: Vec<_> =
        found.iter().map(|pool| pool.as_ref().and_then(|pool| pool.spec.slots.total())).collect();
    assert_eq!(sizes, [Some(2), None, Some(1), Some(2)]);
    let stats = world.read(|tx| tx.pool_stats(&asked));
    let sizes: Vec<_> = stats.iter().map(|stats| stats.and_then(|stats| stats.total.total())).collect();
    assert_eq!(sizes, [Some(2), None, Some(1), Some(2)]);
}

fn slots_are_taken_up_to_the_last_one(store: &dyn Store) {
    let world = World(store);
    let db = pool("db");
    world.write(|tx| tx.put_pools(&[sized("db", 5)]));
    let sizes = [6, 3, 3, 2, 1];
    let ids = of_sizes(world, "db", &sizes);
    for (at, (fits, used)) in
        [(false, 0), (true, 3), (false, 3), (true, 5), (false, 5)].into_iter().enumerate()
    {
        assert_eq!(world.admit_if_room(&ids[at..=at]), fits, "{} more", sizes[at]);
        assert_eq!(world.used(&db), used);
    }
}

fn an_unlimited_pool_is_never_full(store: &dyn Store) {
    let world = World(store);
    let db = pool("db");
    world.write(|tx| tx.put_pools(&[PoolSpec::new("db", Slots::Unlimited).unwrap()]));
    let ids = of_sizes(world, "db", &[MAX_SLOTS; 9]);
    assert!(world.admit_if_room(&ids[..4]) && world.admit_if_room(&ids[4..]));
    assert_eq!(world.used(&db), 9 * i64::from(MAX_SLOTS));
    let record = world.read(|tx| tx.pools(std::slice::from_ref(&db))).remove(0).unwrap();
    assert_eq!(record.open(), None);
}

fn an_unknown_pool_has_no_slots(store: &dyn Store) {
    let world = World(store);
    let id = world.insert(&[task("a").pool(pool("nobody"))])[0];
    assert_eq!(
        (world.ready(), world.task(id).lane.pool.clone()),
        (1, pool("nobody")),
        "a task may name it all the same"
    );
    assert!(!world.admit_if_room(&[id]));
    assert_eq!(world.read(|tx| tx.all_pools()).len(), 1, "nor does it come to be");
}

fn each_pool_has_its_own_condition(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[sized("a", 1), sized("b", 2), sized("c", 3)]));
    let [a, b, c] = [("a", 2), ("b", 1), ("c", 3)].map(|(name, slots)| of_sizes(world, name, &[slots])[0]);
    assert!(!world.admit_if_room(&[c, a, b]), "one of them has too few");
    assert!(world.admit_if_room(&[c, b]));
    assert_eq!(["a", "b", "c"].map(|name| world.used(&pool(name))), [0, 1, 3]);
}

fn slots_come_back(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[sized("a", 4), sized("b", 4)]));
    let (in_a, in_b) = (of_sizes(world, "a", &[1, 3, 2]), of_sizes(world, "b", &[2]));
    assert!(world.admit_if_room(&[in_a[0], in_a[1], in_b[0]]));
    world.end(&[LeaseRef::new(in_a[0], 1), LeaseRef::new(in_b[0], 1)]);
    assert_eq!((world.used(&pool("a")), world.used(&pool("b"))), (3, 0));
    assert!(!world.admit_if_room(&in_a[2..]), "one is open, two are needed");
    world.end(&[LeaseRef::new(in_a[1], 1)]);
    assert!(world.admit_if_room(&in_a[2..]));
    assert_eq!(world.used(&pool("a")), 2);
}

fn a_pool_in_use_is_not_deleted(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[sized("busy", 4), sized("idle", 4)]));
    let id = world.insert(&[task("a").pool(pool("busy")).pool_slots(3)])[0];
    let lease = world.run(&[id])[0];
    let asked = ["busy", "nobody", "idle", "idle"].map(pool);
    let answers = world.write(|tx| tx.delete_pools_if_unused(&asked));
    let expected = [Undefined::InUse(3), Undefined::NotDefined, Undefined::Removed, Undefined::NotDefined];
    assert_eq!(answers, expected);
    let left: Vec<_> = world.read(|tx| tx.all_pools()).into_iter().map(|pool| pool.spec.name).collect();
    assert_eq!(left, ["busy", "default_pool"].map(pool));
    world.shift(&[to(lease, TaskState::Success)]);
    assert_eq!(world.write(|tx| tx.delete_pools_if_unused(&[pool("busy")])), [Undefined::Removed]);
}

fn a_deleted_pool_can_come_back(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[sized("db", 4)]));
    let id = world.insert(&[task("a").pool(pool("db")).limit(limit("l"))])[0];
    assert_eq!(world.write(|tx| tx.delete_pools_if_unused(&[pool("db")])), [Undefined::Removed]);
    assert_eq!((world.ready(), world.task(id).lane.pool.clone()), (1, pool("db")), "its tasks wait");
    assert_eq!(world.read(|tx| tx.pool_stats(&[pool("db")])), [None]);
    world.write(|tx| tx.put_pools(&[sized("db", 1)]));
    world.admit(&[id]);
    assert_eq!(world.used(&pool("db")), 1);
}

fn stats_sum_slots_by_state(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[sized("db", 40), sized("other", 9)]));
    let sized_task = |name: &str, slots| task(name).pool(pool("db")).pool_slots(slots);
    let ids = world.insert(&[
        sized_task("ready", 1),
        sized_task("ready too", 2).limit(limit("l")),
        sized_task("later", 5).not_before(at(50)),
        sized_task("queued", 3),
        sized_task("queued too", 4),
        sized_task("running", 7),
        sized_task("ended", 6),
        sized_task("sensing", 10),
        task("elsewhere").pool(pool("other")).pool_slots(8),
    ]);
    world.admit(&[ids[3], ids[4]]);
    let leases = world.run(&[ids[5], ids[6], ids[8]]);
    world.sense(&ids[7..8]);
    world.shift(&[to(leases[1], TaskState::Success)]);
    let stats = world.read(|tx| tx.pool_stats(&["db", "other", "default_pool"].map(pool)));
    let record = |name, slots, used| PoolRecord::new(sized(name, slots), used);
    let expected = [
        Some(PoolStats::new(&record("db", 40, 14), 7, 7, 3, 10)),
        Some(PoolStats::new(&record("other", 9, 8), 8, 0, 0, 0)),
        Some(PoolStats::new(&record(PoolName::DEFAULT, DEFAULT_POOL_SLOTS, 0), 0, 0, 0, 0)),
    ];
    assert_eq!(stats, expected);
}

/// It needs 2 of `db` and 3 of `gpu`, and counts 4 against `api`.
fn wide(name: &str) -> NewTask {
    task(name)
        .pool(pool("db"))
        .pool_slots(2)
        .also(pool("gpu"), 3)
        .limit(limit("k"))
        .limit_count(limit("api"), 4)
}

fn all_pools_of_a_task_come_and_go_together(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[sized("db", 40), sized("gpu", 60)]));
    let names = ["ends", "goes back", "retries", "keeps", "senses", "queued", "waits", "marked"];
    let ids = world.insert(&names.map(wide));
    let counted = || {
        let pools = ["db", "gpu"].map(|name| world.used(&pool(name)));
        let limits = world.read(|tx| tx.limits(&[limit("api"), limit("k")]));
        assert_eq!(world.read(|tx| tx.audit()), []);
        (pools, limits.into_iter().map(|limit| limit.map_or(0, |limit| limit.used)).collect::<Vec<_>>())
    };
    assert_eq!(
        world.task(ids[0]).lane,
        rows(&[wide("x")])[0].lane,
        "what it needs is stored as it was asked for"
    );
    let leases = world.run(&ids[..5]);
    world.admit(&ids[5..6]);
    assert_eq!(counted(), ([12, 18], vec![24, 6]));
    let stats = world.read(|tx| tx.pool_stats(&["db", "gpu"].map(pool)));
    let stats: Vec<_> = stats.into_iter().flatten().map(|of| [of.running, of.queued, of.scheduled]).collect();
    assert_eq!(stats, [[10, 2, 4], [15, 3, 6]]);

    let mut keeps = to(leases[3], TaskState::Sensing);
    keeps.keeps_slots = true;
    let mut retries = to(leases[2], TaskState::UpForRetry);
    retries.due = Some(at(90));
    world.shift(&[
        to(leases[0], TaskState::Success),
        to(leases[1], TaskState::Scheduled),
        retries,
        keeps.clone(),
    ]);
    world.shift(&[to(leases[4], TaskState::Sensing)]);
    assert_eq!(counted(), ([4, 6], vec![4, 1]), "one is queued, and one keeps its slots");
    let stats = world.read(|tx| tx.pool_stats(&["db", "gpu"].map(pool)));
    let stats: Vec<_> = stats.into_iter().flatten().map(|of| [of.queued, of.scheduled, of.sensing]).collect();
    assert_eq!(stats, [[2, 6, 4], [3, 9, 6]]);
    world.shift(&[to(LeaseRef::new(ids[7], 0), TaskState::Failed)]);
    (keeps.to, keeps.keeps_slots) = (TaskState::Scheduled, false);
    world.shift(&[keeps]);
    assert_eq!(counted(), ([2, 3], vec![4, 1]));
    let lanes = world.write(|tx| tx.survey(&SurveyQuery::new().promote(at(99), 9)));
    assert_eq!(lanes.pools.len(), 2, "a survey names all pools of its lanes");
    assert_eq!((lanes.lanes.len(), lanes.lanes[0].ready), (1, 4));
}

fn a_grant_needs_room_in_every_pool_and_limit(store: &dyn Store) {
    let world = World(store);
    let sizes = |db, gpu, api| {
        world.write(|tx| {
            tx.put_pools(&[sized("db", db), sized("gpu", gpu)])?;
            tx.put_limits(&[LimitSpec::new(limit("api"), api).unwrap()])
        });
    };
    let ids = world.insert(&[wide("a"), wide("b")]);
    for (db, gpu, api) in [(3, 6, 8), (4, 5, 8), (4, 6, 7)] {
        sizes(db, gpu, api);
        assert!(!world.admit_if_room(&ids), "{db} {gpu} {api}");
        assert!(world.admit_if_room(&ids[..1]) && world.task(ids[0]).state == TaskState::Queued);
        world.shift(&[to(world.task(ids[0]).lease_ref(), TaskState::Scheduled)]);
    }
    world.write(|tx| tx.delete_pools_if_unused(&[pool("gpu")]));
    assert!(!world.admit_if_room(&ids[..1]), "a pool that does not exist has no slots");
    sizes(4, 6, 8);
    assert!(world.admit_if_room(&ids));
}
