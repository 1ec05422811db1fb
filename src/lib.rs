//! Scheduling primitives for workflow orchestrators and job runners: retry backoff, slot pools and admission, sensors
//! that share their polls, shards, and an index of active runs. There is no server and no workflow language, and your
//! program needs no async runtime: it keeps its own graph and links to this crate.
//!
//! Where to go next: [`guide`] has a short program for each common task. [`store::Tx`] lists everything a host does in
//! a transaction. [`service`] contains what runs in the background. Complete programs are in `examples/`: start with
//! `worker_host.rs` and `quickstart.rs`; `web_service` is a whole service on PostgreSQL. [`_postgresql`] sets that
//! store up, `docs/operating.md` shows a store in use, [`_upgrading`] is about new versions. If you know Airflow,
//! [`_coming_from_airflow`] maps its names to those of this crate.
//!
//! # One program
//!
//! A worker runs a task that fails once and is tried again. The task's pool has four slots, however many processes run
//! this program on the file.
//!
#![cfg_attr(feature = "sqlite", doc = "```")]
#![cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
//! use std::{sync::Arc, time::Duration};
//! use stationmaster::admission::IfExists;
//! use stationmaster::backoff::RetryPolicy;
//! use stationmaster::clock::{Clock, SystemClock};
//! use stationmaster::pool::{PoolSpec, Slots};
//! use stationmaster::service::{Attempt, LoopHandle, WakingStore, Worker};
//! use stationmaster::store::{SqliteStore, Store};
//! use stationmaster::{NewTask, TaskKey};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     # let folder = tempfile::tempdir()?;
//!     # std::env::set_current_dir(&folder)?;
//!     let handle = LoopHandle::new(); // stops the worker, and wakes it when there is work
//!     let store = SqliteStore::open("jobs.db", Default::default())?;
//!     let store: Arc<dyn Store> = Arc::new(WakingStore::new(store, handle.clone()));
//!
//!     let now = SystemClock.now(); // a transaction reads no clock: you pass the instant
//!     let retry = RetryPolicy::exponential(Duration::from_secs(1)).max_attempts(3).build()?;
//!     let key = TaskKey::new("prod", "nightly", now.to_string(), "load")?; // namespace, workflow, run, task
//!     let load = NewTask::new(key).pool("db".try_into()?).retry(retry).payload("in.csv");
//!     store.write(|tx| {
//!         tx.define([PoolSpec::new("db", Slots::Limited(4))?], IfExists::Replace)?;
//!         tx.enqueue(now, std::slice::from_ref(&load)) // a known key changes nothing
//!     })?;
//!
//!     let stop = handle.clone(); // in a service: from a signal
//!     let worker = Worker::new(store, "worker-1".try_into()?).places(8).handler(move |attempt: &Attempt| {
//!         let task = attempt.task();
//!         println!("{}, attempt {}: {}", task.key, task.attempt, task.payload); // your work goes here
//!         if task.attempt == 1 {
//!             return Err("no route to host");
//!         }
//!         stop.stop();
//!         Ok(())
//!     });
//!     println!("{} ends were stored", worker.run(&handle)?.stored); // 2: a failure and a success
//!     Ok(())
//! }
//! ```
//!
//! Without a retry policy, the first `Err` fails the task for good. In a service, drive a [`service::Upkeep`]
//! beside the worker, in at least one process: it ends the leases of dead workers. Their tasks run again, up
//! to three times unless [`LeaseLoss`](task::LeaseLoss) says otherwise.
//!
//! # The nouns
//!
//! | | |
//! |---|---|
//! | [`NewTask`], [`TaskKey`] | what asks for slots: one instance of a task in a run of a workflow |
//! | [`pool::PoolSpec`], [`admission::limits`] | what bounds how many run at once |
//! | [`TaskRecord`] | a task as stored: its state, attempt, lease and your payload. A grant returns one |
//! | [`service::Worker`], [`service::Attempt`] | runs your handlers on the tasks that it is granted; what a handler receives |
//! | [`lease::Lease`], [`LeaseRef`] | a timed grant to one holder. Its epoch rises with each grant, so calls under an older one are refused |
//! | [`backoff::RetryPolicy`] | when a failed task runs again |
//! | [`sensor::NewSensor`], [`canonical::PokeContext`] | a task that waits, and what it waits for |
//! | [`run::RunRecord`] | one execution, in the index of active runs |
//! | host, verb | your program; a method of [`store::Tx`] that changes the store, such as `enqueue` |
//! | tick, poke | one step of a service, in short transactions; one check of what a sensor waits for |
//! | [`store::Store`] | where everything is kept: [`store::MemoryStore`], `store::SqliteStore`, `store::PostgresStore`, or your own |
//!
//! # How it is used
//!
//! ```text
//! your graph ──enqueue──> store <──tick── Admitter ──leases──> your workers ──start, finish, register──> store
//!                           ^ ^──tick── Keeper (your leases), Upkeep (expired leases)
//!                           └────tick── Poker (what sensors wait for), FeedReader (tells you what ended)
//! ```
//!
//! 1. Open a store. Define pools and limits. A task that names no pool is in `default_pool`, which has 128
//!    slots until you change that.
//! 2. When a task's dependencies are met, [enqueue](store::Tx::enqueue) it. Enqueueing a known key changes nothing, so
//!    the call is safe to repeat until the task has ended and been deleted (step 5).
//! 3. A [`service::Worker`] runs it with one of your handlers, which are functions. To enqueue the next task in the
//!    transaction that ends this one, call [`Attempt::end`](service::Attempt::end). If the next task depends on several,
//!    call [`in_turn`](service::Attempt::in_turn) first. Or run tasks [yourself](#with-your-own-executor).
//! 4. A task that only waits [registers](store::Tx::register) as a sensor. It releases its slots while
//!    [`service::Poker`] polls on its behalf. The [feed] reports how it ended, as it does for every task that [opted
//!    in](task::Feed): [`service::FeedReader`].
//! 5. [`service::Upkeep`] ends the leases of dead processes. If upkeep itself was late, holders get 20 s (the
//!    [*grace*](service::Upkeep#grace)) to renew before it ends leases. Tick it at least that often. By default it
//!    deletes only feed events that every consumer has accepted.
//!    [`retain_ended_for`](service::Upkeep::retain_ended_for) deletes ended tasks after a time, and
//!    [`retain_state_for`](service::Upkeep::retain_state_for) sets another time for one state, such as failed.
//!    [`retain_feed_for`](service::Upkeep::retain_feed_for) bounds what the feed keeps. Optionally, upkeep also closes
//!    silent runs, deletes stopped ones, and audits the store.
//!
//! An instant is a [`Timestamp`]; verbs also accept chrono's `DateTime<Utc>`. A verb takes many items and returns one
//! value per item, in order. A stale lease is a value, not an error. If you write rows of your own in the same
//! transaction, `.fenced()?` ([`ops::Fenced`]) turns it into [`Error::Stale`], and a finish that was already stored
//! into [`Error::Repeated`]. Otherwise a repeated `start` or `finish` reports that the first one took effect.
//!
//! `write` rolls back if its body returns an error. After a conflict it runs the body again, up to 16 times, so the
//! body must change nothing but the store. If an error [`is_retryable`](Error::is_retryable), nothing was committed and
//! its cause may pass: call again after a pause. If it [`is_indeterminate`](Error::is_indeterminate), the commit may
//! have taken effect. Repeat the call: its result shows whether the first one did.
//!
//! An admitter or a worker can be granted any ready task of the queues it serves. It serves all queues unless you name
//! some. So if your workers differ (by machine, by tenant), name a [queue](NewTask::queue) for each kind.
//!
//! # With your own executor
//!
//! [`service::Admitter`] grants leases on slots to your process. `admit(now, n)` grants at most `n`: pass
//! your number of free places. Or [`service::drive`] calls its `tick` in a loop on one of your threads (on
//! tokio: `tokio::drive`). A tick grants up to the [budget](service::Admitter::budget), which is 512 unless
//! you set it. The loop ticks when the next task is due, and at once when a
//! [`WakingStore`](service::WakingStore) reports new work. [Start](store::Tx::start) the tasks and run them.
//! Leases last 60 s by default, counted from the grant. [`service::Keeper`] renews them, including those of
//! tasks that you have not started yet, and tells you which were lost. Stop the work of those, and
//! [finish](store::Tx::finish) the rest. [`Finish::given_back`](ops::Finish::given_back) returns a task that you will
//! not run. In a transaction of your own, call [`Tx::admit`](store::Tx::admit), as the last verb in it that writes.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::clock::{Clock, SystemClock};
//! # use stationmaster::{NewTask, TaskKey};
//! use stationmaster::ops::{Finish, Finished};
//! use stationmaster::service::{Admitter, Service, Upkeep};
//! use stationmaster::store::MemoryStore;
//!
//! # let (store, now) = (Arc::new(MemoryStore::new()), SystemClock.now());
//! # let retry = stationmaster::backoff::RetryPolicy::fixed(std::time::Duration::from_secs(30)).max_attempts(2).build()?;
//! # store.write(|tx| tx.enqueue(now, &[NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?).retry(retry.clone())]))?;
//! let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?);
//! let keeper = admitter.keeper(); // drive a clone in its own loop: it renews the leases you keep
//! let admission = admitter.admit(now, 4)?; // `admission.refusals` says why the others wait
//!
//! let task = &admission.granted[0]; // `task.key` and `task.attempt` identify the work; `task.payload` is yours
//! let (lease, kept) = (task.lease_ref(), keeper.keep(task));
//! let started = store.write(|tx| tx.start(now, &[lease]))?;
//! assert!(started[0] && !kept.is_lost(), "if the lease was lost, stop that work");
//! let failed = [Finish::failed(lease, "no route to host")]; // outside: `write` may run its body again
//! let finished = store.write(|tx| tx.finish(now, &failed))?;
//! assert!(matches!(finished[0], Finished::RetryAt(at) if at > now)); // by the task's retry policy
//! let mut upkeep = Upkeep::new(store); // once, and then in a loop of its own: its first tick ends no lease
//! assert!(upkeep.tick(now)?.reaped.is_empty());
//! # Ok::<(), stationmaster::Error>(())
//! ```
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

#[cfg(all(doctest, feature = "sqlite"))]
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

#[cfg(any(doc, doctest))]
#[doc = include_str!("../docs/upgrading.md")]
pub mod _upgrading {}

#[cfg(any(doc, all(doctest, feature = "postgres")))]
#[doc = include_str!("../docs/postgresql.md")]
pub mod _postgresql {}
