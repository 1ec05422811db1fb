//! The reaper: takes back what dead holders held, and forgets what is old.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::lifecycle::{Reaped, reap};
use super::observer::{Observer, Tick, Watch};
use super::run::{Report, Service};
use crate::error::Result;
use crate::store::{Store, StoreExt};
use crate::time;

/// How a [`Reaper`] works.
///
/// Defaults: 1,000 leases a tick; ended tasks are kept for ever.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReaperOptions {
    /// The most leases one tick ends, and the most tasks it forgets.
    pub limit: usize,
    /// How long ended tasks are kept; none means for ever.
    pub keep_ended: Option<Duration>,
}

impl Default for ReaperOptions {
    fn default() -> Self {
        Self { limit: 1_000, keep_ended: None }
    }
}

impl ReaperOptions {
    /// Sets the most leases one tick ends, and the most tasks it forgets.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Forgets tasks this long after they ended. Enqueueing a forgotten task's key again makes a new task.
    #[must_use]
    pub fn keep_ended(mut self, length: Duration) -> Self {
        self.keep_ended = Some(length);
        self
    }
}

/// What one tick of a [`Reaper`] did.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ReapReport {
    /// The tasks whose leases it ended.
    pub reaped: Vec<Reaped>,
    /// How many ended tasks it forgot.
    pub forgotten: usize,
    /// The earliest expiry of the leases that are left; this instant if the tick did as much as it was allowed to.
    pub next_due: Option<DateTime<Utc>>,
}

/// Ends leases that were not renewed in time: see [`lifecycle::reap`](crate::service::lifecycle::reap).
///
/// One in each process does no harm: each lease is ended once.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use stationmaster::service::lifecycle::{Finished, enqueue};
/// use stationmaster::service::{Admitter, AdmitterOptions, Reaper, ReaperOptions, Service};
/// use stationmaster::store::{MemoryStore, StoreExt};
/// use stationmaster::task::LeaseLoss;
/// use stationmaster::time::from_micros;
/// use stationmaster::{NewTask, TaskKey};
///
/// let store = Arc::new(MemoryStore::new());
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?).lease_loss(LeaseLoss::Requeue { at_most: 3 });
/// store.write(|tx| enqueue(tx, from_micros(0), std::slice::from_ref(&task)))?;
/// let options = AdmitterOptions::default().lease(Duration::from_secs(1));
/// Admitter::new(store.clone(), "dead".try_into()?, options)?.tick(from_micros(0))?;
///
/// let mut reaper = Reaper::new(store, ReaperOptions::default());
/// assert_eq!(reaper.tick(from_micros(999_999))?.next_due, Some(from_micros(1_000_000)));
/// assert_eq!(reaper.tick(from_micros(1_000_000))?.reaped[0].became, Finished::Ready);
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug)]
pub struct Reaper {
    store: Arc<dyn Store>,
    options: ReaperOptions,
    watch: Watch,
}

impl Reaper {
    /// A reaper of this store.
    pub fn new(store: Arc<dyn Store>, options: ReaperOptions) -> Self {
        Self { store, options, watch: Watch::default() }
    }

    /// Tells this observer what it counts and measures.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.watch = observer.into();
        self
    }
}

impl Service for Reaper {
    type Report = ReapReport;

    fn tick(&mut self, now: DateTime<Utc>) -> Result<ReapReport> {
        let (options, tick) = (&self.options, Tick::reaper());
        let answer = self.store.write(|tx| {
            let reaped = reap(tx, now, options.limit)?;
            let forgotten = match options.keep_ended {
                Some(length) => tx.forget_ended(time::sub(now, length), options.limit)?,
                None => 0,
            };
            let more = reaped.len().max(forgotten) >= options.limit.max(1);
            let next_due = if more { Some(time::truncate(now)) } else { tx.next_expiry()? };
            Ok(ReapReport { reaped, forgotten, next_due })
        });
        self.watch.reaped(tick, &answer);
        answer
    }
}

impl Report for ReapReport {
    fn next_due(&self) -> Option<DateTime<Utc>> {
        self.next_due
    }
}
