//! The keeper: renews the leases that a process holds.

mod kept;
mod report;
mod state;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub use self::kept::Kept;
use self::kept::Slot;
pub use self::report::KeepReport;
use self::state::{Note, State};
use super::driver::{LoopHandle, Service};
use super::observer::{Emitter, Observer, Tick, spans};
use super::wanted::Wanted;
use crate::base::setters;
use crate::error::{Invalid, Result};
use crate::lease::{LeaseRef, Renewal};
use crate::ops::{Finish, Finished};
use crate::store::{Store, Tx};
use crate::task::TaskRecord;
use crate::time::Timestamp;

/// Renews leases, and notifies holders that must stop.
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
/// It calls only the store that it was created with, and waits for nothing else. On PostgreSQL its
/// transactions use the connection that is reserved for renewals.
///
/// # When a holder is notified
///
/// * *Lost*: the store says so. The task ended, or another holder may have it.
/// * *Expired*: the lease was not confirmed in time, although the store was asked. Another holder may be given the task
///   at any time, so the work must stop. The holder learns of it when its lease expires, at that instant and not
///   before. The keeper still tries to renew the lease until its `Kept` is dropped, so that the holder can record an
///   end.
///
/// * *Cancelled*: someone [cancelled](crate::store::Tx::cancel) the task. The holder gets the deadline, which the lease
///   does not outlast. It keeps the task and its slots until it ends the task, or until the deadline. Then it is notified
///   that the lease expired.
///
/// A keeper that was delayed for longer than a lease, for example because the machine slept, asks the store first.
/// Upkeep that was delayed as well gives it a [grace](super::Upkeep#grace) for that. If the lease is confirmed, no one
/// else had the task, and the work goes on.
///
/// While a store call hangs, no holder is notified. So before a holder acts on the outside world, it should ask
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

impl Keeper {
    /// Creates a keeper for leases of this length, at least one millisecond, in this store.
    ///
    /// Use it for leases that a host grants with [`Tx::admit`](crate::store::Tx::admit), or found after a restart. For
    /// an admitter's leases, use [`Admitter::keeper`](super::Admitter::keeper).
    pub fn new(store: Arc<dyn Store>, lease: Duration) -> Self {
        let shared = Arc::new(Mutex::new(State::new(lease)));
        Self { store, lease, emitter: Emitter::default(), shared }
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
        let expires_at = task.lease.as_ref().map_or(Timestamp::MIN, |lease| lease.expires_at);
        let (slot, to_wake) = self.shared.lock().keep(task.lease_ref(), expires_at);
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
    /// its task is ready again at once. Forgets these leases, and notifies their holders that they are lost.
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
        ended.iter().for_each(|slot| slot.notify());
        Ok(finished.into_iter().filter(|finished| *finished == Finished::Ready).count())
    }
}

impl Service for Keeper {
    type Report = KeepReport;

    /// Renews the leases that are due, in one transaction, and notifies holders that must stop.
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
        let in_doubt: Vec<Arc<Slot>> = state.slots(&expired).collect();
        let notes = state.take_notes(&asked);
        drop(state);
        // Before asking the store: it failed the last time, so it may take long.
        in_doubt.iter().for_each(|slot| slot.notify());

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
                let notices = state.set.answered(now, &asked, &renewals);
                report.lost = notices.lost;
                let slot = |(lease, deadline)| Some((state.slot(lease)?.clone(), deadline));
                cancelled.extend(notices.cancelled.into_iter().filter_map(slot));
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
            if let (Some(slot), Some(at)) = (state.slot(*lease), state.set.expires_at(*lease)) {
                slot.set_expiry(at);
            }
        }
        let fallen = state.set.fallen_into_doubt(now);
        let mut unheld: Vec<Arc<Slot>> = state.slots(&fallen).collect();
        unheld.extend(report.lost.iter().filter_map(|lease| state.end(*lease)));
        expired.extend(fallen);
        report.expired = expired;
        report.next_due = state.set.next_due();
        state.next_tick = report.next_due;
        drop(state);
        // Before the lost leases, because a reported deadline may have passed.
        cancelled.retain(|(slot, deadline)| slot.report_cancelled(*deadline));
        report.cancelled = cancelled.iter().map(|(slot, _)| slot.lease).collect();
        unheld.iter().for_each(|slot| slot.notify());
        self.emitter.ticked(&tick, Some(&report), report.error.as_ref());
        Ok(report)
    }

    fn woken_by(&mut self, handle: &LoopHandle) {
        handle.wants(Wanted::CANCELS);
        // Earlier cancels of the handle may concern a lease that is already kept, so they count, too.
        self.shared.lock().driver = Some(handle.clone());
    }
}

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
