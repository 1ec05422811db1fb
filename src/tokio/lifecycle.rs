//! The life-cycle operations, awaited.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::store::AsyncStore;
use crate::error::Result;
use crate::id::TaskKey;
use crate::lease::LeaseRef;
use crate::sensor::{Ending, NewSensor, SensorEvent, SmartSensorConfig};
use crate::service::lifecycle::{
    self, Admission, AdmitOrder, Cleared, EnqueueOptions, Explanation, Finish, Finished, Mark, Marked,
    Reaped, Registered,
};
use crate::store::{Discrepancy, Inserted, Moved, Store, TxMode};
use crate::task::NewTask;

/// The operations of [`crate::service::lifecycle`], each in a transaction of its own.
///
/// Each answers and fails as the function of its name, and with [`crate::Error::Runtime`] outside a runtime.
impl AsyncStore {
    /// Enqueues tasks: [`lifecycle::enqueue`]. Repeat it if its future was dropped.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn enqueue(
        &self,
        now: DateTime<Utc>,
        tasks: impl Into<Vec<NewTask>> + Send,
    ) -> Result<Vec<Inserted>> {
        self.enqueue_with(now, EnqueueOptions::default(), tasks).await
    }

    /// Enqueues tasks, with options: [`lifecycle::enqueue_with`]. Repeat it if its future was dropped.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn enqueue_with(
        &self,
        now: DateTime<Utc>,
        options: EnqueueOptions,
        tasks: impl Into<Vec<NewTask>> + Send,
    ) -> Result<Vec<Inserted>> {
        let tasks = tasks.into();
        self.write(move |tx| lifecycle::enqueue_with(tx, now, &options, &tasks)).await
    }

    /// Admits tasks: [`lifecycle::admit`]. If its future was dropped, the same order again answers what the first one was
    /// granted. An [`AsyncAdmitter`](super::AsyncAdmitter) sees to that by itself.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn admit(&self, now: DateTime<Utc>, order: AdmitOrder) -> Result<Admission> {
        self.write(move |tx| lifecycle::admit(tx, now, &order)).await
    }

    /// Starts admitted tasks: [`lifecycle::start`]. Repeated after a dropped future it answers `No` for what the first call
    /// started: [`Self::renew`] tells whether the lease still holds.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn start(
        &self,
        now: DateTime<Utc>,
        leases: impl Into<Vec<LeaseRef>> + Send,
    ) -> Result<Vec<Moved>> {
        let leases = leases.into();
        self.write(move |tx| lifecycle::start(tx, now, &leases)).await
    }

    /// Renews leases: [`lifecycle::renew`]. Repeat it if its future was dropped.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn renew(
        &self,
        now: DateTime<Utc>,
        lease: Duration,
        leases: impl Into<Vec<LeaseRef>> + Send,
    ) -> Result<Vec<Moved>> {
        let leases = leases.into();
        self.write(move |tx| lifecycle::renew(tx, now, lease, &leases)).await
    }

    /// Ends attempts: [`lifecycle::finish`]. Repeated after a dropped future it answers `Stale` for what the first call
    /// ended: the task's record tells how.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn finish(
        &self,
        now: DateTime<Utc>,
        finishes: impl Into<Vec<Finish>> + Send,
    ) -> Result<Vec<Finished>> {
        let finishes = finishes.into();
        self.write(move |tx| lifecycle::finish(tx, now, &finishes)).await
    }

    /// Turns running tasks into sensors: [`lifecycle::register`]. Repeated after a dropped future it answers `Stale` for
    /// what the first call registered: the task's state is `Sensing` then.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn register(
        &self,
        now: DateTime<Utc>,
        sensors: impl Into<Vec<NewSensor>> + Send,
    ) -> Result<Vec<Registered>> {
        let sensors = sensors.into();
        self.write(move |tx| lifecycle::register(tx, now, &sensors)).await
    }

    /// Turns running tasks into sensors where the operator's settings let them: [`lifecycle::register_with`]. Repeated
    /// after a dropped future it answers as [`Self::register`] does.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn register_with(
        &self,
        now: DateTime<Utc>,
        config: SmartSensorConfig,
        sensors: impl Into<Vec<NewSensor>> + Send,
    ) -> Result<Vec<Registered>> {
        let sensors = sensors.into();
        self.write(move |tx| lifecycle::register_with(tx, now, &config, &sensors)).await
    }

    /// [`Self::register_with`], with a failure of the store or of the runtime as a value: [`lifecycle::hand_over`].
    pub async fn hand_over(
        &self,
        now: DateTime<Utc>,
        config: SmartSensorConfig,
        sensors: impl Into<Vec<NewSensor>> + Send,
    ) -> Vec<Registered> {
        let sensors = sensors.into();
        let count = sensors.len();
        let hand_over = move |store: &dyn Store| Ok(lifecycle::hand_over(store, now, &config, &sensors));
        let done = self.call(TxMode::Write, hand_over).await;
        done.unwrap_or_else(|error| vec![Registered::Failed(error.to_string()); count])
    }

    /// Makes ended tasks ready again: [`lifecycle::clear`]. Repeated after a dropped future it answers `NotEnded` for what
    /// the first call cleared, unless the task has ended once more: look at its record first.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn clear(
        &self,
        now: DateTime<Utc>,
        keys: impl Into<Vec<TaskKey>> + Send,
    ) -> Result<Vec<Cleared>> {
        let keys = keys.into();
        self.write(move |tx| lifecycle::clear(tx, now, &keys)).await
    }

    /// Ends tasks by the host's word: [`lifecycle::mark`]. Repeated after a dropped future it answers `AlreadyEnded` for
    /// what the first call ended.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn mark(&self, now: DateTime<Utc>, marks: impl Into<Vec<Mark>> + Send) -> Result<Vec<Marked>> {
        let marks = marks.into();
        self.write(move |tx| lifecycle::mark(tx, now, &marks)).await
    }

    /// Takes back what dead holders held: [`lifecycle::reap`]. What a call whose future was dropped took back is in the
    /// tasks' records only.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn reap(&self, now: DateTime<Utc>, limit: usize) -> Result<Vec<Reaped>> {
        self.write(move |tx| lifecycle::reap(tx, now, limit)).await
    }

    /// Ends sensors: [`lifecycle::end_sensors`]. Repeated after a dropped future it answers `No` for what the first call
    /// ended.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn end_sensors(
        &self,
        now: DateTime<Utc>,
        ends: impl Into<Vec<(LeaseRef, Ending)>> + Send,
    ) -> Result<Vec<Moved>> {
        let ends = ends.into();
        self.write(move |tx| lifecycle::end_sensors(tx, now, &ends)).await
    }

    /// Tells what keeps a task from running: [`lifecycle::explain`].
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn explain(&self, key: TaskKey) -> Result<Explanation> {
        self.read(move |tx| lifecycle::explain(tx, &key)).await
    }

    /// The events of sensors after this place: [`SensorTx::events`](crate::store::SensorTx::events).
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn events(&self, after: u64, limit: usize) -> Result<Vec<SensorEvent>> {
        self.read(move |tx| Ok(tx.events(after, limit)?)).await
    }

    /// The host has taken these events: [`SensorTx::acknowledge_events`](crate::store::SensorTx::acknowledge_events).
    /// Repeat it if its future was dropped.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn acknowledge_events(&self, seqs: impl Into<Vec<u64>> + Send) -> Result<usize> {
        let seqs = seqs.into();
        self.write(move |tx| Ok(tx.acknowledge_events(&seqs)?)).await
    }

    /// Compares every counter with what it counts: [`TaskTx::audit`](crate::store::TaskTx::audit).
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn audit(&self) -> Result<Vec<Discrepancy>> {
        self.read(|tx| Ok(tx.audit()?)).await
    }
}
