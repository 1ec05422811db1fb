//! Which of a holder's leases to renew, and when.
//!
//! | what happened | when the store is asked next |
//! |---|---|
//! | the lease was granted, or a renewal was confirmed | a third of its length later |
//! | another lease of the set is due | in the same call, if a sixth of the length has passed |
//! | the store failed, or the lease was busy | after a short pause, which doubles; before the lease expires |
//! | the lease was lost | never again |
//! | its task was cancelled | as before, and at the deadline, to which the lease is cut |
//! | the clock was set back to before the last confirmation | at once |
//! | someone may have cancelled one of the tasks | at once, for all leases; again after a 64th of the length at the soonest |
//! | the same, after the grant and before the lease was in the set | at once |
//!
//! Because of the second rule, two calls are at least a sixth of the length apart while the store confirms
//! and no one cancels. This holds for any number of leases, whenever they were granted.
//!
//! A lease that expires after a failed attempt to renew it is *in doubt*: its task may be given to another
//! holder at any time. Its holder is notified once, at the expiry. The keeper still tries to renew the lease,
//! because the task may not have been given to another holder. A lease that expired before the first attempt
//! is not yet in doubt. In that case the keeper itself was delayed, and the store knows better than the
//! clock.

use std::collections::BTreeMap;
use std::iter::repeat;
use std::time::Duration;

use super::{LeaseRef, Renewal};
use crate::time::Timestamp;

/// What the store's results mean for the holders.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Notices {
    /// The lost leases, which leave the set.
    pub(crate) lost: Vec<LeaseRef>,
    /// Leases whose tasks were cancelled, with their deadlines, each time that the store reports it.
    pub(crate) cancelled: Vec<(LeaseRef, Timestamp)>,
}

/// A set of leases of one length.
#[derive(Debug)]
pub(crate) struct LeaseSet {
    length: Duration,
    leases: BTreeMap<LeaseRef, Held>,
    /// When the store was, or will be, asked about all leases because of a cancel.
    all_asked_at: Option<Timestamp>,
}

/// What is known about one lease.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// The first instant at which it is expired, by the last confirmation.
    expires_at: Timestamp,
    /// When to ask the store next.
    ask_at: Timestamp,
    /// The number of failed attempts to renew it since the last confirmation.
    failures: u32,
    is_in_doubt: bool,
}

impl LeaseSet {
    /// Creates an empty set of leases of this length.
    pub(crate) fn new(length: Duration) -> Self {
        Self { length, leases: BTreeMap::new(), all_asked_at: None }
    }

    /// Adds a lease that is valid until this instant. Returns when to ask the store.
    pub(crate) fn insert(&mut self, lease: LeaseRef, expires_at: Timestamp) -> Timestamp {
        let held = self.confirmed(expires_at);
        self.leases.insert(lease, held);
        held.ask_at
    }

    /// Schedules the renewal of this lease at `at`, if that is sooner than planned. Returns when it is due.
    pub(crate) fn ask_at(&mut self, lease: LeaseRef, at: Timestamp) -> Timestamp {
        self.leases.get_mut(&lease).map_or(at, |held| {
            held.ask_at = held.ask_at.min(at);
            held.ask_at
        })
    }

    pub(crate) fn length(&self) -> Duration {
        self.length
    }

