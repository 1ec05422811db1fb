//! A tick asks for what it plans with in a short form or in a long one. Both tell the same.

use std::collections::BTreeSet;
use std::time::Duration;

use stationmaster::admission::{IfExists, Subject};
use stationmaster::backoff::RetryPolicy;
use stationmaster::ops::{AdmitRequest, Finish};
use stationmaster::pool::Slots;
use stationmaster::store::PostgresStore;
use stationmaster::store::contract::{LanePage, Survey, SurveyQuery, WhichPools};
use stationmaster::testing::raw;
use stationmaster::{Error, NewTask, Result, TaskRecord, Timestamp};

use crate::scratch::Scratch;
use crate::{pool, pool_name, task};

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

/// What a tick reads, and the first tasks of each lane that came along with it.
fn told(store: &PostgresStore, query: &SurveyQuery) -> (Survey, Vec<String>) {
    let mut told = None;
    let undone: Result<()> = store.write(|tx| {
        let survey = raw(tx).survey(query)?;
        let pages: Vec<LanePage> = survey.lanes.iter().map(|lane| LanePage::new(lane.id, None, 2)).collect();
        let candidates = raw(tx).candidates(&pages)?;
        let mut candidates: Vec<String> = candidates.iter().map(|one| format!("{one:?}")).collect();
        candidates.sort();
        told = Some((survey, candidates));
        Err(Error::abort("on purpose"))
    });
    assert!(undone.is_err());
    told.unwrap()
}

/// Compares both forms on a store of its own: after a survey that was not short, the next ones are not, either. A tick
/// that asks for all pools asks in the long form.
fn both_tell_the_same(scratch: &Scratch, state: &str) {
    let store = scratch.open(|options| options);
    let queues = |name: &str| Some(BTreeSet::from([name.try_into().unwrap()]));
    for (request, queues, budget) in [
        ("none", None, 3),
        ("first", None, 3),
        ("none", queues("default"), 2),
        ("none", queues("gpu"), 0),
        ("none", queues("nobody's"), 3),
    ] {
        let query = SurveyQuery::new().request(request.try_into().unwrap()).promote(at(20), 5);
        let query = query.budget(budget).queues(queues);
        let (short, of_short) = told(&store, &query);
        let (mut long, of_long) = told(&store, &query.clone().pools(WhichPools::All));
        let named: BTreeSet<_> = short.lanes.iter().map(|lane| lane.key.pool.clone()).collect();
        long.pools.retain(|pool| named.contains(&pool.spec.name));
        if query.queues.is_none() || !short.pools.is_empty() {
            // Pools of other queues may be among them.
            let of_lanes = |pools: &mut Survey| pools.pools.retain(|pool| named.contains(&pool.spec.name));
            let mut short = short.clone();
            of_lanes(&mut short);
            assert_eq!(short, long, "{state}: {query:?}");
        }
        assert_eq!(of_short, of_long, "{state}: {query:?}");
        assert_eq!(short.granted.is_some(), request == "first" && state != "nothing", "{state}");
    }
}

/// Tasks in three pools, one of which does not exist, and in two queues.
fn tasks(name: &str) -> Vec<NewTask> {
    let of = |nth: i32, pool: &str| {
        task(&format!("{name} {nth}")).pool(pool_name(pool)).logical_date(at(i64::from(9 - nth)))
    };
    vec![
        of(1, "narrow"),
        of(2, "narrow"),
        of(3, "narrow").priority(1),
        of(4, "free"),
        of(5, "free").pool_slots(2),
        of(6, "missing"),
        of(7, "free").queue("gpu".try_into().unwrap()),
        of(8, "free").not_before(at(50)),
    ]
}

/// A store that has granted a few, so that pools are in use and lanes have bounds.
fn scene() -> (Scratch, PostgresStore, Vec<TaskRecord>) {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    let mut free = pool("free", 0);
    (free.slots, free.description) = (Slots::Unlimited, "as many as there are: \0".into());
    let pools = [pool("narrow", 2), free];
    store.write(|tx| tx.define(&pools, IfExists::Replace)).unwrap();
    both_tell_the_same(&scratch, "nothing");
    store.write(|tx| tx.enqueue(at(1), &tasks("first"))).unwrap();
    let order =
        AdmitRequest::new("h".try_into().unwrap(), "first".try_into().unwrap(), 3, Duration::from_secs(60))
            .started();
    let granted = store.write(|tx| tx.admit(at(10), &order)).unwrap().granted;
    assert_eq!(granted.len(), 3);
    (scratch, store, granted)
}

