//! Caps on waiting tasks.

use std::collections::{BTreeMap, HashSet};

use tokio_postgres::Row;

use super::super::error::Outcome;
use super::super::wire::{Statement, ask};
use super::attempt::SERIALIZE;
use super::insert::queue;
use super::{Db, first, row};
use crate::admission::{LaneKey, Subject, WaitingCap};
use crate::core::admission::cap::CapUse;
use crate::store::sql::statement::statement;
use crate::store::sql::{needs, records};
use crate::task::TaskInsert;

pub(super) const CAPS: &str = statement!("caps.sql");
pub(super) const PUT_CAPS: &str = statement!("put_caps.sql");
pub(super) const HOLD_CAPS: &str = statement!("hold_caps.sql");
pub(super) const IS_CAPPED: &str = statement!("is_capped.sql");

/// Builds a statement over the distinct queues and limits of these tasks.
fn of_tasks(sql: &'static str, tasks: &[&TaskInsert]) -> Outcome<Statement> {
    let lanes: HashSet<&LaneKey> = tasks.iter().map(|task| &*task.lane).collect();
    let queues: HashSet<Option<String>> = lanes.iter().map(|lane| queue(lane)).collect();
    let limits: HashSet<String> = lanes.iter().map(|lane| needs::to_text(lane)).collect::<Result<_, _>>()?;
    Ok(ask!(sql, Vec::from_iter(queues), Vec::from_iter(limits)))
}

/// The name that serializes enqueues under a strict cap. The SQL functions use the same name.
fn turn(cap: &CapUse) -> String {
    let (kind, name) = cap.subject.parts();
    format!("cap {kind} {name}")
}

fn held(rows: &[Row]) -> Outcome<Vec<CapUse>> {
    let held = |row: &Row| {
        let (subject, cap) = records::cap(row)?;
        Ok(CapUse::new(subject, cap, row::number(row, 4)?))
    };
    rows.iter().map(held).collect()
}

impl Db<'_> {
    /// Returns true if one of these tasks may be capped.
    pub(super) fn is_capped(&mut self, tasks: &[&TaskInsert]) -> Outcome<bool> {
        let rows = self.one(of_tasks(IS_CAPPED, tasks)?)?;
        row::value(first(&rows)?, 0)
    }

    /// Returns the caps that apply to these tasks, and how many tasks wait under each. Under a strict cap they are
    /// counted after earlier enqueues have ended.
    pub(super) fn hold_caps(&mut self, tasks: &[TaskInsert]) -> Outcome<Vec<CapUse>> {
        let tasks: Vec<&TaskInsert> = tasks.iter().collect();
        let caps = held(&self.one(of_tasks(HOLD_CAPS, &tasks)?)?)?;
        let turns: Vec<String> = caps.iter().filter(|cap| cap.cap.strict).map(turn).collect();
        if turns.is_empty() {
            return Ok(caps);
        }
        // The second statement sees what the transactions committed that the first one waited for.
        let [_, rows] = self.all([ask!(SERIALIZE, turns), of_tasks(HOLD_CAPS, &tasks)?])?;
        held(&rows)
    }

    pub(super) fn put_caps(&mut self, caps: &[(Subject, Option<WaitingCap>)]) -> Outcome<Vec<bool>> {
        // The last cap of each subject counts. The result for the first one says whether there was a cap.
        let mut last: BTreeMap<&Subject, (usize, Option<WaitingCap>)> = BTreeMap::new();
        let mut had = vec![false; caps.len()];
        for (at, (subject, cap)) in caps.iter().enumerate() {
            let before = last.insert(subject, (at, *cap));
            if let Some((first, cap_before)) = before {
                last.insert(subject, (first, *cap));
                had[at] = cap_before.is_some();
            }
        }
        let (mut kinds, mut names, mut most, mut strict) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (subject, (_, cap)) in &last {
            let (kind, name) = subject.parts();
            kinds.push(kind);
            names.push(name.to_owned());
            most.push(cap.map(|cap| i64::from(cap.most)));
            strict.push(cap.map(|cap| i64::from(cap.strict)));
        }
        let firsts: Vec<usize> = last.values().map(|(first, _)| *first).collect();
        for row in &self.define(ask!(PUT_CAPS, kinds, names, most, strict), false)? {
            if let Some(had) = firsts.get(row::place(row, 0)?).and_then(|first| had.get_mut(*first)) {
                *had = true;
            }
        }
        Ok(had)
    }

    pub(super) fn caps(&mut self) -> Outcome<Vec<(Subject, WaitingCap)>> {
        self.one(ask!(CAPS))?.iter().map(records::cap).collect()
    }
}
