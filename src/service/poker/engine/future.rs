//! A call that is a future: a task of the host's runtime.
//!
//! The task takes the future out of its call to poll it, and puts it back. To give a call up, the tick sets a mark,
//! and drops the future if it is there. If it is not, it is being polled, perhaps forever, and the tick cannot wait
//! for that. The task finds the mark when it puts the future back, and drops it then.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::Shared;
use super::call::{Call, Phase};
use crate::sensor::PokeOutcome;
use crate::service::poker::poke::{BoxFuture, checked};

/// The task of one call.
pub(super) struct Task {
    shared: Arc<Shared>,
    call: Arc<Call>,
    is_over: bool,
}

impl Shared {
    /// Begins the calls on runtimes that may begin.
    pub(super) fn launch(self: &Arc<Self>) {
        while let Some(call) = self.with(|state| state.begin(false, Instant::now())) {
            let Some(runtime) = call.runtime() else { return };
            let future = runtime.look(call.requests());
            call.work.lock().future = Some(future);
            let task = Task { shared: Arc::clone(self), call: Arc::clone(&call), is_over: false };
            runtime.spawn(Box::pin(task));
        }
    }

    /// Drops the future of a call that was given up, unless its task already does, and makes the task end. An idle
    /// task must be polled once more to notice that it is over.
    pub(super) fn abandon(&self, call: &Call) {
        let mut work = call.work.lock();
        let (future, waker) = (work.future.take(), work.waker.take());
        drop(work);
        discard(call, future);
        self.with(|state| state.end(call, Instant::now()));
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn discard(call: &Call, mut future: Option<BoxFuture<Vec<PokeOutcome>>>) {
    let Some(runtime) = call.runtime() else { return };
    // The host's destructor may panic, and no caller is left to receive the panic.
    let _ = catch_unwind(AssertUnwindSafe(|| runtime.within(&mut || drop(future.take()))));
}

impl Task {
    /// Ends the call with these outcomes, unless it was given up.
    fn end(&mut self, outcomes: Vec<PokeOutcome>) {
        self.is_over = true;
        let now = Instant::now();
        self.call.answered(outcomes, now);
        self.shared.with(|state| state.end(&self.call, now));
    }
}

impl Future for Task {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let call = Arc::clone(&self.call);
        let mut work = call.work.lock();
        let (targets, future, runs) = (work.asked.len(), work.future.take(), work.phase == Phase::Runs);
        drop(work);
        let Some(mut future) = future else {
            // The tick gave it up, and drops the future.
            self.is_over = true;
            return Poll::Ready(());
        };
        // It may have been given up before the future existed.
        let polled = match runs {
            true => catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))),
            false => Ok(Poll::Ready(Vec::new())),
        };
        let outcomes = match polled {
            Ok(Poll::Pending) => {
                let mut work = call.work.lock();
                if work.phase == Phase::Runs {
                    (work.future, work.waker) = (Some(future), Some(context.waker().clone()));
                    return Poll::Pending;
                }
                Vec::new()
            }
            Ok(Poll::Ready(outcomes)) => checked(Ok(outcomes), targets),
            Err(panic) => checked(Err(panic), targets),
        };
        discard(&call, Some(future));
        self.end(outcomes);
        self.shared.launch();
        Poll::Ready(())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // Its runtime shuts down.
        let mut work = self.call.work.lock();
        let (targets, future) = (work.asked.len(), work.future.take());
        drop(work);
        if future.is_none() {
            return;
        }
        discard(&self.call, future);
        let gone = PokeOutcome::Unreachable("the runtime of its poke was shut down".into());
        self.end(vec![gone; targets]);
    }
}
