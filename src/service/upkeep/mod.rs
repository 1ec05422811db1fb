//! Upkeep: ends the leases of dead holders, deletes old rows, and optionally closes silent runs, audits and repairs.

mod chores;
mod report;
mod retention;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::chores::Chores;
pub use self::report::UpkeepReport;
use self::retention::{Forgotten, Retention, forget};
use super::driver::{LoopHandle, Service};
use super::observer::{Emitter, Observer, Tick, spans};
use super::wanted::Wanted;
use crate::base::setters;
use crate::error::{Invalid, Result};
use crate::lease::grace::Grace;
use crate::ops::reap_expired_by;
use crate::run::RunStatus;
use crate::service::numbers::latest_changes;
use crate::store::Store;
use crate::store::serving::for_service;
use crate::task::TaskState;
use crate::time::Timestamp;

/// A tick should follow after this time if other transactions hold expired leases.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Keeps a store in order: ends leases that were not renewed in time, and optionally does other regular work.
///
/// | what | default | set by |
/// |---|---|---|
/// | ends expired leases: see [`Tx::reap`](crate::store::Tx::reap) | always | [`grace`](Self::grace) |
/// | forgets ended tasks, by how they ended | kept forever | [`retain_ended_for`](Self::retain_ended_for), [`retain_state_for`](Self::retain_state_for) |
/// | forgets events of the feed | once all consumers have accepted them | [`retain_feed_for`](Self::retain_feed_for), [`drop_consumers_after`](Self::drop_consumers_after) |
/// | closes runs whose heartbeats stopped | off | [`close_runs_silent_for`](Self::close_runs_silent_for) |
/// | forgets stopped runs | kept forever | [`retain_runs_for`](Self::retain_runs_for) |
/// | forgets what ticks granted | admission ticks do | [`retain_requests_for`](Self::retain_requests_for) |
/// | makes overdue tasks ready | admission ticks do | [`promotes`](Self::promotes) |
/// | audits the store | off | [`audit_every`](Self::audit_every) |
/// | repairs counters | off | [`repairs`](Self::repairs) |
///
/// A tick does at most [`limit`](Self::limit) of each, and is due again at once if there is more. Leases, ended tasks
/// and the feed share one transaction. The other parts run afterwards in separate transactions, so that a failure there
/// undoes none of that: [`UpkeepReport::errors`]. The audit is the only part without a bound.
///
/// You may run one in each process: each lease is still ended only once. Audits are the exception: each one reads the
/// whole store, so enable them in only one process.
///
/// # Grace
///
/// What delays upkeep may delay the holders, too. So the first tick after a start ends no lease, and neither does a
/// tick that finds that upkeep was delayed. A tick counts as delayed in these cases: it comes more than a grace after
/// the previous one; it follows ticks that failed; it had to wait for the store. That includes a machine that was
/// suspended and a clock that was set forward.
///
/// Holders may then renew for one [grace](Upkeep::grace), counted from the instant at which the store admitted the
/// tick. [`UpkeepReport::waits_until`] is the end of this wait. A lease that expires after the wait is ended when it
/// expires. A delay below a twentieth of the grace does not count.
///
/// Each upkeep judges by its own ticks: a punctual one continues while another waits. Call upkeep at least once per
/// grace; its reports ask for that. A loop that calls it less often delays the end of a lease to the second tick after
/// its expiry. A lease that had expired when a wait began is ended at the first tick after the wait, even if the
/// machine slept through it.
///
/// Upkeep keeps this state only in memory. If it is created for each tick, for example by a cron job, it waits every
/// time and ends nothing. Give it a grace of zero, or call [`Tx::reap`](crate::store::Tx::reap).
///
/// # Cancels
///
/// A [cancel](crate::store::Tx::cancel) can bring the end of a lease forward. Upkeep that sleeps until the next expiry
/// does not notice that, and ends the lease only when its loop wakes, up to a grace later. So let the handle that is
/// woken for cancels wake upkeep's loop, too: [`LoopHandle::wakes_for_cancels`](super::LoopHandle::wakes_for_cancels).
///
/// # The host's own rows
///
/// A tick commits before its report returns. If the process dies in between, the report is lost. A host that keeps its
/// own rows in step with its tasks calls [`Tx::reap`](crate::store::Tx::reap) in its own transaction instead, and
/// changes them there.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use stationmaster::ops::Finished;
/// use stationmaster::service::{Admitter, Upkeep, Service};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::{NewTask, TaskKey, Timestamp};
///
/// let store = Arc::new(MemoryStore::new());
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
/// let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
/// store.write(|tx| tx.enqueue(at(0), std::slice::from_ref(&task)))?;
/// Admitter::new(store.clone(), "dead".try_into()?).lease(Duration::from_secs(30)).tick(at(0))?;
///
/// let mut upkeep = Upkeep::new(store);
/// assert_eq!(upkeep.tick(at(1))?.waits_until, Some(at(21)));
/// assert_eq!(upkeep.tick(at(21))?.next_due, Some(at(30)));
/// assert_eq!(upkeep.tick(at(30))?.reaped[0].became, Finished::Ready);
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug)]
pub struct Upkeep {
    store: Arc<dyn Store>,
    limit: usize,
    retention: Retention,
    chores: Chores,
    grace: Grace,
    emitter: Emitter,
}

