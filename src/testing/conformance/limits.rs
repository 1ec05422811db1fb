//! Limits: what tasks carry, and how many of them are let in.

use super::steps::Steps;
use super::world::{World, limit, task, to};
use crate::admission::limits::{LimitRecord, LimitSpec};
use crate::bounds::MAX_LIMIT_KEYS;
use crate::id::LimitKey;
use crate::store::{Discrepancy, LimitDeletion, Store};
use crate::task::TaskState;

cases!("limits":
    tasks_make_their_keys_known,
    a_limit_is_defined_and_changed,
    a_later_limit_counts_those_already_admitted,
    taken_up_to_the_last_one,
    a_key_without_a_maximum_is_counted_but_never_full,
    an_unknown_key_is_passed_over,
    each_key_has_its_own_condition,
    a_deleted_limit_goes_on_counting,
    a_deleted_limit_is_forgotten_if_nothing_needs_it,
    only_defined_limits_are_listed_by_key,
    a_task_carries_many_keys,
    the_audit_finds_a_wrong_count,
);

fn spec(name: &str, max: u32) -> LimitSpec {
    LimitSpec::new(limit(name), max).unwrap()
}

fn record(name: &str, max: Option<u32>, used: i64) -> LimitRecord {
    LimitRecord::new(limit(name), max, used)
}

fn one(world: World<'_>, name: &str) -> Option<LimitRecord> {
    world.read(|tx| tx.limits(&[limit(name)])).remove(0)
}

fn take(world: World<'_>, wanted: &[(LimitKey, u64)]) -> usize {
    world.write(|tx| tx.take_limits_if_open(wanted))
}

fn tasks_make_their_keys_known(store: &dyn Store) {
    let world = World(store);
    assert_eq!(one(world, "a"), None);
    let no = world.insert(&[task("t").limit(limit("b")).limit(limit("a")).limit(limit("b"))])[0];
    assert_eq!(world.task(no).lane.limits, ["a", "b"].map(limit));
    let found = world.read(|tx| tx.limits(&["b", "nobody", "a"].map(limit)));
    assert_eq!(found, [Some(record("b", None, 0)), None, Some(record("a", None, 0))]);
    assert_eq!(world.read(|tx| tx.all_limits()), []);
}

fn a_limit_is_defined_and_changed(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_limits(&[spec("a", 2), spec("b", 0)]));
    assert_eq!(one(world, "a"), Some(record("a", Some(2), 0)));
    let no = world.insert(&[task("t").limit(limit("a"))])[0];
    assert_eq!(one(world, "a"), Some(record("a", Some(2), 0)), "a task that carries it leaves it as it is");
    world.admit(&[no]);
    world.write(|tx| tx.put_limits(&[spec("a", 0)]));
    let lowered = one(world, "a").unwrap();
    assert_eq!(lowered, record("a", Some(0), 1), "what counts against it stays");
    assert_eq!(lowered.open(), Some(-1));
    assert_eq!(take(world, &[(limit("a"), 1)]), 0);
}

fn a_later_limit_counts_those_already_admitted(store: &dyn Store) {
    let world = World(store);
    let nos = world.insert(&["1", "2", "3"].map(|name| task(name).limit(limit("a"))));
    world.admit(&nos[..1]);
    let lease = world.run(&nos[1..2])[0];
    world.write(|tx| tx.put_limits(&[spec("a", 3)]));
    assert_eq!(one(world, "a"), Some(record("a", Some(3), 2)));
    world.shift(&[to(lease, TaskState::Sensing)]);
    assert_eq!(one(world, "a"), Some(record("a", Some(3), 1)), "a sensing task does not count");
}

fn taken_up_to_the_last_one(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_limits(&[spec("a", 5)]));
    for (wanted, taken, used) in [(6, 0, 0), (3, 1, 3), (3, 0, 3), (2, 1, 5), (1, 0, 5)] {
        assert_eq!(take(world, &[(limit("a"), wanted)]), taken, "{wanted} more");
        assert_eq!(one(world, "a").unwrap().used, used);
    }
    world.write(|tx| tx.give_limits_back(&[(limit("a"), 2)]));
    assert_eq!(one(world, "a").unwrap().used, 3);
    world.write(|tx| tx.give_limits_back(&[(limit("a"), 3)]));
}

fn a_key_without_a_maximum_is_counted_but_never_full(store: &dyn Store) {
    let world = World(store);
    world.insert(&[task("t").limit(limit("a"))]);
    assert_eq!(take(world, &[(limit("a"), 1 << 40)]), 1);
    assert_eq!(one(world, "a"), Some(record("a", None, 1 << 40)));
    world.write(|tx| tx.give_limits_back(&[(limit("a"), 1 << 40)]));
}

