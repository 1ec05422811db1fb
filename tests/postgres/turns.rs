//! Who waits for whom: writers that say so take turns, and neither a renewal nor a service waits for a connection that a host keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::error::StoreErrorKind;
use stationmaster::ops::AdmitRequest;
use stationmaster::pool::Slots;
use stationmaster::service::{Admitter, Service, Upkeep};
use stationmaster::store::{PostgresStore, Store, TxMode};
use stationmaster::testing::watch_round_trips;
use stationmaster::{LeaseRef, Timestamp};

use crate::scratch::{Scratch, query, rows, with_client};
use crate::{kind, pool, pool_name, pools, put, task};

/// Several threads of several stores: so several connections of one store write at once.
#[test]
fn writers_that_contend_lose_no_change_and_see_no_conflict() {
    let scratch = Scratch::new();
    let stores: Vec<_> = (0..2).map(|_| scratch.open(|options| options.connections(6))).collect();
    stores[0].write(|tx| tx.define([pool("count", 0)], IfExists::Replace)).unwrap();
    let (rounds, threads) = (25, 8);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let store = &stores[thread % stores.len()];
            scope.spawn(move || {
                for _ in 0..rounds {
                    // Not `write`, which would run it again: a conflict is to be seen.
                    store
                        .transact(TxMode::Write, &mut |tx| {
                            tx.serialize(&["count"])?;
                            let seen = tx.pools(&[pool_name("count")])?.remove(0).unwrap();
                            let Slots::Limited(seen) = seen.spec.slots else { unreachable!() };
                            tx.define([pool("count", seen + 1)], IfExists::Replace)?;
                            let own = tx.pools(&[pool_name("count")])?.remove(0).unwrap();
                            assert_eq!(own.spec.slots, Slots::Limited(seen + 1), "one's own write");
                            Ok(())
                        })
                        .unwrap();
                }
            });
        }
    });
    let counted = stores[0].read(|tx| tx.pools(&[pool_name("count")])).unwrap().remove(0).unwrap();
    assert_eq!(counted.spec.slots, Slots::Limited(rounds * u32::try_from(threads).unwrap()));
}

/// A name that was not given for a day is deleted by other transactions. One that gives it again does not
/// wait for them.
#[test]
fn a_name_of_yesterday_is_given_again_without_waiting_for_who_gives_another() {
    let scratch = Scratch::new();
    let [first, second] =
        [(); 2].map(|()| scratch.open(|options| options.lock_timeout(Duration::from_millis(200))));
    for forgets in [false, true] {
        query(&format!(
            "DELETE FROM \"{0}\".turn; INSERT INTO \"{0}\".turn VALUES ('yesterday', 0), ('long ago', 0)",
            scratch.0
        ));
        let (given, wait) = std::sync::mpsc::channel();
        let (go, end) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            // Dropped with this closure, so the other thread ends, too, if this one fails.
            let go = go;
            let (first, given) = (&first, given);
            let open = scope.spawn(move || {
                first.write(|tx| {
                    tx.serialize(&["today"])?;
                    if forgets {
                        tx.forget_ended(Timestamp::UNIX_EPOCH, Duration::ZERO, 10)?;
                    }
                    given.send(()).unwrap();
                    let _ = end.recv();
                    Ok(())
                })
            });
            wait.recv().unwrap();
            second.write(|tx| tx.serialize(&["yesterday"])).unwrap();
            go.send(()).unwrap();
            open.join().unwrap().unwrap();
        });
        let left = rows(&format!("SELECT name FROM \"{}\".turn ORDER BY name", scratch.0));
        let left: Vec<String> = left.iter().map(|row| row.get(0)).collect();
        assert_eq!(left, ["today", "yesterday"]);
    }
}

#[test]
fn a_writer_that_waits_too_long_gets_an_error_and_the_next_call_succeeds() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options.lock_timeout(Duration::from_millis(200)));
    let (schema, held) = (scratch.0.clone(), &store);
    let (locked, wait) = std::sync::mpsc::channel();
    let (go, end) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            with_client(move |client| async move {
                let lock = format!("BEGIN; LOCK TABLE \"{schema}\".tick_lock IN EXCLUSIVE MODE");
                client.batch_execute(&lock).await.unwrap();
                locked.send(()).unwrap();
                end.recv().unwrap();
                client.batch_execute("ROLLBACK").await.unwrap();
            });
        });
        wait.recv().unwrap();
        let refused = put(held, "p").unwrap_err();
        assert_eq!(kind(&refused), StoreErrorKind::Busy);
        assert!(refused.is_retryable());
        assert_eq!(pools(held), 0, "readers do not wait");
        go.send(()).unwrap();
    });
    put(&store, "p").unwrap();
    assert_eq!(pools(&store), 1);
}

