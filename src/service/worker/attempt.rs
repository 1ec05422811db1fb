//! The attempt that a handler receives.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::lease::LeaseRef;
use crate::ops::{Fenced, Finish, Outcome};
use crate::service::{Kept, LoopHandle};
use crate::store::{Store, Tx};
use crate::task::TaskRecord;
use crate::time::Timestamp;

/// Why the handler of an attempt should stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cancelled {
    /// The worker stops. Return what is done, or [`Outcome::GivenBack`].
    Stopping,
    /// The attempt has run for as long as it may ([`Worker::max_run`](super::Worker::max_run)).
    RanTooLong,
    /// The task was [cancelled](Tx::cancel). The lease ends at the deadline. Return before it: what is done,
    /// a failure or [`Outcome::GivenBack`]. The last two end the task as
    /// [`TaskState::Cancelled`](crate::TaskState::Cancelled).
    Requested {
        /// The deadline.
        deadline: Timestamp,
    },
    /// The lease was lost or expired, so another worker may be given the task. Stop at once: what the handler
    /// returns is most likely refused.
    LeaseLost,
}

/// Describes one attempt to its handler: the task, and whether to continue.
///
/// Clones share one attempt, so a handler may pass them to threads or tasks of its own.
///
/// # How an attempt ends
///
/// * *By what the handler returns.* The worker stores it, and repeats that until the store responds.
/// * *By [`Self::end`]*, in one transaction with further operations of this store.
/// * *In the host's own transaction*, together with its own rows. The handler calls [`finish`](Tx::finish) there with
///   [`Self::lease`], or a statement of [`_sql`](crate::_sql), or registers the task as a sensor. After the commit it
///   calls [`Self::ended_elsewhere`]. A handler that is a future passes the transaction to `Attempt::end_by`, which
///   repeats it when that helps.
///
/// In the last two cases the worker stores nothing, whatever the handler returns.
///
/// To enqueue what follows the last of several tasks, end each of them [in turn](Self::in_turn).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::ops::Outcome;
/// use stationmaster::service::Attempt;
///
/// fn copy(attempt: &Attempt) -> Result<Outcome, std::io::Error> {
///     for _part in 0..3 {
///         if attempt.is_cancelled() {
///             return Ok(Outcome::GivenBack); // ready again at once, for another worker
///         }
///         println!("{}, attempt {}: {}", attempt.task().key, attempt.task().attempt, attempt.task().payload);
///     }
///     Ok(().into())
/// }
/// # let _ = copy;
/// ```
#[derive(Clone)]
pub struct Attempt(Arc<Inner>);

struct Inner {
    task: TaskRecord,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// When the attempt has run for as long as it may. Set when the attempt begins.
    deadline: OnceLock<Timestamp>,
    /// `None` once the attempt has ended, so that its lease is no longer renewed.
    kept: Mutex<Option<Kept>>,
    has_ended: AtomicBool,
    /// Whether the worker records its own end for the attempt.
    is_given_up: AtomicBool,
    /// Whether the loss of the lease was reported to the host.
    is_loss_reported: AtomicBool,
    /// The names that serialize its end.
    turns: Mutex<Vec<String>>,
    signal: Arc<Signal>,
}

/// Notifies a handler that it should stop. The keeper has one too, so it refers to nothing else of the attempt.
#[derive(Debug, Default)]
struct Signal {
    why: Mutex<Option<Cancelled>>,
    cancelled: LoopHandle,
    /// Stopped when a future must not be polled any more.
    cut: LoopHandle,
}

impl Signal {
    fn cancel(&self, why: Cancelled) {
        let mut known = self.why.lock();
        // A lost lease is reported even to a handler that was already asked to stop, because it matters most.
        if known.is_none() || why == Cancelled::LeaseLost {
            *known = Some(why);
        }
        drop(known);
        self.cancelled.stop();
    }
}

impl Attempt {
    pub(super) fn new(task: TaskRecord, store: Arc<dyn Store>, kept: Kept, clock: Arc<dyn Clock>) -> Self {
        let signal = Arc::new(Signal::default());
        let asked = signal.clone();
        kept.on_cancelled(move |deadline| asked.cancel(Cancelled::Requested { deadline }));
        let lost = signal.clone();
        kept.on_lost(move || {
            lost.cancel(Cancelled::LeaseLost);
            lost.cut.stop();
        });
        let deadline = OnceLock::new();
        let [has_ended, is_given_up, is_loss_reported] = [false; 3].map(AtomicBool::new);
        Self(Arc::new(Inner {
            task,
            store,
            clock,
            deadline,
            kept: Mutex::new(Some(kept)),
            has_ended,
            is_given_up,
            is_loss_reported,
            turns: Mutex::default(),
            signal,
        }))
    }

