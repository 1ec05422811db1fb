//! Families, rates, caps and pauses.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::convert::Infallible;

use super::state::{Filing, Write, replace_named};
use super::undo::Transaction;
use crate::admission::limits::{Families, LimitSpec, RateUse};
use crate::admission::{LaneKey, Subject, WaitingCap};
use crate::core::admission::cap::{CapUse, WaitingCount};
use crate::id::LimitKey;
use crate::task::TaskInsert;
use crate::time::Timestamp;

/// The most keys that a grant forgets, in addition to two for each key that took a token.
const FORGET: usize = 64;

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct Rules {
    pub(super) families: BTreeMap<LimitKey, LimitSpec>,
    pub(super) paused: BTreeSet<Subject>,
    pub(super) caps: BTreeMap<Subject, WaitingCap>,
    rates: HashMap<LimitKey, RateUse>,
    /// Keys by the instant at which they last took a token.
    by_last: BTreeSet<(Timestamp, LimitKey)>,
    /// Keys by the instant from which they owe nothing.
    by_full: BTreeSet<(Timestamp, LimitKey)>,
}

impl Rules {
    pub(super) fn swap_rate(&mut self, key: &LimitKey, used: Option<RateUse>) -> Option<RateUse> {
        if let Some(used) = &used {
            self.file(used, Filing::In);
        }
        let old = replace_named(&mut self.rates, key, used);
        if let Some(old) = &old
            && self.rates.get(key).is_none_or(|now| now.at != old.at)
        {
            self.by_last.remove(&(old.at, key.clone()));
        }
        if let Some(old) = &old
            && self.rates.get(key).is_none_or(|now| now.full_at() != old.full_at())
        {
            self.by_full.remove(&(old.full_at(), key.clone()));
        }
        old
    }

    fn file(&mut self, used: &RateUse, filing: Filing) {
        filing.entry(&mut self.by_last, (used.at, used.key.clone()));
        filing.entry(&mut self.by_full, (used.full_at(), used.key.clone()));
    }

    pub(super) fn rate(&self, key: &LimitKey) -> Option<&RateUse> {
        self.rates.get(key)
    }

    /// Returns the latest instant at which a token was taken.
    pub(super) fn clock(&self) -> Option<Timestamp> {
        self.by_last.last().map(|(at, _)| *at)
    }

    /// Returns the first keys that owe nothing at this instant, except the one that took a token last,
    /// because it keeps the clock.
    fn full(&self, now: Timestamp, limit: usize) -> Vec<LimitKey> {
        let last = self.by_last.last().map(|(_, key)| key);
        let full = self.by_full.iter().take_while(|(at, _)| *at <= now).map(|(_, key)| key);
        full.filter(|key| Some(*key) != last).take(limit).cloned().collect()
    }

    #[cfg(test)]
    pub(super) fn rebuilt(&self) -> Self {
        let (families, paused) = (self.families.clone(), self.paused.clone());
        let mut rules = Self { families, paused, caps: self.caps.clone(), ..Self::default() };
        for (key, used) in &self.rates {
            rules.swap_rate(key, Some(used.clone()));
        }
        rules
    }
}

impl Transaction<'_> {
    /// Replaces what keys owe, and forgets some keys that no longer owe anything.
    pub(super) fn put_rates(&mut self, rates: &[RateUse]) {
        let Some(now) = rates.iter().map(|used| used.at).max() else { return };
        for used in rates {
            self.write(Write::Rate(used.key.clone(), Some(Box::new(used.clone()))));
        }
        for key in self.state.rules.full(now, FORGET + 2 * rates.len()) {
            self.write(Write::Rate(key, None));
        }
    }

    /// Returns the caps that apply to these tasks, with the number of tasks that wait under each.
    pub(super) fn caps_of(&self, tasks: &[TaskInsert]) -> Vec<CapUse> {
        let rules = &self.state.rules;
        let lanes = tasks.iter().map(|task| &*task.lane);
        let families: Vec<LimitSpec> = rules.families.values().cloned().collect();
        let is_defined = |key: &LimitKey| Ok(self.state.limits.row(key).is_some_and(|row| row.is_defined));
        let cap = |subject: &Subject| Ok(rules.caps.get(subject).copied());
        let found = WaitingCount::of_lanes(lanes, &Families::new(&families), is_defined, cap);
        let Ok::<_, Infallible>(mut waiting) = found;
        if waiting.is_empty() {
            return Vec::new();
        }
        for (_, lane, [tasks, _]) in self.state.lanes.all() {
            waiting.add(lane, i64::try_from(tasks).unwrap_or(i64::MAX));
        }
        for task in self.state.tasks.leased_and_sensing() {
            waiting.add(&task.lane, -1);
        }
        waiting.counted()
    }

    /// Returns the number of leases by the needs of their tasks.
    pub(super) fn leases_by_lane(&self) -> Vec<(LaneKey, u64)> {
        let mut counts: BTreeMap<&LaneKey, u64> = BTreeMap::new();
        for task in self.state.tasks.leased_and_sensing().filter(|task| task.state.is_leased()) {
            *counts.entry(&task.lane).or_default() += 1;
        }
        counts.into_iter().map(|(lane, leases)| (lane.clone(), leases)).collect()
    }
}
