//! Many lanes: those without a share by their first tasks, and which of them sleep.
//!
//! Triggers of the schema keep the first tasks of lanes, groups and classes, and remove marks: see `0001_initial.sql`. So they
//! are exact whoever writes, also a host by its own driver. Here lanes get their groups, marks are made, and pages are read.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::OptionalExtension;

use super::super::error::Outcome;
use super::row::map_index_value;
use super::{Db, clamp, row, tick};
use crate::admission::{Cause, Lane, LaneId, LaneKey, Mark, OrderKey};
use crate::id::{LimitKey, PoolName, QueueName};
use crate::store::Discrepancy;
use crate::store::awake::{Entry, Of, awake};
use crate::store::contract::{First, LanesBehind, Survey, SurveyQuery};
use crate::store::marks::{ClassKey, Facts, Sleeps, check};
use crate::time::Timestamp;

const NEW_CLASS: &str =
    "INSERT OR IGNORE INTO sm_lane_class (queue, pool, slots, also) VALUES (?1, ?2, ?3, ?4)";
pub(super) const CLASS: &str =
    "SELECT no FROM sm_lane_class WHERE queue = ?1 AND pool = ?2 AND slots = ?3 AND also = ?4";
const NEW_GROUP: &str = "INSERT OR IGNORE INTO sm_lane_group (class, queue, cause) \
     SELECT no, queue, ?2 FROM sm_lane_class WHERE no = ?1";
pub(super) const GROUP: &str = "SELECT no FROM sm_lane_group WHERE class = ?1 AND cause = ?2";
pub(super) const CLASS_OF: &str = "SELECT sm_lane_group.class, sm_lane.grp FROM sm_lane \
     JOIN sm_lane_group ON sm_lane_group.no = sm_lane.grp WHERE sm_lane.no = ?1";
pub(super) const SLEEPS: &str = "SELECT sm_lane_group.asleep OR sm_lane_class.closed FROM sm_lane \
     JOIN sm_lane_group ON sm_lane_group.no = sm_lane.grp \
     JOIN sm_lane_class ON sm_lane_class.no = sm_lane_group.class WHERE sm_lane.no = ?1";
pub(super) const MOVE_LANE: &str = "UPDATE sm_lane SET grp = ?2 WHERE no = ?1";
pub(super) const CLOSE: &str = "UPDATE sm_lane_class SET closed = 1, full = ?2, needs = ?3 WHERE no = ?1";
pub(super) const PUT_TO_SLEEP: &str =
    "UPDATE sm_lane_group SET asleep = 1, key = ?2, next = ?3 WHERE no = ?1";
pub(super) const WAKE_BY: &str = "UPDATE sm_lane_group SET asleep = 0, next = NULL WHERE no IN ( \
     SELECT no FROM sm_lane_group WHERE next IS NOT NULL AND next <= ?1 ORDER BY next LIMIT ?2)";
pub(super) const WAKE_BY_OF: &str = "UPDATE sm_lane_group SET asleep = 0, next = NULL WHERE no IN ( \
     SELECT no FROM sm_lane_group WHERE queue = ?3 AND next IS NOT NULL AND next <= ?1 ORDER BY next LIMIT ?2)";
pub(super) const NEXT_TOKEN: &str =
    "SELECT next FROM sm_lane_group WHERE next IS NOT NULL ORDER BY next LIMIT 1";
