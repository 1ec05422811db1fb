//! Families, rates and pauses.

use std::sync::Arc;

use rusqlite::OptionalExtension;

use super::super::error::Outcome;
use super::{Db, clamp, row};
use crate::admission::limits::{Families, LimitSpec, RateUse};
use crate::admission::{LaneKey, Subject, WaitingCap};
use crate::core::admission::cap::{CapUse, WaitingCount};
use crate::id::LimitKey;
use crate::store::sql::records;
use crate::task::TaskInsert;
use crate::time::{Timestamp, duration_micros};

const PUT_FAMILY: &str = "INSERT OR REPLACE INTO sm_family (prefix, max, starts, period, burst, weight) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const DELETE_FAMILY: &str = "DELETE FROM sm_family WHERE prefix = ?1";
pub(super) const FAMILIES: &str =
    "SELECT prefix, max, starts, period, burst, weight FROM sm_family ORDER BY prefix";
const PUT_PAUSE: &str = "INSERT OR IGNORE INTO sm_pause (kind, name) VALUES (?1, ?2)";
const DELETE_PAUSE: &str = "DELETE FROM sm_pause WHERE kind = ?1 AND name = ?2";
pub(super) const PAUSED: &str = "SELECT kind, name FROM sm_pause ORDER BY kind, name";
const PUT_CAP: &str = "INSERT OR REPLACE INTO sm_cap (kind, name, most, strict) VALUES (?1, ?2, ?3, ?4)";
const DELETE_CAP: &str = "DELETE FROM sm_cap WHERE kind = ?1 AND name = ?2";
pub(super) const CAP: &str = "SELECT kind, name, most, strict FROM sm_cap WHERE kind = ?1 AND name = ?2";
pub(super) const CAPS: &str = "SELECT kind, name, most, strict FROM sm_cap ORDER BY kind, name";
pub(super) const ANY_CAP: &str = "SELECT 1 FROM sm_cap LIMIT 1";
const LANE_TASKS: &str = "SELECT no, tasks FROM sm_lane WHERE tasks > 0";
const PUT_RATE: &str =
    "INSERT OR REPLACE INTO sm_rate (key, owed, at, starts, period, full_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
pub(super) const RATE: &str = "SELECT key, owed, at, starts, period FROM sm_rate WHERE key = ?1";
pub(super) const CLOCK: &str = "SELECT at FROM sm_rate ORDER BY at DESC LIMIT 1";
/// Deletes keys whose debt is paid, except the one that took a token last, because it keeps the clock.
pub(super) const FORGET_RATES: &str = "DELETE FROM sm_rate WHERE key IN ( \
     SELECT key FROM sm_rate WHERE full_at <= ?1 AND key <> (SELECT key FROM sm_rate ORDER BY at DESC, key DESC LIMIT 1) \
     ORDER BY full_at, key LIMIT ?2)";

/// The most keys that a grant deletes, in addition to two for each key that took a token.
const FORGET: usize = 64;

/// The columns of a maximum, a rate and a weight.
pub(super) type RuleColumns = (Option<u32>, Option<u32>, Option<i64>, Option<u32>, Option<u32>);

pub(super) fn rule_columns(spec: &LimitSpec) -> RuleColumns {
    let rate = spec.rate;
    let period = rate.map(|rate| duration_micros(rate.period()));
    (spec.max, rate.map(|rate| rate.starts()), period, rate.map(|rate| rate.most_at_once()), spec.weight)
}

