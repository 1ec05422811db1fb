//! The host's handlers, and how one is run.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use super::attempt::Attempt;
use super::shared::Shared;
use crate::bounds::{MAX_TEXT_BYTES, clip};
use crate::error::{Error, Invalid, Result};
use crate::id::{QueueName, TaskName, WorkflowId};
use crate::lease::LeaseRef;
use crate::ops::{Outcome, RetryAdvice};
use crate::task::TaskRecord;

/// A handler that runs on a thread.
type ThreadHandler = dyn Fn(&Attempt) -> Outcome + Send + Sync;

/// A handler, and where it runs.
#[derive(Clone)]
pub(crate) enum Handler {
    /// On a thread of the worker.
    Thread(Arc<ThreadHandler>),
    /// As a task of a runtime, which this function spawns.
    #[cfg(feature = "tokio")]
    Spawn(Arc<dyn Fn(Attempt, Done) + Send + Sync>),
}

/// A worker's handlers. The most specific one is called.
#[derive(Clone, Default)]
pub(super) struct Handlers {
    tasks: BTreeMap<(WorkflowId, TaskName), Handler>,
    queues: BTreeMap<QueueName, Handler>,
    other: Option<Handler>,
    threads: Arc<Threads>,
}

/// The tasks that a handler is for.
#[derive(Debug)]
pub(crate) enum Tasks {
    All,
    OfQueue(QueueName),
    Named(WorkflowId, TaskName),
}

