//! What an admission tick reads, and what makes tasks ready for it.

use chrono::{DateTime, Utc};
use rusqlite::{OptionalExtension, Rows};

use super::super::error::Outcome;
use super::lane::LaneChanges;
use super::row::map_index_value;
use super::{Db, clamp, row};
use crate::admission::{Candidate, LaneNo, LanePage, OrderKey};
use crate::lease::TaskNo;
use crate::time::{from_micros, micros};

pub(super) const PROMOTE: &str = "UPDATE sm_task SET state = 0, due = NULL WHERE no IN \
     (SELECT no FROM sm_task WHERE due IS NOT NULL AND due <= ?1 ORDER BY due, no LIMIT ?2) RETURNING lane";
pub(super) const NEXT_DUE: &str = "SELECT due FROM sm_task WHERE due IS NOT NULL ORDER BY due LIMIT 1";
pub(super) const FIRST_CANDIDATES: &str = "SELECT rank, logical_date, map_index, no FROM sm_task \
     WHERE lane = ?1 AND state = 0 ORDER BY rank, logical_date, map_index, no LIMIT ?2";
pub(super) const EQUAL_CANDIDATES: &str = "SELECT rank, logical_date, map_index, no FROM sm_task \
     WHERE lane = ?1 AND state = 0 AND rank = ?3 AND logical_date = ?4 AND map_index = ?5 AND no > ?6 \
     ORDER BY no LIMIT ?2";
pub(super) const LATER_CANDIDATES: &str = "SELECT rank, logical_date, map_index, no FROM sm_task \
     WHERE lane = ?1 AND state = 0 AND (rank, logical_date, map_index) > (?3, ?4, ?5) \
     ORDER BY rank, logical_date, map_index, no LIMIT ?2";

impl Db<'_> {
    pub(super) fn promote_due(&mut self, now: DateTime<Utc>, limit: usize) -> Outcome<usize> {
        let mut changes = LaneChanges::default();
        let mut promoted = 0;
        let mut statement = self.prepare(PROMOTE)?;
        let mut rows = statement.query((micros(now), clamp(limit)))?;
        while let Some(row) = rows.next()? {
            changes.ready(row.get(0)?, 1);
            promoted += 1;
        }
        changes.write(self)?;
        Ok(promoted)
    }

    pub(super) fn next_due(&mut self) -> Outcome<Option<DateTime<Utc>>> {
        Ok(self.prepare(NEXT_DUE)?.query_row([], |row| row.get(0).map(from_micros)).optional()?)
    }

    /// A page that continues is read in two parts, because SQLite does not seek to a rowid within a row value: what
    /// equals the place but for the number, and what lies behind it.
    pub(super) fn candidates(&mut self, pages: &[LanePage]) -> Outcome<Vec<Candidate>> {
        let mut found = Vec::new();
        for page in pages {
            let (lane, limit) = (page.lane, clamp(page.limit));
            let Some(after) = page.after else {
                let mut statement = self.prepare(FIRST_CANDIDATES)?;
                read(statement.query((lane.0, limit))?, lane, &mut found)?;
                continue;
            };
            let before = found.len();
            let (rank, date, index) =
                (after.rank, micros(after.logical_date), map_index_value(after.map_index));
            let mut equal = self.prepare(EQUAL_CANDIDATES)?;
            read(equal.query((lane.0, limit, rank, date, index, after.no.0))?, lane, &mut found)?;
            let left = limit - clamp(found.len() - before);
            if left > 0 {
                let mut later = self.prepare(LATER_CANDIDATES)?;
                read(later.query((lane.0, left, rank, date, index))?, lane, &mut found)?;
            }
        }
        Ok(found)
    }
}

fn read(mut rows: Rows<'_>, lane: LaneNo, found: &mut Vec<Candidate>) -> Outcome<()> {
    while let Some(row) = rows.next()? {
        let map_index = row::map_index(row, 2)?;
        let order = OrderKey::new(row.get(0)?, row::instant(row, 1)?, map_index, TaskNo(row.get(3)?));
        found.push(Candidate::new(lane, order));
    }
    Ok(())
}
