//! Sensors: tasks that wait for something, without a lease and without a worker each.
//!
//! A running task *registers*: it names a kind, a poke context (what to look at) and how long to wait, and in
//! the same transaction gives its slots back. Sensors of equal kind and equal canonical context form one
//! *poke group*; a group is poked once per due time for all its members, by the worker whose shard range
//! holds its fingerprint.

mod claim;
mod config;
mod lifecycle;
mod outage;
mod schedule;
mod spec;

pub(crate) use claim::{Claim, Comeback};
pub use claim::{ShardLease, ShardWrite, Worker, claims, quota};
pub use config::{EnabledKinds, Ineligible, SmartSensorConfig, TaskCallbacks};
pub use lifecycle::{EndReason, Ending, Poked, SensorEvent, SensorState, Terms, settle};
pub use outage::{Outage, backed_off, give_up};
pub use schedule::{interval_at, next_poke};
pub use spec::{NewSensor, OnLanded, OnMissed, SensorInsert, SensorRecord, Settings};
