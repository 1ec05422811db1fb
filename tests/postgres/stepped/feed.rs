//! The feed beside transactions of hosts that stay open: across the registration of a consumer, across numbering,
//! and in the order of one task.

use std::sync::{Arc, Mutex};

use stationmaster::feed::TaskEvent;
use stationmaster::ops::{Finish, Mark};
use stationmaster::service::{FeedReader, Service};
use stationmaster::store::Store;
use stationmaster::task::Feed;
use stationmaster::{TaskState, Timestamp};

use super::hand::Hand;
use super::scene::{LEVELS, Scene, key, later, task};

type Heard = Arc<Mutex<Vec<(u64, String)>>>;

fn reader(scene: &Scene, name: &str) -> (FeedReader, Heard) {
    let heard = Heard::default();
    let noted = heard.clone();
    let store: Arc<dyn Store> = Arc::new(scene.scratch.open(|options| options));
    let handler = move |event: &TaskEvent| {
        noted.lock().unwrap().push((event.seq, event.task.task.to_string()));
        Ok(())
    };
    (FeedReader::new(store, name.try_into().unwrap(), handler), heard)
}

fn names(heard: &Heard) -> Vec<String> {
    heard.lock().unwrap().iter().map(|(_, name)| name.clone()).collect()
}

fn end(scene: &Scene, now: Timestamp, name: &str) {
    let mark = Mark::new(key(name), TaskState::Failed, "by hand");
    scene.store.write(|tx| tx.mark(now, std::slice::from_ref(&mark))).unwrap();
}

/// The end of a host's transaction that began before the first consumer registered, and that commits after later ends
/// were numbered and read, reaches every consumer.
#[test]
fn an_end_that_is_open_across_a_registration_and_a_numbering() {
    for level in LEVELS {
        let scene = Scene::new();
        let tasks = ["open", "rolled_back", "first", "last"].map(|name| task(name).feed(Feed::Ends));
        scene.store.write(|tx| tx.enqueue(later(0), &tasks)).unwrap();
        let hosts = ["open", "rolled_back"].map(|name| {
            let host = Hand::begin(&scene.scratch.0, level);
            let mark = Mark::new(key(name), TaskState::Success, "done");
            host.call(move |tx| tx.mark(later(1), &[mark]).map(|marked| format!("{marked:?}"))).done();
            host
        });
        let (mut early, early_heard) = reader(&scene, "early");
        early.tick(later(2)).unwrap();
        end(&scene, later(3), "first");
        assert_eq!(early.tick(later(4)).unwrap().accepted, 1, "{level}: it waits for nobody");
        let [open, rolled_back] = hosts;
        open.commit();
        rolled_back.rollback();
        end(&scene, later(5), "last");
        let (mut late, late_heard) = reader(&scene, "late");
        for now in 6..9 {
            early.tick(later(now)).unwrap();
            late.tick(later(now)).unwrap();
        }
        assert_eq!(names(&early_heard), ["first", "open", "last"], "{level}");
        assert_eq!(*early_heard.lock().unwrap(), *late_heard.lock().unwrap(), "{level}: one order for all");
        scene.audit();
    }
}

/// Ends of one task, by a host and by the store, keep their order.
#[test]
fn ends_of_one_task_are_reported_in_their_order() {
    let scene = Scene::new();
    scene.store.write(|tx| tx.enqueue(later(0), &[task("a").feed(Feed::Ends)])).unwrap();
    let (mut consumer, heard) = reader(&scene, "c");
    for round in 0..6 {
        let now = later(10 * round);
        let lease = scene.tick_at(now, 9)[0].lease_ref();
        match round % 2 {
            0 => {
                let host = Hand::begin(&scene.scratch.0, "READ COMMITTED");
                host.call(move |tx| {
                    tx.start(now, &[lease])?;
                    tx.finish(now, &[Finish::success(lease)]).map(|done| format!("{done:?}"))
                })
                .done();
                host.commit();
            }
            _ => {
                scene
                    .store
                    .write(|tx| {
                        tx.start(now, &[lease])?;
                        tx.finish(now, &[Finish::skipped(lease, "no")])
                    })
                    .unwrap();
            }
        }
        scene.store.write(|tx| tx.clear(now, &[key("a")])).unwrap();
    }
    consumer.tick(later(100)).unwrap();
    assert_eq!(heard.lock().unwrap().len(), 6);
    let states = scene.store.read(|tx| tx.feed(0, 9)).unwrap();
    let states: Vec<TaskState> = states.iter().map(|event| event.state).collect();
    assert_eq!(states, [TaskState::Success, TaskState::Skipped].repeat(3));
}

