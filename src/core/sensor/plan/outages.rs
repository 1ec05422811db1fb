//! What the store knows about the outages of a worker's targets, and what still has to be recorded.
//!
//! A worker records outages when it renews its shards, which is several times per lease. An outage that
//! begins and ends between two renewals is never written. Pokes themselves write nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::Plan;
use crate::fingerprint::Fingerprint;
use crate::sensor::{OutageRow, Scope};
use crate::time::Timestamp;

/// An ongoing outage in the store.
#[derive(Debug)]
struct Stored {
    since: Timestamp,
    /// When a poke could check the target again. The store does not have that yet.
    over: Option<Timestamp>,
    /// True if this worker knows no sensor of the target. If part of the shard is lent, another worker may
    /// have the sensors.
    is_unmatched: bool,
}

/// The ongoing outages in the store, and where memory differs from it.
#[derive(Debug, Default)]
pub(super) struct Outages {
    /// By target.
    stored: BTreeMap<Fingerprint, Stored>,
    /// Targets whose outage has begun, ended or lost its sensors since the last record.
    differing: BTreeSet<Fingerprint>,
}

impl Outages {
    /// Returns when an outage in the store began, unless a poke has ended it since.
    pub(super) fn goes_on(&self, target: Fingerprint) -> Option<Timestamp> {
        self.stored.get(&target).filter(|stored| stored.over.is_none()).map(|stored| stored.since)
    }

    /// Records that a poke could check the target again.
    pub(super) fn is_over(&mut self, target: Fingerprint, now: Timestamp) {
        if let Some(stored) = self.stored.get_mut(&target) {
            stored.over = Some(now);
        }
    }

    /// Records that a sensor waits for the target.
    pub(super) fn is_matched(&mut self, target: Fingerprint) {
        if let Some(stored) = self.stored.get_mut(&target) {
            stored.is_unmatched = false;
        }
    }

    /// Records that memory may differ from the store.
    pub(super) fn differs(&mut self, target: Fingerprint) {
        self.differing.insert(target);
    }

    /// Forgets targets that no longer belong to the worker.
    pub(super) fn retain(&mut self, mine: impl Fn(Fingerprint) -> bool) {
        self.stored.retain(|target, _| mine(*target));
        self.differing.retain(|target| mine(*target));
    }
}

impl Plan {
    /// Loads the ongoing outages of shards that were just gained, before their sensors are loaded. The first
    /// poke of a target decides whether its outage still lasts.
    pub(crate) fn learn_outages(&mut self, rows: &[OutageRow]) {
        for row in rows.iter().filter(|row| row.until.is_none()) {
            let is_unmatched = !self.groups.has(row.fingerprint);
            let outages = &mut self.groups.stored;
            outages.stored.insert(row.fingerprint, Stored { since: row.since, over: None, is_unmatched });
            // If no sensor waits for the target any more, the end of the outage must be recorded.
            outages.differing.insert(row.fingerprint);
        }
    }

    /// Forgets outages of targets without a known sensor if part of their shard is lent. Such an outage may
    /// belong to another worker, which ends it without this worker's knowledge. Call this once the sensors of
    /// gained shards have been loaded.
    pub(crate) fn forget_outages_of_others(&mut self) {
        // Between workers of equal kinds nothing is lent, however many outages there are.
        if self.held.values().all(Scope::is_whole) {
            return;
        }
        let is_whole = |target| self.held.get(&self.rules.shard(target)).is_some_and(Scope::is_whole);
        self.groups.stored.stored.retain(|target, outage| !outage.is_unmatched || is_whole(*target));
    }

    /// Returns the outages to record: those that the store does not have, and the ends of those that are
    /// over. An outage also counts as over if no sensor waits for its target.
    pub(crate) fn outages_to_store(&self, now: Timestamp) -> Vec<OutageRow> {
        let Outages { stored, differing } = &self.groups.stored;
        let is_whole = |target| self.held.get(&self.rules.shard(target)).is_some_and(Scope::is_whole);
        let mut rows = Vec::new();
        for target in differing {
            let (known, since) = (stored.get(target), self.groups.unreachable_since(*target));
            if known.map(|known| known.since) == since
                || known.is_some_and(|known| known.is_unmatched) && !is_whole(*target)
            {
                continue;
            }
            if let Some(known) = known {
                let until = known.over.unwrap_or(now).max(known.since);
                rows.push(OutageRow { fingerprint: *target, since: known.since, until: Some(until) });
            }
            if let Some(since) = since {
                rows.push(OutageRow { fingerprint: *target, since, until: None });
            }
        }
        rows
    }

    /// Records that the store has accepted these rows. The next renewal sends the others again.
    pub(crate) fn outages_stored(&mut self, rows: &[OutageRow]) {
        let outages = &mut self.groups.stored;
        for OutageRow { fingerprint, since, until } in rows {
            let stored = Stored { since: *since, over: None, is_unmatched: false };
            match until {
                None => outages.stored.insert(*fingerprint, stored),
                Some(_) => outages.stored.remove(fingerprint),
            };
        }
        let mut differing = std::mem::take(&mut outages.differing);
        let known = |target: &Fingerprint| self.groups.stored.stored.get(target).map(|known| known.since);
        differing.retain(|target| known(target) != self.groups.unreachable_since(*target));
        self.groups.stored.differing = differing;
    }
}
