//! The keeper: renews the leases that a process holds.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::driver::{LoopHandle, Report, Service};
use super::observer::metrics::{LEASES_LOST, LEASES_RENEWED};
#[cfg(feature = "tracing")]
use super::observer::spans::debug_or_warn;
use super::observer::{Emitter, Observer, Reported, Tick, spans};
use crate::base::setters;
use crate::bounds::{MAX_NOTE_BYTES, clip_to};
use crate::error::{Error, Invalid, Result};
use crate::lease::keep::LeaseSet;
use crate::lease::{LeaseRef, Renewal};
use crate::ops::{Finish, Finished};
use crate::store::{Store, Tx};
use crate::task::TaskRecord;
use crate::time::Timestamp;

/// Renews leases, and tells each holder what it lost.
///
/// [`Self::keep`] adds the lease of a granted task and returns its [`Kept`]. The lease is renewed for as long
/// as that lives. Clones share one set of leases: drive one of them, on a thread with [`drive`](super::drive) or on a
/// runtime with `tokio::drive`, and give the others to the code that admits.
///
/// [`Admitter::keeper`](super::Admitter::keeper) creates a keeper with the admitter's lease length, so that you set it
/// only once.
///
/// # When it renews
///
/// A lease is renewed a third of its length after it was granted or last renewed. One call renews all leases that are
/// due, and those that become due within another sixth. So while the store confirms, two calls are at least a sixth of
/// a lease apart, however many leases there are.
///
/// It renews all leases at once if its driver's handle is woken for a cancel ([`LoopHandle::wake_for_cancel`]). Many
/// cancels in a row share a call. A lease that is kept after that, but was granted before, is also renewed at once.
///
/// If the store fails, or returns [`Renewal::Busy`], the keeper tries again after a pause. The first pause is a 64th of
/// the length, but at most a second. Each further pause is twice as long, up to an eighth of the length. Close to the
/// expiry it is half of the remaining time.
///
/// It calls the store that it was given, and waits for nothing else. On PostgreSQL its transactions use the connection
/// that is reserved for renewals.
///
/// # When a holder is told
///
/// * *Lost*: the store says so. The task ended, or another holder may have it.
/// * *Expired*: the lease was not confirmed in time, although the store was asked. Another holder may be given the task
///   at any time, so the work must stop. The holder learns of it when its lease expires, at that instant and not
///   before. The keeper still tries to renew the lease until its `Kept` is dropped, so that the holder can record an
///   end.
///
/// * *Cancelled*: someone [cancelled](crate::store::Tx::cancel) the task. The holder gets the deadline, which the lease
///   does not outlast. It keeps the task and its slots until it ends the task, or until the deadline. Then it is told
///   that the lease expired.
///
/// A keeper that was delayed for longer than a lease, for example because the machine slept, asks the store first.
/// Upkeep that was delayed as well gives it a [grace](super::Upkeep#grace) for that. If the lease is confirmed, no one
/// else had the task, and the work goes on.
///
/// While a store call hangs, no holder is told anything. So before a holder acts on the outside world, it should ask
/// [`Kept::holds`].
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use stationmaster::service::{Admitter, Upkeep, Service};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::{NewTask, TaskKey, Timestamp};
///
/// let store = Arc::new(MemoryStore::new());
/// let at = |seconds: u64| Timestamp::UNIX_EPOCH + Duration::from_secs(seconds);
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
/// store.write(|tx| tx.enqueue(at(0), std::slice::from_ref(&task)))?;
/// let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?).lease(Duration::from_secs(60));
/// let mut keeper = admitter.keeper();
///
/// let task = admitter.tick(at(0))?.granted.remove(0);
/// let kept = keeper.keep(&task); // the work goes with this
/// assert_eq!(keeper.next_due(), Some(at(20)));
/// assert_eq!(keeper.tick(at(20))?.renewed, 1);
/// assert!(kept.holds(at(79)) && !kept.holds(at(80)));
///
/// // No one ticks, and the task is given to another holder.
/// Upkeep::new(store).grace(Duration::ZERO).tick(at(80))?;
/// assert_eq!(keeper.tick(at(81))?.lost, [task.lease_ref()]);
/// assert!(kept.is_lost());
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Keeper {
    store: Arc<dyn Store>,
    lease: Duration,
    emitter: Emitter,
    shared: Arc<Mutex<State>>,
}

