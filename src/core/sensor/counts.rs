//! How many pokes workers made, and how many sharing saved.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{Holder, SensorKind};
use crate::time::Timestamp;

/// How many pokes of one kind were made in one hour, and how many sharing saved.
///
/// [`ReadTx::poke_counts`](crate::store::ReadTx::poke_counts) returns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PokeCounts {
    /// When the hour began, by the workers' clocks.
    pub hour: Timestamp,
    /// The kind of the sensors.
    pub kind: SensorKind,
    /// How many pokes were made.
    pub poked: u64,
    /// How many pokes were saved: for each poke, the sensors that shared it, less one.
    pub saved: u64,
    /// How long the pokes took in total, in whole microseconds.
    #[serde(rename = "duration_s", with = "crate::seconds")]
    pub duration: Duration,
}

impl PokeCounts {
    /// Creates the counts of this kind in this hour, from a store's data.
    pub fn new(hour: Timestamp, kind: SensorKind, poked: u64, saved: u64, duration: Duration) -> Self {
        Self { hour, kind, poked, saved, duration }
    }
}

/// What one worker counted of a kind in an hour. No other worker writes the row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PokeCountRow {
    /// The worker.
    pub worker: Holder,
    /// The number that distinguishes it from others of the same name.
    pub incarnation: u64,
    /// All that it has counted in the hour so far.
    pub counts: PokeCounts,
}

impl PokeCountRow {
    /// Creates the row of this incarnation of a worker.
    pub fn new(worker: Holder, incarnation: u64, counts: PokeCounts) -> Self {
        Self { worker, incarnation, counts }
    }
}
