//! What people read about keys, orders, leases and requested stops.

use std::time::Duration;

use stationmaster::ops::AdmitRequest;
use stationmaster::{NewTask, TaskKey};

use crate::world::{HOUR, key, worlds};

/// The output as one line, so that it does not matter where it was wrapped.
fn joined(shown: &str) -> String {
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn keys_are_wrapped_at_their_separators() {
    for world in worlds() {
        let run = "scheduled__2026-01-31T03:00:00+00:00";
        let long = TaskKey::new("production", "nightly-warehouse", run, "load_everything_again").unwrap();
        let long = [NewTask::new(long).not_before(world.now + HOUR)];
        world.store.write(|tx| tx.enqueue(world.now, &long)).unwrap();
        for args in [
            &["tasks", "--namespace", "production"][..],
            &["explain", "production", "nightly-warehouse", run, "load_everything_again"],
        ] {
            let shown = world.show(&[&["--width", "80"], args].concat()).ends(0);
            for part in ["production/", "nightly-warehouse/", run, "load_everything_again"] {
                assert!(shown.contains(part), "{part} is broken: {shown}");
            }
            assert!(shown.lines().all(|line| line.len() <= 80), "{shown}");
            assert!(!shown.contains('\u{200b}'), "{shown}");
        }
        // Columns that need less leave their room to the others.
        let shown = world.show(&["--width", "120", "tasks", "--namespace", "production"]).ends(0);
        assert_eq!(shown.lines().count(), 4, "{shown}");
        // Even a narrow table breaks it only after separators, first those between names.
        let shown = world.show(&["--width", "65", "tasks", "--namespace", "production"]).ends(0);
        for part in ["warehouse", "scheduled", "2026", "everything", "again", "scheduled  "] {
            assert!(shown.contains(part), "{part} is broken: {shown}");
        }
        assert!(shown.lines().all(|line| line.len() <= 65), "{shown}");
    }
}

#[test]
fn a_mapped_task_without_its_index_is_recognised() {
    for world in worlds() {
        let tasks: Vec<NewTask> = (0..3).map(|index| NewTask::new(key("part").mapped(index))).collect();
        world.store.write(|tx| tx.enqueue(world.now, &tasks)).unwrap();
        let hint = "part: there is no such task; this task is mapped: add an index, 0 to 2.";
        let shown = world.show(&["task", "prod/nightly/r1/part"]).ends(1);
        assert!(shown.contains(hint), "{shown}");
        let shown = world.show(&["task", "prod/nightly/r1/part[3]"]).ends(1);
        assert!(shown.contains("part[3]: there is no such task."), "{shown}");
        let shown = world.show(&["cancel", "prod/nightly/r1/part", "--yes"]).ends(1);
        assert!(
            shown.contains("there is no such task; this task is mapped: add an index, 0 to 2"),
            "{shown}"
        );
        let shown = world.show(&["explain", "prod/nightly/r1/part"]).ends(1);
        assert!(
            shown.contains("there is no such task; this task is mapped: add an index, 0 to 2"),
            "{shown}"
        );
    }
}

#[test]
fn the_first_tasks_before_a_task_are_named() {
    for world in worlds() {
        let task =
            |name: &str, priority| NewTask::new(key(name)).pool("db".try_into().unwrap()).priority(priority);
        let tasks =
            [task("p5", 5), task("p9", 9), task("p7", 7), task("p1", -1), task("p8", 8), task("p6", 6)];
        world.store.write(|tx| tx.enqueue(world.now, &tasks)).unwrap();
        let names = "before it: prod/nightly/r1/p9, prod/nightly/r1/p8, prod/nightly/r1/p7";
        for command in ["task", "explain"] {
            let shown = world.show(&[command, "prod/nightly/r1/p6"]).ends(0);
            assert!(
                shown.contains(&format!("{names}\n")) && shown.contains("; 3 tasks of its pool"),
                "{shown}"
            );
            let shown = world.show(&[command, "prod/nightly/r1/p1"]).ends(0);
            let all = format!("{names}, prod/nightly/r1/p6, prod/nightly/r1/p5, and 1 more\n");
            assert!(shown.contains(&all), "{shown}");
            let shown = world.show(&[command, "prod/nightly/r1/p9"]).ends(0);
            assert!(!shown.contains("before it:"), "{shown}");
        }
    }
}

#[test]
fn the_first_tasks_are_named_however_many_others_wait() {
    for world in worlds() {
        let later = |index| NewTask::new(key("later").mapped(index)).pool("db".try_into().unwrap());
        let later: Vec<NewTask> = (0..1_000).map(|index| later(index).not_before(world.now + HOUR)).collect();
        let ready = ["first", "last"].map(|name| NewTask::new(key(name)).pool("db".try_into().unwrap()));
        let ready = [ready[0].clone().priority(99), ready[1].clone().priority(-99)];
        world.store.write(|tx| tx.enqueue(world.now, &later)).unwrap();
        world.store.write(|tx| tx.enqueue(world.now, &ready)).unwrap();
        let shown = joined(&world.show(&["explain", "prod/nightly/r1/last"]).ends(0));
        assert!(shown.contains("before it: prod/nightly/r1/first"), "{shown}");
    }
}

#[test]
fn a_requested_stop_has_one_wording() {
    for world in worlds() {
        let commands = [
            &["task", "prod/nightly/r1/load"][..],
            &["tasks", "--state", "leased"],
            &["workers"],
            &["workers", "worker-1"],
        ];
        for (grace, wording) in
            [("1h", "asked to stop, must do so by 2"), ("1ms", "asked to stop, had to do so by 2")]
        {
            world.show(&["cancel", "prod/nightly/r1/load", "--yes", "--grace", grace]).ends(0);
            for args in commands {
                let shown = world.show(&[&["--width", "65"], args].concat()).ends(0);
                assert!(shown.lines().all(|line| line.len() <= 65), "{shown}");
                let wide = world.show(args).ends(0);
                assert!(wide.contains(wording), "{args:?}: {wide}");
            }
        }
    }
}

#[test]
fn what_is_past_is_said_to_be_past() {
    for world in worlds() {
        let early = world.now - HOUR / 2;
        let lost = [NewTask::new(key("lost"))];
        let due = [NewTask::new(key("due")).not_before(world.now - HOUR / 4)];
        let order = AdmitRequest::new(
            "worker-2".try_into().unwrap(),
            "tick-9".try_into().unwrap(),
            10,
            Duration::from_secs(60),
        );
        world.store.write(|tx| tx.enqueue(early, &lost)).unwrap();
        world.store.write(|tx| tx.enqueue(early, &due)).unwrap();
        let order = order.started().serves(["default".try_into().unwrap()]);
        let granted = world.store.write(|tx| tx.admit(early, &order));
        assert_eq!(granted.unwrap().granted.len(), 1);
        let of = |args: &[&str]| joined(&world.show(args).ends(0));
        let shown = of(&["tasks", "--state", "leased", "--holder", "worker-2"]);
        assert!(shown.contains("held by worker-2, lease ended 2") && shown.contains("(29m"), "{shown}");
        let shown = of(&["task", "prod/nightly/r1/lost"]);
        assert!(shown.contains("lease ended 2"), "{shown}");
        let shown = of(&["workers", "worker-2"]);
        assert!(shown.contains("1 task, the first lease ended 2") && shown.contains(" ended 2"), "{shown}");
        let shown = of(&["tasks", "--namespace", "prod", "--state", "waiting"]);
        assert!(shown.contains("due since 2"), "{shown}");
    }
}

#[test]
fn two_sensors_are_a_blank_line_apart() {
    for world in worlds() {
        world.senses_more("wait-2");
        let keys = ["prod/nightly/r1/wait", "prod/nightly/r1/wait-2"];
        let shown = world.show(&[&["sensors"], &keys[..]].concat()).ends(0);
        assert_eq!(shown.lines().filter(|line| line.is_empty()).count(), 1, "{shown}");
        // The task's name is in the same column as the rest.
        let column = |line: &str| line.find(line.rsplit("  ").next().unwrap());
        let columns: Vec<_> = shown.lines().filter(|line| !line.is_empty()).map(column).collect();
        assert!(columns.windows(2).all(|pair| pair[0] == pair[1]), "{shown}");
    }
}
