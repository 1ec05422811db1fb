//! Checks marks against the state.

use super::order::Marked;
use super::state::State;
use crate::admission::Subject;
use crate::admission::limits::{Families, LimitRecord, RateUse};
use crate::id::{LimitKey, PoolName};
use crate::pool::PoolRecord;
use crate::store::Discrepancy;
use crate::store::marks::{Counted, check};
use crate::time::Timestamp;

impl State {
    /// Returns the marks that refuse tasks that fit.
    pub(super) fn wrong_marks(&self) -> Vec<Discrepancy> {
        let wrong =
            self.lanes.order.marks().filter_map(|(class, mark): Marked<'_>| check(self, class, &mark));
        let strays = self.lanes.strays().map(|(lane, cause)| format!("lane {}: {cause:?}", lane.0));
        wrong.chain(strays.map(|mark| Discrepancy::Mark { mark })).collect()
    }
}

impl Counted for State {
    fn pool(&self, name: &PoolName) -> Option<&PoolRecord> {
        self.pools.rows.get(name).map(|pool| &**pool)
    }

    fn is_paused(&self, subject: &Subject) -> bool {
        self.rules.paused.contains(subject)
    }

    fn rule(&self, key: &LimitKey) -> LimitRecord {
        let unknown = || LimitRecord::new(key.clone(), None, 0);
        let mut limit = self.limits.record(key).unwrap_or_else(unknown);
        Families::new(self.rules.families.values()).apply(&mut limit);
        limit
    }

    fn rate(&self, key: &LimitKey) -> Option<&RateUse> {
        self.rules.rate(key)
    }

    fn clock(&self) -> Option<Timestamp> {
        self.rules.clock()
    }
}
