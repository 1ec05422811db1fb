//! A service whose ticks are awaited.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ::tokio::runtime::Handle;
use ::tokio::task::{JoinError, JoinHandle};
use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use super::blocking::{current, joined};
use crate::error::{NoRuntime, Result};
use crate::ops::Admission;
use crate::service::{Admitter, LoopHandle, Service};

/// A service for tasks of a tokio runtime: its ticks are made on the runtime's threads for blocking work, one
/// at a time.
///
/// # What holds
///
/// * *A tick that was begun ends, and its report is not lost.* When the future that waits for it is dropped,
///   the next call of [`Self::tick`] (or [`Self::admit`], or [`drive`](super::drive)) answers with that tick's
///   report, instead of making another. [`Self::undelivered`] asks for it alone.
/// * *A report that nobody will read is taken back* ([`Service::undelivered`]): when the `AsyncService` is
///   dropped, what an [`Admitter`] granted to nobody is given back, at once or when the tick that runs has
///   ended. Should the store fail then, the leases expire.
/// * *Dropping it does not block.* A service that was used last by a task of a runtime ends on that runtime's
///   blocking threads: a [`Poker`](crate::service::Poker) waits for its threads there. To know when it has
///   ended, call what ends it by [`Self::with`].
/// * *A panic of a tick* goes on in the caller; the service is as the tick left it.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::service::{Poker, PokerOptions};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::time::from_micros;
/// use stationmaster::tokio::AsyncService;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = Arc::new(MemoryStore::new());
/// let mut poker = AsyncService::new(Poker::new(store, "poker".try_into()?, PokerOptions::default())?);
/// assert_eq!(poker.tick(from_micros(0)).await?.shards, 16);
/// poker.with(|poker| poker.leave()).await??;
/// # Ok::<(), stationmaster::Error>(())
/// # }).unwrap();
/// ```
pub struct AsyncService<S: Service + Send + 'static>
where
    S::Report: Send,
{
    /// None only while it is dropped.
    desk: Option<Arc<Desk<S>>>,
    /// The tick that runs, or whose report nobody has taken.
    running: Option<Step>,
    /// Tells the service what wakes its loop, with the next tick.
    handle: Option<LoopHandle>,
}

/// A tick whose report nobody has taken.
enum Step {
    Goes(JoinHandle<()>),
    Ended(Result<(), JoinError>),
}

/// The service, and the report of its last tick until somebody takes it. Whoever lets go of it last takes the
/// report back.
struct Desk<S: Service> {
    service: Mutex<S>,
    report: Mutex<Option<Told<S::Report>>>,
}

/// What the tick of an instant told.
type Told<R> = (DateTime<Utc>, Result<R>);

impl<S: Service> Drop for Desk<S> {
    fn drop(&mut self) {
        if let Some((now, Ok(report))) = self.report.get_mut().take() {
            let service = self.service.get_mut();
            // Leases that cannot be given back expire; and there is nobody left who could hear of it.
            let _ = catch_unwind(AssertUnwindSafe(|| service.undelivered(now, report)));
        }
    }
}

