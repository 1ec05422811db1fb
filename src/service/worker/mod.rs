//! The worker: runs a host's handlers on the tasks that it is granted.

mod attempt;
mod handlers;
mod loops;
mod report;
mod run;
mod shared;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::admission::Policy;
use crate::base::setters;
use crate::clock::{Clock, SystemClock};
use crate::core::worker::Waits;
use crate::error::{Error, Invalid, Result};
use crate::id::{Holder, QueueName, TaskName, WorkflowId};
use crate::ops::Outcome;
use crate::service::{LoopHandle, Observer};
use crate::store::Store;
use crate::task::TaskRecord;
#[cfg(feature = "tokio")]
pub(crate) use attempt::Ending;
pub use attempt::{Attempt, Cancelled};
use handlers::Handlers;
#[cfg(feature = "tokio")]
pub(crate) use handlers::{Done, panicked};
pub(crate) use handlers::{Handler, Tasks};
pub use report::WorkerReport;
use run::Running;
use shared::{MaxRun, OnError};

/// Runs handlers on tasks. It admits as many as it has free places for, renews their leases, starts them and stores
/// how they ended. It retries failed tasks by their own policies.
///
/// A handler is a function of an [`Attempt`]. It has one of the worker's threads to itself until it returns. The
/// thread then runs other attempts. On a tokio runtime it can be a future: `Worker::handler_async`, feature `tokio`.
/// What it returns becomes the [`Outcome`]: `()`, a `Result` whose error has a text, or an `Outcome`. A panic is a
/// failure with the panic's text. A task without a handler fails, too.
///
/// A worker does not reap leases. Drive an [`Upkeep`](super::Upkeep) as well, in this process or in another one.
///
/// # Guarantees
///
/// * *Places.* No more attempts are under way than there are places, in each [named](Self::queue) queue or in
///   all queues together. A place stays taken until its handler has returned and the store has acknowledged
///   its end.
/// * *An end takes effect once.* The worker repeats an end until the store responds. The lease fences it:
///   after the lease was lost, the end is refused, and another worker may have the task.
/// * *A handler may run more than once for one task*: after a failure, by the task's retry policy; after its lease was
///   lost, for example because the process was killed; and after it was given back. Effects outside the store must
///   tolerate that. Effects in the same transaction as the end happen once: see [`Attempt`].
/// * *Cancellation is cooperative.* A handler's [`Attempt`] reports that the worker stops, that it has run for too
///   long, or that its lease was lost. After [`Self::patience`] an attempt that ran too long counts as failed,
///   although its handler may still be working. Its place stays taken until the handler returns, because a thread
///   cannot be ended. A future is dropped: at once when its lease is lost, otherwise after the patience.
///
/// # How it stops
///
/// [`LoopHandle::stop`] ends [`Self::run`]. The worker asks for no further tasks, gives back those that did
/// not begin, and tells all handlers to stop. They have the [patience](Self::patience) to return, and their
/// results are stored. Futures that have not returned by then are dropped, and their tasks given back. `run`
/// returns a second later at the latest, even if the store hangs. The [`WorkerReport`] lists what is left.
/// Those leases expire and are reaped.
///
/// # When it asks for tasks
///
/// * When it begins.
/// * When a place becomes free, if more tasks may be waiting.
/// * When a task becomes due.
/// * When its handle is woken. A [`WakingStore`](super::WakingStore) of that handle wakes it for what this
///   process enqueues, and on PostgreSQL `LoopHandle::listen` for what others enqueue.
/// * After [`Self::longest_wait`] at the latest, for what others have enqueued without waking it.
///
/// If the ends of more attempts are being stored than places are free, it waits up to 10 ms for these places. One tick
/// then fills all of them.
///
/// A tick also starts the tasks that it grants, except tasks whose attempts are recorded as runs. A second call starts
/// those, and the worker asks for no others until it has returned. On PostgreSQL this call waits for a host's
/// transaction that has cancelled, marked or locked one of these tasks since the grant. It also waits for one that has
/// locked such a task's run. Keep such transactions short.
///
/// It learns that a task was cancelled when it renews the lease, or at once if
/// [`LoopHandle::wake_for_cancel`] is called on its handle.
///
/// # When its process was killed
///
/// A worker does not continue the tasks of an earlier one with the same name. They wait until their leases expire. The
/// leases then count as lost ([`LeaseLoss`](crate::task::LeaseLoss)). The [`guide`](crate::guide) shows how a process
/// with a unique name ends them before it runs the worker.
///
/// # When ends are stored
///
/// By default ends are stored at once. Ends that arrive while the store is busy with others share the next
/// transaction. So an idle worker adds no delay, and a busy one needs few transactions. While several
/// handlers are being started, ends wait until the last of them has begun, at most 2 ms.
/// [`Self::gather_ends`] saves more transactions, but delays each end, and everything that depends on it, by
/// that time.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::clock::{Clock, SystemClock};
/// use stationmaster::service::{Attempt, LoopHandle, WakingStore, Worker};
/// use stationmaster::store::{MemoryStore, Store};
/// use stationmaster::{NewTask, TaskKey};
///
/// let handle = LoopHandle::new();
/// let store: Arc<dyn Store> = Arc::new(WakingStore::new(MemoryStore::new(), handle.clone()));
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?).payload("copy.sql");
/// store.write(|tx| tx.enqueue(SystemClock.now(), std::slice::from_ref(&task)))?;
///
/// let stop = handle.clone(); // in a program: from a signal
/// let worker = Worker::new(store, "worker-1".try_into()?).handler(move |attempt: &Attempt| {
///     println!("attempt {} at {}", attempt.task().attempt, attempt.task().payload);
///     stop.stop();
///     Ok::<(), std::io::Error>(())
/// });
/// assert_eq!(worker.run(&handle)?.stored, 1);
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub struct Worker {
    store: Arc<dyn Store>,
    holder: Holder,
    /// The places for tasks of all queues, unless queues are named.
    places: usize,
    queues: Vec<(QueueName, usize)>,
    handlers: Handlers,
    lease: Duration,
    policy: Policy,
    waits: Waits,
    max_run: Option<MaxRun>,
    on_error: Option<OnError>,
    observer: Option<Arc<dyn Observer>>,
    clock: Arc<dyn Clock>,
}

