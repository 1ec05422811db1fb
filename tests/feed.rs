//! The feed of ends: at least once and in order, for each consumer, whatever handlers and other readers do.

mod stores;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stationmaster::error::StoreErrorKind;
use stationmaster::feed::{Consumer, TaskEvent};
use stationmaster::id::Holder;
use stationmaster::ops::Mark;
use stationmaster::service::{FeedReader, FeedReport, Service, Upkeep};
use stationmaster::store::Store;
use stationmaster::task::Feed;
use stationmaster::testing::{Fault, FaultStore, When};
use stationmaster::{NewTask, TaskKey, TaskState, Timestamp};
use stores::{stores, told};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn name(name: &str) -> Holder {
    name.try_into().unwrap()
}

/// Ends these tasks, one transaction each.
fn end(store: &Arc<dyn Store>, now: i64, tasks: std::ops::Range<usize>, feed: Feed) {
    for n in tasks {
        let key = TaskKey::new("ns", "w", "r", format!("t{n:06}")).unwrap();
        let mark = Mark::new(key.clone(), TaskState::Skipped, "by hand");
        store
            .write(|tx| {
                tx.enqueue(at(now), &[NewTask::new(key.clone()).feed(feed)])?;
                tx.mark(at(now), std::slice::from_ref(&mark))
            })
            .unwrap();
    }
}

type Heard = Arc<Mutex<Vec<u64>>>;

/// A reader that notes the numbers of what it accepts.
fn reader(store: &Arc<dyn Store>, consumer: &str) -> (FeedReader, Heard) {
    let heard = Heard::default();
    let noted = heard.clone();
    let handler = move |event: &TaskEvent| {
        noted.lock().unwrap().push(event.seq);
        Ok(())
    };
    (FeedReader::new(store.clone(), name(consumer), handler), heard)
}

fn heard(heard: &Heard) -> Vec<u64> {
    heard.lock().unwrap().clone()
}

/// Ticks until nothing is left.
fn drain(reader: &mut FeedReader, now: i64) -> FeedReport {
    let mut sum = FeedReport::default();
    loop {
        let report = reader.tick(at(now)).unwrap();
        assert!(report.has_turn && report.refused.is_none(), "{report:?}");
        sum.accepted += report.accepted;
        sum.lost += report.lost;
        if report.next_due != Some(at(now)) {
            return sum;
        }
    }
}

fn consumer(store: &Arc<dyn Store>, consumer: &str) -> Consumer {
    let all = store.read(|tx| tx.consumers()).unwrap();
    all.into_iter().find(|one| one.name == name(consumer)).unwrap()
}

#[test]
fn each_consumer_gets_all_in_order_and_goes_on_where_it_was() {
    for store in stores() {
        end(&store, 0, 0..70, Feed::Ends);
        let (mut first, first_heard) = reader(&store, "first");
        assert_eq!(drain(&mut first, 1).accepted, 70);
        end(&store, 2, 70..80, Feed::Ends);
        let (mut second, second_heard) = reader(&store, "second");
        assert_eq!(drain(&mut second, 3).accepted, 80, "a new consumer begins with the oldest that is there");
        assert_eq!(drain(&mut first, 3).accepted, 10);
        let all: Vec<u64> = (1..=80).collect();
        assert_eq!((heard(&first_heard), heard(&second_heard)), (all.clone(), all));
        // Another process with its name goes on behind what it accepted, once the turn is over.
        end(&store, 4, 80..82, Feed::Ends);
        let (mut heir, heir_heard) = reader(&store, "first");
        let waits = heir.tick(at(5)).unwrap();
        assert!(!waits.has_turn && waits.accepted == 0 && waits.next_due == Some(at(6)), "{waits:?}");
        assert_eq!(drain(&mut heir, 40).accepted, 2);
        assert_eq!(heard(&heir_heard), [81, 82]);
        assert!(!first.tick(at(41)).unwrap().has_turn, "now the other one waits");
        assert_eq!((consumer(&store, "first").cursor, consumer(&store, "first").lost), (82, 0));
    }
}

