//! Inserting tasks.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, params};

use super::super::error::Outcome;
use super::codes::{lease_loss, task_state};
use super::counters::LaneChanges;
use super::row::map_index_value;
use super::{Db, row};
use crate::admission::LaneKey;
use crate::backoff::RetryPolicy;
use crate::id::TaskKey;
use crate::lease::TaskId;
use crate::store::Inserted;
use crate::store::sql::records;
use crate::task::{TaskInsert, TaskRecord, TaskState};
use crate::time::Timestamp;

const INSERT: &str = "INSERT INTO sm_task (no, state, due, lane, slots, rank, logical_date, map_index, priority, lease_loss, \
     attempt_runs, enqueued_at, ready_at, namespace, workflow, run, task, retry, payload) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19) \
     ON CONFLICT (namespace, workflow, run, task, map_index) DO NOTHING";
pub(super) const NO_OF_KEY: &str = "SELECT no FROM sm_task \
     WHERE namespace = ?1 AND workflow = ?2 AND run = ?3 AND task = ?4 AND map_index = ?5";
pub(super) const BY_KEY: &str = concat!(
    "SELECT ",
    row::task_columns!(),
    " FROM sm_task WHERE namespace = ?1 AND workflow = ?2 AND run = ?3 AND task = ?4 AND map_index = ?5"
);
pub(super) const BY_NO: &str = concat!(
    "SELECT ",
    row::task_columns!(),
    ", place FROM (SELECT key AS place, value AS asked FROM json_each(?1)) CROSS JOIN sm_task ON no = asked"
);

fn key_values(key: &TaskKey) -> (&str, &str, &str, &str, i64) {
    (
        key.namespace.as_str(),
        key.workflow.as_str(),
        key.run.as_str(),
        key.task.as_str(),
        map_index_value(key.map_index),
    )
}

impl Db<'_> {
    pub(super) fn insert_tasks_if_absent(&mut self, tasks: &[TaskInsert]) -> Outcome<Vec<Inserted>> {
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        let mut last = self.counter("task")?;
        let before = last;
        let mut lanes: HashMap<&LaneKey, i64> = HashMap::new();
        let mut changes = LaneChanges::default();
        let mut insert = self.prepare(INSERT)?;
        let mut answers = Vec::with_capacity(tasks.len());
        for task in tasks {
            let lane = match lanes.get(&*task.lane) {
                Some(&lane) => lane,
                None => {
                    let lane = match self.lane_no(&task.lane)? {
                        Some(lane) => lane,
                        None => {
                            if let Some(id) = self.no_of(&task.key)? {
                                answers.push(Inserted::Exists(id));
                                continue;
                            }
                            self.new_lane(&task.lane)?
                        }
                    };
                    lanes.insert(&task.lane, lane);
                    lane
                }
            };
            let retry = (task.retry != RetryPolicy::none())
                .then(|| serde_json::to_string(&task.retry))
                .transpose()?;
            let (namespace, workflow, run, name, map_index) = key_values(&task.key);
            let inserted = insert.execute(params![
                last + 1,
                task_state(TaskState::Scheduled, task.due, false),
                task.due.map(Timestamp::as_micros),
                lane,
                task.lane.slots,
                task.rank,
                task.logical_date.as_micros(),
                map_index,
                task.priority,
                lease_loss(task.lease_loss),
                records::notes(task),
                task.enqueued_at.as_micros(),
                task.due.unwrap_or(task.enqueued_at).as_micros(),
                namespace,
                workflow,
                run,
                name,
                retry,
                task.payload,
            ])?;
            if inserted == 0 {
                let id = self.no_of(&task.key)?.ok_or_else(|| {
                    super::Fault::Damaged(format!("task {} is there and cannot be found", task.key))
                })?;
                answers.push(Inserted::Exists(id));
                continue;
            }
            last += 1;
            answers.push(Inserted::New(TaskId(last)));
            changes.tasks(lane, 1, 0);
            if task.due.is_none() {
                changes.ready(lane, 1);
            }
        }
        if last != before {
            self.set_counter("task", last)?;
        }
        changes.write(self)?;
        Ok(answers)
    }

    fn no_of(&self, key: &TaskKey) -> Outcome<Option<TaskId>> {
        let mut statement = self.prepare(NO_OF_KEY)?;
        Ok(statement.query_row(key_values(key), |row| row.get(0).map(TaskId)).optional()?)
    }

    pub(super) fn tasks(&mut self, keys: &[TaskKey]) -> Outcome<Vec<Option<TaskRecord>>> {
        let mut statement = self.prepare(BY_KEY)?;
        keys.iter()
            .map(|key| {
                let mut rows = statement.query(key_values(key))?;
                rows.next()?.map(|row| row::task(self, row)).transpose()
            })
            .collect()
    }

    pub(super) fn tasks_by_id(&mut self, ids: &[TaskId]) -> Outcome<Vec<Option<TaskRecord>>> {
        let mut found = vec![None; ids.len()];
        if ids.is_empty() {
            return Ok(found);
        }
        let mut statement = self.prepare(BY_NO)?;
        let mut rows = statement.query([serde_json::to_string(ids)?])?;
        while let Some(row) = rows.next()? {
            let place: i64 = row.get(row::AFTER_TASK)?;
            if let Some(found) = usize::try_from(place).ok().and_then(|place| found.get_mut(place)) {
                *found = Some(row::task(self, row)?);
            }
        }
        Ok(found)
    }
}
