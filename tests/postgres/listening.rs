//! Wake-ups from one store to another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use stationmaster::admission::{IfExists, Subject};
use stationmaster::canonical::PokeContext;
use stationmaster::clock::{Clock, SystemClock};
use stationmaster::error::StoreErrorKind;
use stationmaster::lease::LeaseRef;
use stationmaster::ops::{AdmitRequest, Cancellation, Finish, Outcome};
use stationmaster::sensor::{EndReason, NewSensor, Settings};
use stationmaster::service::{Attempt, LoopHandle, Worker};
use stationmaster::store::contract::Ending;
use stationmaster::store::postgres::tokio_postgres::{AsyncMessage, Config, NoTls};
use stationmaster::store::postgres::{self, Change, Listening, Wake};
use stationmaster::store::{PostgresStore, Tx};
use stationmaster::task::Feed;
use stationmaster::task::TaskState;
use stationmaster::{NewTask, TaskKey, Timestamp};

use crate::interrupted::{interrupted, interrupted_while};
use crate::scratch::rekeyed::as_by_a_pooler;
use crate::scratch::{Scratch, query, rows, url, with_client};
use crate::{kind, pool, pools, put, task};

/// Far longer than anything here takes: it only ends a test that fails.
const LONG: Duration = Duration::from_secs(60);

const LEASE: Duration = Duration::from_secs(60);

fn now() -> Timestamp {
    Timestamp::from_micros(1)
}

/// A store that acts, and another one that listens.
struct Pair {
    told: Receiver<Change>,
    listening: Option<Listening>,
    listener: PostgresStore,
    actor: PostgresStore,
    scratch: Scratch,
}

/// What was announced: tasks ready, capacity, sensors, events.
type Told = [bool; 4];

const READY: Told = [true, false, false, false];
const CAPACITY: Told = [false, true, false, false];
const EVENTS: Told = [false, false, false, true];

fn parts(change: Change) -> Told {
    assert_eq!(change.tasks(), change.ready() || change.capacity());
    [change.ready(), change.capacity(), change.sensors(), change.events()]
}

/// Waits until this is among what was announced, and returns all of it.
fn told_until(told: &Receiver<Change>, enough: impl Fn(Told) -> bool) -> Told {
    let mut all = [false; 4];
    while !enough(all) {
        let change = parts(told.recv_timeout(LONG).expect("a call"));
        all = std::array::from_fn(|at| all[at] || change[at]);
    }
    all
}

impl Pair {
    fn new() -> Self {
        Self::by(Wake::Beside)
    }

    /// The one that acts tells in this way.
    fn by(wake: Wake) -> Self {
        let scratch = Scratch::new();
        let (actor, listener) = (scratch.open(|options| options.wake(wake)), scratch.open(|options| options));
        let (tell, told) = channel();
        let listening = listener.on_change(move |change| tell.send(change).unwrap()).unwrap();
        Self { told, listening: Some(listening), listener, actor, scratch }
    }

    fn channel(&self) -> String {
        format!("stationmaster_{}", self.scratch.0)
    }

    fn told_until(&self, enough: impl Fn(Told) -> bool) -> Told {
        told_until(&self.told, enough)
    }

    /// Nothing committed until now was announced: what is sent next is announced alone. Not for what is
    /// announced beside the commit.
    fn assert_silent(&self, what: &str) {
        query(&format!("SELECT pg_notify('{}', 'events')", self.channel()));
        assert_eq!(self.told_until(|[.., events]| events), EVENTS, "{what}");
    }

    /// The same for what is announced beside the commit: the news of the next commit is announced alone.
    fn assert_silent_beside(&self, what: &str) {
        put(&self.actor, "one more").unwrap();
        assert_eq!(self.told_until(|[_, capacity, ..]| capacity), CAPACITY, "{what}");
    }

    fn enqueue(&self, name: &str) {
        self.actor.write(|tx| tx.enqueue(now(), &[task(name)])).unwrap();
    }

