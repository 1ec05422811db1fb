//! Sensors: tasks that wait for something, without a lease or a worker of their own.
//!
//! A running task *registers*: it names a kind, a poke context (what to check) and how long to wait. In the
//! same transaction it frees its slots. Sensors of equal kind and equal canonical context form one *poke
//! group*. A group is poked once per due time for all its members, by the worker whose shard range holds its
//! fingerprint.

pub(crate) mod claim;
mod config;
pub(crate) mod life;
pub(crate) mod lifecycle;
mod loan;
pub(crate) mod outage;
pub(crate) mod plan;
mod schedule;
pub(crate) mod spec;

pub(crate) use claim::{Claim, Comeback, Left, Load, Loads, PokerRow, ShardLease, ShardTake, ShardWrite};
pub use config::{Ineligible, SmartSensorConfig};
pub use lifecycle::{EndReason, PokeOutcome};
pub(crate) use lifecycle::{Ending, SensorState, Terms, settle};
pub(crate) use loan::{Lending, Scope};
pub(crate) use outage::{Outage, OutageRow, backed_off, give_up};
pub(crate) use schedule::{interval_at, next_poke};
pub(crate) use spec::SensorInsert;
pub use spec::{NewSensor, OnLanded, OnMissed, SensorRecord, Settings};
