//! Limits: what tasks carry, and how many of them are let in.

use super::world::{World, limit, task, to};
use crate::admission::limits::{LimitRecord, LimitSpec};
use crate::bounds::MAX_LIMIT_KEYS;
use crate::id::LimitKey;
use crate::lease::{LeaseRef, TaskId};
use crate::pool::{PoolSpec, Slots};
use crate::store::Store;
use crate::task::TaskState;

cases!("limits":
    tasks_make_their_keys_known,
    a_limit_is_defined_and_changed,
    a_later_limit_counts_those_already_admitted,
    taken_up_to_the_last_one,
    a_key_without_a_maximum_is_counted_but_never_full,
    each_key_has_its_own_condition,
    a_deleted_limit_goes_on_counting,
    a_deleted_limit_is_forgotten_if_nothing_needs_it,
    only_defined_limits_are_listed_by_key,
    a_task_carries_many_keys,
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

/// Tasks of these names that carry these keys.
fn carrying(world: World<'_>, names: &[&str], keys: &[&str]) -> Vec<TaskId> {
    let carrying = |name: &&str| keys.iter().fold(task(name), |task, key| task.limit(limit(key)));
    world.insert(&names.iter().map(carrying).collect::<Vec<_>>())
}

fn tasks_make_their_keys_known(store: &dyn Store) {
    let world = World(store);
    assert_eq!(one(world, "a"), None);
    let id = world.insert(&[task("t").limit(limit("b")).limit(limit("a")).limit(limit("b"))])[0];
    assert_eq!(world.task(id).lane.limits, ["a", "b"].map(limit));
    let found = world.read(|tx| tx.limits(&["b", "nobody", "a"].map(limit)));
    assert_eq!(found, [Some(record("b", None, 0)), None, Some(record("a", None, 0))]);
    assert_eq!(world.read(|tx| tx.all_limits()), []);
}

fn a_limit_is_defined_and_changed(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_limits(&[spec("a", 2), spec("b", 0)]));
    assert_eq!(one(world, "a"), Some(record("a", Some(2), 0)));
    let id = world.insert(&[task("t").limit(limit("a"))])[0];
    assert_eq!(one(world, "a"), Some(record("a", Some(2), 0)), "a task that carries it leaves it as it is");
    world.admit(&[id]);
    world.write(|tx| tx.put_limits(&[spec("a", 0)]));
    let lowered = one(world, "a").unwrap();
    assert_eq!(lowered, record("a", Some(0), 1), "what counts against it stays");
    assert_eq!(lowered.open(), Some(-1));
    assert!(!world.admit_if_room(&carrying(world, &["u"], &["a"])), "negative is not unlimited");
}

fn a_later_limit_counts_those_already_admitted(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&["1", "2", "3"].map(|name| task(name).limit(limit("a"))));
    world.admit(&ids[..1]);
    let lease = world.run(&ids[1..2])[0];
    world.write(|tx| tx.put_limits(&[spec("a", 3)]));
    assert_eq!(one(world, "a"), Some(record("a", Some(3), 2)));
    world.shift(&[to(lease, TaskState::Sensing)]);
    assert_eq!(one(world, "a"), Some(record("a", Some(3), 1)), "a sensing task does not count");
}

fn taken_up_to_the_last_one(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_limits(&[spec("a", 5)]));
    let ids = carrying(world, &["1", "2", "3", "4", "5", "6"], &["a"]);
    let used = || one(world, "a").unwrap().used;
    assert!(!world.admit_if_room(&ids), "six are too many");
    assert_eq!(used(), 0);
    assert!(world.admit_if_room(&ids[..3]) && !world.admit_if_room(&ids[3..]));
    assert_eq!(used(), 3);
    assert!(world.admit_if_room(&ids[3..5]) && !world.admit_if_room(&ids[5..]));
    assert_eq!(used(), 5);
    world.end(&[LeaseRef::new(ids[1], 1), LeaseRef::new(ids[4], 1)]);
    assert_eq!(used(), 3);
    assert!(world.admit_if_room(&ids[5..]));
}

fn a_key_without_a_maximum_is_counted_but_never_full(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[PoolSpec::new("default_pool", Slots::Unlimited).unwrap()]));
    let names: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let ids = carrying(world, &names.iter().map(String::as_str).collect::<Vec<_>>(), &["a"]);
    assert!(world.admit_if_room(&ids));
    assert_eq!(one(world, "a"), Some(record("a", None, 200)));
}

fn each_key_has_its_own_condition(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_limits(&[spec("a", 1), spec("b", 2)]));
    let one_of_both = carrying(world, &["1"], &["a", "b"]);
    assert!(world.admit_if_room(&one_of_both));
    assert!(!world.admit_if_room(&carrying(world, &["2"], &["a", "b"])), "one has room, the other has none");
    assert!(world.admit_if_room(&carrying(world, &["3"], &["b"])));
    let used = world.read(|tx| tx.all_limits()).iter().map(|limit| limit.used).collect::<Vec<_>>();
    assert_eq!(used, [1, 2]);
}

fn a_deleted_limit_goes_on_counting(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_limits(&[spec("a", 2), spec("b", 2)]));
    let ids = world.insert(&["1", "2", "3"].map(|name| task(name).limit(limit("a"))));
    world.admit(&ids[..2]);
    let asked = ["nobody", "a", "b", "a"].map(limit);
    let answers = world.write(|tx| tx.delete_limits(&asked));
    let expected = [false, true, true, false];
    assert_eq!(answers, expected);
    assert_eq!(world.read(|tx| tx.all_limits()), []);
    assert_eq!(one(world, "a"), Some(record("a", None, 2)));
    world.admit(&ids[2..]);
    assert_eq!(one(world, "a"), Some(record("a", None, 3)), "it limits nothing any more");
    world.write(|tx| tx.put_limits(&[spec("a", 2)]));
    assert_eq!(one(world, "a").and_then(|limit| limit.open()), Some(-1));
}

fn a_deleted_limit_is_forgotten_if_nothing_needs_it(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_limits(&["carried", "counted", "idle"].map(|name| spec(name, 2))));
    carrying(world, &["t"], &["carried"]);
    world.admit(&carrying(world, &["u"], &["counted"]));
    world.write(|tx| tx.delete_limits(&["carried", "counted", "idle"].map(limit)));
    assert_eq!(one(world, "carried"), Some(record("carried", None, 0)));
    assert_eq!(one(world, "counted"), Some(record("counted", None, 1)));
    assert_eq!(one(world, "idle"), None);
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
    let id = world.insert(&[new])[0];
    assert_eq!(world.task(id).lane.limits, keys);
    let lease = world.run(&[id])[0];
    let used = |expected| {
        let records = world.read(|tx| tx.limits(&keys));
        assert!(records.into_iter().flatten().all(|limit| limit.used == expected));
    };
    used(1);
    world.shift(&[to(lease, TaskState::Failed)]);
    used(0);
}
