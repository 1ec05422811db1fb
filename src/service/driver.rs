//! Drives a service on one of the host's threads.

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::handle_futures::{Change, Waiters};
use super::wanted::{TaskWish, Wanted};
use crate::clock::Clock;
use crate::error::Result;
use crate::time::Timestamp;

/// A unit of background work that a driver repeats.
pub trait Service {
    /// What a step reports.
    type Report: Report;

    /// Takes one step at this instant.
    ///
    /// # Errors
    ///
    /// [`crate::Error`] if the store failed. The service continues with its next tick.
    fn tick(&mut self, now: Timestamp) -> Result<Self::Report>;

    /// Receives the handle that wakes the loop. A service that has work between ticks may wake it.
    fn woken_by(&mut self, handle: &LoopHandle) {
        let _ = handle;
    }

    /// Undoes whatever a report would have handed over. Called when the report of the tick at `now` will
    /// never be read, for example because the future awaiting it was dropped. Most services hand over
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`crate::Error`] if the store failed.
    fn undelivered(&mut self, now: Timestamp, report: Self::Report) -> Result<()> {
        let _ = (now, report);
        Ok(())
    }
}

/// What every report of a tick contains.
pub trait Report: Debug {
    /// Returns when the next tick has something to do, as far as is known now. `None` if only writes by others can
    /// bring work. An instant in the past asks for a tick at once.
    fn next_due(&self) -> Option<Timestamp>;

    /// Returns true if the tick found nothing to do. If wake-ups repeatedly lead to such ticks, the driver waits a few
    /// milliseconds after the next wake-up before it ticks.
    fn is_idle(&self) -> bool {
        false
    }
}

/// Stops and wakes loops. Clones share one state.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::service::LoopHandle;
/// let handle = LoopHandle::new();
/// handle.stop();
/// handle.wait(Duration::from_secs(3600)); // returns at once
/// assert!(handle.is_stopped());
/// ```
#[derive(Debug, Clone, Default)]
pub struct LoopHandle(pub(super) Arc<Inner>);

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    stopped: bool,
    /// The number of calls of `wake`.
    wakes: u64,
    /// How many of these calls concern cancelled tasks.
    cancels: u64,
    /// How many of these calls concern only tasks that became ready.
    ready: u64,
    /// Futures that wait for a change.
    pub(super) waiters: Waiters,
    /// Handles to wake for cancels, too. They may have been dropped, and may include this one.
    for_cancels: Vec<Weak<Inner>>,
    /// The changes that its services look for, as far as known.
    pub(super) wanted: Option<Wanted>,
    /// The tasks that its admitters look for.
    pub(super) wishes: Vec<Arc<TaskWish>>,
    /// How often one of its services reported what it looks for.
    pub(super) wishes_noted: u64,
}

impl State {
    /// Returns true if a loop that has seen this many wakes should look again. With `None`, returns true if it should
    /// end.
    pub(super) fn calls(&self, seen: Option<u64>) -> bool {
        self.stopped || seen.is_some_and(|seen| seen != self.wakes)
    }
}

impl LoopHandle {
    /// Creates a handle that is not stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks all loops of this handle to end. Sleeping loops wake at once.
    pub fn stop(&self) {
        self.change(|state| state.stopped = true);
    }

    /// Makes all loops of this handle tick at once, because there may be work. After wakes that turned out spurious, a
    /// loop ticks up to 16 milliseconds later: see [`drive`].
    pub fn wake(&self) {
        self.change(|state| state.wakes = state.wakes.wrapping_add(1));
    }

    /// Wakes all loops like [`Self::wake`], because tasks became ready but no capacity was returned. After wakes that
    /// were spurious because no task had room, a loop ticks up to 64 milliseconds later. When capacity is returned,
    /// call [`Self::wake`].
    pub fn wake_for_ready(&self) {
        self.change(|state| {
            state.wakes = state.wakes.wrapping_add(1);
            state.ready = state.ready.wrapping_add(1);
        });
    }