#[test]
fn nothing_is_reported_of_tasks_that_did_not_ask() {
    for store in stores() {
        let (mut reader, heard_by) = reader(&store, "first");
        drain(&mut reader, 0);
        end(&store, 1, 0..5, Feed::Off);
        drain(&mut reader, 2);
        assert_eq!(heard(&heard_by), [0; 0]);
        assert_eq!(consumer(&store, "first").seen_at, at(0), "nothing to read, and nothing written");
    }
}

/// Of a task that is not in the feed not one row is written for it, whether somebody reads or not.
#[cfg(feature = "sqlite")]
#[test]
fn a_task_that_is_not_in_the_feed_writes_not_one_row_more() {
    use stationmaster::store::sqlite::{SqliteTx, migrate, rusqlite::Connection};
    let rows = |feed: Feed, is_read: bool| {
        let (dir, prefix) = (tempfile::tempdir().unwrap(), Default::default());
        let path = dir.path().join("feed.db");
        let mut conn = Connection::open(&path).unwrap();
        migrate(&conn, &prefix).unwrap();
        if is_read {
            let store = stationmaster::store::SqliteStore::open(&path, Default::default()).unwrap();
            let (mut reader, _) = reader(&(Arc::new(store) as Arc<dyn Store>), "first");
            drain(&mut reader, 0);
        }
        let before = conn.total_changes();
        let tx = conn.transaction().unwrap();
        let mut sm = SqliteTx::attach(&tx, &prefix).unwrap();
        let key = TaskKey::new("ns", "w", "r", "a").unwrap();
        let task = NewTask::new(key.clone()).feed(feed);
        sm.enqueue(at(1), &[task]).unwrap();
        sm.mark(at(2), &[Mark::new(key, TaskState::Failed, "x")]).unwrap();
        drop(sm);
        tx.commit().unwrap();
        conn.total_changes() - before
    };
    let plain = rows(Feed::Off, false);
    assert_eq!(rows(Feed::Off, true), plain);
    assert_eq!(rows(Feed::Ends, false), plain + 2, "the event, and the last number");
}

#[test]
fn what_a_handler_refuses_comes_again_and_those_behind_it_wait() {
    for store in stores() {
        end(&store, 0, 0..4, Feed::Ends);
        let tried = Arc::new(Mutex::new(Vec::new()));
        let noted = tried.clone();
        let mut reader = FeedReader::new(store.clone(), name("c"), move |event: &TaskEvent| {
            let calls = {
                let mut noted = noted.lock().unwrap();
                noted.push(event.seq);
                noted.len()
            };
            match calls {
                2 => Err("not now".into()),
                3 => panic!("a bug"),
                _ => Ok(()),
            }
        });
        let report = reader.tick(at(1)).unwrap();
        let (event, why) = report.refused.unwrap();
        assert_eq!((report.accepted, event.seq, why.as_str()), (1, 2, "not now"));
        let report = reader.tick(at(2)).unwrap();
        assert!(report.accepted == 0 && report.refused.unwrap().1.ends_with("panicked: a bug"));
        assert_eq!(reader.tick(at(4)).unwrap().accepted, 3);
        assert_eq!(*tried.lock().unwrap(), [1, 2, 2, 2, 3, 4]);
    }
}

#[test]
fn accepted_events_are_forgotten_and_a_slow_consumer_holds_back_only_to_the_bound() {
    for store in stores() {
        let left = || store.read(|tx| tx.feed(0, 999)).unwrap().len();
        let mut upkeep = Upkeep::new(store.clone());
        let (mut quick, _) = reader(&store, "quick");
        let (mut slow, slow_heard) = reader(&store, "slow");
        end(&store, 0, 0..3, Feed::Ends);
        drain(&mut quick, 1);
        assert_eq!(upkeep.tick(at(2)).unwrap().feed_forgotten, 3);
        end(&store, 10, 3..8, Feed::Ends);
        drain(&mut slow, 11);
        drain(&mut quick, 11);
        end(&store, 20, 8..10, Feed::Ends);
        end(&store, 40, 10..12, Feed::Ends);
        drain(&mut quick, 40);
        let report = upkeep.tick(at(41)).unwrap();
        assert_eq!((report.feed_forgotten, left()), (5, 4), "what both accepted");
        let mut bounded = Upkeep::new(store.clone()).retain_feed_for(Duration::from_secs(15));
        assert_eq!((bounded.tick(at(50)).unwrap().feed_forgotten, left()), (2, 2));
        let report = drain(&mut slow, 51);
        assert_eq!((report.accepted, report.lost), (2, 2));
        assert_eq!(heard(&slow_heard), [4, 5, 6, 7, 8, 11, 12]);
        assert_eq!((consumer(&store, "slow").lost, consumer(&store, "quick").lost), (2, 0));
    }
}

