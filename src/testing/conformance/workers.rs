//! Workers, and the shards they share.

use std::num::NonZeroU32;

use super::world::{World, at, holder};
use crate::fingerprint::Fingerprint;
use crate::id::SensorKind;
use crate::store::Store;
use crate::store::contract::{
    KEPT_OUTAGES, KEPT_TAKES, OutageRow, PokerRow, ShardLease, ShardTake, ShardWrite,
};

cases!("workers":
    a_worker_is_alive_before_its_expiry,
    live_workers_come_by_name,
    a_worker_is_prolonged_under_its_name,
    a_worker_says_how_it_splits_the_codes,
    a_worker_says_which_of_its_name_it_is,
    a_worker_says_which_kinds_it_pokes,
    a_worker_says_how_many_shards_it_holds_at_most,
    a_deleted_worker_is_gone,
    workers_are_forgotten_before_an_instant,
    the_earliest_expired_workers_are_forgotten_first,
    a_shard_is_taken_once,
    a_shard_is_renewed_under_its_epoch,
    a_stale_epoch_changes_nothing,
    a_lease_that_was_renewed_is_not_taken,
    each_shard_has_its_own_condition,
    shards_come_by_number,
    a_deleted_worker_releases_its_shards,
    a_shard_can_be_released_by_hand,
    a_kind_of_a_shard_has_a_lease_of_its_own,
    a_loan_without_a_holder_is_gone,
    a_lease_says_what_its_pokes_cost,
    a_deleted_worker_loses_its_loans,
    a_host_sees_workers_and_shards,
    it_is_remembered_who_took_a_shard,
    early_takes_of_a_shard_are_forgotten,
    takes_of_a_kind_are_apart,
    old_takes_of_kinds_are_forgotten,
    outages_that_go_on_are_found,
    an_outage_is_replaced_under_its_beginning,
    old_outages_are_forgotten,
);

fn live(world: World<'_>, now: i64) -> Vec<String> {
    world.read(|tx| tx.live_workers(at(now))).iter().map(|worker| worker.name.to_string()).collect()
}

fn worker(name: &str, until: i64) -> PokerRow {
    super::world::worker(name, at(until))
}

fn lease(shard: u32, name: &str, epoch: i64, until: i64) -> ShardLease {
    ShardLease::new(shard, Some(holder(name)), epoch, at(until))
}

fn put(world: World<'_>, writes: &[ShardWrite]) -> Vec<bool> {
    world.write(|tx| tx.put_shards_if_unchanged(writes))
}

fn a_worker_is_alive_before_its_expiry(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_worker(&worker("a", 10)));
    assert_eq!(world.read(|tx| tx.live_workers(at(9))), [worker("a", 10)]);
    assert_eq!(live(world, 10), [""; 0], "not at the instant itself");
}

fn live_workers_come_by_name(store: &dyn Store) {
    let world = World(store);
    for (name, until) in [("b", 10), ("é", 20), ("Z", 30), ("a", 40)] {
        world.write(|tx| tx.put_worker(&worker(name, until)));
    }
    assert_eq!(live(world, 0), ["Z", "a", "b", "é"]);
    assert_eq!(live(world, 10), ["Z", "a", "é"]);
    assert_eq!(live(world, 39), ["a"]);
}

fn a_worker_is_prolonged_under_its_name(store: &dyn Store) {
    let world = World(store);
    for until in [10, 30, 20] {
        world.write(|tx| tx.put_worker(&worker("a", until)));
        assert_eq!(world.read(|tx| tx.live_workers(at(0))), [worker("a", until)]);
    }
}

fn a_worker_says_how_it_splits_the_codes(store: &dyn Store) {
    let world = World(store);
    let shards = NonZeroU32::new(7).unwrap();
    for (codes, shards) in [(1, NonZeroU32::MIN), (10_000, shards), (u32::MAX, NonZeroU32::MAX)] {
        let codes = NonZeroU32::new(codes).unwrap();
        let one = PokerRow::new(holder("a"), codes, shards, at(10));
        world.write(|tx| tx.put_worker(&one));
        assert_eq!(world.read(|tx| tx.live_workers(at(0))), [one]);
    }
}