    /// Wakes all loops like [`Self::wake`], because a task with a lease was cancelled. A worker or a keeper among them
    /// renews its leases at once, and so learns whether the task is its own. A [`WakingStore`](super::WakingStore)
    /// calls this for cancels by its own process. `store::postgres::Change::cancels` reports all others.
    pub fn wake_for_cancel(&self) {
        self.change(|state| {
            state.wakes = state.wakes.wrapping_add(1);
            state.cancels = state.cancels.wrapping_add(1);
        });
        let others = self.0.state.lock().for_cancels.clone();
        others.iter().filter_map(Weak::upgrade).for_each(|other| Self(other).wake());
    }

    /// Also wakes the loops of `other` whenever this handle is woken for a cancel. Pass the handle of
    /// [`Upkeep`](super::Upkeep): it then ends a cancelled lease at its deadline, and sleeps through everything else
    /// that wakes a worker.
    pub fn wakes_for_cancels(&self, other: &Self) {
        let mut state = self.0.state.lock();
        state.for_cancels.retain(|known| known.strong_count() > 0);
        state.for_cancels.push(Arc::downgrade(&other.0));
    }

    /// Returns the number of calls of [`Self::wake_for_cancel`].
    pub(crate) fn cancels_seen(&self) -> u64 {
        self.0.state.lock().cancels
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.0.state.lock();
        change(&mut state);
        self.0.changed.notify_all();
        let is_stopped = state.stopped;
        let waiters = state.waiters.take(is_stopped);
        drop(state);
        waiters.for_each(Waker::wake);
    }

    /// Returns true after [`Self::stop`].
    pub fn is_stopped(&self) -> bool {
        self.0.state.lock().stopped
    }

    /// Sleeps this long, or until [`Self::stop`] or [`Self::wake`] is called.
    pub fn wait(&self, length: Duration) {
        self.wait_since(self.seen(), length);
    }

    /// Returns the number of wakes so far. Read it before looking for work, and pass it to
    /// [`Self::wait_since`].
    pub fn seen(&self) -> u64 {
        self.0.state.lock().wakes
    }

    /// Sleeps this long, or until a wake that came after `seen` was read. So a host's own loop misses no wake.
    pub fn wait_since(&self, seen: u64, length: Duration) {
        let mut state = self.0.state.lock();
        let idle = |state: &mut State| !state.calls(Some(seen));
        self.0.changed.wait_while_for(&mut state, idle, length);
    }

    /// Works like [`Self::wait_since`], but no wake ends the sleep during the time `all`, and no wake for ready tasks
    /// during `for_ready`.
    fn sleep_since(&self, (seen, ready): (u64, u64), [all, for_ready]: [Duration; 2], length: Duration) {
        let mut state = self.0.state.lock();
        let (changed, mut slept) = (&self.0.changed, Duration::ZERO);
        let mut until =
            |end: Duration| end.min(length).saturating_sub(std::mem::replace(&mut slept, end.min(length)));
        changed.wait_while_for(&mut state, |state| !state.stopped, until(all));
        let others = |wakes: u64, ready: u64| wakes.wrapping_sub(ready);
        let idle =
            |state: &mut State| !state.stopped && others(state.wakes, state.ready) == others(seen, ready);
        changed.wait_while_for(&mut state, idle, until(for_ready));
        if others(state.wakes, state.ready) == others(seen, ready) {
            changed.wait_while_for(&mut state, |state| !state.calls(Some(seen)), until(length));
        }
    }

