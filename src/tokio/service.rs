//! A service whose ticks are awaited.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ::tokio::runtime::Handle;
use ::tokio::task::{JoinError, JoinHandle};
use parking_lot::Mutex;

use super::blocking::{current, joined};
use crate::error::{Error, Result};
use crate::ops::Admission;
use crate::service::{Admitter, LoopHandle, Service};
use crate::time::Timestamp;

/// A service for use in tasks of a tokio runtime. Its ticks run on the runtime's blocking threads, one at a
/// time.
///
/// # Guarantees
///
/// * *A tick that has begun runs to its end, and its report is not lost.* If the future that waits for it is
///   dropped, the next call returns that tick's report instead of starting another. This holds for
///   [`Self::tick`], [`Self::admit`] and [`drive`](super::drive). [`Self::undelivered`] returns only such a
///   report.
/// * *A report that will never be read is undone* ([`Service::undelivered`]). When the `AsyncService` is
///   dropped, grants of an [`Admitter`] that no one received are given back, at once or when the running tick
///   has ended. If the store fails at that point, the leases expire.
/// * *Dropping it does not block.* If a task of a runtime used the service last, the service ends on that
///   runtime's blocking threads. A [`Poker`](crate::service::Poker) waits for its threads there. To know when
///   it has ended, end it through [`Self::with`].
/// * *A panic in a tick* resumes in the caller. The service stays as the tick left it.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::service::Poker;
/// use stationmaster::store::MemoryStore;
/// use stationmaster::Timestamp;
/// use stationmaster::tokio::AsyncService;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = Arc::new(MemoryStore::new());
/// let mut poker = AsyncService::new(Poker::new(store, "poker".try_into()?));
/// assert_eq!(poker.tick(Timestamp::UNIX_EPOCH).await?.shards, 16);
/// poker.with(|poker| poker.leave()).await??;
/// # Ok::<(), stationmaster::Error>(())
/// # }).unwrap();
/// ```
pub struct AsyncService<S: Service + Send + 'static>
where
    S::Report: Send,
{
    /// `None` only while it is dropped.
    desk: Option<Arc<Desk<S>>>,
    /// The tick that runs, or whose report was not taken yet.
    running: Option<Step>,
    /// The handle that wakes the service's loop. It is passed to the service with the next tick.
    handle: Option<LoopHandle>,
}

/// A tick whose report was not taken yet.
enum Step {
    Goes(JoinHandle<()>),
    Ended(Result<(), JoinError>),
}

/// The service, and its last tick's report until that is taken. Dropping the last reference undoes the
/// report.
struct Desk<S: Service> {
    service: Mutex<S>,
    report: Mutex<Option<Ticked<S::Report>>>,
}

/// The instant of a tick, and its report.
type Ticked<R> = (Timestamp, Result<R>);

impl<S: Service> Drop for Desk<S> {
    fn drop(&mut self) {
        if let Some((now, Ok(report))) = self.report.get_mut().take() {
            let service = self.service.get_mut();
            // Leases that cannot be given back expire, and no caller is left to receive the error.
            let _ = catch_unwind(AssertUnwindSafe(|| service.undelivered(now, report)));
        }
    }
}

