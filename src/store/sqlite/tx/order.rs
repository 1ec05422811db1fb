//! Many lanes: those without a share by their first tasks, those of shares by their turns, and which of them
//! sleep.
//!
//! Triggers of the schema keep the first tasks of lanes, groups and classes, and remove marks: see
//! `0001_initial.sql`. So these are exact for any writer, including a host's own driver. The triggers work
//! while first tasks are *filed*: from the first tick that finds many lanes with ready tasks, until there are
//! few. This module starts and stops filing, records marks, and reads pages.

use std::collections::BTreeSet;

use rusqlite::OptionalExtension;

use super::super::error::Outcome;
use super::row::map_index_value;
use super::{Db, clamp, row, tick};
use crate::admission::{Behind, Cause, Lane, LaneId, LaneKey, Mark, OrderKey, Subject};
use crate::id::{LimitKey, QueueName};
use crate::store::Discrepancy;
use crate::store::awake::{Entry, Of, awake, awake_in};
use crate::store::contract::{First, LanesBehind, Survey, SurveyQuery};
use crate::store::marks::{ClassKey, Facts, Sleeps, check};
use crate::store::sql::needs;
use crate::time::Timestamp;

/// Finds a lane if more than this many have ready tasks, in any queue.
pub(super) const ARE_READY: &str =
    "SELECT no FROM sm_lane INDEXED BY sm_lane_ready WHERE ready > 0 LIMIT 1 OFFSET ?1";
/// Makes a trigger file each lane.
const FILE: &str = "UPDATE sm_lane SET counted = NULL WHERE ready > 0";
/// A lane with a group has a first task, unless a counter is wrong.
pub(super) const TAKE_OUT: &str = "UPDATE sm_lane INDEXED BY sm_lane_head SET rank = NULL, logical_date = NULL, map_index = NULL, head = NULL \
     WHERE head IS NOT NULL";
const TAKE_OUT_WRONG: [&str; 4] = [
    "UPDATE sm_lane SET grp = NULL, head = NULL WHERE grp IS NOT NULL OR head IS NOT NULL",
    "DELETE FROM sm_lane_group",
    "DELETE FROM sm_lane_contender",
    "DELETE FROM sm_lane_class",
];
const NEW_GROUP: &str = "INSERT OR IGNORE INTO sm_lane_group (class, parent, queue, cause) \
     SELECT no, ?2, queue, ?3 FROM sm_lane_class WHERE no = ?1";
pub(super) const GROUP: &str = "SELECT no FROM sm_lane_group WHERE class = ?1 AND parent = ?2 AND cause = ?3";
pub(super) const CLASS_OF: &str = "SELECT sm_lane_group.class, sm_lane_group.parent, sm_lane.grp FROM sm_lane \
     JOIN sm_lane_group ON sm_lane_group.no = sm_lane.grp WHERE sm_lane.no = ?1";
pub(super) const SLEEPS: &str = "SELECT sm_lane_group.asleep OR sm_lane_class.closed FROM sm_lane \
     JOIN sm_lane_group ON sm_lane_group.no = sm_lane.grp \
     JOIN sm_lane_class ON sm_lane_class.no = sm_lane_group.class WHERE sm_lane.no = ?1";
pub(super) const MOVE_LANE: &str = "UPDATE sm_lane SET grp = ?2 WHERE no = ?1";
pub(super) const CLOSE: &str = "UPDATE sm_lane_class SET closed = ?2, refuser = ?3, needs = ?4 WHERE no = ?1";
pub(super) const PUT_TO_SLEEP: &str =
    "UPDATE sm_lane_group SET asleep = 1, paused = ?2, key = ?3, next = ?4 WHERE no = ?1";
pub(super) const WAKE_BY: &str = "UPDATE sm_lane_group SET asleep = 0, next = NULL WHERE no IN ( \
     SELECT no FROM sm_lane_group WHERE next IS NOT NULL AND next <= ?1 ORDER BY next LIMIT ?2)";
