//! What a tick of a keeper reports.

use super::super::driver::Report;
use super::super::observer::metrics::{LEASES_LOST, LEASES_RENEWED};
#[cfg(feature = "tracing")]
use super::super::observer::spans::debug_or_warn;
use super::super::observer::{Emitter, Reported};
use crate::error::Error;
use crate::lease::LeaseRef;
use crate::time::Timestamp;

/// What one tick of a [`Keeper`](super::Keeper) did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct KeepReport {
    /// How many leases it renewed.
    pub renewed: usize,
    /// How many leases another transaction held. The keeper tries them again soon.
    pub busy: usize,
    /// The leases that the store reported as lost, and that were not forgotten before.
    pub lost: Vec<LeaseRef>,
    /// The leases whose holders were notified that their tasks were cancelled.
    pub cancelled: Vec<LeaseRef>,
    /// The leases whose holders were notified that they expired. The keeper still tries to renew them.
    pub expired: Vec<LeaseRef>,
    /// Why it renewed nothing, if the store failed. It tries again soon.
    pub error: Option<Error>,
    /// When the next renewal is due, or a holder must be notified. `None` if there are no leases.
    pub next_due: Option<Timestamp>,
}

impl Report for KeepReport {
    fn next_due(&self) -> Option<Timestamp> {
        self.next_due
    }

    fn is_idle(&self) -> bool {
        let has_asked = self.renewed + self.busy + self.lost.len() > 0 || self.error.is_some();
        !has_asked && self.expired.is_empty()
    }
}

impl Reported for KeepReport {
    fn emit(&self, to: &Emitter) {
        to.counter(&LEASES_RENEWED, &[], self.renewed);
        to.counter(&LEASES_LOST, &[("how", "lost")], self.lost.len());
        to.counter(&LEASES_LOST, &[("how", "expired")], self.expired.len());
    }

    #[cfg(feature = "tracing")]
    fn trace(&self, took_s: f64) {
        let (lost, expired) = (self.lost.len(), self.expired.len());
        debug_or_warn!(lost + expired > 0, target: "stationmaster::keeper",
            renewed = self.renewed, busy = self.busy, lost, expired, took_s, "renewed");
    }
}
