//! The functions in hosts' transactions of every kind.

use std::time::Duration;

use stationmaster::store::PostgresStore;
use stationmaster::store::postgres::PostgresOptions;
use stationmaster::{LeaseRef, NewTask, TaskRecord};

use super::{PostgresHost, ask, world, world_with};
use crate::postgres_server::OwnServer;
use crate::scratch::{Scratch, url};
use crate::world::{NOW, Value, Why, World, admit, arguments, finish, good, key, now, values};

/// A statement's name, and its arguments.
type Call = (&'static str, Vec<Value>);

/// One call of each verb, on tasks that were made for it, and the states that they lead to.
fn calls(world: &World) -> (Vec<Call>, [(&'static str, &'static str); 4]) {
    let task = |name: &str| NewTask::new(key(name)).pool("db".try_into().unwrap());
    world.store.write(|tx| tx.enqueue(now(), &["start", "finish"].map(task))).unwrap();
    let granted = world.admit(NOW);
    world.store.write(|tx| tx.enqueue(now(), &[task("cancel")])).unwrap();
    let lease = |name: &str| -> LeaseRef {
        granted.iter().find(|task| task.key.task.as_str() == name).map(TaskRecord::lease_ref).unwrap()
    };
    let start = lease("start");
    let calls = vec![
        ("enqueue", arguments(&task("enqueue"), None).to_vec()),
        ("start", values![NOW, start.id.0, start.epoch].to_vec()),
        ("finish", finish(lease("finish"), NOW, "success", None, None).to_vec()),
        ("cancel", values![NOW, world.id(&key("cancel")), "skipped", "no"].to_vec()),
    ];
    let states =
        [("enqueue", "scheduled"), ("start", "running"), ("finish", "success"), ("cancel", "skipped")];
    (calls, states)
}

fn state(world: &World, name: &str) -> Option<String> {
    let found = world.store.read(|tx| tx.tasks(&[key(name)])).unwrap().remove(0);
    found.map(|task| task.state.as_str().to_owned())
}

#[test]
fn every_verb_works_at_every_isolation_level_and_in_any_savepoint() {
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let world = world();
        let (calls, states) = calls(&world);
        world.host.batch(&format!("BEGIN ISOLATION LEVEL {level}"));
        for (name, values) in &calls {
            world.host.batch("SAVEPOINT undone");
            world.ask(name, values).unwrap();
            world.host.batch("ROLLBACK TO SAVEPOINT undone; SAVEPOINT kept");
            world.ask(name, values).unwrap();
            world.host.batch("RELEASE SAVEPOINT kept");
        }
        world.host.batch("COMMIT");
        for (name, expected) in states {
            assert_eq!(state(&world, name).as_deref(), Some(expected), "{level}");
        }
        world.state(&[]);
        // What waits is admitted, and what was given back can be given again.
        assert_eq!(world.admit(NOW + 1).len(), 1);
        world.state(&[]);
    }
}

#[test]
fn above_read_committed_a_task_that_changed_since_is_refused() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let (world, [beside]) = world_with();
        let (calls, _) = calls(&world);
        for (name, values) in calls.iter().skip(1) {
            world.host.batch(&format!("BEGIN ISOLATION LEVEL {level}"));
            world.host.ask("SELECT count(*) FROM stationmaster.status", &[]).unwrap();
            ask(&beside, name, values).unwrap();
            let refused = world.ask(name, values).unwrap_err();
            world.host.batch("ROLLBACK");
            assert_eq!(refused.code, "40001", "{name}: {}", refused.text);
        }
    }
}

