//! The server's own limits: what it ends, what it refuses to take, and what must not run into them.

use std::time::{Duration, Instant};

use stationmaster::admission::IfExists;
use stationmaster::error::StoreErrorKind;
use stationmaster::ops::AdmitRequest;
use stationmaster::store::{Discrepancy, Store};
use stationmaster::{Result, Timestamp};

use crate::round_trips::Counted;
use crate::scratch::{Scratch, query, rows, with_client};
use crate::{kind, pool, pools, put};

/// From now on, each write of a pool sleeps for half a minute.
fn doze(scratch: &Scratch) {
    query(&format!(
        "CREATE FUNCTION \"{0}\".doze() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(30); RETURN NULL; END'; \
         CREATE TRIGGER doze AFTER INSERT ON \"{0}\".pool EXECUTE FUNCTION \"{0}\".doze()",
        scratch.0
    ));
}

#[test]
fn a_statement_that_takes_too_long_is_given_up_and_not_to_be_called_again() {
    let scratch = Scratch::new();
    // The limit is not for what creates the schema.
    drop(scratch.open(|options| options));
    let store = scratch.open(|options| options.statement_timeout(Duration::from_millis(100)));
    doze(&scratch);
    let (began, mut runs) = (Instant::now(), 0);
    let refused: Result<_> = store.write(|tx| {
        runs += 1;
        tx.define([pool("p", 1)], IfExists::Replace)
    });
    let refused = refused.unwrap_err();
    assert_eq!(kind(&refused).as_str(), "too_much", "{refused}");
    assert!(!refused.is_retryable() && !refused.to_string().contains("call again"), "{refused}");
    assert_eq!(runs, 1);
    assert!(began.elapsed() < Duration::from_secs(25), "it did not wait for the end");
    assert_eq!(pools(&store), 0);
}

/// Whatever language the server speaks, and although it says both by the same code.
#[test]
fn a_statement_that_somebody_cancelled_may_be_called_again() {
    for limit in [Duration::from_secs(25), Duration::ZERO] {
        let scratch = Scratch::new();
        let store = scratch.open(|options| options.statement_timeout(limit));
        doze(&scratch);
        let cancelled = std::thread::scope(|scope| {
            let writing =
                scope.spawn(|| store.write(|tx| tx.define([pool("p", 1)], IfExists::Replace)).map(drop));
            let cancel = format!(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity \
                 WHERE wait_event = 'PgSleep' AND query LIKE '%\"{}\"%'",
                scratch.0
            );
            while rows(&cancel).is_empty() {
                std::thread::sleep(Duration::from_millis(5));
            }
            writing.join().unwrap()
        });
        let cancelled = cancelled.unwrap_err();
        assert_eq!(kind(&cancelled), StoreErrorKind::Busy, "{cancelled}");
        assert!(cancelled.is_retryable() && cancelled.to_string().contains("call again"), "{cancelled}");
        query(&format!("DROP TRIGGER doze ON \"{}\".pool", scratch.0));
        put(&store, "p").unwrap();
    }
}

/// Without a limit of its own, waiting for the writer before is ended by the limit of statements. It is no less waiting.
#[test]
fn a_writer_whose_wait_ends_by_the_statement_s_limit_may_call_again() {
    let scratch = Scratch::new();
    drop(scratch.open(|options| options));
    let store = scratch
        .open(|options| options.lock_timeout(Duration::ZERO).statement_timeout(Duration::from_millis(200)));
    let lock = format!("BEGIN; LOCK TABLE \"{}\".tick_lock IN EXCLUSIVE MODE", scratch.0);
    let held = store.info();
    let refused = with_client(move |client| async move {
        client.batch_execute(&lock).await.unwrap();
        let both = tokio::task::spawn_blocking(move || {
            let refused = put(&store, "p").unwrap_err();
            (refused, store)
        });
        let both = both.await.unwrap();
        client.batch_execute("ROLLBACK").await.unwrap();
        both
    });
    let (refused, store) = refused;
    assert_eq!((kind(&refused), held.lock_timeout), (StoreErrorKind::Busy, None), "{refused}");
    put(&store, "p").unwrap();
}

/// The limit of the host's own connection is not known, so neither is why a statement was cancelled.
#[test]
fn in_a_host_s_transaction_what_was_cancelled_is_not_to_be_called_again() {
    use stationmaster::store::postgres::tx;
    let scratch = Scratch::new();
    drop(scratch.open(|options| options));
    doze(&scratch);
    let schema = scratch.0.clone();
    let refused: Result<_> = with_client(move |mut client| async move {
        let transaction = client.transaction().await.unwrap();
        transaction.batch_execute("SET LOCAL statement_timeout = 100").await.unwrap();
        tx(&transaction, &schema, |tx| tx.define([pool("p", 1)], IfExists::Replace)).await
    });
    let refused = refused.unwrap_err();
    assert_eq!(kind(&refused).as_str(), "too_much", "{refused}");
}

