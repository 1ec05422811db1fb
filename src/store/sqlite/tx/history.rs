//! Records of past attempts.

use super::super::error::Outcome;
use super::Db;
use super::codes::Code;
use crate::core::task::attempt::{KEPT_ATTEMPTS, kept_message};
use crate::lease::TaskId;
use crate::store::contract::Move;
use crate::store::sql::records;
use crate::task::PastAttempt;
use crate::time::Timestamp;

/// Runs before the move, which clears the lease. For each epoch the first attempt is kept.
pub(super) const KEEP: &str = "INSERT INTO sm_attempt \
     (no, epoch, attempt, queued_at, started_at, ended_at, state, by_holder, holder, queue, message) \
     SELECT task.no, task.epoch, attempt, queued_at, iif(state = 1, NULL, started_at), \
       max(ifnull(?2, ready_at), coalesce(queued_at, ?2, ready_at), coalesce(iif(state = 1, NULL, started_at), ?2, ready_at)), \
       ?3, ?4, holder, (SELECT queue FROM sm_lane lane WHERE lane.no = task.lane), ?5 \
     FROM sm_task task WHERE task.no = ?1 \
       AND NOT EXISTS (SELECT 1 FROM sm_attempt kept WHERE kept.no = task.no AND kept.epoch = task.epoch)";
pub(super) const FORGET: &str = "DELETE FROM sm_attempt WHERE no = ?1 AND epoch <= ?2";
pub(super) const ATTEMPTS: &str = "SELECT attempt, epoch, queue, holder, queued_at, started_at, ended_at, state, by_holder, message \
     FROM sm_attempt WHERE no = ?1 ORDER BY epoch";
pub(super) const DELETE_ATTEMPTS: &str = "DELETE FROM sm_attempt WHERE no = ?1";

impl Db<'_> {
    /// Keeps the attempt that this move ends.
    pub(super) fn keep_attempt(&self, change: &Move) -> Outcome<()> {
        let at = change.ended_at.or(change.at).map(Timestamp::as_micros);
        let message = kept_message(change.to, change.finished, change.message.as_ref());
        let (id, to) = (change.task.id.0, change.to.code());
        self.prepare(KEEP)?.execute((id, at, to, i64::from(change.finished), message))?;
        self.prepare(FORGET)?.execute((id, change.task.epoch.saturating_sub(KEPT_ATTEMPTS)))?;
        Ok(())
    }

    pub(super) fn attempts(&mut self, tasks: &[TaskId]) -> Outcome<Vec<Vec<PastAttempt>>> {
        let mut statement = self.prepare(ATTEMPTS)?;
        let mut found = Vec::with_capacity(tasks.len());
        for id in tasks {
            let (mut rows, mut kept) = (statement.query([id.0])?, Vec::new());
            while let Some(row) = rows.next()? {
                kept.push(records::attempt(row)?);
            }
            found.push(kept);
        }
        Ok(found)
    }
}
