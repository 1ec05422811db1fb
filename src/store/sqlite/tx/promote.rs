//! Promotion: makes overdue tasks ready, earliest first.

use std::collections::BTreeMap;

use rusqlite::OptionalExtension;

use super::super::error::Outcome;
use super::counters::LaneChanges;
use super::{Db, clamp, tick};
use crate::admission::{Lane, LaneId};
use crate::store::contract::{Overdue, Promote};
use crate::time::Timestamp;

pub(super) const PROMOTE: &str = "UPDATE sm_task SET state = 0, due = NULL WHERE no IN \
     (SELECT no FROM sm_task WHERE due IS NOT NULL AND due <= ?1 \
      ORDER BY due, rank, logical_date, map_index, no LIMIT ?2) RETURNING lane";

pub(super) const OVERDUE: &str = "SELECT rank, logical_date, map_index, no, lane, ready_at FROM sm_task \
     WHERE due IS NOT NULL AND due <= ?1 ORDER BY due, rank, logical_date, map_index, no LIMIT ?2";
pub(super) const DUE_AFTER: &str =
    "SELECT due FROM sm_task WHERE due IS NOT NULL ORDER BY due LIMIT 1 OFFSET ?1";

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

    /// Returns what [`Self::promote`] would make ready.
    pub(super) fn overdue(&mut self, promote: Promote) -> Outcome<Overdue> {
        let mut found = Overdue::default();
        let mut ready: BTreeMap<i64, u64> = BTreeMap::new();
        let mut statement = self.prepare(OVERDUE)?;
        let mut rows = statement.query((promote.now.as_micros(), clamp(promote.limit)))?;
        while let Some(row) = rows.next()? {
            let lane = row.get(4)?;
            *ready.entry(lane).or_default() += 1;
            found
                .tasks
                .push(tick::candidate(row, LaneId(lane))?.ready_at(Timestamp::from_micros(row.get(5)?)));
        }
        for (id, ready) in ready {
            found.lanes.push(Lane::new(LaneId(id), self.lane(id)?, ready));
        }
        found.next_due = self.due_after(found.tasks.len())?;
        Ok(found)
    }

    /// Returns the earliest due instant, excluding this many tasks.
    pub(super) fn due_after(&mut self, tasks: usize) -> Outcome<Option<Timestamp>> {
        let mut statement = self.prepare(DUE_AFTER)?;
        Ok(statement.query_row([clamp(tasks)], |row| row.get(0).map(Timestamp::from_micros)).optional()?)
    }
}
