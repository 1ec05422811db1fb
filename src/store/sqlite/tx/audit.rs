//! The audit: compares every counter with what it counts. Reads all tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::Row;

use super::super::error::Outcome;
use super::Db;
use super::share::SHARES;
use crate::store::Discrepancy;
use crate::store::sql::audit::{Counters, Pair, broken_task};

pub(super) const SUMS: &str = "SELECT lane, sum(held_slots), sum(state IN (1, 2)), sum(state = 0), sum(state < 6), sum(state >= 6) \
     FROM sm_task GROUP BY lane";
const ENDED: &str = "SELECT no, ended FROM sm_lane";
pub(super) const POOLS: &str = "SELECT name, used FROM sm_pool";
pub(super) const LIMITS: &str = "SELECT key, used, lanes FROM sm_task_limit";
const BROKEN: &str = "SELECT no, state, held_slots, holder IS NOT NULL AND expires_at IS NOT NULL, \
     (holder IS NULL) <> (expires_at IS NULL), \
     cancel_at IS NOT NULL AND (expires_at IS NULL OR expires_at > cancel_at) FROM sm_task \
     WHERE (state IN (1, 2)) <> (holder IS NOT NULL AND expires_at IS NOT NULL) \
        OR (holder IS NULL) <> (expires_at IS NULL) OR (held_slots > 0 AND state NOT IN (1, 2, 4) AND NOT (state = 5 AND due IS NULL)) OR held_slots NOT IN (0, slots) \
        OR (cancel_at IS NOT NULL AND (expires_at IS NULL OR expires_at > cancel_at)) OR (state = 0 AND due IS NOT NULL) OR (state = 5 AND due IS NULL AND held_slots = 0) \
     ORDER BY no";

impl Db<'_> {
    pub(super) fn audit(&mut self) -> Outcome<Vec<Discrepancy>> {
        let mut counters = Counters::default();
        for (id, (lane, tasks)) in self.all_lanes()? {
            counters.lane(
                id,
                Arc::unwrap_or_clone(lane.key),
                i64::try_from(lane.ready).unwrap_or(i64::MAX),
                tasks,
            );
        }
        let mut ended = self.ended_by_lane()?;
        self.each(SUMS, |row| {
            let lane: i64 = row.get(0)?;
            ended.entry(lane).or_default().hold(row.get(5)?);
            counters.tasks(row)
        })?;
        self.each(POOLS, |row| counters.pool(row))?;
        self.each(LIMITS, |row| counters.limit(row))?;
        self.each(SHARES, |row| counters.share(row))?;
        let mut found = counters.discrepancies();
        for (lane, pair) in ended.into_iter().filter(|(_, pair)| pair.differs()) {
            let (lane, Pair { counted, held }) = (Arc::unwrap_or_clone(self.lane(lane)?), pair);
            found.push(Discrepancy::LaneTasks { lane, counted, held });
        }
        found.append(&mut self.wrong_marks()?);
        self.each(BROKEN, |row| {
            found.push(broken_task(row)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns each lane's own count of its ended tasks.
    fn ended_by_lane(&self) -> Outcome<BTreeMap<i64, Pair>> {
        let mut ended = BTreeMap::new();
        self.each(ENDED, |row| {
            ended.insert(row.get(0)?, Pair { counted: row.get(1)?, held: 0 });
            Ok(())
        })?;
        Ok(ended)
    }

    pub(super) fn each(
        &self,
        sql: &'static str,
        mut read: impl FnMut(&Row<'_>) -> Outcome<()>,
    ) -> Outcome<()> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            read(row)?;
        }
        Ok(())
    }
}
