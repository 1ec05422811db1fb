//! Transactions of one statement that share a connection and a flush.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread::{ScopedJoinHandle, scope, sleep};
use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::error::{Invalid, StoreErrorKind};
use stationmaster::ops::{AdmitRequest, Finish, Finished};
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::store::postgres::PostgresOptions;
use stationmaster::store::{Durability, PostgresStore};
use stationmaster::testing::RawStoreExt;
use stationmaster::{Error, LeaseRef, NewTask, Result, TaskRecord, TaskState, Timestamp};

use crate::postgres_server::{OwnServer, Plain, with};
use crate::scratch::{Scratch, url};
use crate::{kind, pool_name, task};

const CALLERS: usize = 24;

/// How often attempts are ended until what has to happen meanwhile was seen. A machine may stop the thread that looks
/// for as long as they take.
const TRIES: usize = 100;

/// A store whose callers have four connections between them.
fn narrow(url: &str, scratch: &Scratch) -> PostgresStore {
    let options = scratch.options().durability(Durability::Power).connections(6);
    PostgresStore::connect(url, options).unwrap()
}

/// Has this many new tasks granted and started.
fn leases(store: &PostgresStore, name: &str, count: usize) -> Vec<LeaseRef> {
    let pool = PoolSpec::new("p", Slots::Unlimited).unwrap();
    let tasks: Vec<NewTask> =
        (0..count).map(|nth| task(&format!("{name} {nth}")).pool(pool_name("p"))).collect();
    let (holder, tick) = ("h".try_into().unwrap(), name.try_into().unwrap());
    let order = AdmitRequest::new(holder, tick, count, Duration::from_secs(600)).started();
    store
        .write(|tx| {
            tx.define([&pool], IfExists::Replace)?;
            tx.enqueue(Timestamp::UNIX_EPOCH, &tasks)
        })
        .unwrap();
    let granted = store.write(|tx| tx.admit(Timestamp::from_micros(1), &order)).unwrap().granted;
    assert_eq!(granted.len(), count);
    granted.iter().map(TaskRecord::lease_ref).collect()
}

fn finish(store: &PostgresStore, lease: LeaseRef) -> Result<Finished> {
    let ends = [Finish::success(lease)];
    let finished = store.write(|tx| tx.last(|tx| tx.finish(Timestamp::from_micros(2), &ends)))?;
    Ok(finished[0])
}

/// Ends these attempts from many threads, and passes each reply to `heard`. Until they are done, `beside` runs again
/// and again.
fn end_all(
    store: &PostgresStore,
    all: &[LeaseRef],
    heard: impl Fn(LeaseRef, Result<Finished>) + Sync,
    mut beside: impl FnMut(),
) {
    scope(|scope| {
        let heard = &heard;
        let callers = (0..CALLERS).map(|own| {
            scope.spawn(move || {
                for lease in all.iter().skip(own).step_by(CALLERS) {
                    heard(*lease, finish(store, *lease));
                }
            })
        });
        let callers: Vec<_> = callers.collect();
        while !callers.iter().all(ScopedJoinHandle::is_finished) {
            beside();
            sleep(Duration::from_millis(1));
        }
    });
}

/// Returns true if what a connection of this name has sent last is the end of a group.
fn has_committed_a_group(plain: &Plain, name: &str) -> bool {
    let groups = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}' \
         AND query LIKE 'SELECT pg_logical_emit_message%lock_timeout%'"
    );
    plain.number(&groups) > 0
}