fn a_worker_says_which_of_its_name_it_is(store: &dyn Store) {
    let world = World(store);
    for incarnation in [7, 0, u64::MAX, 1 << 63] {
        let one = worker("a", 10).incarnation(incarnation);
        world.write(|tx| tx.put_worker(&one));
        assert_eq!(world.read(|tx| tx.live_workers(at(0))), [one], "the last one counts");
    }
}

fn kind(name: &str) -> SensorKind {
    SensorKind::new(name).unwrap()
}

fn a_worker_says_which_kinds_it_pokes(store: &dyn Store) {
    let world = World(store);
    let some = worker("a", 10).kinds(["é", "a\"b", "a, b"].into_iter().map(kind).collect());
    for one in [worker("a", 10), some, worker("a", 10).kinds(Default::default()), worker("a", 10)] {
        world.write(|tx| tx.put_worker(&one));
        assert_eq!(world.read(|tx| tx.live_workers(at(0))), [one], "none is not the same as all");
    }
}

fn a_worker_says_how_many_shards_it_holds_at_most(store: &dyn Store) {
    let world = World(store);
    for most in [None, Some(NonZeroU32::MIN), Some(NonZeroU32::MAX), None] {
        let one = worker("a", 10).most_shards(most);
        world.write(|tx| tx.put_worker(&one));
        assert_eq!(world.read(|tx| tx.live_workers(at(0))), [one]);
    }
}

fn workers_are_forgotten_before_an_instant(store: &dyn Store) {
    let world = World(store);
    put(world, &[ShardWrite::new(0, lease(0, "a", 1, 99))]);
    for (name, until) in [("a", 10), ("b", 11), ("c", 90)] {
        world.write(|tx| tx.put_worker(&worker(name, until)));
    }
    assert_eq!(world.write(|tx| tx.forget_workers(at(10), 9)), 0, "at the instant itself it stays");
    assert_eq!(live(world, 0), ["a", "b", "c"]);
    assert_eq!(world.write(|tx| tx.forget_workers(at(12), 9)), 2);
    assert_eq!(live(world, 0), ["c"]);
    assert_eq!(world.read(|tx| tx.shard_leases()), [lease(0, "a", 1, 99)], "leases end by themselves");
    assert_eq!(world.write(|tx| tx.forget_workers(at(12), 9)), 0);
}

fn the_earliest_expired_workers_are_forgotten_first(store: &dyn Store) {
    let world = World(store);
    for (name, until) in [("a", 30), ("c", 10), ("d", 20), ("b", 10)] {
        world.write(|tx| tx.put_worker(&worker(name, until)));
    }
    assert_eq!(world.write(|tx| tx.forget_workers(at(99), 1)), 1);
    assert_eq!(live(world, 0), ["a", "c", "d"], "of equal instants the first by name");
    assert_eq!(world.write(|tx| tx.forget_workers(at(99), 2)), 2);
    assert_eq!(live(world, 0), ["a"]);
    assert_eq!(world.write(|tx| tx.forget_workers(at(99), usize::MAX)), 1);
}

fn a_deleted_worker_is_gone(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| {
        tx.put_worker(&worker("a", 10))?;
        tx.put_worker(&worker("b", 10))
    });
    world.write(|tx| tx.delete_worker(&holder("a")));
    world.write(|tx| tx.delete_worker(&holder("nobody")));
    assert_eq!(live(world, 0), ["b"]);
}

fn a_shard_is_taken_once(store: &dyn Store) {
    let world = World(store);
    assert_eq!(world.read(|tx| tx.shard_leases()), []);
    let never_held = ShardWrite::new(1, lease(5, "a", 2, 10));
    assert_eq!(put(world, &[never_held]), [false], "a shard that was never held has epoch 0");
    assert_eq!(put(world, &[ShardWrite::new(0, lease(5, "a", 1, 10))]), [true]);
    assert_eq!(put(world, &[ShardWrite::new(0, lease(5, "b", 1, 99))]), [false]);
    assert_eq!(world.read(|tx| tx.shard_leases()), [lease(5, "a", 1, 10)]);
}

fn a_shard_is_renewed_under_its_epoch(store: &dyn Store) {
    let world = World(store);
    put(world, &[ShardWrite::new(0, lease(0, "a", 1, 10))]);
    assert_eq!(put(world, &[ShardWrite::new(1, lease(0, "a", 1, 30))]), [true]);
    assert_eq!(world.read(|tx| tx.shard_leases()), [lease(0, "a", 1, 30)]);
    assert_eq!(put(world, &[ShardWrite::new(1, lease(0, "b", 2, 40))]), [true]);
    assert_eq!(world.read(|tx| tx.shard_leases()), [lease(0, "b", 2, 40)]);
}

