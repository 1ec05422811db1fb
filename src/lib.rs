//! Scheduling primitives for workflow orchestrators and job runners, in one library: retry backoff, slot pools and admission,
//! sensors that share their polls, shards, and an index of active runs. No server, no async runtime, no workflow language: a
//! program that has a graph of its own links it in.
//!
//! * [The nouns](#the-nouns)
//! * [How it is used](#how-it-is-used)
//! * [Cookbook](#cookbook):
//!   [limit a database to 4 tasks](#limit-a-database-to-4-tasks),
//!   [limit a tenant to 10](#limit-a-tenant-to-10),
//!   [let a big task through](#let-a-big-task-through),
//!   [why does this task not run?](#why-does-this-task-not-run),
//!   [retry with Airflow's times](#retry-with-airflows-times),
//!   [run again what a dead worker held](#run-again-what-a-dead-worker-held),
//!   [wait for a file without a worker](#wait-for-a-file-without-a-worker),
//!   [call back when a sensor ends](#call-back-when-a-sensor-ends),
//!   [who ran last night at 3?](#who-ran-last-night-at-3),
//!   [commit with my own rows](#commit-with-my-own-rows),
//!   [many machines](#many-machines),
//!   [from threads](#from-threads),
//!   [from tokio](#from-tokio),
//!   [test with a virtual clock](#test-with-a-virtual-clock),
//!   [metrics](#metrics)
//! * [Features](#features)
//! * [Guarantees](#guarantees)
//!
//! Names for those who know Airflow: `docs/coming-from-airflow.md`, here as [`_coming_from_airflow`].
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
//! 2. When a task's dependencies are met, [enqueue](service::lifecycle::enqueue) it. A key that is known already is left as it
//!    is, so the call may be repeated.
//! 3. [`service::Admitter`] grants leases on slots to your process; [start](service::lifecycle::start) the
//!    tasks, run them, [renew](service::lifecycle::renew) their leases meanwhile (they hold for 60 seconds
//!    unless you say otherwise), stop the work whose lease was lost, and [finish](service::lifecycle::finish)
//!    the rest.
//! 4. A task that only waits [registers](service::lifecycle::register) as a sensor and gives its slots back;
//!    [`service::Poker`] polls for it.
//! 5. [`service::Reaper`] takes back what dead processes held, and forgets ended tasks if you say after how long
//!    ([`service::ReaperOptions::keep_ended`]); unless you do, they are kept for ever. So are the events of sensors until they
//!    are acknowledged, and with them their tasks, unless you set [`service::ReaperOptions::keep_events`].
//!
//! An admitter may be granted any task that is ready in its store. So every process that admits must be able to run every task,
//! or hand it to one that can; workers that differ (by machine, by tenant) are reached by your own dispatch, or have stores of
//! their own.
//!
//! Whole programs are in `examples/`: `quickstart.rs` first, then `threads_host.rs` or `tokio_host.rs`.
//!
//! # Cookbook
//!
//! Each of these begins with the following lines, which are left out below:
//!
//! ```
//! use std::sync::Arc;
//! use stationmaster::clock::{Clock, SystemClock};
//! use stationmaster::service::lifecycle::enqueue;
//! use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! use stationmaster::store::{MemoryStore, StoreExt};
//! use stationmaster::{NewTask, TaskKey};
//!
//! let store = Arc::new(MemoryStore::new()); // or stationmaster::store::SqliteStore::open("jobs.db", Default::default())?
//! let now = SystemClock.now();
//! let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?, AdmitterOptions::default())?;
//! # store.write(|tx| enqueue(tx, now, &[task("load")]))?;
//! # assert_eq!(admitter.tick(now)?.granted.len(), 1);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! In a transaction `Ok(tx.put_pools(…)?)` makes the crate's [`Error`] of the store's.
//!
//! ## Limit a database to 4 tasks
//!
//! A pool has slots; a task names its pool, and how many slots it takes. More: [`pool`].
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::lifecycle::enqueue;
//! # use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! # use stationmaster::store::{MemoryStore, StoreExt};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::time::from_micros(0);
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?, AdmitterOptions::default())?;
//! use stationmaster::pool::{PoolSpec, Slots};
//!
//! store.write(|tx| Ok(tx.put_pools(&[PoolSpec::new("database", Slots::Limited(4))?])?))?;
//! let loads: Vec<NewTask> = (0..9).map(|n| task(&format!("load-{n}")).pool("database".try_into().unwrap())).collect();
//! store.write(|tx| enqueue(tx, now, &loads))?;
//! assert_eq!(admitter.tick(now)?.granted.len(), 4);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! ## Limit a tenant to 10
//!
//! A task counts against a limit because it carries the limit's key; it may carry several. More: [`admission::limits`].
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::lifecycle::enqueue;
//! # use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! # use stationmaster::store::{MemoryStore, StoreExt};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::time::from_micros(0);
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?, AdmitterOptions::default())?;
//! use stationmaster::admission::limits::{self, LimitSpec};
//!
//! let tenant = limits::free("acme")?;
//! store.write(|tx| Ok(tx.put_limits(&[LimitSpec::new(tenant.clone(), 10)?])?))?;
//! let tasks: Vec<NewTask> = (0..99).map(|n| task(&format!("t{n}")).limit(tenant.clone())).collect();
//! store.write(|tx| enqueue(tx, now, &tasks))?;
//! assert_eq!(admitter.tick(now)?.granted.len(), 10);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! ## Let a big task through
//!
//! By default what fits goes first, and a task that needs many slots may wait for ever behind small ones. More:
//! [`admission::Policy`], and [`admission::Ageing`] for old tasks behind urgent ones.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::lifecycle::enqueue;
//! # use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! # use stationmaster::store::{MemoryStore, StoreExt};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::time::from_micros(0);
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! use std::time::Duration;
//! use stationmaster::admission::Policy;
//!
//! // Whatever has waited for ten minutes has the open slots of its pool kept for it.
//! let options = AdmitterOptions::default().policy(Policy::Reserve { after: Duration::from_secs(600) });
//! let admitter = Admitter::new(store, "worker-1".try_into()?, options)?;
//! # drop(admitter);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! ## Why does this task not run?
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::lifecycle::enqueue;
//! # use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! # use stationmaster::store::{MemoryStore, StoreExt};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::time::from_micros(0);
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! use stationmaster::service::lifecycle::explain;
//!
//! let load = task("load").pool("databsae".try_into()?);
//! store.write(|tx| enqueue(tx, now, &[load.clone()]))?;
//! let why = store.read(|tx| explain(tx, &load.key))?;
//! assert_eq!(why.to_string(), "pool databsae: does not exist");
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! For all that wait, with numbers, after each tick: [`service::lifecycle::Admission::deferrals`].
//!
//! ## Retry with Airflow's times
//!
//! ```
//! use std::time::Duration;
//! use stationmaster::TaskKey;
//! use stationmaster::backoff::{AirflowVersion, RetryKey, RetryPolicy, delay};
//! use stationmaster::time::from_micros;
//!
//! let policy = RetryPolicy::airflow(AirflowVersion::V2_10, Duration::from_secs(300)).max_attempts(4).build()?;
//! let task = TaskKey::new("prod", "nightly", "2026-01-01", "load")?;
//! let key = RetryKey::new(&task).logical_date(from_micros(1_767_225_600_000_000));
//! assert_eq!(delay(&policy, &key, 1), Duration::from_secs(487)); // as Airflow 2.10 and 2.11 wait
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! Give it to a task by [`NewTask::retry`]. Policies of the crate's own, with better jitter, budgets and hints: [`backoff`].
//!
//! ## Run again what a dead worker held
//!
//! By default a task runs again after each of its first 3 lost leases; [`task::LeaseLoss`] says otherwise.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::lifecycle::enqueue;
//! # use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! # use stationmaster::store::{MemoryStore, StoreExt};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::time::from_micros(0);
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?, AdmitterOptions::default())?;
//! use stationmaster::service::{Reaper, ReaperOptions};
//!
//! store.write(|tx| enqueue(tx, now, &[task("load")]))?;
//! let lost = admitter.tick(now)?.granted; // and then the worker dies
//! let mut reaper = Reaper::new(store.clone(), ReaperOptions::default())?;
//! let (mut later, mut reaped) = (now, reaper.tick(now)?);
//! while let (true, Some(due)) = (reaped.reaped.is_empty(), reaped.next_due) {
//!     (later, reaped) = (due, reaper.tick(due)?);
//! }
//! assert_eq!(later, now + std::time::Duration::from_secs(60), "the lease that it lost");
//! assert_eq!(admitter.tick(later)?.granted[0].key, lost[0].key);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! ## Wait for a file without a worker
//!
//! More kinds: [`service::kinds`]; kinds of your own: [`service::Poker`]; how it works: [`_sensors`].
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::lifecycle::enqueue;
//! # use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! # use stationmaster::store::{MemoryStore, StoreExt};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::time::from_micros(0);
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("in.csv").to_str().unwrap().to_owned();
//! # std::fs::write(&path, "1,2").unwrap();
//! # store.write(|tx| enqueue(tx, now, &[task("wait")]))?;
//! # let granted = Admitter::new(store.clone(), "worker-1".try_into()?, AdmitterOptions::default())?.tick(now)?.granted;
//! use std::time::Duration;
//! use stationmaster::sensor::Settings;
//! use stationmaster::service::kinds::{Condition, FileExists, builtin};
//! use stationmaster::service::lifecycle::{register, start};
//! use stationmaster::service::{Poker, PokerOptions};
//!
//! let lease = granted[0].lease_ref(); // `granted`: what a tick admitted; here the task that has nothing to do but wait
//! let settings = Settings::new(Duration::from_secs(60), Duration::from_secs(6 * 3600))?;
//! let sensor = FileExists::at(path).sensor(lease, settings)?;
//! store.write(|tx| {
//!     start(tx, now, &[lease])?;
//!     register(tx, now, &[sensor.clone()]) // its slots are free now
//! })?;
//! let options = PokerOptions::default().patience(Duration::from_secs(10));
//! let mut poker = builtin(Poker::new(store.clone(), "poker-1".try_into()?, options)?, store)?;
//! assert_eq!(poker.tick(now)?.landed, 1);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! ## Call back when a sensor ends
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::lifecycle::enqueue;
//! # use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! # use stationmaster::store::{MemoryStore, StoreExt};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::time::from_micros(0);
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! use stationmaster::service::{Callbacks, Delivery};
//!
//! let mut callbacks = Callbacks::new()
//!     .on_landed(|event| Ok(println!("{} may go on", event.task)))
//!     .on_failed(|event| Err(format!("nobody to tell that {} failed", event.task).into())); // comes again
//! let mut delivery = Delivery::new(store, 1_000, move |event| callbacks.call(event));
//! assert_eq!(delivery.tick(now)?.delivered, 0);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! ## Who ran last night at 3?
//!
//! More: [`run`], and [`_active_runs`] for how it is found.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::lifecycle::enqueue;
//! # use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! # use stationmaster::store::{MemoryStore, StoreExt};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::time::from_micros(0);
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! use stationmaster::run::{ActiveQuery, RunKey, RunRecord, RunStatus};
//! use stationmaster::service::runs::{EarlyStop, record};
//!
//! let hour = std::time::Duration::from_secs(3600);
//! let night = RunRecord::open(RunKey::new("prod", "nightly-17")?, now + 2 * hour).closed(now + 5 * hour, RunStatus::Completed);
//! let open = RunRecord::open(RunKey::new("prod", "stream-4")?, now); // still at work
//! store.write(|tx| record(tx, &[night.clone(), open.clone()], EarlyStop::Refuse))?;
//!
//! let (from, to) = (now + 3 * hour, now + 3 * hour + hour / 60);
//! let active = store.read(|tx| Ok(tx.active_runs(&ActiveQuery::new(from, to).namespace("prod".try_into()?))?))?;
//! assert_eq!(active, [open, night]);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! ## Commit with my own rows
//!
//! Every life-cycle operation takes a transaction: the store's, or one of yours. On SQLite that is a
//! transaction of rusqlite, by `store::sqlite::SqliteTx`; sqlx, diesel and other drivers use the statements
//! of [`_sql`]. On PostgreSQL it is a transaction of tokio-postgres, by `store::postgres::tx`; hosts with
//! another driver keep an outbox (`docs/postgresql.md`).
//!
#![cfg_attr(feature = "sqlite", doc = "```")]
#![cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::lifecycle::enqueue;
//! # use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! # use stationmaster::store::{MemoryStore, StoreExt};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::time::from_micros(0);
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! use stationmaster::store::sqlite::{Prefix, SqliteTx, migrate, rusqlite};
//!
//! let mut conn = rusqlite::Connection::open_in_memory()?;
//! let prefix = Prefix::default();
//! migrate(&conn, &prefix)?; // once: the tables, beside yours
//! conn.execute_batch("CREATE TABLE invoice (id INTEGER, sent_by TEXT)")?;
//!
//! let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
//! tx.execute("INSERT INTO invoice VALUES (17, 'send-17')", [])?;
//! enqueue(&mut SqliteTx::attach(&tx, &prefix)?, now, &[task("send-17")])?;
//! tx.commit()?; // both, or neither
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ## Many machines
//!
//! Give every process a name of its own, and let all run the same services on one store; nobody is a leader. A SQLite file
//! serves the processes of one machine, `store::postgres` (feature `postgres`) those of many.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::lifecycle::enqueue;
//! # use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! # use stationmaster::store::{MemoryStore, StoreExt};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::time::from_micros(0);
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! let mut a = Admitter::new(store.clone(), "machine-a".try_into()?, AdmitterOptions::default())?;
//! let mut b = Admitter::new(store.clone(), "machine-b".try_into()?, AdmitterOptions::default())?;
//! store.write(|tx| enqueue(tx, now, &[task("load"), task("check")]))?;
//! assert_eq!((a.admit(now, 1)?.granted.len(), b.admit(now, 9)?.granted.len()), (1, 1), "each task has one holder");
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! Clocks that differ shorten or lengthen leases by as much: choose leases well above that. [`_design`] says what else holds.
//!
//! ## From threads
//!
//! A service is a step; [`service::run_blocking`] repeats it on a thread of yours, as it is due, until its handle is stopped.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::lifecycle::enqueue;
//! # use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! # use stationmaster::store::{MemoryStore, StoreExt};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::time::from_micros(0);
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?, AdmitterOptions::default())?;
//! use std::ops::ControlFlow;
//! use stationmaster::clock::SystemClock;
//! use stationmaster::service::{LoopHandle, run_blocking};
//!
//! let handle = LoopHandle::new(); // with a `WakingStore`, it is woken when there is work
//! let stopper = handle.clone();
//! let thread = std::thread::spawn(move || {
//!     run_blocking(&mut admitter, &SystemClock, &handle, std::time::Duration::from_secs(5), |admission| {
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
//! ## From tokio
//!
//! Feature `tokio` has stores, services and pokes as futures, with the same names: `stationmaster::tokio`. Nothing blocks the
//! runtime, and a future may be dropped at any await.
//!
#![cfg_attr(feature = "tokio", doc = "```")]
#![cfg_attr(not(feature = "tokio"), doc = "```ignore")]
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::lifecycle::enqueue;
//! # use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! # use stationmaster::store::{MemoryStore, StoreExt};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::time::from_micros(0);
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let admitter = Admitter::new(store.clone(), "worker-1".try_into()?, AdmitterOptions::default())?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! use stationmaster::tokio::{AsyncAdmitter, AsyncStore};
//!
//! let (store, mut admitter) = (AsyncStore::new(store), AsyncAdmitter::new(admitter));
//! store.enqueue(now, [task("load")]).await?;
//! let granted = admitter.tick(now).await?.granted;
//! assert_eq!(store.start(now, [granted[0].lease_ref()]).await?.len(), 1);
//! # Ok::<(), stationmaster::Error>(())
//! # })?;
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! ## Test with a virtual clock
//!
//! Everything takes `now`; nothing but [`service::run_blocking`] and the deadlines of pokes looks at a clock. A whole day of a
//! host by such a clock: `examples/simulate_a_day`.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::lifecycle::enqueue;
//! # use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! # use stationmaster::store::{MemoryStore, StoreExt};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::time::from_micros(0);
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?, AdmitterOptions::default())?;
//! use stationmaster::clock::{Clock, ManualClock};
//!
//! let clock = ManualClock::new(now);
//! let tomorrow = std::time::Duration::from_secs(24 * 3600);
//! store.write(|tx| enqueue(tx, clock.now(), &[task("report").not_before(now + tomorrow)]))?;
//! assert!(admitter.tick(clock.now())?.granted.is_empty());
//! clock.advance(tomorrow);
//! assert_eq!(admitter.tick(clock.now())?.granted.len(), 1);
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! ## Metrics
//!
//! Give services and store an observer; each metric brings its name, help, labels and buckets. More: [`service::observer`], which
//! also names the spans of feature `tracing`, and `examples/prometheus`.
//!
//! ```
//! # use std::sync::Arc;
//! # use stationmaster::{NewTask, TaskKey};
//! # use stationmaster::service::lifecycle::enqueue;
//! # use stationmaster::service::{Admitter, AdmitterOptions, Service};
//! # use stationmaster::store::{MemoryStore, StoreExt};
//! # let store = Arc::new(MemoryStore::new());
//! # let now = stationmaster::time::from_micros(0);
//! # let task = |name: &str| NewTask::new(TaskKey::new("prod", "nightly", "2026-01-01", name).unwrap());
//! # let admitter = Admitter::new(store.clone(), "worker-1".try_into()?, AdmitterOptions::default())?;
//! use stationmaster::service::Observer;
//! use stationmaster::service::observer::Metric;
//!
//! struct Print;
//! impl Observer for Print {
//!     fn counter(&self, metric: &'static Metric, labels: &[(&'static str, &str)], more: u64) {
//!         println!("{} {labels:?} +{more}", metric.name); // stationmaster_granted_total [] +1
//!     }
//! }
//! store.write(|tx| enqueue(tx, now, &[task("load")]))?;
//! admitter.observed_by(Arc::new(Print)).tick(now)?;
//! # Ok::<(), stationmaster::Error>(())
//! ```
//!
//! # Features
//!
//! | feature | default | |
//! |---|---|---|
//! | `sqlite` | yes | `store::sqlite`: one file, many processes |
//! | `bundled` | yes | SQLite is built along, so a C compiler is needed; without it the linker must find one |
//! | `postgres` | no | `store::postgres`: many machines |
//! | `tokio` | no | `stationmaster::tokio`: stores and services that are awaited, pokes that are futures |
//! | `tracing` | no | spans and events at the edges of the services: [`service::observer::spans`] |
//! | `testing` | no | `conformance`, the suite that every store must pass; `testing::FaultStore`, a store that fails where you want it to; `testing::history`, a checker of what many processes did to one store |
//!
//! Without features it needs no C compiler and no runtime. Features only add.
//!
//! # Guarantees
//!
//! | | memory | SQLite | PostgreSQL |
//! |---|---|---|---|
//! | never more slots given than a pool has; never one task to two holders | yes | yes, over processes | yes, over machines |
//! | a transaction is all or nothing, after errors and panics, too | yes | yes | yes |
//! | an acknowledged call survives `kill -9` | – | yes | yes |
//! | an acknowledged call survives power loss | – | yes (`Synchronous::Full`, the default) | yes (`SynchronousCommit::On`, the default) |
//! | a call under a lease that was lost changes nothing, and says so | yes | yes | yes |
//! | your rows and ours in one transaction | – | yes: `sqlite::SqliteTx`; from sqlx or diesel by the statements of [`_sql`] | yes: `postgres::tx` |
//! | the same input, the same plan, delay, fingerprint and shard, on every machine | yes | yes | yes |
//!
//! What they rest on, and which tests hold them: [`_design`]. A store of your own has them if it passes `conformance`.

#![warn(unreachable_pub)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod admission;
pub mod backoff;
pub mod bounds;
pub mod canonical;
pub mod clock;
#[cfg(feature = "testing")]
pub mod conformance;
pub mod error;
pub mod fingerprint;
pub mod id;
pub mod lease;
pub mod pool;
pub mod run;
pub mod seconds;
pub mod sensor;
pub mod service;
pub mod shard;
pub mod store;
pub mod task;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
#[cfg(feature = "tokio")]
pub mod tokio;

pub use error::{Error, Result};
pub use id::TaskKey;
pub use lease::{LeaseRef, TaskNo};
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
