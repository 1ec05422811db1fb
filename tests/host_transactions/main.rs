//! Transactions that the host owns: its rows and the store's become visible together or not at all, and its
//! connection stays its own.
#![cfg(any(feature = "sqlite", feature = "postgres"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod host;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
#[path = "../scratch/mod.rs"]
mod scratch;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::time::Duration;

use stationmaster::error::Invalid;
use stationmaster::ops::{AdmitRequest, Fenced, Finish};
use stationmaster::store::Tx;
use stationmaster::task::LeaseLoss;
use stationmaster::testing::{Step, life, raw};
use stationmaster::{Error, LeaseRef, NewTask, Result, TaskKey, Timestamp};

use crate::host::hosts;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn key(task: &str) -> TaskKey {
    TaskKey::new("ns", "w", "r", task).unwrap()
}

fn order(tick: &str) -> AdmitRequest {
    AdmitRequest::new("w".try_into().unwrap(), tick.try_into().unwrap(), 9, Duration::from_secs(30))
}

/// Is refused in a PostgreSQL transaction that the host owns. The store's own transaction makes it instead.
fn is_tick(step: &Step) -> bool {
    step.name.starts_with("admit") || step.name == "forget_requests"
}

#[test]
fn every_operation_commits_with_the_hosts_rows_or_vanishes_with_them() {
    for mut host in hosts() {
        let mut ticks = 0;
        for (id, step) in (1..).zip(life()) {
            // A host's transaction leaves it to the services to number the events that it noted.
            host.store().write(|tx| Ok(raw(tx).number_changes(99)?)).unwrap();
            let before = host.rows();
            if host.refuses_ticks() && is_tick(&step) {
                let refused = host.ship(id, &mut |tx| (step.run)(tx));
                let is_tick = matches!(refused, Err(Error::Invalid(Invalid::TickInHostTransaction)));
                assert!(is_tick, "{}: {refused:?}", step.name);
                assert_eq!(host.rows(), before, "{} was refused", step.name);
                host.store().write(|tx| (step.run)(tx)).unwrap();
                ticks += 1;
                continue;
            }
            let mut rolled_back = 0;
            let refused = host.ship(id, &mut |tx| {
                (step.run)(tx)?;
                assert_eq!(tx.audit()?, [], "{}", step.name);
                rolled_back += 1;
                Err(Error::abort("the host changed its mind"))
            });
            assert!(matches!(refused, Err(Error::Aborted(_))), "{}: {refused:?}", step.name);
            assert_eq!((rolled_back, host.rows()), (1, before.clone()), "{} was rolled back", step.name);
            host.ship(id, &mut |tx| (step.run)(tx)).unwrap_or_else(|error| panic!("{}: {error}", step.name));
            let after = host.rows();
            assert_ne!(after.ours, before.ours, "{} writes", step.name);
            assert_eq!(after.orders, before.orders + 1);
            let seen = host.store().read(|tx| tx.audit()).unwrap();
            assert_eq!(seen, [], "{}: seen by the store's own handle", step.name);
        }
        assert_eq!(ticks, if host.refuses_ticks() { 3 } else { 0 });
    }
}

type Body = fn(&mut Tx<'_>, &[LeaseRef]) -> Result<()>;

#[test]
fn a_stale_lease_fails_the_hosts_function_and_its_rows_go_too() {
    let two = ["a", "b"].map(|name| NewTask::new(key(name)).lease_loss(LeaseLoss::Requeue { at_most: 1 }));
    let bodies: [Body; 4] = [
        |tx, leases| tx.start(at(61), leases)?.fenced().map(drop),
        |tx, leases| tx.renew(at(61), Duration::from_secs(9), leases)?.fenced().map(drop),
        |tx, leases| {
            let ends: Vec<_> = leases.iter().rev().map(|lease| Finish::success(*lease)).collect();
            tx.finish(at(61), &ends)?.fenced().map(drop)
        },
        |tx, leases| {
            use stationmaster::{canonical::PokeContext, sensor::*};
            let settings = Settings::new(Duration::from_secs(1), Duration::from_secs(9))?;
            let context = || PokeContext::from_json("{}").unwrap();
            let sensors: Vec<_> = leases
                .iter()
                .map(|lease| NewSensor::new(*lease, "k".try_into().unwrap(), context(), settings))
                .collect();
            tx.register(at(61), &sensors)?.fenced().map(drop)
        },
    ];
    for mut host in hosts() {
        let admission = host.store().write(|tx| {
            tx.enqueue(at(0), &two)?;
            tx.admit(at(0), &order("t1"))
        });
        let leases: Vec<LeaseRef> = admission.unwrap().granted.iter().map(|task| task.lease_ref()).collect();
        let reaped = host.store().write(|tx| {
            tx.start(at(0), &leases)?;
            tx.reap(at(60), 1)
        });
        assert_eq!(reaped.unwrap().len(), 1, "the first of the two is lost");
        let before = host.rows();
        for body in bodies {
            let refused = host.ship(1, &mut |tx| body(tx, &leases)).unwrap_err();
            assert!(matches!(&refused, Error::Stale { stale, of: 2 } if !stale.is_empty()), "{refused}");
            assert!(!refused.is_retryable());
            assert_eq!(host.rows(), before, "the order went, and so did what was done under the good lease");
        }
        let good = [Finish::success(leases[1])];
        host.ship(1, &mut |tx| tx.finish(at(61), &good)?.fenced().map(drop)).unwrap();
        assert_eq!(host.rows().orders, 1);
        assert_ne!(host.rows().ours, before.ours);
    }
}
