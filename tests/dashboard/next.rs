//! The page of what would run next.

use stationmaster::NewTask;
use stationmaster::admission::IfExists;
use stationmaster::pool::{PoolSpec, Slots};

use crate::stage::{Stage, at, plain};
use crate::world::key;

/// What a tick would admit and leave, of all queues or of one.
#[test]
fn what_would_run_next() {
    let stage = Stage::new();
    let queue = |name: &str| name.parse().unwrap();
    let new = |name: &str| NewTask::new(key(name));
    let pool = PoolSpec::new("db", Slots::Limited(1)).unwrap();
    stage.store.write(|tx| tx.define([&pool], IfExists::Replace)).unwrap();
    let db = || "db".parse().unwrap();
    let tasks = [
        new("second").pool(db()),
        new("first").pool(db()).priority(7),
        new("later").not_before(at(90)),
        new("film").queue(queue("gpu")),
    ];
    stage.enqueue(0, &tasks);
    let overview = stage.body(10, "overview");
    assert!(overview.contains("<a href=\"next\">What would run next?</a>"), "{overview}");
    let all = stage.body(10, "next");
    for text in ["first", "film", "No one serves queue gpu now.", "href=\"next?queue=gpu\">gpu</a>"] {
        assert!(all.contains(text), "{text} is not in {all}");
    }
    let one = plain(&stage.body(10, "next?queue=default"));
    let order = [
        "Next in queue default",
        "It would admit",
        "first",
        "It would leave",
        "pool db: 0 open of 1, needs 1",
        "The next task is due in 1m 20s.",
    ];
    let places: Vec<usize> =
        order.iter().map(|text| one.find(text).unwrap_or_else(|| panic!("{text} is not in {one}"))).collect();
    assert!(places.is_sorted() && !one.contains("film"), "{one}");
    // It is said of a task, too, that a tick is missing.
    let later = "task?namespace=prod&workflow=nightly&run=2026-01-31&task=later";
    assert!(plain(&stage.body(10, later)).contains("not before in 1m 20s"));
    let overdue = plain(&stage.body(100, later));
    assert!(overdue.contains("a tick: it was due 10s ago"), "{overdue}");
    // Nothing was granted.
    assert_eq!(stage.run(20, 9).len(), 2);
    let one = plain(&stage.body(30, "next?queue=gpu"));
    assert!(one.contains("Nothing.") && one.contains("No ready task."), "{one}");
    assert_eq!(stage.page(30, "next?queue=").status, 200);
}