    /// Returns a future that is ready after [`Self::stop`], or after a wake that came since `seen` was read.
    /// It spawns nothing and uses no timer, so it suits every async runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::future::Future;
    /// use std::pin::pin;
    /// use std::task::{Context, Waker};
    /// use stationmaster::service::LoopHandle;
    ///
    /// let handle = LoopHandle::new();
    /// let mut woken = pin!(handle.woken_since(handle.seen()));
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(woken.as_mut().poll(&mut context).is_pending());
    /// handle.wake();
    /// assert!(woken.as_mut().poll(&mut context).is_ready());
    /// ```
    pub fn woken_since(&self, seen: u64) -> impl Future<Output = ()> + Send + use<> {
        Change::new(self.clone(), Some(seen))
    }

    /// Returns a future that is ready after [`Self::stop`]. Wakes do not make it ready.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        Change::new(self.clone(), None)
    }

    /// Returns [`Self::seen`], and how many of these wakes were for ready tasks.
    fn seen_for_ready(&self) -> (u64, u64) {
        let state = self.0.state.lock();
        (state.wakes, state.ready)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }
}

/// Ticks a service until its handle is stopped or `each` breaks.
///
/// After each tick it sleeps until the service is due, at most `longest` and at least a millisecond.
/// [`LoopHandle::wake`] ends the sleep. `each` receives every report and every error.
///
/// If woken ticks find nothing to do ([`Report::is_idle`]), the tick after the next wake comes up to 16
/// milliseconds later, and up to 64 after a wake [for ready tasks](LoopHandle::wake_for_ready). Many loops
/// that wait for the same thing then cost each other less.
///
/// After an error the loop continues, unless `each` breaks. It first pauses for 10 milliseconds. After each further
/// error in a row, the pause doubles, up to five seconds and up to `longest`. So after a long failure of the store all
/// loops are back within seconds.
///
/// It sleeps in real time, whatever `clock` says. With a [`crate::clock::ManualClock`], call `tick` instead.
///
/// # Which `longest`
///
/// `longest` delays only work that another process brings without waking this handle.
///
/// | service | `longest` |
/// |---|---|
/// | [`Admitter`](super::Admitter) | how late tasks may start that others enqueue. Without wake-ups a few seconds; with them a minute, because a wake-up may be missed |
/// | [`Upkeep`](super::Upkeep), [`Poker`](super::Poker), [`FeedReader`](super::FeedReader), [`Keeper`](super::Keeper) | any, such as an hour: their reports ask for a tick in time, within [`Upkeep::grace`](super::Upkeep::grace), [`Poker::refresh_every`](super::Poker::refresh_every), [`FeedReader::refresh_every`](super::FeedReader::refresh_every) or a third of a lease |
/// | an `Upkeep` with a grace of zero | at most the shortest lease |
///
/// A shorter one does no harm, but each tick is a transaction.
///
/// # Examples
///
/// ```
/// use std::ops::ControlFlow;
/// use std::sync::Arc;
/// use std::time::Duration;
/// use stationmaster::clock::SystemClock;
/// use stationmaster::service::{LoopHandle, Upkeep, drive};
/// use stationmaster::store::MemoryStore;
///
/// let mut upkeep = Upkeep::new(Arc::new(MemoryStore::new()));
/// let handle = LoopHandle::new();
/// let stopper = handle.clone();
/// let thread = std::thread::spawn(move || {
///     drive(&mut upkeep, &SystemClock, &handle, Duration::from_secs(60), |_| ControlFlow::Continue(()));
/// });
/// stopper.stop();
/// thread.join().unwrap();
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub fn drive<S: Service>(
    service: &mut S,
    clock: &dyn Clock,
    handle: &LoopHandle,
    longest: Duration,
    mut each: impl FnMut(Result<S::Report>) -> ControlFlow<()>,
) {
    let mut pace = Pace::new(handle);
    handle.wakes(service);
    while !handle.is_stopped() {
        let seen = handle.seen_for_ready();
        let now = clock.now();
        let report = service.tick(now);
        let due = pace.ticked(seen.0, &report);
        if each(report).is_break() {
            return;
        }
        let pause = pace.pause(due, now, clock, longest);
        let ignored = [pace.ignores_wakes_for().min(pause), pace.ignores_ready_for()];
        handle.sleep_since(seen, ignored, pause);
    }
}

