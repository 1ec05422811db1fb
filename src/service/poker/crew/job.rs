//! What the threads of a poker receive, and return.

use std::time::Duration;

use crate::canonical::PokeContext;
use crate::id::SensorKind;
use crate::sensor::PokeOutcome;
use crate::service::poker::group::GroupRef;
use crate::service::poker::probe::PokeRequest;
use crate::time::Timestamp;

/// A group to poke.
#[derive(Debug)]
pub(in crate::service::poker) struct Job {
    pub(in crate::service::poker) group: GroupRef,
    pub(in crate::service::poker) context: PokeContext,
    pub(in crate::service::poker) sensors: u32,
    /// The instant of the tick that asks.
    pub(in crate::service::poker) now: Timestamp,
    /// How long the poke may take.
    pub(in crate::service::poker) timeout: Duration,
    /// Until when its answer is useful, in microseconds: until the last of its sensors has timed out and has
    /// had the usual time for its last look.
    pub(in crate::service::poker) of_use_until: i64,
    /// The number of the tick that asks.
    pub(in crate::service::poker) tick: u64,
}

impl Job {
    /// Returns what the host's poke is given.
    pub(super) fn request(&self, kind: &SensorKind) -> PokeRequest {
        let (kind, context) = (kind.clone(), self.context.clone());
        PokeRequest { kind, context, sensors: self.sensors as usize, now: self.now }
    }
}

/// The outcome of a poke.
#[derive(Debug)]
pub(in crate::service::poker) struct Answer {
    pub(in crate::service::poker) group: GroupRef,
    /// The number of the tick that asked.
    pub(in crate::service::poker) tick: u64,
    /// The last tick that had read the store when the poke began.
    pub(in crate::service::poker) knew: u64,
    pub(in crate::service::poker) outcome: Outcome,
    /// How long its call took, or its deadline if that passed. Only the first of a call's answers has it.
    pub(in crate::service::poker) took: Option<Duration>,
}

/// How a poke went.
#[derive(Debug)]
pub(in crate::service::poker) enum Outcome {
    Answered(PokeOutcome),
    /// It passed its deadline.
    Overran {
        /// How long it was allowed to take.
        timeout: Duration,
        /// It has not returned.
        hangs: bool,
    },
}