/// What the clones of a keeper and its `Kept` share.
#[derive(Debug)]
struct State {
    set: LeaseSet,
    /// Of the leases of the set.
    entries: HashMap<LeaseRef, Entry>,
    /// When the driver will tick next, as far as is known.
    next_tick: Option<Timestamp>,
    /// Wakes the driver.
    driver: Option<LoopHandle>,
    /// How many cancels the driver's handle had counted when the store was last asked, and when that was.
    cancels_seen: u64,
    cancels_heeded_at: Option<Timestamp>,
}

#[derive(Debug)]
struct Entry {
    slot: Arc<Slot>,
    /// How many `Kept` there are of it.
    handles: usize,
}

impl State {
    /// Makes all leases due at once if the driver's handle was woken for a cancel.
    fn heed_cancels(&mut self, now: Timestamp) {
        let seen = self.driver.as_ref().map_or(0, LoopHandle::cancels_seen);
        if std::mem::replace(&mut self.cancels_seen, seen) != seen {
            self.set.ask_all(now);
            self.cancels_heeded_at = Some(now);
        }
    }

    /// Adds a lease. Returns when to ask the store for it.
    fn insert(&mut self, lease: LeaseRef, expires_at: Timestamp) -> Timestamp {
        let due = self.set.insert(lease, expires_at);
        // Between the grant and this call the task may have been cancelled, and all leases but this one renewed.
        let granted_at = expires_at - self.set.length();
        match self.cancels_heeded_at.filter(|heeded_at| *heeded_at >= granted_at) {
            Some(_) => self.set.ask_at(lease, granted_at),
            None => due,
        }
    }

    /// Takes the notes that the holders of these leases left since the last call.
    fn take_notes(&self, asked: &[LeaseRef]) -> Vec<Note> {
        let note = |lease: &LeaseRef| {
            let (at, text) = self.entries.get(lease)?.slot.note.lock().take()?;
            Some((*lease, at, text))
        };
        asked.iter().filter_map(note).collect()
    }

    /// Puts notes back that were not written, for the next call. A newer one of the same holder stays.
    fn keep_notes(&self, notes: impl IntoIterator<Item = Note>) {
        for (lease, at, text) in notes {
            if let Some(entry) = self.entries.get(&lease) {
                entry.slot.note.lock().get_or_insert((at, text));
            }
        }
    }

    fn slots<'a>(&'a self, leases: &'a [LeaseRef]) -> impl Iterator<Item = Arc<Slot>> + 'a {
        leases.iter().filter_map(|lease| self.entries.get(lease)).map(|entry| entry.slot.clone())
    }

    /// Forgets a lease that its holder does not hold any more.
    fn end(&mut self, lease: LeaseRef) -> Option<Arc<Slot>> {
        self.set.remove(lease);
        let slot = self.entries.remove(&lease)?.slot;
        slot.set_expiry(Timestamp::MIN);
        Some(slot)
    }
}

/// What a keeper and the holder of a lease share.
struct Slot {
    lease: LeaseRef,
    /// In microseconds.
    expires_at: AtomicI64,
    /// Stopped when the holder is told.
    told: LoopHandle,
    /// `None` once they were called.
    calls: Mutex<Option<Vec<Call>>>,
    cancel: Mutex<Cancel>,
    /// What the holder said, and when, that is not written yet.
    note: Mutex<Option<(Timestamp, String)>>,
}

type Call = Box<dyn FnOnce() + Send>;
type CancelCall = Box<dyn FnOnce(Timestamp) + Send>;

/// What a holder learns about a cancel of its task.
#[derive(Default)]
struct Cancel {
    deadline: Option<Timestamp>,
    /// Called when the first deadline is known.
    calls: Vec<CancelCall>,
}

