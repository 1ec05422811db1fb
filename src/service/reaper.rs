//! The reaper: ends the leases of dead holders, and deletes old rows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::driver::{Report, Service};
use super::observer::metrics::{EVENTS_FORGOTTEN, FORGOTTEN, KEPT_BY_EVENTS, REAPED};
#[cfg(feature = "tracing")]
use super::observer::spans::debug_or_warn;
use super::observer::{Emitter, Observer, Reported, Tick, became, spans};
use super::retention::{Forgotten, Retention, forget};
use crate::base::setters;
use crate::error::{Invalid, Result};
use crate::lease::reaper_grace::Grace;
use crate::ops::{Reaped, reap_expired_by};
use crate::store::Store;
use crate::store::serving::for_service;
use crate::time::Timestamp;

/// What one tick of a [`Reaper`] did.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ReapReport {
    /// The tasks whose leases it ended.
    pub reaped: Vec<Reaped>,
    /// How many ended tasks it forgot.
    pub forgotten: usize,
    /// How many unacknowledged events it forgot ([`Reaper::retain_events_for`]).
    pub events_forgotten: usize,
    /// How many tasks it would have forgotten if their events were acknowledged. Counts only tasks of the
    /// oldest events, as many events as the tick's limit. 0 if ended tasks are kept for ever.
    pub kept_by_events: usize,
    /// Until when expired leases are left alone, because the reaper just started or was delayed. `None` if
    /// they are not left alone.
    pub waits_until: Option<Timestamp>,
    /// When the next tick is due: at the earliest expiry of the remaining leases, or when the wait is over,
    /// but within one grace. It is the instant of this tick if the tick reached its limit. `None` if there
    /// are no leases and no grace.
    pub next_due: Option<Timestamp>,
}

/// A tick should follow after this time while other transactions hold expired leases.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Ends leases that were not renewed in time: see [`Tx::reap`](crate::store::Tx::reap).
///
/// Running one in each process does no harm: each lease is ended once.
///
/// # Grace
///
/// What delays a reaper may delay the holders, too. So the first tick after a start ends no lease, and
/// neither does a tick that finds the reaper was delayed. A tick counts as delayed if it comes late, more
/// than a grace after the previous one, after ticks that failed, or if it had to wait for the store. That
/// includes a machine that was suspended and a clock that was set forward. Holders may then renew for one
/// [grace](Reaper::grace), counted from the instant at which the store admitted the tick.
/// [`ReapReport::waits_until`] says until when. A lease that expires after the wait is ended when it expires.
/// Less than a twentieth of the grace does not count as late.
///
/// Each reaper judges by its own ticks: a punctual one continues while another waits. A reaper asks to be
/// called at least once per grace. A loop that calls it less often delays the end of a lease to the second
/// tick after its expiry. A lease that had expired when a wait began is ended at the first tick after the
/// wait, even if the machine slept through it.
///
/// A reaper keeps this state in memory only. One that is created for each tick, for example by a cron job,
/// waits every time and ends nothing. Give it a grace of zero, or call [`Tx::reap`](crate::store::Tx::reap).
///
/// # Rows of the host's own
///
/// A tick commits on its own, and its report comes afterwards. If the process dies in between, the report is
/// lost. A host that keeps its own rows in step with its tasks calls [`Tx::reap`](crate::store::Tx::reap) in
/// its own transaction instead, and changes them there.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use stationmaster::ops::Finished;
/// use stationmaster::service::{Admitter, Reaper, Service};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::{NewTask, TaskKey, Timestamp};
///
/// let store = Arc::new(MemoryStore::new());
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
/// let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
/// store.write(|tx| tx.enqueue(at(0), std::slice::from_ref(&task)))?;
/// Admitter::new(store.clone(), "dead".try_into()?).lease(Duration::from_secs(30)).tick(at(0))?;
///
/// let mut reaper = Reaper::new(store);
/// assert_eq!(reaper.tick(at(1))?.waits_until, Some(at(21)));
/// assert_eq!(reaper.tick(at(21))?.next_due, Some(at(30)));
/// assert_eq!(reaper.tick(at(30))?.reaped[0].became, Finished::Ready);
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug)]
pub struct Reaper {
    store: Arc<dyn Store>,
    limit: usize,
    retention: Retention,
    grace: Grace,
    emitter: Emitter,
}

