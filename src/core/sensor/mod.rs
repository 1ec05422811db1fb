//! Sensors: tasks that wait for something without a lease or a worker of their own.
//!
//! A running task *registers* as a sensor: it names a kind, a poke context (what to check) and how long to
//! wait. Its slots are freed in the same transaction. Sensors with the same kind and the same canonical
//! context form one *poke group*. Each time a group is due, it is poked once for all its members. The poke
//! runs on the worker whose shard range contains the group's fingerprint.

pub(crate) mod claim;
mod config;
pub(crate) mod counts;
pub(crate) mod life;
pub(crate) mod lifecycle;
mod loan;
pub(crate) mod outage;
pub(crate) mod plan;
mod schedule;
pub(crate) mod spec;

pub(crate) use claim::{Claim, Comeback, Left, Load, Loads, PokerRow, ShardLease, ShardTake, ShardWrite};
pub use config::{Ineligible, SmartSensorConfig};
pub(crate) use counts::PokeCountRow;
pub use counts::PokeCounts;
pub use lifecycle::{EndReason, PokeOutcome};
pub(crate) use lifecycle::{Ending, SensorState, Terms, settle};
pub(crate) use loan::{Lending, Scope, Scopes};
pub(crate) use outage::{Outage, OutageRow, backed_off, give_up};
pub(crate) use schedule::{interval_at, next_poke};
pub(crate) use spec::SensorInsert;
pub use spec::{NewSensor, OnLanded, OnMissed, SensorRecord, Settings};
