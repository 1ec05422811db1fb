//! Callbacks on the events of sensors.

mod callbacks;

use std::collections::HashSet;
use std::error::Error as StdError;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

pub use callbacks::Callbacks;

use super::driver::{Report, Service};
use super::observer::metrics::EVENTS;
#[cfg(feature = "tracing")]
use super::observer::spans::debug_or_warn;
use super::observer::{Emitter, Observer, Reported, Tick, spans};
use crate::base::setters;
use crate::error::Result;
use crate::id::TaskKey;
use crate::sensor::SensorEvent;
use crate::service::numbers::latest_changes;
use crate::store::Store;
use crate::store::serving::for_service;
use crate::time::Timestamp;

/// How many events are read at once. Few, since their texts may be long.
const PAGE: usize = 32;

/// A tick reads no further page once the texts of its events exceed this in total.
const TICK_BYTES: usize = 64 << 20;

/// The pauses before rejected events are read again: from the first, doubling, to the second.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What a callback returns. After an error the event stays, and is delivered again.
pub type Delivered = Result<(), Box<dyn StdError + Send + Sync>>;

/// Delivers the events of sensors to the host's callback, such as [`Callbacks`], until it accepts them.
///
/// # What holds
///
/// * *At least once.* An event is acknowledged after its callback accepted it. If the process dies in
///   between, or the acknowledgement fails, it is delivered again. A callback recognises it by its `seq`,
///   which is unique in the store for ever.
/// * *In order, per task.* When a callback fails or panics, the later events of that task wait; those of
///   other tasks do not.
/// * *In bulk.* All events that a tick delivered are acknowledged in one transaction.
///
/// Only one delivery at a time should work on a store: two would deliver each event twice. An event that a
/// callback never accepts stays until the host acknowledges it explicitly
/// ([`Tx::acknowledge_events`](crate::store::Tx::acknowledge_events)), or upkeep drops it
/// ([`crate::service::Upkeep::retain_events_for`]).
///
/// A tick delivers at most `limit` events, and fewer if their values and messages exceed 64 MiB together. The
/// next tick continues where it stopped, so events that are never accepted do not block the others.
///
/// Rejected events are retried after a second. While they belong to the same tasks, the pause doubles, up to
/// a minute. Meanwhile only newer events are read and delivered.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use stationmaster::canonical::PokeContext;
/// use stationmaster::sensor::{NewSensor, SensorEvent, Settings};
/// use stationmaster::ops::Mark;
/// use stationmaster::service::{Admitter, Callbacks, Delivery, Service};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::{NewTask, TaskKey, TaskState, Timestamp};
///
/// let (store, now) = (Arc::new(MemoryStore::new()), Timestamp::UNIX_EPOCH);
/// let key = TaskKey::new("prod", "nightly", "r1", "wait")?;
/// store.write(|tx| tx.enqueue(now, &[NewTask::new(key.clone())]))?;
/// let task = Admitter::new(store.clone(), "w".try_into()?).tick(now)?.granted.remove(0);
/// let settings = Settings::new(Duration::from_secs(30), Duration::from_secs(3600))?;
/// let context = PokeContext::from_json(r#"{"path": "/data/in.csv"}"#)?;
/// let sensor = NewSensor::new(task.lease_ref(), "file".try_into()?, context, settings);
/// store.write(|tx| {
///     tx.start(now, &[sensor.lease])?;
///     tx.register(now, &[sensor.clone()])?;
///     tx.mark(now, &[Mark::new(key.clone(), TaskState::Failed, "not today")])
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
    refresh_every: Duration,
    callback: Box<dyn FnMut(&SensorEvent) -> Delivered + Send>,
    /// The place that this round has reached.
    after: u64,
    /// Tasks with an event that was rejected in this round.
    waiting: HashSet<TaskKey>,
    /// The same for the previous round.
    waited: HashSet<TaskKey>,
    /// When the next round begins, if this one reached the last event and left some. Until then only newer
    /// events are read.
    again_at: Option<Timestamp>,
    /// The pause before the next round.
    pause: Duration,
    emitter: Emitter,
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
    /// When the next tick is due: at once if there are more events. Otherwise it looks for new events
    /// ([`Delivery::refresh_every`]) or retries rejected ones.
    pub next_due: Option<Timestamp>,
}

impl Report for DeliveryReport {
    fn next_due(&self) -> Option<Timestamp> {
        self.next_due
    }
}