impl Handlers {
    pub(super) fn set(&mut self, tasks: Tasks, handler: Handler) {
        match tasks {
            Tasks::All => self.other = Some(handler),
            Tasks::OfQueue(queue) => drop(self.queues.insert(queue, handler)),
            Tasks::Named(workflow, task) => drop(self.tasks.insert((workflow, task), handler)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.queues.is_empty() && self.other.is_none()
    }

    fn of(&self, task: &TaskRecord) -> Option<&Handler> {
        let of_task = match self.tasks.is_empty() {
            true => None,
            false => self.tasks.get(&(task.key.workflow.clone(), task.key.task.clone())),
        };
        of_task.or_else(|| self.queues.get(&task.lane.queue)).or(self.other.as_ref())
    }

    /// Runs the handlers of these attempts. An attempt that gets no thread is given back.
    pub(super) fn launch(&self, attempts: impl IntoIterator<Item = (Attempt, Done)>) -> Result<()> {
        let mut works = Vec::new();
        for (attempt, done) in attempts {
            match self.of(attempt.task()) {
                Some(Handler::Thread(handler)) => {
                    works.push(Work { handler: handler.clone(), attempt, done });
                }
                #[cfg(feature = "tokio")]
                Some(Handler::Spawn(spawn)) => spawn(attempt, done),
                None => {
                    let key = &attempt.task().key;
                    let message = format!("no handler for task {} of workflow {}", key.task, key.workflow);
                    done.with(failed(message));
                }
            }
        }
        self.threads.run(works).map_err(|error| Error::Refused(error.into()))
    }

    /// Ends the idle threads, and each other one when its handler has returned.
    pub(super) fn close(&self) {
        self.threads.queue.lock().is_closed = true;
        self.threads.changed.notify_all();
    }
}

/// The threads of handlers. A thread whose handler has returned waits for the next attempt. So there are as many as
/// the most attempts that ever ran at once. A handler that hangs keeps its thread, but delays no other attempt.
#[derive(Default)]
struct Threads {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// No more than there are free threads.
    works: VecDeque<Work>,
    /// How many threads wait for work, or will do so after passing on an outcome.
    free: usize,
    /// How many of the waiting threads were called and have not woken yet.
    called: usize,
    /// How many threads run handlers.
    busy: usize,
    is_closed: bool,
}

/// An attempt and its handler.
struct Work {
    handler: Arc<ThreadHandler>,
    attempt: Attempt,
    done: Done,
}

impl Threads {
    /// Runs these on free threads, or on new ones. A work without a thread is dropped, including its [`Done`].
    fn run(self: &Arc<Self>, works: Vec<Work>) -> std::io::Result<()> {
        let mut works = works.into_iter();
        let mut queue = self.queue.lock();
        let room = queue.free.saturating_sub(queue.works.len());
        queue.works.extend(works.by_ref().take(room));
        self.call(&mut queue);
        queue.busy += works.len();
        drop(queue);
        let mut spawned = Ok(());
        for work in works {
            let threads = self.clone();
            let thread = std::thread::Builder::new().name("stationmaster-work".into());
            if let Err(error) = thread.spawn(move || threads.serve(work)) {
                self.queue.lock().busy -= 1;
                spawned = Err(error);
            }
        }
        spawned
    }

    /// Calls threads for queued work: few at once, and more while handlers occupy threads. Each thread that takes work
    /// calls others for the rest before its handler begins. So a thread with a short handler takes the next work
    /// itself, and the others sleep on. If no thread waits, a free one has not begun to wait yet, and looks at the
    /// queue first.
    fn call(&self, queue: &mut Queue) {
        let most = (1 + queue.busy / 2).min(queue.works.len());
        while queue.called < most && self.changed.notify_one() {
            queue.called += 1;
        }
    }

    fn serve(&self, first: Work) {
        let mut next = Some(first);
        while let Some(Work { handler, attempt, mut done }) = next {
            done.begins();
            let outcome = catch_unwind(AssertUnwindSafe(|| handler(&attempt)));
            // The payload of a panic may itself panic when dropped, which ends the thread: so do not count it as free
            // yet.
            let outcome = outcome.unwrap_or_else(|panic| panicked(&*panic));
            // The thread becomes free before the place does, so that the next attempt in that place finds it.
            {
                let mut queue = self.queue.lock();
                (queue.free, queue.busy) = (queue.free + 1, queue.busy - 1);
            }
            done.with(outcome);
            drop((handler, attempt));
            next = self.next();
        }
    }

    /// Waits for work. Returns `None` when there will be no more.
    fn next(&self) -> Option<Work> {
        let mut queue = self.queue.lock();
        while queue.works.is_empty() && !queue.is_closed {
            self.changed.wait(&mut queue);
            queue.called = queue.called.saturating_sub(1);
        }
        queue.free -= 1;
        let work = queue.works.pop_front();
        queue.busy += usize::from(work.is_some());
        self.call(&mut queue);
        work
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers")
            .field("tasks", &self.tasks.keys())
            .field("queues", &self.queues.keys())
            .field("has_other", &self.other.is_some())
            .finish()
    }
}

/// Receives the outcome of one attempt. If it is dropped without one, the attempt did not happen.
pub(crate) struct Done {
    shared: Option<Arc<Shared>>,
    lease: LeaseRef,
    /// Whether its handler is one of several that are being started together.
    is_starting: bool,
}

impl Done {
    pub(super) fn new(shared: Arc<Shared>, lease: LeaseRef, is_starting: bool) -> Self {
        Self { shared: Some(shared), lease, is_starting }
    }

    /// Notes that the handler runs, or never will. Further calls have no effect.
    pub(crate) fn begins(&mut self) {
        if std::mem::take(&mut self.is_starting)
            && let Some(shared) = &self.shared
        {
            shared.started();
        }
    }

    /// Passes on the outcome of the attempt.
    pub(crate) fn with(mut self, outcome: Outcome) {
        self.begins();
        if let Some(shared) = self.shared.take() {
            shared.returned(self.lease, storable(outcome));
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        self.begins();
        if let Some(shared) = self.shared.take() {
            shared.did_not_run(self.lease);
        }
    }
}

/// Returns the outcome of an attempt that panicked.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Outcome {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    failed(format!("the handler panicked: {}", text.unwrap_or("without a text")))
}

/// Returns a failure with this message. The retry policy decides what follows.
pub(super) fn failed(message: String) -> Outcome {
    Outcome::Failed { message, retry: RetryAdvice::Policy }
}

/// Returns the outcome in a form that the store accepts. A refused end would delay the ends stored with it.
fn storable(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Success { value: Some(value) } if value.len() > MAX_TEXT_BYTES => {
            let what = "a task's value";
            failed(Invalid::TooManyBytes { what, bytes: value.len(), cap: MAX_TEXT_BYTES }.to_string())
        }
        Outcome::Failed { message, retry } => Outcome::Failed { message: clip(message), retry },
        Outcome::Skipped { message } => Outcome::Skipped { message: clip(message) },
        other => other,
    }
}