impl Reaper {
    /// Creates a reaper for this store: at most 1,000 leases a tick, a grace of 20 seconds. Ended tasks are
    /// kept for ever, and events until they are acknowledged.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store: for_service(store),
            limit: 1_000,
            retention: Retention::default(),
            grace: Grace::new(Duration::from_secs(20)),
            emitter: Emitter::default(),
        }
    }

    setters! {
        /// Sets the most leases that one tick ends, and the most tasks that it forgets; at least 1. Default:
        /// 1,000.
        limit: usize;
        /// Sets how long holders may still renew after the reaper was delayed. Default: 20 seconds.
        ///
        /// Choose it longer than the interval at which holders renew, which is usually a third of a lease.
        /// With [`Duration::ZERO`] every tick ends expired leases, even the first. That suits a program whose
        /// holders all renew before its reaper ticks, one that creates a reaper for each tick, and one that
        /// jumps in virtual time.
        grace(length: Duration) { grace = Grace::new(length) }
        /// Forgets tasks this long after they ended. Enqueueing a forgotten task's key again makes a new
        /// task. Default: tasks are kept for ever.
        ///
        /// Two things keep a task longer. It stays while it has unacknowledged events
        /// ([`ReapReport::kept_by_events`] counts such tasks). A host that does not use events sets
        /// [`Self::retain_events_for`]. And a task that was a sensor stays for at least a minute, so that the
        /// pokers that share its target learn of its end. A poker that looks less often reads all its sensors
        /// again.
        retain_ended_for(length: Duration) { retention.ended = Some(length) }
        /// Forgets events this long after they were recorded, acknowledged or not. Default: events are kept
        /// until they are acknowledged. A [`Delivery`](super::Delivery) never delivers events that it has not
        /// delivered by then. Zero suits a host that does not use events. Events go in the order in which
        /// they were recorded. So an event recorded by a clock that ran ahead keeps those behind it until its
        /// instant has passed.
        retain_events_for(length: Duration) { retention.events = Some(length) }
        /// Reports what it counts and measures to this observer.
        observed_by(observer: Arc<dyn Observer>) { emitter = observer.into() }
    }
}

impl Service for Reaper {
    type Report = ReapReport;

    /// Ends expired leases, and forgets what is no longer kept.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Store`] if the store fails. [`Invalid::Zero`] for a limit of 0: such a reaper would
    /// always be due at once, and end nothing.
    fn tick(&mut self, now: Timestamp) -> Result<ReapReport> {
        if self.limit == 0 {
            return Err(Invalid::Zero { what: "a reaper's limit" }.into());
        }
        let (limit, tick, called) = (self.limit, Tick::begin("reaper", spans::reap()), Instant::now());
        let mut grace = self.grace;
        let answer = self.store.write(|tx| {
            let first_expiry = tx.next_expiry()?;
            // Only now is it known that the store admitted the tick. A body that runs again must begin with
            // the committed state.
            grace = self.grace;
            let expired_by = grace.enter(now, called.elapsed(), first_expiry);
            let looks = expired_by.filter(|by| first_expiry.is_some_and(|first| first <= *by));
            let reaped = match looks {
                Some(by) => reap_expired_by(tx, now, by, limit)?,
                None => Vec::new(),
            };
            let Forgotten { tasks: forgotten, events: events_forgotten, kept_by_events } =
                forget(tx, now, self.retention, limit)?;
            // A store may have told an earlier instant than the first expiry, and know better once it looked.
            let left = if looks.is_none() { first_expiry } else { tx.next_expiry()? };
            let more = reaped.len().max(forgotten).max(events_forgotten) >= limit;
            // What is left and expired is held by other transactions. It is not asked for without a pause.
            let is_held = left.zip(expired_by).is_some_and(|(left, by)| left <= by);
            let next_due = match (more, is_held) {
                (true, _) => Some(now),
                (false, true) => Some(now + LOOK_AGAIN),
                (false, false) => grace.next_due(left),
            };
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
    fn next_due(&self) -> Option<Timestamp> {
        self.next_due
    }
}

impl ReapReport {
    /// Returns how many of the tasks had this outcome.
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
