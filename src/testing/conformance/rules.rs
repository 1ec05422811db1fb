//! Families, rates and pauses.

use std::time::Duration;

use super::world::{World, at, holder, limit, pool, sized, task, to};
use crate::admission::Subject;
use crate::admission::limits::{LimitSpec, Rate, RateUse};
use crate::error::StoreResult;
use crate::id::{LimitKey, QueueName};
use crate::lease::TaskId;
use crate::store::Store;
use crate::store::contract::{GrantBatch, StoreTx, SurveyQuery};
use crate::task::TaskState;

cases!("rules":
    families_are_replaced_and_removed,
    a_definition_is_stored_with_all_of_its_fields,
    a_key_without_a_maximum_is_defined_all_the_same,
    a_survey_tells_families_and_pauses,
    what_is_paused_is_listed_in_order,
    a_second_pause_changes_nothing,
    a_grant_notes_what_keys_owe,
    a_grant_of_nothing_notes_nothing,
    what_owes_nothing_is_forgotten_but_for_the_last,
    leases_are_counted_by_needs,
);

fn family(prefix: &str, max: u32) -> LimitSpec {
    LimitSpec::new(limit(prefix), max).unwrap().family()
}

fn rate(starts: u32, micros: u64, burst: u32) -> Rate {
    Rate::new(starts, Duration::from_micros(micros)).unwrap().burst(burst).unwrap()
}

fn owes(key: &str, owed: i64, since: i64) -> RateUse {
    RateUse::new(limit(key), owed, at(since), 2, Duration::from_micros(7))
}

fn families_are_replaced_and_removed(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_limits(&[family("t/", 3), family("a", 1), family("ä", 1), family("Z", 9)]));
    world
        .write(|tx| tx.put_limits(&[family("a", 2), LimitSpec::new(limit("a"), 7).unwrap(), family("a", 5)]));
    let found = || world.read(|tx| tx.families());
    assert_eq!(found(), [family("Z", 9), family("a", 5), family("t/", 3), family("ä", 1)]);
    assert_eq!(world.read(|tx| tx.limits(&[limit("a")]))[0].as_ref().unwrap().max, Some(7), "its own key");
    assert_eq!(world.read(|tx| tx.limits(&[limit("t/"), limit("t/x")])), [None, None]);

    let gone = ["a", "nobody", "a", "Z"].map(limit);
    assert_eq!(world.write(|tx| tx.delete_families(&gone)), [true, false, false, true]);
    assert_eq!(found(), [family("t/", 3), family("ä", 1)]);
    assert_eq!(world.read(|tx| tx.all_limits()).len(), 1);
}

fn a_definition_is_stored_with_all_of_its_fields(store: &dyn Store) {
    let world = World(store);
    let most = rate(i32::MAX as u32, 366 * 24 * 3_600 * 1_000_000, 1);
    let specs = [
        LimitSpec::of(limit("a")).rate(rate(3, 1, 2)).weight(5),
        LimitSpec::new(limit("b"), 9).unwrap().rate(most),
        LimitSpec::of(limit("c")).family().weight(3),
        family("d", 4).rate(rate(1, 60_000_000, i32::MAX as u32)),
    ];
    world.write(|tx| tx.put_limits(&specs));
    let limits = world.read(|tx| tx.all_limits());
    let found = limits.into_iter().map(|limit| {
        assert!(limit.is_defined);
        limit.spec()
    });
    let found: Vec<LimitSpec> = found.chain(world.read(|tx| tx.families())).collect();
    assert_eq!(found, specs);
    // A replacement leaves nothing of what was there before.
    world.write(|tx| tx.put_limits(&[LimitSpec::new(limit("a"), 1).unwrap(), family("d", 4)]));
    assert_eq!(world.read(|tx| tx.limits(&[limit("a")]))[0].as_ref().unwrap().rate, None);
    assert_eq!(world.read(|tx| tx.families())[1], family("d", 4));
}

fn a_key_without_a_maximum_is_defined_all_the_same(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_limits(&[LimitSpec::of(limit("free"))]));
    world.insert(&[task("1").limit(limit("free")).limit(limit("carried"))]);
    let limits = world.read(|tx| tx.limits(&[limit("free"), limit("carried")]));
    let defined: Vec<bool> = limits.iter().map(|limit| limit.as_ref().unwrap().is_defined).collect();
    assert_eq!(defined, [true, false]);
    let survey = world.write(|tx| tx.survey(&SurveyQuery::new().promote(at(1), 9)));
    let defined: Vec<_> = survey.limits.iter().map(|limit| (limit.key.as_str(), limit.is_defined)).collect();
    assert_eq!(defined, [("carried", false), ("free", true)]);
    assert_eq!(world.write(|tx| tx.delete_limits(&[limit("free"), limit("carried")])), [true, false]);
    assert!(world.read(|tx| tx.all_limits()).is_empty());
}

fn a_survey_tells_families_and_pauses(store: &dyn Store) {
    let world = World(store);
    let none = world.read(|tx| tx.survey(&SurveyQuery::new()));
    assert_eq!((none.families.len(), none.paused.len(), none.clock), (0, 0, None));
    let paused = [Subject::Pool(pool("p")), Subject::Family(limit("t/"))];
    let specs = [family("t/", 3), LimitSpec::of(limit("u")).rate(rate(1, 2, 3)).family()];
    world.write(|tx| {
        tx.put_limits(&specs)?;
        tx.put_paused(&paused, true)
    });
    for query in [SurveyQuery::new(), SurveyQuery::new().promote(at(1), 9)] {
        let mut survey = world.write(|tx| tx.survey(&query));
        survey.paused.sort_unstable();
        assert_eq!((survey.families.as_slice(), survey.paused.as_slice()), (&specs[..], &paused[..]));
    }
}