impl Db<'_> {
    pub(super) fn put_family(&mut self, spec: &LimitSpec) -> Outcome<()> {
        let (max, starts, period, burst, weight) = rule_columns(spec);
        self.prepare(PUT_FAMILY)?.execute((spec.key.as_str(), max, starts, period, burst, weight))?;
        Ok(())
    }

    pub(super) fn delete_families(&mut self, prefixes: &[LimitKey]) -> Outcome<Vec<bool>> {
        let mut delete = self.prepare(DELETE_FAMILY)?;
        prefixes.iter().map(|prefix| Ok(delete.execute([prefix.as_str()])? > 0)).collect()
    }

    pub(super) fn families(&mut self) -> Outcome<Vec<LimitSpec>> {
        self.prepare(FAMILIES)?.query_and_then([], |row| records::family(row))?.collect()
    }

    pub(super) fn put_paused(&mut self, subjects: &[Subject], paused: bool) -> Outcome<Vec<bool>> {
        let mut put = self.prepare(if paused { PUT_PAUSE } else { DELETE_PAUSE })?;
        subjects.iter().map(|subject| Ok(put.execute(subject.parts())? > 0)).collect()
    }

    pub(super) fn paused(&mut self) -> Outcome<Vec<Subject>> {
        self.prepare(PAUSED)?.query_and_then([], |row| records::subject(row))?.collect()
    }

    pub(super) fn put_caps(&mut self, caps: &[(Subject, Option<WaitingCap>)]) -> Outcome<Vec<bool>> {
        let (mut put, mut delete) = (self.prepare(PUT_CAP)?, self.prepare(DELETE_CAP)?);
        let mut replace = |(subject, cap): &(Subject, Option<WaitingCap>)| {
            let (kind, name) = subject.parts();
            let had = delete.execute((kind, name))? > 0;
            if let Some(cap) = cap {
                put.execute((kind, name, cap.most, cap.strict))?;
            }
            Ok(had)
        };
        caps.iter().map(&mut replace).collect()
    }

    pub(super) fn caps(&mut self) -> Outcome<Vec<(Subject, WaitingCap)>> {
        self.prepare(CAPS)?.query_and_then([], |row| records::cap(row))?.collect()
    }

    pub(super) fn has_caps(&mut self) -> Outcome<bool> {
        Ok(self.prepare(ANY_CAP)?.exists([])?)
    }

    /// Returns the caps that hold for these tasks, and counts what waits under them.
    pub(super) fn caps_of(&mut self, tasks: &[TaskInsert]) -> Outcome<Vec<CapUse>> {
        let (families, lanes) = (self.families()?, tasks.iter().map(|task| &*task.lane));
        let found = {
            let mut find = self.prepare(CAP)?;
            let is_defined = |key: &LimitKey| {
                let found = self.limits([key])?.pop().flatten();
                Ok(found.is_some_and(|limit| limit.is_defined))
            };
            let cap = |subject: &Subject| {
                let found = find.query(subject.parts())?.next()?.map(records::cap).transpose()?;
                Ok::<_, super::Fault>(found.map(|(_, cap)| cap))
            };
            WaitingCount::of_lanes(lanes, &Families::new(&families), is_defined, cap)
        };
        let mut waiting = found?;
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        for (sql, sign) in [(LANE_TASKS, 1), (super::queue::LEASES, -1), (super::pool::SENSING_SLOTS, -1)] {
            let mut statement = self.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let tasks: i64 = row.get(1)?;
                waiting.add(&*self.lane(row.get(0)?)?, sign * tasks);
            }
        }
        Ok(waiting.counted())
    }

    pub(super) fn leases_by_lane(&mut self) -> Outcome<Vec<(LaneKey, u64)>> {
        let mut counts = Vec::new();
        let mut statement = self.prepare(super::queue::LEASES)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            counts.push((Arc::unwrap_or_clone(self.lane(row.get(0)?)?), row::number(row, 1)?));
        }
        Ok(counts)
    }

    pub(super) fn rates<'k>(
        &mut self,
        keys: impl IntoIterator<Item = &'k LimitKey>,
    ) -> Outcome<(Vec<RateUse>, Option<Timestamp>)> {
        let clock: Option<i64> = self.prepare(CLOCK)?.query_row([], |row| row.get(0)).optional()?;
        // A store without rates makes only one query.
        let Some(clock) = clock else { return Ok((Vec::new(), None)) };
        let mut statement = self.prepare(RATE)?;
        let mut found = Vec::new();
        for key in keys {
            found.extend(statement.query([key.as_str()])?.next()?.map(records::rate).transpose()?);
        }
        Ok((found, Some(Timestamp::from_micros(clock))))
    }

    /// Replaces the debts of keys, and deletes some keys whose debt is paid.
    pub(super) fn put_rates(&mut self, rates: &[RateUse]) -> Outcome<()> {
        let Some(now) = rates.iter().map(|used| used.at.as_micros()).max() else { return Ok(()) };
        let mut put = self.prepare(PUT_RATE)?;
        for used in rates {
            let (at, period) = (used.at.as_micros(), duration_micros(used.period));
            put.execute((used.key.as_str(), used.owed, at, used.starts, period, used.full_at().as_micros()))?;
        }
        self.prepare(FORGET_RATES)?.execute((now, clamp(FORGET + 2 * rates.len())))?;
        Ok(())
    }
}
