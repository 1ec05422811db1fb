//! All or nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::scene::Scene;
use super::snapshot::Snapshot;
use super::steps::{Steps, nothing};
use super::world::{World, at, key, rows, sized, task};
use crate::admission::{Ageing, IfExists};
use crate::error::{Error, Invalid, Result, StoreError, StoreErrorKind};
use crate::ops::{AdmitRequest, StopBeforeStart};
use crate::run::RunStatus;
use crate::sensor::SmartSensorConfig;
use crate::store::contract::Forget;
use crate::store::{Inserted, Store, Tx, TxMode};
use crate::task::NewTask;
use crate::testing::RawStoreExt;

cases!("transactions":
    an_error_undoes_every_write,
    a_panic_undoes_every_write,
    every_write_is_seen_by_a_later_transaction,
    several_writes_are_undone_together,
    the_body_runs_once,
    the_answer_of_the_body_comes_back,
    reads_work_in_both_modes,
    empty_arguments_have_empty_answers,
    a_verb_that_failed_halfway_is_not_committed,
    admit_is_the_last_verb,
    what_the_last_verb_did_stays,
);

/// Each method that writes, in a transaction that then fails: it sees its own write, and no one else ever
/// does.
fn an_error_undoes_every_write(store: &dyn Store) {
    undone(store, &|body| {
        let answer = store.transact(TxMode::Write, &mut |tx| {
            body(tx.raw());
            Err(Error::abort("on purpose"))
        });
        assert!(matches!(answer, Err(Error::Aborted(_))), "the body's error comes back: {answer:?}");
    });
}

/// A verb writes several times. If the store fails between two of them, the body may ignore that, but nothing
/// is kept.
fn a_verb_that_failed_halfway_is_not_committed(store: &dyn Store) {
    let halfway = |tx: &mut Tx<'_>| {
        tx.raw().put_pools(&[sized("half", 1)])?;
        Err(Error::Store(StoreError::new(StoreErrorKind::Io, "on purpose")))
    };
    let mut refused_more = false;
    let committed = store.transact(TxMode::Write, &mut |tx| {
        assert!(tx.whole::<()>(halfway).is_err());
        refused_more = tx.whole(|_| Ok(())).is_err();
        Ok(())
    });
    assert!(refused_more && committed.is_err(), "it says so: {committed:?}");
    let pools = store.read(|tx| tx.all_pools()).expect("the store goes on working");
    assert_eq!(pools.len(), 1, "the default pool alone");
}

/// A verb, called with nothing to do.
type Verb = (&'static str, fn(&mut Tx<'_>) -> Result<()>);

/// Returns every verb that writes, except `admit`.
fn verbs() -> Vec<Verb> {
    vec![
        ("enqueue", |tx| tx.enqueue(at(1), &[NewTask::new(key("more"))]).map(drop)),
        ("enqueue_ageing", |tx| tx.enqueue_ageing(at(1), Ageing::default(), &[]).map(drop)),
        ("serialize", |tx| tx.serialize(&["more"])),
        ("start", |tx| tx.start(at(1), &[]).map(drop)),
        ("renew", |tx| tx.renew(at(1), Duration::from_secs(9), &[]).map(drop)),
        ("finish", |tx| tx.finish(at(1), &[]).map(drop)),
        ("register", |tx| tx.register(at(1), &[]).map(drop)),
        ("register_with", |tx| tx.register_with(at(1), &SmartSensorConfig::default(), &[]).map(drop)),
        ("end_sensors", |tx| tx.end_sensors(at(1), &[]).map(drop)),
        ("mark", |tx| tx.mark(at(1), &[]).map(drop)),
        ("clear", |tx| tx.clear(at(1), &[]).map(drop)),
        ("reap", |tx| tx.reap(at(1), 9).map(drop)),
        ("define", |tx| tx.define([sized("more", 1)], IfExists::Leave).map(drop)),
        ("undefine", |tx| tx.undefine(&[]).map(drop)),
        ("pause", |tx| tx.pause(&[]).map(drop)),
        ("resume", |tx| tx.resume(&[]).map(drop)),
        ("record_runs", |tx| tx.record_runs(&[super::scene::run("more")], StopBeforeStart::Reject)),
        ("stop_runs", |tx| tx.stop_runs(&[], StopBeforeStart::Reject).map(drop)),
        ("close_runs", |tx| tx.close_runs(&[]).map(drop)),
        ("beat_runs", |tx| tx.beat_runs(&[]).map(drop)),
        ("close_silent_runs", |tx| {
            tx.close_silent_runs(at(1), Duration::from_secs(9), RunStatus::Killed, 9).map(drop)
        }),
        ("delete_consumers", |tx| tx.delete_consumers(&[]).map(drop)),
        ("forget_ended", |tx| tx.forget_ended(at(1), Duration::ZERO, 9).map(drop)),
        ("forget_stopped_runs", |tx| tx.forget_stopped_runs(at(1), 9).map(drop)),
        ("delete_runs", |tx| tx.delete_runs(&[]).map(drop)),
    ]
}

