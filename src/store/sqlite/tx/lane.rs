//! Lanes: known by number, created with the first task that needs one, and their counters.

use std::collections::{BTreeMap, HashMap};

use rusqlite::OptionalExtension;

use super::super::error::Outcome;
use super::{Db, row};
use crate::admission::{Lane, LaneKey, LaneNo};

pub(super) const READY_LANES: &str =
    "SELECT no, pool, slots, limits, ready FROM sm_lane INDEXED BY sm_lane_ready WHERE ready > 0 ORDER BY no";
pub(super) const LANE: &str = "SELECT no, pool, slots, limits, ready FROM sm_lane WHERE no = ?1";
pub(super) const LANE_NO: &str = "SELECT no FROM sm_lane WHERE pool = ?1 AND slots = ?2 AND limits = ?3";
const NEW_LANE: &str = "INSERT INTO sm_lane (pool, slots, limits) VALUES (?1, ?2, ?3)";
const NEW_CAP: &str = "INSERT INTO sm_cap (key) VALUES (?1) ON CONFLICT (key) DO NOTHING";
pub(super) const ADD_READY: &str = "UPDATE sm_lane SET ready = ready + ?2 WHERE no = ?1";

fn lane(row: &rusqlite::Row<'_>) -> Outcome<Lane> {
    let limits = serde_json::from_str(row.get_ref(3)?.as_str()?)?;
    let key = LaneKey { pool: row::name(row, 1)?, slots: row::count(row, 2)?, limits };
    Ok(Lane::new(LaneNo(row.get(0)?), key, row::number(row, 4)?))
}

impl Db<'_> {
    /// What the tasks of this lane need.
    pub(super) fn lane(&mut self, no: i64) -> Outcome<LaneKey> {
        if let Some(key) = self.lanes.get(&no) {
            return Ok(key.clone());
        }
        let mut statement = self.prepare(LANE)?;
        let mut rows = statement.query([no])?;
        let Some(row) = rows.next()? else {
            return Err(super::Fault::Damaged(format!("lane {no} is missing")));
        };
        let key = lane(row)?.key;
        self.lanes.insert(no, key.clone());
        Ok(key)
    }

    /// The number of the lane, if there is one.
    pub(super) fn lane_no(&self, key: &LaneKey) -> Outcome<Option<i64>> {
        let limits = serde_json::to_string(&key.limits)?;
        let mut statement = self.prepare(LANE_NO)?;
        Ok(statement.query_row((key.pool.as_str(), key.slots, limits), |row| row.get(0)).optional()?)
    }

    /// Creates the lane, and makes its limit keys known.
    pub(super) fn new_lane(&mut self, key: &LaneKey) -> Outcome<i64> {
        let limits = serde_json::to_string(&key.limits)?;
        self.prepare(NEW_LANE)?.execute((key.pool.as_str(), key.slots, limits))?;
        let no = self.conn.last_insert_rowid();
        let mut statement = self.prepare(NEW_CAP)?;
        for limit in &key.limits {
            statement.execute([limit.as_str()])?;
        }
        self.lanes.insert(no, key.clone());
        Ok(no)
    }

    pub(super) fn ready_lanes(&mut self) -> Outcome<Vec<Lane>> {
        let mut statement = self.prepare(READY_LANES)?;
        let mut rows = statement.query([])?;
        let mut lanes = Vec::new();
        while let Some(row) = rows.next()? {
            let found = lane(row)?;
            self.lanes.insert(found.no.0, found.key.clone());
            lanes.push(found);
        }
        Ok(lanes)
    }

    /// Every lane, by number. For audits.
    pub(super) fn all_lanes(&self) -> Outcome<BTreeMap<i64, Lane>> {
        let mut statement = self.prepare("SELECT no, pool, slots, limits, ready FROM sm_lane ORDER BY no")?;
        let mut rows = statement.query([])?;
        let mut lanes = BTreeMap::new();
        while let Some(row) = rows.next()? {
            lanes.insert(row.get(0)?, lane(row)?);
        }
        Ok(lanes)
    }
}

/// How many tasks became ready in each lane, less those that ceased to be.
#[derive(Debug, Default)]
pub(super) struct ReadyChange(HashMap<i64, i64>);

impl ReadyChange {
    pub(super) fn add(&mut self, lane: i64, tasks: i64) {
        *self.0.entry(lane).or_default() += tasks;
    }

    pub(super) fn write(self, db: &Db<'_>) -> Outcome<()> {
        let mut statement = db.prepare(ADD_READY)?;
        for (lane, change) in self.0 {
            if change != 0 {
                statement.execute((lane, change))?;
            }
        }
        Ok(())
    }
}
