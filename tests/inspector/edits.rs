//! Each command that changes something: it says how many it touches, and touches no others.

use std::slice::from_ref;

use stationmaster::TaskState;
use stationmaster::admission::Subject;

use crate::world::{HOSTILE, HOUR, World, hostile, key, worlds};

fn task(world: &World, name: &str) -> stationmaster::TaskRecord {
    world.store.read(|tx| tx.tasks(from_ref(&key(name)))).unwrap().remove(0).unwrap()
}

#[test]
fn tasks_are_cancelled_by_key_and_by_query() {
    for world in worlds() {
        let line =
            world.json(&["cancel", "prod", "nightly", "r1", "load", "--yes", "--message", "why not"]).line(0);
        assert!(line["result"]["asked_until"].is_string() && line["done"] == true, "{line}");
        let load = task(&world, "load");
        assert_eq!((load.state, load.message.as_deref()), (TaskState::Running, Some("why not")));
        let shown = world.show(&["cancel", "--queue", "gpu", "--state", "waiting", "--yes"]).ends(0);
        assert!(
            shown.contains("cancelled; it was scheduled") && shown.ends_with("2 of 2 done.\n"),
            "{shown}"
        );
        assert_eq!(world.state(&hostile()), Some(TaskState::Cancelled));
        assert_eq!(world.state(&key("check")), Some(TaskState::Scheduled), "another queue");
        let shown = world.show(&["cancel", "prod", "nightly", "r1", "fail", "--yes"]).ends(1);
        assert!(shown.contains("it had ended: failed") && shown.contains("0 of 1 done."), "{shown}");
        let shown = world.show(&["cancel", "prod", "nightly", "r1", "none", "--yes"]).ends(1);
        assert!(shown.contains("there is no such task"), "{shown}");
        world.show(&["cancel", "--state", "skipped", "--yes"]).ends(1);
        let at_once =
            world.json(&["cancel", "prod", "nightly", "r1", "load", "--yes", "--grace", "0s"]).line(0);
        assert_eq!(at_once["result"]["ended"], "running");
        assert_eq!(world.store.read(|tx| tx.audit()).unwrap(), []);
    }
}

#[test]
fn tasks_are_run_again() {
    for world in worlds() {
        let shown = world.show(&["retry", "--state", "failed,up_for_retry", "--yes"]).ends(0);
        assert!(shown.contains("2 of 2 done."), "{shown}");
        for name in ["fail", "again"] {
            let task = task(&world, name);
            assert!(task.due.is_none() && !task.state.is_end(), "{name}: {task:?}");
        }
        let line = world.json(&["retry", "prod", "nightly", "r1", "load", "--yes"]).line(1);
        assert_eq!((&line["done"], &line["result"]["not_ended"]), (&false.into(), &"running".into()));
    }
}

#[test]
fn tasks_are_changed() {
    for world in worlds() {
        let edit = [
            "change",
            "prod",
            "nightly",
            "r1",
            "check",
            "--set-queue",
            HOSTILE,
            "--set-priority",
            "-7",
            "--set-pool",
            "default_pool",
            "--set-slots",
            "3",
            "--set-not-before",
            "+1h",
            "--yes",
        ];
        world.show(&edit).ends(0);
        let check = task(&world, "check");
        assert_eq!((check.lane.queue.as_str(), check.priority), (HOSTILE, -7));
        assert_eq!((check.lane.pool.as_str(), check.lane.slots), ("default_pool", 3));
        assert!(check.due.is_some_and(|due| due > world.now + HOUR / 2 && due < world.now + 2 * HOUR));
        world.show(&["change", "--queue", HOSTILE, "--set-not-before", "now", "--yes"]).ends(0);
        assert!(task(&world, "check").is_ready());
        let shown =
            world.show(&["change", "prod", "nightly", "r1", "load", "--set-priority", "1", "--yes"]).ends(1);
        assert!(shown.contains("left as it is: it is running"), "{shown}");
    }
}

#[test]
fn tasks_are_deleted_by_lines_that_were_printed() {
    for world in worlds() {
        let listed = world.json(&["tasks", "--state", "waiting", "--queue", "gpu", "--limit", "1"]).out;
        assert_eq!(listed.lines().count(), 2, "a task, and that there are more: {listed}");
        // The line is there twice, and is one task.
        let gone = world.feed(&["--json", "delete", "-", "--yes"], &format!("{listed}{listed}")).line(0);
        assert_eq!(gone["result"], "done");
        assert_eq!(world.json(&["tasks", "--queue", "gpu"]).lines(0).len(), 1);
        // No more than the limit, however many there are.
        let gone = world.json(&["delete", "--state", "ended", "--limit", "1", "--yes"]).lines(0);
        assert_eq!(gone.len(), 1);
        assert_eq!(world.json(&["tasks", "--state", "ended"]).lines(0).len(), 1);
        let left = world.show(&["delete", "prod", "nightly", "r1", "load", "--yes"]).ends(1);
        assert!(left.contains("left as it is: it is running"), "{left}");
        assert_eq!(world.state(&key("load")), Some(TaskState::Running));
    }
}

