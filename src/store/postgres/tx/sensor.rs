//! The store's operations on sensors.

use chrono::{DateTime, Utc};

use super::PostgresTx;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::id::{Holder, TaskKey};
use crate::lease::LeaseRef;
use crate::sensor::{SensorEvent, SensorInsert, SensorRecord};
use crate::store::{EventNote, Moved, SensorQuery, SensorTx, ShardLease, ShardWrite, Worker};

fn missing() -> StoreError {
    StoreError::new(StoreErrorKind::Backend, "the PostgreSQL store cannot do this yet")
}

impl SensorTx for PostgresTx<'_> {
    fn put_sensors(&mut self, _: &[SensorInsert]) -> StoreResult<Vec<SensorRecord>> {
        Err(missing())
    }
    fn sensors(&mut self, _: &[TaskKey]) -> StoreResult<Vec<Option<SensorRecord>>> {
        Err(missing())
    }
    fn changed_sensors(&mut self, _: &SensorQuery) -> StoreResult<Vec<SensorRecord>> {
        Err(missing())
    }
    fn last_sensor_change(&mut self) -> StoreResult<u64> {
        Err(missing())
    }
    fn last_forgotten_change(&mut self) -> StoreResult<u64> {
        Err(missing())
    }
    fn end_sensors_if_waiting(&mut self, _: &[LeaseRef]) -> StoreResult<Vec<Option<SensorRecord>>> {
        Err(missing())
    }
    fn note_events(&mut self, _: &[EventNote]) -> StoreResult<()> {
        Err(missing())
    }
    fn events(&mut self, _: u64, _: usize) -> StoreResult<Vec<SensorEvent>> {
        Err(missing())
    }
    fn acknowledge_events(&mut self, _: &[u64]) -> StoreResult<usize> {
        Err(missing())
    }
    fn put_worker(&mut self, _: &Worker) -> StoreResult<()> {
        Err(missing())
    }
    fn delete_worker(&mut self, _: &Holder) -> StoreResult<()> {
        Err(missing())
    }
    fn forget_workers(&mut self, _: DateTime<Utc>, _: usize) -> StoreResult<usize> {
        Err(missing())
    }
    fn live_workers(&mut self, _: DateTime<Utc>) -> StoreResult<Vec<Worker>> {
        Err(missing())
    }
    fn shard_leases(&mut self) -> StoreResult<Vec<ShardLease>> {
        Err(missing())
    }
    fn put_shards_if_unchanged(&mut self, _: &[ShardWrite]) -> StoreResult<Vec<Moved>> {
        Err(missing())
    }
}