/// After a tick every other verb that writes is refused, and writes nothing. Ticks and queries go on, and the
/// transaction commits.
fn admit_is_the_last_verb(store: &dyn Store) {
    store.write(|tx| tx.enqueue(at(0), &[NewTask::new(key("a"))])).expect("a task");
    let order = |name: &str| {
        AdmitRequest::new(super::world::holder("h"), name.try_into().unwrap(), 9, Duration::from_secs(9))
    };
    let (mut refused, mut granted) = (Vec::new(), Vec::new());
    let committed = store.write(|tx| {
        granted = match tx.admit(at(1), &order("first")) {
            // A transaction that a host of PostgreSQL owns: none of them admits.
            Err(Error::Invalid(Invalid::TickInHostTransaction)) => return Ok(false),
            admission => admission?.granted,
        };
        refused = verbs().iter().map(|(name, verb)| (*name, verb(tx))).collect();
        assert_eq!(tx.tasks(&[key("a")])?[0].as_ref(), granted.first(), "queries see what was granted");
        assert_eq!(tx.admit(at(1), &order("second"))?.granted, [], "a second tick finds nothing more");
        Ok(true)
    });
    if !committed.expect("the transaction commits") {
        return;
    }
    for (name, answer) in refused {
        assert!(matches!(answer, Err(Error::Invalid(Invalid::AfterAdmit))), "{name}: {answer:?}");
    }
    let (tasks, pools) = store.read(|tx| Ok((tx.tasks(&[key("a"), key("more")])?, tx.all_pools()?))).unwrap();
    assert_eq!((tasks[0].as_ref(), &tasks[1]), (granted.first(), &None));
    assert_eq!(pools.len(), 1, "the default pool alone");
}

/// Whatever the body then returns. Verbs that write are refused, and queries go on.
fn what_the_last_verb_did_stays(store: &dyn Store) {
    let tasks = ["a", "b"].map(|name| NewTask::new(key(name)));
    let enqueue = |tx: &mut Tx<'_>, tasks: &[NewTask]| tx.last(|tx| tx.enqueue(at(0), tasks));
    let mut refused = Vec::new();
    let answer: Result<()> = store.write(|tx| {
        assert!(matches!(enqueue(tx, &tasks[..1])?[..], [Inserted::New(_)]));
        refused = verbs().iter().map(|(name, verb)| (*name, verb(tx))).collect();
        refused.push(("last", enqueue(tx, &tasks).map(drop)));
        assert_eq!(tx.tasks(&[key("a"), key("more")])?.iter().flatten().count(), 1, "queries go on");
        Err(Error::abort("on purpose"))
    });
    assert!(matches!(answer, Err(Error::Aborted(_))), "{answer:?}");
    for (name, answer) in refused {
        assert!(matches!(answer, Err(Error::Invalid(Invalid::AfterLast))), "{name}: {answer:?}");
    }
    // What has to go on behind its first statement, too.
    for tasks in [&tasks[..1], &tasks[..], &tasks[1..]] {
        let known = store
            .read(|tx| tx.tasks(&tasks.iter().map(|task| task.key.clone()).collect::<Vec<_>>()))
            .unwrap();
        let inserted = store.write(|tx| enqueue(tx, tasks)).unwrap();
        let is_new = |inserted: &Inserted| matches!(inserted, Inserted::New(_));
        assert_eq!(
            inserted.iter().map(is_new).collect::<Vec<_>>(),
            known.iter().map(Option::is_none).collect::<Vec<_>>()
        );
    }
}

