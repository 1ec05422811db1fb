//! The state that a worker's loops and attempts share.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use super::attempt::{Attempt, Cancelled};
use super::handlers::{Done, Handlers, failed, panicked};
use super::report::WorkerReport;
use crate::clock::Clock;
use crate::core::worker::{Notice, WorkerState};
use crate::error::{Error, Result};
use crate::lease::LeaseRef;
use crate::ops::{Finished, Outcome};
use crate::service::{Keeper, LoopHandle};
use crate::store::Store;
use crate::task::TaskRecord;
use crate::time::Timestamp;

/// After this long, a lost lease whose handler is still at work was certainly not ended by that handler.
const LOSS_IS_SURE_AFTER: Duration = Duration::from_secs(1);

/// Returns how long a task may run.
pub(super) type MaxRun = Arc<dyn Fn(&TaskRecord) -> Option<Duration> + Send + Sync>;
/// Receives the errors after which a worker continues.
pub(super) type OnError = Arc<dyn Fn(&Error) + Send + Sync>;

/// One running worker.
pub(crate) struct Shared {
    /// The handlers' store. Its commits wake the admitting loop.
    pub(super) store: Arc<dyn Store>,
    /// The host's store, for ends. The admitting loop has nothing to do before these are noted here.
    pub(super) plain: Arc<dyn Store>,
    pub(super) keeper: Keeper,
    pub(super) handlers: Handlers,
    pub(super) max_run: Option<MaxRun>,
    pub(super) on_error: Option<OnError>,
    pub(super) clock: Arc<dyn Clock>,
    /// The host's handle, which the admitting loop uses.
    pub(super) admits: LoopHandle,
    /// The handle of the loop that stores ends.
    pub(super) ends: LoopHandle,
    /// The handle of the loop that watches the time.
    pub(super) time: LoopHandle,
    /// Whether one of the loops has ended.
    pub(super) has_lost_a_loop: AtomicBool,
    /// How many handlers are still being started, in grants of several.
    pub(super) starting: AtomicUsize,
    pub(super) state: Mutex<State>,
}

/// The state machine, and the state that it does not contain.
pub(super) struct State {
    pub(super) machine: WorkerState<Outcome>,
    /// The attempts of the machine.
    attempts: HashMap<LeaseRef, Attempt>,
    /// How many of the wakes of `admits` brought no news, because the worker itself caused them.
    own_wakes: u64,
    /// Leases that were lost while their handlers work, with the instant to report each to the host.
    lost: Vec<(Timestamp, LeaseRef)>,
    stored: u64,
    ended_elsewhere: u64,
    refused: u64,
    /// Why the worker cannot continue.
    fatal: Option<Error>,
}

impl State {
    pub(super) fn new(machine: WorkerState<Outcome>) -> Self {
        let (attempts, lost) = (HashMap::new(), Vec::new());
        let [own_wakes, stored, ended_elsewhere, refused] = [0; 4];
        Self { machine, attempts, own_wakes, lost, stored, ended_elsewhere, refused, fatal: None }
    }

    /// Returns a number that changes with each wake that may bring news.
    pub(super) fn news(&self, handle: &LoopHandle) -> u64 {
        handle.seen().wrapping_sub(self.own_wakes)
    }

    /// Returns a number that changes with each wake by the worker itself.
    pub(super) fn own_wakes(&self) -> u64 {
        self.own_wakes
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("machine", &self.state.lock().machine).finish_non_exhaustive()
    }
}

impl Shared {
    /// Returns the instant by which the state machine measures its waits. The clock itself may be set back.
    pub(super) fn steady(&self) -> Timestamp {
        self.clock.steady()
    }

    /// Returns the clock's instant for this instant of the state machine.
    pub(super) fn by_clock(&self, steady: Timestamp) -> Timestamp {
        self.clock.now() + steady.saturating_duration_since(self.steady())
    }

