//! Handlers of a worker that are futures, and a worker that is awaited.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::tokio::runtime::Handle;
use ::tokio::time::sleep;

use super::blocking::{current, joined};
use crate::error::Result;
use crate::id::{QueueName, TaskName, WorkflowId};
use crate::ops::Outcome;
use crate::service::worker::{Done, Ending, Handler, Tasks, panicked};
use crate::service::{Attempt, LoopHandle, Worker, WorkerReport};
use crate::store::Tx;

impl Worker {
    /// Sets the handler of all tasks that have no other: a function that returns a future, which runs as a
    /// task of this runtime and must not block it. Otherwise it works like [`Worker::handler`], and both can
    /// be mixed.
    ///
    /// The future is dropped at its next await when its lease is lost, and after the
    /// [patience](Worker::patience) if it ignores the stop. If its runtime is shut down, it is also dropped,
    /// and its task given back.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use stationmaster::clock::{Clock, SystemClock};
    /// use stationmaster::service::{LoopHandle, WakingStore, Worker};
    /// use stationmaster::store::{MemoryStore, Store};
    /// use stationmaster::{Error, NewTask, TaskKey};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// let handle = LoopHandle::new();
    /// let store: Arc<dyn Store> = Arc::new(WakingStore::new(MemoryStore::new(), handle.clone()));
    /// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
    /// store.write(|tx| tx.enqueue(SystemClock.now(), std::slice::from_ref(&task)))?;
    ///
    /// let (stop, runtime) = (handle.clone(), tokio::runtime::Handle::current());
    /// let worker = Worker::new(store, "worker-1".try_into()?).handler_async(&runtime, move |attempt| {
    ///     let stop = stop.clone();
    ///     async move {
    ///         tokio::task::yield_now().await; // the work
    ///         println!("{} is done", attempt.task().key);
    ///         stop.stop();
    ///         Ok::<(), Error>(())
    ///     }
    /// });
    /// assert_eq!(worker.run_async(&handle).await?.stored, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn handler_async<A, R>(
        self,
        runtime: &Handle,
        handler: impl Fn(Attempt) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = R> + Send,
        R: Into<Outcome>,
    {
        self.with_handler(Tasks::All, spawning(runtime, handler))
    }

