//! Connections that are lost, refused and opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use stationmaster::admission::IfExists;
use stationmaster::clock::Clock;
use stationmaster::error::{Invalid, StoreErrorKind};
use stationmaster::store::postgres::tokio_postgres::{Config, NoTls};
use stationmaster::store::postgres::{Connector, PostgresOptions, Wake};
use stationmaster::store::{PostgresStore, Store, TxMode};
use stationmaster::testing::raw;
use stationmaster::{Error, Result, Timestamp};

use crate::postgres_server::Plain;
use crate::scratch::{Scratch, query, rows, url};
use crate::{kind, pool, pools, put, task};

/// Connects as `name`, and counts how often.
fn named(name: &str, count: &Arc<AtomicUsize>) -> Connector {
    let mut config: Config = url().parse().unwrap();
    config.application_name(name);
    let count = Arc::clone(count);
    Connector::new(move || {
        let config = config.clone();
        count.fetch_add(1, Ordering::SeqCst);
        async move { config.connect(NoTls).await }
    })
}

struct Named {
    scratch: Scratch,
    store: PostgresStore,
    count: Arc<AtomicUsize>,
}

impl Named {
    fn open(change: impl FnOnce(PostgresOptions) -> PostgresOptions) -> Self {
        let (scratch, count) = (Scratch::new(), Arc::default());
        let options = change(scratch.options().wake(Wake::Never));
        let store = PostgresStore::open(named(scratch.0.as_str(), &count), options).unwrap();
        Self { scratch, store, count }
    }

    /// Ends all connections of the store, and waits until they are gone.
    fn terminate(&self) {
        let of = format!("FROM pg_stat_activity WHERE application_name = '{}'", self.scratch.0);
        query(&format!("SELECT pg_terminate_backend(pid) {of}"));
        while rows(&format!("SELECT count(*) {of}"))[0].get::<_, i64>(0) > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn a_connection_lost_while_idle_is_made_anew_and_nobody_notices() {
    let named = Named::open(|options| options);
    put(&named.store, "before").unwrap();
    assert_eq!(pools(&named.store), 1);
    let before = named.count.load(Ordering::SeqCst);
    named.terminate();
    put(&named.store, "after").unwrap();
    assert_eq!(pools(&named.store), 2);
    assert_eq!(named.count.load(Ordering::SeqCst), before + 1, "one that writes and reads");
}

#[test]
fn a_connection_lost_within_a_transaction_is_reported_and_nothing_was_changed() {
    let named = Named::open(|options| options);
    for mode in [TxMode::Write, TxMode::Read] {
        let lost = named.store.transact(mode, &mut |tx| {
            tx.all_pools()?;
            if mode == TxMode::Write {
                tx.define([pool("half", 1)], IfExists::Replace)?;
            }
            named.terminate();
            tx.all_pools()?;
            Ok(())
        });
        let lost = lost.unwrap_err();
        assert_eq!(kind(&lost), StoreErrorKind::Io, "{lost}");
        assert_eq!(pools(&named.store), 0);
    }
    put(&named.store, "after").unwrap();
}

#[test]
fn a_connection_lost_before_the_commit_is_sent_is_no_open_question() {
    let named = Named::open(|options| options);
    let lost = named.store.transact(TxMode::Write, &mut |tx| {
        tx.define([pool("half", 1)], IfExists::Replace)?;
        named.terminate();
        // Until the client has seen it.
        std::thread::sleep(Duration::from_millis(300));
        Ok(())
    });
    assert_eq!(kind(&lost.unwrap_err()), StoreErrorKind::Io);
    assert_eq!(pools(&named.store), 0);
}

#[test]
fn a_connection_lost_within_the_commit_is_an_open_question() {
    let named = Named::open(|options| options);
    // The commit waits for a check that sleeps.
    query(&format!(
        "CREATE FUNCTION \"{0}\".doze() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NULL; END'; \
         CREATE CONSTRAINT TRIGGER doze AFTER INSERT ON \"{0}\".pool DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
         EXECUTE FUNCTION \"{0}\".doze()",
        named.scratch.0
    ));
    let (tell, told) = mpsc::channel();
    std::thread::scope(|scope| {
        let store = &named.store;
        scope.spawn(move || tell.send(put(store, "open")));
        let committing = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}' AND query = 'COMMIT' AND state = 'active'",
            named.scratch.0
        );
        while rows(&committing)[0].get::<_, i64>(0) == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        named.terminate();
        let lost: Result<()> = told.recv().unwrap();
        assert!(lost.unwrap_err().is_indeterminate());
    });
    assert_eq!(pools(&named.store), 0);
    query(&format!("DROP TRIGGER doze ON \"{}\".pool", named.scratch.0));
    put(&named.store, "after").unwrap();
}

