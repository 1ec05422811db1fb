//! What a poke cycle tells.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::service::run::Report;

/// The numbers of one tick of a [`super::Poker`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PokeReport {
    /// Shards that this worker holds.
    pub shards: u32,
    /// Sensors that it holds in memory.
    pub sensors: usize,
    /// Poke groups, that is distinct targets, that it holds in memory.
    pub groups: usize,
    /// Sensors read from the store: registered, changed or ended since the last tick, or taken over.
    pub loaded: usize,
    /// Pokes made.
    pub poked: usize,
    /// Pokes that were not needed, because sensors share them.
    pub saved: usize,
    /// Pokes that could not look, panics included.
    pub unreachable: usize,
    /// Sensors that landed.
    pub landed: usize,
    /// Sensors whose poke said that they never will land.
    pub failed: usize,
    /// Sensors that timed out.
    pub timed_out: usize,
    /// Sensors of kinds that this worker has no poke for. They time out, but are not poked.
    pub unknown_kind: usize,
    /// How long the tick took.
    #[serde(rename = "duration_s", with = "crate::seconds")]
    pub duration: Duration,
    /// When the next poke, timeout or renewal is due.
    pub next_due: Option<DateTime<Utc>>,
}

impl Report for PokeReport {
    fn next_due(&self) -> Option<DateTime<Utc>> {
        self.next_due
    }
}
