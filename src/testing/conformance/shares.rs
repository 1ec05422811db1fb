//! Shares: what each holds of a pool, and when it had its turns.

use super::keeping::resume;
use super::steps::Steps;
use super::world::{World, at, holder, limit, pool, rows, sized, task, to};
use crate::admission::Lane;
use crate::admission::limits::LimitSpec;
use crate::error::StoreResult;
use crate::lease::{LeaseRef, TaskId};
use crate::store::Store;
use crate::store::contract::{Change, GrantBatch, ShareUse, StoreTx, Survey, SurveyQuery};
use crate::task::{NewTask, TaskState};

cases!("shares":
    what_a_share_holds_is_counted_in_each_pool,
    slots_that_are_kept_are_held,
    a_grant_notes_the_stamps_and_the_number_of_grants,
    a_grant_of_nothing_stamps_nothing,
    who_gives_back_its_last_slot_is_stamped,
    a_newcomer_is_stamped_when_it_comes,
    without_work_a_share_is_forgotten_by_the_next_tick,
    a_share_that_is_back_before_the_next_tick_is_not_forgotten,
    a_task_that_changes_its_share_changes_its_lane,
    priorities_are_lanes_of_their_own,
    weights_are_stored,
);

fn of(share: &str, name: &str) -> NewTask {
    task(name).pool(pool("db")).share(limit(share))
}

fn used(of: &str, share: &str, held: i64, stamp: i64, dither: i64) -> ShareUse {
    ShareUse::new(pool(of), limit(share), held, stamp, dither)
}

fn scene(world: World<'_>) {
    world.write(|tx| tx.put_pools(&[sized("db", 50), sized("disk", 50)]));
}

/// What the next tick and a look find of shares with ready tasks, which is the same.
fn shares(world: World<'_>) -> Vec<ShareUse> {
    let found = |survey: Survey| {
        let is_ready = |used: &ShareUse| {
            let of = |lane: &Lane| lane.key.pool == used.pool && lane.key.share.as_ref() == Some(&used.share);
            survey.lanes.iter().any(of)
        };
        let mut shares = survey.shares.clone();
        shares.retain(is_ready);
        shares.sort_by(|a, b| (&a.pool, &a.share).cmp(&(&b.pool, &b.share)));
        shares
    };
    let look = found(world.read(|tx| tx.survey(&SurveyQuery::new())));
    let pairs: Vec<_> = look.iter().map(|used| (used.pool.clone(), used.share.clone())).collect();
    let mut asked = world.read(|tx| tx.shares(&pairs)).0;
    asked.sort_by(|a, b| (&a.pool, &a.share).cmp(&(&b.pool, &b.share)));
    let tick = found(world.write(|tx| tx.survey(&SurveyQuery::new().promote(at(0), 9))));
    assert_eq!((&look, &asked), (&tick, &tick));
    tick
}

fn grants(world: World<'_>) -> i64 {
    world.write(|tx| tx.survey(&SurveyQuery::new().promote(at(0), 9))).grants
}

fn granted(tx: &mut dyn StoreTx, ids: &[TaskId], shares: &[ShareUse]) -> StoreResult<usize> {
    let holder = holder("h");
    let batch = GrantBatch::new(ids, &holder, at(10), at(99)).shares(shares).whole();
    tx.grant_if_open(&batch).map(|granted| granted.tasks.len())
}

fn what_a_share_holds_is_counted_in_each_pool(store: &dyn Store) {
    let world = World(store);
    scene(world);
    let wide = |share, name| of(share, name).pool_slots(3).also(pool("disk"), 2);
    let on_disk = |share: &str, name: &str| task(name).pool(pool("disk")).share(limit(share));
    let ids = world.insert(&[
        wide("a", "1"),
        wide("a", "2"),
        wide("a", "3"),
        of("b", "4"),
        on_disk("a", "5"),
        task("6").pool(pool("db")).limit(limit("a")),
    ]);
    let holds = |held: [i64; 3]| {
        let [a, b, on_disk] = held;
        vec![used("db", "a", a, 0, 0), used("db", "b", b, 0, 0), used("disk", "a", on_disk, 0, 0)]
    };
    assert_eq!(shares(world), holds([0, 0, 0]));
    let leases = world.run(&ids[..2]);
    assert_eq!(shares(world), holds([6, 0, 4]));
    world.end(&leases[..1]);
    assert_eq!(shares(world), holds([3, 0, 2]));
    world.shift(&[to(leases[1], TaskState::Failed)]);
    let [a, ..] = &shares(world)[..] else { panic!("three shares") };
    assert_eq!((a.held, a.stamp), (0, 1));
    assert_eq!(world.read(|tx| tx.shares(&[])).0, []);
}

