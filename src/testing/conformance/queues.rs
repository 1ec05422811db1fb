//! Queues: their lanes, who serves them, and what is in them.

use std::collections::BTreeSet;
use std::time::Duration;

use super::scene::request;
use super::steps::Steps;
use super::world::{World, at, holder, limit, rows, sensor, task, to};
use crate::admission::{QueueRecord, Serving};
use crate::id::QueueName;
use crate::store::Store;
use crate::store::contract::SurveyQuery;
use crate::task::{NewTask, TaskState};

cases!("queues":
    equal_needs_in_two_queues_are_two_lanes,
    a_task_keeps_its_queue,
    a_survey_names_the_lanes_of_the_asked_queues,
    what_a_holder_announced_is_kept_until_it_announces_again,
    a_survey_tells_who_serves_what,
    what_stopped_counting_is_forgotten_in_pieces,
    queues_are_counted,
);

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

fn set(names: &[&str]) -> BTreeSet<QueueName> {
    names.iter().map(|name| queue(name)).collect()
}

/// What a holder announces at this instant, with leases of 10.
fn serving(name: &str, queues: Option<&[&str]>, announced_at: i64) -> Serving {
    Serving::new(holder(name), queues.map(set), at(announced_at), Duration::from_micros(10))
}

fn record(name: &str, [ready, waiting, leased, sensing]: [u64; 4]) -> QueueRecord {
    QueueRecord::new(queue(name), ready, waiting, leased, sensing)
}

fn equal_needs_in_two_queues_are_two_lanes(store: &dyn Store) {
    let world = World(store);
    // The text of a queue follows that of the keys where a store hashes needs.
    let in_queue = |name: &str, to: &str| task(name).queue(queue(to)).limit(limit("k"));
    world.insert(&[
        in_queue("1", "default"),
        task("2").limit(limit("k")),
        in_queue("3", "gpu"),
        in_queue("4", "[\"k\"] gpu"),
        in_queue("5", "gpu"),
        in_queue("6", "GPU"),
        task("7").queue(queue("gpu")),
    ]);
    let lanes = world.read(|tx| tx.ready_lanes());
    let found: Vec<(String, u64)> =
        lanes.into_iter().map(|lane| (lane.key.queue.to_string(), lane.ready)).collect();
    let expected = [("default", 2), ("gpu", 2), ("[\"k\"] gpu", 1), ("GPU", 1), ("gpu", 1)];
    assert_eq!(found, expected.map(|(name, ready)| (name.to_owned(), ready)));
}

fn a_task_keeps_its_queue(store: &dyn Store) {
    let world = World(store);
    let news: Vec<NewTask> =
        ["a", "b", "c"].iter().map(|name| task(name).queue(queue(&format!("of {name}")))).collect();
    let one = world.insert(&news[..1])[0];
    let many = world.insert(&news[1..]);
    let ids = [one, many[0], many[1]];
    let leases = world.run(&ids);
    world.end(&leases[..1]);
    world.shift(&[to(leases[1], TaskState::Scheduled)]);
    for (id, new) in ids.iter().zip(&news) {
        assert_eq!(world.task(*id).lane.queue, new.queue);
    }
    // Out of an end, into a lane that may have to be made again.
    world.shift(&[to(leases[0], TaskState::Scheduled)]);
    let lanes = world.read(|tx| tx.ready_lanes());
    let mut queues: Vec<String> = lanes.into_iter().map(|lane| lane.key.queue.to_string()).collect();
    queues.sort();
    assert_eq!(queues, ["of a", "of b"]);
}

fn a_survey_names_the_lanes_of_the_asked_queues(store: &dyn Store) {
    let world = World(store);
    let later = task("later").queue(queue("gpu")).not_before(at(5));
    let ids = world.insert(&[task("a"), task("b").queue(queue("gpu")), task("c").queue(queue("cpu")), later]);
    let names = |queues: &[&str], promote: bool| {
        let query = SurveyQuery::new().queues(Some(set(queues)));
        let query = if promote { query.promote(at(5), 9).budget(9) } else { query };
        let survey = world.write(|tx| tx.survey(&query));
        survey
            .lanes
            .into_iter()
            .map(|lane| (lane.key.queue.as_str().to_owned(), lane.ready))
            .collect::<Vec<_>>()
    };
    let expected = |names: &[(&str, u64)]| {
        names.iter().map(|(name, ready)| ((*name).to_owned(), *ready)).collect::<Vec<_>>()
    };
    assert_eq!(names(&["gpu"], false), expected(&[("gpu", 1)]));
    assert_eq!(names(&["cpu", "default", "none"], false), expected(&[("default", 1), ("cpu", 1)]));
    assert_eq!(names(&["cpu"], true), expected(&[("cpu", 1)]), "it promotes in all queues");
    assert_eq!(names(&["gpu", "cpu"], true), expected(&[("gpu", 2), ("cpu", 1)]));
    assert_eq!(names(&["none"], true), []);
    let lease = world.run(&[ids[2]]);
    assert_eq!(names(&["cpu", "gpu"], true), expected(&[("gpu", 2)]), "nothing of it is ready");
    world.shift(&[to(lease[0], TaskState::Scheduled)]);
    assert_eq!(names(&["cpu"], true), expected(&[("cpu", 1)]));
}