    fn tick(&self, name: &str) -> Vec<LeaseRef> {
        let order = AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), 9, LEASE);
        let granted = self.actor.write(|tx| tx.admit(now(), &order)).unwrap().granted;
        granted.iter().map(|task| task.lease_ref()).collect()
    }

    fn grant(&self, name: &str) -> LeaseRef {
        self.enqueue(name);
        self.told_until(|[ready, ..]| ready);
        self.tick(name)[0]
    }

    /// Of a ready task: what is sent from now on comes after it.
    fn assert_reported_before_now(&self) {
        query(&format!("SELECT pg_notify('{}', 'events')", self.channel()));
        assert!(self.told_until(|[.., events]| events)[0]);
    }

    fn listening_backends(&self) -> String {
        format!("FROM pg_stat_activity WHERE query = 'LISTEN \"{}\"'", self.channel())
    }

    fn count_listening(&self) -> i64 {
        rows(&format!("SELECT count(*) {}", self.listening_backends()))[0].get(0)
    }
}

#[test]
fn what_may_bring_work_is_reported_and_nothing_else() {
    let pair = Pair::by(Wake::InTransaction);
    pair.enqueue("a");
    assert_eq!(pair.told_until(|[ready, ..]| ready), READY, "enqueued");

    assert_eq!(pair.tick("first").len(), 1);
    let late = [task("late").not_before(now())];
    pair.actor.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &late)).unwrap();
    pair.assert_silent("a task that is not due");
    pair.enqueue("b");
    pair.told_until(|[ready, ..]| ready);
    let leases = pair.tick("grants");
    assert_eq!(leases.len(), 2);
    pair.assert_silent("a tick that promotes and grants");
    assert!(pair.tick("idle").is_empty());
    pair.assert_silent("a tick that finds nothing");
    pair.actor.write(|tx| tx.start(now(), &leases)).unwrap();
    pair.actor.write(|tx| tx.renew(now(), LEASE, &leases)).unwrap();
    pair.actor.read(|tx| tx.all_pools()).unwrap();
    pair.assert_silent("starts, renewals and reads");

    pair.actor.write(|tx| tx.finish(now(), &[Finish::success(leases[0])])).unwrap();
    // Before it is known whether the task is in the feed.
    assert_eq!(pair.told_until(|[_, capacity, ..]| capacity), [false, true, false, true], "finished");
    // A success is announced along with the statement that ends it, before the lease is known to be stale.
    pair.actor.write(|tx| tx.finish(now(), &[Finish::failed(leases[0], "late")])).unwrap();
    pair.assert_silent("a stale lease");
    put(&pair.actor, "p").unwrap();
    assert_eq!(pair.told_until(|[_, capacity, ..]| capacity), CAPACITY, "a pool");

    // What waits behind a reservation of what is paused may fit, too.
    let subjects = [Subject::Pool("p".try_into().unwrap())];
    for (what, resumes) in [("a pause", false), ("a resumption", true)] {
        let change = |tx: &mut Tx<'_>| if resumes { tx.resume(&subjects) } else { tx.pause(&subjects) };
        assert_eq!(pair.actor.write(change).unwrap(), [true], "{what}");
        assert_eq!(pair.told_until(|[_, capacity, ..]| capacity), CAPACITY, "{what}");
    }

    // And what waits behind one that is taken away, or put off.
    let names = ["taken away", "put off"].map(|name| TaskKey::new("n", "w", "r", name).unwrap());
    let behind = names.clone().map(|key| NewTask::new(key).pool("p".try_into().unwrap()));
    pair.actor.write(|tx| tx.enqueue(now(), &behind)).unwrap();
    assert_eq!(pair.told_until(|[ready, ..]| ready), READY, "enqueued");
    pair.actor.write(|tx| tx.delete(&names[..1])).unwrap();
    assert_eq!(pair.told_until(|[_, capacity, ..]| capacity), CAPACITY, "deleted");
    let later = now() + Duration::from_secs(3_600);
    pair.actor.write(|tx| tx.change(now(), &names[1..], |task| task.not_before = Some(later))).unwrap();
    assert_eq!(pair.told_until(|[_, capacity, ..]| capacity), CAPACITY, "put off");
    pair.actor.write(|tx| tx.delete(&names)).unwrap();

    let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(60)).unwrap();
    let context = PokeContext::from_json("{}").unwrap();
    let sensor = NewSensor::new(leases[1], "k".try_into().unwrap(), context, settings);
    pair.actor.write(|tx| tx.register(now(), std::slice::from_ref(&sensor))).unwrap();
    let told = pair.told_until(|[_, capacity, sensors, _]| capacity && sensors);
    assert_eq!(told, [false, true, true, false], "registered");
    let ending = Ending::new(EndReason::Landed, TaskState::Success);
    pair.actor.write(|tx| tx.end_sensors(now(), &[(leases[1], ending.clone())])).unwrap();
    pair.told_until(|[_, _, sensors, events]| sensors && events);
    let back = [Finish::given_back(pair.grant("c"))];
    pair.actor.write(|tx| tx.finish(now(), &back)).unwrap();
    assert_eq!(pair.told_until(|[_, capacity, ..]| capacity)[..2], [true, true], "given back");
    pair.assert_silent("all was told");
}

