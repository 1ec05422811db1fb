//! Scheduling primitives for workflow orchestrators and job runners: retry backoff, slot pools and admission, sensors
//! that share their polls, shards, and an index of active runs. There is no server, no async runtime and no workflow
//! language: your program keeps its own graph and links to this crate.
//!
//! Where to go next: [`guide`] has a short program for each common task. [`store::Tx`] lists everything a host does in
//! a transaction. [`service`] contains what runs in the background. Complete programs are in `examples/`: start with
//! `quickstart.rs` and `worker_host.rs`; `web_service` is a whole service on PostgreSQL. If you know Airflow,
//! [`_coming_from_airflow`] (`docs/coming-from-airflow.md`) maps its names to those of this crate.
//!
//! # One program
//!
//! Two tasks share a pool of one slot. The first fails and is retried; the second then succeeds.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use stationmaster::admission::IfExists;
//! use stationmaster::backoff::RetryPolicy;
//! use stationmaster::clock::{Clock, SystemClock};
//! use stationmaster::pool::{PoolSpec, Slots};
//! use stationmaster::ops::{Finish, Finished};
//! use stationmaster::service::{Admitter, Upkeep, Service};
//! use stationmaster::store::MemoryStore;
//! use stationmaster::{NewTask, TaskKey, TaskState};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // On disk: stationmaster::store::SqliteStore::open("jobs.db", Default::default())?
//!     let store = Arc::new(MemoryStore::new());
//!     let retry = RetryPolicy::exponential(Duration::from_secs(30)).max_attempts(3).build()?;
//!     let task = |name| TaskKey::new("prod", "nightly", "2026-01-01", name).map(NewTask::new);
//!     let load = task("load")?.pool("db".try_into()?).retry(retry).payload("copy.sql");
//!     let check = task("check")?.pool("db".try_into()?);
//!
//!     let now = SystemClock.now(); // a transaction reads no clock: you pass the instant
//!     store.write(|tx| {
//!         tx.define([PoolSpec::new("db", Slots::Limited(1))?], IfExists::Replace)?;
//!         tx.enqueue(now, &[load.clone(), check.clone()])
//!     })?;
//!     let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?).lease(Duration::from_secs(60));
//!     let keeper = admitter.keeper(); // a clone of it, in a loop of its own, renews what you keep
//!     let admission = admitter.admit(now, 4)?; // at most as many as you have free places
//!     assert_eq!(admission.refusals[0].reason.to_string(), "pool db: 0 open of 1, needs 1");
//!
//!     let task = &admission.granted[0]; // `task.key` and `task.attempt` say what to run, and your own text does:
//!     assert_eq!(task.payload, "copy.sql");
//!     let (lease, kept) = (task.lease_ref(), keeper.keep(task));
//!     let started = store.write(|tx| tx.start(now, &[lease]))?;
//!     assert!(started[0] && !kept.is_lost(), "if the lease was lost, stop that work");
//!     let failed = [Finish::failed(lease, "no route to host")]; // outside: `write` may run its body again
//!     let finished = store.write(|tx| tx.finish(now, &failed))?;
//!     assert!(matches!(finished[0], Finished::RetryAt(at) if at >= now + Duration::from_secs(30)));
//!
//!     let lease = admitter.admit(now, 4)?.granted[0].lease_ref(); // the slot came back: the other task's turn
//!     store.write(|tx| tx.finish(now, &[Finish::success(lease)]))?;
//!     let tasks = store.read(|tx| tx.tasks(&[load.key.clone(), check.key.clone()]))?;
//!     let states: Vec<TaskState> = tasks.into_iter().flatten().map(|task| task.state).collect();
//!     assert_eq!(states, [TaskState::UpForRetry, TaskState::Success]);
//!     let reaped = Upkeep::new(store).tick(now)?.reaped; // in a loop of its own: ends the leases of dead workers
//!     assert!(reaped.is_empty());
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
//! | [`TaskRecord`] | a task as the store has it: its state, attempt, lease and your payload. A grant returns one |
//! | [`lease::Lease`], [`LeaseRef`] | a timed grant to one holder. Its epoch rises with each grant, so calls under an older one are refused |
//! | [`backoff::RetryPolicy`] | when a failed task runs again |
//! | [`sensor::NewSensor`], [`canonical::PokeContext`] | a task that waits, and what for |
//! | [`run::RunRecord`] | one execution, in the index of active runs |
//! | [`store::Store`] | where all of it is kept: [`store::MemoryStore`], `store::SqliteStore`, `store::PostgresStore`, or your own |
//!
//! # How it is used
//!
//! ```text
//! your graph ──enqueue──> store <──tick── Admitter ──leases──> your workers ──start, finish, register──> store
//!                           ^ ^──tick── Keeper (your leases), Upkeep (expired leases)
//!                           └────tick── Poker (what sensors wait for), FeedReader (tells you what ended)
//! ```
//!
//! If your work is a function of a task, [`service::Worker`] does step 3 for you: it runs your handlers and stores how
//! they ended. The steps one by one:
//!
//! 1. Open a store. Define pools and limits. A task that names no pool is in `default_pool`, which has 128
//!    slots until you change that.
//! 2. When a task's dependencies are met, [enqueue](store::Tx::enqueue) it. Enqueueing a known key changes nothing, so
//!    the call is safe to repeat until the task has ended and been deleted (step 5).
//! 3. [`service::Admitter`] grants leases on slots to your process: `admit(now, n)` for as many tasks as you have free
//!    places. Or let [`service::drive`] call it in a loop on one of your threads (on tokio: `tokio::drive`). The loop
//!    ticks when the next task is due, and at once when a [`WakingStore`](service::WakingStore) reports new work.
//!    [Start](store::Tx::start) the tasks and run them. Leases last 60 s by default, counted from the grant.
//!    [`service::Keeper`] renews them, including those of tasks that you have not started yet, and tells you which
//!    were lost. Stop the work of those, and [finish](store::Tx::finish) the rest.
//!    [`Finish::given_back`](ops::Finish::given_back) returns a task that you will not run.
//! 4. A task that only waits [registers](store::Tx::register) as a sensor. It releases its slots while
//!    [`service::Poker`] polls on its behalf. The [feed] reports how it ended, as it does for every task that [opted
//!    in](task::Feed): [`service::FeedReader`].
//! 5. [`service::Upkeep`] ends the leases of dead processes. After a delay of its own it first lets holders renew, for
//!    a [grace](service::Upkeep#grace) of 20 s; so tick it more often than that. By default it deletes nothing.
//!    [`retain_ended_for`](service::Upkeep::retain_ended_for) deletes ended tasks;
//!    [`retain_state_for`](service::Upkeep::retain_state_for) keeps failed ones longer.
//!    [`retain_feed_for`](service::Upkeep::retain_feed_for) bounds what the feed keeps. Optionally, upkeep also closes
//!    silent runs, deletes stopped ones, and audits the store.
//!
//! An instant is a [`Timestamp`]; verbs also accept chrono's `DateTime<Utc>`. A verb takes many items and returns one
//! value per item, in order. A stale lease is a value, not an error. If you write rows of your own in the same
//! transaction, `.fenced()?` ([`ops::Fenced`]) turns it into [`Error::Stale`], and a finish that was already stored
//! into [`Error::Repeated`]. Otherwise a repeated `start` or `finish` returns that the first took effect.
//!
//! `write` rolls back if its body returns an error. After a conflict it runs the body again, up to 16 times, so the
//! body must change nothing but the store. An error that [`is_retryable`](Error::is_retryable) changed nothing: call
//! again. After one that [`is_indeterminate`](Error::is_indeterminate) the commit may have taken effect: repeat the
//! call, or query the store.
//!
//! An admitter can be granted any ready task of the queues it serves. It serves all queues unless you name some. So if
//! your workers differ (by machine, by tenant), name a [queue](NewTask::queue) for each kind.
//!
//! # Features
//!
#![doc = include_str!("../docs/features.md")]
//!
//! Features are additive. With `default-features = false` the crate needs no C compiler.
//!
//! # Guarantees
//!
#![doc = include_str!("../docs/guarantees.md")]
//!
//! [`_design`] says why they hold and which tests check them. A store of your own gives the same guarantees if it
//! passes the `conformance` suite (feature `testing`).

#![warn(unreachable_pub)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod base;
mod core;
#[cfg(feature = "dashboard")]
pub mod dashboard;
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
    admission, backoff, canonical, feed, fingerprint, lease, pool, run, seconds, sensor, shard, task,
};
#[cfg(feature = "testing")]
pub use self::testing::conformance;

#[doc(no_inline)]
pub use error::{Error, Result};
#[doc(no_inline)]
pub use id::TaskKey;
#[doc(no_inline)]
pub use lease::{LeaseRef, Renewal, TaskId};
#[doc(no_inline)]
pub use task::{NewTask, TaskRecord, TaskState};
#[doc(no_inline)]
pub use time::Timestamp;

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
#[doc = include_str!("../docs/feed.md")]
pub mod _feed {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/active-runs.md")]
pub mod _active_runs {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/history.md")]
pub mod _history {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/listing.md")]
pub mod _listing {}

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/sql.md")]
pub mod _sql {}
