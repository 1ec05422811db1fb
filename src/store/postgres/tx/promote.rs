//! Promotion: tasks that became due become ready, earliest first.

use std::collections::HashMap;

use super::super::error::Outcome;
use super::super::wire::ask;
use super::{Db, Digest, clamp, first, row, tick};
use crate::admission::{Candidate, Lane, LaneId, OrderKey};
use crate::lease::TaskId;
use crate::store::contract::{Overdue, Promote};
use crate::store::sql::row::{instant, map_index};
use crate::store::sql::statement::statement;
use crate::time::Timestamp;

/// Does nothing if the tick was already recorded. Writes nothing if nothing is due.
pub(super) const PROMOTE: &str = statement!("promote.sql");
pub(super) const OVERDUE: &str = statement!("overdue.sql");
pub(super) const OVERDUE_LANES: &str = statement!("overdue_lanes.sql");

impl Db<'_> {
    /// Returns what promotion would make ready. Needs a second round trip if that is anything.
    pub(super) fn overdue(&mut self, promote: Promote) -> Outcome<Overdue> {
        let now = promote.now.as_micros();
        // One more than allowed: it is the next one due.
        let most = clamp(promote.limit).saturating_add(1);
        let [mut rows, next_due] = self.all([ask!(OVERDUE, now, most), ask!(tick::NEXT_DUE, Some(now))])?;
        let mut due: Option<i64> = row::value(first(&next_due)?, 1)?;
        if rows.len() > promote.limit {
            due = Some(row::value(&rows[promote.limit], 0)?);
            rows.truncate(promote.limit);
        }
        let lanes = rows.iter().map(|row| row::value(row, 5)).collect::<Outcome<Vec<Digest>>>()?;
        let mut ready: HashMap<Digest, u64> = HashMap::new();
        lanes.iter().for_each(|lane| *ready.entry(*lane).or_default() += 1);
        let mut found = Overdue { next_due: due.map(Timestamp::from_micros), ..Overdue::default() };
        let mut numbers = HashMap::new();
        if !ready.is_empty() {
            let asked: Vec<Digest> = ready.keys().copied().collect();
            for row in self.one(ask!(OVERDUE_LANES, asked))? {
                let (digest, id) = (row::value::<Digest>(&row, 0)?, LaneId(row::value(&row, 1)?));
                let ready = ready.get(&digest).copied().unwrap_or(0);
                found.lanes.push(Lane::new(id, self.lane(&row, 0, 2)?, ready));
                numbers.insert(digest, id);
            }
        }
        found.lanes.sort_unstable_by_key(|lane| lane.id);
        for (row, lane) in rows.iter().zip(lanes) {
            // If each statement sees what was committed before it, the lane may be gone by then, together
            // with its last task.
            let Some(id) = numbers.get(&lane) else { continue };
            let order = OrderKey::new(
                row::value(row, 1)?,
                instant(row, 2)?,
                map_index(row, 3)?,
                TaskId(row::value(row, 4)?),
            );
            found.tasks.push(Candidate::new(*id, order).ready_at(instant(row, 6)?));
        }
        Ok(found)
    }
}
