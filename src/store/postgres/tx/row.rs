//! Reading rows.

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::super::error::{Fault, Outcome};
use super::super::text::unescape;
use super::Db;
use crate::admission::LaneKey;
use crate::store::sql::records;
use crate::store::sql::row::out_of_range;
pub(super) use crate::store::sql::row::{
    Names, ReadRow, code, count, instant, map_index, map_index_value, name, number,
};
use crate::task::TaskRecord;

/// The columns of [`task`], of `task` and its `lane`, for statements that read nothing else.
macro_rules! task_columns {
    () => {
        "task.no, task.namespace, task.workflow, task.run, task.task, task.map_index, task.lane, task.rank, \
         task.logical_date, task.priority, task.state, task.due, task.epoch, task.held_slots, task.expires_at, task.attempt, \
         task.forgiven, task.lease_loss, task.attempt_runs, task.enqueued_at, task.queued_at, task.first_started_at, \
         task.started_at, task.ended_at, task.holder, task.retry, task.message, task.value, task.payload, task.ready_at, \
         task.lost, task.finished, lane.pool, lane.slots, lane.limits"
    };
}
pub(super) use task_columns;

/// [`TaskRecord::recorded_at`] of a task that waits for no instant, at the instant `$now`.
macro_rules! recorded_at {
    ($now:literal) => {
        concat!("greatest(", $now, ", enqueued_at, ready_at, queued_at, started_at, ended_at)")
    };
}
pub(super) use recorded_at;

/// Where a statement's own columns begin, after [`task_columns`].
pub(super) const AFTER_TASK: usize = 35;

/// Where the columns of the lane begin in [`task_columns`].
const LANE: usize = 32;

pub(super) fn value<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> Outcome<T> {
    Ok(row.try_get(at)?)
}

impl ReadRow for Row {
    type Fault = Fault;

    fn integer(&self, at: usize) -> Outcome<i64> {
        value(self, at)
    }

    fn maybe_integer(&self, at: usize) -> Outcome<Option<i64>> {
        value(self, at)
    }

    fn flag(&self, at: usize) -> Outcome<bool> {
        value(self, at)
    }

    fn text(&self, at: usize) -> Outcome<&str> {
        value(self, at)
    }

    fn maybe_text(&self, at: usize) -> Outcome<Option<&str>> {
        value(self, at)
    }

    /// It was [escaped](super::super::text::escape).
    fn host_text(&self, at: usize) -> Outcome<String> {
        value(self, at).map(unescape)
    }

    fn maybe_host_text(&self, at: usize) -> Outcome<Option<String>> {
        Ok(value::<Option<String>>(self, at)?.map(unescape))
    }
}

/// A count of rows, or a place in an argument, the first being 0.
pub(super) fn whole(row: &Row, at: usize) -> Outcome<usize> {
    let value: i64 = value(row, at)?;
    Ok(usize::try_from(value).map_err(|_| out_of_range(value))?)
}

/// A place as `WITH ORDINALITY` counts them, the first being 1, made one that begins with 0.
pub(super) fn place(row: &Row, at: usize) -> Outcome<usize> {
    Ok(whole(row, at)?.checked_sub(1).ok_or_else(|| out_of_range(0))?)
}

/// What the tasks of a lane need, in three columns: pool, slots, limits.
pub(super) fn lane_key(row: &Row, at: usize) -> Outcome<LaneKey> {
    let limits = serde_json::from_str(value(row, at + 2)?)?;
    Ok(LaneKey { pool: name(row, at)?, slots: count(row, at + 1)?, limits })
}

/// Reads the task in [`task_columns`].
pub(super) fn task(db: &mut Db<'_>, row: &Row) -> Outcome<TaskRecord> {
    let lane = db.lane(row, 6, LANE)?;
    records::task(row, lane, &mut db.names)
}

impl Db<'_> {
    /// The lane with its number in one column and its key from another on. Read once: the key of a number
    /// does not change.
    pub(super) fn lane(&mut self, row: &Row, id: usize, key: usize) -> Outcome<LaneKey> {
        let id: i64 = value(row, id)?;
        if let Some(key) = self.lanes.get(&id) {
            return Ok(key.clone());
        }
        let key = lane_key(row, key)?;
        self.lanes.insert(id, key.clone());
        Ok(key)
    }
}
