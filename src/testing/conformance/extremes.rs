//! Numbers and instants at the ends of their ranges.

use super::steps::Steps;
use super::world::{World, at, ends_of_time, holder, limit, pool, sized, task, to, worker};
use crate::admission::LanePage;
use crate::admission::limits::LimitSpec;
use crate::bounds::MAX_SLOTS;
use crate::lease::LeaseRef;
use crate::pool::{PoolSpec, Slots};
use crate::store::Store;
use crate::store::contract::{ShardLease, ShardWrite};
use crate::task::TaskState;
use crate::time::Timestamp;

cases!("extremes":
    priorities,
    logical_dates,
    map_indices,
    the_largest_pool_and_the_heaviest_task,
    the_largest_limit,
    due_instants,
    lease_instants,
    workers_and_shards,
);

fn names(world: World<'_>) -> Vec<String> {
    let lanes = world.read(|tx| tx.ready_lanes());
    let page = LanePage::new(lanes[0].id, None, 99);
    let ids: Vec<_> = world.read(|tx| tx.candidates(&[page])).iter().map(|found| found.order.id).collect();
    world.read(|tx| tx.tasks_by_id(&ids)).into_iter().flatten().map(|task| task.key.to_string()).collect()
}

fn priorities(store: &dyn Store) {
    let world = World(store);
    let all = [0, i32::MIN, 1, i32::MAX, -1, i32::MIN + 1];
    let ids = world.insert(&all.map(|priority| task(&priority.to_string()).priority(priority)));
    for (id, priority) in ids.iter().zip(all) {
        let found = world.task(*id);
        assert_eq!((found.priority, found.rank), (priority, -i64::from(priority)));
    }
    let mut sorted = all;
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!(names(world), sorted.map(|priority| format!("n/w/r/{priority}")));
}

fn logical_dates(store: &dyn Store) {
    let world = World(store);
    let (first, last) = ends_of_time();
    let all = [at(0), last, at(-1), first, at(1), at(253_402_300_800_000_000)];
    let ids = world.insert(&all.map(|date| task(&format!("{}", date.as_micros())).logical_date(date)));
    for (id, date) in ids.iter().zip(all) {
        assert_eq!(world.task(*id).logical_date, date);
    }
    let mut sorted = all;
    sorted.sort_unstable();
    assert_eq!(names(world), sorted.map(|date| format!("n/w/r/{}", date.as_micros())));
}

fn map_indices(store: &dyn Store) {
    let world = World(store);
    let all = [u32::MAX, 0, 1 << 31, i32::MAX as u32];
    let mut news = vec![task("t")];
    news.extend(all.map(|index| {
        let mut new = task("t");
        new.key = new.key.mapped(index);
        new
    }));
    news.rotate_left(1);
    world.insert(&news);
    let expected = ["", "[0]", "[2147483647]", "[2147483648]", "[4294967295]"];
    assert_eq!(names(world), expected.map(|index| format!("n/w/r/t{index}")));
}

fn the_largest_pool_and_the_heaviest_task(store: &dyn Store) {
    let world = World(store);
    let vast = pool("vast");
    world.write(|tx| tx.put_pools(&[sized("vast", MAX_SLOTS)]));
    let ids = world.insert(&["1", "2", "3"].map(|name| task(name).pool(vast.clone()).pool_slots(MAX_SLOTS)));
    let lease = world.run(&ids[..1])[0];
    assert_eq!((world.used(&vast), world.task(ids[0]).held_slots), (i64::from(MAX_SLOTS), MAX_SLOTS));
    assert!(!world.admit_if_room(&ids[1..2]), "the second one does not fit beside the first");
    let stats = world.read(|tx| tx.pool_stats(std::slice::from_ref(&vast))).remove(0).unwrap();
    assert_eq!(
        (stats.running, stats.scheduled, stats.open),
        (i64::from(MAX_SLOTS), 2 * i64::from(MAX_SLOTS), Some(0))
    );
    world.write(|tx| tx.put_pools(&[PoolSpec::new("vast", Slots::Unlimited).unwrap()]));
    assert!(world.admit_if_room(&ids[1..]), "an unlimited pool holds more than the largest");
    assert_eq!(world.used(&vast), 3 * i64::from(MAX_SLOTS));
    world.end(&[lease]);
    assert_eq!(world.used(&vast), 2 * i64::from(MAX_SLOTS));
}

fn the_largest_limit(store: &dyn Store) {
    let world = World(store);
    let key = limit("l");
    world.write(|tx| tx.put_limits(&[LimitSpec::new(key.clone(), MAX_SLOTS).unwrap()]));
    let ids = world.insert(&[task("t").limit(key)]);
    let lease = world.run(&ids)[0];
    let record = world.read(|tx| tx.all_limits()).remove(0);
    assert_eq!((record.max, record.used), (Some(MAX_SLOTS), 1));
    world.end(&[lease]);
    assert_eq!(world.read(|tx| tx.all_limits())[0].used, 0);
}

fn due_instants(store: &dyn Store) {
    let world = World(store);
    let (first, last) = ends_of_time();
    let ids = world.plain(&["first", "last", "before 1970"]);
    for (id, due) in ids.iter().zip([first, last, at(-1)]) {
        let mut later = to(LeaseRef::new(*id, 0), TaskState::Scheduled);
        later.due = Some(due);
        world.shift(&[later]);
        assert_eq!(world.task(*id).due, Some(due));
    }
    for (now, promoted, next) in
        [(first, 1, Some(at(-1))), (at(-2), 0, Some(at(-1))), (at(0), 1, Some(last)), (last, 1, None)]
    {
        assert_eq!(world.write(|tx| tx.promote_due(now)), promoted, "at {now}");
        assert_eq!(world.read(|tx| tx.next_due()), next);
    }
}

fn lease_instants(store: &dyn Store) {
    let world = World(store);
    let (first, last) = ends_of_time();
    let ids = world.plain(&["a", "b"]);
    let lease = world.admit_until(&ids[..1], last)[0].lease_ref();
    world.admit_until(&ids[1..], first);
    let expired = |now: Timestamp| {
        world.write(|tx| tx.hold_expired(now, 9)).iter().map(|task| task.id).collect::<Vec<_>>()
    };
    assert_eq!(expired(first), ids[1..]);
    assert_eq!(expired(last), [ids[1], ids[0]]);
    let held = world.read(|tx| tx.tasks_by_id(&ids[1..])).remove(0).unwrap().lease_ref();
    for (until, before) in [(at(-5), at(-6)), (last, Timestamp::from_micros(last.as_micros() - 1))] {
        world.write(|tx| tx.renew_if_leased(&[lease, held], until));
        assert_eq!(expired(before), []);
        assert_eq!(expired(until), if until == last { vec![ids[0], ids[1]] } else { vec![ids[1]] });
    }
    assert_eq!(world.read(|tx| tx.next_expiry()), Some(last));
}

fn workers_and_shards(store: &dyn Store) {
    let world = World(store);
    let (first, last) = ends_of_time();
    world.write(|tx| {
        tx.put_worker(&worker("first", first))?;
        tx.put_worker(&worker("last", last))
    });
    let live = |now| world.read(|tx| tx.live_workers(now)).len();
    assert_eq!((live(first), live(at(0)), live(last)), (1, 1, 0));
    let lease = ShardLease::new(u32::MAX, Some(holder("last")), i64::MAX, last);
    world.write(|tx| tx.put_shards_if_unchanged(&[ShardWrite::new(0, lease.clone())]));
    assert_eq!(world.read(|tx| tx.shard_leases()), [lease]);
}
