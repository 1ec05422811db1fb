//! Wake-ups from one store to another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use stationmaster::Timestamp;
use stationmaster::canonical::PokeContext;
use stationmaster::error::StoreErrorKind;
use stationmaster::lease::LeaseRef;
use stationmaster::ops::{AdmitRequest, Finish};
use stationmaster::sensor::{EndReason, NewSensor, Settings};
use stationmaster::service::LoopHandle;
use stationmaster::store::contract::Ending;
use stationmaster::store::postgres::{self, Change, Listening};
use stationmaster::store::{PostgresStore, Tx};
use stationmaster::task::TaskState;

use crate::scratch::rekeyed::as_by_a_pooler;
use crate::scratch::{Scratch, query, rows, with_client};
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

impl Pair {
    fn new() -> Self {
        let scratch = Scratch::new();
        let (actor, listener) = (scratch.open(|options| options), scratch.open(|options| options));
        let (tell, told) = channel();
        let listening = listener.on_change(move |change| tell.send(change).unwrap()).unwrap();
        Self { told, listening: Some(listening), listener, actor, scratch }
    }

    fn channel(&self) -> String {
        format!("stationmaster_{}", self.scratch.0)
    }

    /// Waits until this is among what was told, and answers all of it: tasks, sensors, events.
    fn told_until(&self, enough: impl Fn([bool; 3]) -> bool) -> [bool; 3] {
        let mut all = [false; 3];
        while !enough(all) {
            let change = self.told.recv_timeout(LONG).expect("a call");
            all[0] |= change.tasks();
            all[1] |= change.sensors();
            all[2] |= change.events();
        }
        all
    }

    /// Nothing was told of what was committed until now: what is sent after it is told alone.
    fn assert_silent(&self, what: &str) {
        query(&format!("SELECT pg_notify('{}', 'events')", self.channel()));
        assert_eq!(self.told_until(|[_, _, events]| events), [false, false, true], "{what}");
    }

    fn enqueue(&self, name: &str) {
        self.actor.write(|tx| tx.enqueue(now(), &[task(name)])).unwrap();
    }

    fn tick(&self, name: &str) -> Vec<LeaseRef> {
        let order = AdmitRequest::new("h".try_into().unwrap(), name.try_into().unwrap(), 9, LEASE);
        let granted = self.actor.write(|tx| tx.admit(now(), &order)).unwrap().granted;
        granted.iter().map(|task| task.lease_ref()).collect()
    }

    fn listening_backends(&self) -> String {
        format!("FROM pg_stat_activity WHERE query = 'LISTEN \"{}\"'", self.channel())
    }

    fn count_listening(&self) -> i64 {
        rows(&format!("SELECT count(*) {}", self.listening_backends()))[0].get(0)
    }
}

#[test]
fn what_may_bring_work_is_told_and_nothing_else() {
    let pair = Pair::new();
    pair.enqueue("a");
    assert_eq!(pair.told_until(|[tasks, ..]| tasks), [true, false, false], "enqueued");

    assert_eq!(pair.tick("first").len(), 1);
    let tasks = [task("late").not_before(now()), task("b")];
    pair.actor.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks)).unwrap();
    pair.told_until(|[tasks, ..]| tasks);
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
    assert_eq!(pair.told_until(|[tasks, ..]| tasks), [true, false, false], "finished");
    pair.actor.write(|tx| tx.finish(now(), &[Finish::success(leases[0])])).unwrap();
    pair.assert_silent("a stale lease");
    put(&pair.actor, "p").unwrap();
    assert_eq!(pair.told_until(|[tasks, ..]| tasks), [true, false, false], "a pool");

    let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(60)).unwrap();
    let context = PokeContext::from_json("{}").unwrap();
    let sensor = NewSensor::new(leases[1], "k".try_into().unwrap(), context, settings);
    pair.actor.write(|tx| tx.register(now(), std::slice::from_ref(&sensor))).unwrap();
    let told = pair.told_until(|[tasks, sensors, _]| tasks && sensors);
    assert_eq!(told, [true, true, false], "registered");
    let ending = Ending::new(EndReason::Landed, TaskState::Success);
    pair.actor.write(|tx| tx.end_sensors(now(), &[(leases[1], ending.clone())])).unwrap();
    pair.told_until(|all| all == [true; 3]);
    pair.assert_silent("all was told");
}

#[test]
fn what_was_rolled_back_is_not_told() {
    let pair = Pair::new();
    let refused = pair.actor.write(|tx| {
        tx.enqueue(now(), &[task("t")])?;
        Err::<(), _>(stationmaster::Error::abort("on purpose"))
    });
    refused.unwrap_err();
    pair.assert_silent("rolled back");
}

#[test]
fn a_store_may_tell_nobody() {
    let pair = Pair::new();
    let quiet = pair.scratch.open(|options| options.notify(false));
    quiet.write(|tx| tx.enqueue(now(), &[task("t")])).unwrap();
    pair.assert_silent("switched off");
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
    assert_eq!(pair.told_until(|[tasks, ..]| tasks), [true, false, false]);
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
fn a_connection_that_is_lost_is_made_anew_and_everything_is_told() {
    let pair = Pair::new();
    for round in 0..3 {
        query(&format!("SELECT pg_terminate_backend(pid) {}", pair.listening_backends()));
        let change = pair.told.recv_timeout(LONG).expect("a call after the connection was made anew");
        assert_eq!((change.tasks(), change.sensors(), change.events()), (true, true, true));
        pair.enqueue(&round.to_string());
        assert_eq!(pair.told_until(|[tasks, ..]| tasks), [true, false, false]);
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
    let wakes = handle.clone();
    pair.listening = Some(pair.listener.on_change(move |_| wakes.wake()).unwrap());
    let seen = handle.seen();
    pair.enqueue("t");
    handle.wait_since(seen, LONG);
    assert_ne!(handle.seen(), seen);
}

#[test]
fn who_cannot_listen_is_told() {
    let scratch = Scratch::new();
    let store = PostgresStore::open(as_by_a_pooler(), scratch.options()).unwrap();
    let refused = store.on_change(|_| ()).unwrap_err();
    assert_eq!(kind(&refused), StoreErrorKind::Backend, "{refused}");
    store.write(|tx| tx.put_pools(&[pool("p", 1)])).unwrap();
}
