//! Changing and deleting waiting tasks, and the attempts that are kept.

use std::collections::HashMap;

use super::super::error::Outcome;
use super::super::text::escape;
use super::super::wire::ask;
use super::insert::{Lanes, retry};
use super::{Db, row};
use crate::lease::{LeaseRef, TaskId};
use crate::store::contract::Change;
use crate::store::sql::codes::{lease_loss, mask, task_state};
use crate::store::sql::records;
use crate::store::sql::statement::statement;
use crate::task::{PastAttempt, TaskState};
use crate::time::Timestamp;

pub(super) const CHANGE: &str = statement!("change.sql");
pub(super) const DELETE: &str = statement!("delete.sql");
pub(super) const ATTEMPTS: &str = "SELECT kept.attempt, kept.epoch, kept.queue, kept.holder, kept.queued_at, kept.started_at, \
       kept.ended_at, kept.state, kept.by_holder, kept.message, kept.no \
     FROM (SELECT DISTINCT no FROM unnest($1::bigint[]) given (no)) given \
     CROSS JOIN LATERAL (SELECT * FROM sm.attempt WHERE attempt.no = given.no OFFSET 0) kept";

impl Db<'_> {
    pub(super) fn change_if(&mut self, changes: &[Change]) -> Outcome<Vec<bool>> {
        let mut answers = vec![false; changes.len()];
        if changes.is_empty() {
            return Ok(answers);
        }
        let mut lanes = Lanes::default();
        let lane_at =
            changes.iter().map(|change| lanes.place(&change.to.lane)).collect::<Outcome<Vec<i64>>>()?;
        let each = |number: fn(&Change) -> i64| changes.iter().map(number).collect::<Vec<i64>>();
        let maybe =
            |number: fn(&Change) -> Option<i64>| changes.iter().map(number).collect::<Vec<Option<i64>>>();
        let statement = ask!(
            CHANGE,
            each(|change| change.task.id.0),
            each(|change| change.task.epoch),
            each(|change| mask(change.from)),
            each(|change| task_state(change.becomes(), change.to.due, false)),
            maybe(|change| change.to.due.map(Timestamp::as_micros)),
            each(|change| change.ready_at.as_micros()),
            each(|change| change.to.rank),
            each(|change| change.to.logical_date.as_micros()),
            each(|change| row::map_index_value(change.to.key.map_index)),
            each(|change| change.to.priority.into()),
            maybe(|change| lease_loss(change.to.lease_loss)),
            each(|change| records::notes(&change.to)),
            changes.iter().map(|change| retry(&change.to)).collect::<Outcome<Vec<Option<String>>>>()?,
            changes.iter().map(|change| escape(&change.to.payload).into_owned()).collect::<Vec<String>>(),
            lane_at,
            lanes.pools,
            lanes.slots,
            lanes.limits,
            lanes.queues,
        );
        for row in self.one(statement)? {
            if let Some(answer) = answers.get_mut(row::place(&row, 0)?) {
                *answer = true;
            }
        }
        Ok(answers)
    }

    pub(super) fn attempts(&mut self, tasks: &[TaskId]) -> Outcome<Vec<Vec<PastAttempt>>> {
        let mut found: HashMap<TaskId, Vec<PastAttempt>> = HashMap::new();
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        for row in &self.one(ask!(ATTEMPTS, tasks.iter().map(|id| id.0).collect::<Vec<i64>>()))? {
            let id = TaskId(row::value(row, 10)?);
            found.entry(id).or_default().push(records::attempt(row)?);
        }
        found.values_mut().for_each(|kept| kept.sort_unstable_by_key(|kept| kept.epoch));
        Ok(tasks.iter().map(|id| found.get(id).cloned().unwrap_or_default()).collect())
    }

    pub(super) fn delete_if(&mut self, tasks: &[(LeaseRef, TaskState)]) -> Outcome<Vec<bool>> {
        let mut answers = vec![false; tasks.len()];
        if tasks.is_empty() {
            return Ok(answers);
        }
        let each = |number: fn(&(LeaseRef, TaskState)) -> i64| tasks.iter().map(number).collect::<Vec<i64>>();
        let delete = ask!(
            DELETE,
            each(|(task, _)| task.id.0),
            each(|(task, _)| task.epoch),
            each(|(_, from)| mask(*from))
        );
        let [attempt, number] = self.numbering(0);
        let [rows, _, _] = self.all([delete, attempt, number])?;
        for row in &rows {
            if let Some(answer) = answers.get_mut(row::place(row, 0)?) {
                *answer = true;
            }
        }
        if !self.numbers {
            self.unnumbered = self.unnumbered.saturating_add(rows.len());
        }
        Ok(answers)
    }
}
