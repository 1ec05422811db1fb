//! How often a transaction waits for the server.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use stationmaster::admission::{IfExists, QueueSpec, WaitingCap};
use stationmaster::ops::{AdmitRequest, Finish, Finished};
use stationmaster::store::postgres::tokio_postgres::{Config, NoTls};
use stationmaster::store::postgres::{Connector, Wake};
use stationmaster::store::{Inserted, PostgresStore};
use stationmaster::testing::raw;
use stationmaster::{LeaseRef, TaskRecord, TaskState, Timestamp};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::scratch::rekeyed::{Rekeyed, dial};
use crate::scratch::{Scratch, url};
use crate::{pool, task};

const HOUR: Duration = Duration::from_secs(3600);

/// Counts how often something is said after something was heard.
struct Counting {
    stream: TcpStream,
    count: Arc<AtomicUsize>,
    speaks: bool,
}

impl AsyncRead for Counting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.speaks = false;
        }
        read
    }
}

impl AsyncWrite for Counting {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if !std::mem::replace(&mut self.speaks, true) {
            self.count.fetch_add(1, Ordering::SeqCst);
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Counts on the lines to the server; `to_client` is what the client sees of them.
fn counting<S>(count: &Arc<AtomicUsize>, to_client: fn(Counting) -> S) -> Connector
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (count, config) = (Arc::clone(count), url().parse::<Config>().unwrap());
    Connector::new(move || {
        let (count, config) = (Arc::clone(&count), config.clone());
        async move {
            let stream = Counting { stream: dial(&config).await?, count, speaks: false };
            let connected = config.connect_raw(to_client(stream), NoTls).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(connected)
        }
    })
}

pub(crate) struct Counted {
    count: Arc<AtomicUsize>,
    pub(crate) store: PostgresStore,
    pub(crate) scratch: Scratch,
}

impl Counted {
    pub(crate) fn open() -> Self {
        Self::by(|stream| stream)
    }

    fn by<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(to_client: fn(Counting) -> S) -> Self {
        let (count, scratch) = (Arc::default(), Scratch::new());
        let store =
            PostgresStore::open(counting(&count, to_client), scratch.options().wake(Wake::InTransaction))
                .unwrap();
        Self { count, store, scratch }
    }

    pub(crate) fn of<T>(&self, work: impl FnOnce(&PostgresStore) -> T) -> (usize, T) {
        let before = self.count.load(Ordering::SeqCst);
        let done = work(&self.store);
        (self.count.load(Ordering::SeqCst) - before, done)
    }

    /// Returns when the transaction before has ended on the server: its end is a trip of its own, which the next one may
    /// otherwise be waiting for.
    fn settle(&self) {
        self.store.write(|tx| tx.all_pools().map(drop)).unwrap();
    }

    /// Fills as many pools with as many tasks.
    fn fill(&self, pools: usize, round: usize) {
        let specs: Vec<_> = (0..pools).map(|n| pool(&format!("p{n}"), 1_000)).collect();
        let tasks: Vec<_> = (0..pools * 2)
            .map(|n| task(&format!("{round} {n}")).pool(specs[n % pools].name.clone()))
            .collect();
        self.store.write(|tx| tx.define(&specs, IfExists::Replace)).unwrap();
        let (trips, _) =
            self.of(|store| store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks)).unwrap());
        if round > 0 {
            assert_eq!(trips, 2, "one to enqueue {} tasks, one to commit", tasks.len());
        }
    }

    fn tick(&self, name: &str, budget: usize) -> (usize, usize) {
        let order = AdmitRequest::new(
            "h".try_into().unwrap(),
            name.try_into().unwrap(),
            budget,
            Duration::from_secs(60),
        );
        let (trips, admission) =
            self.of(|store| store.write(|tx| tx.admit(Timestamp::from_micros(1), &order)).unwrap());
        (trips, admission.granted.len())
    }
}