impl<S: Service + Send + 'static> AsyncService<S>
where
    S::Report: Send,
{
    /// Wraps this service.
    pub fn new(service: S) -> Self {
        let desk = Desk { service: Mutex::new(service), report: Mutex::new(None) };
        Self { desk: Some(Arc::new(desk)), running: None, handle: None }
    }

    /// Runs one tick at this instant. If the future that waited for the previous tick was dropped, returns
    /// that tick's report instead. That report belongs to its own instant, so tick again before you sleep
    /// until it is due.
    ///
    /// # Errors
    ///
    /// As [`Service::tick`], and [`crate::Error::NoRuntime`] outside a runtime.
    pub async fn tick(&mut self, now: impl Into<Timestamp>) -> Result<S::Report> {
        let now = now.into();
        self.step(now, move |service| service.tick(now)).await
    }

    /// Returns the report of a tick whose future was dropped, or `None` if there is none. Waits for the tick
    /// to end.
    pub async fn undelivered(&mut self) -> Option<Result<S::Report>> {
        match self.running {
            Some(_) => Some(self.arrive().await),
            None => None,
        }
    }

    /// Runs `work` on the service after the running tick has ended, for example `poker.leave()`. Work that
    /// has begun runs to its end, even if the future is dropped. Nothing begins before that tick has ended.
    ///
    /// # Errors
    ///
    /// [`Error::NoRuntime`] outside a runtime. A panic in `work` resumes in the caller.
    pub async fn with<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut S) -> T + Send + 'static,
    ) -> Result<T> {
        let (runtime, desk) = (current()?, self.desk.clone().ok_or(Error::RuntimeShutDown)?);
        // The lock alone keeps no order: if two threads have work, the second may take it first.
        self.settle().await;
        joined(runtime.spawn_blocking(move || work(&mut desk.service.lock())).await)
    }

    /// Passes this handle to the service with the next tick.
    pub(super) fn woken_by(&mut self, handle: &LoopHandle) {
        self.handle = Some(handle.clone());
    }

    async fn step(
        &mut self,
        now: Timestamp,
        step: impl FnOnce(&mut S) -> Result<S::Report> + Send + 'static,
    ) -> Result<S::Report> {
        if self.running.is_none() {
            let (runtime, desk) = (current()?, self.desk.clone().ok_or(Error::RuntimeShutDown)?);
            let handle = self.handle.take();
            self.running = Some(Step::Goes(runtime.spawn_blocking(move || {
                let mut service = desk.service.lock();
                if let Some(handle) = handle {
                    handle.wakes(&mut *service);
                }
                let report = step(&mut service);
                *desk.report.lock() = Some((now, report));
            })));
        }
        self.arrive().await
    }

    /// Waits for the running step, and leaves its report in place.
    async fn settle(&mut self) {
        if let Some(Step::Goes(running)) = &mut self.running {
            let end = running.await;
            self.running = Some(Step::Ended(end));
        }
    }

    /// Waits for the running step, and takes its report.
    async fn arrive(&mut self) -> Result<S::Report> {
        self.settle().await;
        if let Some(Step::Ended(end)) = self.running.take() {
            joined(end)?;
        }
        let report = self.desk.as_ref().and_then(|desk| desk.report.lock().take());
        report.map_or(Err(Error::RuntimeShutDown), |(_, report)| report)
    }
}

impl<S: Service + Send + 'static> Drop for AsyncService<S>
where
    S::Report: Send,
{
    fn drop(&mut self) {
        let desk = self.desk.take();
        match Handle::try_current() {
            // Giving leases back, and ending the service, may both take a while.
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
/// use stationmaster::service::Admitter;
/// use stationmaster::store::MemoryStore;
/// use stationmaster::tokio::{AsyncAdmitter, AsyncStore};
/// use stationmaster::{NewTask, TaskKey, Timestamp};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let (store, now) = (AsyncStore::new(Arc::new(MemoryStore::new())), Timestamp::UNIX_EPOCH);
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
/// store.write(move |tx| tx.enqueue(now, std::slice::from_ref(&task))).await?;
/// let admitter = Admitter::new(store.store().clone(), "worker-1".try_into()?);
/// let mut admitter = AsyncAdmitter::new(admitter);
/// assert_eq!(admitter.admit(now, 4).await?.granted.len(), 1);
/// # Ok::<(), stationmaster::Error>(())
/// # }).unwrap();
/// ```
pub type AsyncAdmitter = AsyncService<Admitter>;

impl AsyncService<Admitter> {
    /// Admits at most `free` tasks ([`Admitter::admit`]). If the future that waited for the previous tick was
    /// dropped, returns what that tick was granted instead. That tick asked for as many tasks as there were
    /// free places then.
    ///
    /// # Errors
    ///
    /// Those of [`Admitter::admit`], and [`crate::Error::NoRuntime`] outside a runtime.
    pub async fn admit(&mut self, now: impl Into<Timestamp>, free: usize) -> Result<Admission> {
        let now = now.into();
        self.step(now, move |admitter| admitter.admit(now, free)).await
    }
}