#[test]
fn many_tasks_are_changed_in_pages() {
    use stationmaster::{NewTask, TaskKey};
    for world in worlds() {
        let many: Vec<NewTask> = (0..1_203)
            .map(|n| {
                let key = TaskKey::new("bulk", "w", "r", format!("t{n}")).unwrap();
                NewTask::new(key).queue("bulk".try_into().unwrap())
            })
            .collect();
        world.store.write(|tx| tx.enqueue(world.now, &many)).unwrap();
        let done = world.json(&["cancel", "--queue", "bulk", "--limit", "1100", "--yes"]).lines(0);
        assert_eq!(done.len(), 1_100);
        let left = world.json(&["tasks", "--state", "waiting", "--queue", "bulk", "--all"]).lines(0);
        assert_eq!(left.len(), 103);
        // No more than the limit, although all of them are on the page that is held.
        let queue = ["--queue", "bulk", "--state", "waiting"];
        let shown = world
            .json(&[&["change"][..], &queue, &["--limit", "3", "--set-priority", "5", "--yes"]].concat());
        assert_eq!(shown.lines(0).len(), 3);
        let changed = world.json(&[&["tasks", "--all"][..], &queue].concat()).lines(0);
        assert_eq!(changed.iter().filter(|task| task["priority"] == 5).count(), 3);
    }
}

#[test]
fn subjects_are_paused_and_resumed() {
    for world in worlds() {
        let shown = world.show(&["pause", "pool", "db", "--yes"]).ends(0);
        assert!(shown.contains("pool db") && shown.contains("paused; 1 lease goes on"), "{shown}");
        let shown = world.show(&["pause", "pool", "bd", "db", "--yes"]).ends(1);
        assert_eq!(shown.matches("the store knows none of this name").count(), 1, "{shown}");
        world.show(&["resume", "pool", "bd", "--yes"]).ends(0);
        let shown = world.show(&["pause", "queue", "gpv", "gpu", "--yes"]).ends(0);
        let told = "queue gpv  paused; nothing of it runs (the store knows none of this name)";
        assert!(shown.contains(told) && shown.matches("knows none").count() == 1, "{shown}");
        world.show(&["resume", "queue", "gpv", "gpu", "--yes"]).ends(0);
        world.show(&["pause", "limit", "tenant/acme", "--yes"]).ends(0);
        world.show(&["pause", "family", "tenant/", "--yes"]).ends(0);
        let line = world.json(&["pause", "queue", "gpu", HOSTILE, "--yes"]).lines(0).remove(0);
        assert_eq!((&line["subject"]["queue"], &line["drain"]), (&"gpu".into(), &"drained".into()));
        assert_eq!(world.store.read(|tx| tx.paused()).unwrap().len(), 5);
        let shown = world.show(&["explain", "prod", "nightly", "r1", "check"]).ends(0);
        let all = [
            "prod/nightly/r1/check  pool db: paused; first in its pool's order",
            "limit tenant/acme: paused",
            "limits tenant/*: paused",
            "pool db: 0 open of 1, needs 1",
        ];
        let lines: Vec<&str> = shown.lines().skip(1).map(str::trim).collect();
        assert_eq!(lines, all, "{shown}");
        let sheet = world.show(&["task", "prod", "nightly", "r1", "check"]).ends(0);
        assert_eq!(sheet.matches("waits for").count(), 4, "{sheet}");
        let told = world.json(&["explain", "prod", "nightly", "r1", "check"]).line(0);
        assert_eq!(
            (&told["why"]["refused"]["reason"], &told["why"]["refused"]["also"][2]["reason"]),
            (&"paused".into(), &"pool_full".into())
        );
        let shown = world.show(&["pools", "db"]).ends(0);
        assert!(shown.contains("PAUSED") && shown.contains("yes"), "{shown}");
        let shown = world.show(&["limits"]).ends(0);
        assert!(shown.contains("yes"), "{shown}");
        world.show(&["pause", "queue", "gpu", "--yes"]).ends(1);
        world.show(&["resume", "queue", "gpu", HOSTILE, "--yes"]).ends(0);
        let paused = world.store.read(|tx| tx.paused()).unwrap();
        assert!(!paused.contains(&Subject::Queue("gpu".try_into().unwrap())) && paused.len() == 3);
        let shown = world.show(&["resume", "queue", "gpu", "--yes"]).ends(1);
        assert!(shown.contains("was not paused"), "{shown}");
    }
}