/// Where no cap concerns it, an enqueue finds that out in its one round trip.
#[test]
fn an_enqueue_under_a_cap_takes_two_round_trips_more_and_one_for_its_turn() {
    let counted = Counted::open();
    let cap = |most, strict| WaitingCap::new(most).unwrap().strict(strict);
    let of = |name: &str, cap| QueueSpec::new(name.try_into().unwrap(), cap);
    let queues = [of("loose", cap(50, false)), of("strict", cap(50, true)), of("full", cap(0, false))];
    counted.store.write(|tx| tx.define(&queues, IfExists::Replace)).unwrap();
    for round in 0..2 {
        for (queue, many, trips) in [
            ("default", 2, 2),
            ("default", 1, 2),
            ("loose", 2, 4),
            ("loose", 1, 4),
            ("strict", 2, 5),
            ("full", 1, 4),
        ] {
            let new = |n| task(&format!("{round} {queue} {many} {n}")).queue(queue.try_into().unwrap());
            let tasks: Vec<_> = (0..many).map(new).collect();
            let (took, inserted) =
                counted.of(|store| store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks)).unwrap());
            let is_new = matches!(inserted[0], Inserted::New(_));
            assert_eq!(is_new, queue != "full", "{queue}");
            // The first of each prepares its statements.
            assert!(round == 0 || took == trips, "{queue}, {many}: {took} with the commit");
        }
    }
}

/// With many lanes the candidates are one more.
#[test]
fn a_tick_takes_three_round_trips_whatever_the_number_of_tasks() {
    let counted = Counted::open();
    // The first of each prepares its statements.
    counted.fill(65, 0);
    assert_eq!(counted.tick("first", 65).1, 65);
    assert_eq!(counted.tick("rest", 1_000), (4, 65));
    for (round, pools, trips) in [(1, 1, 3), (2, 30, 3), (3, 64, 3), (4, 250, 4)] {
        counted.fill(pools, round);
        assert_eq!(counted.tick(&round.to_string(), 1_000), (trips, pools * 2), "{pools} pools");
    }
    assert_eq!(counted.tick("idle", 10), (2, 0), "nothing is ready: one to look, one to commit");
}

/// Where lanes are filed, it asks for a page of them, for what they name, and for their tasks.
#[test]
fn a_tick_with_many_lanes_takes_as_many_round_trips_whatever_their_number() {
    let counted = Counted::open();
    let mut trips = Vec::new();
    // The first of each prepares its statements, and the very first one files all lanes.
    for (round, pools) in [(0, 300), (1, 300), (2, 300), (3, 900)] {
        counted.fill(pools, round);
        let (counted_trips, granted) = counted.tick(&round.to_string(), 10);
        assert_eq!(granted, 10, "round {round}");
        trips.push(counted_trips);
    }
    assert_eq!(trips[2], trips[3], "of 300 lanes, and of 900: {trips:?}");
}

/// It surveys again with what it promoted. A task that is not due costs nothing.
#[test]
fn a_tick_that_promotes_takes_one_round_trip_more() {
    let counted = Counted::open();
    // The first of each prepares its statements.
    for (round, due, trips) in [(0, 1, None), (1, 1, Some(4)), (2, 9, Some(3))] {
        counted.fill(1, round);
        let later = task(&format!("later {round}")).not_before(Timestamp::from_micros(due));
        counted.store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, std::slice::from_ref(&later))).unwrap();
        let (counted_trips, granted) = counted.tick(&round.to_string(), 1_000);
        assert!(trips.is_none_or(|trips| trips == counted_trips), "round {round}: {counted_trips}");
        assert_eq!(granted, if due > 1 { 2 } else { 3 }, "round {round}");
    }
}

