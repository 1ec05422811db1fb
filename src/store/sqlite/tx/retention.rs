//! Deletes what is kept only for a while: records of ticks, and ended tasks.

use rusqlite::OptionalExtension;

use super::super::error::Outcome;
use super::counters::LaneChanges;
use super::{Db, clamp};
use crate::id::RequestId;
use crate::lease::{LeaseRef, TaskId};
use crate::store::contract::Forget;
use crate::store::sql::codes::Code;
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

const NOTE_REQUEST: &str = "INSERT INTO sm_request (id, at, grants) VALUES (?1, ?2, ?3) \
     ON CONFLICT (id) DO UPDATE SET at = excluded.at, grants = excluded.grants";
/// Renames the row of one tick to another, replacing that tick's own row if it has one.
pub(super) const REPLACE_REQUEST: &str =
    "UPDATE OR REPLACE sm_request SET id = ?1, at = ?2, grants = ?3 WHERE id = ?4";
pub(super) const REQUEST: &str = "SELECT grants FROM sm_request WHERE id = ?1";
pub(super) const FORGET_REQUESTS: &str = "DELETE FROM sm_request WHERE no IN \
     (SELECT no FROM sm_request WHERE at < ?1 ORDER BY at, id LIMIT ?2)";
/// The latest tick beyond this many latest ones.
pub(super) const LATEST_BEYOND: &str =
    "SELECT at, id FROM sm_request ORDER BY at DESC, id DESC LIMIT 1 OFFSET ?1";
pub(super) const FORGET_REQUESTS_UP_TO: &str = "DELETE FROM sm_request WHERE no IN \
     (SELECT no FROM sm_request WHERE (at, id) <= (?1, ?2) ORDER BY at, id LIMIT ?3)";
pub(super) const FORGETTABLE: &str = "SELECT no, lane FROM sm_task INDEXED BY sm_task_ended \
     WHERE state >= 6 AND state = ?4 AND ended_at < ?1 \
       AND (ended_at < ?2 OR NOT EXISTS (SELECT 1 FROM sm_sensor sensor WHERE sensor.no = sm_task.no)) \
     ORDER BY ended_at, no LIMIT ?3";
pub(super) const DELETE_SENSOR: &str = "DELETE FROM sm_sensor WHERE no = ?1 RETURNING changed";
pub(super) const DELETE_TASK: &str = "DELETE FROM sm_task WHERE no = ?1";

impl Db<'_> {
    pub(super) fn note_request(
        &mut self,
        request: &RequestId,
        replaces: Option<&RequestId>,
        at: Timestamp,
        granted: &[TaskRecord],
    ) -> Outcome<()> {
        let pairs: Vec<(i64, i64)> = granted.iter().map(|task| (task.id.0, task.epoch)).collect();
        let (request, at, grants) = (request.as_str(), at.as_micros(), serde_json::to_string(&pairs)?);
        if let Some(replaced) = replaces
            && self.prepare(REPLACE_REQUEST)?.execute((request, at, &grants, replaced.as_str()))? > 0
        {
            return Ok(());
        }
        self.prepare(NOTE_REQUEST)?.execute((request, at, grants))?;
        Ok(())
    }

    pub(super) fn granted(&mut self, request: &RequestId) -> Outcome<Option<Vec<LeaseRef>>> {
        let mut statement = self.prepare(REQUEST)?;
        let text: Option<String> = statement.query_row([request.as_str()], |row| row.get(0)).optional()?;
        let Some(text) = text else { return Ok(None) };
        let pairs: Vec<(i64, i64)> = serde_json::from_str(&text)?;
        Ok(Some(pairs.into_iter().map(|(id, epoch)| LeaseRef::new(TaskId(id), epoch)).collect()))
    }

    pub(super) fn forget_requests(&mut self, forget: Forget) -> Outcome<usize> {
        let old = self.prepare(FORGET_REQUESTS)?.execute((forget.before.as_micros(), clamp(forget.limit)))?;
        let Some(most) = forget.most else { return Ok(old) };
        // Ticks before the instant are deleted, so those beyond the number come next.
        let beyond: Option<(i64, String)> = self
            .prepare(LATEST_BEYOND)?
            .query_row([clamp(most)], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((at, id)) = beyond else { return Ok(old) };
        let left = clamp(forget.limit - old);
        Ok(old + self.prepare(FORGET_REQUESTS_UP_TO)?.execute((at, id, left))?)
    }

    pub(super) fn forget_ended(
        &mut self,
        state: TaskState,
        before: Timestamp,
        sensors_before: Timestamp,
        limit: usize,
    ) -> Outcome<usize> {
        let ended = self
            .prepare(FORGETTABLE)?
            .query_map((before.as_micros(), sensors_before.as_micros(), clamp(limit), state.code()), |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?
            .collect::<Result<Vec<(i64, i64)>, _>>()?;
        let mut task = self.prepare(DELETE_TASK)?;
        let mut changes = LaneChanges::default();
        for (id, lane) in &ended {
            task.execute([id])?;
            changes.tasks(*lane, 0, -1);
        }
        drop(task);
        let gone: Vec<i64> = ended.iter().map(|(id, _)| *id).collect();
        self.delete_rows_of(&gone)?;
        changes.write(self)?;
        Ok(gone.len())
    }
}
