//! Many lanes of shares, by their turns.
//!
//! Triggers of the schema keep the first tasks of each contender, and record which shares have changed. A tick
//! recomputes the turns of those before it reads lanes of shares.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;

use rusqlite::OptionalExtension;

use super::super::error::Outcome;
use super::row::map_index_value;
use super::{Db, clamp, row, tick};
use crate::admission::limits::{Families, LimitRecord};
use crate::admission::{LaneId, OrderKey, Place, ShareTurn, ShareUse, Turn, UnreadOf};
use crate::id::{PoolName, QueueName};
use crate::store::Discrepancy;

pub(super) const CHANGED: &str = "SELECT pool, share, held, stamp, dither FROM sm_share_use \
     INDEXED BY sm_share_use_changed WHERE changed = 1";
pub(super) const FILE_TURN: &str =
    "UPDATE sm_lane_contender SET holds = ?3, parts = ?4, stamp = ?5 WHERE pool = ?1 AND share = ?2";
pub(super) const FILED: &str =
    "UPDATE sm_share_use INDEXED BY sm_share_use_changed SET changed = 0 WHERE changed = 1";
pub(super) const SHARED_CLASSES: &str = "SELECT no, pool FROM sm_lane_class INDEXED BY sm_lane_class_shared \
     WHERE closed = 0 AND shared = 1";
pub(super) const SHARED_CLASSES_OF: &str = "SELECT no, pool FROM sm_lane_class INDEXED BY sm_lane_class_shared \
     WHERE closed = 0 AND shared = 1 AND queue = ?1";
pub(super) const NEXT_TURNS: &str = "SELECT rank, logical_date, map_index, head, no, level, holds, parts, stamp, share \
     FROM sm_lane_contender INDEXED BY sm_lane_contender_turn WHERE class = ?1 AND head IS NOT NULL \
     AND (level, holds, parts, stamp, share, rank, logical_date, map_index, head) > (?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
     ORDER BY level, holds, parts, stamp, share, rank, logical_date, map_index, head LIMIT ?11";
pub(super) const IS_OPEN: &str = "SELECT sm_lane_class.closed = 0 FROM sm_lane_contender \
     JOIN sm_lane_class ON sm_lane_class.no = sm_lane_contender.class WHERE sm_lane_contender.no = ?1";
/// The lane of a contender's first task, and whether the contender has other lanes.
pub(super) const FIRST_LANE: &str = "SELECT work.rank, work.logical_date, work.map_index, work.head, lane.no, EXISTS ( \
     SELECT 1 FROM sm_lane AS other WHERE other.grp = lane.grp AND other.head IS NOT NULL AND other.no <> lane.no) \
     OR EXISTS (SELECT 1 FROM sm_lane_group AS other \
     WHERE other.parent = -work.no AND other.asleep = 0 AND other.head IS NOT NULL AND other.no <> lane.grp) \
     FROM sm_lane_contender AS work JOIN sm_task AS task ON task.no = work.head \
     JOIN sm_lane AS lane ON lane.no = task.lane WHERE work.no = ?1";
/// For audits: the turns of shares that have not changed since these were computed.
const FILED_TURNS: &str = "SELECT used.pool, used.share, held, used.stamp, dither, no, holds, parts, contender.stamp \
     FROM sm_lane_contender AS contender JOIN sm_share_use AS used \
     ON used.pool = contender.pool AND used.share = contender.share WHERE changed = 0 ORDER BY no";

/// The contenders of one class that were already read.
struct Line {
    class: i64,
    pool: PoolName,
    read: VecDeque<(Turn, i64)>,
}

