//! Numbers and instants at the ends of their ranges.

use chrono::{DateTime, Utc};

use super::steps::Steps;
use super::world::{World, at, ends_of_time, holder, limit, pool, sized, task, to, worker};
use crate::admission::LanePage;
use crate::admission::limits::LimitSpec;
use crate::bounds::MAX_SLOTS;
use crate::lease::LeaseRef;
use crate::pool::{PoolSpec, Slots};
use crate::run::{ActiveQuery, RunKey, RunRecord, RunStatus};
use crate::store::Store;
use crate::store::contract::{ShardLease, ShardWrite};
use crate::task::TaskState;

cases!("extremes":
    priorities,
    logical_dates,
    map_indices,
    the_largest_pool_and_the_heaviest_task,
    the_largest_limit,
    due_instants,
    lease_instants,
    workers_and_shards,
    instants_are_truncated_to_the_microsecond,
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
    let ids = world.insert(&all.map(|date| task(&format!("{}", date.timestamp_micros())).logical_date(date)));
    for (id, date) in ids.iter().zip(all) {
        assert_eq!(world.task(*id).logical_date, date);
    }
    let mut sorted = all;
    sorted.sort_unstable();
    assert_eq!(names(world), sorted.map(|date| format!("n/w/r/{}", date.timestamp_micros())));
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
    let expired = |now: DateTime<Utc>| {
        world.read(|tx| tx.expired(now, 9)).iter().map(|task| task.id).collect::<Vec<_>>()
    };
    assert_eq!(expired(first), ids[1..]);
    assert_eq!(expired(last), [ids[1], ids[0]]);
    world.write(|tx| tx.renew_if_leased(&[lease], at(-5)));
    assert_eq!(expired(at(-6)), ids[1..]);
    assert_eq!(expired(at(-5)), [ids[1], ids[0]]);
    assert_eq!(world.read(|tx| tx.next_expiry()), Some(first));
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

/// An instant compares the same before and after it was stored.
fn instants_are_truncated_to_the_microsecond(store: &dyn Store) {
    let world = World(store);
    let fine = |micros: i64| at(micros) + chrono::TimeDelta::nanoseconds(999);
    let ids = world.insert(&[task("a"), task("b").not_before(fine(20))]);
    assert_eq!(world.write(|tx| tx.promote_due(fine(19))), 0);
    assert_eq!(world.write(|tx| tx.promote_due(fine(20))), 1);
    let leases: Vec<_> = world
        .write(|tx| super::world::admit(tx, &ids, fine(30), fine(40)))
        .iter()
        .map(|task| task.lease_ref())
        .collect();
    assert_eq!(world.task(ids[0]).queued_at, Some(at(30)));
    assert_eq!(world.read(|tx| tx.next_expiry()), Some(at(40)));
    assert_eq!(
        (world.read(|tx| tx.expired(fine(39), 9)).len(), world.read(|tx| tx.expired(at(40), 9)).len()),
        (0, 2)
    );
    world.write(|tx| {
        tx.renew_if_leased(&leases, fine(50))?;
        tx.start_if_queued(&leases, fine(35))
    });
    let started = world.task(ids[1]);
    assert_eq!(
        (started.started_at, started.lease.map(|lease| lease.expires_at)),
        (Some(at(35)), Some(at(50)))
    );
    let mut retry = to(leases[0], TaskState::UpForRetry);
    (retry.due, retry.ended_at) = (Some(fine(60)), Some(fine(55)));
    let mut ending = to(leases[1], TaskState::Success);
    ending.ended_at = Some(fine(55));
    world.shift(&[retry, ending]);
    assert_eq!((world.task(ids[0]).due, world.task(ids[1]).ended_at), (Some(at(60)), Some(at(55))));
    assert_eq!(world.write(|tx| tx.forget_ended(fine(55), fine(55), 9)), 0, "55 is not before 55");
    world.write(|tx| tx.put_worker(&worker("w", fine(70))));
    assert_eq!(world.read(|tx| tx.live_workers(fine(70))), []);
    let run = RunRecord::open(RunKey::new("n", "r").unwrap(), at(1));
    let mut closed = run.clone().closed(at(5), RunStatus::Completed);
    closed.stop = Some(fine(5));
    closed.start = fine(1);
    world.write(|tx| tx.put_runs(&[closed.clone()]));
    let mut query = ActiveQuery::new(at(5), at(6));
    query.begin = fine(5);
    assert_eq!(world.read(|tx| tx.active_runs(&query)), [run.closed(at(5), RunStatus::Completed)]);
}