/// The answer to the verb came, and so the connection was lost behind it.
#[test]
fn a_connection_lost_within_a_commit_that_goes_along_is_an_open_question() {
    let named = Named::open(|options| options);
    query(&format!(
        "CREATE FUNCTION \"{0}\".doze() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NULL; END'; \
         CREATE CONSTRAINT TRIGGER doze AFTER INSERT ON \"{0}\".task DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
         EXECUTE FUNCTION \"{0}\".doze()",
        named.scratch.0
    ));
    let enqueue =
        |name: &str| named.store.write(|tx| tx.last(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[task(name)])));
    std::thread::scope(|scope| {
        let enqueued = scope.spawn(|| enqueue("open"));
        let committing = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}' AND query = 'COMMIT' AND state = 'active'",
            named.scratch.0
        );
        while rows(&committing)[0].get::<_, i64>(0) == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        named.terminate();
        assert!(enqueued.join().unwrap().unwrap_err().is_indeterminate());
    });
    query(&format!("DROP TRIGGER doze ON \"{}\".task", named.scratch.0));
    let known = || named.store.read(|tx| tx.tasks(&[task("open").key, task("after").key])).unwrap();
    assert_eq!(known().iter().flatten().count(), 0);
    // A connection that was lost while it was idle is no question: it is found before anything is sent.
    named.terminate();
    enqueue("after").unwrap();
    assert_eq!(known().iter().flatten().count(), 1);
    query(&format!(
        "CREATE FUNCTION \"{0}\".no() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN RAISE EXCEPTION ''no'' USING ERRCODE = ''54000''; END'; \
         CREATE CONSTRAINT TRIGGER no AFTER INSERT ON \"{0}\".task DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
         EXECUTE FUNCTION \"{0}\".no()",
        named.scratch.0
    ));
    assert_eq!(
        kind(&enqueue("open").unwrap_err()),
        StoreErrorKind::Backend,
        "one that the server refused is none"
    );
    assert_eq!(known().iter().flatten().count(), 1);
}

/// A commit that the server refuses is undone, and known to be.
#[test]
fn a_refused_commit_is_no_open_question() {
    let named = Named::open(|options| options);
    query(&format!(
        "CREATE FUNCTION \"{0}\".no() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN RAISE EXCEPTION ''no'' USING ERRCODE = ''40001''; END'; \
         CREATE CONSTRAINT TRIGGER no AFTER INSERT ON \"{0}\".pool DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
         EXECUTE FUNCTION \"{0}\".no()",
        named.scratch.0
    ));
    let mut runs = 0;
    let refused = named.store.write(|tx| {
        runs += 1;
        tx.define([pool("p", 1)], IfExists::Replace)
    });
    assert_eq!(kind(&refused.unwrap_err()), StoreErrorKind::Conflict);
    assert_eq!(runs, stationmaster::store::CONFLICT_RETRIES + 1, "a serialization failure is tried again");
    assert_eq!(pools(&named.store), 0);
}