/// Pokers that could not renew wait for each other for a third of a lease. Each must try again within that time.
const LONGEST_AFTER_AN_ERROR: Duration = Duration::from_secs(5);

/// If many loops are woken for work that only one of them can take, most find nothing. Looking this much later costs
/// the others less.
const LONGEST_AFTER_NOTHING: Duration = Duration::from_millis(16);

/// The same for tasks that became ready, many of which may need a full pool.
const LONGEST_FOR_READY: Duration = Duration::from_millis(64);

/// How long a loop sleeps, given the results of its last ticks.
#[derive(Debug)]
pub(crate) struct Pace {
    seen: u64,
    failures: u32,
    /// How many woken ticks in a row found nothing.
    idle_ticks: u32,
}

impl Pace {
    pub(crate) fn new(handle: &LoopHandle) -> Self {
        Self { seen: handle.seen(), failures: 0, idle_ticks: 0 }
    }

    /// Notes a tick that began after this number of wakes. Returns when the next one is due.
    pub(crate) fn ticked<R: Report>(&mut self, seen: u64, report: &Result<R>) -> Option<Timestamp> {
        let was_woken = std::mem::replace(&mut self.seen, seen) != seen;
        self.failures = if report.is_ok() { 0 } else { self.failures.saturating_add(1) };
        let is_idle = was_woken && report.as_ref().is_ok_and(Report::is_idle);
        self.idle_ticks = if is_idle { self.idle_ticks.saturating_add(1) } else { 0 };
        report.as_ref().ok().and_then(Report::next_due)
    }

    /// Returns how long wakes do not end the sleep.
    pub(crate) fn ignores_wakes_for(&self) -> Duration {
        self.ignores_ready_for().min(LONGEST_AFTER_NOTHING)
    }

    /// Returns the same for wakes for ready tasks.
    fn ignores_ready_for(&self) -> Duration {
        match self.idle_ticks {
            0 => Duration::ZERO,
            times => Duration::from_millis(1 << (times - 1).min(20)).min(LONGEST_FOR_READY),
        }
    }