pub(super) const NEXT_TOKEN_OF: &str =
    "SELECT next FROM sm_lane_group WHERE queue = ?1 AND next IS NOT NULL ORDER BY next LIMIT 1";
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
pub(super) const NEXT_GROUP: &str = behind!("sm_lane_group", "class = ?5 AND asleep = 0");
pub(super) const NEXT_LANE: &str = behind!("sm_lane", "grp = ?5");
/// For repairs. The first statement lets a trigger find the first tasks of lanes.
const REFILE: [&str; 5] = [
    "UPDATE sm_lane SET ready = ready",
    "UPDATE sm_lane_class SET closed = 0 WHERE closed = 1",
    "UPDATE sm_lane_group SET asleep = 0, next = NULL WHERE asleep = 1",
    "UPDATE sm_lane_group SET lanes = (SELECT count(*) FROM sm_lane WHERE grp = sm_lane_group.no), \
     (rank, logical_date, map_index, head) = (SELECT rank, logical_date, map_index, head FROM sm_lane \
     WHERE grp = sm_lane_group.no AND head IS NOT NULL ORDER BY rank, logical_date, map_index, head LIMIT 1)",
    "UPDATE sm_lane_class SET (rank, logical_date, map_index, head) = (SELECT rank, logical_date, map_index, head \
     FROM sm_lane_group WHERE class = sm_lane_class.no AND asleep = 0 AND head IS NOT NULL \
     ORDER BY rank, logical_date, map_index, head LIMIT 1)",
];
/// For audits: what is filed by another first task than its own.
const MISFILED: [&str; 3] = [
    "SELECT 'lane ' || no FROM sm_lane WHERE grp IS NOT NULL AND (rank, logical_date, map_index, head) IS NOT ( \
     SELECT rank, logical_date, map_index, no FROM sm_task WHERE lane = sm_lane.no AND state = 0 \
     ORDER BY rank, logical_date, map_index, no LIMIT 1) ORDER BY no",
    "SELECT 'group ' || no FROM sm_lane_group WHERE lanes <> (SELECT count(*) FROM sm_lane WHERE grp = sm_lane_group.no) \
     OR (rank, logical_date, map_index, head) IS NOT (SELECT rank, logical_date, map_index, head FROM sm_lane \
     WHERE grp = sm_lane_group.no AND head IS NOT NULL ORDER BY rank, logical_date, map_index, head LIMIT 1) ORDER BY no",
    "SELECT 'class ' || no FROM sm_lane_class WHERE (rank, logical_date, map_index, head) IS NOT ( \
     SELECT rank, logical_date, map_index, head FROM sm_lane_group \
     WHERE class = sm_lane_class.no AND asleep = 0 AND head IS NOT NULL \
     ORDER BY rank, logical_date, map_index, head LIMIT 1) ORDER BY no",
];
const CLOSED: &str = "SELECT queue, pool, slots, also, full FROM sm_lane_class WHERE closed = 1 ORDER BY no";
const ASLEEP: &str = "SELECT c.queue, c.pool, c.slots, c.also, g.cause, g.next FROM sm_lane_group g \
     JOIN sm_lane_class c ON c.no = g.class WHERE g.asleep = 1 ORDER BY g.no";

