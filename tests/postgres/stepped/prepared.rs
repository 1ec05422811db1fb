//! Two-phase commits: a prepared transaction is an open one, for as long as its host likes.

use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::error::StoreErrorKind;
use stationmaster::service::{Service, Upkeep};
use stationmaster::store::PostgresStore;
use stationmaster::{LeaseRef, Renewal, TaskState};

use super::scene::{LEVELS, Scene, VERBS, Verb, now};
use crate::postgres_server::host::Notify;
use crate::postgres_server::{OwnServer, Plain};
use crate::{kind, pool};

/// What becomes of a prepared transaction.
const FATES: [&str; 2] = ["COMMIT", "ROLLBACK"];

/// Those that take a lease away, or make it last longer.
const OF_LEASES: [Verb; 6] =
    [Verb::Renew, Verb::Succeed, Verb::Retry, Verb::GiveBack, Verb::Register, Verb::CancelLeased];

fn name(verb: Verb, fate: &str) -> String {
    format!("{verb:?} {fate}")
}

/// A transaction that was prepared.
struct Prepared {
    verb: Verb,
    fate: &'static str,
    lease: Option<LeaseRef>,
}

/// Prepares a transaction with this verb. The server may refuse one of several serializable ones.
fn prepare(scene: &Scene, host: &Plain, level: &str, verb: Verb, fate: &'static str) -> Option<Prepared> {
    let name = name(verb, fate);
    let lease = OF_LEASES.contains(&verb).then(|| scene.lease(&name));
    let of_verb = if verb.has_lease() { Some(scene.lease(&name)) } else { None };
    host.ask(&format!("BEGIN ISOLATION LEVEL {level}"));
    let called = host.call(&scene.scratch.0, Notify::No, |tx| verb.call(tx, &name, of_verb));
    let prepared = match &called {
        Ok(_) => host.try_ask(&format!("PREPARE TRANSACTION '{name}'")).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match prepared {
        Ok(_) => Some(Prepared { verb, fate, lease }),
        Err(error) => {
            assert_eq!(level, "SERIALIZABLE", "{name}: {error}, {called:?}");
            host.ask("ROLLBACK");
            None
        }
    }
}

/// Every other verb and every service passes, whatever is prepared, and no lease is lost.
#[test]
fn whatever_is_prepared_others_pass() {
    let Some(server) = OwnServer::start() else { return };
    for level in LEVELS {
        let scene = Scene::at(&server.url());
        let mut needed: Vec<(Verb, String)> = VERBS.map(|verb| (verb, name(verb, "beside"))).into();
        needed.extend(VERBS.iter().flat_map(|verb| FATES.map(|fate| (*verb, name(*verb, fate)))));
        scene.prepare(&needed);
        let [host, other] = [(); 2].map(|()| Plain::connect(&server.url()));
        other.ask("SET lock_timeout = '10s'");
        let prepared: Vec<Prepared> = VERBS
            .iter()
            .flat_map(|verb| FATES.map(|fate| (*verb, fate)))
            .filter_map(|(verb, fate)| prepare(&scene, &host, level, verb, fate))
            .collect();
        assert!(prepared.len() == 2 * VERBS.len() || level == "SERIALIZABLE" && prepared.len() > 2);

        for verb in VERBS {
            let name = name(verb, "beside");
            let lease = verb.has_lease().then(|| scene.lease(&name));
            other.ask("BEGIN");
            let called = other.call(&scene.scratch.0, Notify::No, |tx| verb.call(tx, &name, lease));
            called.unwrap_or_else(|error| panic!("{level}: {verb:?} beside what is prepared: {error}"));
            other.ask("COMMIT");
        }
        assert_eq!(scene.admitted(&["free"]).len(), 1);
        let store =
            PostgresStore::connect(&server.url(), scene.scratch.options()).map(std::sync::Arc::new).unwrap();
        Upkeep::new(store.clone()).tick(now()).unwrap();
        store.write(|tx| tx.forget_ended(now() + Duration::from_secs(1), Duration::ZERO, 9)).unwrap();
        scene.audit();

        for Prepared { verb, fate, lease } in &prepared {
            host.ask(&format!("{fate} PREPARED '{}'", name(*verb, fate)));
            scene.audit();
            let Some(lease) = lease else { continue };
            let kept = store.write(|tx| tx.renew(now(), Duration::from_secs(60), &[*lease])).unwrap();
            let is_kept = *fate == "ROLLBACK" || *verb == Verb::Renew;
            assert_eq!(kept == [Renewal::Renewed], is_kept, "{level}: {verb:?}, {fate}: {kept:?}");
        }
        // What was given back or enqueued is admitted now, and what was cancelled is not.
        scene.tick(100);
        for verb in [Verb::Enqueue, Verb::EnqueueInNewLane, Verb::GiveBack, Verb::Clear] {
            if prepared.iter().any(|one| one.verb == verb && one.fate == "COMMIT") {
                assert_eq!(scene.task(&name(verb, "COMMIT")).state, TaskState::Queued, "{level}: {verb:?}");
            }
        }
        scene.audit();
    }
}

/// Only ticks wait for a prepared definition.
#[test]
fn a_prepared_definition_stops_ticks_alone() {
    let Some(server) = OwnServer::start() else { return };
    let scene = Scene::at(&server.url());
    let needed = VERBS.map(|verb| (verb, name(verb, "beside")));
    scene.prepare(&needed);
    let impatient = scene.scratch.options().lock_timeout(Duration::from_millis(300));
    let impatient = PostgresStore::connect(&server.url(), impatient).unwrap();
    let [host, other] = [(); 2].map(|()| Plain::connect(&server.url()));
    other.ask("SET lock_timeout = '10s'");
    for fate in FATES {
        host.ask("BEGIN");
        let other_size = pool("other", fate.len() as u32);
        host.call(&scene.scratch.0, Notify::No, |tx| tx.define([&other_size], IfExists::Replace)).unwrap();
        host.ask("PREPARE TRANSACTION 'definition'");
        for (verb, name) in &needed {
            let lease = verb.has_lease().then(|| scene.lease(name));
            other.ask("BEGIN");
            let called = other.call(&scene.scratch.0, Notify::No, |tx| verb.call(tx, name, lease));
            called.unwrap_or_else(|error| panic!("{verb:?} beside a prepared definition: {error}"));
            other.ask("ROLLBACK");
        }
        let refused = impatient.write(|tx| tx.define([pool("third", 1)], IfExists::Replace)).unwrap_err();
        assert_eq!(kind(&refused), StoreErrorKind::Busy);
        let refused = impatient.write(|tx| tx.admit(now(), &super::scene::order(9))).unwrap_err();
        assert_eq!(kind(&refused), StoreErrorKind::Busy);
        host.ask(&format!("{fate} PREPARED 'definition'"));
        scene.tick(9);
        scene.audit();
    }
}