#[test]
fn beside_the_commit_the_same_is_reported() {
    let pair = Pair::new();
    pair.enqueue("a");
    assert_eq!(pair.told_until(|[ready, ..]| ready), READY);
    pair.enqueue("a");
    pair.assert_silent_beside("a task that was there");
    let late = [task("late").not_before(Timestamp::from_micros(i64::MAX / 2))];
    pair.actor.write(|tx| tx.enqueue(now(), &late)).unwrap();
    pair.assert_silent_beside("a task that is not due");
    let leases = pair.tick("grants");
    pair.actor.write(|tx| tx.start(now(), &leases)).unwrap();
    pair.actor.write(|tx| tx.renew(now(), LEASE, &leases)).unwrap();
    pair.assert_silent_beside("a tick, a start and a renewal");
    pair.actor.write(|tx| tx.finish(now(), &[Finish::success(leases[0])])).unwrap();
    assert_eq!(pair.told_until(|[_, capacity, ..]| capacity), CAPACITY);
    // What is in the feed wakes its readers.
    let fed = ["ends", "also", "waits"].map(|name| task(name).feed(Feed::Ends));
    pair.actor.write(|tx| tx.enqueue(now(), &fed)).unwrap();
    pair.told_until(|[ready, ..]| ready);
    let leases = pair.tick("fed");
    pair.actor.write(|tx| tx.start(now(), &leases)).unwrap();
    pair.actor.write(|tx| tx.finish(now(), &[Finish::success(leases[0])])).unwrap();
    assert_eq!(pair.told_until(|[.., events]| events)[1..], [true, false, true], "one end");
    pair.actor
        .write(|tx| tx.finish(now(), &[1, 2].map(|at: usize| Finish::failed(leases[at], "no"))))
        .unwrap();
    assert_eq!(pair.told_until(|[.., events]| events)[1..], [true, false, true], "moves");
}

/// Others would look in vain.
#[test]
fn capacity_that_the_same_tick_takes_is_not_reported() {
    let pair = Pair::new();
    let narrow = pool("narrow", 2);
    pair.actor.write(|tx| tx.define([&narrow], IfExists::Replace)).unwrap();
    assert_eq!(pair.told_until(|[_, capacity, ..]| capacity), CAPACITY);
    let enqueue = |names: &[&str]| {
        let tasks: Vec<NewTask> = names.iter().map(|name| task(name).pool(narrow.name.clone())).collect();
        pair.actor.write(|tx| tx.enqueue(now(), &tasks)).unwrap();
        pair.told_until(|[ready, ..]| ready)
    };
    let mut ticks = 0;
    let mut step = |ends: &[LeaseRef], most: usize| -> Vec<LeaseRef> {
        let name = |nth: i32| format!("tick {nth}").as_str().try_into().unwrap();
        ticks += 1;
        let order =
            AdmitRequest::new("h".try_into().unwrap(), name(ticks), most, LEASE).answered(name(ticks - 1));
        let ends: Vec<Finish> = ends.iter().copied().map(Finish::success).collect();
        let admission = pair.actor.write(|tx| {
            tx.finish(now(), &ends)?;
            tx.last(|tx| tx.admit(now(), &order))
        });
        admission.unwrap().granted.iter().map(|task| task.lease_ref()).collect()
    };
    assert_eq!(enqueue(&["a", "b", "c", "d", "e", "f", "g"]), READY);
    let held = step(&[], 9);
    let held = step(&held[..1], 9).into_iter().chain(held[1..].iter().copied()).collect::<Vec<_>>();
    let held = step(&held, 9);
    assert_eq!((held.len(), enqueue(&["h"])), (2, READY), "the pool is as full as before");
    let held = step(&held, 1);
    assert_eq!(pair.told_until(|[_, capacity, ..]| capacity), CAPACITY, "it took one slot of two");
    assert_eq!(held.len(), 1);
    let held = step(&held, 9);
    assert_eq!((held.len(), enqueue(&["i"])), (2, READY), "it is full again");
    let held = step(&held, 9);
    assert_eq!(held.len(), 1);
    assert_eq!(pair.told_until(|[_, capacity, ..]| capacity), CAPACITY, "there was one task for two slots");
    assert_eq!(step(&held, 9).len(), 0);
    assert_eq!(pair.told_until(|[_, capacity, ..]| capacity), CAPACITY, "there was none");
}