fn a_stale_epoch_changes_nothing(store: &dyn Store) {
    let world = World(store);
    put(world, &[ShardWrite::new(0, lease(0, "a", 1, 10))]);
    put(world, &[ShardWrite::new(1, lease(0, "b", 2, 20))]);
    for was in [0, 1, 3, i64::MIN, i64::MAX] {
        assert_eq!(put(world, &[ShardWrite::new(was, lease(0, "a", 9, 99))]), [false], "epoch {was}");
    }
    assert_eq!(world.read(|tx| tx.shard_leases()), [lease(0, "b", 2, 20)]);
}

fn a_lease_that_was_renewed_is_not_taken(store: &dyn Store) {
    let world = World(store);
    for shard in [lease(0, "a", 1, 10), loan(0, "k", "a", 1, 10), loan(0, "l", "a", 1, 10)] {
        assert_eq!(
            put(world, &[ShardWrite::new(0, shard.clone()).ended(at(10))]),
            [true],
            "there is none to end"
        );
        // Of what was decided from the lease as it was, the first takes effect.
        let renewed = ShardLease { expires_at: at(30), ..shard.clone() };
        let taken = ShardLease { holder: Some(holder("b")), epoch: 2, expires_at: at(40), ..shard.clone() };
        assert_eq!(put(world, &[ShardWrite::new(1, renewed.clone()).ended(at(10))]), [true]);
        assert_eq!(put(world, &[ShardWrite::new(1, taken.clone()).ended(at(10))]), [false]);
        let gone = ShardLease { holder: None, ..taken.clone() };
        assert_eq!(put(world, &[ShardWrite::new(1, gone.clone()).ended(at(10))]), [false]);
        assert!(world.read(|tx| tx.shard_leases()).contains(&renewed));
        let last = if shard.kind == Some(kind("l")) { gone } else { taken.clone() };
        assert_eq!(put(world, &[ShardWrite::new(1, last).ended(at(30))]), [true]);
        assert_eq!(put(world, &[ShardWrite::new(1, renewed).ended(at(30))]), [false], "nor renewed any more");
    }
    assert_eq!(world.read(|tx| tx.shard_leases()).len(), 2, "the last one was deleted");
}

fn each_shard_has_its_own_condition(store: &dyn Store) {
    let world = World(store);
    put(world, &[ShardWrite::new(0, lease(1, "a", 1, 10)), ShardWrite::new(0, lease(2, "a", 1, 10))]);
    let writes = [
        ShardWrite::new(1, lease(2, "b", 2, 20)),
        ShardWrite::new(0, lease(1, "b", 1, 20)),
        ShardWrite::new(0, lease(3, "b", 1, 20)),
        ShardWrite::new(0, lease(3, "c", 1, 30)),
    ];
    assert_eq!(put(world, &writes), [true, false, true, false]);
    let expected = [lease(1, "a", 1, 10), lease(2, "b", 2, 20), lease(3, "b", 1, 20)];
    assert_eq!(world.read(|tx| tx.shard_leases()), expected);
}

fn shards_come_by_number(store: &dyn Store) {
    let world = World(store);
    let shards = [10, 9, u32::MAX, 0, 100];
    put(world, &shards.map(|shard| ShardWrite::new(0, lease(shard, "a", 1, 10))));
    let found: Vec<u32> = world.read(|tx| tx.shard_leases()).iter().map(|lease| lease.shard).collect();
    assert_eq!(found, [0, 9, 10, 100, u32::MAX]);
}

fn a_deleted_worker_releases_its_shards(store: &dyn Store) {
    let world = World(store);
    let names = ["a", "b", "a"];
    let writes = [0, 1, 2].map(|shard: u32| ShardWrite::new(0, lease(shard, names[shard as usize], 1, 10)));
    put(world, &writes);
    world.write(|tx| tx.delete_worker(&holder("a")));
    let leases = world.read(|tx| tx.shard_leases());
    let holders: Vec<_> = leases.iter().map(|lease| lease.holder.clone()).collect();
    assert_eq!(holders, [None, Some(holder("b")), None], "also of a worker that was not known");
    assert_eq!(leases[1], lease(1, "b", 1, 10));
    assert_eq!(leases[0].epoch, 2, "the holder changed, and the epoch counts that");
    let renewal = ShardWrite::new(1, lease(0, "a", 1, 99));
    assert_eq!(put(world, &[renewal]), [false], "a late renewal does not bring it back");
    let (was, next) = (leases[0].epoch, leases[0].epoch + 1);
    assert_eq!(put(world, &[ShardWrite::new(was, lease(0, "b", next, 20))]), [true]);
}

