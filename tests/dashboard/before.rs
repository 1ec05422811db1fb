//! The list of the ready tasks that are before a task.

use stationmaster::NewTask;
use stationmaster::admission::IfExists;
use stationmaster::pool::{PoolSpec, Slots};

use crate::stage::{Stage, at, fact, plain, rows};
use crate::world::key;

fn of(page: &str, task: &str) -> String {
    format!("{page}?namespace=prod&workflow=nightly&run=2026-01-31&task={task}")
}

fn in_db(name: &str) -> NewTask {
    NewTask::new(key(name)).pool("db".parse().unwrap())
}

fn stage() -> Stage {
    let stage = Stage::new();
    let pool = PoolSpec::new("db", Slots::Limited(1)).unwrap();
    stage.store.write(|tx| tx.define([&pool], IfExists::Replace)).unwrap();
    stage
}

/// The link of a task's page, as a path.
fn link(body: &str) -> String {
    let (_, after) = body.split_once("<dt>Before it in the pool</dt><dd><a href=\"").expect(body);
    after.split('"').next().unwrap().replace("&amp;", "&")
}

#[test]
fn the_tasks_before_one_are_listed_in_the_order_of_admission() {
    let stage = stage();
    let tasks = [
        in_db("last"),
        in_db("second").priority(5).queue("gpu".parse().unwrap()),
        in_db("first").priority(9),
        NewTask::new(key("elsewhere")).priority(99),
        in_db("later").priority(99).not_before(at(90)),
    ];
    stage.enqueue(0, &tasks);
    let page = stage.body(10, &of("task", "last"));
    assert_eq!(fact(&page, "Before it in the pool").as_deref(), Some("2 ready tasks"));
    let body = stage.body(10, &link(&page));
    let listed = rows(&body, "before");
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert!(listed[0].starts_with("prod/nightly/2026-01-31/first | 1 | default | 9 | 10s ago"), "{listed:?}");
    assert!(listed[1].starts_with("prod/nightly/2026-01-31/second | 2 | gpu | 5 | 10s ago"), "{listed:?}");
    assert!(body.contains("Ready tasks of pool db that are before it, in the order of admission"), "{body}");

    let page = stage.body(10, &of("task", "first"));
    assert_eq!(fact(&page, "Before it in the pool").as_deref(), Some("0 ready tasks"));
    assert!(!page.contains("href=\"before"), "{page}");
    let says = |task: &str, text: &str| {
        let body = plain(&stage.body(10, &of("before", task)));
        assert!(body.contains(text), "{body}");
    };
    says("first", "It is the first of its pool.");
    says("later", "It is not ready, so it has no place");
    assert_eq!(stage.page(10, &of("before", "none")).status, 404);
    assert_eq!(stage.page(10, "before?task=last").status, 400);
}

#[test]
fn a_long_list_says_what_it_leaves_out() {
    let stage = stage();
    let tasks: Vec<NewTask> = (0..1_200).map(|at| in_db(&format!("load-{at:04}"))).collect();
    stage.enqueue(0, &tasks);
    for (name, before, more) in [
        ("load-0130", "130 ready tasks", "There are 30 more before it."),
        ("load-1199", "more than 1,000 ready tasks", "There are more than 900 more before it."),
    ] {
        let page = stage.body(10, &of("task", name));
        assert_eq!(fact(&page, "Before it in the pool").as_deref(), Some(before));
        let body = stage.body(10, &link(&page));
        let listed = rows(&body, "before");
        assert_eq!(listed.len(), 100);
        assert!(
            listed[0].contains("load-0000 | 1 |") && listed[99].contains("load-0099 | 100 |"),
            "{listed:?}"
        );
        assert!(body.contains(more), "{body}");
    }
}