impl Slot {
    fn set_expiry(&self, at: Timestamp) {
        self.expires_at.store(at.as_micros(), Ordering::Release);
    }

    /// Tells the holder. It may call the keeper from there, so no lock is held.
    fn tell(&self) {
        self.told.stop();
        let calls = self.calls.lock().take();
        for call in calls.into_iter().flatten() {
            // A panic in one holder's callback must not keep others from being told. The panic hook has printed it.
            let _ = catch_unwind(AssertUnwindSafe(call));
        }
    }

    /// Tells the holder that its task was cancelled. Returns false if it knew.
    fn tell_cancelled(&self, deadline: Timestamp) -> bool {
        let mut cancel = self.cancel.lock();
        let is_news = cancel.deadline.replace(deadline).is_none();
        let calls = std::mem::take(&mut cancel.calls);
        drop(cancel);
        for call in calls {
            let _ = catch_unwind(AssertUnwindSafe(|| call(deadline)));
        }
        is_news
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expires_at = Timestamp::from_micros(self.expires_at.load(Ordering::Acquire));
        f.debug_struct("Slot")
            .field("lease", &self.lease)
            .field("expires_at", &expires_at)
            .field("is_lost", &self.told.is_stopped())
            .finish_non_exhaustive()
    }
}

impl Keeper {
    /// Creates a keeper of leases of this length, at least one millisecond, in this store.
    ///
    /// It is for leases that a host grants with [`Tx::admit`](crate::store::Tx::admit), or found after a
    /// restart. For those of an admitter there is [`Admitter::keeper`](super::Admitter::keeper).
    pub fn new(store: Arc<dyn Store>, lease: Duration) -> Self {
        let state = State {
            set: LeaseSet::new(lease),
            entries: HashMap::new(),
            next_tick: None,
            driver: None,
            cancels_seen: 0,
            cancels_heeded_at: None,
        };
        Self { store, lease, emitter: Emitter::default(), shared: Arc::new(Mutex::new(state)) }
    }

    setters! {
        /// Reports what it counts and measures to this observer.
        observed_by(observer: Arc<dyn Observer>) { emitter = observer.into() }
    }

    /// Reports to the observer of another service.
    pub(super) fn emitting(mut self, emitter: Emitter) -> Self {
        self.emitter = emitter;
        self
    }

    /// Renews the lease of this granted task until the returned handle is dropped. Wakes its driver if that
    /// would tick too late.
    ///
    /// Keep a lease as soon as it is granted, even if its task still waits for a worker. If the record has no lease, or
    /// one that was lost since, the next tick reports it as lost.
    pub fn keep(&self, task: &TaskRecord) -> Kept {
        let lease = task.lease_ref();
        let mut state = self.shared.lock();
        let (mut to_wake, known) = (None, state.entries.get_mut(&lease));
        let slot = match known {
            Some(entry) => {
                entry.handles += 1;
                entry.slot.clone()
            }
            None => {
                let expires_at = task.lease.as_ref().map_or(Timestamp::MIN, |lease| lease.expires_at);
                let slot = Arc::new(Slot {
                    lease,
                    expires_at: AtomicI64::new(expires_at.as_micros()),
                    told: LoopHandle::new(),
                    calls: Mutex::new(Some(Vec::new())),
                    cancel: Mutex::default(),
                    note: Mutex::default(),
                });
                state.entries.insert(lease, Entry { slot: slot.clone(), handles: 1 });
                let due = state.insert(lease, expires_at);
                if state.next_tick.is_none_or(|next| due < next) {
                    state.next_tick = Some(due);
                    to_wake = state.driver.clone();
                }
                slot
            }
        };
        drop(state);
        if let Some(driver) = to_wake {
            driver.wake();
        }
        Kept { shared: self.shared.clone(), slot }
    }

