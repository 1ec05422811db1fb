//! Lanes: known by number, created with the first task that needs one, and their counters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rusqlite::{OptionalExtension, Params};

use super::super::error::Outcome;
use super::{Db, clamp, row};
use crate::admission::{Lane, LaneId, LaneKey, NAMED};
use crate::id::QueueName;
use crate::store::sql::needs;

pub(super) const READY_LANES: &str =
    "SELECT no, pool, slots, limits, ready, queue FROM sm_lane INDEXED BY sm_lane_ready WHERE ready > 0";
pub(super) const READY_LANES_OF: &str = "SELECT no, pool, slots, limits, ready, queue FROM sm_lane INDEXED BY sm_lane_ready WHERE ready > 0 AND queue = ?1";
pub(super) const SOME_LANES: &str = "SELECT no, pool, slots, limits, ready, queue FROM sm_lane INDEXED BY sm_lane_ready WHERE ready > 0 LIMIT ?1";
/// Used while first tasks are filed.
pub(super) const FIRST_LANES: &str = "SELECT no, pool, slots, limits, ready, queue FROM sm_lane INDEXED BY sm_lane_number \
     WHERE grp IS NOT NULL AND ready > 0 ORDER BY no LIMIT ?1";
pub(super) const FIRST_LANES_OF: &str = "SELECT no, pool, slots, limits, ready, queue FROM sm_lane INDEXED BY sm_lane_ready \
     WHERE ready > 0 AND queue = ?2 ORDER BY no LIMIT ?1";
/// The tasks in each lane that wait with slots that they kept. There are at most as many such tasks as slots.
pub(super) const KEEPING_LANES: &str = "SELECT lane, count(*) FROM sm_task INDEXED BY sm_task_keeping \
     WHERE state = 5 AND due IS NULL GROUP BY lane";
pub(super) const LANE: &str = "SELECT no, pool, slots, limits, ready, queue FROM sm_lane WHERE no = ?1";
pub(super) const LANE_NO: &str =
    "SELECT no FROM sm_lane WHERE pool = ?1 AND slots = ?2 AND limits = ?3 AND queue = ?4";
const NEW_LANE: &str = "INSERT INTO sm_lane (no, pool, slots, limits, queue) VALUES (?1, ?2, ?3, ?4, ?5)";
/// After this many new lanes, an enqueue checks whether to file first tasks. So no tick has to file very many
/// lanes.
const ASKED: i64 = 4096;
const NAME_LIMIT: &str =
    "INSERT INTO sm_task_limit (key, lanes) VALUES (?1, 1) ON CONFLICT (key) DO UPDATE SET lanes = lanes + 1";
pub(super) const DELETE_LANE: &str = "DELETE FROM sm_lane WHERE no = ?1";
pub(super) const UNNAME_LIMIT: &str = "UPDATE sm_task_limit SET lanes = lanes - 1 WHERE key = ?1";
pub(super) const DELETE_LIMIT: &str =
    "DELETE FROM sm_task_limit WHERE key = ?1 AND defined = 0 AND used = 0 AND lanes = 0";

fn lane(row: &rusqlite::Row<'_>) -> Outcome<Lane> {
    let key = LaneKey::new(row::name(row, 1)?, row::count(row, 2)?, Vec::new()).queue(row::name(row, 5)?);
    let key = needs::from_text(key, row.get_ref(3)?.as_str()?)?;
    Ok(Lane::new(LaneId(row.get(0)?), key, row::number(row, 4)?))
}

