//! Scheduling primitives for workflow orchestrators and job runners: retry backoff, slot pools and admission, sensors that
//! share their polls, shards, and an index of active runs. A library: no server, no async runtime.
//!
//! # The nouns
//!
//! | | |
//! |---|---|
//! | [`NewTask`], [`TaskKey`] | what asks for slots: one instance of a task in a run of a workflow |
//! | [`pool::PoolSpec`], [`admission::limits`] | what bounds how many run at once |
//! | [`lease::Lease`], [`LeaseRef`] | a timed grant to one holder, fenced by an epoch |
//! | [`sensor::NewSensor`], [`canonical::PokeContext`] | a task that waits, and what for |
//! | [`run::RunRecord`] | one execution, in the index of active runs |
//! | [`store::Store`] | where all of it is kept: [`store::MemoryStore`], [`store::SqliteStore`], or one of yours |
//!
//! # How it is used
//!
//! ```text
//! your graph ──enqueue──> store <──tick── Admitter ──leases──> your workers ──start, renew, finish, register──> store
//!                           ^ ^──tick── Reaper (expired leases)
//!                           └────tick── Poker (what sensors wait for)
//! ```
//!
//! 1. Open a store. Define pools and limits.
//! 2. When a task's dependencies are met, [enqueue](service::lifecycle::enqueue) it.
//! 3. [`service::Admitter`] grants leases on slots to your process; [start](service::lifecycle::start) the tasks, run them,
//!    [renew](service::lifecycle::renew) their leases meanwhile, and [finish](service::lifecycle::finish) them.
//! 4. A task that only waits [registers](service::lifecycle::register) as a sensor and gives its slots back;
//!    [`service::Poker`] polls for it.
//! 5. [`service::Reaper`] takes back what dead processes held.
//!
//! # Find your way
//!
//! * Limit a database to four tasks at once: [`pool`]. A tenant to ten: [`admission::limits`].
//! * A big task starves behind small ones, an old one behind urgent ones: [`admission::Policy`], [`admission::Ageing`].
//! * Why does this task not run? [`service::lifecycle::explain`].
//! * Retry, in Airflow's times or better: [`backoff`].
//! * Wait for a file, a port or another task without a worker: [`service::kinds`]; for anything else: [`service::Poker`].
//! * Switch sensors on and off for all: [`sensor::SmartSensorConfig`]. Call back when they end: [`service::Delivery`].
//! * Who ran last night at three? [`run::ActiveQuery`].
//! * Commit together with your own rows: [`store`], and with feature `sqlite` `store::sqlite::SqliteTx`.
//! * Await it all in a tokio program: feature `tokio`, module `tokio`.
//! * Test with a clock of your own: [`clock::ManualClock`].
//! * Write a store of your own: [`store`], and with feature `testing` the module `conformance`.
//!
//! # Features
//!
//! | feature | default | |
//! |---|---|---|
//! | `sqlite` | yes | `store::sqlite` |
//! | `bundled` | yes | SQLite is built along, so a C compiler is needed; without it the linker must find one |
//! | `tokio` | no | `tokio`: stores and services that are awaited, pokes that are futures |
//! | `testing` | no | `conformance`, the suite that every store must pass; `testing::history`, a checker of what many processes did to one store |

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