/// Whatever numbers the tasks have.
#[test]
fn ends_of_one_call_are_reported_in_its_order() {
    let scene = Scene::new();
    let names = ["c", "a", "e", "b", "d"];
    scene.store.write(|tx| tx.enqueue(later(0), &["a", "b", "c", "d", "e"].map(task))).unwrap();
    let marks = names.map(|name| Mark::new(key(name), TaskState::Failed, "by hand"));
    scene.store.write(|tx| tx.mark(later(1), &marks)).unwrap();
    let (mut consumer, heard) = reader(&scene, "c");
    consumer.tick(later(2)).unwrap();
    assert_eq!(names.map(str::to_owned).to_vec(), self::names(&heard));
}

/// There is no row yet that one of them could lock. In the first round, one of them also numbers the event, so that the
/// other one may have the turn before there is something to read. It then reads it in its next tick.
#[test]
fn of_two_readers_that_register_at_once_one_has_the_turn() {
    let scene = Scene::new();
    scene.store.write(|tx| tx.enqueue(later(0), &[task("a")])).unwrap();
    end(&scene, later(1), "a");
    for round in 0..20 {
        let name = format!("c{round}");
        let begin = std::sync::Barrier::new(2);
        let mut readers = [reader(&scene, &name), reader(&scene, &name)];
        let turns: Vec<bool> = std::thread::scope(|scope| {
            let threads: Vec<_> = readers
                .iter_mut()
                .map(|(reader, _)| {
                    let begin = &begin;
                    scope.spawn(move || {
                        begin.wait();
                        reader.tick(later(2)).unwrap().has_turn
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(turns.iter().filter(|turn| **turn).count(), 1, "{name}: {turns:?}");
        for ((reader, _), turn) in readers.iter_mut().zip(turns) {
            assert_eq!(reader.tick(later(3)).unwrap().has_turn, turn, "{name}: it keeps the turn");
        }
        let heard: Vec<usize> = readers.iter().map(|(_, heard)| heard.lock().unwrap().len()).collect();
        assert_eq!(heard.iter().sum::<usize>(), 1, "{name}: {heard:?}");
    }
}

/// A host whose tasks are not in the feed writes no row for it, and a task in it writes one an end.
#[test]
fn no_row_is_written_for_tasks_that_are_not_in_the_feed() {
    let rows = |scene: &Scene| {
        scene.numbers(
            "SELECT n_tup_ins + n_tup_upd + n_tup_del FROM (
               SELECT 1 AS place, count(*) AS n_tup_ins, 0 AS n_tup_upd, 0 AS n_tup_del FROM sm.feed
               UNION ALL SELECT 2, count(*), 0, 0 FROM sm.feed_inbox
               UNION ALL SELECT 3, count(*), 0, 0 FROM sm.consumer
               UNION ALL SELECT 4, max(version), 0, 0 FROM sm.numbers) rows ORDER BY place",
        )
    };
    let scene = Scene::new();
    let before = rows(&scene);
    for (name, feed) in [("off", Feed::Off), ("ends", Feed::Ends)] {
        scene.store.write(|tx| tx.enqueue(later(0), &[task(name).feed(feed)])).unwrap();
        let lease = scene.tick_at(later(1), 9)[0].lease_ref();
        scene
            .store
            .write(|tx| {
                tx.start(later(2), &[lease])?;
                tx.finish(later(3), &[Finish::success(lease)])
            })
            .unwrap();
        let told = i64::from(feed == Feed::Ends);
        assert_eq!(rows(&scene), [before[0], before[1] + told, before[2], before[3]], "{name}");
    }
}