/// Which lanes a tick reads.
impl Db<'_> {
    /// Returns the lanes that a survey returns first, and behind which place those are that it leaves out.
    pub(super) fn first_lanes(&mut self, query: &SurveyQuery) -> Outcome<(Vec<Lane>, Option<OrderKey>)> {
        let queues = query.queues.as_ref();
        let Some(First { lanes: most, .. }) = query.first else {
            return Ok((self.ready_lanes(queues)?, None));
        };
        let mut lanes = self.lanes_by_number(queues, most.saturating_add(1))?;
        if lanes.len() <= most {
            return Ok((lanes, None));
        }
        lanes.truncate(most);
        lanes.append(&mut self.lanes_read_whole(queues)?);
        lanes.sort_by_key(|lane| lane.id);
        lanes.dedup_by_key(|lane| lane.id);
        let mut sleeps = self.prepare(SLEEPS)?;
        let is_filed = |lane: &&mut Lane| !lane.keeps_slots && lane.key.share.is_none();
        for lane in lanes.iter_mut().filter(is_filed) {
            lane.sleeps = sleeps.query_row([lane.id.0], |row| row.get(0)).optional()?.unwrap_or(false);
        }
        Ok((lanes, Some(OrderKey::FIRST)))
    }

    pub(super) fn lanes_behind(&mut self, page: &LanesBehind<'_>) -> Outcome<Survey> {
        let mut found = awake(page.queues, page.after, page.limit.saturating_add(1), |of, place| {
            self.next_in(of, place)
        })?;
        let mut survey = Survey::default();
        if found.len() > page.limit {
            found.truncate(page.limit);
            survey.unread = found.last().map(|(head, _)| *head);
        }
        for (_, LaneId(no)) in found {
            survey.lanes.push(self.ready_lane(no)?);
        }
        self.name_capacity(&mut survey)?;
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

    /// Removes marks of these queues that end by themselves until the instant of the tick, or, in a transaction that
    /// reads, returns whether there are any.
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

    /// Returns when the first mark of these queues ends by itself.
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
    /// Returns the group of a lane that nothing has refused; `None` for lanes of shares.
    pub(super) fn first_group(&self, key: &LaneKey) -> Outcome<Option<i64>> {
        if key.share.is_some() {
            return Ok(None);
        }
        let also = if key.also.is_empty() { String::new() } else { serde_json::to_string(&key.also)? };
        let class = (key.queue.as_str(), key.pool.as_str(), key.slots, &also);
        self.prepare(NEW_CLASS)?.execute(class)?;
        let class = self.prepare(CLASS)?.query_row(class, |row| row.get(0))?;
        self.group(class, "").map(Some)
    }

    fn group(&self, class: i64, cause: &str) -> Outcome<i64> {
        self.prepare(NEW_GROUP)?.execute((class, cause))?;
        Ok(self.prepare(GROUP)?.query_row((class, cause), |row| row.get(0))?)
    }

    pub(super) fn put_marks(&mut self, marks: &[Mark]) -> Outcome<()> {
        for mark in marks {
            let (Mark::Class { lane, .. } | Mark::Group { lane, .. }) = mark;
            let class = self
                .prepare(CLASS_OF)?
                .query_row([lane.0], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let Some((class, group)): Option<(i64, i64)> = class else { continue };
            match mark {
                Mark::Class { full, .. } => {
                    let key = self.lane(lane.0)?;
                    let needs = full.as_ref().and_then(|full| key.pools().find(|(pool, _)| *pool == full));
                    let full = full.as_ref().map(PoolName::as_str);
                    self.prepare(CLOSE)?.execute((class, full, needs.map(|(_, slots)| slots)))?;
                }
                Mark::Group { cause, next, .. } => {
                    let to = self.group(class, &serde_json::to_string(cause)?)?;
                    if to != group {
                        self.prepare(MOVE_LANE)?.execute((lane.0, to))?;
                    }
                    let next = next.map(Timestamp::as_micros);
                    self.prepare(PUT_TO_SLEEP)?.execute((to, cause.key().map(LimitKey::as_str), next))?;
                }
            }
        }
        Ok(())
    }

    /// Removes all marks, and files everything by its first task again.
    pub(super) fn refile(&self) -> Outcome<()> {
        for sql in REFILE {
            self.prepare(sql)?.execute([])?;
        }
        Ok(())
    }

    /// Returns the marks that refuse what fits, and what is filed by a wrong task.
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
        let mut closed: Vec<(ClassKey, Option<PoolName>)> = Vec::new();
        let mut asleep: Vec<(ClassKey, Cause, Option<Timestamp>)> = Vec::new();
        self.each(CLOSED, |row| {
            let full: Option<String> = row.get(4)?;
            closed.push((class(row)?, full.map(PoolName::new).transpose()?));
            Ok(())
        })?;
        self.each(ASLEEP, |row| {
            let cause = serde_json::from_str(row.get_ref(4)?.as_str()?)?;
            asleep.push((class(row)?, cause, row.get::<_, Option<i64>>(5)?.map(Timestamp::from_micros)));
            Ok(())
        })?;
        let facts = self.facts(asleep.iter().filter_map(|(_, cause, _)| cause.key()))?;
        wrong.extend(closed.iter().filter_map(|(class, full)| check(&facts, class, &Sleeps::Closed(full))));
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
    let mut pools = vec![(row::name(row, 1)?, row::count(row, 2)?)];
    let also = row.get_ref(3)?.as_str()?;
    if !also.is_empty() {
        pools.extend(serde_json::from_str::<BTreeMap<PoolName, u32>>(also)?);
    }
    Ok((row::name(row, 0)?, pools))
}