    /// Keeps the tasks that were granted to a group. Returns the attempts, none of which has begun.
    pub(super) fn granted(
        &self,
        now: Timestamp,
        group: usize,
        free: usize,
        tasks: Vec<TaskRecord>,
        (due, announces_at): (Option<Timestamp>, Option<Timestamp>),
    ) -> Vec<Attempt> {
        let steady = self.steady();
        let [due, announces_at] =
            [due, announces_at].map(|at| at.map(|at| steady + at.saturating_duration_since(now)));
        let leases: Vec<LeaseRef> = tasks.iter().map(TaskRecord::lease_ref).collect();
        let kept = |task: TaskRecord| {
            let kept = self.keeper.keep(&task);
            Attempt::new(task, self.store.clone(), kept, self.clock.clone())
        };
        let mut attempts: Vec<Attempt> = tasks.into_iter().map(kept).collect();
        let mut state = self.state.lock();
        // A store that grants a lease twice must not begin its task twice.
        attempts.retain(|attempt| !state.machine.has(attempt.lease()));
        state.machine.granted(steady, group, free, &leases, due, announces_at);
        state.attempts.extend(attempts.iter().map(|attempt| (attempt.lease(), attempt.clone())));
        attempts
    }

    /// Runs the handlers of attempts, except for cancelled tasks. If the worker stops, runs none.
    pub(super) fn begin(self: &Arc<Self>, attempts: Vec<Attempt>) {
        let now = self.steady();
        // The loop that watches the time may not know about the stop yet.
        if self.admits.is_stopped() {
            self.stop(now);
        }
        let limited: Vec<_> = attempts.into_iter().map(|attempt| self.limited(now, attempt)).collect();
        let has_deadlines = limited.iter().any(|(_, limit)| matches!(limit, Ok(Some(_))));
        let (mut begun, mut others) = (Vec::with_capacity(limited.len()), Vec::new());
        let mut state = self.state.lock();
        for (attempt, limit) in limited {
            let lease = attempt.lease();
            // If a task was cancelled before its attempt began, it ends without its handler.
            let is_cancelled = matches!(attempt.cancelled(), Some(Cancelled::Requested { .. }));
            if !is_cancelled && state.machine.begins(lease, limit.as_ref().ok().copied().flatten()) {
                begun.push((attempt, limit));
            } else {
                state.machine.returned(now, lease, Some(Outcome::GivenBack));
                others.push(lease);
            }
        }
        let are_several = begun.len() > 1;
        if are_several {
            self.starting.fetch_add(begun.len(), Ordering::AcqRel);
            state.machine.starts();
        }
        self.settle(state, &others, false);
        // Several may have ended at once, and the loop that stores ends has to learn when they are due.
        if !others.is_empty() {
            self.ends.wake();
        }
        if has_deadlines {
            self.time.wake();
        }
        let launched = begun.into_iter().filter_map(|(attempt, limit)| {
            let done = Done::new(self.clone(), attempt.lease(), are_several);
            match limit {
                Ok(_) => Some((attempt, done)),
                Err(failure) => {
                    done.with(failure);
                    None
                }
            }
        });
        if let Err(error) = self.handlers.launch(launched) {
            self.report(&error.during("starting a thread for handlers"));
        }
    }

    /// Asks the host how long an attempt may run. Returns its deadline by the state machine's clock.
    fn limited(
        &self,
        now: Timestamp,
        attempt: Attempt,
    ) -> (Attempt, std::result::Result<Option<Timestamp>, Outcome>) {
        // `max_run` is the host's code. If it panics, the attempt fails.
        let longest = self.max_run.as_ref().map_or(Ok(None), |max_run| {
            catch_unwind(AssertUnwindSafe(|| max_run(attempt.task()))).map_err(|panic| panicked(&*panic))
        });
        if let Ok(Some(longest)) = longest {
            attempt.set_deadline(self.clock.now() + longest);
        }
        (attempt, longest.map(|longest| longest.map(|longest| now + longest)))
    }

    /// Notes that one of several handlers has been started. After the last of them, the ends that waited for it are
    /// stored.
    pub(super) fn started(&self) {
        if self.starting.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        let mut state = self.state.lock();
        // Others may be being started by now.
        if self.starting.load(Ordering::Acquire) > 0 {
            return;
        }
        state.machine.all_started();
        let has_ends = state.machine.next_end().is_some();
        drop(state);
        if has_ends {
            self.ends.wake();
        }
    }

    /// Forgets an attempt whose task could not be started, because its lease was lost.
    pub(super) fn forget_stale(&self, lease: LeaseRef) {
        let mut state = self.state.lock();
        state.machine.returned(self.steady(), lease, None);
        let attempt = state.attempts.get(&lease).cloned();
        self.settle(state, &[lease], false);
        self.report_losses(attempt);
    }

