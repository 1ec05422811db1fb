//! A look before an admission tick: whether the tick would do anything.

use super::admit::{Admission, AdmitRequest, needed_pools, tells_at};
use crate::admission::{Need, Planner};
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::contract::SurveyQuery;
use crate::time::Timestamp;

impl ReadTx<'_> {
    /// Returns what a tick would answer that promotes and grants nothing, or `None` if it may do either.
    ///
    /// It costs one call of the store, [`survey`](crate::store::contract::TaskTx::survey).
    pub(crate) fn idle_tick(&mut self, now: Timestamp, order: &AdmitRequest) -> Result<Option<Admission>> {
        let (serving, policy) = (order.serving(now), &order.policy);
        let query = SurveyQuery::new().pools(needed_pools(policy)).queues(order.serves.clone());
        let survey = self.raw().survey(&query)?;
        let tells_at = tells_at(&serving, &survey.serving);
        if survey.is_behind || survey.next_due.is_some_and(|due| due <= now) || tells_at.is_none() {
            return Ok(None);
        }
        let mut planner = Planner::new(order.budget, survey.lanes).policy(policy, now);
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
        let idle = Admission { refusals, missing, next_due, tells_at, ..Admission::default() };
        Ok(plan.admit.is_empty().then_some(idle))
    }
}
