//! Callbacks on the events of sensors.

mod callbacks;

use std::collections::HashSet;
use std::error::Error as StdError;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};

pub use callbacks::Callbacks;

use super::observer::{Observer, Tick, Watch};
use super::run::{Report, Service};
use crate::error::Result;
use crate::id::TaskKey;
use crate::sensor::SensorEvent;
use crate::store::{Store, StoreExt};
use crate::time;

/// What a callback answers. With an error the event stays, and is delivered again.
pub type Delivered = Result<(), Box<dyn StdError + Send + Sync>>;

/// Delivers the events of sensors to a callback of the host's, such as [`Callbacks`], until it has taken them.
///
/// # What holds
///
/// * *At least once.* An event is acknowledged after its callback took it. When the process dies in between, or the
///   acknowledgement fails, it is delivered again: by its `seq`, which no other event of the store ever has, a callback can tell.
/// * *In order, per task.* When a callback fails or panics, the later events of that task wait; those of other tasks do not.
/// * *In bulk.* All events that a tick delivered are acknowledged in one transaction.
///
/// One delivery at a time should work on a store: two would deliver each event twice. What a callback never takes stays
/// until the host acknowledges it by hand ([`crate::store::SensorTx::acknowledge_events`]).
///
/// A tick delivers at most `limit` events, and goes round: it goes on where the last one stopped, so that events that are
/// never taken do not keep it from the others.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use stationmaster::canonical::PokeContext;
/// use stationmaster::sensor::{NewSensor, SensorEvent, Settings};
/// use stationmaster::service::lifecycle::{Mark, enqueue, mark, register, start};
/// use stationmaster::service::{Admitter, AdmitterOptions, Callbacks, Delivery, Service};
/// use stationmaster::store::{MemoryStore, StoreExt};
/// use stationmaster::time::from_micros;
/// use stationmaster::{NewTask, TaskKey, TaskState};
///
/// let (store, now) = (Arc::new(MemoryStore::new()), from_micros(0));
/// let key = TaskKey::new("prod", "nightly", "r1", "wait")?;
/// store.write(|tx| enqueue(tx, now, &[NewTask::new(key.clone())]))?;
/// let task = Admitter::new(store.clone(), "w".try_into()?, AdmitterOptions::default())?.tick(now)?.granted.remove(0);
/// let settings = Settings::new(Duration::from_secs(30), Duration::from_secs(3600))?;
/// let context = PokeContext::from_json(r#"{"path": "/data/in.csv"}"#)?;
/// let sensor = NewSensor::new(task.lease_ref(), "file".try_into()?, context, settings);
/// store.write(|tx| {
///     start(tx, now, &[sensor.lease])?;
///     register(tx, now, &[sensor.clone()])?;
///     mark(tx, now, &[Mark::new(key.clone(), TaskState::Failed, "not today")])
/// })?;
///
/// let (told, heard) = std::sync::mpsc::channel();
/// let mut callbacks = Callbacks::new().on_cancelled(move |event: &SensorEvent| {
///     told.send(event.ending.message.clone())?;
///     Ok(())
/// });
/// let mut delivery = Delivery::new(store.clone(), 1_000, move |event: &SensorEvent| callbacks.call(event));
/// assert_eq!(delivery.tick(now)?.delivered, 1);
/// assert_eq!(heard.recv().ok(), Some(Some("not today".to_owned())));
/// assert_eq!(delivery.tick(now)?.delivered, 0);
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub struct Delivery {
    store: Arc<dyn Store>,
    limit: usize,
    follow: Duration,
    callback: Box<dyn FnMut(&SensorEvent) -> Delivered + Send>,
    /// The place up to which this round has come.
    after: u64,
    /// Tasks one of whose events was not taken in this round.
    waiting: HashSet<TaskKey>,
    watch: Watch,
}

/// The numbers of one tick of a [`Delivery`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeliveryReport {
    /// Events that were delivered and acknowledged.
    pub delivered: usize,
    /// Events whose callback failed or panicked, with what it said.
    pub failed: Vec<(SensorEvent, String)>,
    /// Events that wait for an earlier one of their task.
    pub waiting: usize,
    /// When to come again: at once if there is more, in a second if a callback failed, else to look for new events
    /// ([`Delivery::follow`]).
    pub next_due: Option<DateTime<Utc>>,
}

impl Report for DeliveryReport {
    fn next_due(&self) -> Option<DateTime<Utc>> {
        self.next_due
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("limit", &self.limit)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}

impl Delivery {
    /// Delivers to this callback, at most `limit` events in a tick; at least one.
    pub fn new(
        store: Arc<dyn Store>,
        limit: usize,
        callback: impl FnMut(&SensorEvent) -> Delivered + Send + 'static,
    ) -> Self {
        let (after, waiting) = (0, HashSet::new());
        let follow = Duration::from_secs(1);
        let (callback, watch) = (Box::new(callback), Watch::default());
        Self { store, limit: limit.max(1), follow, callback, after, waiting, watch }
    }

    /// Sets how often it looks for new events: so late a callback may come, for one read of the store. Default: one second.
    #[must_use]
    pub fn follow(mut self, interval: Duration) -> Self {
        self.follow = interval;
        self
    }

    /// Tells this observer what it counts and measures.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.watch = observer.into();
        self
    }

    fn deliver(&mut self, event: &SensorEvent) -> Result<(), String> {
        let callback = &mut self.callback;
        match catch_unwind(AssertUnwindSafe(|| callback(event))) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(ToString::to_string);
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                Err(format!("the callback panicked: {}", text.as_deref().unwrap_or("no message")))
            }
        }
    }

    fn begin_round(&mut self) {
        self.after = 0;
        self.waiting.clear();
    }

    fn go_on(&mut self, now: DateTime<Utc>) -> Result<DeliveryReport> {
        let (after, limit) = (self.after, self.limit);
        let events = self.store.read(|tx| Ok(tx.events(after, limit)?))?;
        let mut report = DeliveryReport::default();
        let mut taken = Vec::with_capacity(events.len());
        for event in &events {
            self.after = event.seq;
            if self.waiting.contains(&event.task) {
                report.waiting += 1;
                continue;
            }
            match self.deliver(event) {
                Ok(()) => taken.push(event.seq),
                Err(why) => {
                    self.waiting.insert(event.task.clone());
                    report.failed.push((event.clone(), why));
                }
            }
        }
        if !taken.is_empty()
            && let Err(error) = self.store.write(|tx| Ok(tx.acknowledge_events(&taken)?))
        {
            self.begin_round();
            return Err(error);
        }
        report.delivered = taken.len();
        let more = events.len() == limit;
        let stuck = !self.waiting.is_empty();
        if !more {
            self.begin_round();
        }
        let pause = match (more, stuck) {
            (true, _) => Duration::ZERO,
            (false, true) => Duration::from_secs(1),
            (false, false) => self.follow,
        };
        report.next_due = Some(time::add(now, pause));
        Ok(report)
    }
}

impl Service for Delivery {
    type Report = DeliveryReport;

    fn tick(&mut self, now: DateTime<Utc>) -> Result<DeliveryReport> {
        let tick = Tick::delivery();
        let answer = self.go_on(now);
        self.watch.delivered(tick, &answer);
        answer
    }
}
