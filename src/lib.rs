//! Scheduling primitives for workflow orchestrators and job runners, in one library: retry backoff, slot
//! pools and admission, sensors that share their polls, shards, and an index of active runs. No server, no
//! async runtime, no workflow language: a program that has a graph of its own links it in.
//!
//! Where to go next: [`guide`] has short programs by task; [`store::Tx`] lists everything a host does in a
//! transaction; [`service`] has what runs in the background. Whole programs are in `examples/`,
//! `quickstart.rs` first. Names for those who know Airflow: `docs/coming-from-airflow.md`, here as
//! [`_coming_from_airflow`].
//!
//! # One program
//!
//! Two tasks share a pool of one slot; the first fails and is retried.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use stationmaster::backoff::RetryPolicy;
//! use stationmaster::clock::{Clock, SystemClock};
//! use stationmaster::pool::{PoolSpec, Slots};
//! use stationmaster::ops::{Finish, Finished};
//! use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! use stationmaster::store::MemoryStore;
//! use stationmaster::{NewTask, TaskKey};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let store = Arc::new(MemoryStore::new()); // or stationmaster::store::SqliteStore::open("jobs.db", Default::default())?
//!     let retry = RetryPolicy::exponential(Duration::from_secs(30)).max_attempts(3).build()?;
//!     let task = |name| TaskKey::new("prod", "nightly", "2026-01-01", name).map(NewTask::new);
//!     let tasks = [task("load")?, task("check")?].map(|task| task.pool("db".try_into().unwrap()).retry(retry.clone()));
//!     let now = SystemClock.now();
//!     store.write(|tx| {
//!         tx.put_pools(&[PoolSpec::new("db", Slots::Limited(1))?])?; // one at a time
//!         tx.enqueue(now, &tasks)
//!     })?;
//!     let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?, AdmitterOptions::default())?;
//!     let admission = admitter.tick(now)?;
//!     assert_eq!(admission.granted.len(), 1);
//!     assert_eq!(admission.refusals[0].reason.to_string(), "pool db: 0 open of 1, needs 1");
//!
//!     let lease = admission.granted[0].lease_ref();
//!     store.write(|tx| tx.start(now, &[lease]))?;
//!     let finished = store.write(|tx| tx.finish(now, &[Finish::failed(lease, "no route to host")]))?;
//!     assert!(matches!(finished[0], Finished::RetryAt(at) if at >= now + Duration::from_secs(30)));
//!     assert_eq!(admitter.tick(now)?.granted.len(), 1, "the slot came back: the other task's turn");
//!     Ok(())
//! }
//! ```
//!
//! # The nouns
//!
//! | | |
//! |---|---|
//! | [`NewTask`], [`TaskKey`] | what asks for slots: one instance of a task in a run of a workflow |
//! | [`pool::PoolSpec`], [`admission::limits`] | what bounds how many run at once |
//! | [`lease::Lease`], [`LeaseRef`] | a timed grant to one holder, fenced by an epoch |
//! | [`backoff::RetryPolicy`] | when a failed task runs again |
//! | [`sensor::NewSensor`], [`canonical::PokeContext`] | a task that waits, and what for |
//! | [`run::RunRecord`] | one execution, in the index of active runs |
//! | [`store::Store`] | where all of it is kept: [`store::MemoryStore`], `store::SqliteStore`, or one of yours |
//!
//! # How it is used
//!
//! ```text
//! your graph ──enqueue──> store <──tick── Admitter ──leases──> your workers ──start, renew, finish, register──> store
//!                           ^ ^──tick── Reaper (expired leases)
//!                           └────tick── Poker (what sensors wait for), Delivery (tells you how they ended)
//! ```
//!
//! 1. Open a store. Define pools and limits.
//! 2. When a task's dependencies are met, [enqueue](store::Tx::enqueue) it. A key that is known already is
//!    left as it is, so the call may be repeated.
//! 3. [`service::Admitter`] grants leases on slots to your process; [start](store::Tx::start) the
//!    tasks, run them, [renew](store::Tx::renew) their leases meanwhile (they hold for 60 seconds
//!    unless you say otherwise), stop the work whose lease was lost, and [finish](store::Tx::finish)
//!    the rest.
//! 4. A task that only waits [registers](store::Tx::register) as a sensor and gives its slots back;
//!    [`service::Poker`] polls for it.
//! 5. [`service::Reaper`] takes back what dead processes held, and forgets ended tasks if you say after how
//!    long ([`service::ReaperOptions::retain_ended_for`]); unless you do, they are kept for ever. So are the events
//!    of sensors until they are acknowledged, and with them their tasks, unless you set
//!    [`service::ReaperOptions::retain_events_for`].
//!
//! An admitter may be granted any task that is ready in its store. So every process that admits must be able
//! to run every task, or hand it to one that can; workers that differ (by machine, by tenant) are reached by
//! your own dispatch, or have stores of their own.
//!
//! # Features
//!
#![doc = include_str!("../docs/features.md")]
//!
//! Without features it needs no C compiler and no runtime. Features only add.
//!
//! # Guarantees
//!
#![doc = include_str!("../docs/guarantees.md")]
//!
//! What they rest on, and which tests hold them: [`_design`]. A store of your own has them if it passes
//! `conformance`.

#![warn(unreachable_pub)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod base;
mod core;
#[cfg(any(doc, doctest))]
pub mod guide;
pub mod ops;
pub mod service;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use self::base::{bounds, clock, error, id, time};
pub use self::core::{
    admission, backoff, canonical, fingerprint, lease, pool, run, seconds, sensor, shard, task,
};
#[cfg(feature = "testing")]
pub use self::testing::conformance;

#[doc(no_inline)]
pub use error::{Error, Result};
#[doc(no_inline)]
pub use id::TaskKey;
#[doc(no_inline)]
pub use lease::{LeaseRef, TaskId};
#[doc(no_inline)]
pub use task::{NewTask, TaskRecord, TaskState};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/coming-from-airflow.md")]
pub mod _coming_from_airflow {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/design.md")]
pub mod _design {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/admission.md")]
pub mod _admission {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/sensors.md")]
pub mod _sensors {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/active-runs.md")]
pub mod _active_runs {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/sql.md")]
pub mod _sql {}
