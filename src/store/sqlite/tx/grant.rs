//! Grants ready tasks.

use std::collections::{HashMap, HashSet};

use super::super::error::Outcome;
use super::counters::LaneChanges;
use super::{Db, row};
use crate::lease::TaskId;
use crate::store::contract::{GrantBatch, Granted};
use crate::task::TaskRecord;

pub(super) const GRANT: &str = concat!(
    "UPDATE sm_task SET state = 1 + (?5 AND NOT (attempt_runs & 1)), epoch = epoch + 1, \
     attempt = min(attempt + 1, 4294967295), held_slots = slots, holder = ?2, expires_at = ?3, \
     noted_at = NULL, note = NULL, queued_at = ",
    row::recorded_at!("?4"),
    ", started_at = iif(?5 AND NOT (attempt_runs & 1), ",
    row::recorded_at!("?4"),
    ", started_at), first_started_at = iif(?5 AND NOT (attempt_runs & 1), coalesce(first_started_at, ",
    row::recorded_at!("?4"),
    "), first_started_at) WHERE no IN (SELECT value FROM json_each(?1)) AND (state = 0 OR (state = 5 AND due IS NULL)) RETURNING ",
    row::task_columns!()
);

/// Those of these tasks that already hold all of their slots. There are at most as many as slots.
pub(super) const KEEPING: &str = "SELECT no FROM sm_task INDEXED BY sm_task_keeping \
     WHERE state = 5 AND due IS NULL AND no IN (SELECT value FROM json_each(?1))";

/// Whether one of these tasks is not ready.
const IS_MISSING: &str = "SELECT EXISTS (SELECT 1 FROM json_each(?1) given WHERE NOT EXISTS (\
     SELECT 1 FROM sm_task WHERE no = given.value AND (state = 0 OR (state = 5 AND due IS NULL))))";

impl Db<'_> {
    pub(super) fn grant_if_open(&mut self, batch: &GrantBatch<'_>) -> Outcome<Granted> {
        if batch.whole {
            let ids = serde_json::to_string(batch.tasks)?;
            let is_missing: bool = self.prepare(IS_MISSING)?.query_row((ids,), |row| row.get(0))?;
            if is_missing {
                return Ok(Granted::new(Vec::new(), true, 0));
            }
        }
        let (tasks, had_room) = self.grant_if_ready(batch)?;
        if let Some(request) = batch.request
            && !tasks.is_empty()
        {
            self.note_request(request, batch.replaces, batch.now, &tasks)?;
        }
        if !tasks.is_empty() {
            self.put_rates(batch.rates)?;
            self.stamp_shares(batch.shares)?;
        }
        let forgotten = batch.forget.map(|forget| self.forget_requests(forget)).transpose()?;
        Ok(Granted::new(tasks, had_room, forgotten.unwrap_or(0)))
    }

    /// Returns the granted tasks, and whether there was room for all of them.
    fn grant_if_ready(&mut self, batch: &GrantBatch<'_>) -> Outcome<(Vec<TaskRecord>, bool)> {
        if batch.tasks.is_empty() {
            return Ok((Vec::new(), true));
        }
        let place: HashMap<TaskId, usize> =
            batch.tasks.iter().enumerate().rev().map(|(at, id)| (*id, at)).collect();
        let ids = serde_json::to_string(batch.tasks)?;
        let keeping: HashSet<i64> =
            self.prepare(KEEPING)?.query_map([&ids], |row| row.get(0))?.collect::<Result<_, _>>()?;
        let mut statement = self.prepare(GRANT)?;
        let (expires_at, now) = (batch.expires_at.as_micros(), batch.now.as_micros());
        let mut rows = statement.query((ids, batch.holder.as_str(), expires_at, now, batch.started))?;
        let mut changes = LaneChanges::default();
        let mut granted = Vec::with_capacity(batch.tasks.len());
        while let Some(row) = rows.next()? {
            let (lane, task) = (row.get(6)?, row::task(self, row)?);
            let misses_slots = !keeping.contains(&task.id.0);
            changes.ready(lane, -i64::from(misses_slots));
            changes.capacity(lane, if misses_slots { task.held_slots.into() } else { 0 }, 1);
            granted.push(task);
        }
        drop(rows);
        drop(statement);
        granted.sort_unstable_by_key(|task| place.get(&task.id));
        let had_room = changes.write(self)?;
        Ok((granted, had_room))
    }
}