    /// Returns when the next tick is due, as far as is known now. `None` if there are no leases.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.shared.lock().set.next_due()
    }

    /// Gives back every lease that is still kept, as [`Outcome::GivenBack`](crate::ops::Outcome::GivenBack):
    /// its task is ready again at once. Forgets these leases, and tells their holders that they are lost.
    /// Returns how many tasks are ready again.
    ///
    /// Call it at the end of the program, when the work has stopped. A holder that is still working notices that it
    /// lost its lease, but another holder may begin before that. A holder that has finished has dropped its [`Kept`],
    /// so its lease is not given back.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Store`] if the store fails. Then all leases are kept as before, and the call may be
    /// repeated.
    pub fn give_back(&self, now: impl Into<Timestamp>) -> Result<usize> {
        let now = now.into();
        let leases: Vec<LeaseRef> = self.shared.lock().set.iter().collect();
        if leases.is_empty() {
            return Ok(0);
        }
        let back: Vec<Finish> = leases.iter().copied().map(Finish::given_back).collect();
        let finished = self.store.write(|tx| tx.last(|tx| tx.finish(now, &back)))?;
        let mut state = self.shared.lock();
        let ended: Vec<Arc<Slot>> = leases.into_iter().filter_map(|lease| state.end(lease)).collect();
        drop(state);
        ended.iter().for_each(|slot| slot.tell());
        Ok(finished.into_iter().filter(|finished| *finished == Finished::Ready).count())
    }
}

impl Service for Keeper {
    type Report = KeepReport;

    /// Renews the leases that are due, in one transaction, and tells holders what they lost.
    ///
    /// A failure of the store is part of the report. The keeper itself decides when to try again.
    ///
    /// # Errors
    ///
    /// [`Invalid::Duration`] for a lease below one millisecond.
    fn tick(&mut self, now: Timestamp) -> Result<KeepReport> {
        if self.lease < Duration::from_millis(1) {
            return Err(Invalid::Duration { what: "a lease", expected: "at least 1 ms" }.into());
        }
        let tick = Tick::begin("keeper", spans::keep());
        let mut state = self.shared.lock();
        state.heed_cancels(now);
        let mut expired = state.set.fallen_into_doubt(now);
        let asked = state.set.due(now);
        let told: Vec<Arc<Slot>> = state.slots(&expired).collect();
        let notes = state.take_notes(&asked);
        drop(state);
        // Before asking the store: it failed the last time, so it may take long.
        told.iter().for_each(|slot| slot.tell());

        let lease = self.lease;
        let answer = match asked.is_empty() {
            true => Ok((Vec::new(), Vec::new())),
            // Most renewals carry no note, and then nothing follows them.
            false if notes.is_empty() => {
                self.store.write(|tx| tx.last(|tx| Ok((tx.renew(now, lease, &asked)?, Vec::new()))))
            }
            false => self.store.write(|tx| renew(tx, now, lease, &asked, &notes)),
        };

        let mut state = self.shared.lock();
        let (mut report, mut cancelled) = (KeepReport::default(), Vec::new());
        match answer {
            Ok((renewals, written)) => {
                let left = notes.into_iter().zip(written).filter(|(_, written)| !written);
                state.keep_notes(left.map(|(note, _)| note));
                let told = state.set.answered(now, &asked, &renewals);
                report.lost = told.lost;
                let slot = |(lease, deadline)| Some((state.entries.get(&lease)?.slot.clone(), deadline));
                cancelled.extend(told.cancelled.into_iter().filter_map(slot));
                let renewed = |of: &&Renewal| matches!(of, Renewal::Renewed | Renewal::Cancelled(_));
                report.renewed = renewals.iter().filter(renewed).count();
                report.busy = renewals.iter().filter(|of| **of == Renewal::Busy).count();
            }
            Err(error) => {
                state.keep_notes(notes);
                state.set.failed(now, &asked);
                report.error = Some(error);
            }
        }
        for lease in &asked {
            if let (Some(entry), Some(at)) = (state.entries.get(lease), state.set.expires_at(*lease)) {
                entry.slot.set_expiry(at);
            }
        }
        let fallen = state.set.fallen_into_doubt(now);
        let mut told: Vec<Arc<Slot>> = state.slots(&fallen).collect();
        told.extend(report.lost.iter().filter_map(|lease| state.end(*lease)));
        expired.extend(fallen);
        report.expired = expired;
        report.next_due = state.set.next_due();
        state.next_tick = report.next_due;
        drop(state);
        // Before the lost leases, because a reported deadline may have passed.
        cancelled.retain(|(slot, deadline)| slot.tell_cancelled(*deadline));
        report.cancelled = cancelled.iter().map(|(slot, _)| slot.lease).collect();
        told.iter().for_each(|slot| slot.tell());
        self.emitter.ticked(&tick, Some(&report), report.error.as_ref());
        Ok(report)
    }

