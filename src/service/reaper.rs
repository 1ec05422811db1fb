//! The reaper: takes back what dead holders held, and forgets what is old.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use super::driver::{Report, Service};
use super::observer::metrics::{EVENTS_FORGOTTEN, FORGOTTEN, KEPT_BY_EVENTS, REAPED};
#[cfg(feature = "tracing")]
use super::observer::spans::debug_or_warn;
use super::observer::{Emitter, Observer, Reported, Tick, became, spans};
use super::retention::{Forgotten, forget};
use crate::base::setters;
use crate::error::{Invalid, Result};
use crate::lease::grace::Grace;
use crate::ops::{Reaped, reap_expired_by};
use crate::store::Store;
use crate::time;

/// How a [`Reaper`] works.
///
/// Defaults: 1,000 leases a tick; a grace of 20 s; ended tasks are kept for ever, and so are events until
/// they are acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReaperOptions {
    /// The most leases one tick ends, and the most tasks it forgets; at least 1.
    pub limit: usize,
    /// How long holders may still renew after the reaper was held up; see [`Reaper`].
    pub grace: Duration,
    /// How long ended tasks are kept; `None` means for ever.
    pub retain_ended_for: Option<Duration>,
    /// How long the events of sensors are kept if the host does not acknowledge them; `None` means for ever.
    pub retain_events_for: Option<Duration>,
}

impl Default for ReaperOptions {
    fn default() -> Self {
        Self { limit: 1_000, grace: Duration::from_secs(20), retain_ended_for: None, retain_events_for: None }
    }
}

impl ReaperOptions {
    setters! {
        /// Sets the most leases one tick ends, and the most tasks it forgets; at least 1, checked by
        /// [`Reaper::new`].
        limit: usize;
        /// Sets how long holders may still renew after the reaper was held up.
        ///
        /// Choose it above the interval at which holders renew, which is a third of a lease as a rule.
        /// [`Duration::ZERO`] ends what has expired at every tick, also at the first: for a program whose
        /// holders all renew before its reaper ticks, for one that makes a reaper for each tick, and for one
        /// that jumps in virtual time.
        grace: Duration;
        /// Forgets tasks this long after they ended. Enqueueing a forgotten task's key again makes a new
        /// task.
        ///
        /// Two things keep a task longer. While events of it are not acknowledged it stays
        /// ([`ReapReport::kept_by_events`] counts such tasks): a host without use for events sets
        /// [`Self::retain_events_for`]. And a task that was a sensor stays for a minute at least, so that the
        /// pokers that share its target learn of its end; one that looks more seldom reads all its sensors
        /// again.
        retain_ended_for: Some(Duration);
        /// Forgets events this long after they were noted, acknowledged or not. What a
        /// [`Delivery`](super::Delivery) has not delivered by then it never delivers. Zero suits a host
        /// without use for events. They go in the order in which they were noted, so one that was noted by a
        /// clock that ran ahead keeps those behind it until its instant has passed.
        retain_events_for: Some(Duration);
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
    /// How many events it forgot that nobody had acknowledged ([`ReaperOptions::retain_events_for`]).
    pub events_forgotten: usize,
    /// How many tasks it would have forgotten if their events were acknowledged: of those that the oldest
    /// events belong to, as many events as the tick's limit. 0 if ended tasks are kept for ever.
    pub kept_by_events: usize,
    /// Until when expired leases are left alone, because the reaper just started or was held up; `None` if
    /// they are not.
    pub waits_until: Option<DateTime<Utc>>,
    /// When the next tick is due: at the earliest expiry of the leases that are left, or when the wait is
    /// over, but within one grace. The instant of this tick if it did as much as it was allowed to; `None` if
    /// there are no leases and no grace.
    pub next_due: Option<DateTime<Utc>>,
}

/// Ends leases that were not renewed in time: see [`Tx::reap`](crate::store::Tx::reap).
///
/// One in each process does no harm: each lease is ended once.
///
/// # Grace
///
/// What holds up a reaper may hold up the holders, too. So the first tick after a start ends no lease, and
/// neither does one that finds that the reaper was held up: it comes late, more than a grace after the one
/// before it, after ticks that failed, or it had to wait for the store. That includes a machine that was
/// suspended and a clock that was set forward. Holders may then renew for one [grace](ReaperOptions::grace),
/// counted from the instant at which the tick was let in; [`ReapReport::waits_until`] tells until when. A
/// lease that expires after the wait is ended when it expires. Less than a twentieth of the grace does not
/// count as late.
///
/// Each reaper judges by its own ticks: one that was punctual goes on while another waits. A reaper asks to
/// be called at least once a grace. A loop that calls it less often delays the end of a lease to the second
/// tick after its expiry. A lease that had expired when a wait began is ended at the first tick after the
/// wait, even if the machine slept through it.
///
/// A reaper remembers in memory alone. One that is made again for each tick, by a cron job for instance,
/// waits at each of them and ends nothing: give it a grace of zero, or call
/// [`Tx::reap`](crate::store::Tx::reap).
///
/// # Rows of the host's own
///
/// A tick commits on its own, and its report comes afterwards: if the process dies between the two, nobody
/// reads it. A host that keeps rows of its own in step with its tasks calls
/// [`Tx::reap`](crate::store::Tx::reap) in its own transaction instead, and changes them there.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use stationmaster::ops::Finished;
/// use stationmaster::service::{Admitter, AdmitterOptions, Reaper, ReaperOptions, Service};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::time::from_micros;
/// use stationmaster::{NewTask, TaskKey};
///
/// let store = Arc::new(MemoryStore::new());
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
/// let at = |seconds: i64| from_micros(seconds * 1_000_000);
/// store.write(|tx| tx.enqueue(at(0), std::slice::from_ref(&task)))?;
/// let options = AdmitterOptions::default().lease(Duration::from_secs(30));
/// Admitter::new(store.clone(), "dead".try_into()?, options)?.tick(at(0))?;
///
/// let mut reaper = Reaper::new(store, ReaperOptions::default())?;
/// assert_eq!(reaper.tick(at(1))?.waits_until, Some(at(21)));
/// assert_eq!(reaper.tick(at(21))?.next_due, Some(at(30)));
/// assert_eq!(reaper.tick(at(30))?.reaped[0].became, Finished::Ready);
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug)]
pub struct Reaper {
    store: Arc<dyn Store>,
    options: ReaperOptions,
    grace: Grace,
    emitter: Emitter,
}

