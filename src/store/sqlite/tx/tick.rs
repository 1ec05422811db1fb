//! What an admission tick reads.

use std::collections::BTreeSet;

use rusqlite::{Row, Rows};

use super::super::error::Outcome;
use super::row::map_index_value;
use super::{Db, clamp, row};
use crate::admission::{Candidate, LaneId, LanePage, OrderKey, Turn};
use crate::id::{LimitKey, PoolName};
use crate::lease::TaskId;
use crate::store::contract::{Survey, SurveyQuery, WhichPools};
use crate::time::Timestamp;

pub(super) const READY_AT: &str = "SELECT ready_at FROM sm_task WHERE no = ?1";
/// The pages of ready tasks in this state: the first, and a continued one in two parts.
macro_rules! pages {
    ($which:literal) => {
        [
            concat!(
                "SELECT rank, logical_date, map_index, no FROM sm_task WHERE lane = ?1 AND ",
                $which,
                " ORDER BY rank, logical_date, map_index, no LIMIT ?2"
            ),
            concat!(
                "SELECT rank, logical_date, map_index, no FROM sm_task WHERE lane = ?1 AND ",
                $which,
                " AND rank = ?3 AND logical_date = ?4 AND map_index = ?5 AND no > ?6 ORDER BY no LIMIT ?2"
            ),
            concat!(
                "SELECT rank, logical_date, map_index, no FROM sm_task WHERE lane = ?1 AND ",
                $which,
                " AND (rank, logical_date, map_index) > (?3, ?4, ?5) ORDER BY rank, logical_date, map_index, no LIMIT ?2"
            ),
        ]
    };
}
pub(super) const CANDIDATES: [&str; 3] = pages!("state = 0");
/// Ready tasks that still hold slots which they kept.
pub(super) const KEEPING_CANDIDATES: [&str; 3] = pages!("state = 5 AND due IS NULL");

impl Db<'_> {
    pub(super) fn survey(&mut self, query: &SurveyQuery) -> Outcome<Survey> {
        let mut survey = Survey::default();
        if query.promote.is_some() {
            self.forget_unused_shares()?;
        }
        if let Some(request) = &query.request {
            survey.granted = self.granted(request)?;
        }
        if survey.granted.is_none() {
            if let Some(promote) = query.promote {
                survey.promoted = self.promote(promote)?;
            }
            if let Some(first) = query.first
                && self.is_filing()?
            {
                let is_read = query.promote.is_none();
                survey.is_behind = self.wake_by(first, query.queues.as_ref(), is_read)? && is_read;
            }
            (survey.lanes, survey.unread) = self.first_lanes(query)?;
            self.name_capacity(&mut survey)?;
            if query.pools == WhichPools::All {
                survey.pools = self.all_pools()?;
            }
            (survey.shares, survey.grants) = self.shares_of(&survey.lanes)?;
            if survey.unread.is_some() {
                survey.unread_shares = Some(Turn::FIRST);
                survey.grants = self.counter("grants")?;
                survey.next_token = self.next_token(query.queues.as_ref())?;
            }
            survey.families = self.families()?;
            survey.paused = self.paused()?;
        }
        survey.serving = self.serving()?;
        survey.next_due = self.due_after(0)?;
        Ok(survey)
    }

    /// Adds the pools and limits that the lanes of a survey name, and the debts of these limits.
    pub(super) fn name_capacity(&mut self, survey: &mut Survey) -> Outcome<()> {
        let pools = survey.lanes.iter().flat_map(|lane| lane.key.pools());
        let pools: BTreeSet<&PoolName> = pools.map(|(pool, _)| pool).collect();
        survey.pools = self.pools(pools)?.into_iter().flatten().collect();
        let keys: BTreeSet<&LimitKey> = survey.lanes.iter().flat_map(|lane| &lane.key.limits).collect();
        (survey.rates, survey.clock) = self.rates(keys.iter().copied())?;
        survey.limits = self.limits(keys)?.into_iter().flatten().collect();
        Ok(())
    }

    pub(super) fn candidates(&mut self, pages: &[LanePage]) -> Outcome<Vec<Candidate>> {
        let mut found = Vec::new();
        for page in pages {
            let before = found.len();
            self.page_of_lane(page, &mut found)?;
            if page.with_ready_at {
                let mut statement = self.prepare(READY_AT)?;
                for candidate in &mut found[before..] {
                    let id = candidate.order.id.0;
                    candidate.ready_at =
                        Some(statement.query_row([id], |row| row.get(0).map(Timestamp::from_micros))?);
                }
            }
        }
        Ok(found)
    }

    /// Reads a page of a lane. A continued page is read in two parts, because SQLite does not seek to a rowid
    /// within a row value: rows that equal the place except for the number, and rows after it.
    fn page_of_lane(&mut self, page: &LanePage, found: &mut Vec<Candidate>) -> Outcome<()> {
        let (id, lane, limit) = (page.lane, page.lane.assigned().0, clamp(page.limit));
        let [first, equal, later] = if id.keeps_slots() { KEEPING_CANDIDATES } else { CANDIDATES };
        let Some(after) = page.after else {
            let mut statement = self.prepare(first)?;
            return read(statement.query((lane, limit))?, id, found);
        };
        let before = found.len();
        let (rank, date, index) =
            (after.rank, after.logical_date.as_micros(), map_index_value(after.map_index));
        let mut equal = self.prepare(equal)?;
        read(equal.query((lane, limit, rank, date, index, after.id.0))?, id, found)?;
        let left = limit - clamp(found.len() - before);
        if left > 0 {
            let mut later = self.prepare(later)?;
            read(later.query((lane, left, rank, date, index))?, id, found)?;
        }
        Ok(())
    }
}

fn read(mut rows: Rows<'_>, lane: LaneId, found: &mut Vec<Candidate>) -> Outcome<()> {
    while let Some(row) = rows.next()? {
        found.push(candidate(row, lane)?);
    }
    Ok(())
}

/// Reads a place in the order of admission from the first four columns.
pub(super) fn candidate(row: &Row<'_>, lane: LaneId) -> Outcome<Candidate> {
    let map_index = row::map_index(row, 2)?;
    let order = OrderKey::new(row.get(0)?, row::instant(row, 1)?, map_index, TaskId(row.get(3)?));
    Ok(Candidate::new(lane, order))
}