    /// Returns the task as it was when it was granted: key, payload, attempt and the rest.
    pub fn task(&self) -> &TaskRecord {
        &self.0.task
    }

    /// Returns the value that the task's sensor landed with, if the task continues after that landing
    /// ([`OnLanded::Resume`](crate::sensor::OnLanded::Resume)). It is empty if the sensor landed without a
    /// value. Returns `None` if the task still has to wait: register its sensor then.
    ///
    /// An attempt that was given back, or was requeued because its lease was lost, finds the same value
    /// again. A failed attempt does not: its retry begins from the start, and waits again.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::clock::{Clock, SystemClock};
    /// use stationmaster::ops::Fenced;
    /// use stationmaster::sensor::{OnLanded, Settings};
    /// use stationmaster::service::Attempt;
    /// use stationmaster::service::kinds::{Condition, FileExists};
    ///
    /// fn load(attempt: &Attempt) -> stationmaster::Result<()> {
    ///     if attempt.landed().is_some() {
    ///         return Ok(println!("the file is there")); // the work
    ///     }
    ///     let settings = Settings::new(Duration::from_secs(60), Duration::from_secs(3_600))?;
    ///     let file = FileExists::at("in.csv").sensor(attempt.lease(), settings.on_landed(OnLanded::Resume))?;
    ///     attempt.store().write(|tx| tx.register(SystemClock.now(), &[file.clone()])?.fenced())?;
    ///     attempt.ended_elsewhere();
    ///     Ok(())
    /// }
    /// # let _ = load;
    /// ```
    pub fn landed(&self) -> Option<&str> {
        self.0.task.value.as_deref()
    }

    /// Returns the lease, which every call for this attempt names.
    pub fn lease(&self) -> LeaseRef {
        self.0.task.lease_ref()
    }

