//! What the tasks of many lanes take and return, summed by what it counts against, so that a store writes each
//! row once per call.

use std::collections::HashMap;
use std::hash::Hash;

use crate::admission::{LaneKey, Pair};
use crate::id::{LimitKey, PoolName};

/// Slots by pool, slots by pool and share, and what counts against limits. A sum may be 0.
#[derive(Default)]
pub(super) struct Sums {
    pub(super) pools: HashMap<PoolName, i64>,
    pub(super) shares: HashMap<Pair, i64>,
    pub(super) limits: HashMap<LimitKey, i64>,
}

impl Sums {
    /// Adds the slots of the lane's own pool, and the leases, that its tasks took. Both are negative if they
    /// were returned.
    pub(super) fn add(&mut self, lane: &LaneKey, slots: i64, leases: i64) {
        for (pool, more) in lane.held(slots).filter(|(_, more)| *more != 0) {
            add(&mut self.pools, pool, more);
            if let Some(share) = &lane.share {
                add(&mut self.shares, &(pool.clone(), share.clone()), more);
            }
        }
        for (limit, count) in lane.counted().filter(|_| leases != 0) {
            add(&mut self.limits, limit, leases.saturating_mul(count.into()));
        }
    }
}

fn add<K: Hash + Eq + Clone>(sums: &mut HashMap<K, i64>, key: &K, more: i64) {
    match sums.get_mut(key) {
        Some(sum) => *sum = sum.saturating_add(more),
        None => drop(sums.insert(key.clone(), more)),
    }
}
