//! Reading rows.

use std::num::NonZeroU32;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use rusqlite::Row;

use super::super::error::{Fault, Outcome};
use super::Db;
use super::codes::{Code, from_task_state};
use crate::backoff::RetryPolicy;
use crate::id::{Holder, IdError, Namespace, RunId, SensorKind, TaskKey, WorkflowId};
use crate::lease::{Lease, TaskNo};
use crate::task::{LeaseLoss, TaskRecord, TaskState};
use crate::time;

/// The columns of [`task`], for statements that read nothing else.
macro_rules! task_columns {
    () => {
        "no, namespace, workflow, run, task, map_index, lane, rank, logical_date, priority, state, due, epoch, \
         held_slots, expires_at, attempt, forgiven, lease_loss, attempt_runs, enqueued_at, queued_at, \
         first_started_at, started_at, ended_at, holder, retry, message, value, payload, ready_at, lost, finished"
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

/// Where a statement's own columns begin that stand behind [`task_columns`].
pub(super) const AFTER_TASK: usize = 32;

pub(super) fn name<T: FromStr<Err = IdError>>(row: &Row<'_>, at: usize) -> Outcome<T> {
    Ok(row.get_ref(at)?.as_str()?.parse()?)
}

pub(super) fn maybe_name<T: FromStr<Err = IdError>>(row: &Row<'_>, at: usize) -> Outcome<Option<T>> {
    Ok(row.get_ref(at)?.as_str_or_null()?.map(str::parse).transpose()?)
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
    pub(super) fn kind(&mut self, row: &Row<'_>, at: usize) -> Outcome<SensorKind> {
        share(&mut self.kind, row.get_ref(at)?.as_str()?)
    }

    fn maybe_holder(&mut self, row: &Row<'_>, at: usize) -> Outcome<Option<Holder>> {
        row.get_ref(at)?.as_str_or_null()?.map(|text| share(&mut self.holder, text)).transpose()
    }
}

fn share<T: FromStr<Err = IdError> + AsRef<str> + Clone>(last: &mut Option<T>, text: &str) -> Outcome<T> {
    match last {
        Some(name) if (*name).as_ref() == text => Ok(name.clone()),
        _ => Ok(last.insert(text.parse()?).clone()),
    }
}

pub(super) fn count(row: &Row<'_>, at: usize) -> Outcome<u32> {
    let value: i64 = row.get(at)?;
    u32::try_from(value).map_err(|_| Fault::Damaged(format!("{value} is out of range")))
}

pub(super) fn at_least_one(row: &Row<'_>, at: usize) -> Outcome<NonZeroU32> {
    NonZeroU32::new(count(row, at)?).ok_or_else(|| Fault::Damaged("0 is out of range".into()))
}

pub(super) fn number(row: &Row<'_>, at: usize) -> Outcome<u64> {
    let value: i64 = row.get(at)?;
    u64::try_from(value).map_err(|_| Fault::Damaged(format!("{value} is out of range")))
}

pub(super) fn instant(row: &Row<'_>, at: usize) -> Outcome<DateTime<Utc>> {
    Ok(time::from_micros(row.get(at)?))
}

pub(super) fn maybe_instant(row: &Row<'_>, at: usize) -> Outcome<Option<DateTime<Utc>>> {
    Ok(row.get::<_, Option<i64>>(at)?.map(time::from_micros))
}

pub(super) fn code<T: Code>(row: &Row<'_>, at: usize) -> Outcome<T> {
    Ok(T::from_code(row.get(at)?)?)
}

/// A task that is not mapped has -1, so that it sorts before its mapped ones.
pub(super) fn map_index(row: &Row<'_>, at: usize) -> Outcome<Option<u32>> {
    match row.get::<_, i64>(at)? {
        -1 => Ok(None),
        _ => count(row, at).map(Some),
    }
}

pub(super) fn map_index_value(index: Option<u32>) -> i64 {
    index.map_or(-1, i64::from)
}

/// The key in five columns, from this one on.
pub(super) fn key(row: &Row<'_>, at: usize, names: &mut Names) -> Outcome<TaskKey> {
    Ok(TaskKey::from_parts(
        share(&mut names.namespace, row.get_ref(at)?.as_str()?)?,
        share(&mut names.workflow, row.get_ref(at + 1)?.as_str()?)?,
        share(&mut names.run, row.get_ref(at + 2)?.as_str()?)?,
        name(row, at + 3)?,
        map_index(row, at + 4)?,
    ))
}

/// The task in [`task_columns`].
pub(super) fn task(db: &mut Db<'_>, row: &Row<'_>) -> Outcome<TaskRecord> {
    let lease = match (db.names.maybe_holder(row, 24)?, maybe_instant(row, 14)?) {
        (Some(holder), Some(expires_at)) => Some(Lease::new(holder, expires_at)),
        _ => None,
    };
    Ok(TaskRecord {
        no: TaskNo(row.get(0)?),
        key: key(row, 1, &mut db.names)?,
        lane: db.lane(row.get(6)?)?,
        rank: row.get(7)?,
        logical_date: instant(row, 8)?,
        priority: row.get(9)?,
        state: from_task_state(row.get(10)?)?,
        due: maybe_instant(row, 11)?,
        epoch: row.get(12)?,
        lease,
        held_slots: count(row, 13)?,
        attempt: count(row, 15)?,
        forgiven: count(row, 16)?,
        lost: count(row, 30)?,
        lease_loss: match row.get::<_, Option<i64>>(17)? {
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
        retry: match row.get_ref(25)?.as_str_or_null()? {
            None => RetryPolicy::none(),
            Some(text) => RetryPolicy::stored(text),
        },
        message: row.get(26)?,
        value: row.get(27)?,
        payload: row.get(28)?,
        finished: row.get::<_, Option<i64>>(31)?.map(TaskState::from_code).transpose()?,
    })
}