impl Upkeep {
    /// Creates upkeep for this store: at most 1,000 leases a tick, a grace of 20 seconds. Ended tasks are kept forever,
    /// and events of the feed until every consumer has accepted them.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store: for_service(store),
            limit: 1_000,
            retention: Retention::default(),
            chores: Chores::default(),
            grace: Grace::new(Duration::from_secs(20)),
            emitter: Emitter::default(),
        }
    }

    setters! {
        /// Sets the most leases that one tick ends, and the most that it forgets, closes or makes ready of each kind;
        /// at least 1. Each end state of tasks counts separately. Default: 1,000.
        limit: usize;
        /// Sets how long holders may still renew after upkeep was delayed. Default: 20 seconds.
        ///
        /// Choose it longer than the interval at which holders renew, which is usually a third of a lease.
        /// With [`Duration::ZERO`] every tick ends expired leases, even the first. That suits a program whose
        /// holders all renew before its upkeep ticks, one that creates upkeep for each tick, and one that
        /// jumps in virtual time.
        grace(length: Duration) { grace = Grace::new(length) }
        /// Forgets tasks this long after they ended, unless [`Self::retain_state_for`] names their end state.
        /// Enqueueing a forgotten task's key creates a new task. Default: tasks are kept forever.
        ///
        /// A task that was a sensor stays for at least a minute, so that pokers that share its target learn of its
        /// end. A poker that looks less often reads all its sensors again. Events of the feed outlive their tasks.
        retain_ended_for(length: Duration) { retention.ended = Some(length) }
        /// Forgets tasks this long after they ended in this state, whatever [`Self::retain_ended_for`] says.
        /// With [`Duration::MAX`] they are kept forever. A tick returns [`Invalid::NotAnEnd`] for a state
        /// that does not end a task.
        ///
        /// # Examples
        ///
        /// ```
        /// use std::sync::Arc;
        /// use std::time::Duration;
        /// use stationmaster::TaskState;
        /// use stationmaster::service::Upkeep;
        /// use stationmaster::store::MemoryStore;
        ///
        /// let day = Duration::from_secs(86_400);
        /// let upkeep = Upkeep::new(Arc::new(MemoryStore::new()))
        ///     .retain_ended_for(day)
        ///     .retain_state_for(TaskState::Failed, 30 * day);
        /// # let _ = upkeep;
        /// ```
        retain_state_for(state: TaskState, length: Duration) { retention.states.insert(state, length) }
        /// Forgets events of the [feed](super::FeedReader) at this age, even if consumers have not read them yet.
        /// Default: only events that every consumer has accepted are forgotten, and none while there is no consumer.
        ///
        /// This bounds how many events a consumer can hold back. Its reports contain how many events it lost.
        retain_feed_for(length: Duration) { retention.feed = Some(length) }
        /// Drops consumers of the [feed](super::FeedReader) that have not read for longer than this: they no longer
        /// hold back events. A consumer that reads again continues from its cursor, and its report says how many events
        /// it lost. Default: never.
        drop_consumers_after(length: Duration) { retention.consumers = Some(length) }
        /// Closes watched runs that sent no heartbeat for longer than this, at their last heartbeat and with this
        /// status: see [`Tx::close_silent_runs`](crate::store::Tx::close_silent_runs). At least a microsecond.
        /// Default: runs stay open.
        ///
        /// The [grace](Self::grace) applies to runs, too: what delayed upkeep may have delayed their heartbeats.
        close_runs_silent_for(length: Duration, status: RunStatus) { chores.silent = Some((length, status)) }
        /// Forgets runs that both started and stopped longer ago than this. Open runs stay, however old. Default: runs
        /// are kept forever.
        retain_runs_for(length: Duration) { chores.runs = Some(length) }
        /// Forgets what ticks granted this long ago. Default: off, because admission ticks forget it themselves. They
        /// keep no more than 1,024 of the ticks that no later one replaced. This setting is useful if no process
        /// admits tasks.
        ///
        /// Choose it no shorter than [`Admitter::remember`](super::Admitter::remember). When a forgotten tick
        /// is repeated, it counts as a new one. On PostgreSQL it waits for ticks, and they wait for it.
        retain_requests_for(length: Duration) { chores.requests = Some(length) }
        /// Makes overdue tasks ready, as each admission tick does. Default: off. Processes that admit make up to
        /// 10,000 of them ready in each tick, and are due again at once while there are more. Enable it if processes
        /// admit rarely, so that tasks do not pile up until one does. On PostgreSQL it waits for ticks, and they wait
        /// for it.
        promotes(promotes: bool) { chores.promotes = promotes }
        /// Compares every counter with the rows that it counts, once per interval: see
        /// [`ReadTx::audit`](crate::store::ReadTx::audit). The first audit is due one interval after the first tick.
        /// At least a microsecond. Default: off.
        ///
        /// An audit reads every task of the store, and has no limit. Meanwhile leases wait to be ended, and the memory
        /// store blocks all writers. Once a day, in one process, is often enough. If a tick took longer than a grace,
        /// the next one waits for another grace. If an audit takes that long, give it its own `Upkeep`.
        audit_every(interval: Duration) { chores.audit_every = Some(interval) }
        /// Repairs counters that an audit found wrong: see
        /// [`Tx::repair_counters`](crate::store::Tx::repair_counters). Default: off, so that a person sees them first.
        /// Anything else that an audit finds is reported and never repaired.
        repairs(repairs: bool) { chores.repairs = repairs }
        /// Reports what it counts and measures to this observer.
        observed_by(observer: Arc<dyn Observer>) { emitter = observer.into() }
    }
}

