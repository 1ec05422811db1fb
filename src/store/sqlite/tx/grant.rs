//! Granting, and the record of what ticks granted.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use rusqlite::OptionalExtension;

use super::super::error::Outcome;
use super::lane::ReadyChange;
use super::{Db, clamp, row};
use crate::id::RequestId;
use crate::lease::{LeaseRef, TaskNo};
use crate::store::GrantBatch;
use crate::task::TaskRecord;
use crate::time::micros;

pub(super) const GRANT: &str = concat!(
    "UPDATE sm_task SET state = 1, epoch = epoch + 1, attempt = min(attempt + 1, 4294967295), held_slots = slots, holder = ?2, \
     expires_at = ?3, queued_at = ?4 WHERE no IN (SELECT value FROM json_each(?1)) AND state = 0 RETURNING ",
    row::task_columns!()
);
const NOTE_REQUEST: &str = "INSERT INTO sm_request (id, at, grants) VALUES (?1, ?2, ?3) \
     ON CONFLICT (id) DO UPDATE SET at = excluded.at, grants = excluded.grants";
pub(super) const REQUEST: &str = "SELECT grants FROM sm_request WHERE id = ?1";
pub(super) const FORGET_REQUESTS: &str = "DELETE FROM sm_request WHERE no IN \
     (SELECT no FROM sm_request WHERE at < ?1 ORDER BY at, id LIMIT ?2)";

impl Db<'_> {
    pub(super) fn grant_if_ready(&mut self, batch: &GrantBatch<'_>) -> Outcome<Vec<TaskRecord>> {
        if batch.tasks.is_empty() {
            return Ok(Vec::new());
        }
        let place: HashMap<TaskNo, usize> =
            batch.tasks.iter().enumerate().rev().map(|(at, no)| (*no, at)).collect();
        let nos = serde_json::to_string(batch.tasks)?;
        let mut statement = self.prepare(GRANT)?;
        let (expires_at, now) = (micros(batch.expires_at), micros(batch.now));
        let mut rows = statement.query((nos, batch.holder.as_str(), expires_at, now))?;
        let mut ready = ReadyChange::default();
        let mut granted = Vec::with_capacity(batch.tasks.len());
        while let Some(row) = rows.next()? {
            ready.add(row.get(6)?, -1);
            granted.push(row::task(self, row)?);
        }
        granted.sort_unstable_by_key(|task| place.get(&task.no));
        ready.write(self)?;
        Ok(granted)
    }

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

    pub(super) fn forget_requests(&mut self, before: DateTime<Utc>, limit: usize) -> Outcome<usize> {
        Ok(self.prepare(FORGET_REQUESTS)?.execute((micros(before), clamp(limit)))?)
    }
}