impl Reported for DeliveryReport {
    fn emit(&self, to: &Emitter) {
        to.counter(&EVENTS, &[("result", "delivered")], self.delivered);
        to.counter(&EVENTS, &[("result", "failed")], self.failed.len());
    }

    #[cfg(feature = "tracing")]
    fn trace(&self, took_s: f64) {
        let (delivered, failed, waiting) = (self.delivered, self.failed.len(), self.waiting);
        debug_or_warn!(failed > 0, target: "stationmaster::delivery", delivered, failed, waiting, took_s, "delivered");
        for (event, error) in &self.failed {
            tracing::debug!(target: "stationmaster::delivery", task = %event.task, seq = event.seq, error, "callback failed");
        }
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
    /// Creates a delivery to this callback. A tick delivers at most `limit` events, but at least one.
    pub fn new(
        store: Arc<dyn Store>,
        limit: usize,
        callback: impl FnMut(&SensorEvent) -> Delivered + Send + 'static,
    ) -> Self {
        Self {
            store: for_service(store),
            limit: limit.max(1),
            refresh_every: Duration::from_secs(1),
            callback: Box::new(callback),
            after: 0,
            waiting: HashSet::new(),
            waited: HashSet::new(),
            again_at: None,
            pause: PAUSES.0,
            emitter: Emitter::default(),
        }
    }

    setters! {
        /// Sets how often it looks for new events, with one read of the store each time. A callback may be
        /// late by this much. Default: one second.
        refresh_every: Duration;
        /// Reports what it counts and measures to this observer.
        observed_by(observer: Arc<dyn Observer>) { emitter = observer.into() }
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
        (self.after, self.again_at) = (0, None);
        self.waited = std::mem::take(&mut self.waiting);
    }

    /// Delivers the next events, page by page. Returns true if the tick ended before the events did.
    fn deliver_some(&mut self, report: &mut DeliveryReport, taken: &mut Vec<u64>) -> Result<bool> {
        let (mut left, mut bytes) = (self.limit, 0);
        latest_changes(&*self.store)?;
        while left > 0 && bytes <= TICK_BYTES {
            let (after, most) = (self.after, left.min(PAGE));
            let events = self.store.read(|tx| tx.events(after, most))?;
            for event in &events {
                self.after = event.seq;
                let texts = [&event.ending.value, &event.ending.message];
                bytes += texts.into_iter().flatten().map(String::len).sum::<usize>();
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
            if events.len() < most {
                return Ok(false);
            }
            left -= events.len();
        }
        Ok(true)
    }

    fn go_on(&mut self, now: Timestamp) -> Result<DeliveryReport> {
        // A clock that was set back must not make it wait longer than the longest pause.
        if self.again_at.is_some_and(|at| at <= now || at > now + PAUSES.1) {
            self.begin_round();
        }
        let (mut report, mut taken) = (DeliveryReport::default(), Vec::new());
        let more = self.deliver_some(&mut report, &mut taken);
        // Including what was delivered before a read failed.
        if !taken.is_empty()
            && let Err(error) = self.store.write(|tx| tx.acknowledge_events(&taken))
        {
            self.begin_round();
            return Err(error);
        }
        report.delivered = taken.len();
        report.next_due = Some(match more? {
            true => now,
            false => self.rest(now, !report.failed.is_empty()),
        });
        Ok(report)
    }

    /// Returns when the next tick is due, after the last event was reached.
    fn rest(&mut self, now: Timestamp, failed: bool) -> Timestamp {
        let follow = now + self.refresh_every;
        if self.waiting.is_empty() {
            self.pause = PAUSES.0;
            self.begin_round();
            return follow;
        }
        match self.again_at {
            // A round has ended.
            None if self.waiting.is_subset(&self.waited) => self.pause = (self.pause * 2).min(PAUSES.1),
            None => self.pause = PAUSES.0,
            // One of the newer events was rejected.
            Some(_) if failed => self.pause = PAUSES.0,
            Some(at) => return at.min(follow),
        }
        let again_at = now + self.pause;
        self.again_at = Some(self.again_at.map_or(again_at, |at| at.min(again_at)));
        again_at.min(follow)
    }
}

impl Service for Delivery {
    type Report = DeliveryReport;

    fn tick(&mut self, now: Timestamp) -> Result<DeliveryReport> {
        let tick = Tick::begin("delivery", spans::deliver());
        let answer = self.go_on(now);
        self.emitter.ticked(&tick, answer.as_ref().ok(), answer.as_ref().err());
        answer
    }
}
