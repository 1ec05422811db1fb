//! What one tick of upkeep did.

use crate::error::Error;
use crate::id::Holder;
use crate::ops::Reaped;
use crate::run::RunRecord;
use crate::service::driver::Report;
use crate::service::observer::metrics::{
    CONSUMERS_DROPPED, DISCREPANCIES, FEED_FORGOTTEN, FORGOTTEN, PROMOTED, REAPED, REQUESTS_FORGOTTEN,
    RUNS_FORGOTTEN, SILENT_RUNS,
};
#[cfg(feature = "tracing")]
use crate::service::observer::spans::debug_or_warn;
use crate::service::observer::{Emitter, Reported, became};
use crate::store::Discrepancy;
use crate::time::Timestamp;

/// What one tick of an [`Upkeep`](super::Upkeep) did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct UpkeepReport {
    /// The tasks whose leases it ended.
    pub reaped: Vec<Reaped>,
    /// How many ended tasks it forgot.
    pub forgotten: usize,
    /// How many events of the feed it forgot.
    pub feed_forgotten: usize,
    /// The consumers of the feed that it dropped
    /// ([`Upkeep::drop_consumers_after`](super::Upkeep::drop_consumers_after)).
    pub consumers_dropped: Vec<Holder>,
    /// The silent runs that it closed, as they were
    /// ([`Upkeep::close_runs_silent_for`](super::Upkeep::close_runs_silent_for)).
    pub silent_runs: Vec<RunRecord>,
    /// How many stopped runs it forgot ([`Upkeep::retain_runs_for`](super::Upkeep::retain_runs_for)).
    pub runs_forgotten: usize,
    /// How many remembered ticks it forgot ([`Upkeep::retain_requests_for`](super::Upkeep::retain_requests_for)).
    pub requests_forgotten: usize,
    /// How many overdue tasks it made ready ([`Upkeep::promotes`](super::Upkeep::promotes)).
    pub promoted: usize,
    /// What the audit found, if there was one in this tick ([`Upkeep::audit_every`](super::Upkeep::audit_every)).
    pub audited: Option<Vec<Discrepancy>>,
    /// What it repaired of that ([`Upkeep::repairs`](super::Upkeep::repairs)): the counters as they were before.
    pub repaired: Vec<Discrepancy>,
    /// The failures of the parts that run after the leases and the ended tasks: at most one each for runs, ticks and
    /// the audit, in this order. The other parts are done and are in the report.
    pub errors: Vec<Error>,
    /// Until when expired leases are left alone, because upkeep just started or was delayed. `None` if it does not
    /// wait.
    pub waits_until: Option<Timestamp>,
    /// When the next tick is due: at the earliest expiry of the remaining leases, when the wait is over, or at the
    /// next audit, but within one grace. It is the instant of this tick if a part reached its limit. `None` if there
    /// are no leases, no grace and no audits.
    pub next_due: Option<Timestamp>,
}

impl UpkeepReport {
    /// Returns how many of the tasks had this outcome.
    fn became(&self, word: &str) -> usize {
        self.reaped.iter().filter(|reaped| became(reaped.became) == word).count()
    }
}

impl Report for UpkeepReport {
    fn next_due(&self) -> Option<Timestamp> {
        self.next_due
    }
}

impl Reported for UpkeepReport {
    fn emit(&self, to: &Emitter) {
        for word in ["ready", "retry", "failed", "cancelled"] {
            to.counter(&REAPED, &[("became", word)], self.became(word));
        }
        to.counter(&FORGOTTEN, &[], self.forgotten);
        to.counter(&FEED_FORGOTTEN, &[], self.feed_forgotten);
        to.counter(&CONSUMERS_DROPPED, &[], self.consumers_dropped.len());
        to.counter(&SILENT_RUNS, &[], self.silent_runs.len());
        to.counter(&RUNS_FORGOTTEN, &[], self.runs_forgotten);
        to.counter(&REQUESTS_FORGOTTEN, &[], self.requests_forgotten);
        to.counter(&PROMOTED, &[], self.promoted);
        if let Some(found) = &self.audited {
            to.gauge(&DISCREPANCIES, &[], found.len() as u64);
        }
    }

    #[cfg(feature = "tracing")]
    fn trace(&self, took_s: f64) {
        let expired = self.reaped.len();
        debug_or_warn!(expired > 0, target: "stationmaster::upkeep",
            expired, ready = self.became("ready"), retry = self.became("retry"), failed = self.became("failed"),
            cancelled = self.became("cancelled"), forgotten = self.forgotten, took_s, "reaped");
        for reaped in &self.reaped {
            let holder = reaped.task.lease.as_ref().map(|lease| lease.holder.as_str());
            tracing::debug!(target: "stationmaster::upkeep",
                task = %reaped.task.key, holder, became = became(reaped.became), "lease expired");
        }
        for run in &self.silent_runs {
            tracing::debug!(target: "stationmaster::upkeep", namespace = %run.key.namespace, run = %run.key.id, "run closed as silent");
        }
        if let Some(found) = &self.audited {
            debug_or_warn!(!found.is_empty(), target: "stationmaster::upkeep",
                found = found.len(), repaired = self.repaired.len(), first = ?found.first(), "audited");
        }
    }
}