impl Db<'_> {
    /// Recomputes the turns that may have changed.
    pub(super) fn file_turns(&mut self) -> Outcome<()> {
        let mut changed = Vec::new();
        self.each(CHANGED, |row| {
            changed.push(used(row)?);
            Ok(())
        })?;
        if changed.is_empty() {
            return Ok(());
        }
        let turns = self.turns(&changed)?;
        let mut file = self.prepare(FILE_TURN)?;
        for (used, turn) in changed.iter().zip(turns) {
            file.execute((used.pool.as_str(), used.share.as_str(), turn.holds, turn.parts, turn.stamp))?;
        }
        self.prepare(FILED)?.execute([])?;
        Ok(())
    }

    /// Returns the turns of shares, by their weights.
    fn turns(&mut self, shares: &[ShareUse]) -> Outcome<Vec<ShareTurn>> {
        let families = self.families()?;
        let families = Families::new(&families);
        let limits = self.limits(shares.iter().map(|used| &used.share))?;
        let turns = shares.iter().zip(limits).map(|(used, limit)| {
            let mut limit = limit.unwrap_or_else(|| LimitRecord::new(used.share.clone(), None, 0));
            families.apply(&mut limit);
            used.turn(limit.weight.unwrap_or(1))
        });
        Ok(turns.collect())
    }

    /// Returns the first contenders of these queues that have their turns after this one and do not sleep. If
    /// there are others, also returns the turn after which they begin.
    pub(super) fn turns_behind(
        &self,
        queues: Option<&BTreeSet<QueueName>>,
        after: &Turn,
        limit: usize,
    ) -> Outcome<(Vec<i64>, Option<Turn>)> {
        let mut lines = self.shared_classes(queues)?;
        let chunk = (2 * limit / lines.len().max(1)).max(1);
        let mut heap = BinaryHeap::new();
        for (at, line) in lines.iter_mut().enumerate() {
            heap.extend(self.next_turn(line, after, chunk)?.map(|(turn, no)| Reverse((turn, no, at))));
        }
        let (mut found, mut last) = (Vec::new(), after.clone());
        while let Some(Reverse((turn, no, at))) = heap.pop() {
            if found.len() >= limit {
                return Ok((found, Some(last)));
            }
            let next = self.next_turn(&mut lines[at], &turn, chunk)?;
            heap.extend(next.map(|(turn, no)| Reverse((turn, no, at))));
            found.push(no);
            last = turn;
        }
        Ok((found, None))
    }

    fn shared_classes(&self, queues: Option<&BTreeSet<QueueName>>) -> Outcome<Vec<Line>> {
        let mut lines = Vec::new();
        let mut read = |sql, of: &[&str]| -> Outcome<()> {
            let mut statement = self.prepare(sql)?;
            let mut rows = statement.query(rusqlite::params_from_iter(of))?;
            while let Some(row) = rows.next()? {
                lines.push(Line { class: row.get(0)?, pool: row::name(row, 1)?, read: VecDeque::new() });
            }
            Ok(())
        };
        match queues {
            None => read(SHARED_CLASSES, &[])?,
            Some(queues) => {
                for queue in queues {
                    read(SHARED_CLASSES_OF, &[queue.as_str()])?;
                }
            }
        }
        Ok(lines)
    }

    /// Returns the next contender of a class after this turn, which was the previous one's.
    fn next_turn(&self, line: &mut Line, behind: &Turn, chunk: usize) -> Outcome<Option<(Turn, i64)>> {
        if line.read.is_empty() {
            let before = ShareTurn { holds: false, parts: i64::MIN, stamp: i64::MIN };
            let (turn, pair, head) = match &behind.place {
                Place::Share(turn, pair, head) => (*turn, Some(pair), *head),
                Place::Alone(_) => (before, None, OrderKey::FIRST),
            };
            // Equal turns are ordered by pool. The empty text is the least text, and every text is less than a
            // blob.
            let share: &dyn rusqlite::ToSql = match pair {
                Some(pair) if line.pool < pair.0 => &[0_u8; 0],
                Some(pair) if line.pool == pair.0 => &pair.1.as_str(),
                _ => &"",
            };
            let mut statement = self.prepare(NEXT_TURNS)?;
            let mut rows = statement.query(rusqlite::params![
                line.class,
                behind.level,
                turn.holds,
                turn.parts,
                turn.stamp,
                share,
                head.rank,
                head.logical_date.as_micros(),
                map_index_value(head.map_index),
                head.id.0,
                clamp(chunk),
            ])?;
            while let Some(row) = rows.next()? {
                let turn = ShareTurn { holds: row.get(6)?, parts: row.get(7)?, stamp: row.get(8)? };
                let pair = Arc::new((line.pool.clone(), row::name(row, 9)?));
                let head = tick::candidate(row, LaneId(0))?.order;
                line.read.push_back((Turn::of_share(row.get(5)?, turn, pair, head), row.get(4)?));
            }
        }
        Ok(line.read.pop_front())
    }

    /// Returns the lane of a contender's first task, and its other lanes if it has any.
    pub(super) fn first_lane_of(&self, number: i64) -> Outcome<(LaneId, Option<UnreadOf>)> {
        let mut statement = self.prepare(FIRST_LANE)?;
        let mut rows = statement.query([number])?;
        let Some(row) = rows.next()? else {
            return Err(super::Fault::Damaged(format!("the first task of contender {number} is missing")));
        };
        let (lane, are_more) = (LaneId(row.get(4)?), row.get(5)?);
        let behind = tick::candidate(row, lane)?.order;
        Ok((lane, Some(UnreadOf { lane, number, behind, pages: 0 }).filter(|_| are_more)))
    }

    /// Returns whether the class of a contender is open.
    pub(super) fn is_open(&self, contender: i64) -> Outcome<bool> {
        Ok(self.prepare(IS_OPEN)?.query_row([contender], |row| row.get(0)).optional()?.unwrap_or(false))
    }

    /// Returns the filed turns that differ from those of their shares.
    pub(super) fn wrong_turns(&mut self) -> Outcome<Vec<Discrepancy>> {
        let (mut shares, mut filed) = (Vec::new(), Vec::new());
        self.each(FILED_TURNS, |row| {
            shares.push(used(row)?);
            let turn = ShareTurn { holds: row.get(6)?, parts: row.get(7)?, stamp: row.get(8)? };
            filed.push((row.get::<_, i64>(5)?, turn));
            Ok(())
        })?;
        let turns = self.turns(&shares)?.into_iter().zip(filed);
        let wrong = turns.filter(|(turn, (_, filed))| turn != filed);
        Ok(wrong
            .map(|(_, (no, _))| Discrepancy::Mark { mark: format!("the turn of contender {no}") })
            .collect())
    }
}

/// Reads a share from the first five columns.
pub(super) fn used(row: &rusqlite::Row<'_>) -> Outcome<ShareUse> {
    Ok(ShareUse::new(row::name(row, 0)?, row::name(row, 1)?, row.get(2)?, row.get(3)?, row.get(4)?))
}
