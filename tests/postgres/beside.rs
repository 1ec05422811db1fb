//! A commit announces itself on its own connection, and loops are woken for what their services look for.

use std::fmt;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stationmaster::id::{PoolName, QueueName};
use stationmaster::ops::Finish;
use stationmaster::service::{Admitter, FeedReader, Keeper, LoopHandle, Poker, Service, Upkeep};
use stationmaster::store::postgres::PostgresOptions;
use stationmaster::store::{PostgresStore, Store, StoreInfo, Tx, TxMode};
use stationmaster::task::{Feed, NewTask};
use stationmaster::{Result, Timestamp};

use crate::postgres_server::{OwnServer, Plain};
use crate::scratch::Scratch;
use crate::{put, task};

/// It only ends a test that fails.
const LONG: Duration = Duration::from_secs(60);

fn enqueue(store: &PostgresStore, name: &str) {
    store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[task(name)])).unwrap();
}

/// Who sends a `NOTIFY` from another connection would wait until the second transaction ends.
#[test]
fn a_commit_is_heard_while_the_only_connection_is_in_use_again() {
    let scratch = Scratch::new();
    let listener = scratch.open(|options| options);
    let (tell, told) = channel();
    let _listening = listener.on_change(move |change| tell.send(change).unwrap()).unwrap();
    for round in 0..3 {
        // A store whose notification once took long sends none beside its commits for a while.
        let actor = scratch.open(|options| options.connections(1));
        told.try_iter().for_each(drop);
        enqueue(&actor, &format!("first-{round}"));
        let heard = actor.write(|tx| {
            tx.enqueue(Timestamp::UNIX_EPOCH, &[task(&format!("second-{round}"))])?;
            Ok(told.recv_timeout(LONG))
        });
        assert!(heard.unwrap().unwrap().ready());
        assert!(told.recv_timeout(LONG).unwrap().ready(), "and the second one in its turn");
    }
}

/// The server sends one notification at a time. Here one of another program stays in its commit, which waits for a standby
/// that never comes.
#[test]
fn a_notification_that_is_held_up_holds_up_no_transaction() {
    let Some(server) = OwnServer::start() else { return };
    let plain = Plain::connect(&server.url());
    plain
        .ask("CREATE ROLE jobs LOGIN; GRANT CREATE ON DATABASE postgres TO jobs; CREATE TABLE other (n int)");
    plain.ask("ALTER ROLE jobs SET synchronous_commit = local");
    let jobs = server.url().replace("postgres@", "jobs@");
    let store = PostgresStore::connect(&jobs, PostgresOptions::new()).unwrap();
    put(&store, "before").unwrap();
    plain.ask("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
    plain.ask("SELECT pg_reload_conf()");
    let stuck = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    std::thread::scope(|scope| {
        let url = server.url();
        scope.spawn(move || {
            let other = Plain::connect(&url);
            // Until commits wait, and this one is ended.
            while other.try_ask("INSERT INTO other VALUES (1); NOTIFY something").is_ok() {}
        });
        while plain.number(stuck) == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        for name in ["a", "b", "c"] {
            std::thread::sleep(Duration::from_millis(50));
            put(&store, name).unwrap();
        }
        let waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND NOT granted";
        assert!(plain.number(waits) > 0, "none of its notifications was sent");
        assert_eq!(plain.number(stuck), 1, "the other program is still in its commit");
        plain.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'");
    });
    enqueue(&store, "after");
}

#[test]
fn a_handle_is_woken_for_what_its_services_look_for() {
    let scratch = Scratch::new();
    let (actor, store) = (scratch.open(|options| options), Arc::new(scratch.open(|options| options)));
    let name = || "worker".try_into().unwrap();
    let handle_of = |service: &mut dyn FnMut(&LoopHandle)| {
        let handle = LoopHandle::new();
        service(&handle);
        handle
    };
    let shared = || store.clone() as Arc<dyn Store>;
    let admits = handle_of(&mut |handle| Admitter::new(shared(), name()).woken_by(handle));
    let keeps = handle_of(&mut |handle| Keeper::new(shared(), LONG).woken_by(handle));
    let tends = handle_of(&mut |handle| Upkeep::new(shared()).woken_by(handle));
    let pokes = handle_of(&mut |handle| Poker::new(shared(), name()).woken_by(handle));
    let reads = handle_of(&mut |handle| FeedReader::new(shared(), name(), |_| Ok(())).woken_by(handle));
    let gpu = || QueueName::new("gpu").unwrap();
    let serves = handle_of(&mut |handle| Admitter::new(shared(), name()).serves([gpu()]).woken_by(handle));
    let own = LoopHandle::new();
    let all = [&keeps, &tends, &pokes, &reads, &serves, &admits, &own];
    // The last is announced last.
    let listening = all.map(|handle| handle.listen(&store).unwrap());
    let mut seen = all.map(LoopHandle::seen);
    let mut woken = |what: &dyn Fn()| {
        what();
        own.wait_since(seen[6], LONG);
        let now = all.map(LoopHandle::seen);
        let woken: Vec<bool> = now.iter().zip(&seen).map(|(now, before)| now != before).collect();
        seen = now;
        woken
    };
    let enqueues = |task: NewTask| {
        actor.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, std::slice::from_ref(&task))).unwrap();
    };
    let of_default = [false, false, false, false, false, true, true];
    assert_eq!(woken(&|| enqueues(task("t"))), of_default, "no one else serves its queue");
    let of_gpu = [false, false, false, false, true, true, true];
    assert_eq!(woken(&|| enqueues(task("g").queue(gpu()))), of_gpu);
    let cancel = || {
        let cancel = |tx: &mut Tx<'_>| tx.cancel(Timestamp::UNIX_EPOCH, LONG, &[task("fed").key], "by hand");
        actor.write(cancel).unwrap();
    };
    assert_eq!(woken(&|| enqueues(task("fed").feed(Feed::Ends))), of_default);
    assert_eq!(
        woken(&cancel),
        [false, false, false, true, true, true, true],
        "slots may have been kept for it"
    );
    drop(listening);
    let before = own.seen();
    enqueue(&actor, "unheard");
    own.wait_since(before, Duration::from_millis(50));
    assert_eq!(own.seen(), before, "the listening has ended");
}

