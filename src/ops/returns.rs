//! What leaving tasks give back.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::id::{LimitKey, PoolName};
use crate::store::Tx;
use crate::task::TaskRecord;

/// Sums what tasks give back, to return it in one write per table.
#[derive(Debug, Default)]
pub(super) struct Returns {
    slots: BTreeMap<PoolName, u64>,
    limits: BTreeMap<LimitKey, u64>,
}

impl Returns {
    /// The task, as it was before its move, keeps only `kept` of its slots and does not hold a lease any
    /// more.
    pub(super) fn add(&mut self, was: &TaskRecord, kept: u32) {
        let back = was.held_slots.saturating_sub(kept);
        if back > 0 {
            add(&mut self.slots, &was.lane.pool, u64::from(back));
        }
        if was.state.is_leased() {
            for key in &was.lane.limits {
                add(&mut self.limits, key, 1);
            }
        }
    }

    pub(super) fn commit(self, tx: &mut Tx<'_>) -> Result<()> {
        let slots: Vec<_> = self.slots.into_iter().collect();
        let limits: Vec<_> = self.limits.into_iter().collect();
        if !slots.is_empty() {
            tx.raw().give_slots_back(&slots)?;
        }
        if !limits.is_empty() {
            tx.raw().give_limits_back(&limits)?;
        }
        Ok(())
    }
}

/// Adds to the sum of this name; most have one already.
fn add<K: Ord + Clone>(sums: &mut BTreeMap<K, u64>, name: &K, more: u64) {
    match sums.get_mut(name) {
        Some(sum) => *sum += more,
        None => drop(sums.insert(name.clone(), more)),
    }
}