impl Db<'_> {
    /// Returns the needs of this lane's tasks.
    pub(super) fn lane(&mut self, id: i64) -> Outcome<Arc<LaneKey>> {
        if let Some(key) = self.lanes.get(&id) {
            return Ok(Arc::clone(key));
        }
        let mut statement = self.prepare(LANE)?;
        let mut rows = statement.query([id])?;
        let Some(row) = rows.next()? else {
            return Err(super::Fault::Damaged(format!("lane {id} is missing")));
        };
        let key = lane(row)?.key;
        self.lanes.insert(id, Arc::clone(&key));
        Ok(key)
    }

    /// Returns the number of the lane, if it exists.
    pub(super) fn lane_no(&self, key: &LaneKey) -> Outcome<Option<i64>> {
        let limits = needs::to_text(key)?;
        let mut statement = self.prepare(LANE_NO)?;
        Ok(statement
            .query_row((key.pool.as_str(), key.slots, limits, key.queue.as_str()), |row| row.get(0))
            .optional()?)
    }

    /// Creates the lane. Its limit keys become known with its first task.
    pub(super) fn new_lane(&mut self, key: &Arc<LaneKey>) -> Outcome<i64> {
        let limits = needs::to_text(key)?;
        let id = self.counter("lane")? + 1;
        self.set_counter("lane", id)?;
        let lane = (id, key.pool.as_str(), key.slots, limits, key.queue.as_str());
        self.prepare(NEW_LANE)?.execute(lane)?;
        self.lanes.insert(id, Arc::clone(key));
        if id % ASKED == 0 {
            self.file_if_many(NAMED)?;
        }
        Ok(id)
    }

    /// Makes the limit keys of a lane known.
    pub(super) fn name_limits(&mut self, id: i64) -> Outcome<()> {
        let key = self.lane(id)?;
        let mut statement = self.prepare(NAME_LIMIT)?;
        for limit in &key.limits {
            statement.execute([limit.as_str()])?;
        }
        self.count_lane_of_share(&key, 1)
    }

    /// Deletes the limit keys of a lane that nothing else keeps.
    pub(super) fn unname_limits(&mut self, id: i64) -> Outcome<()> {
        let key = self.lane(id)?;
        let (mut unname, mut delete) = (self.prepare(UNNAME_LIMIT)?, self.prepare(DELETE_LIMIT)?);
        for limit in &key.limits {
            unname.execute([limit.as_str()])?;
            delete.execute([limit.as_str()])?;
        }
        self.count_lane_of_share(&key, -1)
    }

    /// Deletes a lane that no task needs.
    pub(super) fn delete_lane(&mut self, id: i64) -> Outcome<()> {
        self.lanes.remove(&id);
        self.prepare(DELETE_LANE)?.execute([id])?;
        Ok(())
    }

    /// Returns the lanes of these queues, or of all, that have ready tasks, by number.
    pub(super) fn ready_lanes(&mut self, queues: Option<&BTreeSet<QueueName>>) -> Outcome<Vec<Lane>> {
        self.lanes_of(queues, |db, queue, lanes| match queue {
            None => db.read_lanes(READY_LANES, [], lanes),
            // There may be very many lanes of other queues, so they are not read.
            Some(queue) => db.read_lanes(READY_LANES_OF, [queue], lanes),
        })
    }

    /// Returns at least this many of them. If first tasks are filed, only the first ones.
    pub(super) fn some_lanes(
        &mut self,
        queues: Option<&BTreeSet<QueueName>>,
        limit: usize,
        is_filed: bool,
    ) -> Outcome<Vec<Lane>> {
        self.lanes_of(queues, |db, queue, lanes| match queue {
            None if !is_filed => db.read_lanes(SOME_LANES, [clamp(limit)], lanes),
            None => db.read_lanes(FIRST_LANES, [clamp(limit)], lanes),
            Some(queue) => db.read_lanes(FIRST_LANES_OF, (clamp(limit), queue), lanes),
        })
    }

    /// Returns the lanes whose tasks kept their slots, and the lanes that `read` finds for each queue, or for
    /// all.
    fn lanes_of(
        &mut self,
        queues: Option<&BTreeSet<QueueName>>,
        mut read: impl FnMut(&mut Self, Option<&str>, &mut Vec<Lane>) -> Outcome<()>,
    ) -> Outcome<Vec<Lane>> {
        let mut lanes = self.keeping_lanes()?;
        match queues {
            None => read(self, None, &mut lanes)?,
            Some(queues) => {
                lanes.retain(|lane| queues.contains(&lane.key.queue));
                for queue in queues {
                    read(self, Some(queue.as_str()), &mut lanes)?;
                }
            }
        }
        lanes.sort_unstable_by_key(|lane| lane.id);
        Ok(lanes)
    }

    /// Returns a lane with its number of ready tasks.
    pub(super) fn ready_lane(&mut self, id: i64) -> Outcome<Lane> {
        let mut found = Vec::new();
        self.read_lanes(LANE, [id], &mut found)?;
        found.pop().ok_or_else(|| super::Fault::Damaged(format!("lane {id} is missing")))
    }

    fn read_lanes(&mut self, sql: &'static str, of: impl Params, lanes: &mut Vec<Lane>) -> Outcome<()> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(of)?;
        while let Some(row) = rows.next()? {
            let found = lane(row)?;
            self.lanes.insert(found.id.0, found.key.clone());
            lanes.push(found);
        }
        Ok(())
    }

    pub(super) fn keeping_lanes(&mut self) -> Outcome<Vec<Lane>> {
        let mut statement = self.prepare(KEEPING_LANES)?;
        let mut rows = statement.query([])?;
        let mut lanes = Vec::new();
        while let Some(row) = rows.next()? {
            let (id, ready) = (row.get(0)?, row::number(row, 1)?);
            lanes.push(Lane::new(LaneId(id).keeping(), self.lane(id)?, ready).keeps_slots(true));
        }
        lanes.sort_unstable_by_key(|lane| lane.id);
        Ok(lanes)
    }

    /// Returns every lane, by number, with its own count of tasks that have not ended. For audits.
    pub(super) fn all_lanes(&self) -> Outcome<BTreeMap<i64, (Lane, i64)>> {
        let mut statement =
            self.prepare("SELECT no, pool, slots, limits, ready, queue, tasks FROM sm_lane ORDER BY no")?;
        let mut rows = statement.query([])?;
        let mut lanes = BTreeMap::new();
        while let Some(row) = rows.next()? {
            lanes.insert(row.get(0)?, (lane(row)?, row.get(6)?));
        }
        Ok(lanes)
    }
}
