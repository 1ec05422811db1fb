//! The store's operations on tasks.

use chrono::{DateTime, Utc};

use super::PostgresTx;
use crate::admission::{Candidate, Lane, LanePage};
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::id::{RequestId, TaskKey};
use crate::lease::{LeaseRef, TaskNo};
use crate::store::{Discrepancy, GrantBatch, Inserted, Move, Moved, TaskTx};
use crate::task::{TaskInsert, TaskRecord};

fn missing() -> StoreError {
    StoreError::new(StoreErrorKind::Backend, "the PostgreSQL store cannot do this yet")
}

impl TaskTx for PostgresTx<'_> {
    fn insert_tasks_if_absent(&mut self, _: &[TaskInsert]) -> StoreResult<Vec<Inserted>> {
        Err(missing())
    }
    fn tasks(&mut self, _: &[TaskKey]) -> StoreResult<Vec<Option<TaskRecord>>> {
        Err(missing())
    }
    fn tasks_by_no(&mut self, _: &[TaskNo]) -> StoreResult<Vec<Option<TaskRecord>>> {
        Err(missing())
    }
    fn promote_due(&mut self, _: DateTime<Utc>, _: usize) -> StoreResult<usize> {
        Err(missing())
    }
    fn next_due(&mut self) -> StoreResult<Option<DateTime<Utc>>> {
        Err(missing())
    }
    fn ready_lanes(&mut self) -> StoreResult<Vec<Lane>> {
        Err(missing())
    }
    fn candidates(&mut self, _: &[LanePage]) -> StoreResult<Vec<Candidate>> {
        Err(missing())
    }
    fn grant_if_ready(&mut self, _: &GrantBatch<'_>) -> StoreResult<Vec<TaskRecord>> {
        Err(missing())
    }
    fn start_if_queued(&mut self, _: &[LeaseRef], _: DateTime<Utc>) -> StoreResult<Vec<Moved>> {
        Err(missing())
    }
    fn renew_if_leased(&mut self, _: &[LeaseRef], _: DateTime<Utc>) -> StoreResult<Vec<Moved>> {
        Err(missing())
    }
    fn move_if(&mut self, _: &[Move]) -> StoreResult<Vec<Moved>> {
        Err(missing())
    }
    fn expired(&mut self, _: DateTime<Utc>, _: usize) -> StoreResult<Vec<TaskRecord>> {
        Err(missing())
    }
    fn next_expiry(&mut self) -> StoreResult<Option<DateTime<Utc>>> {
        Err(missing())
    }
    fn note_request(&mut self, _: &RequestId, _: DateTime<Utc>, _: &[LeaseRef]) -> StoreResult<()> {
        Err(missing())
    }
    fn granted(&mut self, _: &RequestId) -> StoreResult<Option<Vec<LeaseRef>>> {
        Err(missing())
    }
    fn forget_requests(&mut self, _: DateTime<Utc>, _: usize) -> StoreResult<usize> {
        Err(missing())
    }
    fn forget_ended(&mut self, _: DateTime<Utc>, _: usize) -> StoreResult<usize> {
        Err(missing())
    }
    fn audit(&mut self) -> StoreResult<Vec<Discrepancy>> {
        Err(missing())
    }
}