/// Of tasks with and without limits: the store takes and gives back in the statement that moves them.
#[test]
fn an_attempt_takes_two_round_trips_to_start_and_one_to_finish() {
    let counted = Counted::open();
    for (round, limits) in [(0, 0), (1, 0), (2, 3)] {
        let carrying = |n| {
            let keys = (0..limits).map(|key| format!("l{key}").as_str().try_into().unwrap());
            keys.fold(task(&format!("{round} {n}")), |task, key| task.limit(key))
        };
        let tasks: Vec<_> = (0..20).map(carrying).collect();
        counted.store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks)).unwrap();
        let order = AdmitRequest::new(
            "h".try_into().unwrap(),
            format!("t{round}").as_str().try_into().unwrap(),
            20,
            HOUR,
        );
        let granted = counted.store.write(|tx| tx.admit(Timestamp::from_micros(1), &order)).unwrap().granted;
        let leases: Vec<_> = granted.iter().map(TaskRecord::lease_ref).collect();
        let ends: Vec<_> = leases.iter().map(|lease| Finish::success(*lease)).collect();
        let (starting, started) =
            counted.of(|store| store.write(|tx| tx.start(Timestamp::from_micros(2), &leases)));
        let (ending, ended) =
            counted.of(|store| store.write(|tx| tx.finish(Timestamp::from_micros(3), &ends)));
        assert_eq!((started.unwrap().len(), ended.unwrap().len()), (20, 20));
        if round > 0 {
            assert_eq!((starting, ending), (2, 1), "{limits} limits");
        }
    }
}

/// What ends tasks and starts the next ones in one transaction. A failure is decided by what is read first.
#[test]
fn an_end_and_the_next_started_grant_take_three_round_trips() {
    let counted = Counted::open();
    counted.fill(4, 0);
    let mut leases = Vec::new();
    let mut step = |name: &str, fails: bool| {
        let order = AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), 1, HOUR).started();
        let end = |lease: &LeaseRef| match fails {
            true => Finish::failed(*lease, "on purpose"),
            false => Finish::success(*lease),
        };
        let ends: Vec<_> = leases.iter().map(end).collect();
        let (trips, granted) = counted.of(|store| {
            store.write(|tx| {
                tx.finish(Timestamp::from_micros(1), &ends)?;
                tx.admit(Timestamp::from_micros(1), &order).map(|admission| admission.granted)
            })
        });
        let granted = granted.unwrap();
        assert!(granted.iter().all(|task| task.state == TaskState::Running));
        leases = granted.iter().map(TaskRecord::lease_ref).collect();
        trips
    };
    step("first", false);
    // Each prepares its statements.
    step("prepares a success", false);
    step("prepares a failure", true);
    assert_eq!(step("success", false), 3);
    assert_eq!(step("failure", true), 5);
}

/// Whose commit goes along. Where the verb has to go on behind its first statement, it is run again without, and for a
/// while none goes along.
#[test]
fn the_last_verb_takes_one_round_trip_less() {
    let counted = Counted::open();
    let order =
        |name: &str| AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), 2, HOUR).started();
    let enqueue = |names: &[&str]| {
        let tasks: Vec<_> = names.iter().map(|name| task(name)).collect();
        let all =
            |store: &PostgresStore| store.write(|tx| tx.last(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks)));
        let (trips, inserted) = counted.of(all);
        (trips, inserted.unwrap().iter().filter(|told| matches!(told, Inserted::New(_))).count())
    };
    let admit = |name: &str| {
        let order = order(name);
        let grant = |store: &PostgresStore| {
            store.write(|tx| tx.last(|tx| tx.admit(Timestamp::from_micros(1), &order)))
        };
        let (trips, admission) = counted.of(grant);
        (trips, admission.unwrap().granted.iter().map(TaskRecord::lease_ref).collect::<Vec<_>>())
    };
    let finish = |leases: &[LeaseRef]| {
        let ends: Vec<_> = leases.iter().map(|lease| Finish::success(*lease)).collect();
        let end = |store: &PostgresStore| {
            store.write(|tx| tx.last(|tx| tx.finish(Timestamp::from_micros(2), &ends)))
        };
        let (trips, finished) = counted.of(end);
        (trips, finished.unwrap())
    };
    let ended = Finished::Ended(TaskState::Success);
    // The first of each prepares its statements.
    enqueue(&["a"]);
    let first = admit("prepares").1;
    assert_eq!(finish(&first).1, [ended]);
    assert_eq!(enqueue(&["b"]), (1, 1));
    let (trips, b) = admit("one");
    assert_eq!((trips, b.len()), (2, 1));
    assert_eq!(finish(&b), (1, vec![ended]));

    // The first of several prepares its statement.
    enqueue(&["c", "d"]);
    let cd = admit("two").1;
    finish(&cd);
    assert_eq!(enqueue(&["several", "more"]), (1, 2));
    finish(&admit("several").1);
    for name in ["e", "f"] {
        assert_eq!(enqueue(&[name]), (1, 1));
    }
    let ef = admit("two more").1;
    assert_eq!(finish(&ef), (1, vec![ended; 2]), "of several");

    assert_eq!(enqueue(&["g"]), (1, 1));
    let g = admit("stale").1;
    let again = [g[0], ef[0]];
    let (trips, finished) = finish(&again);
    assert_eq!(finished, [ended, Finished::Already(TaskState::Success)], "one of them has ended before");
    assert!(trips > 2, "{trips}");
    // Prepares `enqueue_one`.
    assert_eq!(enqueue(&["h"]).1, 1);
    assert_eq!(enqueue(&["i"]), (2, 1), "none goes along for a while");
    assert_eq!(enqueue(&["i"]).1, 0);
    assert!(counted.store.read(|tx| tx.audit()).unwrap().is_empty());
}

