//! Whether pools and limits were ever overdrawn.

use std::collections::{BTreeMap, HashMap};

use super::{Held, History, Instant, LeaseId, Rule, Violation};

/// A size that a pool may have had.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    pub(super) invoked: Instant,
    pub(super) returned: Option<Instant>,
    pub(super) slots: Option<u32>,
}

impl History {
    pub(super) fn check_capacity(&self, all: &BTreeMap<LeaseId, Held<'_>>) -> Result<(), Violation> {
        let mut by_pool: HashMap<&str, Vec<(&Held<'_>, u32)>> = HashMap::new();
        for held in all.values().filter(|held| held.from < held.until()) {
            let is_limited = |name: &str| name == held.grant.pool || self.sizes.contains_key(name);
            for (name, count) in held.grant.takes().filter(|(name, count)| *count > 0 && is_limited(name)) {
                by_pool.entry(name).or_default().push((held, count));
            }
        }
        for (pool, mut leases) in by_pool {
            leases.sort_by_key(|(held, _)| held.from);
            let mut together: Vec<(&Held<'_>, u32)> = Vec::new();
            for (held, count) in leases {
                let at = held.from;
                together.retain(|(other, _)| other.until() > at);
                together.push((held, count));
                let used: u64 = together.iter().map(|(_, count)| u64::from(*count)).sum();
                let began = |held: &Held<'_>| match self.keeping.contains(pool) {
                    true => first_asked(all, held),
                    false => held.invoked,
                };
                let since = together.iter().map(|(held, _)| began(held)).min().unwrap_or(at);
                if let Some(most) = self.most(pool, since, at)
                    && used > u64::from(most)
                {
                    let ids: Vec<LeaseId> = together.iter().map(|(held, _)| held.id).collect();
                    let what = format!("{pool} had {used} of at most {most} taken, by {ids:?}");
                    return Err(Violation { rule: Rule::Capacity, at, what });
                }
            }
        }
        Ok(())
    }

    /// Returns the most slots that a pool may have had at some instant in `since..=until`; `None` if it may
    /// have been unlimited.
    fn most(&self, pool: &str, since: Instant, until: Instant) -> Option<u32> {
        let sizes = self.sizes.get(pool).map_or(&[][..], Vec::as_slice);
        let overwritten = |size: &Size| {
            let later = |other: &Size| {
                size.returned.is_some_and(|returned| other.invoked >= returned)
                    && other.returned.is_some_and(|returned| returned <= since)
                    && (other.invoked, other.returned) > (size.invoked, size.returned)
            };
            sizes.iter().any(later)
        };
        let possible = sizes.iter().filter(|size| size.invoked <= until && !overwritten(size));
        possible.map(|size| size.slots).try_fold(0, |most, slots| Some(most.max(slots?)))
    }
}

/// Returns when the first of a task's leases up to this one may have been asked for. Any of them may have left its slots
/// to the next. Before one that is not known, that may have been at any time.
fn first_asked(leases: &BTreeMap<LeaseId, Held<'_>>, held: &Held<'_>) -> Instant {
    let earlier = (1..held.id.epoch).rev().map(|epoch| leases.get(&LeaseId { epoch, ..held.id }));
    earlier.map(|known| known.map_or(0, |known| known.invoked)).min().unwrap_or(held.invoked)
}
