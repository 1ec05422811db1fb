//! Reading rows.

use std::num::NonZeroU32;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::super::error::{Fault, Outcome};
use super::super::text::unescape;
use super::Db;
use crate::admission::LaneKey;
use crate::backoff::RetryPolicy;
use crate::id::{Holder, IdError, Namespace, PoolName, RunId, SensorKind, TaskKey, WorkflowId};
use crate::lease::{Lease, TaskNo};
use crate::store::sql::codes::{Code, from_task_state};
use crate::task::{LeaseLoss, TaskRecord, TaskState};
use crate::time;

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

/// Where a statement's own columns begin that stand behind [`task_columns`].
pub(super) const AFTER_TASK: usize = 35;

/// Where the columns of the lane begin in [`task_columns`].
const LANE: usize = 32;

pub(super) fn value<'r, T: FromSql<'r>>(row: &'r Row, at: usize) -> Outcome<T> {
    Ok(row.try_get(at)?)
}

pub(super) fn name<T: FromStr<Err = IdError>>(row: &Row, at: usize) -> Outcome<T> {
    Ok(value::<&str>(row, at)?.parse()?)
}

pub(super) fn maybe_name<T: FromStr<Err = IdError>>(row: &Row, at: usize) -> Outcome<Option<T>> {
    Ok(value::<Option<&str>>(row, at)?.map(str::parse).transpose()?)
}

/// A text of the host's, which was [escaped](super::super::text::escape).
pub(super) fn text(row: &Row, at: usize) -> Outcome<String> {
    value(row, at).map(unescape)
}

pub(super) fn maybe_text(row: &Row, at: usize) -> Outcome<Option<String>> {
    Ok(value::<Option<String>>(row, at)?.map(unescape))
}

/// The names that the row read last had: the next one often has the same, and then shares them.
#[derive(Debug, Default)]
pub(super) struct Names {
    namespace: Option<Namespace>,
    workflow: Option<WorkflowId>,
    run: Option<RunId>,
    holder: Option<Holder>,
    kind: Option<SensorKind>,
}

impl Names {
    pub(super) fn kind(&mut self, row: &Row, at: usize) -> Outcome<SensorKind> {
        share(&mut self.kind, value(row, at)?)
    }

    fn maybe_holder(&mut self, row: &Row, at: usize) -> Outcome<Option<Holder>> {
        value::<Option<&str>>(row, at)?.map(|text| share(&mut self.holder, text)).transpose()
    }
}

fn share<T: FromStr<Err = IdError> + AsRef<str> + Clone>(last: &mut Option<T>, text: &str) -> Outcome<T> {
    match last {
        Some(name) if (*name).as_ref() == text => Ok(name.clone()),
        _ => Ok(last.insert(text.parse()?).clone()),
    }
}

fn out_of_range(value: i64) -> Fault {
    Fault::Damaged(format!("{value} is out of range"))
}

pub(super) fn count(row: &Row, at: usize) -> Outcome<u32> {
    let value: i64 = value(row, at)?;
    u32::try_from(value).map_err(|_| out_of_range(value))
}

pub(super) fn at_least_one(row: &Row, at: usize) -> Outcome<NonZeroU32> {
    NonZeroU32::new(count(row, at)?).ok_or_else(|| out_of_range(0))
}

pub(super) fn number(row: &Row, at: usize) -> Outcome<u64> {
    let value: i64 = value(row, at)?;
    u64::try_from(value).map_err(|_| out_of_range(value))
}

/// A count of rows, or a place in an argument, the first being 0.
pub(super) fn whole(row: &Row, at: usize) -> Outcome<usize> {
    let value: i64 = value(row, at)?;
    usize::try_from(value).map_err(|_| out_of_range(value))
}

/// A place as `WITH ORDINALITY` counts them, the first being 1, made one that begins with 0.
pub(super) fn place(row: &Row, at: usize) -> Outcome<usize> {
    whole(row, at)?.checked_sub(1).ok_or_else(|| out_of_range(0))
}

pub(super) fn instant(row: &Row, at: usize) -> Outcome<DateTime<Utc>> {
    Ok(time::from_micros(value(row, at)?))
}