impl Reaper {
    /// Makes a reaper of this store.
    ///
    /// # Errors
    ///
    /// [`Invalid::Zero`] for a limit of 0: such a reaper would be due at once for ever, and end nothing.
    pub fn new(store: Arc<dyn Store>, options: ReaperOptions) -> Result<Self> {
        if options.limit == 0 {
            return Err(Invalid::Zero { what: "a reaper's limit" }.into());
        }
        let grace = Grace::new(options.grace);
        Ok(Self { store, options, grace, emitter: Emitter::default() })
    }

    setters! {
        /// Tells this observer what it counts and measures.
        observed_by(observer: Arc<dyn Observer>) { emitter = observer.into() }
    }
}

impl Service for Reaper {
    type Report = ReapReport;

    fn tick(&mut self, now: DateTime<Utc>) -> Result<ReapReport> {
        let now = time::truncate(now);
        let (options, tick, called) = (&self.options, Tick::begin("reaper", spans::reap()), Instant::now());
        let mut grace = self.grace;
        let answer = self.store.write(|tx| {
            let first_expiry = tx.next_expiry()?;
            // Only now it is known that the store let the tick in. A body that is run again begins with what
            // was committed.
            grace = self.grace;
            let expired_by = grace.enter(now, called.elapsed(), first_expiry);
            let reaped = match expired_by.filter(|by| first_expiry.is_some_and(|first| first <= *by)) {
                Some(by) => reap_expired_by(tx, now, by, options.limit)?,
                None => Vec::new(),
            };
            let Forgotten { tasks: forgotten, events: events_forgotten, kept_by_events } =
                forget(tx, now, options)?;
            let left = if reaped.is_empty() { first_expiry } else { tx.next_expiry()? };
            let more = reaped.len().max(forgotten).max(events_forgotten) >= options.limit;
            let next_due = if more { Some(now) } else { grace.next_due(left) };
            let waits_until = grace.waits_until();
            Ok(ReapReport { reaped, forgotten, events_forgotten, kept_by_events, waits_until, next_due })
        });
        match &answer {
            Ok(_) => self.grace = grace,
            Err(_) => self.grace.failed(now),
        }
        self.emitter.ticked(&tick, answer.as_ref().ok(), answer.as_ref().err());
        answer
    }
}

impl Report for ReapReport {
    fn next_due(&self) -> Option<DateTime<Utc>> {
        self.next_due
    }
}

impl ReapReport {
    /// Returns how many of the tasks became this.
    fn became(&self, word: &str) -> usize {
        self.reaped.iter().filter(|reaped| became(reaped.became) == word).count()
    }
}

impl Reported for ReapReport {
    fn emit(&self, to: &Emitter) {
        for word in ["ready", "retry", "failed"] {
            to.counter(&REAPED, &[("became", word)], self.became(word));
        }
        to.counter(&FORGOTTEN, &[], self.forgotten);
        to.counter(&EVENTS_FORGOTTEN, &[], self.events_forgotten);
        to.gauge(&KEPT_BY_EVENTS, &[], self.kept_by_events as u64);
    }

    #[cfg(feature = "tracing")]
    fn trace(&self, took_s: f64) {
        let expired = self.reaped.len();
        debug_or_warn!(expired > 0, target: "stationmaster::reaper",
            expired, ready = self.became("ready"), retry = self.became("retry"), failed = self.became("failed"),
            forgotten = self.forgotten, took_s, "reaped");
        for reaped in &self.reaped {
            let holder = reaped.task.lease.as_ref().map(|lease| lease.holder.as_str());
            tracing::debug!(target: "stationmaster::reaper",
                task = %reaped.task.key, holder, became = became(reaped.became), "lease expired");
        }
    }
}
