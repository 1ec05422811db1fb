//! Drives a service with a future.

use std::ops::ControlFlow;
use std::time::Duration;

use ::tokio::time::timeout;

use super::service::AsyncService;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::service::{LoopHandle, Pace, Service};

/// Ticks a service until its handle is stopped or `each` breaks:
/// [`drive`](crate::service::drive) as a future.
///
/// Ticks run on the runtime's blocking threads. Between them it sleeps on the runtime's timer, as long as the
/// blocking form would. [`LoopHandle::wake`] and [`LoopHandle::stop`] end the sleep at once. The task that
/// awaits `drive` calls `each`, so `each` must not block; it may spawn tasks.
///
/// # Cancellation
///
/// The future may be dropped at any await, for example by `select!`, and the service may then be driven
/// again. A tick that had begun runs to its end. Its report is the first that the next `drive` passes to
/// `each`. Nothing is awaited between the arrival of a report and `each`. If you stop the handle instead, the
/// tick ends and its report reaches `each`.
///
/// # Errors
///
/// [`Error::NoRuntime`] outside a runtime. The runtime must have its timers enabled, or tokio panics.
///
/// # Examples
///
/// ```
/// use std::ops::ControlFlow;
/// use std::sync::Arc;
/// use std::time::Duration;
/// use stationmaster::clock::SystemClock;
/// use stationmaster::service::{LoopHandle, Upkeep};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::tokio::{AsyncService, drive};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let mut upkeep = AsyncService::new(Upkeep::new(Arc::new(MemoryStore::new())));
/// let (handle, cancelled) = (LoopHandle::new(), tokio::sync::Notify::new());
/// tokio::select! {
///     ended = drive(&mut upkeep, &SystemClock, &handle, Duration::from_secs(60), |report| {
///         assert!(report.is_ok_and(|report| report.reaped.is_empty()));
///         cancelled.notify_one();
///         ControlFlow::Continue(())
///     }) => ended?,
///     () = cancelled.notified() => {} // or tokio::signal::ctrl_c()
/// }
/// # Ok::<(), stationmaster::Error>(())
/// # }).unwrap();
/// ```
pub async fn drive<S>(
    service: &mut AsyncService<S>,
    clock: &dyn Clock,
    handle: &LoopHandle,
    longest: Duration,
    mut each: impl FnMut(Result<S::Report>) -> ControlFlow<()>,
) -> Result<()>
where
    S: Service + Send + 'static,
    S::Report: Send,
{
    let before = service.undelivered().await;
    // Its report does not include later changes, so no sleep follows.
    if before.as_ref().is_some_and(|report| report.as_ref().is_err_and(is_of_runtime)) {
        return before.map_or(Ok(()), |report| report.map(drop));
    }
    if before.is_some_and(|report| each(report).is_break()) {
        return Ok(());
    }
    let mut pace = Pace::new(handle);
    service.woken_by(handle);
    while !handle.is_stopped() {
        let seen = handle.seen();
        let now = clock.now();
        let report = match service.tick(now).await {
            Err(error) if is_of_runtime(&error) => return Err(error),
            report => report,
        };
        let due = pace.ticked(seen, &report);
        if each(report).is_break() {
            return Ok(());
        }
        let pause = pace.pause(due, now, clock, longest);
        let ignored = pace.ignores_wakes_for().min(pause);
        let _ = timeout(ignored, handle.stopped()).await;
        // Whether the time is up or the handle was woken, the next step is due.
        let _ = timeout(pause - ignored, handle.woken_since(seen)).await;
    }
    Ok(())
}

/// Returns true if no later tick can succeed.
fn is_of_runtime(error: &Error) -> bool {
    matches!(error, Error::NoRuntime | Error::RuntimeShutDown)
}