#[test]
fn what_was_rolled_back_is_not_reported() {
    for wake in [Wake::InTransaction, Wake::Beside] {
        let pair = Pair::by(wake);
        let refused = pair.actor.write(|tx| {
            tx.enqueue(now(), &[task("t")])?;
            Err::<(), _>(stationmaster::Error::abort("on purpose"))
        });
        refused.unwrap_err();
        pair.assert_silent_beside("rolled back");
    }
}

#[test]
fn a_store_may_tell_nobody() {
    let pair = Pair::by(Wake::Never);
    let (tell, told) = channel();
    let _own = pair.actor.on_change(move |change| tell.send(change).unwrap()).unwrap();
    pair.enqueue("t");
    pair.assert_silent("switched off");
    assert_eq!(told_until(&told, |[.., events]| events), EVENTS, "nor itself");
}

/// Counts what arrives on a channel, until a message says that this is all.
struct Tally(std::thread::JoinHandle<usize>);

impl Tally {
    fn of(channel: &str) -> Self {
        let (listens, is_listening) = std::sync::mpsc::channel();
        let listen = format!("LISTEN \"{channel}\"");
        let counting = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let (client, mut connection) = url().parse::<Config>().unwrap().connect(NoTls).await.unwrap();
                let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
                tokio::spawn(async move {
                    while let Some(Ok(message)) =
                        std::future::poll_fn(|context| connection.poll_message(context)).await
                    {
                        if let AsyncMessage::Notification(notification) = message {
                            tell.send(notification.payload().to_owned()).unwrap();
                        }
                    }
                });
                client.batch_execute(&listen).await.unwrap();
                listens.send(()).unwrap();
                let mut count = 0;
                while told.recv().await.unwrap() != "that is all" {
                    count += 1;
                }
                count
            })
        });
        is_listening.recv().unwrap();
        Self(counting)
    }

    fn count(self, channel: &str) -> usize {
        query(&format!("SELECT pg_notify('{channel}', 'that is all')"));
        self.0.join().unwrap()
    }
}

/// 200 commits by 8 threads on as many connections.
fn commits_200(wake: Wake) -> usize {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options.wake(wake).connections(10));
    let channel = format!("stationmaster_{}", scratch.0);
    let tally = Tally::of(&channel);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for n in 0..25 {
                    store.write(|tx| tx.enqueue(now(), &[task(&format!("{thread} {n}"))])).unwrap();
                }
            });
        }
    });
    // It tells what is left.
    drop(store);
    tally.count(&channel)
}

#[test]
fn beside_the_commits_one_wake_up_stands_for_many() {
    let wakes = commits_200(Wake::Beside);
    assert!((1..200).contains(&wakes), "{wakes} for 200 commits");
    assert_eq!(commits_200(Wake::InTransaction), 200);
    assert_eq!(commits_200(Wake::Never), 0);
}