/// Each caller learns what became of its own statement: of two that end the same attempt, one ends it, and the other one
/// learns that. One attempt is locked by another transaction, and only those who end it wait.
#[test]
fn each_caller_learns_the_fate_of_its_own_statement_and_waits_for_no_other_task() {
    let name = format!("sm_grouped_{}", std::process::id());
    let (scratch, plain) = (Scratch::new(), Plain::connect(&url()));
    let store = narrow(&with(&url(), &format!("application_name={name}")), &scratch);
    let mut was_seen = false;
    let is_ended = |_, finished: Result<Finished>| {
        assert_eq!(finished.unwrap(), Finished::Ended(TaskState::Success));
    };
    for nth in (0..TRIES).map(|nth| format!("grouped {nth}")) {
        end_all(&store, &leases(&store, &nth, CALLERS * 40), is_ended, || {
            was_seen |= has_committed_a_group(&plain, &name);
        });
        if was_seen {
            break;
        }
    }
    assert!(was_seen, "no group was committed");
    let all = leases(&store, "all", CALLERS * 5);
    let (blocked, free) = all.split_first().unwrap();
    let other = scratch.open(|options| options);
    let ((lock, locked), (release, released)) = (channel(), channel());
    let (ended, already) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let count = |finished: Finished| match finished {
        Finished::Ended(TaskState::Success) => ended.fetch_add(1, Ordering::Relaxed),
        Finished::Already(TaskState::Success) => already.fetch_add(1, Ordering::Relaxed),
        other => panic!("{other:?}"),
    };
    scope(|scope| {
        let holder = scope.spawn(move || {
            other.write(|tx| {
                tx.finish(Timestamp::from_micros(2), &[Finish::success(*blocked)])?;
                // The end is sent with the next call.
                tx.all_pools()?;
                lock.send(()).unwrap();
                released.recv().unwrap();
                Err::<(), Error>(Invalid::Zero { what: "rolled back" }.into())
            })
        });
        locked.recv().unwrap();
        let (store, count) = (&store, &count);
        for _ in 0..2 {
            scope.spawn(move || count(finish(store, *blocked).unwrap()));
        }
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let own = free.iter().skip(caller % (CALLERS / 2)).step_by(CALLERS / 2);
                scope.spawn(move || own.for_each(|lease| _ = count(finish(store, *lease).unwrap())))
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        let before = ended.load(Ordering::Relaxed);
        release.send(()).unwrap();
        assert_eq!(before, free.len(), "the others did not wait for the lock");
        holder.join().unwrap().unwrap_err();
    });
    assert_eq!(ended.into_inner(), all.len());
    assert_eq!(already.into_inner(), all.len(), "each was ended twice");
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}

/// What a caller heard of is there after a crash, although the commits of a group do not wait for their own flush.
#[test]
fn what_was_acknowledged_survives_a_crash_of_the_server() {
    let Some(mut server) = OwnServer::start() else { return };
    Plain::connect(&server.url()).ask("ALTER SYSTEM SET wal_writer_delay = '10s'");
    Plain::connect(&server.url()).ask("SELECT pg_reload_conf()");
    let (scratch, name) = (Scratch::new(), "grouped");
    let options = PostgresOptions::new().schema(scratch.0.clone()).connections(3);
    let url = with(&server.url(), &format!("application_name={name}"));
    let store = PostgresStore::connect(&url, options.lock_timeout(Duration::from_secs(60))).unwrap();
    for round in 0..3 {
        let acknowledged = Mutex::new(Vec::new());
        let heard = |lease: LeaseRef, finished: Result<Finished>| match finished {
            Ok(_) => acknowledged.lock().unwrap().push(lease.id),
            Err(error) => {
                let lost = [StoreErrorKind::Io, StoreErrorKind::Indeterminate];
                assert!(lost.contains(&kind(&error)), "{error}");
            }
        };
        let (mut was_seen, mut plain) = (false, Some(Plain::connect(&server.url())));
        for nth in (0..TRIES).map(|nth| format!("round {round}.{nth}")) {
            end_all(&store, &leases(&store, &nth, CALLERS * 40), heard, || {
                was_seen |= plain.as_ref().is_some_and(|plain| has_committed_a_group(plain, name));
                if was_seen && acknowledged.lock().unwrap().len() > CALLERS * 10 && plain.take().is_some() {
                    server.crash();
                }
            });
            if plain.is_none() {
                break;
            }
        }
        assert!(was_seen && plain.is_none(), "it crashed while groups were committed");
        let acknowledged = acknowledged.into_inner().unwrap();
        let found = store.read_raw(|raw| Ok(raw.tasks_by_id(&acknowledged)?)).unwrap();
        let kept = found.iter().flatten().filter(|task| task.state == TaskState::Success).count();
        assert_eq!(kept, acknowledged.len(), "in round {round}");
    }
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
}
