//! The store's operations on tasks.

use super::SqliteBackend;
use crate::admission::{Candidate, LanePage, Mark, QueueRecord, Serving};
use crate::error::StoreResult;
use crate::id::{Holder, TaskKey};
use crate::lease::{LeaseRef, Renewal, TaskId};
use crate::store::contract::{
    CapUse, Change, GrantBatch, Granted, LanesBehind, Move, Overdue, Promote, Started, Survey, SurveyQuery,
    TaskSums, TaskTx, TaskWalk, Walked,
};
use crate::store::{Discrepancy, Inserted};
use crate::task::{PastAttempt, TaskInsert, TaskRecord, TaskState};
use crate::time::Timestamp;

impl TaskTx for SqliteBackend<'_> {
    fn insert_tasks_if_absent(&mut self, tasks: &[TaskInsert]) -> StoreResult<Vec<Inserted>> {
        self.write(|db| db.insert_tasks_if_absent(tasks))
    }

    fn insert_tasks_if_uncapped(&mut self, tasks: &[TaskInsert]) -> StoreResult<Option<Vec<Inserted>>> {
        self.write(|db| match db.has_caps()? {
            true => Ok(None),
            false => db.insert_tasks_if_absent(tasks).map(Some),
        })
    }

    fn hold_caps(&mut self, tasks: &[TaskInsert]) -> StoreResult<Vec<CapUse>> {
        self.write(|db| db.caps_of(tasks))
    }

    fn tasks(&mut self, keys: &[TaskKey]) -> StoreResult<Vec<Option<TaskRecord>>> {
        self.read(|db| db.tasks(keys))
    }

    fn tasks_by_id(&mut self, ids: &[TaskId]) -> StoreResult<Vec<Option<TaskRecord>>> {
        self.read(|db| db.tasks_by_id(ids))
    }

    fn survey(&mut self, query: &SurveyQuery) -> StoreResult<Survey> {
        match query.promote {
            Some(_) => self.write(|db| db.survey(query)),
            None => self.read(|db| db.survey(query)),
        }
    }

    fn lanes_behind(&mut self, page: &LanesBehind<'_>) -> StoreResult<Survey> {
        self.read(|db| db.lanes_behind(page))
    }

    fn put_marks(&mut self, marks: &[Mark]) -> StoreResult<()> {
        self.write(|db| db.put_marks(marks))
    }

    fn overdue(&mut self, promote: Promote) -> StoreResult<Overdue> {
        self.read(|db| db.overdue(promote))
    }

    fn candidates(&mut self, pages: &[LanePage]) -> StoreResult<Vec<Candidate>> {
        self.read(|db| db.candidates(pages))
    }

    fn grant_if_open(&mut self, batch: &GrantBatch<'_>) -> StoreResult<Granted> {
        self.write(|db| db.grant_if_open(batch))
    }

    fn start_if_queued(&mut self, leases: &[LeaseRef], now: Timestamp) -> StoreResult<Vec<Option<Started>>> {
        self.write(|db| db.start_if_queued(leases, now))
    }

    fn renew_if_leased(&mut self, leases: &[LeaseRef], expires_at: Timestamp) -> StoreResult<Vec<Renewal>> {
        self.write(|db| db.renew_if_leased(leases, expires_at))
    }

    fn note_if_leased(&mut self, notes: &[(LeaseRef, Timestamp, String)]) -> StoreResult<Vec<bool>> {
        self.write(|db| db.note_if_leased(notes))
    }

    fn cancel_if_leased(
        &mut self,
        leases: &[LeaseRef],
        deadline: Timestamp,
        message: &str,
    ) -> StoreResult<Vec<Option<Timestamp>>> {
        self.write(|db| db.cancel_if_leased(leases, deadline, message))
    }

    fn move_if(&mut self, moves: &[Move]) -> StoreResult<Vec<bool>> {
        self.write(|db| db.move_if(moves))
    }

    fn attempts(&mut self, tasks: &[TaskId]) -> StoreResult<Vec<Vec<PastAttempt>>> {
        self.read(|db| db.attempts(tasks))
    }

    fn change_if(&mut self, changes: &[Change]) -> StoreResult<Vec<bool>> {
        self.write(|db| db.change_if(changes))
    }

    fn delete_if(&mut self, tasks: &[(LeaseRef, TaskState)]) -> StoreResult<Vec<bool>> {
        self.write(|db| db.delete_if(tasks))
    }

    fn hold_expired(&mut self, now: Timestamp, limit: usize) -> StoreResult<Vec<TaskRecord>> {
        self.write(|db| db.hold_expired(now, limit))
    }

    fn put_serving(&mut self, serving: &Serving, forget: Timestamp) -> StoreResult<()> {
        self.write(|db| db.put_serving(serving, forget))
    }

    fn serving(&mut self) -> StoreResult<Vec<Serving>> {
        self.read(|db| db.serving())
    }

    fn queues(&mut self) -> StoreResult<Vec<QueueRecord>> {
        self.read(|db| db.queues())
    }

    fn walk_tasks(&mut self, walk: &TaskWalk<'_>) -> StoreResult<Walked> {
        self.read(|db| db.walk_tasks(walk))
    }

    fn count_tasks(&mut self, cap: usize) -> StoreResult<TaskSums> {
        self.read(|db| db.count_tasks(cap))
    }

    fn sizes(&mut self) -> StoreResult<Vec<(String, u64)>> {
        self.read(|db| db.sizes())
    }

    fn next_expiry(&mut self) -> StoreResult<Option<Timestamp>> {
        self.read(|db| db.next_expiry())
    }

    fn leases_of(
        &mut self,
        holder: &Holder,
        after: Option<TaskId>,
        limit: usize,
    ) -> StoreResult<Vec<TaskRecord>> {
        self.read(|db| db.leases_of(holder, after, limit))
    }

    fn forget_ended(
        &mut self,
        state: TaskState,
        before: Timestamp,
        sensors_before: Timestamp,
        limit: usize,
    ) -> StoreResult<usize> {
        self.write(|db| db.forget_ended(state, before, sensors_before, limit))
    }

    fn audit(&mut self) -> StoreResult<Vec<Discrepancy>> {
        self.read(|db| db.audit())
    }

    fn repair_counters(&mut self) -> StoreResult<Vec<Discrepancy>> {
        self.write(|db| db.repair_counters())
    }
}