    /// Returns the worker's store. Commits through it wake the worker.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.0.store
    }

    /// Returns when the attempt will have run for as long as it may. `None` if it has no limit.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.0.deadline.get().copied()
    }

    /// Returns true from the moment when the handler should stop: the task was cancelled, the worker stops, the
    /// attempt ran for too long, or its lease was lost. [`Self::cancelled`] says which.
    pub fn is_cancelled(&self) -> bool {
        self.0.signal.cancelled.is_stopped()
    }

    /// Returns why the handler should stop, or `None` if it should not. A further cancel can bring the deadline
    /// forward.
    pub fn cancelled(&self) -> Option<Cancelled> {
        let why = *self.0.signal.why.lock();
        match (why, self.0.kept.lock().as_ref().and_then(Kept::cancelled)) {
            (Some(Cancelled::Requested { .. }), Some(deadline)) => Some(Cancelled::Requested { deadline }),
            _ => why,
        }
    }

    /// Notes how the work is going. The task's record shows it: [`Lease::note`](crate::lease::Lease).
    ///
    /// The next renewal of the lease writes the note. So it costs no extra call, and becomes visible up to a third of
    /// a lease later. A newer note replaces one that was not written yet, so a handler may call this as often as it
    /// likes. The first [`MAX_NOTE_BYTES`](crate::bounds::MAX_NOTE_BYTES) bytes are kept. A note disappears with its
    /// lease.
    pub fn note(&self, text: impl Into<String>) {
        if let Some(kept) = &*self.0.kept.lock() {
            kept.note(self.0.clock.now(), text);
        }
    }

    /// Sleeps this long, or until the handler should stop. Returns true if it should.
    pub fn wait(&self, length: Duration) -> bool {
        self.0.signal.cancelled.wait(length);
        self.is_cancelled()
    }

    /// Returns a future that is ready once the handler should stop.
    pub fn until_cancelled(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.signal.cancelled.stopped()
    }

    /// Returns true if the lease certainly holds at this instant: see [`Kept::holds`]. Call it right before an effect
    /// that no transaction can undo.
    pub fn holds(&self, now: impl Into<Timestamp>) -> bool {
        self.0.kept.lock().as_ref().is_some_and(|kept| kept.holds(now))
    }

    /// Serializes the transaction of [`Self::end`] or [`Self::end_in`] with all that [`serialize`](Tx::serialize) one of
    /// these names. So it sees what earlier ones ended: of the last two tasks of a run, the second enqueues the next
    /// tasks, exactly once. Transactions with other names do not wait.
    ///
    /// The end returns the errors of [`Tx::serialize`] for the names. Other ways to end the attempt ignore the names.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::clock::{Clock, SystemClock};
    /// use stationmaster::service::Attempt;
    /// use stationmaster::{Error, NewTask, TaskKey, TaskState};
    ///
    /// fn extract(attempt: &Attempt) -> Result<(), Error> {
    ///     let run = &attempt.task().key.run;
    ///     let key = |name| TaskKey::new("prod", "nightly", run.as_str(), name);
    ///     let (extracts, load) = ([key("extract_a")?, key("extract_b")?], [NewTask::new(key("load")?)]);
    ///     attempt.in_turn(&[format!("prod/nightly/{run}")]).end((), |tx| {
    ///         if tx.tasks(&extracts)?.iter().flatten().all(|task| task.state == TaskState::Success) {
    ///             tx.enqueue(SystemClock.now(), &load)?;
    ///         }
    ///         Ok(())
    ///     })
    /// }
    /// # let _ = extract;
    /// ```
    pub fn in_turn(&self, names: &[impl AsRef<str>]) -> &Self {
        *self.0.turns.lock() = names.iter().map(|name| name.as_ref().to_owned()).collect();
        self
    }

    /// Ends the attempt and runs `body`, in one transaction of the worker's store. In `body` this task has already
    /// ended.
    ///
    /// If `body` decides by the state of other tasks, call [`Self::in_turn`] first. Otherwise, on PostgreSQL, two
    /// transactions that end the last two tasks of a run may not see each other's end.
    ///
    /// It repeats the transaction until the store responds or the lease is lost. So `body` may run several
    /// times, but takes effect once.
    ///
    /// # Errors
    ///
    /// [`Error::Stale`] if the lease was lost, and [`Error::Repeated`] if the attempt had been ended like this before.
    /// The error of `body`, and errors of the store that repeating does not change. After any of these, nothing was
    /// changed. But after a commit of unknown outcome, [`Error::Stale`] may mean that the end took effect and the task
    /// has moved on.
    ///
    /// An error that [`is_indeterminate`](Error::is_indeterminate) has one of two causes. The lease was lost or has
    /// expired, and five further calls of the store did not settle the outcome of the commit. Or the worker recorded a
    /// failure meanwhile, because the handler ran for too long.
    ///
    /// A handler may return any of these. The attempt then fails, unless it has already ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::clock::{Clock, SystemClock};
    /// use stationmaster::service::Attempt;
    /// use stationmaster::{Error, NewTask, TaskKey};
    ///
    /// fn load(attempt: &Attempt) -> Result<(), Error> {
    ///     let next = NewTask::new(TaskKey::new("prod", "nightly", attempt.task().key.run.as_str(), "check")?);
    ///     attempt.end((), |tx| tx.enqueue(SystemClock.now(), std::slice::from_ref(&next)).map(drop))
    /// }
    /// # let _ = load;
    /// ```
    pub fn end(
        &self,
        outcome: impl Into<Outcome>,
        mut body: impl FnMut(&mut Tx<'_>) -> Result<()>,
    ) -> Result<()> {
        let outcome = outcome.into();
        let mut ending = Ending::new(self);
        loop {
            let ended = self.0.store.write(|tx| {
                self.end_in(tx, outcome.clone())?;
                body(tx)
            });
            match ending.after(ended) {
                ControlFlow::Break(ended) => return ended,
                ControlFlow::Continue(pause) => std::thread::sleep(pause),
            }
        }
    }

    /// Ends the attempt in this transaction, for example the host's own. First passes the names of [`Self::in_turn`] to
    /// [`serialize`](Tx::serialize).
    ///
    /// Use it in the transactions of `end_by`. Elsewhere call [`Self::ended_elsewhere`] after the commit.
    ///
    /// # Errors
    ///
    /// [`Error::Stale`] if the lease was lost, and [`Error::Repeated`] if the attempt had been ended like this before: roll
    /// back, or your rows are committed although another holder may have the task. Errors of [`Tx::serialize`] and
    /// [`Tx::finish`].
    pub fn end_in(&self, tx: &mut Tx<'_>, outcome: impl Into<Outcome>) -> Result<()> {
        let turns = self.0.turns.lock().clone();
        if !turns.is_empty() {
            tx.serialize(&turns)?;
        }
        tx.finish(self.0.clock.now(), &[Finish::new(self.lease(), outcome.into())])?.fenced().map(drop)
    }

    /// Notifies the worker that the attempt has ended, in the host's own transaction or as a sensor. Call it after the
    /// commit. The worker then neither renews the lease nor stores an end.
    ///
    /// If the outcome of that commit is unknown, return an error instead. The worker then fails the attempt, which
    /// changes nothing if the commit took effect.
    pub fn ended_elsewhere(&self) {
        self.0.has_ended.store(true, Ordering::Release);
        self.release();
    }

    /// Notes that the worker records its own end for the attempt.
    pub(super) fn give_up(&self) {
        self.0.is_given_up.store(true, Ordering::Release);
    }

    /// Returns the error that reports the loss of the lease, or `None` if it was already reported.
    pub(super) fn loss(&self) -> Option<Error> {
        let (task, epoch) = (Box::new(self.0.task.key.clone()), self.0.task.epoch);
        (!self.0.is_loss_reported.swap(true, Ordering::AcqRel)).then_some(Error::LeaseLost { task, epoch })
    }

    /// Returns true if the handler has ended the attempt.
    pub(super) fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::Acquire)
    }

    /// Stops the renewal of the lease.
    pub(super) fn release(&self) {
        let kept = self.0.kept.lock().take();
        drop(kept);
    }

    pub(super) fn set_deadline(&self, deadline: Timestamp) {
        let _ = self.0.deadline.set(deadline);
    }

    pub(super) fn cancel(&self, why: Cancelled) {
        self.0.signal.cancel(why);
    }

    /// Drops the handler, if it is a future.
    pub(super) fn cut(&self) {
        self.0.signal.cut.stop();
    }

    /// Returns a future that is ready when the handler should be dropped.
    #[cfg(feature = "tokio")]
    pub(crate) fn until_cut(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.signal.cut.stopped()
    }

    fn is_lost(&self) -> bool {
        self.0.kept.lock().as_ref().is_none_or(Kept::is_lost)
    }
}