/// One of two connections is kept for long: who finds both busy is served by the other one.
#[test]
fn a_reader_waits_for_the_connection_that_is_free_first() {
    let scratch = Scratch::new();
    let store = &scratch.open(|options| options.connections(2).lock_timeout(Duration::from_secs(5)));
    let (begun, wait) = std::sync::mpsc::channel();
    let stop = &AtomicBool::new(false);
    let is_stopped = || stop.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let audit = store.read(|tx| {
                tx.all_pools()?;
                begun.send(()).unwrap();
                while !is_stopped() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            });
            audit.unwrap();
        });
        wait.recv().unwrap();
        let others: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || (0..20).map(|_| store.read(|tx| tx.all_pools())).all(|read| read.is_ok()))
            })
            .collect();
        let all: Vec<bool> = others.into_iter().map(|other| other.join().unwrap()).collect();
        stop.store(true, Ordering::SeqCst);
        assert_eq!(all, [true; 4]);
    });
}

#[test]
fn a_host_that_stops_in_the_middle_does_not_hold_up_others_for_ever() {
    let scratch = Scratch::new();
    let other = scratch.open(|options| options);
    let stuck = scratch.open(|options| options.idle_in_transaction_timeout(Duration::from_millis(200)));
    let lost = stuck.transact(TxMode::Write, &mut |tx| {
        tx.define([pool("stuck", 1)], IfExists::Replace)?;
        put(&other, "other")?;
        tx.define([pool("late", 1)], IfExists::Replace).map(drop)
    });
    assert_eq!(kind(&lost.unwrap_err()), StoreErrorKind::Io);
    assert_eq!(pools(&stuck), 1);
    put(&stuck, "again").unwrap();
}

#[test]
fn a_transaction_inside_another_of_its_kind_is_refused() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options.connections(2));
    for mode in [TxMode::Read, TxMode::Write] {
        let refused = store.transact(mode, &mut |tx| {
            tx.all_pools()?;
            store.transact(mode, &mut |_| Ok(()))
        });
        assert_eq!(kind(&refused.unwrap_err()), StoreErrorKind::Backend);
    }
    store
        .transact(TxMode::Write, &mut |_| store.transact(TxMode::Read, &mut |tx| tx.all_pools().map(|_| ())))
        .unwrap();
}

/// It could wait for ever: for a transaction that waits for one like it.
#[test]
fn a_transaction_inside_another_does_not_wait_for_a_connection() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options.connections(1).lock_timeout(Duration::ZERO));
    let refused = store.write(|tx| {
        tx.all_pools()?;
        store.read(|tx| tx.all_pools().map(drop))
    });
    assert_eq!(kind(&refused.unwrap_err()), StoreErrorKind::Busy);
    put(&store, "p").unwrap();
}

/// Runs `work` while hosts' closures keep this many of the store's connections.
fn while_hosts_keep(connections: usize, store: &PostgresStore, work: impl FnOnce()) {
    let (begun, wait) = std::sync::mpsc::channel();
    let (go, end) = std::sync::mpsc::channel::<()>();
    let end = std::sync::Mutex::new(end);
    std::thread::scope(|scope| {
        for _ in 0..connections {
            let (begun, end) = (begun.clone(), &end);
            scope.spawn(move || {
                let kept = store.read(|tx| {
                    tx.all_pools()?;
                    begun.send(()).unwrap();
                    // It ends when no sender is left.
                    let _ = end.lock().unwrap().recv();
                    Ok(())
                });
                kept.unwrap();
            });
        }
        (0..connections).for_each(|_| wait.recv().unwrap());
        // Also if it panics.
        let _go = go;
        work();
    });
}

#[test]
fn hosts_that_keep_connections_hold_up_neither_renewals_nor_services() {
    let scratch = Scratch::new();
    let store = Arc::new(scratch.open(|options| options.connections(4).lock_timeout(Duration::from_secs(2))));
    let now = Timestamp::UNIX_EPOCH;
    let leases: Vec<LeaseRef> = store
        .write(|tx| {
            tx.enqueue(now, &[task("t")])?;
            let name = ("h".try_into().unwrap(), "tick".try_into().unwrap());
            let order = AdmitRequest::new(name.0, name.1, 1, Duration::from_secs(60));
            let granted = tx.admit(now, &order)?.granted;
            Ok(granted.iter().map(|task| task.lease_ref()).collect())
        })
        .unwrap();
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
    let mut upkeep = Upkeep::new(store.clone());
    while_hosts_keep(2, &store, || {
        for _ in 0..3 {
            let renewed = store.write(|tx| {
                let renewed = tx.renew(now, Duration::from_secs(60), &leases)?;
                // A reader of its own, for which none is kept.
                tx.all_pools()?;
                Ok(renewed.len())
            });
            assert_eq!(renewed.unwrap(), 1);
            admitter.tick(now).unwrap();
            upkeep.tick(now).unwrap();
        }
        let refused = store.read(|tx| tx.all_pools()).unwrap_err();
        assert_eq!(kind(&refused), StoreErrorKind::Busy, "two are kept: {refused}");
    });
    assert_eq!(pools(&*store), 0);
}