    fn woken_by(&mut self, handle: &LoopHandle) {
        // Earlier cancels of the handle may concern a lease that is already kept, so they count, too.
        self.shared.lock().driver = Some(handle.clone());
    }
}

/// What a holder said about its work, and when.
type Note = (LeaseRef, Timestamp, String);

/// Renews leases, and returns for each note whether it was written.
fn renew(
    tx: &mut Tx<'_>,
    now: Timestamp,
    length: Duration,
    asked: &[LeaseRef],
    notes: &[Note],
) -> Result<(Vec<Renewal>, Vec<bool>)> {
    Ok((tx.renew(now, length, asked)?, tx.note_leases(notes)?))
}

/// A lease that a [`Keeper`] renews until this is dropped.
///
/// Drop it when the attempt has ended: finished, registered as a sensor, or given back. If the keeper renews in
/// between, it reports a lease that its holder has ended as lost, too.
///
/// # Examples
///
/// ```
/// # use std::sync::Arc;
/// # use stationmaster::clock::{Clock, ManualClock};
/// # use stationmaster::service::{Admitter, Service};
/// # use stationmaster::store::MemoryStore;
/// # use stationmaster::{NewTask, TaskKey, Timestamp};
/// # let (store, clock) = (Arc::new(MemoryStore::new()), ManualClock::new(Timestamp::UNIX_EPOCH));
/// # let tasks = [NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?)];
/// # store.write(|tx| tx.enqueue(clock.now(), &tasks))?;
/// # let mut admitter = Admitter::new(store.clone(), "worker-1".try_into()?);
/// # let keeper = admitter.keeper();
/// # let task = admitter.tick(clock.now())?.granted.remove(0);
/// use stationmaster::ops::Finish;
///
/// let kept = keeper.keep(&task);
/// kept.on_lost(|| println!("kill the process that does the work")); // on the keeper's thread
/// for _part in 0..3 {
///     if kept.is_lost() {
///         return Ok(()); // another holder may have the task
///     }
///     // … a part of the work …
/// }
/// store.write(|tx| tx.finish(clock.now(), &[Finish::success(kept.lease())]))?;
/// drop(kept);
/// assert_eq!(keeper.next_due(), None);
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug)]
pub struct Kept {
    shared: Arc<Mutex<State>>,
    slot: Arc<Slot>,
}

impl Kept {
    /// Returns the lease.
    pub fn lease(&self) -> LeaseRef {
        self.slot.lease
    }

    /// Returns true if the lease certainly holds at this instant of the keeper's clock: it was confirmed until later,
    /// and is not known to be lost. Calls no store, so it is right even if the keeper is delayed.
    pub fn holds(&self, now: impl Into<Timestamp>) -> bool {
        now.into().as_micros() < self.slot.expires_at.load(Ordering::Acquire)
    }

    /// Returns true once the holder was told to stop because the lease was lost or expired, and from then on. See
    /// [`Keeper`](Keeper#when-a-holder-is-told).
    pub fn is_lost(&self) -> bool {
        self.slot.told.is_stopped()
    }