fn slots_that_are_kept_are_held(store: &dyn Store) {
    let world = World(store);
    scene(world);
    let ids = world.insert(&[of("a", "1").pool_slots(4), of("a", "2").pool_slots(4)]);
    resume(world, &ids[..1]);
    assert_eq!(shares(world), [used("db", "a", 4, 0, 0)]);
    let next = used("db", "a", 0, 2, 7);
    assert_eq!(world.write(|tx| granted(tx, &ids[..1], std::slice::from_ref(&next))), 1);
    assert_eq!(shares(world), [used("db", "a", 4, 2, 7)], "it takes no more");
    let lease = world.task(ids[0]).lease_ref();
    world.shift(&[to(lease, TaskState::Success)]);
    assert_eq!(shares(world), [used("db", "a", 0, 3, 7)]);
}

fn a_grant_notes_the_stamps_and_the_number_of_grants(store: &dyn Store) {
    let world = World(store);
    scene(world);
    let ids = world.insert(&[of("a", "1"), of("b", "2"), of("a", "3"), of("b", "4"), of("c", "5")]);
    let stamped = [used("db", "a", 0, 2, 111), used("db", "b", 0, 4, 222)];
    assert_eq!(world.write(|tx| granted(tx, &ids[..2], &stamped)), 2);
    let first = [used("db", "a", 1, 2, 111), used("db", "b", 1, 4, 222), used("db", "c", 0, 0, 0)];
    assert_eq!((shares(world), grants(world)), (first.to_vec(), 2));
    assert_eq!(world.write(|tx| granted(tx, &ids[2..3], &[used("db", "a", 0, 6, 333)])), 1);
    let second = [used("db", "a", 2, 6, 333), used("db", "b", 1, 4, 222), used("db", "c", 0, 0, 0)];
    assert_eq!(grants(world), 3);
    let left: Vec<ShareUse> = second[1..].to_vec();
    assert_eq!(shares(world).into_iter().filter(|used| used.share != limit("a")).collect::<Vec<_>>(), left);
    let all = world.read(|tx| tx.shares(&[(pool("db"), limit("a")), (pool("x"), limit("a"))]));
    assert_eq!(all, (second[..1].to_vec(), 3));
}

fn a_grant_of_nothing_stamps_nothing(store: &dyn Store) {
    let world = World(store);
    scene(world);
    let ids = world.insert(&[of("a", "1"), of("a", "2")]);
    world.admit(&ids[..1]);
    assert_eq!(world.write(|tx| granted(tx, &ids[..1], &[used("db", "a", 0, 8, 9)])), 0);
    assert_eq!((shares(world), grants(world)), (vec![used("db", "a", 1, 0, 0)], 0));
}

fn who_gives_back_its_last_slot_is_stamped(store: &dyn Store) {
    let world = World(store);
    scene(world);
    let ids = world.insert(&[of("a", "1"), of("a", "2"), of("a", "3")]);
    assert_eq!(world.write(|tx| granted(tx, &ids[..2], &[used("db", "a", 0, 14, 5)])), 2);
    let leases: Vec<LeaseRef> = ids[..2].iter().map(|id| world.task(*id).lease_ref()).collect();
    world.shift(&[to(leases[0], TaskState::Success)]);
    assert_eq!(shares(world), [used("db", "a", 1, 14, 5)]);
    world.shift(&[to(leases[1], TaskState::Scheduled)]);
    assert_eq!(shares(world), [used("db", "a", 0, 15, 5)]);
}

fn a_newcomer_is_stamped_when_it_comes(store: &dyn Store) {
    let world = World(store);
    scene(world);
    let ids = world.insert(&[of("a", "1"), of("a", "2")]);
    world.write(|tx| granted(tx, &ids[..1], &[used("db", "a", 0, 14, 5)]));
    world.insert(&[of("b", "3"), of("b", "4").not_before(at(5))]);
    assert_eq!(shares(world), [used("db", "a", 1, 14, 5), used("db", "b", 0, 14, 0)]);
    world.write(|tx| granted(tx, &ids[1..], &[used("db", "a", 0, 16, 6)]));
    assert_eq!(shares(world), [used("db", "b", 0, 14, 0)], "it waits since then");
}