#[test]
fn fewer_than_three_connections_are_shared() {
    let scratch = Scratch::new();
    let store = Arc::new(scratch.open(|options| options.connections(2).lock_timeout(Duration::from_secs(1))));
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
    while_hosts_keep(1, &store, || {
        assert_eq!(pools(&*store), 0, "by the second one");
    });
    while_hosts_keep(2, &store, || {
        let refused = admitter.tick(Timestamp::UNIX_EPOCH).unwrap_err();
        assert_eq!(kind(&refused), StoreErrorKind::Busy);
    });
    admitter.tick(Timestamp::UNIX_EPOCH).unwrap();
}

/// It only looks, and neither waits for a writer nor keeps one waiting.
#[test]
fn an_idle_admitter_takes_no_turn() {
    let scratch = Scratch::new();
    let store = Arc::new(scratch.open(|options| options.lock_timeout(Duration::from_secs(2))));
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
    let now = Timestamp::UNIX_EPOCH;
    let late = Timestamp::from_micros(1_000_000);
    let tasks = [task("large").pool_slots(1_000), task("late").not_before(late)];
    store.write(|tx| tx.enqueue(now, &tasks)).unwrap();
    let first = admitter.tick(now).unwrap();
    assert_eq!((first.granted.len(), first.next_due, first.refusals.len()), (0, Some(late), 1));
    let schema = scratch.0.clone();
    let (mut admitter, answers) = with_client(move |client| async move {
        let lock = format!("BEGIN; LOCK TABLE \"{schema}\".tick_lock IN EXCLUSIVE MODE");
        client.batch_execute(&lock).await.unwrap();
        tokio::task::spawn_blocking(move || {
            let (answers, trips) =
                watch_round_trips(|| (0..20).map(|_| admitter.tick(now)).collect::<Vec<_>>());
            assert_eq!(trips.len(), 20, "one each: {trips:?}");
            (admitter, answers)
        })
        .await
        .unwrap()
    });
    for answer in answers {
        assert_eq!(answer.unwrap(), first);
    }
    let due = admitter.tick(late).unwrap();
    assert_eq!((due.promoted, due.granted.len()), (1, 1));
    store.write(|tx| tx.enqueue(late, &[task("more")])).unwrap();
    assert_eq!(admitter.tick(late).unwrap().granted.len(), 1);
    for _ in 0..2 {
        assert!(admitter.tick(late).unwrap().granted.is_empty());
    }
    store.write(|tx| tx.enqueue(late, &[task("again")])).unwrap();
    assert_eq!(admitter.tick(late).unwrap().granted.len(), 1, "what fits is seen");
}

/// It adds a few changes up for itself, and writes only when they are many.
#[test]
fn an_idle_admitter_folds_what_makes_its_looks_dear() {
    let scratch = Scratch::new();
    let store = Arc::new(scratch.open(|options| options));
    let mut admitter = Admitter::new(store.clone(), "h".try_into().unwrap());
    let now = Timestamp::UNIX_EPOCH;
    let count = |sql: &str| -> i64 { rows(&sql.replace("sm.", &format!("\"{}\".", scratch.0)))[0].get(0) };
    let mut waiting = 0;
    let mut tick = |more: u64| {
        for _ in 0..more {
            waiting += 1;
            let large = task(&waiting.to_string()).pool_slots(1_000);
            store.write(|tx| tx.enqueue(now, std::slice::from_ref(&large))).unwrap();
        }
        let refused: u64 = admitter.tick(now).unwrap().refusals.iter().map(|refusal| refusal.tasks).sum();
        assert_eq!(refused, waiting);
        [count("SELECT max(no) FROM sm.tick"), count("SELECT count(*) FROM sm.unfolded")]
    };
    let [first, rest] = tick(1);
    assert_eq!(rest, 0, "the first tick does not look before");
    assert_eq!(tick(100), [first, 100]);
    assert_eq!(tick(155), [first, 255]);
    let [second, rest] = tick(1);
    assert!(second > first);
    assert_eq!(rest, 0);
}
