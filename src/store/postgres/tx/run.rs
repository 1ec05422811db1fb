//! The store's operations on runs.

use chrono::{DateTime, Utc};

use super::PostgresTx;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::run::{ActiveQuery, RunBeat, RunClose, RunKey, RunPlace, RunRecord};
use crate::store::{Moved, RunTx};

fn missing() -> StoreError {
    StoreError::new(StoreErrorKind::Backend, "the PostgreSQL store cannot do this yet")
}

impl RunTx for PostgresTx<'_> {
    fn put_runs(&mut self, _: &[RunRecord]) -> StoreResult<()> {
        Err(missing())
    }
    fn close_runs_if_open(&mut self, _: &[RunClose]) -> StoreResult<Vec<Moved>> {
        Err(missing())
    }
    fn beat_runs_if_open(&mut self, _: &[RunBeat]) -> StoreResult<Vec<Moved>> {
        Err(missing())
    }
    fn runs(&mut self, _: &[RunKey]) -> StoreResult<Vec<Option<RunRecord>>> {
        Err(missing())
    }
    fn delete_runs(&mut self, _: &[RunKey]) -> StoreResult<usize> {
        Err(missing())
    }
    fn forget_stopped_runs(&mut self, _: DateTime<Utc>, _: usize) -> StoreResult<usize> {
        Err(missing())
    }
    fn active_runs(&mut self, _: &ActiveQuery) -> StoreResult<Vec<RunRecord>> {
        Err(missing())
    }
    fn active_run_places(&mut self, _: &ActiveQuery) -> StoreResult<Vec<RunPlace>> {
        Err(missing())
    }
    fn count_active_runs(&mut self, _: &ActiveQuery) -> StoreResult<u64> {
        Err(missing())
    }
    fn silent_runs(&mut self, _: DateTime<Utc>, _: usize) -> StoreResult<Vec<RunRecord>> {
        Err(missing())
    }
}
