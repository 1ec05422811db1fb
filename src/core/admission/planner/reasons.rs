//! Why a lane's next task is not admitted.

use super::{Planner, Rule};
use crate::admission::Reason;

impl Planner {
    /// Returns why the remaining tasks of a lane were not admitted, given the capacity left after the tick.
    pub(super) fn reason(&self, at: usize) -> Reason {
        let work = &self.lanes[at];
        let missing = || match &self.rule {
            Rule::Window(window) => {
                let keys = work.keys().map(|limit| &self.limits[limit].key);
                let workflow = keys.into_iter().find(|key| window.met.contains(*key))?;
                Some(Reason::WorkflowMissing { workflow: workflow.clone() })
            }
            Rule::Backfill | Rule::Reserve { .. } => None,
        };
        let stopped = || match &self.rule {
            Rule::Window(window) if self.admitted.len() < self.budget && !work.lane.keeps_slots => {
                Reason::OutsideWindow { size: window.size() }
            }
            // It read fewer tasks than the lane's counter says.
            _ if self.admitted.len() < self.budget => Reason::Busy,
            _ => Reason::BudgetSpent { budget: self.budget },
        };
        self.refusal(at).or_else(missing).or_else(|| self.reservation(at)).unwrap_or_else(stopped)
    }

    /// Returns the reason of a lane's next task if the task fits but is skipped, because open slots of one of
    /// its pools are reserved for others.
    pub(super) fn reservation(&self, at: usize) -> Option<Reason> {
        self.lanes[at].pools.iter().find_map(|(pool, needs)| self.pools[*pool].reservation(*needs))
    }

    /// Returns why the next task of this lane cannot be admitted; `None` if it can be.
    pub(super) fn refusal(&self, at: usize) -> Option<Reason> {
        self.obstacles(at).next()
    }

    /// Returns every reason that keeps the next task of this lane from starting. The first is the reason of
    /// its refusal.
    pub(crate) fn obstacles(&self, at: usize) -> impl Iterator<Item = Reason> {
        let work = &self.lanes[at];
        let pools = || work.pools.iter().map(|(pool, slots)| (&self.pools[*pool], *slots));
        let limits = || work.limits.iter().map(|(limit, count)| (&self.limits[*limit], *count));
        let paused = work.paused.iter().map(|subject| Reason::Paused { subject: subject.clone() });
        let queue = &work.lane.key.queue;
        let unserved = work.unserved.map(|waiting| Reason::Unserved { queue: queue.clone(), waiting });
        // If a pool is too small, its open slots add no information.
        let large = pools().filter(|(pool, slots)| pool.too_small(*slots).is_none());
        paused
            .chain(unserved)
            .chain(pools().filter_map(|(pool, _)| pool.unknown_to()))
            .chain(pools().filter_map(|(pool, slots)| pool.too_small(slots)))
            .chain(large.filter_map(|(pool, slots)| pool.full(slots)))
            .chain(limits().filter_map(|(limit, count)| limit.refusal(count)))
            .chain(limits().filter_map(|(limit, _)| limit.spent()))
    }
}
