//! Reading rows.

use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::super::error::{Fault, Outcome};
use super::super::text::unescape;
use super::{Db, Digest};
use crate::admission::LaneKey;
use crate::id::QueueName;
use crate::store::sql::needs;
use crate::store::sql::records;
use crate::store::sql::row::out_of_range;
pub(super) use crate::store::sql::row::{
    Names, ReadRow, code, count, map_index_value, maybe_name, name, number,
};
use crate::task::TaskRecord;

/// The index of a statement's own first column, after those of a task.
pub(super) const AFTER_TASK: usize = 37;

/// The columns of the digest of a task's lane, and of the first of its needs.
pub(super) const LANE: usize = 6;
const NEEDS: usize = 33;

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

    fn text(&self, at: usize) -> Outcome<&str> {
        value(self, at)
    }

    fn maybe_text(&self, at: usize) -> Outcome<Option<&str>> {
        value(self, at)
    }

    /// Reads a text that was [escaped](super::super::text::escape).
    fn host_text(&self, at: usize) -> Outcome<String> {
        value(self, at).map(unescape)
    }

    fn maybe_host_text(&self, at: usize) -> Outcome<Option<String>> {
        Ok(value::<Option<String>>(self, at)?.map(unescape))
    }
}

/// The columns of a row from this one on.
struct From<'r> {
    row: &'r Row,
    from: usize,
}

impl ReadRow for From<'_> {
    type Fault = Fault;

    fn integer(&self, at: usize) -> Outcome<i64> {
        self.row.integer(self.from + at)
    }

    fn maybe_integer(&self, at: usize) -> Outcome<Option<i64>> {
        self.row.maybe_integer(self.from + at)
    }

    fn text(&self, at: usize) -> Outcome<&str> {
        self.row.text(self.from + at)
    }

    fn maybe_text(&self, at: usize) -> Outcome<Option<&str>> {
        self.row.maybe_text(self.from + at)
    }

    fn host_text(&self, at: usize) -> Outcome<String> {
        self.row.host_text(self.from + at)
    }

    fn maybe_host_text(&self, at: usize) -> Outcome<Option<String>> {
        self.row.maybe_host_text(self.from + at)
    }
}

/// Reads a count of rows, or an index in an argument, counted from 0.
pub(in super::super) fn whole(row: &Row, at: usize) -> Outcome<usize> {
    let value: i64 = value(row, at)?;
    Ok(usize::try_from(value).map_err(|_| out_of_range(value))?)
}

/// Reads an index that `WITH ORDINALITY` counts from 1, and returns it counted from 0.
pub(super) fn place(row: &Row, at: usize) -> Outcome<usize> {
    Ok(whole(row, at)?.checked_sub(1).ok_or_else(|| out_of_range(0))?)
}

/// Reads the needs of a lane's tasks from four columns: pool, slots, limits, queue.
pub(super) fn lane_key(row: &Row, at: usize) -> Outcome<LaneKey> {
    let queue = maybe_name(row, at + 3)?.unwrap_or_else(QueueName::default_queue);
    let lane = LaneKey::new(name(row, at)?, count(row, at + 1)?, Vec::new()).queue(queue);
    Ok(needs::from_text(lane, value(row, at + 2)?)?)
}

/// Reads a task in the form that the statements `tasks_by_id` and `tasks_by_key` return.
pub(super) fn task(db: &mut Db<'_>, row: &Row) -> Outcome<TaskRecord> {
    task_from(db, row, 0)
}

/// Reads such a task from this column on.
pub(super) fn task_from(db: &mut Db<'_>, row: &Row, from: usize) -> Outcome<TaskRecord> {
    let lane = db.lane(row, from + LANE, from + NEEDS)?;
    records::task(&From { row, from }, lane, &mut db.names)
}

/// Reads a task, and from this column on the note of its lease's holder.
pub(super) fn noted_task(db: &mut Db<'_>, row: &Row, at: usize) -> Outcome<TaskRecord> {
    let mut task = task(db, row)?;
    records::note(row, at, &mut task)?;
    Ok(task)
}

impl Db<'_> {
    /// Reads the digest from one column, and the needs from another one on. The needs are read once, because
    /// a digest's needs do not change.
    pub(super) fn lane(&mut self, row: &Row, digest: usize, needs: usize) -> Outcome<Arc<LaneKey>> {
        let digest: Digest = value(row, digest)?;
        if let Some(key) = self.lanes.get(&digest) {
            return Ok(Arc::clone(key));
        }
        let key = Arc::new(lane_key(row, needs)?);
        self.lanes.insert(digest, Arc::clone(&key));
        Ok(key)
    }
}
