//! The optional parts of upkeep. They run after the leases and the ended tasks.
//!
//! Each part has its own transaction, so that a part that fails neither undoes nor stops the others.

use std::time::Duration;

use super::report::UpkeepReport;
use crate::error::{Invalid, Result};
use crate::ops::promote_and_forget_requests;
use crate::run::RunStatus;
use crate::store::{Discrepancy, Store};
use crate::time::{self, Timestamp};

/// The enabled parts, and when the next audit is due.
#[derive(Debug, Default)]
pub(super) struct Chores {
    pub(super) silent: Option<(Duration, RunStatus)>,
    pub(super) runs: Option<Duration>,
    pub(super) requests: Option<Duration>,
    pub(super) promotes: bool,
    pub(super) audit_every: Option<Duration>,
    pub(super) repairs: bool,
    /// `None` before the first tick.
    next_audit: Option<Timestamp>,
}

impl Chores {
    pub(super) fn check(&self) -> Result<(), Invalid> {
        let lengths = [
            ("the silence of a dead run", self.silent.map(|(length, _)| length)),
            ("the interval of audits", self.audit_every),
        ];
        match lengths.iter().find(|(_, length)| length.is_some_and(|is| time::duration_micros(is) == 0)) {
            Some((what, _)) => Err(Invalid::Duration { what, expected: "a microsecond or more" }),
            None => Ok(()),
        }
    }

    /// Does one bounded piece of each part, and adds it to the report. Runs that were silent until `dead_by`
    /// have had time to send a heartbeat. `None` if no run has.
    pub(super) fn work(
        &mut self,
        store: &dyn Store,
        now: Timestamp,
        dead_by: Option<Timestamp>,
        limit: usize,
        report: &mut UpkeepReport,
    ) {
        let parts = [
            self.tend_runs(store, now, dead_by, limit, report),
            self.tend_ticks(store, now, limit, report),
            self.audit(store, now, report),
        ];
        report.errors = parts.into_iter().filter_map(Result::err).collect();
        let is_full =
            [report.silent_runs.len(), report.runs_forgotten, report.requests_forgotten, report.promoted]
                .into_iter()
                .any(|count| count >= limit);
        let again = match (is_full, report.errors.is_empty()) {
            (true, _) => Some(now),
            (false, false) => Some(now + super::LOOK_AGAIN),
            (false, true) => None,
        };
        report.next_due = [report.next_due, again, self.next_audit].into_iter().flatten().min();
    }

    fn tend_runs(
        &self,
        store: &dyn Store,
        now: Timestamp,
        dead_by: Option<Timestamp>,
        limit: usize,
        report: &mut UpkeepReport,
    ) -> Result<()> {
        let silent = self.silent.zip(dead_by);
        if silent.is_none() && self.runs.is_none() {
            return Ok(());
        }
        (report.silent_runs, report.runs_forgotten) = store.write(|tx| {
            let closed = match silent {
                Some(((length, status), by)) => tx.close_silent_runs(by, length, status, limit)?,
                None => Vec::new(),
            };
            let forgotten = match self.runs {
                Some(length) => tx.forget_stopped_runs(now - length, limit)?,
                None => 0,
            };
            Ok((closed, forgotten))
        })?;
        Ok(())
    }

    fn tend_ticks(
        &self,
        store: &dyn Store,
        now: Timestamp,
        limit: usize,
        report: &mut UpkeepReport,
    ) -> Result<()> {
        if !self.promotes && self.requests.is_none() {
            return Ok(());
        }
        let promotes = if self.promotes { limit } else { 0 };
        let requests = self.requests.map(|length| (now - length, limit));
        (report.promoted, report.requests_forgotten) =
            store.write(|tx| promote_and_forget_requests(tx, now, promotes, requests))?;
        Ok(())
    }

    fn audit(&mut self, store: &dyn Store, now: Timestamp, report: &mut UpkeepReport) -> Result<()> {
        let Some(every) = self.audit_every else { return Ok(()) };
        // A clock that was set back delays the audit by at most one interval.
        let due = self.next_audit.map_or(now + every, |due| due.min(now + every));
        self.next_audit = Some(due);
        if now < due {
            return Ok(());
        }
        // A failed audit is repeated soon.
        self.next_audit = Some(now + every.min(super::LOOK_AGAIN));
        let found = store.read(|tx| tx.audit())?;
        let has_counters = found.iter().any(|found| !matches!(found, Discrepancy::Task { .. }));
        report.audited = Some(found);
        if self.repairs && has_counters {
            report.repaired = store.write(|tx| tx.repair_counters())?;
        }
        self.next_audit = Some(now + every);
        Ok(())
    }
}
