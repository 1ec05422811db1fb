//! Reading rows.

use rusqlite::Row;

use super::super::error::{Fault, Outcome};
use super::Db;
use crate::store::sql::records;
pub(super) use crate::store::sql::row::{
    Names, ReadRow, code, count, instant, map_index, map_index_value, name, number,
};
use crate::task::TaskRecord;

/// The columns of [`task`], for statements that read nothing else.
macro_rules! task_columns {
    () => {
        "no, namespace, workflow, run, task, map_index, lane, rank, logical_date, priority, state, due, epoch, \
         held_slots, expires_at, attempt, forgiven, lease_loss, attempt_runs, enqueued_at, queued_at, \
         first_started_at, started_at, ended_at, holder, retry, message, value, payload, ready_at, lost, finished, \
         cancel_at, noted_at, note"
    };
}
pub(super) use task_columns;

/// [`TaskRecord::recorded_at`] of a task that waits for no instant, at the instant `$now`. `max` of a NULL is
/// NULL.
macro_rules! recorded_at {
    ($now:literal) => {
        concat!(
            "max(",
            $now,
            ", enqueued_at, ready_at, ifnull(queued_at, enqueued_at), ifnull(started_at, enqueued_at), \
             ifnull(ended_at, enqueued_at))"
        )
    };
}
pub(super) use recorded_at;

/// Where a statement's own columns begin, after [`task_columns`].
pub(super) const AFTER_TASK: usize = 35;

impl ReadRow for Row<'_> {
    type Fault = Fault;

    fn integer(&self, at: usize) -> Outcome<i64> {
        Ok(self.get(at)?)
    }

    fn maybe_integer(&self, at: usize) -> Outcome<Option<i64>> {
        Ok(self.get(at)?)
    }

    fn text(&self, at: usize) -> Outcome<&str> {
        Ok(self.get_ref(at)?.as_str()?)
    }

    fn maybe_text(&self, at: usize) -> Outcome<Option<&str>> {
        Ok(self.get_ref(at)?.as_str_or_null()?)
    }

    fn host_text(&self, at: usize) -> Outcome<String> {
        Ok(self.get(at)?)
    }

    fn maybe_host_text(&self, at: usize) -> Outcome<Option<String>> {
        Ok(self.get(at)?)
    }
}

/// Reads the task in [`task_columns`].
pub(super) fn task(db: &mut Db<'_>, row: &Row<'_>) -> Outcome<TaskRecord> {
    let lane = db.lane(row.integer(6)?)?;
    let mut task = records::task(row, lane, &mut db.names)?;
    records::note(row, 33, &mut task)?;
    Ok(task)
}