#[test]
fn the_body_goes_on_after_a_panic_in_another() {
    let named = Named::open(|options| options);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        named.store.write(|tx| -> Result<()> {
            tx.define([pool("p", 1)], IfExists::Replace)?;
            panic!("the body's own")
        })
    }));
    assert!(panicked.is_err());
    put(&named.store, "q").unwrap();
    assert_eq!(pools(&named.store), 1);
}

#[test]
fn a_server_that_is_not_there_is_reported_in_time() {
    let options = PostgresOptions::new().connect_timeout(Duration::from_millis(200));
    let refused = PostgresStore::connect("postgres://nobody@127.0.0.1:1/none", options.clone()).unwrap_err();
    assert_eq!(kind(&refused), StoreErrorKind::Io, "{refused}");
    // Accepts, and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://nobody@{}/none", silent.local_addr().unwrap());
    let refused = PostgresStore::connect(&url, options).unwrap_err();
    assert_eq!(kind(&refused), StoreErrorKind::Io, "{refused}");
    let refused = PostgresStore::connect("no url", PostgresOptions::new()).unwrap_err();
    assert_eq!(kind(&refused), StoreErrorKind::Backend, "{refused}");
    let nobody = url_of_nobody();
    let refused = PostgresStore::connect(&nobody, PostgresOptions::new()).unwrap_err();
    assert_eq!(kind(&refused), StoreErrorKind::Backend, "tried once: {refused}");
}

fn url_of_nobody() -> String {
    let config: Config = url().parse().unwrap();
    let port = config.get_ports().first().copied().unwrap_or(5432);
    format!("host=127.0.0.1 port={port} user=postgres dbname=sm_no_such_database")
}

#[test]
fn without_a_limit_a_server_is_waited_for() {
    let scratch = Scratch::new();
    let (calls, there) = (AtomicUsize::new(0), url().parse::<Config>().unwrap());
    let absent: Config = "host=127.0.0.1 port=1 user=nobody".parse().unwrap();
    let connector = Connector::new(move || {
        let config = if calls.fetch_add(1, Ordering::SeqCst) < 3 { absent.clone() } else { there.clone() };
        async move { config.connect(NoTls).await }
    });
    let options = scratch.options().connect_timeout(Duration::ZERO);
    assert_eq!(pools(&PostgresStore::open(connector, options).unwrap()), 0);
}

/// As the resolution of a server's name may.
#[test]
fn a_connector_that_blocks_a_thread_does_not_hold_up_the_end_of_the_store() {
    let (go, wait) = mpsc::channel::<()>();
    let (wait, ended) = (Arc::new(std::sync::Mutex::new(wait)), Arc::new(AtomicUsize::new(0)));
    let end = Arc::clone(&ended);
    let connector = Connector::new(move || {
        let (wait, end) = (Arc::clone(&wait), Arc::clone(&end));
        let block = move || {
            let _ = wait.lock().unwrap().recv_timeout(Duration::from_secs(20));
            end.fetch_add(1, Ordering::SeqCst);
        };
        async move {
            tokio::task::spawn_blocking(block).await?;
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(url().parse::<Config>()?.connect(NoTls).await?)
        }
    });
    let options = PostgresOptions::new().connect_timeout(Duration::from_millis(100));
    let refused = PostgresStore::open(connector, options).unwrap_err();
    assert_eq!(kind(&refused), StoreErrorKind::Io, "{refused}");
    assert_eq!(ended.load(Ordering::SeqCst), 0, "the store's thread is gone before it");
    drop(go);
}