    /// Returns a future that is ready once the holder is told to stop. It needs no runtime and no timer. If the `Kept`
    /// is dropped before that, it never becomes ready.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.slot.told.stopped()
    }

    /// Returns the deadline by which the holder must end the task, because someone
    /// [cancelled](crate::store::Tx::cancel) it. `None` until the holder was told.
    pub fn cancelled(&self) -> Option<Timestamp> {
        self.slot.cancel.lock().deadline
    }

    /// Notes how the work is going, as of this instant. The task's record shows it:
    /// [`Lease::note`](crate::lease::Lease).
    ///
    /// The note is written with the next renewal, so it costs no extra call, and becomes visible up to a third of a
    /// lease later. A newer note replaces one that was not written yet. The first [`MAX_NOTE_BYTES`] bytes are kept. A
    /// note that is not yet written when this is dropped is lost.
    pub fn note(&self, now: impl Into<Timestamp>, text: impl Into<String>) {
        *self.slot.note.lock() = Some((now.into(), clip_to(MAX_NOTE_BYTES, text.into())));
    }

    /// Calls this once with the deadline when the holder is told that its task was cancelled; at once if it was told
    /// before. It is called in the same way as [`Self::on_lost`]'s.
    pub fn on_cancelled(&self, call: impl FnOnce(Timestamp) + Send + 'static) {
        let mut cancel = self.slot.cancel.lock();
        match cancel.deadline {
            None => cancel.calls.push(Box::new(call)),
            Some(deadline) => {
                drop(cancel);
                call(deadline);
            }
        }
    }

    /// Calls this once when the holder is told to stop; at once if it was told before. It is called by the
    /// thread that ticks the keeper, so it must not block. A panic in it is caught.
    pub fn on_lost(&self, call: impl FnOnce() + Send + 'static) {
        let mut calls = self.slot.calls.lock();
        match calls.as_mut() {
            Some(calls) => calls.push(Box::new(call)),
            None => {
                drop(calls);
                call();
            }
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        let lease = self.slot.lease;
        // A lost lease may have been kept again since.
        let Some(entry) = state.entries.get_mut(&lease).filter(|entry| Arc::ptr_eq(&entry.slot, &self.slot))
        else {
            return;
        };
        entry.handles -= 1;
        if entry.handles == 0 {
            state.entries.remove(&lease);
            state.set.remove(lease);
        }
    }
}

/// What one tick of a [`Keeper`] did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct KeepReport {
    /// How many leases it renewed.
    pub renewed: usize,
    /// How many leases another transaction held. It asks for them again soon.
    pub busy: usize,
    /// The leases that the store said were lost, and that were not forgotten before.
    pub lost: Vec<LeaseRef>,
    /// The leases whose holders were told that their tasks were cancelled.
    pub cancelled: Vec<LeaseRef>,
    /// The leases whose holders were told that they expired. The keeper still tries to renew them.
    pub expired: Vec<LeaseRef>,
    /// Why it renewed nothing, if the store failed. It tries again soon.
    pub error: Option<Error>,
    /// When the next renewal is due, or a holder must be told. `None` if there are no leases.
    pub next_due: Option<Timestamp>,
}

impl Report for KeepReport {
    fn next_due(&self) -> Option<Timestamp> {
        self.next_due
    }

    fn is_idle(&self) -> bool {
        let has_asked = self.renewed + self.busy + self.lost.len() > 0 || self.error.is_some();
        !has_asked && self.expired.is_empty()
    }
}

impl Reported for KeepReport {
    fn emit(&self, to: &Emitter) {
        to.counter(&LEASES_RENEWED, &[], self.renewed);
        to.counter(&LEASES_LOST, &[("how", "lost")], self.lost.len());
        to.counter(&LEASES_LOST, &[("how", "expired")], self.expired.len());
    }

    #[cfg(feature = "tracing")]
    fn trace(&self, took_s: f64) {
        let (lost, expired) = (self.lost.len(), self.expired.len());
        debug_or_warn!(lost + expired > 0, target: "stationmaster::keeper",
            renewed = self.renewed, busy = self.busy, lost, expired, took_s, "renewed");
    }
}