fn a_shard_can_be_released_by_hand(store: &dyn Store) {
    let world = World(store);
    put(world, &[ShardWrite::new(0, lease(0, "a", 1, 10))]);
    let released = ShardLease::new(0, None, 2, at(10));
    assert_eq!(put(world, &[ShardWrite::new(1, released.clone())]), [true]);
    assert_eq!(world.read(|tx| tx.shard_leases()), [released]);
}

fn loan(shard: u32, of: &str, name: &str, epoch: i64, until: i64) -> ShardLease {
    lease(shard, name, epoch, until).kind(kind(of))
}

fn a_kind_of_a_shard_has_a_lease_of_its_own(store: &dyn Store) {
    let world = World(store);
    let never_held = ShardWrite::new(1, loan(5, "k", "b", 2, 10));
    assert_eq!(put(world, &[never_held]), [false]);
    let all =
        [lease(5, "a", 1, 10), loan(5, "K", "b", 7, 20), loan(5, "k", "c", 1, 30), lease(6, "a", 1, 10)];
    let mut writes = all.clone().map(|lease| ShardWrite::new(0, lease));
    writes.reverse();
    assert_eq!(put(world, &writes), [true; 4]);
    assert_eq!(world.read(|tx| tx.shard_leases()), all, "the shard's before those of its kinds");
    assert_eq!(put(world, &[ShardWrite::new(0, loan(5, "k", "d", 1, 99))]), [false]);
    let writes = [
        ShardWrite::new(1, loan(5, "K", "d", 8, 50)),
        ShardWrite::new(7, loan(5, "K", "d", 8, 50)),
        ShardWrite::new(1, loan(5, "k", "c", 1, 40)),
    ];
    assert_eq!(put(world, &writes), [false, true, true], "each under its own epoch");
    let [shard, _, _, other] = all;
    let now = [shard, loan(5, "K", "d", 8, 50), loan(5, "k", "c", 1, 40), other];
    assert_eq!(world.read(|tx| tx.shard_leases()), now);
}

fn a_loan_without_a_holder_is_gone(store: &dyn Store) {
    let world = World(store);
    let all = [lease(5, "a", 1, 10), loan(5, "j", "b", 3, 20), loan(5, "k", "b", 3, 20)];
    put(world, &all.clone().map(|lease| ShardWrite::new(0, lease)));
    let free = |of: &str| ShardLease::new(5, None, 4, at(20)).kind(kind(of));
    let never = free("x");
    let writes = [
        ShardWrite::new(2, free("k")),
        ShardWrite::new(3, free("k")),
        ShardWrite::new(3, free("k")),
        ShardWrite::new(0, never),
    ];
    assert_eq!(put(world, &writes), [false, true, false, false]);
    assert_eq!(world.read(|tx| tx.shard_leases()), all[..2], "and one that never was is not kept");
    assert_eq!(put(world, &[ShardWrite::new(3, loan(5, "k", "b", 3, 99))]), [false], "it is not renewed");
    assert_eq!(put(world, &[ShardWrite::new(0, loan(5, "k", "c", 5, 99))]), [true]);
}

fn a_lease_says_what_its_pokes_cost(store: &dyn Store) {
    let world = World(store);
    let all = [lease(0, "a", 1, 10).load(u64::MAX >> 1), loan(0, "k", "b", 1, 10).load(7)];
    put(world, &all.clone().map(|lease| ShardWrite::new(0, lease)));
    assert_eq!(world.read(|tx| tx.shard_leases()), all);
    let later = [lease(0, "a", 1, 20).load(5), loan(0, "k", "c", 2, 10).load(0)];
    put(world, &later.clone().map(|lease| ShardWrite::new(1, lease)));
    assert_eq!(world.read(|tx| tx.shard_leases()), later);
    world.write(|tx| tx.delete_worker(&holder("a")));
    assert_eq!(world.read(|tx| tx.shard_leases())[0].load, 5, "who takes it next knows");
}