fn without_work_a_share_is_forgotten_by_the_next_tick(store: &dyn Store) {
    let world = World(store);
    scene(world);
    let ids = world.insert(&[of("a", "1"), of("b", "2")]);
    world.write(|tx| granted(tx, &ids[..1], &[used("db", "a", 0, 14, 5)]));
    world.end(&[world.task(ids[0]).lease_ref()]);
    shares(world);
    world.insert(&[of("a", "3")]);
    assert_eq!(shares(world), [used("db", "a", 0, 14, 0), used("db", "b", 0, 0, 0)]);
}

fn a_share_that_is_back_before_the_next_tick_is_not_forgotten(store: &dyn Store) {
    let world = World(store);
    scene(world);
    let ids = world.insert(&[of("a", "1"), of("b", "2")]);
    world.write(|tx| granted(tx, &ids[..1], &[used("db", "a", 0, 14, 5)]));
    world.end(&[world.task(ids[0]).lease_ref()]);
    world.insert(&[of("a", "3")]);
    assert_eq!(shares(world), [used("db", "a", 0, 15, 5), used("db", "b", 0, 0, 0)]);
}

fn a_task_that_changes_its_share_changes_its_lane(store: &dyn Store) {
    let world = World(store);
    scene(world);
    let ids = world.insert(&[of("a", "1"), of("a", "2")]);
    let change = |name: &str, id, new: NewTask| {
        assert_eq!(world.task(id).key.task.as_str(), name);
        let lease = world.task(id).lease_ref();
        Change::new(lease, TaskState::Scheduled, rows(&[new]).remove(0))
    };
    let (to_b, alone) = (change("1", ids[0], of("b", "1")), change("2", ids[1], task("2").pool(pool("db"))));
    assert_eq!(world.write(|tx| tx.change_if(std::slice::from_ref(&to_b))), [true]);
    assert_eq!(shares(world), [used("db", "a", 0, 0, 0), used("db", "b", 0, 0, 0)]);
    assert_eq!(world.write(|tx| tx.change_if(std::slice::from_ref(&alone))), [true]);
    assert_eq!(shares(world), [used("db", "b", 0, 0, 0)]);
    assert_eq!(world.task(ids[0]).lane.share, Some(limit("b")));
    assert_eq!(world.task(ids[1]).lane.share, None);
}

fn priorities_are_lanes_of_their_own(store: &dyn Store) {
    let world = World(store);
    scene(world);
    let counted = of("a", "4").limit_count(limit("a"), 3).limit(limit("b")).also(pool("disk"), 2);
    let news = [of("a", "1"), of("a", "2").priority(-7), of("a", "3").priority(-7), counted];
    let ids = world.insert(&news);
    let lanes = world.read(|tx| tx.ready_lanes());
    let found: Vec<_> = lanes.iter().map(|lane| (lane.key.priority, lane.ready)).collect();
    assert_eq!(found, [(0, 1), (-7, 2), (0, 1)]);
    let needs = rows(&news);
    for (id, row) in ids.iter().zip(&needs) {
        assert_eq!(world.task(*id).lane, row.lane);
    }
    assert!(lanes.iter().all(|lane| needs.iter().any(|row| row.lane == lane.key)));
}

fn weights_are_stored(store: &dyn Store) {
    let world = World(store);
    let light = LimitSpec::of(limit("a")).weight(1_000_000);
    let family = LimitSpec::new(limit("t/"), 3).unwrap().family().weight(7);
    world.write(|tx| tx.put_limits(&[light.clone(), family.clone()]));
    assert_eq!(world.read(|tx| tx.all_limits())[0].weight, Some(1_000_000));
    assert_eq!(world.read(|tx| tx.families()), [family]);
    world.insert(&[of("a", "1")]);
    for query in [SurveyQuery::new(), SurveyQuery::new().promote(at(1), 9)] {
        let survey = world.write(|tx| tx.survey(&query));
        assert_eq!((survey.limits[0].weight, survey.families[0].weight), (Some(1_000_000), Some(7)));
    }
    world.write(|tx| tx.put_limits(&[LimitSpec::new(limit("a"), 1).unwrap()]));
    assert_eq!(world.read(|tx| tx.limits(&[limit("a")]))[0].as_ref().unwrap().weight, None);
}
