//! The changes of a call to the counters of lanes, pools and limits, summed so that each row is written once.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, Row};

use super::super::error::Outcome;
use super::Db;
use crate::store::sums::Sums;

pub(super) const COUNT: &str = "UPDATE sm_lane SET ready = ready + ?2 WHERE no = ?1";
pub(super) const COUNT_TASKS: &str = "UPDATE sm_lane SET ready = ready + ?2, tasks = tasks + ?3, ended = ended + ?4 WHERE no = ?1 \
     RETURNING tasks, ended";
/// The same if the number of ready tasks is unchanged, so that the index of ready lanes is not written.
pub(super) const COUNT_OTHER_TASKS: &str =
    "UPDATE sm_lane SET tasks = tasks + ?2, ended = ended + ?3 WHERE no = ?1 RETURNING tasks, ended";
/// Makes a trigger look for the first task of a lane.
pub(super) const COUNTED: &str = "UPDATE sm_lane SET counted = NULL WHERE no = ?1";
/// `coalesce`, because SQLite 3.40 takes `slots IS NULL` for false in a `RETURNING`, whatever the column holds.
pub(super) const COUNT_SLOTS: &str =
    "UPDATE sm_pool SET used = used + ?2 WHERE name = ?1 RETURNING coalesce(used <= slots, 1)";
pub(super) const COUNT_LEASES: &str =
    "UPDATE sm_task_limit SET used = used + ?2 WHERE key = ?1 RETURNING coalesce(used <= max, 1)";

/// Changes by lane: tasks, and what they took and gave back.
#[derive(Debug, Default)]
pub(super) struct LaneChanges(HashMap<i64, Change>);

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Change {
    is_touched: bool,
    ready: i64,
    tasks: i64,
    ended: i64,
    slots: i64,
    leases: i64,
}

impl LaneChanges {
    /// Adds ready tasks to the lane.
    pub(super) fn ready(&mut self, lane: i64, more: i64) {
        let change = self.0.entry(lane).or_default();
        change.is_touched |= more != 0;
        change.ready += more;
    }

    /// Adds tasks that have not ended, and tasks that have, to the lane.
    pub(super) fn tasks(&mut self, lane: i64, open: i64, ended: i64) {
        let change = self.0.entry(lane).or_default();
        change.tasks += open;
        change.ended += ended;
    }

    /// Adds slots of its pool that the lane's tasks hold, and leases that count against its limits.
    pub(super) fn capacity(&mut self, lane: i64, slots: i64, leases: i64) {
        let change = self.0.entry(lane).or_default();
        change.slots = change.slots.saturating_add(slots);
        change.leases += leases;
    }

    /// Writes the counters. Makes the limit keys of lanes that have tasks again known, removes those of lanes
    /// whose tasks have all ended, and deletes the rows that no task needs. Returns whether every pool is known
    /// and no pool or limit was raised above its size.
    pub(super) fn write(self, db: &mut Db<'_>) -> Outcome<bool> {
        let had_room = self.write_capacity(db)?;
        let (mut count, mut count_tasks) = (db.prepare(COUNT)?, db.prepare(COUNT_TASKS)?);
        let (mut count_others, mut counted) = (db.prepare(COUNT_OTHER_TASKS)?, db.prepare(COUNTED)?);
        let is_filing = db.is_filing()?;
        for (lane, change) in self.0 {
            if (change.tasks, change.ended) == (0, 0) {
                // The first task may have changed even if the number of tasks has not.
                if change.ready != 0 {
                    count.execute((lane, change.ready))?;
                }
                if change.is_touched && is_filing {
                    counted.execute([lane])?;
                }
                continue;
            }
            let sums = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
            let (tasks, ended): (i64, i64) = match change {
                Change { is_touched: false, tasks, ended, .. } => {
                    count_others.query_row((lane, tasks, ended), sums)?
                }
                Change { ready, tasks, ended, .. } => {
                    count_tasks.query_row((lane, ready, tasks, ended), sums)?
                }
            };
            if change.is_touched && is_filing {
                counted.execute([lane])?;
            }
            match (tasks - change.tasks, tasks) {
                (0, 1..) => db.name_limits(lane)?,
                (1.., 0) => db.unname_limits(lane)?,
                _ => {}
            }
            if (tasks, ended) == (0, 0) {
                db.delete_lane(lane)?;
            }
        }
        Ok(had_room)
    }

    fn write_capacity(&self, db: &mut Db<'_>) -> Outcome<bool> {
        let mut sums = Sums::default();
        for (lane, change) in self.0.iter().filter(|(_, change)| (change.slots, change.leases) != (0, 0)) {
            sums.add(&*db.lane(*lane)?, change.slots, change.leases);
        }
        for ((pool, share), more) in sums.shares.iter().filter(|(_, more)| **more != 0) {
            db.count_share(pool, share, *more, 0)?;
        }
        let pools =
            sums.pools.iter().filter(|(_, more)| **more != 0).map(|(name, more)| (name.as_str(), *more));
        let limits = sums.limits.iter().map(|(key, more)| (key.as_str(), *more));
        // Both must run, whatever the first returns.
        let (slots, leases) = (count(db, COUNT_SLOTS, pools)?, count(db, COUNT_LEASES, limits)?);
        Ok(slots && leases)
    }
}

/// Raises counters, and returns whether each row exists and is not above its size.
fn count<'k>(db: &Db<'_>, sql: &'static str, changes: impl Iterator<Item = (&'k str, i64)>) -> Outcome<bool> {
    let mut statement = db.prepare(sql)?;
    let mut had_room = true;
    for (name, more) in changes {
        had_room &= statement.query_row((name, more), |row| row.get(0)).optional()?.unwrap_or(false);
    }
    Ok(had_room)
}
