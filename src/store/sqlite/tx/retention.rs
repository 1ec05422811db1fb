//! Deleting what ended long ago.

use chrono::{DateTime, Utc};

use super::super::error::Outcome;
use super::{Db, clamp};
use crate::time::micros;

pub(super) const FORGETTABLE: &str = "SELECT no FROM sm_task INDEXED BY sm_task_ended \
     WHERE state >= 6 AND ended_at < ?1 AND NOT EXISTS (SELECT 1 FROM sm_event WHERE sm_event.no = sm_task.no) \
     ORDER BY ended_at, no LIMIT ?2";
pub(super) const DELETE_SENSOR: &str = "DELETE FROM sm_sensor WHERE no = ?1";
pub(super) const DELETE_TASK: &str = "DELETE FROM sm_task WHERE no = ?1";

impl Db<'_> {
    pub(super) fn forget_ended(&mut self, before: DateTime<Utc>, limit: usize) -> Outcome<usize> {
        let nos = self
            .prepare(FORGETTABLE)?
            .query_map((micros(before), clamp(limit)), |row| row.get(0))?
            .collect::<Result<Vec<i64>, _>>()?;
        let (mut sensor, mut task) = (self.prepare(DELETE_SENSOR)?, self.prepare(DELETE_TASK)?);
        for no in &nos {
            sensor.execute([no])?;
            task.execute([no])?;
        }
        Ok(nos.len())
    }
}