    /// Notes that the keeper lost these leases. A handler that has just committed its own end may not have reported it
    /// yet, and then nothing was lost. So the host is notified a moment later, and only of handlers that are still at
    /// work then.
    pub(super) fn lost(&self, leases: &[LeaseRef]) {
        let at = self.steady() + LOSS_IS_SURE_AFTER;
        self.state.lock().lost.extend(leases.iter().map(|lease| (at, *lease)));
        self.ends.wake();
    }

    /// Reports the losses that are certain by now, for attempts whose handlers are at work. If a handler has returned,
    /// the store's response to its end shows whether the lease was lost. Returns when other losses become certain.
    pub(super) fn tell_sure_losses(&self) -> Option<Timestamp> {
        let now = self.steady();
        let mut state = self.state.lock();
        let (sure, open): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.lost).into_iter().partition(|(at, _)| *at <= now);
        state.lost = open;
        let at_work = sure.iter().filter(|(_, lease)| state.machine.is_at_work(*lease));
        let lost: Vec<Attempt> = at_work
            .filter_map(|(_, lease)| state.attempts.get(lease))
            .filter(|attempt| !attempt.has_ended())
            .cloned()
            .collect();
        let next = state.lost.iter().map(|(at, _)| *at).min();
        drop(state);
        self.report_losses(lost);
        next
    }

    fn report_losses(&self, attempts: impl IntoIterator<Item = Attempt>) {
        attempts.into_iter().filter_map(|attempt| attempt.loss()).for_each(|loss| self.report(&loss));
    }

    /// Gives back an attempt that did not begin.
    pub(super) fn give_back(&self, lease: LeaseRef) {
        let mut state = self.state.lock();
        state.machine.returned(self.steady(), lease, Some(Outcome::GivenBack));
        self.settle(state, &[lease], false);
    }

    /// Notes the outcome that a handler returned.
    pub(super) fn returned(&self, lease: LeaseRef, outcome: Outcome) {
        let mut state = self.state.lock();
        let has_ended = state.attempts.get(&lease).is_some_and(Attempt::has_ended);
        state.ended_elsewhere += u64::from(has_ended);
        state.machine.returned(self.steady(), lease, (!has_ended).then_some(outcome));
        self.settle(state, &[lease], false);
    }

    /// Notes that a handler was dropped: it got no thread, or its runtime was shut down.
    pub(super) fn did_not_run(&self, lease: LeaseRef) {
        self.state.lock().machine.could_not_begin(self.steady(), lease);
        self.returned(lease, Outcome::GivenBack);
    }

    /// Notes the store's results for these ends. `is_news` says whether more tasks can be admitted now.
    pub(super) fn stored(&self, ends: &[(LeaseRef, Outcome)], finished: &[Finished], is_news: bool) {
        let mut state = self.state.lock();
        let stale = ends.iter().zip(finished).filter(|(_, finished)| **finished == Finished::Stale);
        let stale: Vec<Attempt> =
            stale.filter_map(|((lease, _), _)| state.attempts.get(lease)).cloned().collect();
        let refused = finished.iter().filter(|finished| **finished == Finished::Stale).count() as u64;
        state.refused += refused;
        state.stored += (finished.len() as u64).saturating_sub(refused);
        state.machine.stored(ends);
        let leases: Vec<LeaseRef> = ends.iter().map(|(lease, _)| *lease).collect();
        // Includes handlers that were given up and still work, because there is no lease left to renew.
        let attempts: Vec<Attempt> =
            leases.iter().filter_map(|lease| state.attempts.get(lease)).cloned().collect();
        self.settle(state, &leases, is_news);
        attempts.iter().for_each(Attempt::release);
        self.report_losses(stale);
    }

    /// Notifies attempts of what is due by now: a stop, or the end of their patience. Returns when more is due.
    pub(super) fn mind_the_time(&self, now: Timestamp) -> Option<Timestamp> {
        let mut state = self.state.lock();
        let notices = state.machine.notices(now);
        let notices: Vec<(Attempt, Notice)> = notices
            .into_iter()
            .filter_map(|(lease, notice)| Some((state.attempts.get(&lease)?.clone(), notice)))
            .collect();
        for (attempt, notice) in &notices {
            if *notice == Notice::GivenUp && attempt.has_ended() {
                state.machine.ended_itself(attempt.lease());
            } else if *notice == Notice::GivenUp {
                attempt.give_up();
                let ran = attempt
                    .deadline()
                    .map_or(Duration::ZERO, |deadline| self.clock.now().saturating_duration_since(deadline));
                let message = format!("the handler went on for {ran:?} after its longest run was over");
                state.machine.end(now, attempt.lease(), failed(message));
            }
        }
        let next = state.machine.next_notice();
        drop(state);
        for (attempt, notice) in notices {
            match notice {
                Notice::Overdue => attempt.cancel(Cancelled::RanTooLong),
                Notice::CutOff => attempt.cut(),
                Notice::GivenUp => {
                    // It may not have been notified before, because the patience may be zero.
                    attempt.cancel(Cancelled::RanTooLong);
                    attempt.cut();
                    self.ends.wake();
                }
            }
        }
        next
    }

    /// Stops the worker: gives back the attempts that did not begin, and notifies the others.
    pub(super) fn stop(&self, now: Timestamp) {
        let mut state = self.state.lock();
        if state.machine.is_stopped() {
            return;
        }
        let (not_begun, working) = state.machine.stop(now);
        for lease in not_begun {
            state.machine.returned(now, lease, Some(Outcome::GivenBack));
        }
        let attempts: Vec<Attempt> =
            working.iter().filter_map(|lease| state.attempts.get(lease)).cloned().collect();
        drop(state);
        attempts.iter().for_each(|attempt| attempt.cancel(Cancelled::Stopping));
        self.ends.wake();
    }

    /// Keeps the error that ends a loop, because repeating would not change it.
    pub(super) fn fail(&self, error: Error) {
        self.state.lock().fatal.get_or_insert(error);
    }

    /// Reports to the host an error after which the worker continues.
    pub(super) fn report(&self, error: &Error) {
        if let Some(on_error) = &self.on_error {
            // The panic hook has printed it.
            let _ = catch_unwind(AssertUnwindSafe(|| on_error(error)));
        }
    }

    /// Returns the worker's report. Attempts that are still working are left alone, and their leases are not
    /// renewed.
    pub(super) fn close(&self) -> Result<WorkerReport> {
        let mut state = self.state.lock();
        let report = WorkerReport {
            stored: state.stored,
            ended_elsewhere: state.ended_elsewhere,
            refused: state.refused,
            unstored: state.machine.unstored(),
            working: state.machine.working(),
        };
        let (attempts, fatal) = (std::mem::take(&mut state.attempts), state.fatal.take());
        drop(state);
        attempts.values().for_each(Attempt::release);
        self.handlers.close();
        fatal.map_or(Ok(report), Err)
    }

    /// Notes that a call for these ends failed. It is unknown whether they were stored.
    pub(super) fn not_stored(&self, ends: Vec<(LeaseRef, Outcome)>, is_news: bool) {
        let mut state = self.state.lock();
        state.machine.not_stored(self.steady(), ends);
        // Not the loop that stores ends: it pauses after an error, and a wake would end the pause.
        if is_news {
            state.machine.news();
            state.own_wakes = state.own_wakes.wrapping_add(1);
            drop(state);
            self.admits.wake();
        }
    }

    /// Forgets those of these attempts that are over, and wakes the loops that have work.
    fn settle(&self, mut state: MutexGuard<'_, State>, leases: &[LeaseRef], is_news: bool) {
        let over = leases.iter().filter(|lease| !state.machine.has(**lease));
        let over: Vec<LeaseRef> = over.copied().collect();
        let attempts: Vec<Attempt> = over.iter().filter_map(|lease| state.attempts.remove(lease)).collect();
        if is_news {
            state.machine.news();
        }
        // The news concerns all loops of the host's handle, even if no place of this worker is free.
        let asks = is_news || state.machine.wants_to_ask() && !attempts.is_empty();
        let calls_for_ends = state.machine.calls_for_ends(self.steady());
        let is_stopped = state.machine.is_stopped();
        if asks {
            state.own_wakes = state.own_wakes.wrapping_add(1);
        }
        drop(state);
        if asks {
            self.admits.wake();
        }
        if calls_for_ends {
            self.ends.wake();
        }
        if is_stopped {
            self.time.wake();
        }
        attempts.iter().for_each(Attempt::release);
    }
}
