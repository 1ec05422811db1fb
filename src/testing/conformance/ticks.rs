//! What a tick surveys, and what it commits in one batch.

use super::scene::request;
use super::steps::{Steps, nothing};
use super::world::{World, at, holder, key, limit, pool, sized, task};
use crate::admission::Lane;
use crate::admission::limits::LimitSpec;
use crate::error::{StoreError, StoreErrorKind};
use crate::id::RequestId;
use crate::lease::{LeaseRef, TaskId};
use crate::store::contract::{Forget, GrantBatch, Overdue, Promote, Survey, SurveyQuery, WhichPools};
use crate::store::{Discrepancy, Store};
use crate::task::NewTask;
use crate::testing::RawStoreExt;

cases!("ticks":
    a_survey_looks_after_it_promoted,
    the_earliest_due_are_promoted_first_and_then_by_their_order,
    a_survey_that_may_promote_none_promotes_none,
    a_survey_that_promotes_nothing_only_reads,
    what_is_overdue_is_what_a_survey_makes_ready,
    looking_for_what_is_overdue_only_reads,
    a_survey_tells_of_the_pools_that_ready_lanes_name,
    a_survey_tells_of_the_limits_that_ready_lanes_carry,
    a_survey_of_a_known_request_tells_what_it_granted,
    a_batch_answers_what_was_as_planned,
    a_batch_is_whole_only_if_all_were_ready_and_had_room,
    a_batch_that_granted_nothing_is_not_noted,
    a_request_noted_again_is_replaced,
    a_note_replaces_the_one_it_names,
    what_is_not_there_is_replaced_as_well,
    a_batch_forgets_after_it_noted,
);

fn named(name: &str) -> RequestId {
    RequestId::new(name).unwrap()
}

fn a_survey_looks_after_it_promoted(store: &dyn Store) {
    let world = World(store);
    let db = pool("db");
    world.write(|tx| tx.put_pools(&[sized("db", 7)]));
    let later = |name: &str, due| task(name).not_before(at(due)).pool(db.clone()).limit(limit("k"));
    world.insert(&[later("a", 10), later("b", 20), later("c", 30)]);
    let survey = world.write(|tx| tx.survey(&SurveyQuery::new().promote(at(20), 9)));
    assert_eq!((survey.promoted, survey.next_due, &survey.granted), (2, Some(at(30)), &None));
    assert_eq!(survey.lanes.iter().map(|lane| lane.ready).collect::<Vec<_>>(), [2]);
    assert_eq!(survey.pools.iter().map(|pool| &pool.spec.name).collect::<Vec<_>>(), [&db]);
    assert_eq!(survey.limits.iter().map(|limit| limit.key.as_str()).collect::<Vec<_>>(), ["k"]);
}

fn the_earliest_due_are_promoted_first_and_then_by_their_order(store: &dyn Store) {
    let world = World(store);
    let later = |name: &str, due| task(name).not_before(at(due)).logical_date(at(5));
    let ids = world.insert(&[
        later("late", 12).priority(9),
        later("plain", 11),
        NewTask::new(key("mapped").mapped(0)).not_before(at(11)).logical_date(at(5)),
        later("dated", 11).logical_date(at(4)),
        later("urgent", 11).priority(1),
        later("second", 11),
        later("early", 10).priority(-9),
        later("not due", 21).priority(9),
    ]);
    let mut order = Vec::new();
    for left in (0..7).rev() {
        let survey = world.write(|tx| tx.survey(&SurveyQuery::new().promote(at(20), 1)));
        assert_eq!(survey.promoted, 1);
        assert_eq!(survey.next_due.map(|due| due <= at(20)), Some(left > 0), "it says whether there is more");
        assert_eq!(survey.lanes.iter().map(|lane| lane.ready).sum::<u64>(), 7 - left);
        let promoted = ids.iter().find(|id| world.task(**id).is_ready() && !order.contains(*id));
        order.extend(promoted.copied());
    }
    assert_eq!(order, [6, 4, 3, 1, 5, 2, 0].map(|at| ids[at]));
    assert_eq!(world.write(|tx| tx.promote(at(20), 1)), 0);
    assert_eq!(world.write(|tx| tx.promote(at(21), usize::MAX)), 1);
}

