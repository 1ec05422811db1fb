//! One callback for each way a sensor can end.

use std::fmt;

use super::Delivered;
use crate::base::setters;
use crate::sensor::{EndReason, SensorEvent};
use crate::task::TaskState;

type Callback = Box<dyn FnMut(&SensorEvent) -> Delivered + Send>;

/// Callbacks, chosen by what an event says. An event without a callback counts as delivered.
///
/// | the event | is given to | or, if there is none, to |
/// |---|---|---|
/// | its task is tried again | `on_retry` | |
/// | its task is skipped (soft fail) | `on_skipped` | |
/// | it landed | `on_landed` | |
/// | it timed out, by either timeout | `on_timed_out` | `on_failed` |
/// | its poke failed, or could not look for too long | `on_failed` | |
/// | the host ended its task | `on_cancelled` | |
///
/// The first matching row counts, except that a task which the host ended always matches the last row.
#[derive(Default)]
pub struct Callbacks {
    landed: Option<Callback>,
    timed_out: Option<Callback>,
    failed: Option<Callback>,
    skipped: Option<Callback>,
    retry: Option<Callback>,
    cancelled: Option<Callback>,
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks").finish_non_exhaustive()
    }
}

impl Callbacks {
    /// Creates an empty set of callbacks.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the callback for a sensor that landed.
        on_landed(callback: impl FnMut(&SensorEvent) -> Delivered + Send + 'static) {
            landed = Some(Box::new(callback))
        }
        /// Sets the callback for a sensor that timed out, by either timeout.
        on_timed_out(callback: impl FnMut(&SensorEvent) -> Delivered + Send + 'static) {
            timed_out = Some(Box::new(callback))
        }
        /// Sets the callback for a sensor whose poke said that it will never land, or could not look for too
        /// long.
        on_failed(callback: impl FnMut(&SensorEvent) -> Delivered + Send + 'static) {
            failed = Some(Box::new(callback))
        }
        /// Sets the callback for a task that was skipped instead of failed.
        on_skipped(callback: impl FnMut(&SensorEvent) -> Delivered + Send + 'static) {
            skipped = Some(Box::new(callback))
        }
        /// Sets the callback for a task that is tried again.
        on_retry(callback: impl FnMut(&SensorEvent) -> Delivered + Send + 'static) {
            retry = Some(Box::new(callback))
        }
        /// Sets the callback for a task that the host ended.
        on_cancelled(callback: impl FnMut(&SensorEvent) -> Delivered + Send + 'static) {
            cancelled = Some(Box::new(callback))
        }
    }

    /// Passes an event to its callback.
    ///
    /// # Errors
    ///
    /// The callback's.
    pub fn call(&mut self, event: &SensorEvent) -> Delivered {
        let callback = match (event.ending.reason, event.ending.to) {
            (EndReason::Cancelled, _) => &mut self.cancelled,
            (_, TaskState::UpForRetry) => &mut self.retry,
            (_, TaskState::Skipped) => &mut self.skipped,
            (EndReason::Landed, _) => &mut self.landed,
            (EndReason::TimedOut | EndReason::ExecutionTimedOut, _) if self.timed_out.is_some() => {
                &mut self.timed_out
            }
            _ => &mut self.failed,
        };
        callback.as_mut().map_or(Ok(()), |callback| callback(event))
    }
}
