//! What the pages say when much is wrong.

use std::sync::Arc;
use std::time::Duration;

use stationmaster::admission::{IfExists, Subject};
use stationmaster::backoff::RetryPolicy;
use stationmaster::ops::Finish;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::store::{MemoryStore, SqliteStore, Store};
use stationmaster::{NewTask, TaskKey};

use crate::stage::{Stage, at, plain, rows};

fn named(name: impl std::fmt::Display) -> NewTask {
    NewTask::new(TaskKey::new("n", "w", "r", name.to_string()).unwrap())
}

/// A list of what waits begins with what waits for an instant. However much that is, what waits for slots is seen.
fn a_storm_hides_nothing(store: Arc<dyn Store>) {
    let stage = Stage::on(store);
    let retry = RetryPolicy::fixed(Duration::from_secs(3_600)).max_attempts(3).build().unwrap();
    stage.store.write(|tx| tx.define([PoolSpec::new("db", Slots::Limited(1))?], IfExists::Replace)).unwrap();
    stage.store.write(|tx| tx.define([PoolSpec::new("wide", Slots::Unlimited)?], IfExists::Replace)).unwrap();
    let mut numbers = 0..;
    let storm = |stage: &Stage, second: i64, count: usize, numbers: &mut std::ops::RangeFrom<usize>| {
        let wide = || "wide".parse().unwrap();
        let tasks: Vec<NewTask> =
            numbers.take(count).map(|n| named(n).pool(wide()).retry(retry.clone())).collect();
        stage.enqueue(second, &tasks);
        let granted = stage.run(second, count);
        let ends: Vec<Finish> =
            granted.iter().map(|task| Finish::failed(task.lease_ref(), "no route to host")).collect();
        stage.store.write(|tx| tx.finish(at(second), &ends)).unwrap();
    };
    storm(&stage, 0, 600, &mut numbers);
    let db: Vec<NewTask> =
        ["runs", "one", "two", "three"].map(|name| named(name).pool("db".parse().unwrap())).to_vec();
    stage.enqueue(1, &db);
    assert_eq!(stage.run(2, 10).len(), 1);
    stage.enqueue(3, &[named("later").not_before(at(9_000))]);

    let reasons = rows(&stage.body(10, "overview"), "why");
    assert!(reasons[0].starts_with("waits to be tried again | 600 | "), "{reasons:?}");
    assert!(reasons[1].starts_with("pool db: 0 open of 1, needs 1 | 3 | n/w/r/one"), "{reasons:?}");
    assert!(reasons[2].starts_with("waits for an instant | 1 | "), "{reasons:?}");
    assert_eq!(rows(&stage.body(10, "health"), "oldest").len(), 3);

    // More than are counted one by one.
    storm(&stage, 20, 600, &mut numbers);
    let reasons = rows(&stage.body(30, "overview"), "why");
    assert!(reasons[0].starts_with("waits for an instant, or to be tried again | 1,201 | "), "{reasons:?}");
    assert!(reasons[1].starts_with("pool db: 0 open of 1, needs 1 | 3 | "), "{reasons:?}");
    let oldest = rows(&stage.body(30, "health"), "oldest");
    assert!(oldest.len() == 3 && oldest[0].starts_with("n/w/r/one | default | db | 29s ago"), "{oldest:?}");
}

#[test]
fn a_storm_of_retries_hides_nothing_in_memory() {
    a_storm_hides_nothing(Arc::new(MemoryStore::new()));
}

#[test]
fn a_storm_of_retries_hides_nothing_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    a_storm_hides_nothing(Arc::new(
        SqliteStore::open(folder.path().join("jobs.db"), Default::default()).unwrap(),
    ));
}

fn attention(stage: &Stage, second: i64) -> String {
    let body = stage.body(second, "overview");
    let (_, after) = body.split_once("<div id=\"attention\" data-live>").unwrap();
    plain(after.split("<section id=\"states\"").next().unwrap())
}