/// The transactions that should end an attempt, one after the other.
#[derive(Debug)]
pub(crate) struct Ending<'a> {
    attempt: &'a Attempt,
    /// The error of a commit of unknown outcome.
    unknown: Option<Error>,
    tries_after_loss: u32,
    pause: Duration,
}

impl<'a> Ending<'a> {
    pub(crate) fn new(attempt: &'a Attempt) -> Self {
        // The lease of an attempt that has ended also counts as lost. So a loss does not settle an unknown outcome.
        Self { attempt, unknown: None, tries_after_loss: 5, pause: Duration::from_millis(10) }
    }

    /// Returns the outcome of the attempt, or how long to wait before the transaction is repeated.
    pub(crate) fn after(&mut self, ended: Result<()>) -> ControlFlow<Result<()>, Duration> {
        let (attempt, is_lost) = (self.attempt, self.attempt.is_lost());
        let ended = match ended {
            // Either the first call was committed and its response lost, or the worker has recorded its own end. Which
            // one is unknown.
            Err(Error::Repeated { .. }) if self.unknown.is_some() => self
                .unknown
                .take()
                .filter(|_| attempt.0.is_given_up.load(Ordering::Acquire))
                .map_or(Ok(()), Err),
            // A later call may succeed, or may reveal the outcome of this one.
            Err(error)
                if (error.is_retryable() || error.is_indeterminate())
                    && (!is_lost || self.unknown.is_some()) =>
            {
                if error.is_indeterminate() {
                    self.unknown = Some(error);
                }
                self.tries_after_loss -= u32::from(is_lost);
                let Some(unknown) = self.unknown.take_if(|_| self.tries_after_loss == 0) else {
                    // Ends at the latest with the lease, because the keeper reports its loss.
                    let longer = (self.pause * 2).min(Duration::from_secs(1));
                    return ControlFlow::Continue(std::mem::replace(&mut self.pause, longer));
                };
                Err(unknown)
            }
            ended => ended,
        };
        if ended.is_ok() {
            attempt.ended_elsewhere();
        }
        ControlFlow::Break(ended)
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("task", &self.0.task)
            .field("deadline", &self.deadline())
            .field("cancelled", &self.cancelled())
            .field("has_ended", &self.has_ended())
            .finish_non_exhaustive()
    }
}
