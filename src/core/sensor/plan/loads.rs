//! The cost of each shard's pokes.
//!
//! The cost is computed from what a poke of each target costs and how often the target is poked, not from
//! recent activity. So a target that is poked every ten minutes always counts the same.

use std::time::Duration;

use super::{GroupRef, Plan};
use crate::id::SensorKind;
use crate::sensor::{Load, Loads, Scope};
use crate::time::Timestamp;

/// The cost of a poke besides its call, in microseconds: planning, queueing and handling the outcome.
const POKE: u32 = 100;

impl Plan {
    /// Records how long a poke of a group took, as a moving average in which a new poke counts a quarter.
    pub(crate) fn note_cost(&mut self, group: GroupRef, took: Duration) {
        let took = u32::try_from(took.as_micros()).unwrap_or(u32::MAX).saturating_add(POKE);
        if let Some(found) = self.groups.get_mut(group) {
            found.cost = if found.cost == 0 { took } else { found.cost - found.cost / 4 + took / 4 };
        }
    }

    /// Returns the load of each shard that the worker holds.
    pub(crate) fn loads(&self, now: Timestamp, serves: impl Fn(&SensorKind) -> bool) -> Loads {
        let own = self.held.iter().filter(|(_, scope)| matches!(scope, Scope::Except(_)));
        let mut loads: Loads = own.map(|(shard, _)| (*shard, Load::default())).collect();
        for (_, group) in
            self.groups.slab.iter().filter(|(_, group)| group.members > 0 && serves(&group.kind))
        {
            let Some(load) = loads.get_mut(&self.rules.shard(group.fingerprint)) else { continue };
            let interval =
                u64::try_from(self.groups.interval(group, now, self.rules).as_micros()).unwrap_or(u64::MAX);
            // A target is not poked again before its poke has returned.
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
