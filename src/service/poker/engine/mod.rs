//! Runs calls of the host's pokes, each with a deadline, on threads or on a runtime.
//!
//! [`State`] contains its whole state and makes the decisions. This module adds the lock, the threads and the
//! clock.

mod call;
mod future;
mod line;
mod state;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};

use call::{Call, STUCK};
use state::State;
pub(super) use state::{Collected, Setting, Standing};

use super::poke::{How, Probe, look};
use crate::id::SensorKind;
use crate::sensor::plan::{GroupRef, Job};
use crate::service::driver::LoopHandle;
use crate::service::observer::spans;

/// The engine of a poker. All calls end with it, except those that hang.
pub(super) struct Engine(Arc<Shared>);

/// The state that the engine and the runners of its calls share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when there is work for a thread.
    work: Condvar,
    /// Notified when there is something for the tick to collect.
    news: Condvar,
}

impl Shared {
    /// Changes the state, and wakes the affected threads: as many idle threads as there is work that may begin,
    /// and the waiting tick or its loop. The tick is woken once for everything that it has not collected.
    fn with<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        self.wake(state);
        result
    }

    fn wake(&self, mut state: MutexGuard<'_, State>) {
        for _ in 0..state.call_threads(Instant::now()) {
            self.work.notify_one();
        }
        if !std::mem::take(&mut state.unnotified) {
            return;
        }
        if state.awaited {
            self.news.notify_one();
        } else if let Some(handle) = state.handle.clone() {
            // Waking a future that waits on the handle runs the host's code, so the lock must not be held.
            drop(state);
            handle.wake();
        }
    }

    /// Waits for a call, on a thread of the engine. Returns `None` when the thread should end.
    fn next_call(&self) -> Option<Arc<Call>> {
        let mut state = self.state.lock();
        loop {
            if state.closing {
                state.threads -= 1;
                state.note();
                self.wake(state);
                return None;
            }
            if let Some(call) = state.begin(true, Instant::now()) {
                return Some(call);
            }
            state.idle += 1;
            self.work.wait_while(&mut state, |state| state.called == 0 && !state.closing);
            state.called = state.called.saturating_sub(1);
            state.idle -= 1;
        }
    }

    /// Makes calls until the engine closes or the tick gives one of them up. In that case another thread has
    /// taken its place.
    fn run_thread(&self) {
        while let Some(call) = self.next_call() {
            if let How::Threads(poke) = &call.probe.how {
                loop {
                    let requests = call.requests();
                    let _span = spans::poke(&call.kind, requests.len());
                    if !call.answered(look(poke.as_ref(), &requests), Instant::now()) {
                        break;
                    }
                }
            }
            if !self.with(|state| state.end(&call, Instant::now())) {
                return;
            }
        }
    }
}

impl Engine {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    /// Sets how a kind is poked from now on, and how many of its calls run at once.
    pub(super) fn serve(&self, kind: SensorKind, probe: Probe, at_once: usize) {
        self.0.with(|state| state.serve(kind, probe, at_once));
    }

    /// Wakes this loop when there is something to collect and no tick waits for it.
    pub(super) fn wakes(&self, handle: LoopHandle) {
        self.0.with(|state| state.handle = Some(handle));
    }

    pub(super) fn set(&self, setting: Setting) {
        self.0.with(|state| state.setting = setting);
        self.start();
    }

    /// Returns how many more jobs of this kind the queue takes.
    pub(super) fn room(&self, kind: &SensorKind) -> usize {
        self.0.with(|state| state.room(kind))
    }

    /// Queues jobs of a kind.
    pub(super) fn queue(&self, kind: &SensorKind, jobs: Vec<Job>) {
        self.0.with(|state| state.queue(kind, jobs));
        self.start();
    }

    /// Begins everything that may begin.
    fn start(&self) {
        for _ in 0..self.0.with(|state| state.hire(Instant::now())) {
            let shared = Arc::clone(&self.0);
            let thread = std::thread::Builder::new().name("stationmaster-poke".into());
            // If the system has no more threads, the existing ones do the work, or a later tick tries again.
            if thread.spawn(move || shared.run_thread()).is_err() {
                self.0.with(|state| state.threads -= 1);
            }
        }
        self.0.launch();
    }

    /// Gives up the calls that have passed their deadline, and adds all outcomes to these.
    pub(super) fn collect(&self, to: &mut Collected) {
        let (abandoned, collected) = self.0.with(|state| (state.check(Instant::now()), state.collect()));
        to.answers.extend(collected.answers);
        to.returned.extend(collected.returned);
        abandoned.iter().for_each(|call| self.0.abandon(call));
        self.start();
    }

    /// Waits until there is something to collect, but not past that instant.
    pub(super) fn wait(&self, until: Instant) {
        let mut state = self.0.state.lock();
        state.awaited = true;
        self.0.news.wait_while_until(&mut state, |state| !state.news, until);
        state.awaited = false;
    }

    pub(super) fn standing(&self) -> Standing {
        self.0.state.lock().standing()
    }

    /// Takes back the jobs that no call has taken and that are no longer wanted.
    pub(super) fn withdraw(&self, wanted: impl FnMut(&Job) -> bool) -> Vec<GroupRef> {
        self.0.with(|state| state.withdraw(wanted))
    }

    /// Takes back the jobs of a kind that no call has taken, if too many of its calls hang to begin another.
    pub(super) fn hold_back(&self, kind: &SensorKind) -> Option<Vec<Job>> {
        self.0.with(|state| state.hold_back(kind))
    }

    /// Stops beginning pokes, drops futures, and waits for the calls on threads, each at most until its deadline.
    pub(super) fn close(&self, to: &mut Collected) {
        let abandoned = self.0.with(State::close);
        self.0.work.notify_all();
        abandoned.iter().for_each(|call| self.0.abandon(call));
        loop {
            let threads = self.0.state.lock().threads;
            self.collect(to);
            if threads == 0 {
                break;
            }
            let soon = Instant::now() + STUCK;
            self.wait(self.standing().check_at.map_or(soon, |at| at.min(soon)));
        }
        self.0.with(State::closed);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close(&mut Collected::default());
    }
}