pub(super) fn maybe_instant(row: &Row, at: usize) -> Outcome<Option<DateTime<Utc>>> {
    Ok(value::<Option<i64>>(row, at)?.map(time::from_micros))
}

pub(super) fn code<T: Code>(row: &Row, at: usize) -> Outcome<T> {
    Ok(T::from_code(value(row, at)?)?)
}

/// A task that is not mapped has -1, so that it sorts before its mapped ones.
pub(super) fn map_index(row: &Row, at: usize) -> Outcome<Option<u32>> {
    match value::<i64>(row, at)? {
        -1 => Ok(None),
        _ => count(row, at).map(Some),
    }
}

pub(super) fn map_index_value(index: Option<u32>) -> i64 {
    index.map_or(-1, i64::from)
}

/// The key in five columns, from this one on.
pub(super) fn key(row: &Row, at: usize, names: &mut Names) -> Outcome<TaskKey> {
    Ok(TaskKey::from_parts(
        share(&mut names.namespace, value(row, at)?)?,
        share(&mut names.workflow, value(row, at + 1)?)?,
        share(&mut names.run, value(row, at + 2)?)?,
        name(row, at + 3)?,
        map_index(row, at + 4)?,
    ))
}

/// What the tasks of a lane need, in three columns: pool, slots, limits.
pub(super) fn lane_key(row: &Row, at: usize) -> Outcome<LaneKey> {
    let pool: PoolName = name(row, at)?;
    let limits = serde_json::from_str(value(row, at + 2)?)?;
    Ok(LaneKey { pool, slots: count(row, at + 1)?, limits })
}

/// The task in [`task_columns`].
pub(super) fn task(db: &mut Db<'_>, row: &Row) -> Outcome<TaskRecord> {
    let lease = match (db.names.maybe_holder(row, 24)?, maybe_instant(row, 14)?) {
        (Some(holder), Some(expires_at)) => Some(Lease::new(holder, expires_at)),
        _ => None,
    };
    Ok(TaskRecord {
        no: TaskNo(value(row, 0)?),
        key: key(row, 1, &mut db.names)?,
        lane: db.lane(row, 6, LANE)?,
        rank: value(row, 7)?,
        logical_date: instant(row, 8)?,
        priority: i32::try_from(value::<i64>(row, 9)?).map_err(|_| out_of_range(i64::MAX))?,
        state: from_task_state(value(row, 10)?)?,
        due: maybe_instant(row, 11)?,
        epoch: value(row, 12)?,
        lease,
        held_slots: count(row, 13)?,
        attempt: count(row, 15)?,
        forgiven: count(row, 16)?,
        lost: count(row, 30)?,
        lease_loss: match value::<Option<i64>>(row, 17)? {
            None => LeaseLoss::Fail,
            Some(_) => LeaseLoss::Requeue { at_most: count(row, 17)? },
        },
        attempt_runs: code(row, 18)?,
        enqueued_at: instant(row, 19)?,
        ready_at: instant(row, 29)?,
        queued_at: maybe_instant(row, 20)?,
        first_started_at: maybe_instant(row, 21)?,
        started_at: maybe_instant(row, 22)?,
        ended_at: maybe_instant(row, 23)?,
        retry: match value::<Option<&str>>(row, 25)? {
            None => RetryPolicy::none(),
            Some(text) => RetryPolicy::stored(text),
        },
        message: maybe_text(row, 26)?,
        value: maybe_text(row, 27)?,
        payload: text(row, 28)?,
        finished: value::<Option<i64>>(row, 31)?.map(TaskState::from_code).transpose()?,
    })
}

impl Db<'_> {
    /// The lane with its number in one column and its key from another on. Read once: the key of a number
    /// does not change.
    pub(super) fn lane(&mut self, row: &Row, no: usize, key: usize) -> Outcome<LaneKey> {
        let no: i64 = value(row, no)?;
        if let Some(key) = self.lanes.get(&no) {
            return Ok(key.clone());
        }
        let key = lane_key(row, key)?;
        self.lanes.insert(no, key.clone());
        Ok(key)
    }
}