#[test]
fn a_consumer_that_went_away_is_dropped_and_learns_what_it_lost() {
    for store in stores() {
        let mut upkeep = Upkeep::new(store.clone()).drop_consumers_after(Duration::from_secs(100));
        let (mut gone, gone_heard) = reader(&store, "gone");
        let (mut stays, _) = reader(&store, "stays");
        end(&store, 0, 0..2, Feed::Ends);
        drain(&mut gone, 1);
        end(&store, 2, 2..5, Feed::Ends);
        drain(&mut stays, 60);
        assert_eq!(upkeep.tick(at(101)).unwrap().consumers_dropped, [], "not yet");
        assert!(!consumer(&store, "gone").dropped);
        let report = upkeep.tick(at(102)).unwrap();
        assert_eq!((report.consumers_dropped, report.feed_forgotten), (vec![name("gone")], 3));
        assert!(consumer(&store, "gone").dropped && !consumer(&store, "stays").dropped);
        assert_eq!(upkeep.tick(at(103)).unwrap().consumers_dropped, [], "once");
        // Nothing is left to read, and yet it is reported.
        let report = drain(&mut gone, 110);
        assert_eq!((report.accepted, report.lost), (0, 3));
        let back = consumer(&store, "gone");
        assert_eq!((back.dropped, back.lost, back.cursor), (false, 3, 5));
        end(&store, 111, 5..6, Feed::Ends);
        assert_eq!(drain(&mut gone, 112).accepted, 1);
        assert_eq!(heard(&gone_heard), [1, 2, 6]);
        assert_eq!(
            store.write(|tx| tx.delete_consumers(&[name("gone"), name("nobody")])).unwrap(),
            [true, false]
        );
    }
}

/// While its handler refuses an event, a reader that is woken gives nothing before the pause is over.
#[test]
fn a_wake_up_does_not_shorten_the_pause_after_a_refusal() {
    for store in stores() {
        end(&store, 0, 0..1, Feed::Ends);
        let tried = Heard::default();
        let noted = tried.clone();
        let mut reader = FeedReader::new(store.clone(), name("c"), move |event: &TaskEvent| {
            noted.lock().unwrap().push(event.seq);
            Err("never".into())
        });
        let mut due: Vec<i64> = Vec::new();
        for now in 1..200 {
            let before = heard(&tried).len();
            let report = reader.tick(at(now)).unwrap();
            assert!(report.next_due.unwrap() > at(now) && report.has_turn, "{now}: {report:?}");
            due.extend((heard(&tried).len() > before).then_some(now));
        }
        assert_eq!(due, [1, 2, 4, 8, 16, 32, 64, 124, 184], "pauses double, up to a minute");
        // A clock that is set back does not make it wait longer than the longest pause.
        assert!(reader.tick(at(100)).unwrap().refused.is_some());
    }
}

/// Counts transactions that write, and fails them on request.
#[derive(Debug)]
struct Counting(Arc<dyn Store>, std::sync::atomic::AtomicUsize);

impl Store for Counting {
    fn info(&self) -> stationmaster::store::StoreInfo {
        self.0.info()
    }

