//! Short programs, one for each common task. Most use the names below. Some hide further lines, such as those that
//! enqueue a task: the source of this page, `src/guide.rs`, has every line.
//!
//! ```
//! use std::sync::Arc;
//! use stationmaster::clock::{Clock, SystemClock};
//! use stationmaster::service::{Admitter, Service};
//! use stationmaster::store::{MemoryStore, Store};
//! use stationmaster::{NewTask, TaskKey, TaskState};
//!
//! let store = Arc::new(MemoryStore::new()); // or stationmaster::store::SqliteStore::open("jobs.db", Default::default())?
//! let now = SystemClock.now();
//! let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?);
//! # store.write(|tx| tx.enqueue(now, &[task("load")]))?;
//! # assert_eq!(admitter.tick(now)?.granted.len(), 1);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! Complete programs are in `examples/`: read `worker_host.rs` first, then `quickstart.rs`. `web_service` is a whole
//! service: axum, PostgreSQL, its own tables, and two kinds of workers. `threads_host.rs` and `tokio_host.rs` run a
//! worker beside a poker and upkeep, on threads and on tokio.
//!
//! * [Run tasks with a worker](#run-tasks-with-a-worker)
//! * [Start what follows when its dependencies are done](#start-what-follows-when-its-dependencies-are-done)
//! * [Limit a database to 4 tasks](#limit-a-database-to-4-tasks)
//! * [Limit a tenant to 10](#limit-a-tenant-to-10)
//! * [Let a big task through](#let-a-big-task-through)
//! * [Many customers: a maximum and a rate for each](#many-customers-a-maximum-and-a-rate-for-each)
//! * [Many customers: a fair share for each](#many-customers-a-fair-share-for-each)
//! * [Workers that differ](#workers-that-differ)
//! * [Why does this task not run?](#why-does-this-task-not-run)
//! * [Retry with Airflow's times](#retry-with-airflows-times)
//! * [Keep a lease while the work runs](#keep-a-lease-while-the-work-runs)
//! * [Cancel a task](#cancel-a-task)
//! * [Run again what a dead worker held](#run-again-what-a-dead-worker-held)
//! * [Keep the store in order](#keep-the-store-in-order)
//! * [Wait for a file without a worker](#wait-for-a-file-without-a-worker)
//! * [Call back when a task ends](#call-back-when-a-task-ends)
//! * [Who ran last night at 3?](#who-ran-last-night-at-3)
//! * [Run something each minute](#run-something-each-minute)
//! * [Commit with my own rows](#commit-with-my-own-rows)
//! * [Many machines](#many-machines)
//! * [From threads](#from-threads)
//! * [From tokio](#from-tokio)
//! * [Test with a virtual clock](#test-with-a-virtual-clock)
//! * [Metrics](#metrics)
//!
//! # Run tasks with a worker
//!
//! A [`Worker`](crate::service::Worker) admits as many tasks as it has places for, renews their leases, starts them,
//! runs your handlers, and stores how they ended. A failed task is retried by its own policy. Without a policy, the
//! first `Err` fails the task for good. On tokio, handlers can be futures. `examples/worker_host.rs` is a complete
//! host.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "films", "2026-01-01", name).unwrap());
//! use std::time::Duration;
//! use stationmaster::ops::Outcome;
//! use stationmaster::service::{Attempt, LoopHandle, WakingStore, Worker};
//!
//! let handle = LoopHandle::new(); // stop it from a signal
//! let store: Arc<dyn Store> = Arc::new(WakingStore::new(MemoryStore::new(), handle.clone()));
//! store.write(|tx| tx.enqueue(now, &[task("cut"), task("render").queue("gpu".try_into()?)]))?;
//!
//! let worker = Worker::new(store.clone(), "worker-1".try_into()?)
//!     .queue("default".try_into()?, 8) // at most 8 at once
//!     .queue("gpu".try_into()?, 2)
//!     .max_run(|_task| Some(Duration::from_secs(3_600)))
//!     .handler(|attempt: &Attempt| {
//!         if attempt.wait(Duration::from_millis(1)) { // the work
//!             return Ok(Outcome::GivenBack); // the handler is to stop, so another worker may have the task at once
//!         }
//!         Ok::<_, std::io::Error>(().into())
//!     })
//!     // The task after this one, in the same transaction as this one's end.
//!     .queue_handler("gpu".try_into()?, {
//!         let stop = handle.clone();
//!         move |attempt: &Attempt| {
//!             attempt.end((), |tx| tx.enqueue(now, &[task("publish")]).map(drop))?;
//!             stop.stop();
//!             Ok::<_, stationmaster::Error>(())
//!         }
//!     });
//! worker.run(&handle)?;
//! assert!(store.read(|tx| tx.tasks(&[task("publish").key]))?[0].is_some());
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! A handler may run more than once for one task: after a failure, after a lost lease, and after the task was
//! given back. The task's end takes effect once, and so does everything else in the transaction of that end.
//! To write rows of your own, call [`Attempt::end_in`](crate::service::Attempt::end_in) in your transaction, commit,
//! and then call [`Attempt::ended_elsewhere`](crate::service::Attempt::ended_elsewhere).
//! On tokio, `Attempt::end_by` does this, and repeats the transaction where that helps: [*Commit with my own
//! rows*](#commit-with-my-own-rows).
//!
//! # Start what follows when its dependencies are done
//!
//! End each task in a transaction that looks at the others, and enqueue what follows if all have succeeded.
//! [`in_turn`](crate::service::Attempt::in_turn) serializes the transactions that pass the same name. Without it, two
//! tasks that end at once on PostgreSQL may not see each other's end, and the next task is never enqueued. It applies to
//! [`end`](crate::service::Attempt::end) and [`end_in`](crate::service::Attempt::end_in). Without a worker, call
//! [`serialize`](crate::store::Tx::serialize) before the task is ended.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey, TaskState};
//! # use stationmaster::clock::{Clock, SystemClock};
//! # use stationmaster::store::{MemoryStore, Store};
//! # use stationmaster::service::{LoopHandle, WakingStore};
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "films", "film-7", name).unwrap());
//! # let handle = LoopHandle::new();
//! # let store: Arc<dyn Store> = Arc::new(WakingStore::new(MemoryStore::new(), handle.clone()));
//! # let stop = handle.clone();
//! use stationmaster::service::{Attempt, Worker};
//!
//! let cut_or_render = move |attempt: &Attempt| {
//!     let film = format!("prod/films/{}", attempt.task().key.run); // both tasks of a film have its run
//!     attempt.in_turn(&[film.as_str()]).end((), |tx| {
//!         let both = tx.tasks(&[task("cut").key, task("render").key])?;
//!         if both.iter().flatten().all(|task| task.state == TaskState::Success) {
//!             tx.enqueue(SystemClock.now(), &[task("publish")])?;
//!         }
//!         Ok(())
//!     })
//! };
//! store.write(|tx| tx.enqueue(now, &[task("cut"), task("render")]))?;
//! let worker = Worker::new(store.clone(), "worker-1".try_into()?).handler(cut_or_render);
//! # let worker = worker.task_handler("films".try_into()?, "publish".try_into()?, move |_: &Attempt| stop.stop());
//! # worker.run(&handle)?;
//! # assert!(store.read(|tx| tx.tasks(&[task("publish").key]))?[0].is_some());
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # Limit a database to 4 tasks
//!
//! A pool has slots. A task names its pool and how many slots it takes. More: [`pool`](crate::pool).
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?);
//! use stationmaster::admission::IfExists;
//! use stationmaster::pool::{PoolSpec, Slots};
//!
//! store.write(|tx| tx.define([PoolSpec::new("database", Slots::Limited(4))?], IfExists::Replace))?;
//! let loads: Vec<NewTask> = (0..9).map(|n| task(&format!("load-{n}")).pool("database".try_into().unwrap())).collect();
//! store.write(|tx| tx.enqueue(now, &loads))?;
//! assert_eq!(admitter.tick(now)?.granted.len(), 4);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! A program may define its pools each time it starts. With `IfExists::Replace` its own size applies again.
//! With `IfExists::Leave` the size that an operator has set meanwhile stays. So a later change of the number in your
//! program has no effect on a store that has the pool. Neither ends a pause.
//!
//! # Limit a tenant to 10
//!
//! A task counts against a limit because it carries the limit's key; it may carry several. More:
//! [`admission::limits`](crate::admission::limits).
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?);
//! use stationmaster::admission::IfExists;
//! use stationmaster::admission::limits::LimitSpec;
//!
//! let tenant = LimitSpec::new("tenant/acme".try_into()?, 10)?;
//! store.write(|tx| tx.define([&tenant], IfExists::Replace))?;
//! let tasks: Vec<NewTask> = (0..99).map(|n| task(&format!("t{n}")).limit(tenant.key.clone())).collect();
//! store.write(|tx| tx.enqueue(now, &tasks))?;
//! assert_eq!(admitter.tick(now)?.granted.len(), 10);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # Let a big task through
//!
//! By default whatever fits goes first, so a task that needs many slots can wait forever behind small ones. More:
//! [`admission::Policy`](crate::admission::Policy), and [`admission::Ageing`](crate::admission::Ageing) for old tasks
//! behind urgent ones.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! use std::time::Duration;
//! use stationmaster::admission::Policy;
//!
//! // Whatever has waited for ten minutes has the open slots of its pool kept for it.
//! let admitter = Admitter::new(store, "worker-1".try_into()?).policy(Policy::Reserve { after: Duration::from_secs(600) });
//! # drop(admitter);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # Many customers: a maximum and a rate for each
//!
//! A family is all keys that begin with a prefix. Its definition applies to each of these keys separately. More:
//! [`limits`](crate::admission::limits).
//!
//! A window of length `t` has at most `burst + starts * t / period` starts. So if any minute may have at most 10
//! starts, write `Rate::new(5, minute)?.burst(5)?`, not `Rate::new(10, minute)?.burst(10)?`.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?);
//! use std::time::Duration;
//! use stationmaster::admission::limits::{LimitSpec, Rate};
//! use stationmaster::admission::{IfExists, Subject};
//!
//! // At most 10 of a customer at once, and 60 in a minute after the first 5.
//! let rate = Rate::new(60, Duration::from_secs(60))?.burst(5)?;
//! let customers = LimitSpec::new("customer/".try_into()?, 10)?.rate(rate).family();
//! store.write(|tx| tx.define([&customers], IfExists::Replace))?;
//! let of = |customer: &str, n: u32| task(&format!("{customer}{n}")).limit(format!("customer/{customer}").try_into().unwrap());
//! let tasks: Vec<NewTask> = (0..9).flat_map(|n| [of("a", n), of("b", n)]).collect();
//! store.write(|tx| tx.enqueue(now, &tasks))?;
//! let first = admitter.tick(now)?;
//! assert_eq!((first.granted.len(), first.next_due), (10, Some(now + Duration::from_secs(1))));
//!
//! // Customer b is paused. Its running tasks go on.
//! let b = [Subject::Key("customer/b".try_into()?)];
//! store.write(|tx| tx.pause(&b))?;
//! assert_eq!(admitter.tick(now + Duration::from_secs(4))?.granted.len(), 4);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # Many customers: a fair share for each
//!
//! A share key divides a pool among the customers that have waiting tasks, by what each holds now. Each customer gets
//! one part, unless a `LimitSpec` for its key sets another weight. If a family covers all customers, a `LimitSpec` for
//! one key replaces the family for that customer: set its maximum and rate again beside the weight. More:
//! [`NewTask::share`](crate::NewTask::share).
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::admission::IfExists;
//! # use stationmaster::admission::limits::LimitSpec;
//! # use stationmaster::pool::{PoolSpec, Slots};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?);
//! // Customer a has three parts of 8 slots, and every other one has one.
//! let large = LimitSpec::of("customer/a".try_into()?).weight(3);
//! store.write(|tx| {
//!     tx.define([PoolSpec::new("default_pool", Slots::Limited(8))?], IfExists::Replace)?;
//!     tx.define([&large], IfExists::Replace)
//! })?;
//! let of = |customer: &str, n: u32| task(&format!("{customer}{n}")).share(format!("customer/{customer}").try_into().unwrap());
//! // Customer b was there first, with more than the pool holds.
//! let tasks: Vec<NewTask> = (0..9).map(|n| of("b", n)).chain((0..9).map(|n| of("a", n))).collect();
//! store.write(|tx| tx.enqueue(now, &tasks))?;
//! let granted = admitter.tick(now)?.granted;
//! let of_a = granted.iter().filter(|task| task.lane.share.as_ref() == Some(&large.key)).count();
//! assert_eq!((granted.len(), of_a), (8, 6));
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # Workers that differ
//!
//! A task may name a queue, and an admitter may name the queues it serves. Slots still belong to pools, whichever queue
//! holds them. More: [`AdmitRequest::serves`](crate::ops::AdmitRequest::serves).
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "films", "2026-01-01", name).unwrap());
//! let mut cpu = Admitter::new(store.clone(), "worker-cpu-1".try_into()?).serves(["default".try_into()?]);
//!
//! store.write(|tx| tx.enqueue(now, &[task("cut"), task("render").queue("gpu".try_into()?)]))?;
//! assert_eq!(cpu.tick(now)?.granted.len(), 1);
//! let queues = store.read(|tx| tx.queues())?;
//! assert_eq!((queues[1].name.as_str(), queues[1].waiting, queues[1].served_until), ("gpu", 1, None));
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # Why does this task not run?
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//!
//! let load = task("load").pool("databsae".try_into()?);
//! store.write(|tx| tx.enqueue(now, &[load.clone()]))?;
//! let why = store.read(|tx| tx.explain(now, std::slice::from_ref(&load.key)))?;
//! assert_eq!(why[0].to_string(), "pool databsae: does not exist");
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! After each tick, [`ops::Admission::refusals`](crate::ops::Admission::refusals) has the reasons for all waiting
//! tasks, with numbers. Before a tick, [`preview`](crate::store::ReadTx::preview) returns what it would admit, and
//! [`positions`](crate::store::ReadTx::positions) returns how many tasks are ahead of a task, and
//! [`first_ready`](crate::store::ReadTx::first_ready) which ones.
//!
//! # Retry with Airflow's times
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?);
//! use std::time::Duration;
//! use stationmaster::backoff::{AirflowVersion, RetryPolicy};
//! use stationmaster::ops::{Finish, Finished};
//!
//! let retry = RetryPolicy::airflow(AirflowVersion::V2_10, Duration::from_secs(300)).max_attempts(4).build()?;
//! let date: chrono::DateTime<chrono::Utc> = "2026-01-01T00:00:00Z".parse().unwrap();
//! store.write(|tx| tx.enqueue(now, &[task("load").logical_date(date).retry(retry.clone())]))?;
//! let lease = admitter.tick(now)?.granted[0].lease_ref();
//! store.write(|tx| tx.start(now, &[lease]))?;
//! let finished = store.write(|tx| tx.finish(now, &[Finish::failed(lease, "no route to host")]))?;
//! assert_eq!(finished, [Finished::RetryAt(now + Duration::from_secs(487))]); // as Airflow 2.10 and 2.11 wait
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! The crate's own policies have better jitter, budgets and hints: [`backoff`](crate::backoff). To compute a delay
//! without a task, call [`backoff::delay`](crate::backoff::delay).
//!
//! # Keep a lease while the work runs
//!
//! A lease lasts 60 seconds unless the admitter sets another length. A keeper renews the leases you hold and tells you
//! which you lost. More: [`service::Keeper`](crate::service::Keeper).
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?);
//! store.write(|tx| tx.enqueue(now, &[task("load"), task("check")]))?;
//! let mut keeper = admitter.keeper(); // `drive` a clone of it: on a thread, or on tokio
//! let granted = admitter.tick(now)?.granted;
//! let (load, check) = (keeper.keep(&granted[0]), keeper.keep(&granted[1]));
//!
//! let later = keeper.next_due().expect("there are leases"); // after a third of their length
//! assert_eq!(keeper.tick(later)?.renewed, 2);
//! load.on_lost(|| println!("stop the work")); // or look at `is_lost()`, or await `lost()`
//! assert!(load.holds(later)); // right before an effect that no transaction of the store undoes
//!
//! drop(check); // not renewed any more
//! assert_eq!(keeper.give_back(later)?, 1); // at the end: what is still kept is ready again at once
//! assert!(load.is_lost());
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # Cancel a task
//!
//! A waiting task ends at once. A running task's handler is asked to stop and has a grace to do so. Until then the task
//! keeps its slots. A [`WakingStore`](crate::service::WakingStore) with the worker's handle notifies the handler at
//! once. On PostgreSQL `LoopHandle::listen` does the same for tasks that other processes cancel. Otherwise the
//! worker learns of the cancel when it renews, after a third of its lease: choose a longer grace than that.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey, TaskState};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "films", "2026-01-01", name).unwrap());
//! use std::time::Duration;
//! use stationmaster::clock::{Clock, SystemClock};
//! use stationmaster::ops::Outcome;
//! use stationmaster::service::{Attempt, Cancelled, LoopHandle, WakingStore, Worker};
//!
//! let handle = LoopHandle::new();
//! let store: Arc<dyn Store> = Arc::new(WakingStore::new(MemoryStore::new(), handle.clone()));
//! store.write(|tx| tx.enqueue(now, &[task("cut"), task("trailer").queue("later".try_into()?)]))?;
//!
//! let stop = handle.clone();
//! let worker = Worker::new(store.clone(), "worker-1".try_into()?)
//!     .queue("default".try_into()?, 1)
//!     .handler(move |attempt: &Attempt| {
//!         let (grace, keys) = (Duration::from_secs(60), [task("cut").key, task("trailer").key]);
//!         // As an operator's page would.
//!         attempt.store().write(|tx| tx.cancel(SystemClock.now(), grace, &keys, "not wanted any more"))?;
//!         while !attempt.wait(Duration::from_secs(1)) {} // the work
//!         assert!(matches!(attempt.cancelled(), Some(Cancelled::Requested { .. })));
//!         stop.stop();
//!         Ok::<_, stationmaster::Error>(Outcome::GivenBack) // or a success, if the work is done by now
//!     });
//! worker.run(&handle)?;
//! let ended = store.read(|tx| tx.tasks(&[task("cut").key, task("trailer").key]))?;
//! assert!(ended.iter().flatten().all(|task| task.state == TaskState::Cancelled));
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! A cancelled task is never tried again, whatever its handler returns; a success stays a success. If you renew leases
//! without a worker, use [`Kept::on_cancelled`](crate::service::Kept::on_cancelled).
//! [`Tx::cancel`](crate::store::Tx::cancel) has all the rules.
//!
//! # Run again what a dead worker held
//!
//! By default a task runs again after each of its first 3 lost leases. [`task::LeaseLoss`](crate::task::LeaseLoss)
//! changes that.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?);
//! use stationmaster::service::Upkeep;
//!
//! store.write(|tx| tx.enqueue(now, &[task("load")]))?;
//! let lost = admitter.tick(now)?.granted; // and then the worker dies
//! let mut upkeep = Upkeep::new(store.clone());
//! let (mut later, mut reaped) = (now, upkeep.tick(now)?);
//! while let (true, Some(due)) = (reaped.reaped.is_empty(), reaped.next_due) {
//!     (later, reaped) = (due, upkeep.tick(due)?);
//! }
//! assert_eq!(later, now + std::time::Duration::from_secs(60), "the lease that it lost");
//! assert_eq!(admitter.tick(later)?.granted[0].key, lost[0].key);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! A process that restarts under the same name need not wait for the expiry. It asks for the leases that it holds. If
//! the work goes on elsewhere, for example as a job on a cluster, it keeps them:
//! [`Keeper::keep`](crate::service::Keeper::keep). If the work died with the process, as the handlers of a
//! [`Worker`](crate::service::Worker) do, it ends them as failed, and each task's retry policy decides at once. Do not
//! give them back: a task that kills its process would then run forever.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::MemoryStore;
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let retry = stationmaster::backoff::RetryPolicy::fixed(std::time::Duration::from_secs(9)).max_attempts(3).build()?;
//! # let task = NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", "load")?).retry(retry);
//! # store.write(|tx| tx.enqueue(now, &[task.clone()]))?;
//! # Admitter::new(store.clone(), "worker-1".try_into()?).tick(now)?;
//! use stationmaster::ops::{Finish, Finished};
//!
//! let me = "worker-1".try_into()?; // no other live process has this name
//! let ended = store.write(|tx| {
//!     let mine = tx.leases_of(&me, None, 1_000)?;
//!     let lost: Vec<_> = mine.iter().map(|task| Finish::failed(task.lease_ref(), "its process ended")).collect();
//!     tx.finish(now, &lost)
//! })?;
//! assert!(matches!(ended[..], [Finished::RetryAt(_)])); // and then the worker runs
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # Keep the store in order
//!
//! By default, [`service::Upkeep`](crate::service::Upkeep) deletes only feed events that every consumer has accepted,
//! and audits nothing. Set how long to keep each kind of row:
//!
//! ```
//! # use std::sync::Arc;
//! # use std::time::Duration;
//! # use stationmaster::TaskState;
//! # use stationmaster::service::{Service, Upkeep};
//! # use stationmaster::store::MemoryStore;
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! use stationmaster::run::RunStatus;
//!
//! let (minute, day) = (Duration::from_secs(60), Duration::from_secs(86_400));
//! let mut upkeep = Upkeep::new(store)
//!     .retain_ended_for(day) // tasks in any end state, except those named in the next line
//!     .retain_state_for(TaskState::Failed, 30 * day)
//!     .retain_feed_for(day) // even if a consumer has not read it
//!     .close_runs_silent_for(5 * minute, RunStatus::Killed) // runs whose heartbeats stopped
//!     .retain_runs_for(365 * day)
//!     .audit_every(day); // in one process: it reads all tasks
//! let report = upkeep.tick(now)?;
//! assert!(report.errors.is_empty(), "a part that failed stops no other");
//! if let Some(found) = report.audited.filter(|found| !found.is_empty()) {
//!     eprintln!("counters or tasks are damaged: {found:?}");
//! }
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # Wait for a file without a worker
//!
//! A sensor is a task that waits for a condition. Its *kind* names the function that checks the condition, and a *poke*
//! is one such check. One poke serves all sensors that wait for the same thing. When the condition is met, the sensor
//! *lands*, and its task succeeds. [`service::kinds`](crate::service::kinds) has more kinds,
//! [`service::Poker`](crate::service::Poker) shows how to add your own, and [`_sensors`](crate::_sensors) explains how
//! sensors work.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("in.csv").to_str().unwrap().to_owned();
//! # std::fs::write(&path, "1,2").unwrap();
//! # store.write(|tx| tx.enqueue(now, &[task("wait")]))?;
//! # let granted = Admitter::new(store.clone(), "worker-1".try_into()?).tick(now)?.granted;
//! use std::time::Duration;
//! use stationmaster::sensor::Settings;
//! use stationmaster::service::kinds::{Condition, FileExists, builtin};
//! use stationmaster::service::Poker;
//!
//! let lease = granted[0].lease_ref(); // `granted`: what a tick admitted; here the task that has nothing to do but wait
//! let settings = Settings::new(Duration::from_secs(60), Duration::from_secs(6 * 3600))?;
//! let sensor = FileExists::at(path).sensor(lease, settings)?;
//! store.write(|tx| {
//!     tx.start(now, &[lease])?;
//!     tx.register(now, &[sensor.clone()]) // its slots are free now
//! })?;
//! let mut poker = builtin(Poker::new(store.clone(), "poker-1".try_into()?).wait_for_answers(Duration::from_secs(10)), store)?;
//! assert_eq!(poker.tick(now)?.landed, 1);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! A worker's handler registers its task in the same way and then calls
//! [`Attempt::ended_elsewhere`](crate::service::Attempt::ended_elsewhere). With
//! [`OnLanded::Resume`](crate::sensor::OnLanded::Resume) the task runs again when its condition is met.
//! [`Attempt::landed`](crate::service::Attempt::landed) tells this attempt from the first, and returns the
//! landed value. `examples/web_service` does both.
//!
//! # Call back when a task ends
//!
//! The [feed](crate::feed) delivers each end to named consumers, at least once and in order, even in another process
//! and after a crash. A task opts in when it is enqueued. More: [`_feed`](crate::_feed).
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! use stationmaster::ops::Finish;
//! use stationmaster::service::FeedReader;
//! use stationmaster::task::Feed;
//!
//! store.write(|tx| tx.enqueue(now, &[task("load").feed(Feed::EndsAndSensors)]))?;
//! # let granted = Admitter::new(store.clone(), "worker-1".try_into()?).tick(now)?.granted;
//! # let ended = [Finish::success(granted[0].lease_ref())];
//! store.write(|tx| tx.finish(now, &ended))?; // `ended`: the success of that task
//! let mut mailer = FeedReader::new(store, "mailer".try_into()?, |event| match event.state.as_str() {
//!     "failed" => Err(format!("no mail server for {}", event.task).into()), // delivered again
//!     state => Ok(println!("{} is {state}; its sensor: {:?}", event.task, event.reason)),
//! });
//! assert_eq!(mailer.tick(now)?.accepted, 1); // or let `drive` call it
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # Who ran last night at 3?
//!
//! More: [`run`](crate::run), and [`_active_runs`](crate::_active_runs) for how the query works.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! use stationmaster::run::{ActiveQuery, RunKey, RunRecord, RunStatus};
//! use stationmaster::ops::StopBeforeStart;
//!
//! let hour = std::time::Duration::from_secs(3600);
//! let night = RunRecord::open(RunKey::new("prod", "nightly-17")?, now + 2 * hour).closed(now + 5 * hour, RunStatus::Completed);
//! let open = RunRecord::open(RunKey::new("prod", "stream-4")?, now); // still at work
//! store.write(|tx| tx.record_runs(&[night.clone(), open.clone()], StopBeforeStart::Reject))?;
//!
//! let (from, to) = (now + 3 * hour, now + 3 * hour + hour / 60);
//! let active = store.read(|tx| tx.active_runs(&ActiveQuery::new(from, to).namespace("prod".try_into()?)))?;
//! assert_eq!(active, [open, night]);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # Run something each minute
//!
//! Put the minute into the task's key, and enqueue it every few seconds from every process. Enqueueing a key
//! that exists changes nothing, so there is one task for each minute. A minute in which no process runs has
//! none. If it must have one, also enqueue the minutes since the last one. Keep ended tasks for longer than
//! that, or their keys count as new.
//!
//! ```
//! # use std::time::Duration;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::store::MemoryStore;
//! # let store = MemoryStore::new();
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # for now in [now, now + Duration::from_secs(5), now + Duration::from_secs(60)] {
//! let minute = now.as_micros().div_euclid(60_000_000).to_string();
//! let bill = NewTask::new(TaskKey::new("prod", "bill", minute, "bill")?);
//! store.write(|tx| tx.enqueue(now, std::slice::from_ref(&bill)))?;
//! # }
//! # let counts = store.read(|tx| tx.count_tasks(10))?;
//! # assert_eq!(counts.iter().map(|count| count.tasks).sum::<u64>(), 2);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # Commit with my own rows
//!
//! A verb works in a transaction of the store or in one of yours. On SQLite, yours is a rusqlite transaction, through
//! `store::sqlite::SqliteTx`. The crate exports the version of rusqlite that it uses as `store::sqlite::rusqlite`. On
//! PostgreSQL, yours is a tokio-postgres transaction, through `store::postgres::tx`, which refuses ticks:
//! [`_postgresql`](crate::_postgresql) has the rules. With sqlx, diesel and other drivers, you call the verbs that
//! [`_sql`](crate::_sql) lists: views on SQLite, functions on PostgreSQL.
//!
#![cfg_attr(feature = "sqlite", doc = "```")]
#![cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let dir = tempfile::tempdir().unwrap();
//! # std::env::set_current_dir(&dir)?;
//! use stationmaster::store::SqliteStore;
//! use stationmaster::store::sqlite::{SqliteTx, rusqlite};
//!
//! let store = SqliteStore::open("shop.db", Default::default())?; // its tables, beside yours in one file
//! let mut conn = rusqlite::Connection::open("shop.db")?;
//! conn.execute_batch("CREATE TABLE invoice (id INTEGER, sent_by TEXT)")?;
//!
//! let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
//! tx.execute("INSERT INTO invoice VALUES (17, 'send-17')", [])?;
//! SqliteTx::attach(&tx, &Default::default())?.enqueue(now, &[task("send-17")])?;
//! tx.commit()?; // both, or neither
//! assert!(store.read(|tx| tx.tasks(&[task("send-17").key]))?[0].is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On PostgreSQL, an async handler of a [`Worker`](crate::service::Worker) commits the task's end together with rows of
//! yours through `Attempt::end_by`. It makes the transaction again after a deadlock, after a serialization failure, and
//! after a lost connection, until it knows that the transaction took effect. So none of these costs the task an attempt.
//! Any other error is the handler's: the task's retry policy decides.
//!
#![cfg_attr(all(feature = "postgres", feature = "tokio"), doc = "```no_run")]
#![cfg_attr(not(all(feature = "postgres", feature = "tokio")), doc = "```ignore")]
//! # use stationmaster::Error;
//! # use stationmaster::service::Attempt;
//! # use stationmaster::store::postgres::{self, Schema, tokio_postgres};
//! # #[derive(Debug)]
//! # enum PoolError { Backend(tokio_postgres::Error), Timeout }
//! # struct Pool;
//! # impl Pool { async fn get(&self) -> Result<tokio_postgres::Client, PoolError> { std::future::pending().await } }
//! # async fn send(pool: &Pool, schema: &Schema, attempt: &Attempt) -> stationmaster::Result<()> {
//! // The errors of a pool, here deadpool's. After the first kind the transaction is begun again.
//! let lost = |error| match error {
//!     PoolError::Backend(error) => Error::from(error),
//!     other => Error::abort(format!("{other:?}")),
//! };
//! attempt.end_by(|| async {
//!     let mut client = pool.get().await.map_err(lost)?; // another one, if the last one was lost
//!     let transaction = client.transaction().await?;
//!     transaction.execute("UPDATE invoice SET sent = sent + 1 WHERE id = 17", &[]).await?; // your rows first
//!     let attempt = attempt.clone();
//!     // A transaction of deadpool's is passed as `&*transaction`.
//!     postgres::tx(&transaction, schema, move |tx| attempt.end_in(tx, ())).await?;
//!     Ok(transaction.commit().await?)
//! }).await
//! # }
//! ```
//!
//! Elsewhere, for example in a route of a web service, `?` turns errors of tokio-postgres into the crate's
//! [`Error`](crate::Error). If that [`is_retryable`](crate::Error::is_retryable), nothing was committed:
//! begin the transaction again.
//!
//! # Many machines
//!
//! Give every process its own name, and run the same services in all of them on one store. There is no leader. A SQLite
//! file serves the processes of one machine; `store::postgres` (feature `postgres`) serves those of many.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! let mut a = Admitter::new(store.clone(), "machine-a".try_into()?);
//! let mut b = Admitter::new(store.clone(), "machine-b".try_into()?);
//! store.write(|tx| tx.enqueue(now, &[task("load"), task("check")]))?;
//! let granted = (a.admit(now, 1)?.granted.len(), b.admit(now, 9)?.granted.len());
//! assert_eq!(granted, (1, 1), "each task has one holder");
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! Clock differences shorten or lengthen leases by the same amount, so choose leases well above that.
//! [`_design`](crate::_design) lists the other guarantees.
//!
//! # From threads
//!
//! A service does one step per tick. The tick of an admitter grants up to its
//! [budget](crate::service::Admitter::budget), whatever your threads are doing: if places are few, call
//! [`admit`](crate::service::Admitter::admit) with the number of free ones instead.
//! [`service::drive`](crate::service::drive) ticks it on one of your threads whenever it is due, until its
//! handle is stopped. Its page says [which `longest`](crate::service::drive#which-longest) to give it.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let admitter = Admitter::new(store.clone(), "worker-1".try_into()?);
//! use std::ops::ControlFlow;
//! use stationmaster::clock::SystemClock;
//! use stationmaster::service::{LoopHandle, drive};
//!
//! let mut admitter = admitter.budget(8); // at most 8 to a tick; 512 if not set
//! let handle = LoopHandle::new(); // with a `WakingStore`, it is woken when there is work
//! let stopper = handle.clone();
//! let thread = std::thread::spawn(move || {
//!     drive(&mut admitter, &SystemClock, &handle, std::time::Duration::from_secs(5), |admission| {
//!         # let _ = &admission;
//!         // hand what was granted to your workers
//!         ControlFlow::Continue(())
//!     });
//! });
//! stopper.stop(); // at once, also if it sleeps
//! thread.join().unwrap();
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # From tokio
//!
//! With the feature `tokio`, the module `tokio` has stores, services and pokes as futures, with the same handle.
//! Nothing blocks the runtime, and a future may be dropped at any await.
//!
#![cfg_attr(feature = "tokio", doc = "```")]
#![cfg_attr(not(feature = "tokio"), doc = "```ignore")]
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let admitter = Admitter::new(store.clone(), "worker-1".try_into()?);
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! use stationmaster::tokio::{AsyncAdmitter, AsyncStore};
//!
//! let (store, mut admitter) = (AsyncStore::new(store), AsyncAdmitter::new(admitter));
//! let tasks = [task("load")];
//! store.write(move |tx| tx.enqueue(now, &tasks)).await?;
//! let granted = admitter.tick(now).await?.granted;
//! let leases = [granted[0].lease_ref()];
//! assert_eq!(store.write(move |tx| tx.start(now, &leases)).await?.len(), 1);
//! # Ok::<(), stationmaster::Error>(())
//! # })?;
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # Test with a virtual clock
//!
//! Verbs and ticks take `now`, so call them with the instants of a [`clock::ManualClock`](crate::clock::ManualClock).
//! Only a poker looks at the machine's clock, for the deadlines of pokes. [`service::drive`](crate::service::drive),
//! its form for tokio and a [`Worker`](crate::service::Worker) read the clock that you give them, but sleep in real
//! time: a test with a virtual clock does not use them. `examples/simulate_a_day` simulates a host's whole day in
//! seconds. More: [`clock`](crate::clock).
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?);
//! let tomorrow = now + std::time::Duration::from_secs(24 * 3600);
//! store.write(|tx| tx.enqueue(now, &[task("report").not_before(tomorrow)]))?;
//! assert!(admitter.tick(now)?.granted.is_empty());
//! assert_eq!(admitter.tick(tomorrow)?.granted.len(), 1);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # Metrics
//!
//! Give the services and the store an observer. Each metric comes with its name, help, labels and buckets. More:
//! [`service::metrics`](crate::service::metrics), [`service::spans`](crate::service::spans) for feature `tracing`, and
//! `examples/prometheus`.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::{Admitter, Service};
//! # use stationmaster::store::{MemoryStore, Store};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::Timestamp::UNIX_EPOCH;
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let admitter = Admitter::new(store.clone(), "worker-1".try_into()?);
//! use stationmaster::service::{Observer, metrics};
//!
//! struct Print;
//! impl Observer for Print {
//!     fn counter(&self, metric: &'static metrics::Metric, labels: &[(&'static str, &str)], more: u64) {
//!         println!("{} {labels:?} +{more}", metric.name); // stationmaster_granted_total [] +1
//!     }
//! }
//! store.write(|tx| tx.enqueue(now, &[task("load")]))?;
//! admitter.observed_by(Arc::new(Print)).tick(now)?;
//! # Ok::<(), stationmaster::Error>(())
//! ```