/// Its end is sent when the result is known, and no one waits for that.
#[test]
fn a_read_takes_one_round_trip() {
    let counted = Counted::open();
    let trips = || {
        counted.store.read(|tx| {
            let before = counted.count.load(Ordering::SeqCst);
            tx.all_pools()?;
            Ok(counted.count.load(Ordering::SeqCst) - before)
        })
    };
    // Connects and prepares.
    trips().unwrap();
    for _ in 0..3 {
        counted.settle();
        assert_eq!(trips().unwrap(), 1);
    }
}

/// What is ready or overdue of as many pools as there are.
#[test]
fn looking_ahead_takes_three_round_trips_and_more_where_tasks_are_overdue() {
    let counted = Counted::open();
    for (round, pools) in [(0, 1), (1, 3), (2, 300)] {
        counted.fill(pools, round);
        let keys: Vec<_> = (0..pools * 2).map(|n| task(&format!("{round} {n}")).key).collect();
        let order = AdmitRequest::new("h".try_into().unwrap(), "ahead".try_into().unwrap(), 1_000, HOUR);
        let trips = |now| {
            counted.store.read(|tx| {
                let count = || counted.count.load(Ordering::SeqCst);
                let begin = count();
                tx.preview(Timestamp::from_micros(now), &order)?;
                let between = count();
                tx.positions(&keys, 100)?;
                Ok((between - begin, count() - between))
            })
        };
        let later = task(&format!("later {round}")).not_before(Timestamp::from_micros(9)).pool_slots(7);
        counted.store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, std::slice::from_ref(&later))).unwrap();
        // The first of each prepares its statements.
        for (now, ahead) in [(1, 3), (9, 6)] {
            trips(now).unwrap();
            counted.settle();
            assert_eq!(trips(now).unwrap(), (ahead, 3), "{pools} pools at {now}");
        }
        counted.tick(&format!("ahead {round}"), 1_000);
    }
}

/// Without settings of the session's that refuse it, what writes waits until its transaction is known to be open.
#[test]
fn behind_a_pooler_a_write_takes_one_more() {
    let counted = Counted::by(Rekeyed::new);
    let write = |store: &PostgresStore| store.write(|tx| Ok(raw(tx).put_pools(&[pool("p", 1)])?)).unwrap();
    write(&counted.store);
    assert_eq!(counted.of(write).0, 3);
    // Its commit follows when the verb was answered. What was too soon is undone, and the connection goes on.
    for (round, is_new) in [true, false, false].into_iter().enumerate() {
        let enqueue = |store: &PostgresStore| {
            store.write(|tx| tx.last(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[task("once")])))
        };
        let told = counted.of(enqueue).1.unwrap();
        assert_eq!(matches!(told[..], [Inserted::New(_)]), is_new, "round {round}: {told:?}");
    }
    assert_eq!(counted.store.read(|tx| tx.audit()).unwrap(), []);
}