fn a_survey_that_may_promote_none_promotes_none(store: &dyn Store) {
    let world = World(store);
    let id = world.insert(&[task("a").not_before(at(1))])[0];
    let before = world.task(id);
    let survey = world.write(|tx| tx.survey(&SurveyQuery::new().promote(at(9), 0)));
    assert_eq!((survey.promoted, survey.next_due), (0, Some(at(1))));
    assert_eq!(world.task(id), before);
}

fn a_survey_that_promotes_nothing_only_reads(store: &dyn Store) {
    let world = World(store);
    assert_eq!(world.read(|tx| tx.survey(&SurveyQuery::new())), Survey::default());
    let id = world.insert(&[task("a").not_before(at(1))])[0];
    let before = world.task(id);
    let query = SurveyQuery::new().request(request()).pools(WhichPools::All);
    let survey = world.read(|tx| tx.survey(&query));
    assert_eq!((survey.promoted, survey.next_due, survey.lanes.len()), (0, Some(at(1)), 0));
    assert_eq!(world.write(|tx| tx.survey(&query)), survey);
    assert_eq!(world.task(id), before);
}

fn what_is_overdue_is_what_a_survey_makes_ready(store: &dyn Store) {
    let world = World(store);
    let later = |name: &str, due| task(name).not_before(at(due)).logical_date(at(5));
    let ids = world.insert(&[
        task("ready"),
        later("late", 12).priority(9),
        later("plain", 11).pool_slots(3),
        NewTask::new(key("mapped").mapped(0)).not_before(at(11)).logical_date(at(5)),
        later("dated", 11).logical_date(at(4)).queue("gpu".try_into().unwrap()),
        later("urgent", 11).priority(1).limit(limit("k")),
        later("early", 10).priority(-9),
        later("not due", 21).priority(9),
        task("leased"),
        task("ready alone").pool(pool("db")),
    ]);
    world.admit(&ids[8..9]);
    let order = [6, 5, 4, 2, 3, 1];
    let due = [10, 11, 11, 11, 11, 12, 21];
    for limit in [0, 1, 3, 5, 6, 7, usize::MAX] {
        let overdue = world.read(|tx| tx.overdue(Promote::new(at(20), limit)));
        let most = limit.min(order.len());
        let found: Vec<TaskId> = overdue.tasks.iter().map(|task| task.order.id).collect();
        assert_eq!(found, order[..most].iter().map(|at| ids[*at]).collect::<Vec<_>>());
        assert_eq!(overdue.next_due, Some(at(due[most])));
        for found in &overdue.tasks {
            let task = world.task(found.order.id);
            assert_eq!((found.order, found.ready_at), (task.order(), task.due));
            let lane = overdue.lanes.iter().find(|lane| lane.id == found.lane);
            assert_eq!(lane.map(|lane| &lane.key), Some(&task.lane));
        }
        assert!(overdue.lanes.windows(2).all(|pair| pair[0].id < pair[1].id), "{:?}", overdue.lanes);
        assert_eq!(overdue.lanes.iter().map(|lane| lane.ready).sum::<u64>(), most as u64);
        // Rolled back: the next one finds the store as it was.
        let ended: crate::error::Result<()> = store.write_raw(|tx| {
            let before = tx.ready_lanes()?;
            let survey = tx.survey(&SurveyQuery::new().promote(at(20), limit))?;
            assert_eq!(survey.promoted, most);
            let ready =
                |lanes: &[Lane], id| lanes.iter().find(|lane| lane.id == id).map_or(0, |lane| lane.ready);
            for lane in &survey.lanes {
                assert_eq!(ready(&before, lane.id) + ready(&overdue.lanes, lane.id), lane.ready);
            }
            Err(StoreError::new(StoreErrorKind::Backend, "on purpose").into())
        });
        assert!(ended.is_err());
    }
    world.write(|tx| tx.promote(at(20), 2));
    let left = world.read(|tx| tx.overdue(Promote::new(at(20), 2)));
    assert_eq!(left.tasks.iter().map(|task| task.order.id).collect::<Vec<_>>(), [ids[4], ids[2]]);
    let none = world.read(|tx| tx.overdue(Promote::new(at(9), 9)));
    assert_eq!((none.tasks.len(), none.lanes.len(), none.next_due), (0, 0, Some(at(11))));
    world.write(|tx| tx.promote(at(30), 9));
    assert_eq!(world.read(|tx| tx.overdue(Promote::new(at(40), 9))), Overdue::default());
}