fn a_deleted_worker_loses_its_loans(store: &dyn Store) {
    let world = World(store);
    let all = [
        lease(0, "a", 1, 10),
        loan(0, "k", "b", 1, 10),
        lease(1, "b", 1, 10),
        loan(1, "k", "a", 1, 10),
        loan(2, "k", "a", 1, 10),
    ];
    put(world, &all.clone().map(|lease| ShardWrite::new(0, lease)));
    world.write(|tx| tx.delete_worker(&holder("a")));
    let [_, loan, other, ..] = all;
    assert_eq!(world.read(|tx| tx.shard_leases()), [ShardLease::new(0, None, 2, at(10)), loan, other]);
}

fn a_host_sees_workers_and_shards(store: &dyn Store) {
    let world = World(store);
    assert_eq!(store.read(|tx| tx.sensor_workers(at(0))).unwrap(), (Vec::new(), Vec::new()));
    for (name, until) in [("b", 20), ("a", 10)] {
        world.write(|tx| tx.put_worker(&worker(name, until)));
    }
    let leases = [lease(0, "b", 1, 20), lease(3, "a", 1, 10)];
    put(world, &leases.clone().map(|lease| ShardWrite::new(0, lease)));
    let seen = |now| store.read(|tx| tx.sensor_workers(at(now))).unwrap();
    assert_eq!(seen(9), (vec![worker("a", 10), worker("b", 20)], leases.to_vec()));
    assert_eq!(seen(10), (vec![worker("b", 20)], leases.to_vec()), "a lease that expired is shown");
    world.write(|tx| tx.delete_worker(&holder("b")));
    assert_eq!(seen(10).1[0], ShardLease::new(0, None, 2, at(20)), "and one that was released");
}

fn take(shard: u32, name: &str, epoch: i64, when: i64) -> ShardTake {
    ShardTake::new(&lease(shard, name, epoch, 0), &worker(name, 0), at(when)).left_at(at(when - 3))
}

fn it_is_remembered_who_took_a_shard(store: &dyn Store) {
    let world = World(store);
    let [first, second, other] = [take(7, "a", 1, 10), take(7, "é", 3, 20), take(5, "a", 1, 15)];
    world.write(|tx| tx.put_shard_takes(&[second.clone(), other.clone()], at(0)));
    world.write(|tx| tx.put_shard_takes(std::slice::from_ref(&first), at(0)));
    world.write(|tx| tx.put_shard_takes(&[], at(0)));
    assert_eq!(
        world.read(|tx| tx.shard_takes()),
        [other.clone(), first.clone(), second],
        "by shard and epoch"
    );
    let again = take(7, "b", 3, 30);
    world.write(|tx| tx.put_shard_takes(&[take(7, "c", 3, 40), again.clone()], at(0)));
    assert_eq!(world.read(|tx| tx.shard_takes()), [other, first, again], "the last of an epoch");
    assert_eq!(world.read(|tx| tx.shard_leases()), [], "it holds nothing");
}

fn early_takes_of_a_shard_are_forgotten(store: &dyn Store) {
    let world = World(store);
    let epochs = |shard| -> Vec<i64> {
        let takes = world.read(|tx| tx.shard_takes()).into_iter();
        takes.filter(|take| take.shard == shard).map(|take| take.epoch).collect()
    };
    world
        .write(|tx| tx.put_shard_takes(&[take(1, "a", 1, 1), take(1, "a", 2, 2), take(2, "a", 1, 1)], at(0)));
    world.write(|tx| tx.put_shard_takes(&[take(1, "b", KEPT_TAKES, 3)], at(0)));
    assert_eq!(epochs(1), [1, 2, KEPT_TAKES]);
    world.write(|tx| tx.put_shard_takes(&[take(1, "b", KEPT_TAKES + 1, 4)], at(0)));
    assert_eq!((epochs(1), epochs(2)), (vec![2, KEPT_TAKES, KEPT_TAKES + 1], vec![1]));
}

