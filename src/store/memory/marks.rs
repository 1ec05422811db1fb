//! The check of marks: what they name refuses as counted.

use super::order::{Marked, Sleeps};
use super::state::State;
use crate::admission::limits::{Families, LimitRecord};
use crate::admission::{Cause, Subject, has_token};
use crate::id::{LimitKey, PoolName};
use crate::store::Discrepancy;

impl State {
    /// Returns the marks that refuse what fits.
    pub(super) fn wrong_marks(&self) -> Vec<Discrepancy> {
        let wrong = self.lanes.order.marks().filter(|mark| !self.holds(mark));
        let wrong = wrong.map(|((queue, pools), mark)| format!("queue {queue}, pools {pools:?}: {mark:?}"));
        let strays = self.lanes.strays().map(|(lane, cause)| format!("lane {}: {cause:?}", lane.0));
        wrong.chain(strays).map(|mark| Discrepancy::Mark { mark }).collect()
    }

    fn holds(&self, ((queue, pools), mark): &Marked<'_>) -> bool {
        let (paused, pool) = (&self.rules.paused, |name: &PoolName| self.pools.rows.get(name));
        match mark {
            Sleeps::Closed(Some(full)) => {
                let needs = pools.iter().find(|(name, _)| name == full).map(|(_, slots)| i64::from(*slots));
                let open = pool(full).map(|pool| pool.open());
                needs.is_some_and(|needs| open.flatten().is_some_and(|open| needs > open))
            }
            Sleeps::Closed(None) => {
                let refuses = |(name, slots): &(PoolName, u32)| {
                    let total = pool(name).map(|pool| pool.spec.slots.total());
                    let is_too_small = total.is_none_or(|total| total.is_some_and(|total| *slots > total));
                    is_too_small || paused.contains(&Subject::Pool(name.clone()))
                };
                paused.contains(&Subject::Queue(queue.clone())) || pools.iter().any(refuses)
            }
            Sleeps::Asleep(Cause::Paused(subject), _) => paused.contains(subject),
            Sleeps::Asleep(Cause::Reached(key, needs), _) => {
                let limit = self.rule(key);
                limit.open().is_some_and(|open| open < i64::from(*needs))
            }
            Sleeps::Asleep(Cause::Spent(key), next) => {
                let Some(clock) = self.rules.clock() else { return false };
                let is_over = next.is_none_or(|next| next <= clock);
                self.rule(key)
                    .rate
                    .is_some_and(|rate| is_over || !has_token(rate, self.rules.rate(key), clock))
            }
        }
    }

    /// Returns a key with the definition that holds for it.
    fn rule(&self, key: &LimitKey) -> LimitRecord {
        let families: Vec<_> = self.rules.families.values().cloned().collect();
        let unknown = || LimitRecord::new(key.clone(), None, 0);
        let mut limit = self.limits.record(key).unwrap_or_else(unknown);
        Families::new(&families).apply(&mut limit);
        limit
    }
}
