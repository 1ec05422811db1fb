//! Checks before an admission tick whether it would do anything.

use super::admit::{Admission, AdmitRequest, announces_at, apply_families, feed, full_pools, needed_pools};
use crate::admission::{Need, Planner, Policy};
use crate::error::Result;
use crate::store::ReadTx;
use crate::store::contract::{LanesBehind, SurveyQuery};
use crate::time::Timestamp;

impl ReadTx<'_> {
    /// Returns the result of a tick that would promote and grant nothing, or `None` if the tick may do
    /// either.
    ///
    /// It makes one store call, [`survey`](crate::store::contract::TaskTx::survey), and a few more if there
    /// are more lanes than the request names.
    pub(crate) fn idle_tick(&mut self, now: Timestamp, request: &AdmitRequest) -> Result<Option<Admission>> {
        let (serving, policy) = (request.serving(now), &request.policy);
        let mut query = SurveyQuery::new().pools(needed_pools(policy)).queues(request.serves.clone());
        if *policy == Policy::Backfill {
            query = query.first(request.named, now, request.marks);
        }
        let mut survey = self.raw().survey(&query)?;
        apply_families(&mut survey, policy)?;
        let announces_at = announces_at(&serving, &survey.serving);
        if survey.is_behind || survey.next_due.is_some_and(|due| due <= now) || announces_at.is_none() {
            return Ok(None);
        }
        let planner = Planner::new(request.budget, std::mem::take(&mut survey.lanes)).policy(policy, now);
        let mut planner =
            planner.paused(&survey.paused).naming(request.named, survey.unread, survey.unread_shares.clone());
        loop {
            match planner.need() {
                Need::Capacity => feed(&mut planner, &survey, now),
                Need::Candidates(_) => return Ok(None),
                Need::Lanes { of, .. } => {
                    // A lane that is awake either fits, or needs a tick to mark what refuses it.
                    let page = LanesBehind::of(&of, 1, request.serves.as_ref());
                    if !self.raw().lanes_behind(&page)?.lanes.is_empty() {
                        return Ok(None);
                    }
                    planner.feed_lanes(of, Vec::new(), None, None);
                }
                Need::Nothing => break,
            }
        }
        let plan = planner.finish();
        let next_due = survey.next_due.into_iter().chain(plan.next_token).chain(survey.next_token).min();
        let (refusals, more_lanes, missing) = (plan.refusals, plan.more_lanes, plan.missing);
        let full = full_pools(&survey, request);
        let idle =
            Admission { refusals, more_lanes, missing, next_due, announces_at, full, ..Admission::default() };
        Ok(plan.admit.is_empty().then_some(idle))
    }
}