    fn transact(
        &self,
        mode: stationmaster::store::TxMode,
        body: &mut dyn FnMut(&mut stationmaster::store::Tx<'_>) -> stationmaster::Result<()>,
    ) -> stationmaster::Result<()> {
        let writes = usize::from(mode == stationmaster::store::TxMode::Write);
        self.1.fetch_add(writes, std::sync::atomic::Ordering::SeqCst);
        self.0.transact(mode, body)
    }
}

#[test]
fn a_tick_gives_as_many_as_it_may_and_moves_the_cursor_once() {
    for store in stores() {
        end(&store, 0, 0..230, Feed::Ends);
        told(&store);
        let counting = Arc::new(Counting(store.clone(), Default::default()));
        let shared: Arc<dyn Store> = counting.clone();
        let (reader, heard_by) = reader(&shared, "c");
        let mut reader = reader.limit(100);
        let accepted = (0..4).map(|_| reader.tick(at(1)).unwrap().accepted).collect::<Vec<_>>();
        assert_eq!(accepted, [100, 100, 30, 0]);
        assert_eq!(heard(&heard_by), (1..=230).collect::<Vec<u64>>());
        let writes = counting.1.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(writes, 6, "two for each tick that gave some");
        // The handler's own error in the middle of a tick: what came before it counts.
        end(&store, 2, 230..300, Feed::Ends);
        let refuses = |event: &TaskEvent| if event.seq == 297 { Err("no".into()) } else { Ok(()) };
        let mut other = FeedReader::new(shared, name("d"), refuses).limit(1_000);
        let report = other.tick(at(3)).unwrap();
        assert_eq!((report.accepted, report.refused.unwrap().0.seq), (296, 297));
        assert_eq!(consumer(&store, "d").cursor, 296);
    }
}

/// However long the texts are, no more than a page of events is in memory.
#[test]
fn what_a_reader_holds_is_bounded() {
    const EVENTS: usize = 192;
    let long = "x".repeat(256 << 10);
    let key = |n: usize| TaskKey::new("ns", "w", "r", format!("t{n}")).unwrap();
    let tasks: Vec<NewTask> = (0..EVENTS).map(|n| NewTask::new(key(n)).feed(Feed::Ends)).collect();
    let marks: Vec<Mark> = (0..EVENTS).map(|n| Mark::new(key(n), TaskState::Skipped, &*long)).collect();
    for store in stores() {
        let end = |tx: &mut stationmaster::store::Tx<'_>| {
            tx.enqueue(at(0), &tasks)?;
            tx.mark(at(0), &marks)
        };
        store.write(end).unwrap();
        let (reader, _) = reader(&store, "c");
        let (mut reader, mut accepted) = (reader.limit(EVENTS), 0);
        let used = allocation_counter::measure(|| accepted = reader.tick(at(1)).unwrap().accepted);
        assert_eq!(accepted, EVENTS);
        assert!(used.bytes_max < 48 << 20, "{} bytes were held", used.bytes_max);
    }
}

/// On PostgreSQL only upkeep gives them numbers.
#[test]
fn what_nobody_reads_is_forgotten_by_its_age() {
    for store in stores() {
        end(&store, 0, 0..5, Feed::Ends);
        let mut upkeep = Upkeep::new(store.clone()).retain_feed_for(Duration::from_secs(10));
        let mut forgotten =
            |now| -> usize { (now..now + 2).map(|now| upkeep.tick(at(now)).unwrap().feed_forgotten).sum() };
        assert_eq!(forgotten(5), 0);
        assert_eq!(forgotten(11), 5);
        assert!(told(&store).is_empty());
    }
}

/// Whichever call fails, and whether or not its commit came through: nothing is left out.
#[test]
fn a_store_that_fails_loses_no_event() {
    for inner in stores() {
        end(&inner, 0, 0..5, Feed::Ends);
        for (number, when) in (1..20).flat_map(|n| [(n, When::Before), (n, When::After)]) {
            let consumer_name = format!("c{number}{when:?}");
            let store = Arc::new(FaultStore::new(inner.clone()));
            store.arm(Fault::new(number, when, StoreErrorKind::Indeterminate));
            let shared: Arc<dyn Store> = store.clone();
            let (mut reader, heard_by) = reader(&shared, &consumer_name);
            for now in 1..4 {
                let _ = reader.tick(at(now));
            }
            let hit = store.disarm();
            let mut got = heard(&heard_by);
            assert!(hit.is_some() || got.len() == 5, "{got:?}");
            got.dedup();
            got.sort_unstable();
            got.dedup();
            assert_eq!(got, [1, 2, 3, 4, 5], "{number} {when:?}");
            assert_eq!(consumer(&inner, &consumer_name).cursor, 5);
            if hit.is_none() {
                break;
            }
        }
    }
}