fn looking_for_what_is_overdue_only_reads(store: &dyn Store) {
    let world = World(store);
    assert_eq!(world.read(|tx| tx.overdue(Promote::new(at(9), 9))), Overdue::default());
    let id = world.insert(&[task("a").not_before(at(1))])[0];
    let before = world.task(id);
    let read = world.read(|tx| tx.overdue(Promote::new(at(9), 9)));
    assert_eq!((read.tasks.len(), read.next_due), (1, None));
    assert_eq!(world.write(|tx| tx.overdue(Promote::new(at(9), 9))), read);
    assert_eq!(world.task(id), before);
    assert_eq!(world.read(|tx| tx.ready_lanes()), []);
}

fn a_survey_tells_of_the_pools_that_ready_lanes_name(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| tx.put_pools(&["b", "a", "busy", "idle", "later"].map(|name| sized(name, 3))));
    let ids = world.insert(&[
        task("1").pool(pool("busy")).pool_slots(2),
        task("2").pool(pool("b")),
        task("3").pool(pool("b")).pool_slots(2),
        task("4").pool(pool("gone")),
        task("5").pool(pool("a")),
        task("6").pool(pool("later")).not_before(at(5)),
    ]);
    world.admit(&ids[..2]);
    let names = |which| {
        let survey = world.read(|tx| tx.survey(&SurveyQuery::new().pools(which)));
        survey.pools.iter().map(|pool| (pool.spec.name.to_string(), pool.used)).collect::<Vec<_>>()
    };
    let expected = |names: &[(&str, i64)]| {
        names.iter().map(|(name, used)| ((*name).to_string(), *used)).collect::<Vec<_>>()
    };
    assert_eq!(names(WhichPools::Named), expected(&[("a", 0), ("b", 1)]));
    let all = [("a", 0), ("b", 1), ("busy", 2), ("default_pool", 0), ("idle", 0), ("later", 0)];
    assert_eq!(names(WhichPools::All), expected(&all));
}

fn a_survey_tells_of_the_limits_that_ready_lanes_carry(store: &dyn Store) {
    let world = World(store);
    let spec = |name: &str| LimitSpec::new(limit(name), 4).unwrap();
    world.write(|tx| tx.put_limits(&["b", "nobody", "leased", "later"].map(spec)));
    let ids = world.insert(&[
        task("1").limit(limit("leased")).limit(limit("b")),
        task("2").limit(limit("b")),
        task("3").limit(limit("undefined")).limit(limit("a")),
        task("4").limit(limit("b")).limit(limit("a")),
        task("5").limit(limit("later")).not_before(at(5)),
    ]);
    world.admit(&ids[..1]);
    let survey = world.read(|tx| tx.survey(&SurveyQuery::new()));
    let found: Vec<_> =
        survey.limits.iter().map(|limit| (limit.key.as_str(), limit.max, limit.used)).collect();
    assert_eq!(found, [("a", None, 0), ("b", Some(4), 1), ("undefined", None, 0)]);
}

fn a_survey_of_a_known_request_tells_what_it_granted(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c"]);
    world.admit_as(&request(), &[ids[1], ids[0]], at(3));
    let later = world.insert(&[task("later").not_before(at(5))])[0];
    let before = world.task(later);
    let query = SurveyQuery::new().request(request()).promote(at(9), 9).pools(WhichPools::All);
    let survey = world.write(|tx| tx.survey(&query));
    let grants = vec![LeaseRef::new(ids[1], 1), LeaseRef::new(ids[0], 1)];
    let expected = Survey { granted: Some(grants), next_due: Some(at(5)), ..Survey::default() };
    assert_eq!(survey, expected);
    assert_eq!(world.task(later), before, "it promotes nothing");
    let other = world.write(|tx| tx.survey(&query.clone().request(named("other"))));
    assert_eq!((other.granted, other.promoted, other.lanes[0].ready), (None, 1, 2));
}

