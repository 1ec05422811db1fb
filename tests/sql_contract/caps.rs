//! Caps refuse what a host enqueues by SQL where they refuse what the crate enqueues.

use stationmaster::admission::limits::LimitSpec;
use stationmaster::admission::{Definition, IfExists, QueueSpec, WaitingCap};
use stationmaster::canonical::PokeContext;
use stationmaster::ops::Finish;
use stationmaster::sensor::{NewSensor, Settings};
use stationmaster::store::Inserted;
use stationmaster::{NewTask, Timestamp};

use crate::world::{NOW, Why, World, arguments, databases, key, now};

fn task(name: &str, queue: &str, keys: &[&str]) -> NewTask {
    let task = NewTask::new(key(name)).queue(queue.try_into().unwrap());
    keys.iter().fold(task, |task, key| task.limit((*key).try_into().unwrap()))
}

/// Enqueues a task by SQL, and has the crate say the same of one with equal needs, without doing it.
fn accepts(world: &World, task: &NewTask) -> bool {
    let mut like = task.clone();
    like.key.task = "like it".try_into().unwrap();
    let mut said = true;
    let undone = world.store.write(|tx| {
        said = matches!(tx.enqueue(now(), std::slice::from_ref(&like))?[0], Inserted::New(_));
        Err::<(), _>(stationmaster::error::Invalid::AfterAdmit.into())
    });
    assert!(undone.is_err());
    match world.run("enqueue", &arguments(task, None)) {
        Ok(_) => assert!(said, "{:?} by SQL alone", task.key),
        Err(refused) => {
            assert_eq!(refused.why(), Why::Full);
            assert!(!said, "{:?} by the crate alone", task.key);
        }
    }
    said
}

#[test]
fn caps_refuse_what_is_enqueued_by_sql() {
    for make in databases() {
        let world = make();
        let cap = |most| WaitingCap::new(most).unwrap();
        let of = |key: &str| LimitSpec::of(key.try_into().unwrap());
        let definitions: [Definition; 6] = [
            QueueSpec::new("gpu".try_into().unwrap(), cap(2)).into(),
            of("k").waiting(cap(1).strict(true)).into(),
            of("t/").family().waiting(cap(1)).into(),
            of("t/free").into(),
            of("t/deep/").family().into(),
            of("unused").waiting(cap(0)).into(),
        ];
        world.store.write(|tx| tx.define(definitions.clone(), IfExists::Leave)).unwrap();
        assert!(accepts(&world, &task("a", "gpu", &[])));
        assert!(accepts(&world, &task("b", "gpu", &["other"])));
        let before = world.state(&[key("a"), key("c")]);
        assert!(!accepts(&world, &task("c", "gpu", &[])));
        let seen = world.state(&[key("a"), key("c")]);
        assert_eq!(seen.0, before.0, "a refusal changes nothing");
        // What exists is no error.
        world.run("enqueue", &arguments(&task("a", "gpu", &[]), None)).unwrap();

        let others = [
            ("d", "cpu", &["k"][..], true),
            ("e", "cpu", &["k"], false),
            ("f", "cpu", &["t/a"], true),
            ("g", "cpu", &["t/a", "z"], false),
            ("h", "cpu", &["t/b"], true),
            ("i", "cpu", &["t/free"], true),
            ("j", "cpu", &["t/free"], true),
            ("l", "cpu", &["t/deep/x"], true),
            ("m", "cpu", &["t/deep/x"], true),
            ("n", "cpu", &["unused"], false),
        ];
        for (name, queue, keys, accepted) in others {
            assert_eq!(accepts(&world, &task(name, queue, keys)), accepted, "{name}");
        }

        // What has a lease, senses or has ended does not wait.
        let granted = world.admit(NOW);
        let lease =
            |name: &str| granted.iter().find(|task| task.key.task.as_str() == name).unwrap().lease_ref();
        let leases = ["a", "b", "d"].map(lease);
        world.store.write(|tx| tx.start(now(), &leases)).unwrap();
        let settings =
            Settings::new(std::time::Duration::from_secs(1), std::time::Duration::from_secs(9)).unwrap();
        let context = PokeContext::from_json("{}").unwrap();
        let sensor = NewSensor::new(leases[0], "file".try_into().unwrap(), context, settings);
        world.store.write(|tx| tx.register(now(), std::slice::from_ref(&sensor))).unwrap();
        world.store.write(|tx| tx.finish(now(), &[Finish::success(leases[2])])).unwrap();
        let later = task("o", "gpu", &["k"]).not_before(now() + std::time::Duration::from_secs(5));
        assert!(accepts(&world, &later));
        assert!(!accepts(&world, &task("p", "cpu", &["k"])), "what is not due waits");
        assert!(accepts(&world, &task("q", "gpu", &[])));
        assert!(!accepts(&world, &task("r", "gpu", &[])));
        world
            .store
            .write(|tx| tx.finish(Timestamp::from_micros(NOW), &[Finish::given_back(leases[1])]))
            .unwrap();
        assert!(!accepts(&world, &task("r", "gpu", &[])), "what was given back waits, beyond the cap");
    }
}