/// Three consumers, whose readers are given up without notice and replaced again and again, beside two producers and
/// upkeep. `STATIONMASTER_FEED_ENDS` sets how many tasks end.
#[test]
fn many_ends_with_hand_overs() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let ends: usize = std::env::var("STATIONMASTER_FEED_ENDS").map_or(5_000, |n| n.parse().unwrap());
    let now = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        Timestamp::from_micros(since.as_micros() as i64)
    };
    for store in stores() {
        let began = std::time::Instant::now();
        let done = AtomicBool::new(false);
        let mut most = 0;
        // Upkeep forgets what all known consumers have, so each is known before anything ends.
        for consumer in ["one", "two", "three"] {
            let (reader, _) = reader(&store, consumer);
            reader.turn(Duration::from_millis(1)).tick(now()).unwrap();
        }
        let (total, given_up) = std::thread::scope(|scope| {
            let consumers = ["one", "two", "three"].map(|consumer| {
                let store = store.clone();
                scope.spawn(move || {
                    let heard = Heard::default();
                    let mut given_up = 0;
                    loop {
                        let inner = Arc::new(FaultStore::new(store.clone()));
                        let (noted, dies) = (heard.clone(), inner.clone());
                        // After this many events it gets no further than this call of the acknowledgement:
                        // begin, look, write or commit. Every other time the call took effect, and it does
                        // not know.
                        let (mut left, call) = (3_000 + 77 * given_up, 1 + given_up as u64 / 2 % 4);
                        let when = [When::Before, When::After][given_up % 2];
                        let handler = move |event: &TaskEvent| {
                            noted.lock().unwrap().push(event.seq);
                            left = left.saturating_sub(1);
                            if left == 0 {
                                dies.arm(Fault::new(call, when, StoreErrorKind::Indeterminate));
                            }
                            Ok(())
                        };
                        let reader = FeedReader::new(inner, name(consumer), handler);
                        let mut reader = reader.turn(Duration::from_millis(500));
                        loop {
                            let Ok(report) = reader.tick(now()) else { break };
                            let last = heard.lock().unwrap().last().copied().unwrap_or(0);
                            assert_eq!(report.lost, 0);
                            if last == ends as u64 {
                                return (heard.lock().unwrap().clone(), given_up);
                            }
                            if report.accepted == 0 {
                                std::thread::sleep(Duration::from_millis(5));
                            }
                        }
                        given_up += 1;
                    }
                })
            });
            let producers = [0, 1].map(|half| {
                let store = store.clone();
                scope.spawn(move || {
                    let all: Vec<usize> = (0..ends).filter(|n| n % 2 == half).collect();
                    for some in all.chunks(100) {
                        let key = |n: &usize| TaskKey::new("ns", "w", "r", format!("t{n:06}")).unwrap();
                        let tasks: Vec<NewTask> =
                            some.iter().map(|n| NewTask::new(key(n)).feed(Feed::Ends)).collect();
                        let marks: Vec<Mark> =
                            some.iter().map(|n| Mark::new(key(n), TaskState::Skipped, "x")).collect();
                        store
                            .write(|tx| {
                                tx.enqueue(now(), &tasks)?;
                                tx.mark(now(), &marks)
                            })
                            .unwrap();
                    }
                })
            });
            let (kept, done) = (store.clone(), &done);
            let upkeep = scope.spawn(move || {
                let mut upkeep = Upkeep::new(kept.clone()).retain_ended_for(Duration::ZERO);
                let mut forgotten = 0;
                while !done.load(Ordering::SeqCst) {
                    forgotten += upkeep.tick(now()).unwrap().feed_forgotten;
                    std::thread::sleep(Duration::from_millis(20));
                }
                forgotten
            });
            producers.into_iter().for_each(|producer| producer.join().unwrap());
            let mut given_up = 0;
            for consumer in consumers {
                let (heard, times) = consumer.join().unwrap();
                given_up += times;
                let mut next = 1;
                for seq in &heard {
                    assert!(*seq <= next, "{seq} came before {next}");
                    next = next.max(seq + 1);
                }
                assert_eq!(next, ends as u64 + 1);
                most = most.max(heard.len());
            }
            done.store(true, Ordering::SeqCst);
            (upkeep.join().unwrap(), given_up)
        });
        assert!(given_up > ends / 10_000, "{given_up} readers were given up");
        assert!(most > ends, "no event came twice, so no acknowledgement was lost");
        println!(
            "{}: {ends} ends in {:?}; {given_up} readers given up; one consumer got {most}; {total} forgotten",
            store.info().backend,
            began.elapsed()
        );
    }
}
