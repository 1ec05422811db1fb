//! What is kept for a while: what ticks granted, and tasks that ended.

use chrono::{DateTime, Utc};
use rusqlite::OptionalExtension;

use super::super::error::Outcome;
use super::lane::LaneChanges;
use super::{Db, clamp};
use crate::id::RequestId;
use crate::lease::{LeaseRef, TaskNo};
use crate::store::Forget;
use crate::time::micros;

const NOTE_REQUEST: &str = "INSERT INTO sm_request (id, at, grants) VALUES (?1, ?2, ?3) \
     ON CONFLICT (id) DO UPDATE SET at = excluded.at, grants = excluded.grants";
pub(super) const REQUEST: &str = "SELECT grants FROM sm_request WHERE id = ?1";
pub(super) const FORGET_REQUESTS: &str = "DELETE FROM sm_request WHERE no IN \
     (SELECT no FROM sm_request WHERE at < ?1 ORDER BY at, id LIMIT ?2)";
pub(super) const FORGETTABLE: &str = "SELECT no, lane FROM sm_task INDEXED BY sm_task_ended \
     WHERE state >= 6 AND events = 0 AND ended_at < ?1 ORDER BY ended_at, no LIMIT ?2";
pub(super) const DELETE_SENSOR: &str = "DELETE FROM sm_sensor WHERE no = ?1 RETURNING changed";
pub(super) const DELETE_TASK: &str = "DELETE FROM sm_task WHERE no = ?1";

impl Db<'_> {
    pub(super) fn note_request(
        &mut self,
        request: &RequestId,
        at: DateTime<Utc>,
        grants: &[LeaseRef],
    ) -> Outcome<()> {
        if grants.is_empty() {
            return Ok(());
        }
        let pairs: Vec<(i64, i64)> = grants.iter().map(|grant| (grant.no.0, grant.epoch)).collect();
        let grants = serde_json::to_string(&pairs)?;
        self.prepare(NOTE_REQUEST)?.execute((request.as_str(), micros(at), grants))?;
        Ok(())
    }

    pub(super) fn granted(&mut self, request: &RequestId) -> Outcome<Option<Vec<LeaseRef>>> {
        let mut statement = self.prepare(REQUEST)?;
        let text: Option<String> = statement.query_row([request.as_str()], |row| row.get(0)).optional()?;
        let Some(text) = text else { return Ok(None) };
        let pairs: Vec<(i64, i64)> = serde_json::from_str(&text)?;
        Ok(Some(pairs.into_iter().map(|(no, epoch)| LeaseRef::new(TaskNo(no), epoch)).collect()))
    }

    pub(super) fn forget_requests(&mut self, forget: Forget) -> Outcome<usize> {
        Ok(self.prepare(FORGET_REQUESTS)?.execute((micros(forget.before), clamp(forget.limit)))?)
    }

    pub(super) fn forget_ended(&mut self, before: DateTime<Utc>, limit: usize) -> Outcome<usize> {
        let ended = self
            .prepare(FORGETTABLE)?
            .query_map((micros(before), clamp(limit)), |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<Vec<(i64, i64)>, _>>()?;
        let (mut sensor, mut task) = (self.prepare(DELETE_SENSOR)?, self.prepare(DELETE_TASK)?);
        let mut changes = LaneChanges::default();
        let mut last_change = None;
        for (no, lane) in &ended {
            let changed: Option<i64> = sensor.query_row([no], |row| row.get(0)).optional()?;
            last_change = last_change.max(changed);
            task.execute([no])?;
            changes.tasks(*lane, -1);
        }
        if let Some(last) = last_change
            && last > self.counter("forgotten")?
        {
            self.set_counter("forgotten", last)?;
        }
        changes.write(self)?;
        Ok(ended.len())
    }
}