fn what_is_paused_is_listed_in_order(store: &dyn Store) {
    let world = World(store);
    let key = |name: &str| LimitKey::new(name).unwrap();
    let subjects = [
        Subject::Queue(QueueName::new("gpu").unwrap()),
        Subject::Pool(pool("a")),
        Subject::Pool(pool("gpu")),
        Subject::Key(key("Z")),
        Subject::Key(key("a")),
        Subject::Key(key("é")),
        Subject::Family(key("a")),
    ];
    let mut mixed = subjects.to_vec();
    mixed.reverse();
    assert_eq!(world.write(|tx| tx.put_paused(&mixed, true)), [true; 7]);
    assert_eq!(world.read(|tx| tx.paused()), subjects);
    assert_eq!(world.read(|tx| tx.leases()).0, subjects);
}

fn a_second_pause_changes_nothing(store: &dyn Store) {
    let world = World(store);
    let [a, b] = ["a", "b"].map(|name| Subject::Pool(pool(name)));
    let put = |subjects: &[Subject], on| world.write(|tx| tx.put_paused(subjects, on));
    assert_eq!(put(&[a.clone(), b.clone(), a.clone()], true), [true, true, false]);
    assert_eq!(put(&[b.clone(), a.clone()], true), [false, false]);
    assert_eq!(put(&[a.clone(), Subject::Key(limit("a")), a], false), [true, false, false]);
    assert_eq!(world.read(|tx| tx.paused()), [b]);
}

fn granted(tx: &mut dyn StoreTx, ids: &[TaskId], rates: &[RateUse]) -> StoreResult<usize> {
    let holder = holder("h");
    let batch = GrantBatch::new(ids, &holder, at(10), at(99)).rates(rates).whole();
    tx.grant_if_open(&batch).map(|granted| granted.tasks.len())
}

fn a_grant_notes_what_keys_owe(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&["1", "2"].map(|name| task(name).limit(limit("a")).limit(limit("b"))));
    let first = [owes("a", 900, 10), owes("b", 700, 10)];
    assert_eq!(world.write(|tx| granted(tx, &ids[..1], &first)), 1);
    let read = |keys: &[&str]| {
        let keys: Vec<LimitKey> = keys.iter().map(|key| limit(key)).collect();
        let (mut rates, clock) = world.read(|tx| tx.rates(&keys));
        rates.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        (rates, clock)
    };
    assert_eq!(read(&["b", "a", "nobody"]), (first.to_vec(), Some(at(10))));
    assert_eq!(read(&["nobody"]), (vec![], Some(at(10))));
    for query in [SurveyQuery::new(), SurveyQuery::new().promote(at(11), 9)] {
        let mut survey = world.write(|tx| tx.survey(&query));
        survey.rates.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        assert_eq!((survey.rates, survey.clock), (first.to_vec(), Some(at(10))));
    }
    let next = RateUse::new(limit("a"), 5, at(12), 1, Duration::from_micros(1));
    assert_eq!(world.write(|tx| granted(tx, &ids[1..], std::slice::from_ref(&next))), 1);
    assert_eq!(read(&["a", "b"]), (vec![next, owes("b", 700, 10)], Some(at(12))));
}

fn a_grant_of_nothing_notes_nothing(store: &dyn Store) {
    let world = World(store);
    let ids = world.insert(&[task("1")]);
    world.admit(&ids);
    assert_eq!(world.write(|tx| granted(tx, &ids, &[owes("a", 9, 10)])), 0);
    assert_eq!(world.read(|tx| tx.rates(&[limit("a")])), (vec![], None));
}

fn what_owes_nothing_is_forgotten_but_for_the_last(store: &dyn Store) {
    let world = World(store);
    let names: Vec<String> = (0..70).map(|n| format!("{n:02}")).collect();
    let ids = world.insert(&["1", "2", "3"].map(task));
    let many: Vec<RateUse> = names.iter().map(|name| owes(name, 2, 10)).collect();
    let keys: Vec<LimitKey> = names.iter().map(|name| limit(name)).chain([limit("x"), limit("y")]).collect();
    let left = || world.read(|tx| tx.rates(&keys)).0.len();
    world.write(|tx| granted(tx, &ids[..1], &many));
    assert_eq!(left(), 70, "each owes something until 11");
    // 64, and two for the one that takes a token.
    world.write(|tx| granted(tx, &ids[1..2], &[owes("x", 2, 11)]));
    assert_eq!(left(), 70 - 66 + 1);
    world.write(|tx| granted(tx, &ids[2..], &[owes("y", 2, 12)]));
    assert_eq!(world.read(|tx| tx.rates(&keys)), (vec![owes("y", 2, 12)], Some(at(12))));
}

fn leases_are_counted_by_needs(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&[sized("db", 20)]));
    let wide = |name: &str| task(name).pool(pool("db")).pool_slots(3).limit(limit("k"));
    let ids = world.insert(&[task("1"), wide("2"), wide("3"), wide("4"), wide("5")]);
    assert!(world.read(|tx| tx.leases()).1.iter().all(|(_, leases)| *leases == 0));
    world.admit(&ids[..1]);
    world.run(&ids[1..2]);
    let ended = world.run(&ids[2..3])[0];
    world.sense(&ids[3..4]);
    world.shift(&[to(ended, TaskState::Success)]);
    let mut leases = world.read(|tx| tx.leases()).1;
    leases.retain(|(_, leases)| *leases > 0);
    leases.sort_unstable();
    let found: Vec<_> =
        leases.iter().map(|(lane, leases)| (lane.pool.as_str(), lane.slots, *leases)).collect();
    assert_eq!(found, [("db", 3, 1), ("default_pool", 1, 1)]);
}