/// Does something after each transaction, before its caller knows the result.
struct Between(Arc<PostgresStore>, Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl fmt::Debug for Between {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Store for Between {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.0.transact(mode, body)?;
        let between = self.1.lock().unwrap().take();
        between.into_iter().for_each(|between| between());
        Ok(())
    }
}

/// Tasks of a full pool cannot run until capacity comes back.
#[test]
fn an_admitter_is_not_woken_for_tasks_of_a_full_pool() {
    let scratch = Scratch::new();
    let (actor, store) =
        (Arc::new(scratch.open(|options| options)), Arc::new(scratch.open(|options| options)));
    ["one", "two"].iter().for_each(|name| put(&*actor, name).unwrap());
    let between = Arc::new(Between(Arc::clone(&store), Mutex::default()));
    let mut admitter = Admitter::new(between.clone(), "holder".try_into().unwrap());
    let (handle, own) = (LoopHandle::new(), LoopHandle::new());
    admitter.woken_by(&handle);
    let _listening = [handle.listen(&store).unwrap(), own.listen(&store).unwrap()];
    let enqueues = |pools: &[&str], name: &str| {
        let tasks: Vec<NewTask> = pools
            .iter()
            .map(|pool| task(&format!("{name}-{pool}")).pool(PoolName::new(*pool).unwrap()))
            .collect();
        actor.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &tasks)).unwrap();
    };
    // The last handle is woken last, and for everything.
    let wakes = |what: &dyn Fn()| {
        let (before, seen) = (handle.seen(), own.seen());
        what();
        own.wait_since(seen, LONG);
        handle.seen() != before
    };
    let mut tick = || admitter.tick(Timestamp::UNIX_EPOCH).unwrap().granted;

    assert!(wakes(&|| enqueues(&["one"], "first")));
    let lease = tick().pop().unwrap().lease_ref();
    assert!(wakes(&|| enqueues(&["one"], "second")), "the last look knew of no full pool");
    assert_eq!(tick(), []);
    assert!(!wakes(&|| enqueues(&["one"], "third")));
    assert!(wakes(&|| enqueues(&["two"], "first")));
    assert!(wakes(&|| enqueues(&["one", "two"], "fourth")));
    assert_eq!(tick().len(), 1);
    assert_eq!(tick(), []);
    assert!(!wakes(&|| enqueues(&["one", "two"], "fifth")), "both are full");
    assert!(wakes(&|| enqueues(&["one", "two", "default_pool"], "sixth")), "many pools are all of them");
    assert_eq!(tick().len(), 1);
    assert_eq!(tick(), []);

    // What is not full any more, and gets a task while the admitter looks.
    let waiting =
        ["second", "third", "fourth", "fifth", "sixth"].map(|name| task(&format!("{name}-one")).key);
    let empties = |tx: &mut Tx<'_>| {
        tx.finish(Timestamp::UNIX_EPOCH, &[Finish::success(lease)])?;
        tx.cancel(Timestamp::UNIX_EPOCH, LONG, &waiting, "by hand").map(drop)
    };
    assert!(wakes(&|| actor.write(empties).unwrap()));
    let (actor, own) = (Arc::clone(&actor), own.clone());
    let come = move || {
        let (seen, late) = (own.seen(), task("late").pool(PoolName::new("one").unwrap()));
        actor.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, std::slice::from_ref(&late))).unwrap();
        own.wait_since(seen, LONG);
    };
    *between.1.lock().unwrap() = Some(Box::new(come));
    let before = handle.seen();
    assert_eq!(tick(), []);
    assert_ne!(handle.seen(), before, "the look was too early for it");
    assert_eq!(tick().len(), 1);
}