/// As of a program that enqueues and ends.
#[test]
fn a_store_that_is_dropped_at_once_has_announced() {
    let pair = Pair::new();
    for round in 0..5 {
        let store = pair.scratch.open(|options| options);
        store.write(|tx| tx.enqueue(now(), &[task(&round.to_string())])).unwrap();
        drop(store);
        pair.assert_reported_before_now();
    }
}

/// The connection breaks when it is asked to tell. That is seen when it is needed next.
#[test]
fn what_was_committed_is_reported_by_another_connection_if_one_breaks() {
    let pair = Pair::new();
    let broken = Arc::new(AtomicBool::new(false));
    let breaks = Arc::clone(&broken);
    let connector = interrupted(b"NOTIFY", move |_, _, _| breaks.store(true, Ordering::SeqCst));
    let store = PostgresStore::open(connector, pair.scratch.options().connections(1)).unwrap();
    store.write(|tx| tx.enqueue(now(), &[task("t")])).unwrap();
    pools(&store);
    assert_eq!(pair.told_until(|[ready, ..]| ready), READY);
    assert!(broken.load(Ordering::SeqCst));
}

#[test]
fn what_could_not_be_reported_is_reported_with_the_next_commit() {
    let pair = Pair::new();
    let (down, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let goes_down = Arc::clone(&down);
    let (is_down, refuses) = (Arc::clone(&down), Arc::clone(&refused));
    let is_away = move || {
        let is_down = is_down.load(Ordering::SeqCst);
        refuses.fetch_add(usize::from(is_down), Ordering::SeqCst);
        is_down
    };
    let connector =
        interrupted_while(is_away, b"NOTIFY", move |_, _, _| goes_down.store(true, Ordering::SeqCst));
    let store = PostgresStore::open(connector, pair.scratch.options().connections(1)).unwrap();
    store.write(|tx| tx.enqueue(now(), &[task("t")])).unwrap();
    let began = Instant::now();
    while !down.load(Ordering::SeqCst) {
        assert!(began.elapsed() < Duration::from_secs(60), "it asks the connection to notify");
        std::thread::sleep(Duration::from_millis(5));
    }
    put(&store, "too early").unwrap_err();
    while refused.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    pair.assert_silent("nobody could be told");
    down.store(false, Ordering::SeqCst);
    put(&store, "p").unwrap();
    assert_eq!(pair.told_until(|[_, capacity, ..]| capacity), [true, true, false, false]);
}

#[test]
fn one_s_own_commits_are_reported_once_and_not_by_the_server() {
    for wake in [Wake::Beside, Wake::InTransaction] {
        let pair = Pair::by(wake);
        let (tell, own) = channel();
        let _listening = pair.actor.on_change(move |change| tell.send(change).unwrap()).unwrap();
        pair.enqueue("t");
        assert_eq!(told_until(&own, |[ready, ..]| ready), READY);
        // When the other store has heard of it, the server has sent it to this one, too.
        assert_eq!(pair.told_until(|[ready, ..]| ready), READY);
        query(&format!("SELECT pg_notify('{}', 'events')", pair.channel()));
        assert_eq!(told_until(&own, |[.., events]| events), EVENTS, "{wake:?}");
    }
}

#[test]
fn callbacks_share_a_connection_which_is_one_of_the_store_s() {
    let pair = Pair::new();
    let (tell, told) = channel();
    let second = pair.listener.on_change(move |change| tell.send(change).unwrap()).unwrap();
    assert_eq!(pair.count_listening(), 1);
    pair.enqueue("t");
    assert_eq!(told_until(&told, |[ready, ..]| ready), READY);
    assert_eq!(pair.told_until(|[ready, ..]| ready), READY);
    drop(second);
    pair.enqueue("u");
    assert_eq!(pair.told_until(|[ready, ..]| ready), READY, "the first one is still told");

    let single = pair.scratch.open(|options| options.connections(1));
    let refused = single.on_change(|_| ()).unwrap_err();
    assert_eq!(kind(&refused), StoreErrorKind::Backend, "{refused}");
    put(&single, "p").unwrap();
}

#[test]
fn who_listens_again_is_notified_again() {
    let mut pair = Pair::new();
    for round in 0..5 {
        drop(pair.listening.take());
        let (tell, told) = channel();
        pair.listening = Some(pair.listener.on_change(move |change| tell.send(change).unwrap()).unwrap());
        pair.told = told;
        pair.enqueue(&round.to_string());
        assert_eq!(pair.told_until(|[ready, ..]| ready), READY);
    }
}

#[test]
fn the_host_s_transaction_tells_when_the_host_commits() {
    let mut pair = Pair::new();
    for (name, commit) in [("back", false), ("done", true)] {
        let schema = pair.scratch.0.clone();
        pair = with_client(move |mut client| async move {
            let transaction = client.transaction().await.unwrap();
            let body = move |tx: &mut Tx<'_>| tx.enqueue(now(), &[task(name)]);
            postgres::tx(&transaction, &schema, body).await.unwrap();
            pair.assert_silent("not committed");
            match commit {
                true => transaction.commit().await.unwrap(),
                false => transaction.rollback().await.unwrap(),
            }
            pair
        });
    }
    assert_eq!(pair.told_until(|[ready, ..]| ready), READY);
    let schema = pair.scratch.0.clone();
    with_client(move |mut client| async move {
        let transaction = client.transaction().await.unwrap();
        let (tx, serving) = postgres::attach(&transaction, &schema);
        let tx = tx.without_notify();
        let body = std::thread::spawn(move || tx.tx().enqueue(now(), &[task("quiet")]).unwrap());
        serving.await;
        assert_eq!(body.join().unwrap().len(), 1);
        transaction.commit().await.unwrap();
    });
    pair.assert_silent("without a notification");
    assert_eq!(pair.actor.read(|tx| tx.audit()).unwrap(), []);
}

#[test]
fn a_lost_connection_is_replaced_and_everything_is_reported() {
    let pair = Pair::new();
    for round in 0..3 {
        query(&format!("SELECT pg_terminate_backend(pid) {}", pair.listening_backends()));
        let change = pair.told.recv_timeout(LONG).expect("a call after the connection was made anew");
        assert_eq!(parts(change), [true; 4]);
        pair.enqueue(&round.to_string());
        assert_eq!(pair.told_until(|[ready, ..]| ready), READY);
    }
}

#[test]
fn dropping_the_guard_or_the_store_ends_it() {
    let mut pair = Pair::new();
    assert_eq!(pair.count_listening(), 1);
    drop(pair.listening.take());
    assert!(pair.told.try_recv().is_err_and(|error| error == std::sync::mpsc::TryRecvError::Disconnected));
    while pair.count_listening() > 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    pair.enqueue("nobody listens");

    let Pair { told, listening, listener, actor: _actor, scratch: _scratch } = Pair::new();
    drop(listener);
    assert_eq!(told.recv_timeout(LONG).unwrap_err(), std::sync::mpsc::RecvTimeoutError::Disconnected);
    drop(listening);
}

#[test]
fn a_callback_that_panics_or_blocks_holds_up_nothing_else() {
    let pair = Pair::new();
    let (tell, told) = channel();
    let (go, wait) = channel::<()>();
    let (calls, wait) = (AtomicUsize::new(0), parking(wait));
    let listening = pair.listener.on_change(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => {
            tell.send("panics").unwrap();
            std::panic::resume_unwind(Box::new("on purpose"));
        }
        1 => {
            tell.send("blocks").unwrap();
            wait();
        }
        _ => tell.send("called").unwrap(),
    });
    let _listening = listening.unwrap();
    for (name, expected) in [("a", "panics"), ("b", "blocks")] {
        pair.enqueue(name);
        assert_eq!(told.recv_timeout(LONG), Ok(expected));
    }
    put(&pair.listener, "p").unwrap();
    assert_eq!(pools(&pair.listener), 1, "the store that listens goes on");
    go.send(()).unwrap();
    assert_eq!(told.recv_timeout(LONG), Ok("called"), "of what came meanwhile");
}

