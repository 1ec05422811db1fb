//! What a backend implements. Hosts never need this module; they use [`Tx`](super::Tx).
//!
//! A store keeps, finds and changes rows. It decides nothing: the pure modules decide what is admitted,
//! retried or poked. The store commits their decisions by conditional writes. The name of such a method
//! states its condition. Its result reports what actually changed.
//!
//! # Writing a store
//!
//! Implement the five traits [`TaskTx`], [`PoolTx`], [`SensorTx`], [`FeedTx`] and [`RunTx`] on a transaction type, and
//! [`Store`](super::Store) on a handle. [`Store::transact`](super::Store::transact) begins a transaction,
//! runs the body on it with [`Tx::run`](super::Tx::run), and commits. The contract is the conformance suite,
//! `stationmaster::conformance` (feature `testing`): a store that passes it behaves like the crate's own. In
//! short:
//!
//! * A transaction is atomic, and sees its own writes. Two writing transactions may run at the same time. In that case
//!   each method tests its condition on rows that the transaction locks until it ends. Ticks exclude each other.
//!   Transactions that give the same name to [`TaskTx::serialize`] run one after the other.
//! * Every method takes many and returns one result per item, in the order of its arguments unless it says
//!   otherwise. An empty argument gives an empty result. If a call names a row twice, the first item changes
//!   it and the second finds it already changed. If there are two full replacements (`put_…`), the last wins.
//! * A method that returns an error has changed nothing, so a body may continue after it. A read transaction
//!   refuses every method that writes (kind `ReadOnly`).
//! * The first number assigned to anything is 1.
//! * Names are returned byte for byte and sort by their bytes.
//! * Only the cost of [`TaskTx::audit`] may grow with the number of tasks, and the cost of lists if `docs/listing.md`
//!   says so.
//!
//! These methods are parts of operations. Called alone, some of them break what the operations promise: they
//! can leave a sensor without a sensing task, or a pool above its size. That is why [`Tx`](super::Tx) does
//! not expose them.

mod feed;
mod pool;
mod run;
mod sensor;
mod task;
mod tick;

pub use super::tx::{Effects, Stale};
pub use feed::FeedTx;
pub use pool::{LeasesByLane, PoolTx};
pub use run::RunTx;
pub(in crate::store) use sensor::FORGOTTEN_AT_ONCE;
pub use sensor::{KEPT_OUTAGES, KEPT_TAKES, SensorChanges, SensorQuery, SensorTx, WhichSensors};
pub(in crate::store) use task::repaired;
pub use task::{Discrepancy, Held, Inserted, Move, Started, TaskTx, Wait};
pub(crate) use tick::Ahead;
pub use tick::{
    First, Forget, GrantBatch, Granted, LanesBehind, Overdue, Promote, Survey, SurveyQuery, WhichPools,
};

// Types that the pure core and a store exchange. Hosts have no use for them.
pub use crate::core::admission::cap::CapUse;
pub use crate::core::admission::lane::{Candidate, Lane, LaneId, LaneKey, LanePage};
pub use crate::core::admission::order::OrderKey;
pub use crate::core::admission::queue::Serving;
pub use crate::core::admission::rate::RateUse;
pub use crate::core::admission::share::ShareUse;
pub use crate::core::admission::sleep::{Cause, Mark};
pub use crate::core::run::index::MOST_SEEKS;
pub use crate::core::run::query::RunPlace;
pub use crate::core::sensor::claim::{PokerRow, ShardLease, ShardTake, ShardWrite};
pub use crate::core::sensor::counts::PokeCountRow;
pub use crate::core::sensor::lifecycle::{Ending, SensorState};
pub use crate::core::sensor::outage::OutageRow;
pub use crate::core::sensor::spec::SensorInsert;
pub use crate::core::task::change::Change;
pub use crate::core::task::list::{Place, TaskSums, TaskWalk, Walk, Walked};
pub use crate::core::task::spec::TaskInsert;

/// Everything a backend's transaction can do.
pub trait StoreTx: TaskTx + PoolTx + SensorTx + FeedTx + RunTx {}

impl<T: TaskTx + PoolTx + SensorTx + FeedTx + RunTx + ?Sized> StoreTx for T {}