fn a_panic_undoes_every_write(store: &dyn Store) {
    undone(store, &|body| {
        let attempt = AssertUnwindSafe(|| {
            store.transact(TxMode::Write, &mut |tx| {
                body(tx.raw());
                std::panic::resume_unwind(Box::new("on purpose"))
            })
        });
        let panic = catch_unwind(attempt).expect_err("the body's panic goes on");
        assert_eq!(
            panic.downcast_ref(),
            Some(&"on purpose"),
            "the body's panic goes on: {}",
            super::text(&*panic)
        );
    });
}

type Body<'a> = &'a mut dyn FnMut(&mut dyn crate::store::contract::StoreTx);

fn undone(store: &dyn Store, fail_after: &dyn Fn(Body<'_>)) {
    let (world, watch) = (World(store), Scene::watch());
    let scene = Scene::set(world);
    let before = world.read(|tx| Snapshot::of(tx, &watch));
    for (name, write) in Scene::writes() {
        fail_after(&mut |tx| {
            write(tx, &scene).unwrap_or_else(|error| panic!("{name}: {error}"));
            let within = Snapshot::of(tx, &watch).unwrap();
            assert_ne!(within, before, "{name}: a transaction sees its own writes");
        });
        let after = world.read(|tx| Snapshot::of(tx, &watch));
        assert_eq!(after, before, "{name}: nothing is left of a transaction that failed");
    }
}

fn every_write_is_seen_by_a_later_transaction(store: &dyn Store) {
    let (world, watch) = (World(store), Scene::watch());
    let scene = Scene::set(world);
    let untouched = world.read(|tx| Snapshot::of(tx, &watch));
    let mut within = untouched.clone();
    for (name, write) in Scene::writes() {
        within = world.write(|tx| {
            write(tx, &scene)?;
            Snapshot::of(tx, &watch)
        });
        let after = world.read(|tx| Snapshot::of(tx, &watch));
        assert_eq!(after, within, "{name}: what the writer saw is what was committed");
    }
    assert_ne!(within, untouched);
}

fn several_writes_are_undone_together(store: &dyn Store) {
    let world = World(store);
    let before = world.read(|tx| Snapshot::of(tx, &Scene::watch()));
    let answer: Result<()> = store.write_raw(|tx| {
        tx.insert_tasks_if_absent(&rows(&[task("ready"), task("new")]))?;
        tx.put_runs(&[super::scene::run("new")])?;
        Err(StoreError::new(StoreErrorKind::Backend, "on purpose").into())
    });
    assert!(matches!(answer, Err(Error::Store(error)) if error.kind() == StoreErrorKind::Backend));
    assert_eq!(world.read(|tx| Snapshot::of(tx, &Scene::watch())), before);
    let again = world.write(|tx| tx.insert_tasks_if_absent(&rows(&[task("new")])));
    assert!(matches!(again[..], [Inserted::New(_)]), "the store goes on working after an error");
}

fn the_body_runs_once(store: &dyn Store) {
    for mode in [TxMode::Read, TxMode::Write] {
        let mut runs = 0;
        store
            .transact(mode, &mut |_| {
                runs += 1;
                Ok(())
            })
            .unwrap();
        assert_eq!(runs, 1, "{mode:?}");
        let conflict = store.transact(mode, &mut |_| {
            runs += 1;
            Err(StoreError::conflict("on purpose").into())
        });
        assert!(conflict.is_err_and(|error| error.is_retryable()));
        assert_eq!(runs, 2, "{mode:?}: also when it answers a conflict");
    }
}

fn the_answer_of_the_body_comes_back(store: &dyn Store) {
    assert_eq!(store.read_raw(|_| Ok(7)).unwrap(), 7);
    assert_eq!(store.write_raw(|_| Ok("seven")).unwrap(), "seven");
    assert!(!store.info().backend.is_empty());
}

fn reads_work_in_both_modes(store: &dyn Store) {
    let (world, watch) = (World(store), Scene::watch());
    Scene::set(world);
    let reader = world.read(|tx| Snapshot::of(tx, &watch));
    assert_eq!(world.write(|tx| Snapshot::of(tx, &watch)), reader);
    assert!(reader.tasks[0].is_some() && reader.tasks[6].is_none());
}

fn empty_arguments_have_empty_answers(store: &dyn Store) {
    let (world, watch) = (World(store), Scene::watch());
    Scene::set(world);
    let before = world.read(|tx| Snapshot::of(tx, &watch));
    world.write(|tx| {
        let holder = super::world::holder("h");
        let granted = tx.grant_if_open(&nothing(&holder))?;
        let lengths = [
            tx.insert_tasks_if_absent(&[])?.len(),
            tx.tasks(&[])?.len(),
            tx.tasks_by_id(&[])?.len(),
            tx.candidates(&[])?.len(),
            granted.tasks.len() + granted.forgotten,
            tx.start_if_queued(&[], at(1))?.len(),
            tx.renew_if_leased(&[], at(1))?.len(),
            tx.note_if_leased(&[])?.len(),
            tx.move_if(&[])?.len(),
            tx.hold_expired(at(9999), 0)?.len(),
            tx.forget_requests(Forget::before(at(99), 0))?,
            tx.forget_all_ended(at(99), at(99), 0)?,
            tx.leases_of(&holder, None, 0)?.len(),
            tx.repair_counters()?.len(),
            tx.delete_pools_if_unused(&[])?.len(),
            tx.pools(&[])?.len(),
            tx.pool_stats(&[])?.len(),
            tx.delete_limits(&[])?.len(),
            tx.delete_families(&[])?.len(),
            tx.rates(&[])?.0.len(),
            tx.put_paused(&[], true)?.len(),
            tx.put_paused(&[], false)?.len(),
            tx.limits(&[])?.len(),
            tx.put_sensors(&[])?.len(),
            tx.sensors(&[])?.len(),
            tx.end_sensors_if_waiting(&[])?.len(),
            tx.feed(0, 0)?.len(),
            tx.forget_feed(9, at(99), 0)?,
            tx.put_shards_if_unchanged(&[])?.len(),
            tx.forget_workers(at(9999), 0)?,
            tx.close_runs_if_open(&[])?.len(),
            tx.runs(&[])?.len(),
            tx.delete_runs(&[])?,
            tx.beat_runs_if_open(&[])?.len(),
            tx.silent_runs(at(i64::MAX), 0)?.len(),
            tx.forget_stopped_runs(at(i64::MAX), 0)?,
        ];
        assert!(lengths.iter().all(|length| *length == 0), "{lengths:?}");
        tx.put_pools(&[])?;
        tx.put_limits(&[])?;
        tx.put_runs(&[])
    });
    assert_eq!(world.read(|tx| Snapshot::of(tx, &watch)), before);
    assert!(world.read(|tx| tx.tasks(&[key("nobody")])) == [None]);
}
