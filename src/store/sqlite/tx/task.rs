//! The store's operations on tasks.

use chrono::{DateTime, Utc};

use super::SqliteTx;
use crate::admission::{Candidate, Lane, LanePage};
use crate::error::StoreResult;
use crate::id::{RequestId, TaskKey};
use crate::lease::{LeaseRef, TaskNo};
use crate::store::{Discrepancy, GrantBatch, Inserted, Move, Moved, TaskTx};
use crate::task::{TaskInsert, TaskRecord};

impl TaskTx for SqliteTx<'_> {
    fn insert_tasks_if_absent(&mut self, tasks: &[TaskInsert]) -> StoreResult<Vec<Inserted>> {
        self.write(|db| db.insert_tasks_if_absent(tasks))
    }

    fn tasks(&mut self, keys: &[TaskKey]) -> StoreResult<Vec<Option<TaskRecord>>> {
        self.read(|db| db.tasks(keys))
    }

    fn tasks_by_no(&mut self, nos: &[TaskNo]) -> StoreResult<Vec<Option<TaskRecord>>> {
        self.read(|db| db.tasks_by_no(nos))
    }

    fn promote_due(&mut self, now: DateTime<Utc>, limit: usize) -> StoreResult<usize> {
        self.write(|db| db.promote_due(now, limit))
    }

    fn next_due(&mut self) -> StoreResult<Option<DateTime<Utc>>> {
        self.read(|db| db.next_due())
    }

    fn ready_lanes(&mut self) -> StoreResult<Vec<Lane>> {
        self.read(|db| db.ready_lanes())
    }

    fn candidates(&mut self, pages: &[LanePage]) -> StoreResult<Vec<Candidate>> {
        self.read(|db| db.candidates(pages))
    }

    fn grant_if_ready(&mut self, batch: &GrantBatch<'_>) -> StoreResult<Vec<TaskRecord>> {
        self.write(|db| db.grant_if_ready(batch))
    }

    fn start_if_queued(&mut self, leases: &[LeaseRef], now: DateTime<Utc>) -> StoreResult<Vec<Moved>> {
        self.write(|db| db.start_if_queued(leases, now))
    }

    fn renew_if_leased(&mut self, leases: &[LeaseRef], expires_at: DateTime<Utc>) -> StoreResult<Vec<Moved>> {
        self.write(|db| db.renew_if_leased(leases, expires_at))
    }

    fn move_if(&mut self, moves: &[Move]) -> StoreResult<Vec<Moved>> {
        self.write(|db| db.move_if(moves))
    }

    fn expired(&mut self, now: DateTime<Utc>, limit: usize) -> StoreResult<Vec<TaskRecord>> {
        self.read(|db| db.expired(now, limit))
    }

    fn next_expiry(&mut self) -> StoreResult<Option<DateTime<Utc>>> {
        self.read(|db| db.next_expiry())
    }

    fn note_request(
        &mut self,
        request: &RequestId,
        at: DateTime<Utc>,
        grants: &[LeaseRef],
    ) -> StoreResult<()> {
        self.write(|db| db.note_request(request, at, grants))
    }

    fn granted(&mut self, request: &RequestId) -> StoreResult<Option<Vec<LeaseRef>>> {
        self.read(|db| db.granted(request))
    }

    fn forget_requests(&mut self, before: DateTime<Utc>, limit: usize) -> StoreResult<usize> {
        self.write(|db| db.forget_requests(before, limit))
    }

    fn forget_ended(&mut self, before: DateTime<Utc>, limit: usize) -> StoreResult<usize> {
        self.write(|db| db.forget_ended(before, limit))
    }

    fn audit(&mut self) -> StoreResult<Vec<Discrepancy>> {
        self.read(|db| db.audit())
    }
}