    /// Sets the handler of the tasks of this queue, like [`Worker::queue_handler`], to a future as in
    /// [`handler_async`](Self::handler_async).
    #[must_use]
    pub fn queue_handler_async<A, R>(
        self,
        queue: QueueName,
        runtime: &Handle,
        handler: impl Fn(Attempt) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = R> + Send,
        R: Into<Outcome>,
    {
        self.with_handler(Tasks::OfQueue(queue), spawning(runtime, handler))
    }

    /// Sets the handler of the tasks of this name in this workflow, like [`Worker::task_handler`], to a
    /// future as in [`handler_async`](Self::handler_async).
    #[must_use]
    pub fn task_handler_async<A, R>(
        self,
        workflow: WorkflowId,
        task: TaskName,
        runtime: &Handle,
        handler: impl Fn(Attempt) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = R> + Send,
        R: Into<Outcome>,
    {
        self.with_handler(Tasks::Named(workflow, task), spawning(runtime, handler))
    }

    /// Runs until the handle is stopped: [`Worker::run`] as a future. It takes one of the runtime's blocking
    /// threads for as long as it runs.
    ///
    /// # Cancellation
    ///
    /// Dropping the future stops the handle. The worker then stops as usual, with its patience. The shutdown
    /// of the runtime waits for that.
    ///
    /// # Errors
    ///
    /// Those of [`Worker::run`], and [`Error::NoRuntime`](crate::Error::NoRuntime) outside a runtime.
    pub async fn run_async(self, handle: &LoopHandle) -> Result<WorkerReport> {
        let (runtime, handle) = (current()?, handle.clone());
        let _stops = StopOnDrop(handle.clone());
        joined(runtime.spawn_blocking(move || self.run(&handle)).await)?
    }
}

impl Attempt {
    /// Ends the attempt and runs `body`, in one transaction of the worker's store: [`Attempt::end`] on one of
    /// the runtime's blocking threads. It runs to its end, even if the future is dropped.
    ///
    /// # Errors
    ///
    /// Those of [`Attempt::end`], and [`Error::NoRuntime`](crate::Error::NoRuntime) outside a runtime. A
    /// panic of `body` resumes in the caller.
    pub async fn end_async(
        &self,
        outcome: impl Into<Outcome>,
        body: impl FnMut(&mut Tx<'_>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let (attempt, outcome) = (self.clone(), outcome.into());
        joined(current()?.spawn_blocking(move || attempt.end(outcome, body)).await)?
    }

    /// Ends the attempt in one of the host's transactions, and then calls [`Self::ended_elsewhere`].
    ///
    /// Each call of `transaction` begins a transaction, ends the attempt with [`Self::end_in`], and commits.
    /// Instead of ending it, it may [register](Tx::register) the task under [`Self::lease`], and check the result
    /// with [`fenced`](crate::ops::Fenced::fenced). It is called again if its error [is retryable](crate::Error::is_retryable), or if the outcome
    /// of its commit [is unknown](crate::Error::is_indeterminate). The pauses before that double up to a
    /// second. It stops when the lease is lost. So the transaction takes effect once, and neither a deadlock
    /// nor a lost connection costs the task an attempt.
    ///
    /// On PostgreSQL, `?` turns errors of tokio-postgres into [`Error`](crate::Error), with the same
    /// distinction. Other errors of the host end the call: wrap them with
    /// [`Error::abort`](crate::Error::abort). A pool's error that contains one of tokio-postgres must become that one, or
    /// a lost connection is not repeated: see `guide`, *Commit with my own rows*. If a commit of unknown outcome has taken effect, the next call
    /// learns that from the end. One of the host's unique constraints may fail before that. Return such an
    /// error from the handler: the worker cannot fail an attempt that has ended.
    ///
    /// # Errors
    ///
    /// Those of [`Attempt::end`], with the errors of `transaction` in place of those of its body. The runtime
    /// must have its timers enabled, or tokio panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::service::Attempt;
    /// use stationmaster::tokio::AsyncStore;
    ///
    /// async fn done(jobs: &AsyncStore, attempt: &Attempt) -> stationmaster::Result<()> {
    ///     let transaction = || {
    ///         let attempt = attempt.clone();
    ///         // With rows of your own beside the end: see `guide`, *Commit with my own rows*.
    ///         jobs.write(move |tx| attempt.end_in(tx, ()))
    ///     };
    ///     attempt.end_by(transaction).await
    /// }
    /// # let _ = done;
    /// ```
    pub async fn end_by<F>(&self, mut transaction: impl FnMut() -> F) -> Result<()>
    where
        F: Future<Output = Result<()>>,
    {
        let mut ending = Ending::new(self);
        loop {
            match ending.after(transaction().await) {
                ControlFlow::Break(ended) => return ended,
                ControlFlow::Continue(pause) => sleep(pause).await,
            }
        }
    }
}

/// Returns a handler whose futures are tasks of this runtime.
fn spawning<A, R>(runtime: &Handle, handler: impl Fn(Attempt) -> A + Send + Sync + 'static) -> Handler
where
    A: Future<Output = R> + Send,
    R: Into<Outcome>,
{
    let (runtime, handler) = (runtime.clone(), Arc::new(handler));
    Handler::Spawn(Arc::new(move |attempt: Attempt, done| {
        let (handler, cut) = (Arc::clone(&handler), Box::pin(attempt.until_cut()));
        // The task calls the host's function, so a panic in it fails the attempt.
        let work = Box::pin(async move { handler(attempt).await.into() });
        runtime.spawn(CutOff { work: Some(work), cut, done: Some(done) });
    }))
}

/// One attempt's future, until it is cut off.
struct CutOff {
    work: Option<Pin<Box<dyn Future<Output = Outcome> + Send>>>,
    cut: Pin<Box<dyn Future<Output = ()> + Send>>,
    done: Option<Done>,
}

impl Future for CutOff {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.done.as_mut().into_iter().for_each(Done::begins);
        let is_cut = this.cut.as_mut().poll(context).is_ready();
        let Some(work) = this.work.as_mut().filter(|_| !is_cut) else {
            this.ends(Outcome::GivenBack);
            return Poll::Ready(());
        };
        let outcome = match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(outcome)) => outcome,
            Err(panic) => panicked(&*panic),
        };
        this.ends(outcome);
        Poll::Ready(())
    }
}

impl CutOff {
    /// Passes on the outcome after the host's future was dropped, with everything that it held.
    fn ends(&mut self, outcome: Outcome) {
        let work = self.work.take();
        // The panic hook has printed it, and the outcome is not affected.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(work)));
        if let Some(done) = self.done.take() {
            done.with(outcome);
        }
    }
}

/// Stops a worker whose future was dropped.
struct StopOnDrop(LoopHandle);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
