//! Promotion: tasks whose instant has come become ready, earliest first.

use super::super::error::Outcome;
use super::counters::LaneChanges;
use super::{Db, clamp};
use crate::store::contract::Promote;

pub(super) const PROMOTE: &str = "UPDATE sm_task SET state = 0, due = NULL WHERE no IN \
     (SELECT no FROM sm_task WHERE due IS NOT NULL AND due <= ?1 \
      ORDER BY due, rank, logical_date, map_index, no LIMIT ?2) RETURNING lane";

impl Db<'_> {
    pub(super) fn promote(&mut self, promote: Promote) -> Outcome<usize> {
        let (mut changes, mut promoted) = (LaneChanges::default(), 0);
        let mut statement = self.prepare(PROMOTE)?;
        let mut rows = statement.query((promote.now.as_micros(), clamp(promote.limit)))?;
        while let Some(row) = rows.next()? {
            changes.ready(row.get(0)?, 1);
            promoted += 1;
        }
        changes.write(self)?;
        Ok(promoted)
    }
}
