//! What the store knows about the outages of a worker's targets, and what still has to be recorded.
//!
//! A worker records outages when it renews its shards, which is several times per lease. An outage that
//! begins and ends between two renewals is never written. Pokes themselves write nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::{Plan, Rules};
use crate::fingerprint::Fingerprint;
use crate::sensor::{OutageRow, Scope};
use crate::time::Timestamp;

/// The ongoing outages in the store, and where memory differs from it.
#[derive(Debug, Default)]
pub(super) struct Outages {
    /// When each outage began, by target.
    stored: BTreeMap<Fingerprint, Timestamp>,
    /// When a poke could check the target again, for outages that are still open in the store.
    over: BTreeMap<Fingerprint, Timestamp>,
    /// Targets whose outage has begun, ended or lost its sensors since the last record.
    differing: BTreeSet<Fingerprint>,
    /// Targets with an outage in the store but no sensor known to this worker. If part of the shard is lent,
    /// another worker may have the sensors.
    pub(super) unmatched: BTreeSet<Fingerprint>,
}

impl Outages {
    /// Returns when an outage in the store began, unless a poke has ended it since.
    pub(super) fn goes_on(&self, target: Fingerprint) -> Option<Timestamp> {
        self.stored.get(&target).filter(|_| !self.over.contains_key(&target)).copied()
    }

    /// Records that a poke could check the target again.
    pub(super) fn is_over(&mut self, target: Fingerprint, now: Timestamp) {
        if self.stored.contains_key(&target) {
            self.over.insert(target, now);
        }
    }

    /// Records that memory may differ from the store.
    pub(super) fn differs(&mut self, target: Fingerprint) {
        self.differing.insert(target);
    }

    /// Forgets targets that no longer belong to the worker.
    pub(super) fn retain(&mut self, mine: impl Fn(Fingerprint) -> bool) {
        self.stored.retain(|target, _| mine(*target));
        self.over.retain(|target, _| mine(*target));
        self.differing.retain(|target| mine(*target));
        self.unmatched.retain(|target| mine(*target));
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl Plan {
    /// Loads the ongoing outages of shards that were just gained, before their sensors are loaded. The first
    /// poke of a target decides whether its outage still lasts.
    pub(crate) fn learn_outages(&mut self, rows: &[OutageRow]) {
        let (stored, known) = (&mut self.groups.stored, &self.groups.by_print);
        for row in rows.iter().filter(|row| row.until.is_none()) {
            stored.stored.insert(row.fingerprint, row.since);
            stored.over.remove(&row.fingerprint);
            // If no sensor waits for the target any more, the end of the outage must be recorded.
            stored.differing.insert(row.fingerprint);
            if !known.contains_key(&row.fingerprint) {
                stored.unmatched.insert(row.fingerprint);
            }
        }
    }

    /// Forgets outages of targets without a known sensor if part of their shard is lent. Such an outage may
    /// belong to another worker, which ends it without this worker's knowledge. Call this once the sensors of
    /// gained shards have been loaded.
    pub(crate) fn forget_outages_of_others(&mut self, rules: Rules) {
        let held = &self.held;
        let is_whole = |target| held.get(&rules.shard(target)).is_some_and(Scope::is_whole);
        let outages = &mut self.groups.stored;
        let (kept, others) =
            std::mem::take(&mut outages.unmatched).into_iter().partition(|target| is_whole(*target));
        outages.unmatched = kept;
        let others: BTreeSet<Fingerprint> = others;
        if !others.is_empty() {
            outages.retain(|target| !others.contains(&target));
        }
    }

    /// Returns the outages to record: those that the store does not have, and the ends of those that are
    /// over. An outage also counts as over if no sensor waits for its target.
    pub(crate) fn outages_to_store(&self, now: Timestamp, rules: Rules) -> Vec<OutageRow> {
        let Outages { stored, over, differing, unmatched } = &self.groups.stored;
        let is_whole = |target| self.held.get(&rules.shard(target)).is_some_and(Scope::is_whole);
        let mut rows = Vec::new();
        for target in differing {
            let (known, since) = (stored.get(target).copied(), self.groups.unreachable_since(*target));
            if known == since || unmatched.contains(target) && !is_whole(*target) {
                continue;
            }
            if let Some(known) = known {
                let until = over.get(target).copied().unwrap_or(now).max(known);
                rows.push(OutageRow { fingerprint: *target, since: known, until: Some(until) });
            }
            if let Some(since) = since {
                rows.push(OutageRow { fingerprint: *target, since, until: None });
            }
        }
        rows
    }

    /// Records that the store has accepted these rows. The next renewal sends the others again.
    pub(crate) fn outages_stored(&mut self, rows: &[OutageRow]) {
        for OutageRow { fingerprint, since, until } in rows {
            let stored = &mut self.groups.stored;
            stored.over.remove(fingerprint);
            match until {
                None => stored.stored.insert(*fingerprint, *since),
                Some(_) => stored.stored.remove(fingerprint),
            };
        }
        let groups = &self.groups;
        let differs = |target: &Fingerprint| {
            groups.stored.stored.get(target).copied() != groups.unreachable_since(*target)
        };
        let differing = groups.stored.differing.iter().copied().filter(differs).collect();
        self.groups.stored.differing = differing;
    }
}