pub(super) const WAKE_BY_OF: &str = "UPDATE sm_lane_group SET asleep = 0, next = NULL WHERE no IN ( \
     SELECT no FROM sm_lane_group WHERE queue = ?3 AND next IS NOT NULL AND next <= ?1 ORDER BY next LIMIT ?2)";
pub(super) const NEXT_TOKEN: &str =
    "SELECT next FROM sm_lane_group WHERE next IS NOT NULL ORDER BY next LIMIT 1";
pub(super) const NEXT_TOKEN_OF: &str =
    "SELECT next FROM sm_lane_group WHERE queue = ?1 AND next IS NOT NULL ORDER BY next LIMIT 1";
const FILING: &str = "filing";
/// Why a class is closed; 0 means that it is open.
const FULL: i64 = 1;
const REFUSED: i64 = 2;
const QUEUE_PAUSED: i64 = 3;
macro_rules! behind {
    ($table:literal, $which:literal) => {
        concat!(
            "SELECT rank, logical_date, map_index, head, no FROM ",
            $table,
            " WHERE ",
            $which,
            " AND head IS NOT NULL AND (rank, logical_date, map_index, head) > (?1, ?2, ?3, ?4) \
             ORDER BY rank, logical_date, map_index, head LIMIT 1"
        )
    };
}
pub(super) const NEXT_CLASS: &str = behind!("sm_lane_class", "closed = 0");
pub(super) const NEXT_CLASS_OF: &str = behind!("sm_lane_class", "queue = ?5 AND closed = 0");
pub(super) const NEXT_GROUP: &str = behind!("sm_lane_group", "parent = ?5 AND asleep = 0");
pub(super) const NEXT_LANE: &str = behind!("sm_lane", "grp = ?5");
/// For audits: what is filed by a first task other than its own.
const MISFILED: [&str; 4] = [
    "SELECT 'lane ' || lane.no FROM sm_lane AS lane, (SELECT value = 1 AS files FROM sm_counter WHERE name = 'filing') \
     WHERE (grp IS NOT NULL) <> (head IS NOT NULL) OR (rank, logical_date, map_index, head) IS NOT ( \
     SELECT rank, logical_date, map_index, no FROM sm_task WHERE lane = lane.no AND state = 0 AND files \
     ORDER BY rank, logical_date, map_index, no LIMIT 1) ORDER BY lane.no",
    "SELECT 'group ' || no FROM sm_lane_group WHERE head IS NULL \
     OR (rank, logical_date, map_index, head) IS NOT (SELECT rank, logical_date, map_index, head FROM sm_lane \
     WHERE grp = sm_lane_group.no AND head IS NOT NULL ORDER BY rank, logical_date, map_index, head LIMIT 1) ORDER BY no",
    "SELECT 'class ' || no FROM sm_lane_class WHERE (rank, logical_date, map_index, head) IS NOT ( \
     SELECT rank, logical_date, map_index, head FROM sm_lane_group \
     WHERE parent = sm_lane_class.no AND asleep = 0 AND head IS NOT NULL \
     ORDER BY rank, logical_date, map_index, head LIMIT 1) \
     OR shared <> EXISTS (SELECT 1 FROM sm_lane_contender WHERE class = sm_lane_class.no AND head IS NOT NULL) ORDER BY no",
    "SELECT 'contender ' || no FROM sm_lane_contender WHERE (rank, logical_date, map_index, head) IS NOT ( \
     SELECT rank, logical_date, map_index, head FROM sm_lane_group \
     WHERE parent = -sm_lane_contender.no AND asleep = 0 AND head IS NOT NULL \
     ORDER BY rank, logical_date, map_index, head LIMIT 1) ORDER BY no",
];
const CLOSED: &str =
    "SELECT queue, pool, slots, also, closed, refuser FROM sm_lane_class WHERE closed > 0 ORDER BY no";
const ASLEEP: &str = "SELECT c.queue, c.pool, c.slots, c.also, g.cause, g.next FROM sm_lane_group g \
     JOIN sm_lane_class c ON c.no = g.class WHERE g.asleep = 1 ORDER BY g.no";