impl Service for Upkeep {
    type Report = UpkeepReport;

    fn woken_by(&mut self, handle: &LoopHandle) {
        // It ends a cancelled lease at its deadline.
        handle.wants(Wanted::CANCELS);
    }

    /// Ends expired leases, forgets what is no longer kept, and does the optional parts that are enabled.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Store`] if the store fails before the leases are ended; afterwards the failure is in the
    /// report. [`Invalid::Zero`] for a limit of 0: such upkeep would always be due at once, and end nothing.
    /// [`Invalid::Duration`] and [`Invalid::NotAnEnd`] for a length or a state that is refused.
    fn tick(&mut self, now: Timestamp) -> Result<UpkeepReport> {
        if self.limit == 0 {
            return Err(Invalid::Zero { what: "upkeep's limit" }.into());
        }
        self.retention.check()?;
        self.chores.check()?;
        let (limit, tick, called) = (self.limit, Tick::begin("upkeep", spans::reap()), Instant::now());
        let (mut grace, mut dead_by, mut numbers) = (self.grace, None, false);
        let mut answer = self.store.write(|tx| {
            let first_expiry = tx.raw().next_look(now)?;
            // Only now is it known that the store admitted the tick. If the body runs again, it must begin with the
            // committed state.
            grace = self.grace;
            let expired_by = grace.enter(now, called.elapsed(), first_expiry);
            dead_by = expired_by;
            let looks = expired_by.filter(|by| first_expiry.is_some_and(|first| first <= *by));
            let reaped = match looks {
                Some(by) => reap_expired_by(tx, now, by, limit)?,
                None => Vec::new(),
            };
            let Forgotten { tasks: forgotten, feed, dropped, is_fed, is_full } =
                forget(tx, now, &self.retention, limit)?;
            numbers = is_fed;
            // A store may have returned an instant before the first expiry, and knows better after a look.
            let left = if looks.is_none() { first_expiry } else { tx.raw().next_look(now)? };
            let more = is_full || reaped.len() >= limit;
            // Other transactions hold the expired leases that are left. Do not ask for them without a pause.
            let is_held = left.zip(expired_by).is_some_and(|(left, by)| left <= by);
            let next_due = match (more, is_held) {
                (true, _) => Some(now),
                (false, true) => Some(now + LOOK_AGAIN),
                (false, false) => grace.next_due(left),
            };
            let waits_until = grace.waits_until();
            Ok(UpkeepReport {
                reaped,
                forgotten,
                feed_forgotten: feed,
                consumers_dropped: dropped,
                waits_until,
                next_due,
                ..UpkeepReport::default()
            })
        });
        match &mut answer {
            Ok(report) => {
                self.grace = grace;
                // Without a reader, no other process numbers the feed, and unnumbered events are never deleted.
                if numbers {
                    report.errors.extend(latest_changes(&*self.store).err());
                }
                self.chores.work(&*self.store, now, dead_by, limit, report);
                self.emitter.ticked(&tick, Some(&*report), report.errors.first());
            }
            Err(error) => {
                self.grace.failed(now);
                self.emitter.ticked(&tick, None::<&UpkeepReport>, Some(&*error));
            }
        }
        answer
    }
}