fn a_batch_answers_what_was_as_planned(store: &dyn Store) {
    let world = World(store);
    let (db, key, id) = (pool("db"), limit("k"), request());
    world.write(|tx| tx.put_pools(&[sized("db", 3)]));
    let ids = world.insert(&["a", "b"].map(|name| task(name).pool(db.clone()).limit(key.clone())));
    let holder = holder("h");
    let batch = GrantBatch::new(&ids, &holder, at(5), at(50)).request(&id);
    let granted = world.write(|tx| tx.grant_if_open(&batch));
    assert!(granted.is_whole(&batch));
    assert_eq!(granted.forgotten, 0);
    assert_eq!(granted.tasks, ids.iter().map(|id| world.task(*id)).collect::<Vec<_>>());
    assert_eq!(
        (world.used(&db), world.read(|tx| tx.limits(std::slice::from_ref(&key)))[0].as_ref().unwrap().used),
        (2, 2)
    );
    let leases: Vec<LeaseRef> = granted.tasks.iter().map(|task| task.lease_ref()).collect();
    assert_eq!(world.read(|tx| tx.granted(&id)), Some(leases));
    assert_eq!(world.read(|tx| tx.audit()), []);
}

fn a_batch_is_whole_only_if_all_were_ready_and_had_room(store: &dyn Store) {
    let world = World(store);
    world.write(|tx| {
        tx.put_pools(&[sized("wide", 9), sized("narrow", 1)])?;
        tx.put_limits(&[LimitSpec::new(limit("low"), 1).unwrap()])
    });
    let in_wide = |name: &str| task(name).pool(pool("wide"));
    let ids = world.insert(&[
        in_wide("fits"),
        task("too wide").pool(pool("narrow")).pool_slots(2),
        in_wide("low").limit(limit("low")),
        in_wide("low too").limit(limit("low")),
        task("lost").pool(pool("gone")),
        in_wide("granted"),
    ]);
    world.admit(&ids[5..]);
    let holder = holder("h");
    let seen = |tasks: &[TaskId]| {
        let mut seen = (Vec::new(), false, false);
        // Rolled back: the next one finds the store as it was.
        let ended: crate::error::Result<()> = store.write_raw(|tx| {
            let batch = GrantBatch::new(tasks, &holder, at(5), at(50));
            let granted = tx.grant_if_open(&batch)?;
            seen = (
                granted.tasks.iter().map(|task| task.id).collect(),
                granted.had_room,
                granted.is_whole(&batch),
            );
            let unknown = pool("gone");
            let wrong =
                |found: &Discrepancy| !matches!(found, Discrepancy::Pool { pool, .. } if *pool == unknown);
            assert!(!tx.audit()?.iter().any(wrong), "counters are right, whatever fits");
            Err(StoreError::new(StoreErrorKind::Backend, "on purpose").into())
        });
        assert!(ended.is_err());
        seen
    };
    let [fits, wide, low, low_too, lost, granted] = ids[..] else { panic!("six tasks") };
    assert_eq!(seen(&[fits, low]), (vec![fits, low], true, true));
    assert_eq!(seen(&[fits, wide]), (vec![fits, wide], false, false), "a pool is too small");
    assert_eq!(seen(&[low, fits, low_too]), (vec![low, fits, low_too], false, false), "a limit is reached");
    assert_eq!(seen(&[fits, lost]), (vec![fits, lost], false, false), "a pool is unknown");
    assert_eq!(seen(&[fits, granted]), (vec![fits], true, false), "a task is not ready");
    assert_eq!(seen(&[]), (vec![], true, true));
}

fn a_batch_that_granted_nothing_is_not_noted(store: &dyn Store) {
    let world = World(store);
    let task = world.plain(&["a"])[0];
    world.admit(&[task]);
    let (holder, id) = (holder("h"), request());
    world.write(|tx| tx.grant_if_open(&nothing(&holder).request(&id)));
    world.write(|tx| tx.grant_if_open(&GrantBatch::new(&[task], &holder, at(5), at(50)).request(&id)));
    assert_eq!(world.read(|tx| tx.granted(&id)), None);
    let before = named("before");
    world.admit_as(&before, &world.plain(&["b"]), at(3));
    world.write(|tx| tx.grant_if_open(&nothing(&holder).request(&id).replaces(&before)));
    assert!(world.read(|tx| tx.granted(&before)).is_some(), "nor is another replaced");
}