/// Which lanes a tick reads.
impl Db<'_> {
    /// Returns the first lanes of a survey, and the place after which the omitted ones begin.
    pub(super) fn first_lanes(&mut self, query: &SurveyQuery) -> Outcome<(Vec<Lane>, Option<OrderKey>)> {
        let queues = query.queues.as_ref();
        let Some(First { lanes: most, .. }) = query.first else {
            return Ok((self.ready_lanes(queues)?, None));
        };
        let is_write = query.promote.is_some();
        let mut is_filed = self.is_filing()?;
        let mut lanes = self.some_lanes(queues, most.saturating_add(1), is_filed)?;
        if lanes.len() <= most {
            if is_write && is_filed && !self.are_more_ready_than(most / 2)? {
                self.take_out()?;
            }
            return Ok((lanes, None));
        }
        if is_write && !is_filed {
            is_filed = self.file_if_many(most)?;
            lanes = self.some_lanes(queues, most.saturating_add(1), is_filed)?;
        }
        if !is_filed {
            return Ok((self.ready_lanes(queues)?, None));
        }
        if is_write {
            self.file_turns()?;
        }
        lanes.truncate(most);
        let mut keeping = self.keeping_lanes()?;
        keeping.retain(|lane| queues.is_none_or(|queues| queues.contains(&lane.key.queue)));
        lanes.append(&mut keeping);
        lanes.sort_by_key(|lane| lane.id);
        lanes.dedup_by_key(|lane| lane.id);
        let mut sleeps = self.prepare(SLEEPS)?;
        for lane in lanes.iter_mut().filter(|lane| !lane.keeps_slots) {
            lane.sleeps = sleeps.query_row([lane.id.0], |row| row.get(0)).optional()?.unwrap_or(false);
        }
        Ok((lanes, Some(OrderKey::FIRST)))
    }

    pub(super) fn lanes_behind(&mut self, page: &LanesBehind<'_>) -> Outcome<Survey> {
        let mut survey = Survey::default();
        let next = |of: Of<'_>, place| self.next_in(of, place);
        let found = match page.of {
            None | Some(Behind::Place(_)) => {
                let (found, unread) = awake(page.queues, page.after, page.limit, next)?;
                survey.unread = unread;
                found
            }
            // The class of the contender may have been closed since the last page.
            Some(Behind::Of(of)) if !self.is_open(of.number)? => Vec::new(),
            Some(Behind::Of(of)) => {
                let (found, unread) = awake_in(-of.number, page.after, page.limit, next)?;
                survey.unread = unread;
                found
            }
            Some(Behind::Turn(turn)) => {
                let (found, unread) = self.turns_behind(page.queues, turn, page.limit)?;
                survey.unread_shares = unread;
                let mut lanes = Vec::new();
                for number in found {
                    let (lane, unread) = self.first_lane_of(number)?;
                    lanes.push(lane);
                    survey.unread_of.extend(unread);
                }
                lanes
            }
        };
        for LaneId(no) in found {
            survey.lanes.push(self.ready_lane(no)?);
        }
        self.name_capacity(&mut survey)?;
        (survey.shares, _) = self.shares_of(&survey.lanes)?;
        Ok(survey)
    }

    fn next_in(&self, of: Of<'_>, behind: OrderKey) -> Outcome<Option<Entry>> {
        let (rank, date) = (behind.rank, behind.logical_date.as_micros());
        let place = (rank, date, map_index_value(behind.map_index), behind.id.0);
        let read = |row: &rusqlite::Row<'_>| Ok((tick::candidate(row, LaneId(0))?.order, row.get(4)?));
        let (sql, number) = match of {
            Of::Queue(None) => {
                return self.prepare(NEXT_CLASS)?.query(place)?.next()?.map(read).transpose();
            }
            Of::Queue(Some(queue)) => {
                let of_queue = (place.0, place.1, place.2, place.3, queue.as_str());
                return self.prepare(NEXT_CLASS_OF)?.query(of_queue)?.next()?.map(read).transpose();
            }
            Of::Class(class) => (NEXT_GROUP, class),
            Of::Group(group) => (NEXT_LANE, group),
        };
        self.prepare(sql)?.query((place.0, place.1, place.2, place.3, number))?.next()?.map(read).transpose()
    }

    /// Returns whether marks of these queues have expired by the instant of the tick. Removes them, unless
    /// `is_read`.
    pub(super) fn wake_by(
        &mut self,
        First { now, wakes, .. }: First,
        queues: Option<&BTreeSet<QueueName>>,
        is_read: bool,
    ) -> Outcome<bool> {
        let Some(next) = self.next_token(queues)? else { return Ok(false) };
        let (_, clock) = self.rates([])?;
        let clock = clock.map_or(now, |last| last.max(now));
        if next > clock || is_read {
            return Ok(next <= clock);
        }
        let mut left = wakes;
        match queues {
            None => drop(self.prepare(WAKE_BY)?.execute((clock.as_micros(), clamp(left)))?),
            Some(queues) => {
                let mut statement = self.prepare(WAKE_BY_OF)?;
                for queue in queues {
                    left -= statement.execute((clock.as_micros(), clamp(left), queue.as_str()))?.min(left);
                }
            }
        }
        Ok(true)
    }

    /// Returns when the first mark of these queues expires.
    pub(super) fn next_token(&self, queues: Option<&BTreeSet<QueueName>>) -> Outcome<Option<Timestamp>> {
        let read = |row: &rusqlite::Row<'_>| row.get(0).map(Timestamp::from_micros);
        let Some(queues) = queues else {
            return Ok(self.prepare(NEXT_TOKEN)?.query_row([], read).optional()?);
        };
        let mut statement = self.prepare(NEXT_TOKEN_OF)?;
        let mut first = None;
        for queue in queues {
            let next = statement.query_row([queue.as_str()], read).optional()?;
            first = first.into_iter().chain(next).min();
        }
        Ok(first)
    }
}