    pub(crate) fn remove(&mut self, lease: LeaseRef) {
        self.leases.remove(&lease);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = LeaseRef> {
        self.leases.keys().copied()
    }

    fn confirmed(&self, expires_at: Timestamp) -> Held {
        let ask_at = expires_at - (self.length - self.length / 3);
        Held { expires_at, ask_at, failures: 0, is_in_doubt: false }
    }

    /// Schedules an early renewal of all leases, because someone may have cancelled one of the tasks. Several
    /// cancels in a row share one call. Leases for which the store failed are retried soon anyway.
    pub(crate) fn ask_all(&mut self, now: Timestamp) {
        let pause = self.first_pause();
        let next = |last: Timestamp| if last > now { last.min(now + pause) } else { now.max(last + pause) };
        let at = self.all_asked_at.map_or(now, next);
        self.all_asked_at = Some(at);
        for held in self.leases.values_mut().filter(|held| held.failures == 0) {
            held.ask_at = held.ask_at.min(at);
        }
    }

    /// Returns the leases to renew now, in one call.
    pub(crate) fn due(&self, now: Timestamp) -> Vec<LeaseRef> {
        // A lease with more than its length left was confirmed by a clock that has since been set back.
        let is_due = |held: &Held| held.ask_at <= now || now + self.length < held.expires_at;
        if !self.leases.values().any(is_due) {
            return Vec::new();
        }
        let soon = now + self.length / 6;
        let goes_along = |held: &Held| is_due(held) || held.failures == 0 && held.ask_at <= soon;
        self.leases.iter().filter(|(_, held)| goes_along(held)).map(|(lease, _)| *lease).collect()
    }

    /// Records the store's results at `now`.
    pub(crate) fn answered(&mut self, now: Timestamp, asked: &[LeaseRef], renewals: &[Renewal]) -> Notices {
        let renewed = self.confirmed(now + self.length);
        let mut notices = Notices::default();
        // If a store returns too few results, the remaining leases count as not renewed.
        for (lease, renewal) in asked.iter().zip(renewals.iter().copied().chain(repeat(Renewal::Busy))) {
            match renewal {
                Renewal::Renewed => {
                    if let Some(held) = self.leases.get_mut(lease) {
                        *held = renewed;
                    }
                }
                Renewal::Busy => self.failed(now, std::slice::from_ref(lease)),
                Renewal::Lost => notices.lost.extend(self.leases.remove(lease).map(|_| *lease)),
                Renewal::Cancelled(deadline) => {
                    let Some(held) = self.leases.get_mut(lease) else { continue };
                    notices.cancelled.push((*lease, deadline));
                    held.expires_at = renewed.expires_at.min(deadline);
                    if now < deadline {
                        let ask_at = renewed.ask_at.min(deadline);
                        *held = Held { expires_at: held.expires_at, ask_at, ..renewed };
                    } else {
                        // Upkeep may end it at any time, so its holder must be notified. The keeper keeps
                        // asking about the lease until its end is known.
                        self.failed(now, std::slice::from_ref(lease));
                    }
                }
            }
        }
        notices
    }

    /// Records that a call to the store at `now` failed.
    pub(crate) fn failed(&mut self, now: Timestamp, asked: &[LeaseRef]) {
        for lease in asked {
            let Some(mut held) = self.leases.get(lease).copied() else { continue };
            held.failures = held.failures.saturating_add(1);
            held.ask_at = self.retry_at(now, &held);
            self.leases.insert(*lease, held);
        }
    }

    /// Returns when to ask again. Before the expiry, the pause is at most half of the remaining time, so that
    /// a store that recovers at the last moment is still asked in time.
    fn retry_at(&self, now: Timestamp, held: &Held) -> Timestamp {
        let first = self.first_pause();
        let doubled = first.saturating_mul(1 << (held.failures - 1).min(20));
        let pause = doubled.min(self.length / 8).max(first);
        let left = held.expires_at.saturating_duration_since(now);
        if left.is_zero() {
            return now + pause;
        }
        // The loss must be reported at the expiry, so do not skip that instant.
        (now + pause.min((left / 2).max(first))).min(held.expires_at)
    }

    fn first_pause(&self) -> Duration {
        (self.length / 64).clamp(Duration::from_millis(1), Duration::from_secs(1))
    }

    /// Returns the leases that fell into doubt since the last call.
    pub(crate) fn fallen_into_doubt(&mut self, now: Timestamp) -> Vec<LeaseRef> {
        let mut fallen = Vec::new();
        for (lease, held) in &mut self.leases {
            if held.failures > 0 && held.expires_at <= now && !held.is_in_doubt {
                held.is_in_doubt = true;
                fallen.push(*lease);
            }
        }
        fallen
    }

    /// Returns until when the lease is valid, by the last confirmation.
    pub(crate) fn expires_at(&self, lease: LeaseRef) -> Option<Timestamp> {
        self.leases.get(&lease).map(|held| held.expires_at)
    }

    /// Returns when to ask the store next, or to notify a holder that its lease expired.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.leases.values().map(|held| held.ask_at).min()
    }
}

#[cfg(test)]
mod tests;