#[test]
fn what_needs_a_person_comes_first() {
    let stage = Stage::new();
    assert_eq!(attention(&stage, 0), "");
    // Pauses of what no table shows: an empty queue, and a key without a definition.
    let pauses = [Subject::Queue("idle".parse().unwrap()), Subject::Key("tenant/x".parse().unwrap())];
    stage.store.write(|tx| tx.pause(&pauses)).unwrap();
    stage.enqueue(1, &[named("a"), named("b")]);
    let lease = stage.run(2, 1).remove(0).lease_ref();
    stage.store.write(|tx| tx.finish(at(3), &[Finish::failed(lease, "no")])).unwrap();
    let says = attention(&stage, 4);
    for text in
        ["Needs a person", "queue idle: paused", "limit tenant/x: paused", "1 task failed in the last hour."]
    {
        assert!(says.contains(text), "{text}: {says}");
    }
    let body = stage.body(4, "overview");
    assert!(body.contains("aria-label=\"resume queue idle\""), "{body}");
    assert!(body.contains("href=\"tasks?state=failed&amp;since=1h\""), "{body}");
    // The same that health says.
    let says = attention(&stage, 4_000);
    assert!(says.contains("Queue default: 1 task waits, and no one serves it."), "{says}");
    assert!(!says.contains("failed in"), "{says}");
    let many: Vec<Subject> = (0..30).map(|n| Subject::Pool(format!("p{n}").parse().unwrap())).collect();
    stage.store.write(|tx| tx.pause(&many)).unwrap();
    assert!(attention(&stage, 5).contains("12 more are paused."));
    stage.store.write(|tx| tx.resume(&[&pauses[..], &many].concat())).unwrap();
    assert!(!attention(&stage, 6).contains("paused"));
    // Health names the lease that expired.
    assert_eq!(stage.run(7, 1).len(), 1);
    assert!(stage.body(90_000, "overview").contains("<a href=\"health#expiring\">A lease</a> has expired"));
    assert!(stage.body(90_000, "health").contains("id=\"expiring\""));
}

/// A link from a table leads to a list that reads little, and to what the number counts.
#[test]
fn numbers_and_reasons_lead_to_their_tasks() {
    let stage = Stage::new();
    stage.store.write(|tx| tx.define([PoolSpec::new("db", Slots::Limited(1))?], IfExists::Replace)).unwrap();
    let key: stationmaster::id::LimitKey = "tenant/x".parse().unwrap();
    let limit = stationmaster::admission::limits::LimitSpec::new(key.clone(), 1).unwrap();
    stage.store.write(|tx| tx.define([limit.clone()], IfExists::Replace)).unwrap();
    let db = |name: &str| named(name).pool("db".parse().unwrap());
    let gpu = named("g").queue("gpu".parse().unwrap());
    stage.enqueue(0, &[db("a").limit(key.clone()), db("b"), named("c").limit(key), gpu]);
    let order = stationmaster::ops::AdmitRequest::new(
        "w".try_into().unwrap(),
        "t".try_into().unwrap(),
        9,
        Duration::from_secs(900),
    );
    let order = order.started().serves(["default".parse().unwrap()]);
    assert_eq!(stage.store.write(|tx| tx.admit(at(1), &order)).unwrap().granted.len(), 1);
    let body = stage.body(2, "overview");
    for link in [
        "tasks?state=leased&amp;pool=db\">pool db: 0 open of 1, needs 1</a>",
        "tasks?state=leased&amp;limit_key=tenant%2Fx\">limit tenant/x: 1 of 1</a>",
        "tasks?state=waiting&amp;queue=gpu\">queue gpu: no one serves it",
        "tasks?state=waiting&amp;pool=db\">db</a>",
        "tasks?state=leased&amp;pool=db\">1</a> of 1",
        "tasks?state=waiting&amp;pool=db\">1</a>",
        "tasks?state=waiting&amp;limit_key=tenant%2Fx\">tenant/x</a>",
        "tasks?state=leased&amp;limit_key=tenant%2Fx\">1</a> of 1",
        "tasks?state=waiting&amp;queue=default\">2</a> (2 ready)",
        "tasks?state=leased&amp;queue=default\">1</a>",
    ] {
        assert!(body.contains(link), "{link}: {body}");
    }
    let page = stage.body(2, "task?namespace=n&workflow=w&run=r&task=b");
    assert!(page.contains("tasks?state=leased&amp;pool=db\">pool db: 0 open of 1, needs 1</a>"), "{page}");
    for body in [body, page, stage.body(2, "health")] {
        for dear in ["tasks?pool=", "tasks?queue=", "tasks?limit_key="] {
            assert!(!body.contains(dear), "it reads far more than it shows: {dear}: {body}");
        }
    }
    // A row narrows its list, and the states keep its names.
    let list = stage.body(2, "tasks?state=waiting&queue=default");
    assert!(list.contains("tasks?state=waiting&amp;pool=db&amp;queue=default\">db</a>"), "{list}");
    assert!(list.contains("tasks?state=running&amp;queue=default\""), "{list}");
    let failed = stage.body(2, "tasks?state=running");
    assert!(failed.contains("tasks?state=running\" aria-current=\"true\""), "{failed}");
    assert!(
        !list.contains("aria-current=\"true\"") && list.contains("<details class=\"filter\" open>"),
        "{list}"
    );
    assert!(failed.contains("<details class=\"filter\">"), "{failed}");
}
