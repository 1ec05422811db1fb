//! What leaving tasks give back.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::id::{LimitKey, PoolName};
use crate::store::PoolTx;
use crate::task::TaskRecord;

/// Sums what tasks give back, to return it in one write per table.
#[derive(Debug, Default)]
pub(super) struct Returns {
    slots: BTreeMap<PoolName, u64>,
    limits: BTreeMap<LimitKey, u64>,
}

impl Returns {
    /// The task, as it was before its move, keeps only `kept` of its slots and does not hold a lease any more.
    pub(super) fn add(&mut self, was: &TaskRecord, kept: u32) {
        let back = was.held_slots.saturating_sub(kept);
        if back > 0 {
            *self.slots.entry(was.lane.pool.clone()).or_default() += u64::from(back);
        }
        if was.state.is_leased() {
            for key in &was.lane.limits {
                *self.limits.entry(key.clone()).or_default() += 1;
            }
        }
    }

    pub(super) fn commit(self, tx: &mut (impl PoolTx + ?Sized)) -> Result<()> {
        let slots: Vec<_> = self.slots.into_iter().collect();
        let limits: Vec<_> = self.limits.into_iter().collect();
        if !slots.is_empty() {
            tx.give_slots_back(&slots)?;
        }
        if !limits.is_empty() {
            tx.give_limits_back(&limits)?;
        }
        Ok(())
    }
}
