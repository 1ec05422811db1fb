//! The report of a worker that has stopped.

use crate::lease::LeaseRef;

/// Describes what a [`Worker`](super::Worker) did until it was stopped, and what it left.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WorkerReport {
    /// How many ends of attempts the store recorded for the worker.
    pub stored: u64,
    /// How many attempts their handlers ended themselves: by [`Attempt::end`](super::Attempt::end), or before
    /// [`Attempt::ended_elsewhere`](super::Attempt::ended_elsewhere). Includes those that became sensors.
    pub ended_elsewhere: u64,
    /// How many ends the store refused, because their leases had been lost.
    pub refused: u64,
    /// The attempts whose ends may not be stored. If an end was not stored, the lease expires.
    pub unstored: Vec<LeaseRef>,
    /// The attempts whose handlers ignored the stop. They keep working on their threads. Their leases are not
    /// renewed.
    pub working: Vec<LeaseRef>,
}
