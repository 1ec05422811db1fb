//! The parts of a tick, each asked for alone.

use super::world::holder;
use crate::admission::Lane;
use crate::error::StoreResult;
use crate::id::{Holder, RequestId};
use crate::lease::{LeaseRef, TaskId};
use crate::store::contract::{Forget, GrantBatch, StoreTx, SurveyQuery};
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

pub(super) trait Steps {
    fn promote(&mut self, now: Timestamp, limit: usize) -> StoreResult<usize>;
    fn promote_due(&mut self, now: Timestamp) -> StoreResult<usize>;
    fn next_due(&mut self) -> StoreResult<Option<Timestamp>>;
    fn ready_lanes(&mut self) -> StoreResult<Vec<Lane>>;
    fn granted(&mut self, request: &RequestId) -> StoreResult<Option<Vec<LeaseRef>>>;
    fn grant_if_ready(
        &mut self,
        tasks: &[TaskId],
        holder: &Holder,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> StoreResult<Vec<TaskRecord>>;
    fn forget_requests(&mut self, forget: Forget) -> StoreResult<usize>;
    fn forget_all_ended(
        &mut self,
        before: Timestamp,
        sensors_before: Timestamp,
        limit: usize,
    ) -> StoreResult<usize>;
}

impl Steps for dyn StoreTx + '_ {
    fn promote(&mut self, now: Timestamp, limit: usize) -> StoreResult<usize> {
        Ok(self.survey(&SurveyQuery::new().promote(now, limit))?.promoted)
    }

    /// However many there are.
    fn promote_due(&mut self, now: Timestamp) -> StoreResult<usize> {
        self.promote(now, usize::MAX)
    }

    fn next_due(&mut self) -> StoreResult<Option<Timestamp>> {
        Ok(self.survey(&SurveyQuery::new())?.next_due)
    }

    fn ready_lanes(&mut self) -> StoreResult<Vec<Lane>> {
        Ok(self.survey(&SurveyQuery::new())?.lanes)
    }

    fn granted(&mut self, request: &RequestId) -> StoreResult<Option<Vec<LeaseRef>>> {
        Ok(self.survey(&SurveyQuery::new().request(request.clone()))?.granted)
    }

    fn grant_if_ready(
        &mut self,
        tasks: &[TaskId],
        holder: &Holder,
        now: Timestamp,
        expires_at: Timestamp,
    ) -> StoreResult<Vec<TaskRecord>> {
        Ok(self.grant_if_open(&GrantBatch::new(tasks, holder, now, expires_at))?.tasks)
    }

    fn forget_requests(&mut self, forget: Forget) -> StoreResult<usize> {
        let holder = holder("h");
        Ok(self.grant_if_open(&nothing(&holder).forget(forget))?.forgotten)
    }

    /// However they ended.
    fn forget_all_ended(
        &mut self,
        before: Timestamp,
        sensors_before: Timestamp,
        limit: usize,
    ) -> StoreResult<usize> {
        let mut gone = 0;
        for state in TaskState::ALL.into_iter().filter(|state| state.is_end()) {
            gone += self.forget_ended(state, before, sensors_before, limit - gone)?;
        }
        Ok(gone)
    }
}

/// A batch of no tasks.
pub(super) fn nothing(holder: &Holder) -> GrantBatch<'_> {
    GrantBatch::new(&[], holder, Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH)
}
