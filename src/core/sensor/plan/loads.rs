//! What the pokes of each shard cost.
//!
//! It is computed from what a poke of each target cost and how often it is poked, not from what happened lately. So a
//! target that is poked every ten minutes counts the same all the time.

use std::time::Duration;

use super::{GroupRef, Plan, Rules};
use crate::sensor::{Load, Loads, Scope};
use crate::time::Timestamp;

/// What a poke costs besides the time of its call, in microseconds: it is planned, queued and answered.
const POKE: u32 = 100;

impl Plan {
    /// Notes how long a poke of a group took. One that takes unusually long counts a quarter.
    pub(crate) fn note_cost(&mut self, group: GroupRef, took: Duration) {
        let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX).saturating_add(POKE);
        if let Some(found) = self.groups.get_mut(group) {
            found.cost = if found.cost == 0 { took } else { found.cost - found.cost / 4 + took / 4 };
        }
    }

    /// Returns the load of each shard that it holds.
    pub(crate) fn loads(&self, now: Timestamp, rules: Rules, serves: impl Fn(u32) -> bool) -> Loads {
        let own = self.held.iter().filter(|(_, share)| matches!(share.scope, Scope::Except(_)));
        let mut loads: Loads = own.map(|(shard, _)| (*shard, Load::default())).collect();
        for (_, group) in self.groups.slab.iter().filter(|(_, group)| group.members > 0 && serves(group.kind))
        {
            let Some(load) = loads.get_mut(&rules.shard(group.fingerprint)) else { continue };
            let interval =
                u64::try_from(self.groups.interval(group, now, rules).as_micros()).unwrap_or(u64::MAX);
            // It is not poked again before its poke has returned.
            let pokes = 1_000_000_000_000 / interval.max(u64::from(group.cost)).max(1);
            if group.cost == 0 {
                load.pokes.1 += pokes;
            } else {
                load.pokes.0 += pokes;
                load.known += u64::from(group.cost) * pokes / 1_000_000;
            }
        }
        loads
    }
}