/// Groups and marks.
impl Db<'_> {
    /// Returns whether first tasks are filed.
    pub(super) fn is_filing(&self) -> Outcome<bool> {
        Ok(self.counter(FILING)? == 1)
    }

    fn are_more_ready_than(&self, lanes: usize) -> Outcome<bool> {
        Ok(self.prepare(ARE_READY)?.exists([clamp(lanes)])?)
    }

    /// Files first tasks if more lanes than this have ready tasks. Returns whether they are filed.
    pub(super) fn file_if_many(&self, most: usize) -> Outcome<bool> {
        if !self.is_filing()? {
            if !self.are_more_ready_than(most)? {
                return Ok(false);
            }
            self.set_counter(FILING, 1)?;
            self.prepare(FILE)?.execute([])?;
        }
        Ok(true)
    }

    /// Stops filing first tasks, and removes all marks.
    fn take_out(&self) -> Outcome<()> {
        self.set_counter(FILING, 0)?;
        self.prepare(TAKE_OUT)?.execute([])?;
        Ok(())
    }

    /// Does the same if something may be filed wrongly. The next tick with many lanes files everything again.
    pub(super) fn refile(&self) -> Outcome<()> {
        self.take_out()?;
        for sql in TAKE_OUT_WRONG {
            self.prepare(sql)?.execute([])?;
        }
        Ok(())
    }

    fn group(&self, class: i64, parent: i64, cause: &str) -> Outcome<i64> {
        self.prepare(NEW_GROUP)?.execute((class, parent, cause))?;
        Ok(self.prepare(GROUP)?.query_row((class, parent, cause), |row| row.get(0))?)
    }

    pub(super) fn put_marks(&mut self, marks: &[Mark]) -> Outcome<()> {
        for mark in marks {
            let (Mark::Class { lane, .. } | Mark::Group { lane, .. }) = mark;
            let class = self
                .prepare(CLASS_OF)?
                .query_row([lane.0], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                .optional()?;
            let Some((class, parent, group)): Option<(i64, i64, i64)> = class else { continue };
            match mark {
                Mark::Class { by, is_full, .. } => {
                    let (closed, pool) = match by {
                        Subject::Pool(pool) => (if *is_full { FULL } else { REFUSED }, Some(pool)),
                        _ => (QUEUE_PAUSED, None),
                    };
                    let key = self.lane(lane.0)?;
                    let needs = key.pools().find(|(name, _)| Some(*name) == pool).map(|(_, slots)| slots);
                    self.prepare(CLOSE)?.execute((class, closed, by.parts().1, needs))?;
                }
                Mark::Group { cause, next, .. } => {
                    let to = self.group(class, parent, &serde_json::to_string(cause)?)?;
                    if to != group {
                        self.prepare(MOVE_LANE)?.execute((lane.0, to))?;
                    }
                    let next = next.map(Timestamp::as_micros);
                    let (paused, key) = match cause {
                        Cause::Paused(subject) => subject.parts(),
                        Cause::Reached(key, _) | Cause::Spent(key) => (0, key.as_str()),
                    };
                    self.prepare(PUT_TO_SLEEP)?.execute((to, paused, key, next))?;
                }
            }
        }
        Ok(())
    }

    /// Returns the marks that refuse tasks that fit, and whatever is filed by a wrong first task.
    pub(super) fn wrong_marks(&mut self) -> Outcome<Vec<Discrepancy>> {
        let mut wrong = Vec::new();
        for sql in MISFILED {
            self.each(sql, |row| {
                wrong.push(Discrepancy::Mark {
                    mark: format!("the first task of {}", row.get::<_, String>(0)?),
                });
                Ok(())
            })?;
        }
        wrong.extend(self.wrong_turns()?);
        let mut closed: Vec<(ClassKey, i64, Subject)> = Vec::new();
        let mut asleep: Vec<(ClassKey, Cause, Option<Timestamp>)> = Vec::new();
        self.each(CLOSED, |row| {
            let by = match row.get(4)? {
                QUEUE_PAUSED => Subject::Queue(row::name(row, 5)?),
                _ => Subject::Pool(row::name(row, 5)?),
            };
            closed.push((class(row)?, row.get(4)?, by));
            Ok(())
        })?;
        self.each(ASLEEP, |row| {
            let cause = serde_json::from_str(row.get_ref(4)?.as_str()?)?;
            asleep.push((class(row)?, cause, row.get::<_, Option<i64>>(5)?.map(Timestamp::from_micros)));
            Ok(())
        })?;
        let facts = self.facts(asleep.iter().filter_map(|(_, cause, _)| cause.key()))?;
        wrong.extend(closed.iter().filter_map(|(class, closed, by)| match by {
            Subject::Pool(pool) if *closed == FULL => check(&facts, class, &Sleeps::Full(pool)),
            by => check(&facts, class, &Sleeps::By(by)),
        }));
        let asleep = asleep.iter();
        wrong.extend(
            asleep.filter_map(|(class, cause, next)| check(&facts, class, &Sleeps::Asleep(cause, *next))),
        );
        Ok(wrong)
    }

    fn facts<'k>(&mut self, keys: impl Iterator<Item = &'k LimitKey>) -> Outcome<Facts> {
        let keys: BTreeSet<&LimitKey> = keys.collect();
        let (rates, clock) = self.rates(keys.iter().copied())?;
        Ok(Facts {
            pools: self.all_pools()?.into_iter().map(|pool| (pool.spec.name.clone(), pool)).collect(),
            paused: self.paused()?.into_iter().collect(),
            families: self.families()?,
            limits: self
                .limits(keys)?
                .into_iter()
                .flatten()
                .map(|limit| (limit.key.clone(), limit))
                .collect(),
            rates: rates.into_iter().map(|used| (used.key.clone(), used)).collect(),
            clock,
        })
    }
}

/// Reads a class from the first four columns.
fn class(row: &rusqlite::Row<'_>) -> Outcome<ClassKey> {
    let key = LaneKey::new(row::name(row, 1)?, row::count(row, 2)?, Vec::new()).queue(row::name(row, 0)?);
    let key = needs::from_text(key, &format!("[{}]", row.get_ref(3)?.as_str()?))?;
    let pools = key.pools().map(|(pool, slots)| (pool.clone(), slots)).collect();
    Ok((key.queue, pools))
}