fn an_unknown_key_is_passed_over(store: &dyn Store) {
    let world = World(store);
    assert_eq!(take(world, &[(limit("nobody"), 1)]), 0);
    world.write(|tx| tx.give_limits_back(&[(limit("nobody"), 1)]));
    assert_eq!(one(world, "nobody"), None);
}

fn each_key_has_its_own_condition(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_limits(&[spec("a", 1), spec("b", 2), spec("c", 3)]));
    let wanted = [(limit("c"), 3), (limit("nobody"), 1), (limit("a"), 2), (limit("b"), 1)];
    assert_eq!(take(world, &wanted), 2);
    let used = world.read(|tx| tx.all_limits()).iter().map(|limit| limit.used).collect::<Vec<_>>();
    assert_eq!(used, [0, 1, 3]);
    world.write(|tx| tx.give_limits_back(&[(limit("b"), 1), (limit("nobody"), 9), (limit("c"), 3)]));
}

fn a_deleted_limit_goes_on_counting(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_limits(&[spec("a", 2), spec("b", 2)]));
    let nos = world.insert(&["1", "2", "3"].map(|name| task(name).limit(limit("a"))));
    world.admit(&nos[..2]);
    let asked = ["nobody", "a", "b", "a"].map(limit);
    let answers = world.write(|tx| tx.delete_limits(&asked));
    let expected =
        [LimitDeletion::Unknown, LimitDeletion::Deleted, LimitDeletion::Deleted, LimitDeletion::Unknown];
    assert_eq!(answers, expected);
    assert_eq!(world.read(|tx| tx.all_limits()), []);
    assert_eq!(one(world, "a"), Some(record("a", None, 2)));
    world.admit(&nos[2..]);
    assert_eq!(one(world, "a"), Some(record("a", None, 3)), "it limits nothing any more");
    world.write(|tx| tx.put_limits(&[spec("a", 2)]));
    assert_eq!(one(world, "a").and_then(|limit| limit.open()), Some(-1));
}

fn a_deleted_limit_is_forgotten_if_nothing_needs_it(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_limits(&["carried", "counted", "idle"].map(|name| spec(name, 2))));
    world.insert(&[task("t").limit(limit("carried"))]);
    take(world, &[(limit("counted"), 1)]);
    world.write(|tx| tx.delete_limits(&["carried", "counted", "idle"].map(limit)));
    assert_eq!(one(world, "carried"), Some(record("carried", None, 0)));
    assert_eq!(one(world, "counted"), Some(record("counted", None, 1)));
    assert_eq!(one(world, "idle"), None);
    world.write(|tx| tx.give_limits_back(&[(limit("counted"), 1)]));
}

fn only_defined_limits_are_listed_by_key(store: &dyn Store) {
    let world = World(store);
    world.insert(&[task("t").limit(limit("carried"))]);
    world.write(|tx| tx.put_limits(&["b", "a", "Z", "é"].map(|name| spec(name, 1))));
    let keys: Vec<_> = world.read(|tx| tx.all_limits()).into_iter().map(|limit| limit.key).collect();
    assert_eq!(keys, ["Z", "a", "b", "é"].map(limit));
}

fn a_task_carries_many_keys(store: &dyn Store) {
    let world = World(store);
    let keys: Vec<LimitKey> = (0..MAX_LIMIT_KEYS).map(|n| limit(&format!("{n:03}"))).collect();
    let new = keys.iter().rev().fold(task("t"), |task, key| task.limit(key.clone()));
    let no = world.insert(&[new])[0];
    assert_eq!(world.task(no).lane.limits, keys);
    let lease = world.run(&[no])[0];
    let used = |expected| {
        let records = world.read(|tx| tx.limits(&keys));
        assert!(records.into_iter().flatten().all(|limit| limit.used == expected));
    };
    used(1);
    world.shift(&[to(lease, TaskState::Failed)]);
    used(0);
}

fn the_audit_finds_a_wrong_count(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_limits(&[spec("a", 5)]));
    let no = world.insert(&[task("t").limit(limit("a"))])[0];
    world.admit(&[no]);
    take(world, &[(limit("a"), 2)]);
    let found = world.read(|tx| tx.audit());
    assert_eq!(found, [Discrepancy::Limit { key: limit("a"), counted: 3, held: 1 }]);
    world.write(|tx| tx.give_limits_back(&[(limit("a"), 2)]));
}