fn takes_of_a_kind_are_apart(store: &dyn Store) {
    let world = World(store);
    let of = |of: &str, epoch| ShardTake { kind: Some(kind(of)), ..take(1, "b", epoch, 5) };
    let all = [take(1, "a", 1, 1), of("j", 2), of("k", 1), of("k", 2), take(2, "a", 1, 1)];
    let [shard, j, k, later, other] = all.clone();
    world.write(|tx| {
        tx.put_shard_takes(&[later.clone(), k.clone(), other.clone(), j.clone(), shard.clone()], at(0))
    });
    assert_eq!(world.read(|tx| tx.shard_takes()), all, "by shard, kind and epoch");
    let last = of("k", KEPT_TAKES + 1);
    world.write(|tx| tx.put_shard_takes(std::slice::from_ref(&last), at(0)));
    assert_eq!(world.read(|tx| tx.shard_takes()), [shard, j, later, last, other], "early ones of its kind");
}

fn old_takes_of_kinds_are_forgotten(store: &dyn Store) {
    let world = World(store);
    let of = |of: &str, epoch, when| ShardTake { kind: Some(kind(of)), ..take(1, "b", epoch, when) };
    let all = [take(1, "a", 1, 1), of("j", 2, 9), of("k", 1, 4), of("k", 2, 5), of("k", 3, 6), of("l", 1, 5)];
    world.write(|tx| tx.put_shard_takes(&all, at(1)));
    put(world, &[ShardWrite::new(0, loan(1, "l", "b", 1, 10))]);
    world.write(|tx| tx.put_shard_takes(&[], at(6)));
    let [shard, j, _, _, k, l] = all;
    assert_eq!(
        world.read(|tx| tx.shard_takes()),
        [shard.clone(), j.clone(), k, l.clone()],
        "those of a loan are kept"
    );
    world.write(|tx| tx.put_shard_takes(&[take(2, "a", 1, 1)], at(7)));
    assert_eq!(world.read(|tx| tx.shard_takes()), [shard, j, l, take(2, "a", 1, 1)]);
}

fn outage(target: u64, since: i64, until: Option<i64>) -> OutageRow {
    OutageRow { fingerprint: Fingerprint(target), since: at(since), until: until.map(at) }
}

fn outages_that_go_on_are_found(store: &dyn Store) {
    let world = World(store);
    let all =
        [outage(u64::MAX, 5, None), outage(3, 20, None), outage(3, 10, Some(12)), outage(4, 1, Some(1))];
    world.write(|tx| tx.put_outages(&all, at(0)));
    let open = [outage(3, 20, None), outage(u64::MAX, 5, None)];
    assert_eq!(world.read(|tx| tx.outages(None)), open);
    let of = |targets: &[u64]| {
        let targets: Vec<Fingerprint> = targets.iter().copied().map(Fingerprint).collect();
        world.read(|tx| tx.outages(Some(&targets)))
    };
    assert_eq!(of(&[4, 3, 9, 3]), [outage(3, 10, Some(12)), outage(3, 20, None), outage(4, 1, Some(1))]);
    assert_eq!(of(&[]), []);
}

fn an_outage_is_replaced_under_its_beginning(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_outages(&[outage(3, 10, None)], at(0)));
    world.write(|tx| tx.put_outages(&[outage(3, 10, Some(30)), outage(3, 10, Some(20))], at(0)));
    let of = |target| world.read(|tx| tx.outages(Some(&[Fingerprint(target)])));
    assert_eq!(of(3), [outage(3, 10, Some(20))], "the last of them");
    assert_eq!(world.read(|tx| tx.outages(None)), []);
}

fn old_outages_are_forgotten(store: &dyn Store) {
    let world = World(store);
    let of = |target| world.read(|tx| tx.outages(Some(&[Fingerprint(target)])));
    let kept = i64::try_from(KEPT_OUTAGES).unwrap();
    let mut many: Vec<OutageRow> = (0..kept).map(|since| outage(1, since, Some(since))).collect();
    many.push(outage(2, 0, None));
    world.write(|tx| tx.put_outages(&many, at(0)));
    assert_eq!(of(1).len(), KEPT_OUTAGES, "none ended before the instant");
    world.write(|tx| tx.put_outages(&[outage(1, kept, None)], at(0)));
    assert_eq!((of(1).len(), of(1)[0]), (KEPT_OUTAGES, outage(1, 1, Some(1))), "the latest are kept");
    world.write(|tx| tx.put_outages(&[], at(kept)));
    assert_eq!(
        (of(1), of(2)),
        (vec![outage(1, kept, None)], vec![outage(2, 0, None)]),
        "what goes on is kept"
    );
}
