//! Writers take turns: nobody loses a change, nobody is refused for another's sake, whatever the isolation level.

use std::time::Duration;

use stationmaster::error::StoreErrorKind;
use stationmaster::pool::Slots;
use stationmaster::store::postgres::tokio_postgres::IsolationLevel;
use stationmaster::store::{Store, TxMode};

use crate::scratch::{Scratch, with_client};
use crate::{kind, pool, pool_name, pools, put};

#[test]
fn stores_that_contend_lose_no_change_and_see_no_conflict() {
    for isolation in
        [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable]
    {
        let scratch = Scratch::new();
        let stores: Vec<_> = (0..4).map(|_| scratch.open(|options| options.isolation(isolation))).collect();
        stores[0].write(|tx| tx.put_pools(&[pool("count", 0)])).unwrap();
        let rounds = 50;
        std::thread::scope(|scope| {
            for store in &stores {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        // Not `write`, which would run it again: a conflict is to be seen.
                        store
                            .transact(TxMode::Write, &mut |tx| {
                                let seen = tx.pools(&[pool_name("count")])?.remove(0).unwrap();
                                let Slots::Limited(seen) = seen.spec.slots else { unreachable!() };
                                tx.put_pools(&[pool("count", seen + 1)])
                            })
                            .unwrap();
                    }
                });
            }
        });
        let counted = stores[0].read(|tx| tx.pools(&[pool_name("count")])).unwrap().remove(0).unwrap();
        assert_eq!(counted.spec.slots, Slots::Limited(4 * rounds), "{isolation:?}");
    }
}

#[test]
fn a_writer_that_waits_too_long_is_told_and_the_next_call_succeeds() {
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

/// One of two that read takes its time: who finds both busy is served by the other one.
#[test]
fn a_reader_waits_for_the_connection_that_is_free_first() {
    let scratch = Scratch::new();
    let store = &scratch.open(|options| options.readers(2).lock_timeout(Duration::from_secs(5)));
    let (begun, wait) = std::sync::mpsc::channel();
    let stop = &std::sync::atomic::AtomicBool::new(false);
    let is_stopped = || stop.load(std::sync::atomic::Ordering::SeqCst);
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
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(all, [true; 4]);
    });
}

#[test]
fn a_host_that_stops_in_the_middle_does_not_hold_up_others_for_ever() {
    let scratch = Scratch::new();
    let stuck = scratch.open(|options| options.idle_in_transaction_timeout(Duration::from_millis(200)));
    let other = scratch.open(|options| options);
    let lost = stuck.transact(TxMode::Write, &mut |tx| {
        tx.put_pools(&[pool("stuck", 1)])?;
        put(&other, "other")?;
        tx.put_pools(&[pool("late", 1)])
    });
    assert_eq!(kind(&lost.unwrap_err()), StoreErrorKind::Io);
    assert_eq!(pools(&stuck), 1);
    put(&stuck, "again").unwrap();
}

#[test]
fn a_transaction_inside_another_of_its_kind_is_refused() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options.readers(3));
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
