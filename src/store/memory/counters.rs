//! The slots and leases that the tasks of each lane take and return.

use super::by_number::ByNumber;
use super::pools::LimitRow;
use super::state::Write;
use super::undo::Transaction;
use crate::admission::LaneId;
use crate::id::{LimitKey, PoolName};
use crate::pool::PoolRecord;
use crate::store::sums::Sums;

/// A change of what tasks hold: slots of their pool, and leases, which count against their limit keys.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) slots: i64,
    pub(super) leases: i64,
}

/// Changes, summed by lane, because the tasks of a lane have the same needs.
#[derive(Debug, Default)]
pub(super) struct Uses(ByNumber<LaneId, Use>);

impl Uses {
    pub(super) fn add(&mut self, lane: LaneId, change: Use) {
        if change == Use::default() {
            return;
        }
        let sum = self.0.entry(lane).or_default();
        sum.slots = sum.slots.saturating_add(change.slots);
        sum.leases = sum.leases.saturating_add(change.leases);
    }
}

impl Transaction<'_> {
    /// Applies the changes. Returns true if every pool and limit is known and none was raised above its size.
    pub(super) fn count(&mut self, uses: Uses) -> bool {
        let mut sums = Sums::default();
        for (lane, change) in uses.0 {
            if let Some(key) = self.state.lanes.key(lane) {
                sums.add(key, change.slots, change.leases);
            }
        }
        let mut had_room = true;
        for (pool, more) in sums.pools.into_iter().filter(|(_, more)| *more != 0) {
            had_room &= self.count_slots(&pool, more);
        }
        for (pair, more) in sums.shares.into_iter().filter(|(_, more)| *more != 0) {
            self.change_share(pair, |row, grants| row.used.hold(more, grants));
        }
        for (limit, more) in sums.limits {
            had_room &= self.count_leases(&limit, more);
        }
        had_room
    }

    fn count_slots(&mut self, name: &PoolName, more: i64) -> bool {
        let Some(pool) = self.state.pools.rows.get(name) else { return false };
        let used = pool.used.saturating_add(more);
        let had_room = pool.spec.slots.total().is_none_or(|total| used <= i64::from(total));
        let pool = PoolRecord::new(pool.spec.clone(), used);
        self.write(Write::Pool(name.clone(), Some(Box::new(pool))));
        had_room
    }

    fn count_leases(&mut self, key: &LimitKey, more: i64) -> bool {
        let Some(row) = self.state.limits.row(key) else { return false };
        let used = row.used.saturating_add(more);
        self.write(Write::Limit(key.clone(), Some(Box::new(LimitRow { used, ..row }))));
        row.max.is_none_or(|max| used <= i64::from(max))
    }
}
