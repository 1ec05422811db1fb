//! Services, which run the pure core on a store.
//!
//! A service has one method, `tick(now) -> Report`, and no timer of its own. A host calls it from its own
//! loop, from a timer, or from a test with a [`crate::clock::ManualClock`]. It can also let [`drive`] call it
//! on a thread that the host created. Each report says when the next step is due. Of the services, only
//! the [`Poker`] has threads, for the host's pokes. They end with it. [`_design`](crate::_design) lists all threads that
//! the crate starts.
//!
//! A [`Worker`] is more than a service: it drives an admitter and a keeper on its own threads, runs the
//! host's handlers on the tasks that it is granted, and stores how they ended.
//!
//! | service | one tick |
//! |---|---|
//! | [`Admitter`] | admits waiting tasks: grants leases on slots |
//! | [`Keeper`] | renews the leases that this process holds, and notifies holders that must stop |
//! | [`Upkeep`] | ends expired leases and retries or fails their tasks; deletes what is old; optionally closes silent runs, audits and repairs |
//! | [`Poker`] | pokes what sensors wait for, once per distinct target, and ends the sensors whose condition is met |
//! | [`FeedReader`] | passes what happened to tasks in the feed to a named consumer |
//!
//! Programs on a tokio runtime find async forms of all this in the module `tokio` (feature `tokio`).
//!
//! For what a host does with a task in between (start, finish, register as a sensor), see the verbs in
//! [`crate::ops`]. Numbers for its metrics go to an [`Observer`]: see [`metrics`].

mod admitter;
mod driver;
mod feed;
mod file_log;
mod handle_futures;
mod incarnation;
mod keeper;
pub mod kinds;
mod numbers;
mod observer;
pub(crate) mod poker;
mod upkeep;
mod waking_store;
mod wanted;
pub(crate) mod worker;

pub use admitter::Admitter;
#[cfg(feature = "tokio")]
pub(crate) use driver::Pace;
pub use driver::{LoopHandle, Report, Service, drive};
pub use feed::{FeedReader, FeedReport};
pub use file_log::FileLog;
pub use keeper::{KeepReport, Keeper, Kept};
pub use observer::{ObservedStore, Observer, metrics, spans};
pub use poker::{Poke, PokeLog, PokeMany, PokeReport, PokeRequest, Poker};
pub use upkeep::{Upkeep, UpkeepReport};
pub use waking_store::WakingStore;
pub use worker::{Attempt, Cancelled, Worker, WorkerReport};
