//! What the store knows of the outages of a worker's targets, and what it does not know yet.
//!
//! A worker tells the store of outages when it renews its shards, which is several times per lease. An outage that
//! begins and ends between two renewals is never written, and no poke writes anything.

use std::collections::{BTreeMap, BTreeSet};

use super::{GroupRef, Outage, Plan};
use crate::fingerprint::Fingerprint;
use crate::sensor::OutageRow;
use crate::time::Timestamp;

/// The outages that go on in the store, and where memory differs from it.
#[derive(Debug, Default)]
pub(super) struct Outages {
    /// Since when, by target.
    stored: BTreeMap<Fingerprint, Timestamp>,
    /// When a poke could look again, of those that the store holds as going on.
    over: BTreeMap<Fingerprint, Timestamp>,
    /// Targets whose outage began, ended or lost its sensors since the store was last told.
    differing: BTreeSet<Fingerprint>,
    /// Targets found in the store of which no sensor was seen. In a shard of which a part is lent, the sensors may be
    /// another worker's.
    pub(super) unmatched: BTreeSet<Fingerprint>,
}

impl Outages {
    /// Returns the outage of a target of which a sensor was found, as the store holds it, unless a poke has ended it since,
    /// or it counts as over since that instant.
    pub(super) fn found_again(
        &mut self,
        target: Fingerprint,
        over_since: Option<Timestamp>,
    ) -> Option<Outage> {
        self.unmatched.remove(&target);
        over_since.into_iter().for_each(|at| self.is_over(target, at));
        let since = self.stored.get(&target).filter(|_| !self.over.contains_key(&target)).copied()?;
        Some(Outage { since })
    }

    /// Notes that a poke could look again.
    pub(super) fn is_over(&mut self, target: Fingerprint, now: Timestamp) {
        if self.stored.contains_key(&target) {
            self.over.insert(target, now);
        }
    }

    /// Forgets targets that no longer belong to the worker.
    pub(super) fn retain(&mut self, mine: impl Fn(Fingerprint) -> bool) {
        self.stored.retain(|target, _| mine(*target));
        self.over.retain(|target, _| mine(*target));
        self.differing.retain(|target| mine(*target));
        self.unmatched.retain(|target| mine(*target));
    }
}

impl Plan {
    /// Notes whether the target of a group is unreachable.
    pub(super) fn set_outage(&mut self, of: GroupRef, outage: Option<Outage>) {
        let Some(group) = self.groups.get_mut(of) else { return };
        if group.outage != outage {
            self.stored.differing.insert(of.fingerprint);
        }
        self.outages -= usize::from(group.outage.is_some());
        group.outage = outage;
        self.outages += usize::from(outage.is_some());
    }

    /// Returns since when the target of this fingerprint is unreachable; of several, the earliest.
    fn unreachable_since(&self, target: Fingerprint) -> Option<Timestamp> {
        let outages = self.groups.with(target).iter().filter_map(|group| group.outage);
        outages.map(|outage| outage.since).min()
    }

    /// Returns true if it holds the shard of this target, and has lent no kind of it.
    fn holds_all_of(&self, target: Fingerprint) -> bool {
        self.held.get(&self.rules.shard(target)).is_some_and(|share| share.scope.is_whole())
    }

    /// Learns of outages that go on in shards that were just gained, before it learns of their sensors. The first
    /// look at a target decides whether its outage still goes on.
    pub(crate) fn learn_outages(&mut self, rows: &[OutageRow]) {
        let (stored, groups) = (&mut self.stored, &self.groups);
        for row in rows.iter().filter(|row| row.until.is_none()) {
            stored.stored.insert(row.fingerprint, row.since);
            stored.over.remove(&row.fingerprint);
            // If no sensor waits for the target any more, the store learns that the outage is over.
            stored.differing.insert(row.fingerprint);
            if groups.with(row.fingerprint).is_empty() {
                stored.unmatched.insert(row.fingerprint);
            }
        }
    }

    /// Forgets outages of targets of which no sensor was seen, where a part of their shard is lent: they may be another
    /// worker's, which ends them without this one's knowledge. To be called once the sensors of shards that were gained
    /// are learned.
    pub(crate) fn forget_outages_of_others(&mut self) {
        let unmatched = std::mem::take(&mut self.stored.unmatched);
        let (kept, others): (BTreeSet<Fingerprint>, BTreeSet<Fingerprint>) =
            unmatched.into_iter().partition(|target| self.holds_all_of(*target));
        self.stored.unmatched = kept;
        if !others.is_empty() {
            self.stored.retain(|target| !others.contains(&target));
        }
    }

    /// Returns what the store is to be told of outages: those that it does not know, and the ends of those that are
    /// over. An outage is over for the store as well if no sensor waits for its target.
    pub(crate) fn outages_to_store(&self, now: Timestamp) -> Vec<OutageRow> {
        let Outages { stored, over, differing, unmatched } = &self.stored;
        let mut rows = Vec::new();
        for target in differing {
            let (known, since) = (stored.get(target).copied(), self.unreachable_since(*target));
            if known == since || unmatched.contains(target) && !self.holds_all_of(*target) {
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

    /// Notes that the store has accepted these rows. The next renewal sends the others again.
    pub(crate) fn outages_stored(&mut self, rows: &[OutageRow]) {
        for OutageRow { fingerprint, since, until } in rows {
            self.stored.over.remove(fingerprint);
            match until {
                None => self.stored.stored.insert(*fingerprint, *since),
                Some(_) => self.stored.stored.remove(fingerprint),
            };
        }
        let mut differing = std::mem::take(&mut self.stored.differing);
        differing.retain(|target| self.stored.stored.get(target).copied() != self.unreachable_since(*target));
        self.stored.differing = differing;
    }
}