#[test]
fn a_connector_that_panics_is_an_error_and_the_next_call_may_succeed() {
    let scratch = Scratch::new();
    drop(scratch.open(|options| options));
    let calls = Arc::new(AtomicUsize::new(0));
    let (count, plain) = (Arc::clone(&calls), url().parse::<Config>().unwrap());
    let connector = Connector::new(move || {
        let (call, config) = (count.fetch_add(1, Ordering::SeqCst), plain.clone());
        async move {
            match call {
                1 => panic!("the host's own"),
                2 => Err(Box::<dyn std::error::Error + Send + Sync>::from("no password today")),
                _ => Ok(config.connect(NoTls).await?),
            }
        }
    });
    let store = PostgresStore::open(connector, scratch.options()).unwrap();
    for _ in 0..2 {
        // One inside the other, so it takes a connection that was not made yet.
        let refused = store.write(|tx| {
            tx.all_pools()?;
            store.read(|tx| tx.all_pools())
        });
        let refused = refused.unwrap_err();
        assert_eq!(kind(&refused), StoreErrorKind::Io, "{refused}");
    }
    let both = store.write(|tx| Ok((tx.all_pools()?.len(), pools(&store))));
    assert_eq!(both.unwrap(), (1, 0));
}

#[test]
fn the_clock_is_the_database_s() {
    let named = Named::open(|options| options);
    let clock = named.store.clock();
    let server =
        || -> i64 { rows("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")[0].get(0) };
    let (before, told, after) = (server(), clock.now().as_micros(), server());
    // Half a round trip is far less.
    let slack = 1_000_000;
    assert!(before - slack <= told && told <= after + slack, "{before} {told} {after}");
    let mut last = clock.now();
    for _ in 0..1000 {
        let now = clock.now();
        assert!(now >= last);
        last = now;
    }
}

#[test]
fn errors_of_the_caller_s_do_not_end_the_transaction() {
    let named = Named::open(|options| options);
    let lease = stationmaster::LeaseRef::new(stationmaster::TaskId(1), 0);
    let from = stationmaster::TaskState::Scheduled;
    let wrong = stationmaster::store::contract::Move::new(lease, from, stationmaster::TaskState::Running);
    let pools = named.store.write(|tx| {
        tx.define([pool("p", 1)], IfExists::Replace)?;
        assert_eq!(
            raw(tx).move_if(std::slice::from_ref(&wrong)).unwrap_err().kind(),
            StoreErrorKind::Backend
        );
        tx.all_pools()
    });
    assert_eq!(pools.unwrap().len(), 2);
    let read: std::result::Result<(), Error> = named.store.read(|tx| {
        assert_eq!(raw(tx).put_pools(&[pool("q", 1)]).unwrap_err().kind(), StoreErrorKind::ReadOnly);
        tx.all_pools().map(drop)
    });
    read.unwrap();
}

/// Whatever threads do at once, the listening included.
#[test]
fn a_store_has_no_more_connections_than_it_may() {
    let named = Named::open(|options| options.connections(3).wake(Wake::Beside));
    let _listening = named.store.on_change(|_| ()).unwrap();
    let open = format!("SELECT pid FROM pg_stat_activity WHERE application_name = '{}'", named.scratch.0);
    let (is_over, plain, mut most) = (AtomicUsize::new(0), Plain::connect(&url()), 0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (store, is_over) = (&named.store, &is_over);
            scope.spawn(move || {
                for n in 0..20 {
                    put(store, &format!("p{thread}{n}")).unwrap();
                    assert!(pools(store) > 0);
                }
                is_over.fetch_add(1, Ordering::SeqCst);
            });
        }
        while is_over.load(Ordering::SeqCst) < 8 {
            let seen = plain.ask(&open);
            most = most.max(seen.len().min(3));
            // The server may still end the session of a connection that the store has closed.
            let (began, mut left) = (Instant::now(), seen.clone());
            while seen.len() > 3 && left.len() == seen.len() {
                assert!(began.elapsed() < Duration::from_secs(20), "{} connections at once", seen.len());
                let now = plain.ask(&open);
                left.retain(|pid| now.contains(pid));
            }
        }
    });
    assert_eq!(most, 3);
    assert_eq!(pools(&named.store), 160);
}

#[test]
fn a_store_without_connections_is_refused() {
    let scratch = Scratch::new();
    let refused = PostgresStore::connect(&url(), scratch.options().connections(0)).unwrap_err();
    assert!(matches!(refused, Error::Invalid(Invalid::Zero { what: "`connections`" })), "{refused}");
}
