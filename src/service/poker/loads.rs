//! What the pokes of each shard cost.

use std::collections::BTreeMap;
use std::time::Duration;

use super::worker::Poker;
use crate::sensor::Loads;
use crate::sensor::plan::{Answer, GroupRef};
use crate::time::Timestamp;

/// What a poke costs besides the time of its call, in microseconds: it is planned, queued and answered.
const POKE: u64 = 100;

/// Microseconds by shard, or by shard and kind for what was borrowed.
pub(super) type Costs = BTreeMap<(u32, Option<u32>), u64>;

impl Poker {
    /// Adds what these pokes cost. The answers of a call follow one another, and only the first has its time.
    pub(super) fn count_costs(&mut self, answers: &[Answer]) {
        let mut rest = answers;
        while let Some((first, after)) = rest.split_first() {
            let others = match first.took {
                Some(_) => after.iter().take_while(|answer| answer.took.is_none()).count(),
                None => 0,
            };
            let each = first.took.unwrap_or_default() / u32::try_from(others + 1).unwrap_or(u32::MAX);
            let (call, next) = rest.split_at(others + 1);
            call.iter().for_each(|answer| self.count_cost(answer.group, each));
            rest = next;
        }
    }

    fn count_cost(&mut self, group: GroupRef, took: Duration) {
        let Some(of) = self.plan.lease_of(group, self.rules()) else { return };
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let cost = self.costs.entry(of).or_default();
        *cost = cost.saturating_add(took).saturating_add(POKE);
    }

    /// Returns true if a renewal at this instant follows the last measurement by long enough to measure.
    pub(super) fn measures(&self, now: Timestamp) -> bool {
        self.measured_since.is_none_or(|since| now >= since + self.options.lease / 4)
    }

    /// Returns what each shard that it held since the last measurement cost, in microseconds of a second.
    pub(super) fn loads(&self, now: Timestamp) -> Loads {
        let Some(since) = self.measured_since.filter(|_| self.measures(now)) else { return Loads::new() };
        let micros =
            u64::try_from(now.saturating_duration_since(since).as_micros()).unwrap_or(u64::MAX).max(1);
        let rate =
            |cost: u64| u64::try_from(u128::from(cost) * 1_000_000 / u128::from(micros)).unwrap_or(u64::MAX);
        let whole = self.plan.held().iter().filter(|(_, share)| !share.is_borrowed());
        let idle = whole.map(|(shard, _)| ((*shard, None), 0));
        let costs = self.costs.iter().filter_map(|((shard, kind), cost)| {
            let kind = kind.map(|kind| self.kinds.name(kind).cloned().ok_or(())).transpose().ok()?;
            Some(((*shard, kind), rate(*cost).min(i64::MAX.unsigned_abs())))
        });
        idle.chain(costs).collect()
    }
}