/// A repeated call waits for the first one, and then finds what it did.
#[test]
fn a_repeated_call_waits_for_the_one_whose_outcome_is_unknown() {
    for commits in [true, false] {
        let (world, [beside, watch]) = world_with();
        let (calls, states) = calls(&world);
        for ((name, values), (_, expected)) in calls.iter().zip(states) {
            world.host.batch("BEGIN");
            world.ask(name, values).unwrap();
            let again = std::thread::scope(|scope| {
                let process = beside.process();
                let again = scope.spawn(|| ask(&beside, name, values));
                watch.wait_until_blocked(process);
                world.host.batch(if commits { "COMMIT" } else { "ROLLBACK" });
                again.join().unwrap()
            });
            match (*name, commits) {
                ("enqueue", _) => {
                    assert_eq!(again.unwrap()[0][1], i64::from(!commits).into(), "it is new or not")
                }
                ("start", _) | (_, false) => drop(again.unwrap()),
                (_, true) => assert_eq!(again.unwrap_err().why(), Why::Repeated),
            }
            assert_eq!(state(&world, name).as_deref(), Some(expected));
        }
        world.state(&[]);
    }
}

#[test]
fn a_prepared_transaction_is_an_open_one() {
    let Some(server) = OwnServer::start() else { return };
    let options = PostgresOptions::new().lock_timeout(Duration::from_secs(3));
    let store = PostgresStore::connect(&server.url(), options.clone()).unwrap();
    let host = PostgresHost::connect(&options.schema, &server.url());
    let world = World::new(Box::new(host), Box::new(store), Box::new(()));
    let (calls, states) = calls(&world);
    for commits in [false, true] {
        for (name, values) in &calls {
            world.host.batch("BEGIN");
            world.ask(name, values).unwrap();
            world.host.batch(&format!("PREPARE TRANSACTION '{name}'"));
        }
        // Nothing of it is there, and no one waits for it.
        assert_eq!(state(&world, "enqueue"), None);
        assert_eq!(world.admit(NOW + 1).len(), 0);
        world.state(&[]);
        let end = if commits { "COMMIT PREPARED" } else { "ROLLBACK PREPARED" };
        calls.iter().for_each(|(name, _)| world.host.batch(&format!("{end} '{name}'")));
        world.state(&[]);
    }
    for (name, expected) in states {
        assert_eq!(state(&world, name).as_deref(), Some(expected));
    }
    assert_eq!(world.admit(NOW + 2).len(), 1, "the new task");
}

/// Others do not wait for a host, unless they want the same task.
#[test]
fn no_one_waits_for_a_host_that_is_open() {
    let (world, [beside]) = world_with();
    let (calls, _) = calls(&world);
    let other = NewTask::new(key("other"));
    world.host.batch("BEGIN");
    for (name, values) in &calls {
        world.ask(name, values).unwrap();
    }
    world.store.write(|tx| tx.enqueue(now(), std::slice::from_ref(&other))).unwrap();
    let granted = admit(&*world.store, NOW + 1);
    assert_eq!(granted.iter().map(|task| task.key.clone()).collect::<Vec<_>>(), [other.key]);
    ask(&beside, "finish", &finish(granted[0].lease_ref(), NOW, "success", None, None)).unwrap();
    world.host.batch("COMMIT");
    world.state(&[]);
}

#[test]
fn a_schema_of_any_name_has_functions_of_its_own() {
    for name in ["table", &"s".repeat(63)] {
        let scratch = Scratch::named(name);
        let store = scratch.open(|options| options);
        let host = PostgresHost::connect(&scratch.0, &url());
        ask(&host, "enqueue", &good()).unwrap();
        ask(&host, "cancel", &values![NOW, 1, "skipped", "no"]).unwrap();
        assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
        drop((host, store));
    }
}

/// How a host's own text is stored is not the host's to know.
#[test]
fn a_substitute_character_is_read_as_it_was_written() {
    let world = world();
    let mut values = good();
    values[15] = "\u{1a}0 and \u{1a}1".into();
    world.run("enqueue", &values).unwrap();
    let payload = world.host.ask("SELECT payload FROM stationmaster.status", &[]).unwrap();
    assert_eq!(payload, [[values[15].clone()]]);
    let task = world.store.read(|tx| tx.tasks(&[key("t")])).unwrap().remove(0).unwrap();
    assert_eq!(task.payload, values[15].text());
}