/// Waits for it, from a callback that may be called by any thread.
fn parking(wait: Receiver<()>) -> impl Fn() + Send + Sync {
    let wait = std::sync::Mutex::new(wait);
    move || wait.lock().unwrap().recv().unwrap()
}

#[test]
fn a_callback_may_use_the_store_and_end_the_listening() {
    let scratch = Scratch::new();
    let (actor, listener) = (scratch.open(|options| options), Arc::new(scratch.open(|options| options)));
    let (tell, told) = channel();
    let guard: Arc<std::sync::Mutex<Option<Listening>>> = Arc::default();
    let (uses, drops) = (Arc::clone(&listener), Arc::clone(&guard));
    let listening = listener.on_change(move |_| {
        let seen = pools(&*uses);
        drop(drops.lock().unwrap().take());
        tell.send(seen).unwrap();
    });
    *guard.lock().unwrap() = Some(listening.unwrap());
    put(&actor, "p").unwrap();
    assert_eq!(told.recv_timeout(LONG), Ok(1));
    assert_eq!(told.recv_timeout(LONG).unwrap_err(), std::sync::mpsc::RecvTimeoutError::Disconnected);
}

#[test]
fn a_loop_s_handle_is_woken() {
    let mut pair = Pair::new();
    let handle = LoopHandle::new();
    pair.listening = Some(handle.listen(&pair.listener).unwrap());
    let seen = handle.seen();
    pair.enqueue("t");
    handle.wait_since(seen, LONG);
    assert_ne!(handle.seen(), seen);
}