impl Worker {
    /// Creates a worker for this holder, with as many places as the machine has processors, for all queues, and leases
    /// of 60 seconds. Give each worker its own holder name.
    pub fn new(store: Arc<dyn Store>, holder: Holder) -> Self {
        let second = Duration::from_secs(1);
        Self {
            store,
            holder,
            places: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            queues: Vec::new(),
            handlers: Handlers::default(),
            lease: 60 * second,
            policy: Policy::default(),
            waits: Waits { patience: 30 * second, gather: Duration::ZERO, at_most: 5 * second },
            max_run: None,
            on_error: None,
            observer: None,
            clock: Arc::new(SystemClock),
        }
    }

    setters! {
        /// Sets how many attempts are under way at once, at least 1. They serve all queues. The number is ignored if
        /// [`Self::queue`] names some. Default: the number of processors.
        places: usize;
        /// Serves this queue with this many places, at least 1. Queues that are not named are then not served. Naming a
        /// queue again adds places.
        queue(name: QueueName, places: usize) { queues.push((name, places)) }
        /// Sets how long leases last, at least one millisecond. They are renewed while handlers work, so this
        /// is how long a dead worker's tasks wait. Default: 60 seconds.
        lease: Duration;
        /// Sets the clock by which it admits, renews and stores ends. On several machines, use the database's clock,
        /// `PostgresStore::clock`. The worker still sleeps in real time, and measures its waits by [`Clock::steady`],
        /// so they are not affected by a clock that is set back. Default: [`SystemClock`].
        clock(clock: impl Clock + 'static) { clock = Arc::new(clock) }
        /// Sets what happens to tasks that do not fit. Default: [`Policy::Backfill`].
        policy: Policy;
        /// Sets how long handlers may take to return after they were asked to stop. Default: 30 seconds.
        patience(length: Duration) { waits.patience = length }
        /// Sets how long an end may wait for others to be stored in the same transaction. Default: not at all.
        gather_ends(length: Duration) { waits.gather = length }
        /// Sets after how long it asks for tasks even if nothing has woken it. Default: 5 seconds.
        longest_wait(length: Duration) { waits.at_most = length }
        /// Sets how long a task may run. Its handler is then asked to stop. `None` sets no limit, which is
        /// the default. A panic of `length` fails the attempt.
        max_run(length: impl Fn(&TaskRecord) -> Option<Duration> + Send + Sync + 'static) {
            max_run = Some(Arc::new(length))
        }
        /// Calls this, on one of the worker's threads, with each error after which the worker continues.
        ///
        /// The text of a store's error begins with what the worker was doing: `asking for tasks: …`,
        /// `starting tasks: …`, `renewing leases: …` or `storing the ends of attempts: …`.
        ///
        /// [`Error::LeaseLost`] reports each attempt whose lease was lost, once: when its end is refused, or
        /// a second after the loss if its handler is still working. A worker that stops within that second
        /// does not report it.
        on_error(call: impl Fn(&Error) + Send + Sync + 'static) { on_error = Some(Arc::new(call)) }
        /// Reports what it counts and measures as an [`Admitter`](super::Admitter) and a
        /// [`Keeper`](super::Keeper) to this observer. If it serves several queues, gauges describe the one that asked
        /// last.
        observed_by(observer: Arc<dyn Observer>) { observer = Some(observer) }
    }

    /// Sets the handler of all tasks that have no other handler. It runs on threads of the worker.
    #[must_use]
    pub fn handler<R: Into<Outcome>>(self, handler: impl Fn(&Attempt) -> R + Send + Sync + 'static) -> Self {
        self.on_threads(Tasks::All, handler)
    }

    /// Sets the handler of the tasks of this queue, except those with a [`Self::task_handler`].
    #[must_use]
    pub fn queue_handler<R: Into<Outcome>>(
        self,
        queue: QueueName,
        handler: impl Fn(&Attempt) -> R + Send + Sync + 'static,
    ) -> Self {
        self.on_threads(Tasks::OfQueue(queue), handler)
    }

    /// Sets the handler of the tasks of this name in this workflow.
    #[must_use]
    pub fn task_handler<R: Into<Outcome>>(
        self,
        workflow: WorkflowId,
        task: TaskName,
        handler: impl Fn(&Attempt) -> R + Send + Sync + 'static,
    ) -> Self {
        self.on_threads(Tasks::Named(workflow, task), handler)
    }

    /// Runs until the handle is stopped, and then stops [as described](Self#how-it-stops).
    ///
    /// Besides the threads of handlers, it has three: one admits, one renews leases, one stores ends. There are as
    /// many threads of handlers as the most attempts that ever ran at once. All end when the worker does, except those
    /// whose handlers do not return. The handle also wakes the worker. If the worker has to give up, it stops the
    /// handle.
    ///
    /// # Errors
    ///
    /// [`Invalid::Zero`] without a handler, or for a queue without places. [`Invalid::Duration`] for a lease
    /// below one millisecond. The errors of [`Tx::admit`](crate::store::Tx::admit) for its policy. [`Error::Refused`]
    /// if the system has no threads for it. Errors of the store do not end the worker: see [`Self::on_error`].
    pub fn run(self, handle: &LoopHandle) -> Result<WorkerReport> {
        self.check()?;
        Running::begin(self, handle)?.until_stopped(handle)
    }

    fn on_threads<R: Into<Outcome>>(
        self,
        tasks: Tasks,
        handler: impl Fn(&Attempt) -> R + Send + Sync + 'static,
    ) -> Self {
        self.with_handler(tasks, Handler::Thread(Arc::new(move |attempt| handler(attempt).into())))
    }

    pub(crate) fn with_handler(mut self, tasks: Tasks, handler: Handler) -> Self {
        self.handlers.set(tasks, handler);
        self
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        let is_too_few = |places: usize| {
            if places == 0 { Some(Invalid::Zero { what: "a number of places" }) } else { None }
        };
        let groups = self.groups();
        match groups.iter().find_map(|(_, places)| is_too_few(*places)) {
            Some(invalid) => Err(invalid),
            None if self.handlers.is_empty() => Err(Invalid::Zero { what: "a number of handlers" }),
            None if self.lease < Duration::from_millis(1) => {
                Err(Invalid::Duration { what: "a lease", expected: "at least 1 ms" })
            }
            None => Ok(()),
        }
    }

    /// Returns the sets of queues that have their own places; `None` is all queues.
    fn groups(&self) -> Vec<(Option<QueueName>, usize)> {
        let mut groups: Vec<(Option<QueueName>, usize)> = Vec::new();
        for (queue, places) in &self.queues {
            match groups.iter_mut().find(|(known, _)| known.as_ref() == Some(queue)) {
                Some((_, known)) => *known = known.saturating_add(*places),
                None => groups.push((Some(queue.clone()), *places)),
            }
        }
        if groups.is_empty() {
            groups.push((None, self.places));
        }
        groups
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker")
            .field("holder", &self.holder)
            .field("groups", &self.groups())
            .field("handlers", &self.handlers)
            .field("lease", &self.lease)
            .field("waits", &self.waits)
            .finish_non_exhaustive()
    }
}