#[test]
fn a_short_survey_tells_what_a_long_one_does() {
    let (scratch, store, granted) = scene();
    both_tell_the_same(&scratch, "some were granted");
    store.write(|tx| tx.enqueue(at(11), &tasks("second"))).unwrap();
    both_tell_the_same(&scratch, "some are not folded");
    // What comes back stands before the bound.
    let lease = granted[0].lease_ref();
    store.write(|tx| tx.finish(at(12), &[Finish::given_back(lease)])).unwrap();
    both_tell_the_same(&scratch, "one is early");
    store.write(|tx| tx.pause(&[Subject::Pool(pool_name("free"))])).unwrap();
    both_tell_the_same(&scratch, "a pool is paused");
    store.write(|tx| tx.resume(&[Subject::Pool(pool_name("free"))])).unwrap();
    let retry = RetryPolicy::fixed(Duration::from_secs(1)).max_attempts(3).build().unwrap();
    let due = task("due").not_before(at(15)).retry(retry);
    store.write(|tx| tx.enqueue(at(13), std::slice::from_ref(&due))).unwrap();
    both_tell_the_same(&scratch, "one is overdue");
    let limited = task("limited").limit("l".try_into().unwrap());
    store.write(|tx| tx.enqueue(at(14), std::slice::from_ref(&limited))).unwrap();
    both_tell_the_same(&scratch, "one carries a limit");
}

/// More lanes than a short survey tells of.
#[test]
fn a_survey_of_many_lanes_tells_of_all() {
    let (scratch, store, _) = scene();
    let many: Vec<NewTask> =
        (1..30).map(|slots| task(&slots.to_string()).pool(pool_name("free")).pool_slots(slots)).collect();
    store.write(|tx| tx.enqueue(at(11), &many)).unwrap();
    // A short fold takes no more.
    assert!(
        store.write(|tx| Ok(raw(tx).survey(&SurveyQuery::new().promote(at(12), 0))?)).unwrap().lanes.len()
            > 29
    );
    both_tell_the_same(&scratch, "many lanes");
    let order =
        AdmitRequest::new("h".try_into().unwrap(), "all".try_into().unwrap(), 99, Duration::from_secs(60));
    let store = scratch.open(|options| options);
    let granted = store.write(|tx| tx.admit(at(13), &order)).unwrap().granted;
    assert!(granted.len() > 29, "{}", granted.len());
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}

/// A tick that replaces the note of the one before counts no notes. It forgets those that are old.
#[test]
fn a_short_grant_forgets_old_ticks() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    let tasks: Vec<NewTask> = (0..4).map(|nth| task(&nth.to_string())).collect();
    store.write(|tx| tx.enqueue(at(0), &tasks)).unwrap();
    let tick = |name: &str, answered: Option<&str>, now| {
        let (holder, lease) = ("h".try_into().unwrap(), Duration::from_secs(60));
        let mut order =
            AdmitRequest::new(holder, name.try_into().unwrap(), 1, lease).remember(Duration::from_secs(10));
        if let Some(answered) = answered {
            order = order.answered(answered.try_into().unwrap());
        }
        let granted = store.write(|tx| tx.last(|tx| tx.admit(at(now), &order))).unwrap().granted;
        assert_eq!(granted.len(), 1, "{name}");
        let noted = format!("SELECT id FROM \"{}\".request ORDER BY id", scratch.0);
        crate::scratch::rows(&noted).iter().map(|row| row.get(0)).collect::<Vec<String>>()
    };
    assert_eq!(tick("a", None, 1), ["a"]);
    assert_eq!(tick("b", None, 2), ["a", "b"]);
    assert_eq!(tick("c", Some("b"), 9_000_000), ["a", "c"]);
    assert_eq!(tick("d", Some("c"), 11_000_000), ["d"]);
}

#[test]
fn what_a_share_holds_is_known_of_tasks_that_come_due() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    let of = |name: &str, share: &str, due| {
        task(name).pool(pool_name("narrow")).share(share.try_into().unwrap()).not_before(at(due))
    };
    let admit = |store: &PostgresStore, name: &str, now| {
        let holder = "h".try_into().unwrap();
        let order = AdmitRequest::new(holder, name.try_into().unwrap(), 1, Duration::from_secs(60));
        let granted = store.write(|tx| tx.admit(at(now), &order)).unwrap().granted;
        granted.iter().map(|task| task.key.task.to_string()).collect::<Vec<_>>()
    };
    store.write(|tx| tx.define([pool("narrow", 2)], IfExists::Replace)).unwrap();
    let tasks = [of("first", "a", 1), of("second", "a", 20), of("newcomer", "b", 20)];
    store.write(|tx| tx.enqueue(at(1), &tasks)).unwrap();
    assert_eq!(admit(&store, "first", 10), ["first"]);
    // Another process, which has met no lane with limits.
    let other = scratch.open(|options| options);
    assert_eq!(admit(&other, "other", 15), Vec::<String>::new());
    assert_eq!(admit(&other, "second", 20), ["newcomer"], "the other share holds a slot");
}