#[test]
fn a_store_that_cannot_listen_reports_it() {
    let scratch = Scratch::new();
    let store = PostgresStore::open(as_by_a_pooler(), scratch.options()).unwrap();
    let refused = store.on_change(|_| ()).unwrap_err();
    assert_eq!(kind(&refused), StoreErrorKind::Backend, "{refused}");
    store.write(|tx| tx.define([pool("p", 1)], IfExists::Replace)).unwrap();
}

/// Its lease lasts for an hour, so it is not the next renewal by which the handler learns it.
#[test]
fn a_handler_learns_at_once_what_another_process_cancels() {
    for wake in [Wake::Beside, Wake::InTransaction] {
        let pair = Pair::by(wake);
        let handle = LoopHandle::new();
        let listener = Arc::new(pair.scratch.open(|options| options));
        let _listening = handle.listen(&listener).unwrap();
        let (begins, has_begun) = channel();
        let (begins, stop) = (std::sync::Mutex::new(begins), handle.clone());
        let worker = Worker::new(listener, "w".try_into().unwrap()).lease(60 * LONG).handler(
            move |attempt: &Attempt| {
                begins.lock().unwrap().send(()).unwrap();
                let is_told = attempt.wait(LONG);
                stop.stop();
                if is_told { Ok(Outcome::GivenBack) } else { Err("it was not told") }
            },
        );
        pair.enqueue("t");
        let working = std::thread::spawn(move || worker.run(&handle));
        has_begun.recv_timeout(LONG).unwrap();
        let cancel = |tx: &mut Tx<'_>| tx.cancel(SystemClock.now(), LONG, &[task("t").key], "by hand");
        assert!(matches!(pair.actor.write(cancel).unwrap()[..], [Cancellation::AskedUntil(_)]));
        assert_eq!(working.join().unwrap().unwrap().stored, 1);
        let ended = pair.actor.read(|tx| tx.tasks(&[task("t").key])).unwrap().remove(0).unwrap();
        assert_eq!((ended.state, ended.message.as_deref()), (TaskState::Cancelled, Some("by hand")));
    }
    let pair = Pair::by(Wake::InTransaction);
    pair.enqueue("waits");
    pair.told_until(|[ready, ..]| ready);
    pair.actor.write(|tx| tx.cancel(now(), LONG, &[task("waits").key], "by hand")).unwrap();
    query(&format!("SELECT pg_notify('{}', 'events')", pair.channel()));
    // It may have kept slots, so tasks that wait for those are announced. But no one holds it.
    loop {
        let change = pair.told.recv_timeout(LONG).unwrap();
        assert!(!change.cancels(), "nobody holds it: {change:?}");
        if change.events() {
            break;
        }
    }
}
