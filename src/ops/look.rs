//! A look before an admission tick: whether the tick would do anything.

use super::admit::{Admission, needed_pools};
use crate::admission::{Need, Planner, Policy};
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::contract::SurveyQuery;
use crate::time::Timestamp;

impl ReadTx<'_> {
    /// Returns what a tick would answer that promotes and grants nothing, or `None` if it may do either.
    ///
    /// It costs one call of the store, [`survey`](crate::store::contract::TaskTx::survey).
    pub(crate) fn idle_tick(
        &mut self,
        now: Timestamp,
        budget: usize,
        policy: &Policy,
    ) -> Result<Option<Admission>> {
        let survey = self.raw().survey(&SurveyQuery::new().pools(needed_pools(policy)))?;
        if survey.is_behind || survey.next_due.is_some_and(|due| due <= now) {
            return Ok(None);
        }
        let mut planner = Planner::new(budget, survey.lanes).policy(policy, now);
        loop {
            match planner.need() {
                Need::Capacity { .. } | Need::AllPools { .. } => {
                    planner.feed_capacity(&survey.pools, &survey.limits);
                }
                Need::Candidates(_) => return Ok(None),
                Need::Nothing => break,
            }
        }
        let plan = planner.finish();
        let (refusals, missing, next_due) = (plan.refusals, plan.missing, survey.next_due);
        let idle = Admission { refusals, missing, next_due, ..Admission::default() };
        Ok(plan.admit.is_empty().then_some(idle))
    }
}