impl<S: Service + Send + 'static> AsyncService<S>
where
    S::Report: Send,
{
    /// Drives this service.
    pub fn new(service: S) -> Self {
        let desk = Desk { service: Mutex::new(service), report: Mutex::new(None) };
        Self { desk: Some(Arc::new(desk)), running: None, handle: None }
    }

    /// Takes one step at this instant; or answers the report of the step before, if the future that waited
    /// for it was dropped. That one is of its own instant: take another step before you sleep until it is
    /// due.
    ///
    /// # Errors
    ///
    /// As [`Service::tick`], and [`crate::Error::Runtime`] outside a runtime.
    pub async fn tick(&mut self, now: DateTime<Utc>) -> Result<S::Report> {
        self.step(now, move |service| service.tick(now)).await
    }

    /// The report of a step whose future was dropped; none if there is none. It waits for the step to end.
    pub async fn undelivered(&mut self) -> Option<Result<S::Report>> {
        match self.running {
            Some(_) => Some(self.arrive().await),
            None => None,
        }
    }

    /// Does something else with the service, after the tick that runs: `poker.leave()`, for instance. What
    /// was begun is done, whether or not somebody still waits for it; before that tick has ended, nothing is.
    ///
    /// # Errors
    ///
    /// [`NoRuntime`] outside a runtime. A panic of `work` goes on here.
    pub async fn with<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut S) -> T + Send + 'static,
    ) -> Result<T, NoRuntime> {
        let (runtime, desk) = (current()?, self.desk.clone().ok_or(NoRuntime::ShutDown)?);
        // The lock alone keeps no order: of two threads that were given work, the second may come first.
        self.settle().await;
        joined(runtime.spawn_blocking(move || work(&mut desk.service.lock())).await)
    }

    /// Its next tick tells the service of this handle.
    pub(super) fn woken_by(&mut self, handle: &LoopHandle) {
        self.handle = Some(handle.clone());
    }

    async fn step(
        &mut self,
        now: DateTime<Utc>,
        step: impl FnOnce(&mut S) -> Result<S::Report> + Send + 'static,
    ) -> Result<S::Report> {
        if self.running.is_none() {
            let (runtime, desk) = (current()?, self.desk.clone().ok_or(NoRuntime::ShutDown)?);
            let handle = self.handle.take();
            self.running = Some(Step::Goes(runtime.spawn_blocking(move || {
                let mut service = desk.service.lock();
                if let Some(handle) = handle {
                    service.woken_by(&handle);
                }
                let report = step(&mut service);
                *desk.report.lock() = Some((now, report));
            })));
        }
        self.arrive().await
    }

    /// Waits for the step that runs, and leaves its report where it is.
    async fn settle(&mut self) {
        if let Some(Step::Goes(running)) = &mut self.running {
            let end = running.await;
            self.running = Some(Step::Ended(end));
        }
    }

    /// Waits for the step that runs, and takes its report.
    async fn arrive(&mut self) -> Result<S::Report> {
        self.settle().await;
        if let Some(Step::Ended(end)) = self.running.take() {
            joined(end)?;
        }
        let report = self.desk.as_ref().and_then(|desk| desk.report.lock().take());
        report.map_or(Err(NoRuntime::ShutDown.into()), |(_, report)| report)
    }
}

impl<S: Service + Send + 'static> Drop for AsyncService<S>
where
    S::Report: Send,
{
    fn drop(&mut self) {
        let desk = self.desk.take();
        match Handle::try_current() {
            // Both what is given back and the end of the service may take a while.
            Ok(runtime) => drop(runtime.spawn_blocking(move || drop(desk))),
            Err(_) => drop(desk),
        }
    }
}

impl<S: Service + fmt::Debug + Send + 'static> fmt::Debug for AsyncService<S>
where
    S::Report: Send,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = self.desk.as_ref().map(|desk| &desk.service);
        f.debug_struct("AsyncService")
            .field("service", &service)
            .field("running", &self.running.is_some())
            .finish()
    }
}

/// An [`Admitter`] for tasks of a tokio runtime.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::service::{Admitter, AdmitterOptions};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::time::from_micros;
/// use stationmaster::tokio::{AsyncAdmitter, AsyncStore};
/// use stationmaster::{NewTask, TaskKey};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let (store, now) = (AsyncStore::new(Arc::new(MemoryStore::new())), from_micros(0));
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
/// store.write(move |tx| tx.enqueue(now, std::slice::from_ref(&task))).await?;
/// let admitter = Admitter::new(store.store().clone(), "worker-1".try_into()?, AdmitterOptions::default())?;
/// let mut admitter = AsyncAdmitter::new(admitter);
/// assert_eq!(admitter.admit(now, 4).await?.granted.len(), 1);
/// # Ok::<(), stationmaster::Error>(())
/// # }).unwrap();
/// ```
pub type AsyncAdmitter = AsyncService<Admitter>;

impl AsyncService<Admitter> {
    /// Admits at most `free` tasks ([`Admitter::admit`]); or answers what the step before was granted, if the
    /// future that waited for it was dropped: that step asked for as many as were free then.
    ///
    /// # Errors
    ///
    /// As there, and [`crate::Error::Runtime`] outside a runtime.
    pub async fn admit(&mut self, now: DateTime<Utc>, free: usize) -> Result<Admission> {
        self.step(now, move |admitter| admitter.admit(now, free)).await
    }
}