fn what_a_holder_announced_is_kept_until_it_announces_again(store: &dyn Store) {
    let world = World(store);
    let announced = [
        serving("a", None, 5),
        serving("b", None, 4),
        serving("b", Some(&["a"]), 6),
        serving("b", Some(&["gpu", "ü \"x\""]), 7),
    ];
    // Sorted by holder, then by the queues, whatever the order of the announcements.
    for serving in announced.iter().rev() {
        world.write(|tx| tx.put_serving(serving, at(0)));
    }
    assert_eq!(world.read(|tx| tx.serving()), announced);
    assert_eq!(store.read(|tx| tx.serving()).unwrap(), announced, "as a host sees it");
    let again = Serving { lease: Duration::from_micros(3), ..serving("b", Some(&["a"]), 2) };
    world.write(|tx| tx.put_serving(&again, at(0)));
    let [a, all, _, gpu] = announced;
    assert_eq!(world.read(|tx| tx.serving()), [a, all, again, gpu]);
}

fn a_survey_tells_who_serves_what(store: &dyn Store) {
    let world = World(store);
    let announced = [serving("a", Some(&["gpu"]), 5), serving("b", None, 6), serving("b", Some(&["cpu"]), 7)];
    for serving in &announced {
        world.write(|tx| tx.put_serving(serving, at(0)));
    }
    let id = world.insert(&[task("a")])[0];
    for query in [SurveyQuery::new(), SurveyQuery::new().promote(at(9), 9)] {
        assert_eq!(world.write(|tx| tx.survey(&query)).serving, announced);
    }
    world.admit_as(&request(), &[id], at(10));
    let known = world.write(|tx| tx.survey(&SurveyQuery::new().request(request())));
    assert!(known.granted.is_some());
    assert_eq!(known.serving, announced);
}

fn what_stopped_counting_is_forgotten_in_pieces(store: &dyn Store) {
    let world = World(store);
    let names: Vec<String> = (0..70).map(|n| format!("h{n:02}")).collect();
    for (name, announced_at) in names.iter().zip((0..70).rev()) {
        world.write(|tx| tx.put_serving(&serving(name, None, announced_at), at(0)));
    }
    let new = serving("new", None, 0);
    let left = |forget| {
        world.write(|tx| tx.put_serving(&new, at(forget)));
        world.read(|tx| tx.serving()).len() - 1
    };
    assert_eq!(left(19), 70, "each counts for two leases");
    assert_eq!(left(20), 69, "the earliest stopped counting at 20");
    assert_eq!(left(1000), 5, "64 at a time");
    assert_eq!(left(1000), 0);
    assert_eq!(world.read(|tx| tx.serving()), [new], "the note itself stays");
}

fn queues_are_counted(store: &dyn Store) {
    let world = World(store);
    assert_eq!(world.read(|tx| tx.queues()), []);
    let gpu = |name: &str| task(name).queue(queue("gpu"));
    let ids = world.insert(&[
        gpu("run"),
        gpu("ready"),
        gpu("more").limit(limit("k")),
        gpu("later").not_before(at(50)),
        task("sense"),
        task("end"),
    ]);
    assert_eq!(world.read(|tx| tx.queues()), [record("default", [2, 2, 0, 0]), record("gpu", [3, 4, 0, 0])]);
    let leases = world.run(&[ids[0], ids[4], ids[5]]);
    world.end(&leases[2..]);
    world.write(|tx| {
        tx.move_if(&[to(leases[1], TaskState::Sensing)])?;
        tx.put_sensors(&[sensor(leases[1], "x").insert(at(30))])
    });
    assert_eq!(world.read(|tx| tx.queues()), [record("default", [0, 0, 0, 1]), record("gpu", [2, 3, 1, 0])]);
    // In the transaction that changes them, too.
    let counted = world.write(|tx| {
        tx.insert_tasks_if_absent(&rows(&[gpu("x")]))?;
        tx.queues()
    });
    assert_eq!(counted[1], record("gpu", [3, 4, 1, 0]));
}