/// Ordinary contention: to wait for a tick is not too much work.
#[test]
fn in_a_host_s_transaction_a_wait_for_another_writer_may_be_tried_again() {
    use stationmaster::store::postgres::{tokio_postgres, tx};
    let scratch = Scratch::new();
    drop(scratch.open(|options| options));
    let schema = scratch.0.clone();
    let refused: Result<_> = with_client(move |mut client| async move {
        let turn = format!("BEGIN; LOCK TABLE \"{schema}\".tick_lock IN EXCLUSIVE MODE");
        let (other, driving) =
            tokio_postgres::connect(&crate::scratch::url(), tokio_postgres::NoTls).await.unwrap();
        let driving = tokio::spawn(driving);
        other.batch_execute(&turn).await.unwrap();
        let transaction = client.transaction().await.unwrap();
        transaction.batch_execute("SET LOCAL statement_timeout = 100").await.unwrap();
        let refused = tx(&transaction, &schema, |tx| tx.define([pool("p", 1)], IfExists::Replace)).await;
        drop(other);
        let _ = driving.await;
        refused
    });
    let refused = refused.unwrap_err();
    assert_eq!(kind(&refused).as_str(), "busy", "{refused}");
    assert!(refused.is_retryable());
}

#[test]
fn an_audit_compares_slots_leases_and_ready_tasks_with_their_counters() {
    let scratch = Scratch::new();
    let (schema, store) = (scratch.0.as_str(), scratch.open(|options| options));
    let task = |name: &str| crate::task(name).pool_slots(3).limit("k".try_into().unwrap());
    store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &[task("granted"), task("ready")])).unwrap();
    let request =
        AdmitRequest::new("h".try_into().unwrap(), "tick".try_into().unwrap(), 1, Duration::from_secs(60));
    assert_eq!(store.write(|tx| tx.admit(Timestamp::from_micros(1), &request)).unwrap().granted.len(), 1);
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    query(&format!(
        "UPDATE \"{schema}\".pool_use SET used = 4; UPDATE \"{schema}\".limit_use SET used = 5; \
         UPDATE \"{schema}\".lane_use SET ready = 6"
    ));
    let found = store.read(|tx| tx.audit()).unwrap();
    assert!(
        matches!(
            &found[..],
            [
                Discrepancy::Pool { counted: 4, held: 3, .. },
                Discrepancy::Limit { counted: 5, held: 1, .. },
                Discrepancy::Lane { counted: 6, held: 1, .. },
            ]
        ),
        "{found:?}"
    );
}

/// What a page costs is checked by the plans of its statements. The number of round trips shows that there are pages.
#[test]
fn an_audit_reads_tasks_that_ended_a_page_at_a_time() {
    let counted = Counted::open();
    let (scratch, all) = (&counted.scratch, &counted.store);
    let schema = scratch.0.as_str();
    let task = [crate::task("t")];
    all.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &task)).unwrap();
    // Very many more that ended, and some that did not end as they should.
    query(&format!(
        "DROP INDEX \"{schema}\".task_key; \
         CREATE TEMPORARY TABLE copy AS SELECT * FROM \"{schema}\".task; CREATE TEMPORARY SEQUENCE number; \
         DO 'BEGIN FOR n IN 1..17 LOOP INSERT INTO copy SELECT * FROM copy; END LOOP; END'; \
         UPDATE copy SET no = nextval('number'); DELETE FROM copy WHERE no = 1; \
         INSERT INTO \"{schema}\".task SELECT * FROM copy; \
         INSERT INTO \"{schema}\".idle (no, state, lane, ready_at, ended_at, slots, due, rank, logical_date, map_index) \
         SELECT no, CASE no WHEN 110000 THEN 3 ELSE 6 END, lane, 0, 0, CASE no WHEN 120000 THEN 1 END, \
             CASE no WHEN 130000 THEN 5 END, rank, logical_date, map_index FROM copy WHERE no <> 100000; \
         UPDATE \"{schema}\".idle SET no = 1000000 WHERE no = 131072; \
         ANALYZE \"{schema}\".task, \"{schema}\".idle"
    ));
    let (trips, found) = counted.of(|store| store.read(|tx| tx.audit()).unwrap());
    let described: Vec<String> = found.iter().map(|found| format!("{found:?}")).collect();
    let parts = [
        "counted: 0, held: 1",
        "TaskId(100000), problem: \"it is neither",
        "TaskId(110000), problem: \"it is up_for_retry, and its due",
        "TaskId(120000), problem: \"it is success and holds 1",
        "TaskId(130000), problem: \"it is success, and its due",
        "TaskId(131072), problem: \"it is neither",
        "TaskId(1000000), problem: \"it is leased or idle, and there is no",
    ];
    let names = |(described, part): (&String, &str)| described.contains(part);
    assert!(described.len() == parts.len() && described.iter().zip(parts).all(names), "{described:#?}");
    assert!(trips > 131_072 / 10_000, "{trips} round trips");
}

#[test]
#[ignore = "takes 3 GiB of memory"]
fn a_call_that_is_too_large_to_be_sent_is_refused_and_is_to_be_split() {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    let large = pool("p", 1).described("x".repeat(1 << 30));
    let refused = store.write(|tx| tx.define([&large], IfExists::Replace)).unwrap_err();
    assert_eq!(kind(&refused).as_str(), "too_much", "{refused}");
    assert!(!refused.is_retryable() && refused.to_string().contains("split"), "{refused}");
    assert_eq!(pools(&store), 0);
    put(&store, "q").unwrap();
}
