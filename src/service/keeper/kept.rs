//! A lease as its holder sees it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use super::super::driver::LoopHandle;
use super::state::State;
use crate::bounds::{MAX_NOTE_BYTES, clip_to};
use crate::lease::LeaseRef;
use crate::time::Timestamp;

/// The state that a keeper and the holder of a lease share.
pub(super) struct Slot {
    pub(super) lease: LeaseRef,
    /// In microseconds.
    expires_at: AtomicI64,
    /// Stopped when the holder is notified of a loss.
    lost: LoopHandle,
    /// `None` after they were called.
    calls: Mutex<Option<Vec<Call>>>,
    cancel: Mutex<Cancel>,
    /// The holder's unwritten note, with its instant.
    pub(super) note: Mutex<Option<(Timestamp, String)>>,
}

type Call = Box<dyn FnOnce() + Send>;
type CancelCall = Box<dyn FnOnce(Timestamp) + Send>;

/// What the holder knows about a cancel of its task.
#[derive(Default)]
struct Cancel {
    deadline: Option<Timestamp>,
    /// Called when the first deadline is known.
    calls: Vec<CancelCall>,
}

impl Slot {
    pub(super) fn new(lease: LeaseRef, expires_at: Timestamp) -> Self {
        Self {
            lease,
            expires_at: AtomicI64::new(expires_at.as_micros()),
            lost: LoopHandle::new(),
            calls: Mutex::new(Some(Vec::new())),
            cancel: Mutex::default(),
            note: Mutex::default(),
        }
    }

    pub(super) fn set_expiry(&self, at: Timestamp) {
        self.expires_at.store(at.as_micros(), Ordering::Release);
    }

    /// Notifies the holder. It may call the keeper from its callback, so no lock is held.
    pub(super) fn notify(&self) {
        self.lost.stop();
        let calls = self.calls.lock().take();
        for call in calls.into_iter().flatten() {
            // A panic in one holder's callback must not prevent notifying the others. The panic hook has printed it.
            let _ = catch_unwind(AssertUnwindSafe(call));
        }
    }

    /// Notifies the holder that its task was cancelled. Returns false if it already knew.
    pub(super) fn report_cancelled(&self, deadline: Timestamp) -> bool {
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
            .field("is_lost", &self.lost.is_stopped())
            .finish_non_exhaustive()
    }
}

/// A lease that a [`Keeper`](super::Keeper) renews until this is dropped.
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
    pub(super) shared: Arc<Mutex<State>>,
    pub(super) slot: Arc<Slot>,
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

    /// Returns true once the holder must stop, because the lease was lost or expired, and from then on. See
    /// [`Keeper`](super::Keeper#when-a-holder-is-notified).
    pub fn is_lost(&self) -> bool {
        self.slot.lost.is_stopped()
    }

    /// Returns a future that is ready once the holder must stop, because the lease was lost or expired. It needs no
    /// runtime and no timer. If the `Kept` is dropped before that, it never becomes ready.
    pub fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        self.slot.lost.stopped()
    }

    /// Returns the deadline by which the holder must end the task, because someone
    /// [cancelled](crate::store::Tx::cancel) it. `None` until the holder was notified.
    pub fn cancelled(&self) -> Option<Timestamp> {
        self.slot.cancel.lock().deadline
    }

    /// Notes how the work is going, as of this instant. The task's record shows it:
    /// [`Lease::note`](crate::lease::Lease).
    ///
    /// The next renewal writes the note. So it costs no extra call, and becomes visible up to a third of a lease
    /// later. A newer note replaces one that was not written yet. The first [`MAX_NOTE_BYTES`] bytes are kept. A note
    /// that is not yet written when this is dropped is lost.
    pub fn note(&self, now: impl Into<Timestamp>, text: impl Into<String>) {
        *self.slot.note.lock() = Some((now.into(), clip_to(MAX_NOTE_BYTES, text.into())));
    }

    /// Calls this once with the deadline when the holder is notified that its task was cancelled, or at once
    /// if it already was. The rules of [`Self::on_lost`] apply.
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

    /// Calls this once when the holder must stop, or at once if it already must. It is called by the thread
    /// that ticks the keeper, so it must not block. A panic in it is caught.
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
        self.shared.lock().release(&self.slot);
    }
}