fn a_request_noted_again_is_replaced(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b"]);
    world.admit_as(&request(), &ids[..1], at(3));
    world.admit_as(&request(), &ids[1..], at(8));
    assert_eq!(world.read(|tx| tx.granted(&request())), Some(vec![LeaseRef::new(ids[1], 1)]));
    assert_eq!(
        world.write(|tx| tx.forget_requests(Forget::before(at(8), 9))),
        0,
        "it is as old as its last note"
    );
    assert_eq!(world.write(|tx| tx.forget_requests(Forget::before(at(9), 9))), 1);
}

/// Grants one task in the default pool, and notes that under a name in place of another.
fn admit_instead(world: World<'_>, id: TaskId, request: &RequestId, replaced: &RequestId, now: i64) -> usize {
    let holder = holder("h");
    let tasks = [id];
    let batch = GrantBatch::new(&tasks, &holder, at(now), at(50));
    let batch = batch.request(request).replaces(replaced).forget(Forget::before(at(0), 9));
    world.write(|tx| tx.grant_if_open(&batch)).forgotten
}

fn a_note_replaces_the_one_it_names(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c", "d", "e"]);
    let names = ["first", "stranger", "second", "third"].map(named);
    let [first, stranger, second, third] = &names;
    let granted = |name: &RequestId| world.read(|tx| tx.granted(name));
    world.admit_as(first, &ids[..1], at(3));
    world.admit_as(stranger, &ids[1..2], at(4));
    assert_eq!(
        admit_instead(world, ids[2], second, first, 9),
        0,
        "what is replaced does not count as forgotten"
    );
    assert_eq!(names.each_ref().map(|name| granted(name).is_some()), [false, true, true, false]);
    assert_eq!(granted(second), Some(vec![LeaseRef::new(ids[2], 1)]));
    assert_eq!(world.write(|tx| tx.forget_requests(Forget::before(at(9), 9))), 1, "it is as old as its note");
    world.admit_as(third, &ids[3..4], at(10));
    admit_instead(world, ids[4], third, second, 11);
    assert_eq!(names.each_ref().map(|name| granted(name).is_some()), [false, false, false, true]);
    assert_eq!(granted(third), Some(vec![LeaseRef::new(ids[4], 1)]), "both of them");
    assert_eq!(world.write(|tx| tx.forget_requests(Forget::before(at(99), 9))), 1, "one is left");
}

fn what_is_not_there_is_replaced_as_well(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c"]);
    let (first, second, unknown) = (named("first"), named("second"), named("unknown"));
    admit_instead(world, ids[0], &first, &unknown, 3);
    admit_instead(world, ids[1], &second, &second, 4);
    let granted = |name: &RequestId| world.read(|tx| tx.granted(name));
    assert_eq!(granted(&first), Some(vec![LeaseRef::new(ids[0], 1)]));
    assert_eq!(granted(&second), Some(vec![LeaseRef::new(ids[1], 1)]), "not even itself");
    admit_instead(world, ids[2], &second, &second, 5);
    assert_eq!(granted(&second), Some(vec![LeaseRef::new(ids[2], 1)]), "itself");
}

fn a_batch_forgets_after_it_noted(store: &dyn Store) {
    let world = World(store);
    let ids = world.plain(&["a", "b", "c"]);
    let (holder, second, third) = (holder("h"), named("second"), named("third"));
    world.admit_as(&named("first"), &ids[..1], at(3));
    let batch = GrantBatch::new(&ids[1..2], &holder, at(5), at(50)).request(&second);
    assert_eq!(world.write(|tx| tx.grant_if_open(&batch.forget(Forget::before(at(5), 9)))).forgotten, 1);
    assert_eq!(world.read(|tx| tx.granted(&named("first"))), None);
    assert!(world.read(|tx| tx.granted(&second)).is_some());
    let batch = GrantBatch::new(&ids[2..], &holder, at(6), at(50)).request(&third);
    assert_eq!(
        world.write(|tx| tx.grant_if_open(&batch.forget(Forget::before(at(7), 9)))).forgotten,
        2,
        "its own as well"
    );
    assert_eq!(world.read(|tx| tx.granted(&third)), None);
}
