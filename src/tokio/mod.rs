//! Async stores, services and pokes for programs on a tokio runtime. Feature `tokio`.
//!
//! | here | async form of |
//! |---|---|
//! | [`AsyncStore`] | [`read`](crate::store::MemoryStore::read) and [`write`](crate::store::MemoryStore::write), on any [`Store`](crate::store::Store) |
//! | [`AsyncService`], [`AsyncAdmitter`] | a [`Service`](crate::service::Service) |
//! | [`drive`] | [`drive`](crate::service::drive) |
//! | [`Poker::kind_async`](crate::service::Poker::kind_async), [`kind_many_async`](crate::service::Poker::kind_many_async) | [`Poke`](crate::service::Poke), [`PokeMany`](crate::service::PokeMany), as functions that return a future |
//! | [`Worker::handler_async`](crate::service::Worker::handler_async), [`run_async`](crate::service::Worker::run_async), [`Attempt::end_async`](crate::service::Attempt::end_async) | a [`Worker`](crate::service::Worker) whose handlers are futures |
//! | [`LoopHandle::woken_since`](crate::service::LoopHandle::woken_since), [`stopped`](crate::service::LoopHandle::stopped) | its waits, as futures of any runtime |
//!
//! # What runs where
//!
//! Nothing blocks the runtime. Everything here runs on the host's runtime. (A `PostgresStore` also has small runtimes
//! of its own: one for each connection in use and one for the thread that listens. So it needs no other.)
//!
//! * *Transactions and ticks* block: on files, on locks, on a database. They run on the runtime's blocking
//!   threads ([`spawn_blocking`](::tokio::task::spawn_blocking)), which it creates as needed: one for each
//!   running call of an [`AsyncStore`], and one for each [`AsyncService`] that ticks. At most 16 reading and
//!   16 writing calls run at once, unless [`AsyncStore::at_once`] sets another limit. Bodies of transactions
//!   run there, too, so they own what they use.
//! * *Async pokes* are tasks of the runtime. They need no thread, so thousands may be in flight. Each kind
//!   has a limit. Other pokes run on the poker's own threads.
//! * *Time limits and sleeping* use the runtime's timer (`enable_time`). [`drive`] needs it, and so does an
//!   [`AsyncStore`] whose store has a lock timeout.
//! * The host's task itself polls what it awaits. Nothing is spawned for that.
//!
//! Outside a runtime everything returns [`Error::NoRuntime`](crate::Error::NoRuntime) and does nothing.
//!
//! # Dropping futures
//!
//! Every future may be dropped at any await. Nothing is lost, and no slot leaks:
//!
//! * *A transaction either runs to its end or never begins.* If a call waits for a place when its future is dropped,
//!   it is never made. The caller does not know which happened, so it queries the store or repeats the call. A verb
//!   is idempotent, or fenced by the lease's epoch, so it has no second effect. The exception is `clear`: a task that
//!   ended again meanwhile runs once more.
//! * *A tick runs to its end*, and its report waits for the next call. What an admitter granted to a dropped
//!   call is returned by its next call. If the admitter is dropped, too, the grants are given back. See
//!   [`AsyncService`].
//! * *A poke* is dropped at its next await when its poker is dropped or leaves. Its sensors wait for the next
//!   poker.
//! * *When the runtime is shut down*, a call that no thread had begun is not made. Grants that no one
//!   received are given back before the shutdown ends.
//!
//! # Examples
//!
//! A host that admits until its handle is stopped:
//!
//! ```
//! use std::ops::ControlFlow;
//! use std::sync::Arc;
//! use std::time::Duration;
//! use stationmaster::clock::{Clock, SystemClock};
//! use stationmaster::ops::Finish;
//! use stationmaster::service::{Admitter, LoopHandle, WakingStore};
//! use stationmaster::store::MemoryStore;
//! use stationmaster::tokio::{AsyncAdmitter, AsyncService, AsyncStore, drive};
//! use stationmaster::{NewTask, TaskKey};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), stationmaster::Error> {
//! let handle = LoopHandle::new();
//! let store = AsyncStore::new(Arc::new(WakingStore::new(MemoryStore::new(), handle.clone())));
//! let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
//! store.write(move |tx| tx.enqueue(SystemClock.now(), std::slice::from_ref(&task))).await?;
//!
//! let admitter = Admitter::new(store.store().clone(), "worker-1".try_into()?);
//! let keeper = admitter.keeper();
//! let (mut keeping, mut admitter) = (AsyncService::new(keeper.clone()), AsyncAdmitter::new(admitter));
//! let mut work = tokio::task::JoinSet::new();
//! let keep = drive(&mut keeping, &SystemClock, &handle, Duration::from_secs(60), |_| ControlFlow::Continue(()));
//! let admit = drive(&mut admitter, &SystemClock, &handle, Duration::from_secs(60), |admission| {
//!     for task in admission.into_iter().flat_map(|admission| admission.granted) {
//!         let (store, handle, kept) = (store.clone(), handle.clone(), keeper.keep(&task));
//!         work.spawn(async move {
//!             let lease = kept.lease();
//!             store.write(move |tx| tx.start(SystemClock.now(), &[lease])).await?;
//!             tokio::select! {
//!                 () = tokio::task::yield_now() => {} // the work
//!                 () = kept.lost() => return Ok(vec![]), // another holder may have the task
//!             }
//!             let finished = store.write(move |tx| tx.finish(SystemClock.now(), &[Finish::success(lease)])).await;
//!             handle.stop(); // this host has one task
//!             finished
//!         });
//!     }
//!     ControlFlow::Continue(())
//! });
//! tokio::try_join!(keep, admit)?;
//! while let Some(done) = work.join_next().await {
//!     println!("{:?}", done.expect("no panic")?);
//! }
//! assert!(store.read(|tx| tx.audit()).await?.is_empty());
//! # Ok(())
//! # }
//! ```

mod blocking;
mod driver;
mod poke;
mod service;
mod store;
mod worker;

pub use driver::drive;
pub use service::{AsyncAdmitter, AsyncService};
pub use store::AsyncStore;
