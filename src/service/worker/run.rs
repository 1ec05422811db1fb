//! A running worker: its loops on threads, and the stop.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::Worker;
use super::loops::{AdmitLoop, EndLoop, is_fatal};
use super::report::WorkerReport;
use super::shared::{Shared, State};
use crate::core::worker::WorkerState;
use crate::error::{Error, Result};
use crate::id::QueueName;
use crate::service::{Admitter, KeepReport, Keeper, LoopHandle, Service, WakingStore, drive};
use crate::store::{Store, StoreInfo, Tx, TxMode};
use crate::time::Timestamp;

/// How long a loop without work sleeps. New work wakes it.
const LONGEST: Duration = Duration::from_secs(3_600);

/// A worker whose loops have begun.
pub(super) struct Running {
    shared: Arc<Shared>,
    /// The handle of the keeper's loop.
    keeps: LoopHandle,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    pub(super) fn begin(worker: Worker, handle: &LoopHandle) -> Result<Self> {
        let groups = worker.groups();
        let admitter = |queue: Option<QueueName>, places: usize| {
            let admitter = Admitter::new(worker.store.clone(), worker.holder.clone());
            let admitter = admitter.lease(worker.lease).policy(worker.policy.clone()).started();
            // A tick that grants fewer than requested has found everything that fits.
            let admitter = admitter.budget(places);
            let admitter = match worker.observer.clone() {
                Some(observer) => admitter.observed_by(observer),
                None => admitter,
            };
            match queue {
                Some(queue) => admitter.serves([queue]),
                None => admitter,
            }
        };
        let keeper = admitter(None, 0).keeper();
        let admitters = groups.iter().map(|(queue, places)| admitter(queue.clone(), *places)).collect();
        let machine = WorkerState::new(groups.iter().map(|(_, places)| *places), worker.waits);
        let shared = Arc::new(Shared {
            plain: worker.store.clone(),
            store: Arc::new(WakingStore::new(Given(worker.store), handle.clone())),
            keeper: keeper.clone(),
            handlers: worker.handlers,
            max_run: worker.max_run,
            on_error: worker.on_error,
            clock: worker.clock,
            admits: handle.clone(),
            ends: LoopHandle::new(),
            time: LoopHandle::new(),
            has_lost_a_loop: AtomicBool::new(false),
            starting: AtomicUsize::new(0),
            state: Mutex::new(State::new(machine)),
        });
        let mut running = Self { shared: shared.clone(), keeps: LoopHandle::new(), threads: Vec::new() };
        let keeps = running.keeps.clone();
        let begun = running
            .spawn("stationmaster-end", EndLoop(shared.clone()), shared.ends.clone())
            .and_then(|()| running.spawn("stationmaster-keep", Keeping(keeper, shared.clone()), keeps))
            .and_then(|()| {
                running.spawn(
                    "stationmaster-admit",
                    AdmitLoop::new(shared.clone(), admitters),
                    handle.clone(),
                )
            });
        if begun.is_err() {
            running.end_loops();
        }
        begun.map(|()| running)
    }

    fn spawn(
        &mut self,
        name: &str,
        mut service: impl Service + Send + 'static,
        handle: LoopHandle,
    ) -> Result<()> {
        let (shared, ended) = (self.shared.clone(), EndsLoop(self.shared.clone()));
        let work = move || {
            let _ended = ended;
            drive(&mut service, &*shared.clock, &handle, LONGEST, |report| match report {
                Err(error) if is_fatal(&error) => {
                    shared.fail(error);
                    ControlFlow::Break(())
                }
                Err(error) => {
                    shared.report(&error);
                    ControlFlow::Continue(())
                }
                Ok(_) => ControlFlow::Continue(()),
            });
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn(work);
        self.threads.push(thread.map_err(|error| Error::Refused(error.into()))?);
        Ok(())
    }

    /// Watches the time until the worker is stopped and nothing is left, or until it has waited long enough.
    /// It calls no store, so nothing delays it.
    pub(super) fn until_stopped(mut self, handle: &LoopHandle) -> Result<WorkerReport> {
        let shared = self.shared.clone();
        let waker = Waker::from(Arc::new(WakeOther(shared.time.clone())));
        // Only a stop and a cancel concern this thread. A busy worker is woken far more often to admit.
        handle.wakes_for_cancels(&shared.time);
        // From 0: an attempt may have begun and been cancelled before this thread gets here.
        let (mut stopped, mut cancels) = (pin!(handle.stopped()), 0);
        loop {
            let (seen, now) = (shared.time.seen(), shared.steady());
            let _ = stopped.as_mut().poll(&mut Context::from_waker(&waker));
            // The keeper has its own handle, so that a wake-up for admission does not wake it.
            let seen_cancels = handle.cancels_seen();
            if std::mem::replace(&mut cancels, seen_cancels) != seen_cancels {
                self.keeps.wake_for_cancel();
            }
            // A loop that ends on its own has panicked, or cannot continue.
            if handle.is_stopped() || shared.has_lost_a_loop.load(Ordering::Acquire) {
                handle.stop();
                shared.stop(now);
            }
            let next = shared.mind_the_time(now);
            let state = shared.state.lock();
            let (is_done, is_over) = (state.machine.is_done(), state.machine.is_over(now));
            drop(state);
            if is_done || is_over {
                break;
            }
            let pause = next.map_or(LONGEST, |next| next.saturating_duration_since(now));
            shared.time.wait_since(seen, pause.clamp(Duration::from_millis(1), LONGEST));
        }
        self.end_loops();
        let report = shared.close();
        let mut pause = Duration::from_millis(1);
        // A loop that hangs in a store call is left behind.
        while !shared.state.lock().machine.is_over(shared.steady())
            && !self.threads.iter().all(JoinHandle::is_finished)
        {
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(100));
        }
        for thread in self.threads.drain(..).filter(JoinHandle::is_finished) {
            if let Err(panic) = thread.join() {
                resume_unwind(panic);
            }
        }
        report
    }

    fn end_loops(&self) {
        [&self.shared.admits, &self.shared.ends, &self.keeps].into_iter().for_each(LoopHandle::stop);
    }
}

/// Notes that a loop has ended, also by a panic.
struct EndsLoop(Arc<Shared>);

impl Drop for EndsLoop {
    fn drop(&mut self) {
        self.0.has_lost_a_loop.store(true, Ordering::Release);
        self.0.time.wake();
    }
}

/// Wakes one handle when another one is stopped.
struct WakeOther(LoopHandle);

impl Wake for WakeOther {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

/// The keeper, whose errors are reported to the host.
struct Keeping(Keeper, Arc<Shared>);

impl Service for Keeping {
    type Report = KeepReport;

    fn tick(&mut self, now: Timestamp) -> Result<KeepReport> {
        let mut report = self.0.tick(now)?;
        report.error = report.error.map(|error| error.during("renewing leases"));
        if let Some(error) = &report.error {
            self.1.report(error);
        }
        if !report.lost.is_empty() {
            self.1.lost(&report.lost);
        }
        Ok(report)
    }

    fn woken_by(&mut self, handle: &LoopHandle) {
        self.0.woken_by(handle);
    }
}

/// The host's store, to be wrapped.
#[derive(Debug)]
struct Given(Arc<dyn Store>);

impl Store for Given {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.0.transact(mode, body)
    }
}
