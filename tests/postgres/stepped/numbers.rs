//! Changes of one sensor and events of one task get numbers in their order, and none is left out.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use stationmaster::Error;
use stationmaster::sensor::SensorRecord;
use stationmaster::shard::DEFAULT_CODES;
use stationmaster::store::contract::{SensorQuery, WhichSensors};
use stationmaster::testing::RawStoreExt;

use super::hand::Hand;
use super::scene::{LEVELS, Scene, Verb, later, sensor};

/// A follower of sensors and of events. It reads what is there behind what it has read before.
#[derive(Default)]
struct Follower {
    changes: u64,
    events: u64,
    /// The attempt of each registration of the task whose end was announced.
    told: Vec<(i64, u64)>,
    /// The state and generation in which each change was found.
    found: Vec<(i64, u64, bool)>,
}

impl Follower {
    fn follow(&mut self, scene: &Scene) {
        let query = SensorQuery::new(
            self.changes,
            DEFAULT_CODES,
            std::iter::once(0..u32::MAX).collect(),
            WhichSensors::All,
            99,
        );
        let changed: Vec<SensorRecord> =
            scene.store.read_raw(|tx| tx.changed_sensors(&query).map_err(Error::Store)).unwrap();
        for sensor in changed {
            assert!(sensor.changed > self.changes);
            self.changes = sensor.changed;
            let waits = sensor.state == stationmaster::store::contract::SensorState::Waiting;
            self.found.push((sensor.id.0, sensor.generation, waits));
        }
        for event in scene.store.read(|tx| tx.feed(self.events, 99)).unwrap() {
            assert!(event.seq > self.events);
            self.events = event.seq;
            self.told.push((event.id.0, event.attempt.into()));
        }
    }
}

fn register(scene: &Scene, name: &str) {
    let lease = scene.lease(name);
    let registered = scene.store.write(|tx| {
        tx.start(later(1), &[lease])?;
        tx.register(later(1), &[sensor(lease)])
    });
    assert!(registered.unwrap()[0].is_waiting());
}

fn end(scene: &Scene, name: &str) {
    let lease = scene.lease(name);
    let ended = scene.store.write(|tx| Verb::EndSensor.call(tx, name, Some(lease)));
    assert_eq!(ended.unwrap(), "[true]");
}

/// Begins to number on a connection of a store's own, and ends that connection before it commits.
fn kill_a_numberer(scene: &Scene) {
    let store = scene.scratch.open(|options| options);
    let (numbered, is_numbered) = channel();
    let (go, wait) = channel::<()>();
    std::thread::scope(|scope| {
        let lost = scope.spawn(move || {
            let mut runs = 0;
            store.write_raw(|tx| {
                runs += 1;
                if runs > 1 {
                    return Err(Error::abort("it was to be lost"));
                }
                numbered.send(tx.number_changes(99)?).unwrap();
                wait.recv().unwrap();
                tx.number_changes(99).map_err(Error::Store)
            })
        });
        assert!(is_numbered.recv().unwrap() > 0, "there is something to number");
        let holders =
            "FROM pg_locks
             WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
               AND (classid::bigint << 32 | objid::bigint) = hashtextextended('sm.numbers', 0)";
        assert_eq!(scene.numbers(&format!("SELECT count(pg_terminate_backend(pid)) {holders}")), [1]);
        go.send(()).unwrap();
        assert!(lost.join().unwrap().is_err());
        // It says that it is terminated before it gives its locks back.
        let (count, began) = (format!("SELECT count(*) {holders}"), Instant::now());
        while scene.numbers(&count) != [0] {
            assert!(began.elapsed() < Duration::from_secs(60), "its lock outlives it");
        }
    });
}

fn number(scene: &Scene) -> usize {
    scene.store.write_raw(|tx| tx.number_changes(99).map_err(Error::Store)).unwrap()
}

/// Two sensors end twice each. The first end of one of them is of a host that stays open while the other one's
/// are numbered.
#[test]
fn an_open_end_and_a_killed_numberer() {
    for level in LEVELS {
        let scene = Scene::new();
        scene.admitted(&["slow", "fast"]);
        let [slow, fast] = ["slow", "fast"].map(|name| scene.task(name).id.0);
        for name in ["slow", "fast"] {
            register(&scene, name);
        }
        let mut follower = Follower::default();
        follower.follow(&scene);
        assert_eq!(follower.found, [(slow, 1, true), (fast, 1, true)], "{level}");
        let host = Hand::begin(&scene.scratch.0, level);
        let lease = scene.lease("slow");
        host.call(move |tx| Verb::EndSensor.call(tx, "slow", Some(lease))).done();
        end(&scene, "fast");
        follower.follow(&scene);
        assert_eq!(follower.told, [(fast, 1)], "{level}: it waits for nobody");
        host.commit();
        follower.follow(&scene);
        assert_eq!(follower.told, [(fast, 1)], "{level}: a host leaves numbers to others");
        kill_a_numberer(&scene);
        follower.follow(&scene);
        assert_eq!(follower.told, [(fast, 1)], "{level}: what was not committed gave no numbers");
        assert_eq!(number(&scene), 1, "{level}");
        follower.follow(&scene);
        for name in ["slow", "fast"] {
            scene.store.write(|tx| Verb::Clear.call(tx, name, None)).unwrap();
        }
        assert_eq!(scene.tick_at(later(2), 9).len(), 2);
        register(&scene, "fast");
        // The second registration of this one is the host's, and its end another host's.
        let lease = scene.lease("slow");
        let host = Hand::begin(&scene.scratch.0, level);
        host.call(move |tx| {
            tx.start(later(2), &[lease])?;
            Verb::Register.call(tx, "slow", Some(lease))
        })
        .done();
        host.commit();
        let lease = scene.lease("slow");
        let host = Hand::begin(&scene.scratch.0, level);
        host.call(move |tx| Verb::EndSensor.call(tx, "slow", Some(lease))).done();
        host.commit();
        end(&scene, "fast");
        number_the_rest(&scene);
        follower.follow(&scene);
        let of = |task: i64| -> Vec<u64> {
            follower.told.iter().filter(|told| told.0 == task).map(|told| told.1).collect()
        };
        assert_eq!((of(slow), of(fast)), (vec![1, 2], vec![1, 2]), "{level}: {:?}", follower.told);
        let last = |task: i64| follower.found.iter().rfind(|found| found.0 == task).copied();
        assert_eq!((last(slow), last(fast)), (Some((slow, 2, false)), Some((fast, 2, false))), "{level}");
        assert!(follower.found.contains(&(slow, 1, false)), "{level}: {:?}", follower.found);
        scene.audit();
    }
}

/// Numbers what the store's own transactions have not taken along.
fn number_the_rest(scene: &Scene) {
    number(scene);
    assert_eq!(
        scene.numbers("SELECT count(*) FROM sm.sensor_inbox UNION ALL SELECT count(*) FROM sm.feed_inbox"),
        [0, 0]
    );
}