    /// Returns how long the loop sleeps after its tick at this instant: a pause after failures, or until it is due.
    pub(crate) fn pause(
        &self,
        due: Option<Timestamp>,
        ticked_at: Timestamp,
        clock: &dyn Clock,
        longest: Duration,
    ) -> Duration {
        let pause = match due {
            _ if self.failures > 0 => {
                Duration::from_millis(5 << self.failures.min(20)).min(LONGEST_AFTER_AN_ERROR)
            }
            // The clock may have been set back since the tick.
            Some(due) => due.saturating_duration_since(clock.now().max(ticked_at)),
            None => longest,
        };
        pause.min(longest).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use std::sync::mpsc;

    #[derive(Debug)]
    struct Tock;

    impl Report for Tock {
        fn next_due(&self) -> Option<Timestamp> {
            None
        }
    }

    struct Ticker(mpsc::Sender<()>);

    impl Service for Ticker {
        type Report = Tock;
        fn tick(&mut self, _: Timestamp) -> Result<Tock> {
            self.0.send(()).map_err(crate::Error::abort)?;
            Ok(Tock)
        }
    }

    #[test]
    fn wakes_and_stops_a_sleeping_loop() {
        let (sender, ticks) = mpsc::channel();
        let handle = LoopHandle::new();
        let inner = handle.clone();
        let thread =
            std::thread::spawn(move || {
                let mut ticker = Ticker(sender);
                drive(&mut ticker, &SystemClock, &inner, Duration::from_secs(3600), |_| {
                    ControlFlow::Continue(())
                });
            });
        ticks.recv().unwrap();
        handle.wake();
        ticks.recv().unwrap();
        handle.stop();
        thread.join().unwrap();
    }

    #[test]
    fn after_errors_a_loop_pauses_for_longer_and_longer_but_not_for_long() {
        let hour = Duration::from_secs(3_600);
        let pause = |failures, longest| {
            Pace { seen: 0, failures, idle_ticks: 0 }.pause(None, Timestamp::MIN, &SystemClock, longest)
        };
        let paused = [1, 2, 3, 9, 10, 11, 12, 999].map(|failures| pause(failures, hour));
        assert_eq!(paused.map(|pause| pause.as_millis()), [10, 20, 40, 2_560, 5_000, 5_000, 5_000, 5_000]);
        assert_eq!(pause(999, Duration::from_secs(1)), Duration::from_secs(1));
        assert_eq!(pause(0, hour), hour);
    }

    #[test]
    fn a_clock_that_was_set_back_during_a_tick_makes_no_sleep_longer() {
        let (hour, second) = (Duration::from_secs(3_600), Duration::from_secs(1));
        let ticked_at = Timestamp::UNIX_EPOCH + hour;
        let clock = crate::clock::ManualClock::new(Timestamp::UNIX_EPOCH);
        let pace = Pace::new(&LoopHandle::new());
        assert_eq!(pace.pause(Some(ticked_at + second), ticked_at, &clock, 9 * hour), second);
        clock.set(ticked_at + second / 4);
        assert_eq!(pace.pause(Some(ticked_at + second), ticked_at, &clock, hour), second * 3 / 4);
    }

    #[test]
    fn a_loop_that_is_woken_for_nothing_answers_later_until_it_finds_something() {
        #[derive(Debug)]
        struct Found(bool);
        impl Report for Found {
            fn next_due(&self) -> Option<Timestamp> {
                None
            }
            fn is_idle(&self) -> bool {
                !self.0
            }
        }
        let mut pace = Pace::new(&LoopHandle::new());
        let mut ignored = |wakes: u64, finds: bool| {
            pace.ticked(wakes, &Ok(Found(finds)));
            pace.ignores_wakes_for().as_millis()
        };
        assert_eq!(ignored(0, false), 0, "nobody woke it");
        assert_eq!([1, 2, 3, 4, 5, 6, 7, 8].map(|wakes| ignored(wakes, false)), [1, 2, 4, 8, 16, 16, 16, 16]);
        assert_eq!(ignored(8, true), 0, "it was worth it");
        assert_eq!(ignored(9, false), 1);
        assert_eq!(ignored(9, false), 0, "its time was up");
    }

    #[test]
    fn a_loop_that_ignores_wakes_is_stopped_at_once_and_answers_them_later() {
        let handle = LoopHandle::new();
        let seen = handle.seen_for_ready();
        let (short, hour) = (Duration::from_millis(1), Duration::from_secs(3_600));
        handle.wake();
        handle.sleep_since(seen, [short; 2], hour);
        handle.sleep_since(seen, [short, hour], hour);
        let seen = handle.seen_for_ready();
        handle.wake_for_ready();
        handle.sleep_since(seen, [short; 2], hour);
        let woken = std::thread::scope(|scope| {
            let sleeps = scope.spawn(|| handle.sleep_since(seen, [Duration::ZERO, hour], hour));
            std::thread::sleep(Duration::from_millis(20));
            let was_asleep = !sleeps.is_finished();
            handle.wake();
            sleeps.join().unwrap();
            was_asleep
        });
        assert!(woken, "a wake for ready tasks is answered later, any other at once");
        handle.stop();
        handle.sleep_since(seen, [hour; 2], hour);
    }

    #[test]
    fn a_wake_during_the_tick_is_not_missed() {
        let handle = LoopHandle::new();
        let seen = handle.seen();
        handle.wake();
        handle.wait_since(seen, Duration::from_secs(3600));
    }
}
