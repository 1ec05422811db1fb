//! Async pokes.
//!
//! Each call is a task of the host's runtime, in a list on the board. When it is ready, it records its
//! answers there, notifies the tick, and starts what is queued, as a thread would take its next work. The
//! tick takes calls past their deadline from the list, answers for them and drops their futures. A future
//! that is being polled at that instant is dropped by its task afterwards. Until then it counts as hung. So a
//! future is answered once: by its own result, by the tick, or by the end of a task that its runtime dropped.
//!
//! None of the host's code runs under the board's lock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;

use super::board::{Board, Shared};
use super::call::Call;
use crate::sensor::PokeOutcome;
use crate::sensor::plan::{Answer, GroupRef};
use crate::service::poker::distant::{AsyncProbe, BoxFuture};
use crate::service::poker::probe::checked;

/// The calls in flight, by number.
#[derive(Default)]
pub(super) struct Air {
    calls: HashMap<u64, Airborne>,
    deadlines: BTreeSet<(Instant, u64)>,
    /// The kinds and groups of calls past their deadline whose future is not dropped yet.
    hung: BTreeMap<u64, (usize, Vec<GroupRef>)>,
    launched: u64,
    pokes: usize,
    /// Outcomes that the tick has not collected yet.
    pub(super) answers: Vec<Answer>,
}

/// A call in flight.
struct Airborne {
    kind: usize,
    call: Call,
    flight: Arc<Flight>,
}

/// A call that was taken from the list.
pub(super) struct Overdue {
    number: u64,
    airborne: Airborne,
}

/// A future that its task polls and that either side may drop.
struct Flight {
    probe: Arc<dyn AsyncProbe>,
    future: Mutex<Option<BoxFuture<Vec<PokeOutcome>>>>,
    waker: Mutex<Option<Waker>>,
    /// Set once the tick has given it up.
    given_up: AtomicBool,
}

impl Air {
    /// Returns how many groups are being poked.
    pub(super) fn pokes(&self) -> usize {
        self.pokes
    }

    pub(super) fn hung(&self) -> usize {
        self.hung.len()
    }

    /// Returns the earliest deadline of all calls.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    fn add(&mut self, airborne: Airborne) -> u64 {
        self.launched += 1;
        let number = self.launched;
        self.pokes += airborne.call.pokes();
        self.deadlines.extend(airborne.call.deadline().map(|deadline| (deadline, number)));
        self.calls.insert(number, airborne);
        number
    }

    fn remove(&mut self, number: u64) -> Option<Airborne> {
        let airborne = self.calls.remove(&number)?;
        self.pokes -= airborne.call.pokes();
        if let Some(deadline) = airborne.call.deadline() {
            self.deadlines.remove(&(deadline, number));
        }
        Some(airborne)
    }
}

impl Board {
    /// Takes the calls that have passed their deadline.
    pub(super) fn take_overdue(&mut self, now: Instant) -> Vec<Overdue> {
        let passed = self.air.deadlines.iter().take_while(|(deadline, _)| *deadline <= now);
        let passed: Vec<u64> = passed.map(|(_, number)| *number).collect();
        self.take_calls(passed)
    }

    /// Takes all calls.
    pub(super) fn take_flying(&mut self) -> Vec<Overdue> {
        let all: Vec<u64> = self.air.calls.keys().copied().collect();
        self.take_calls(all)
    }

    fn take_calls(&mut self, numbers: Vec<u64>) -> Vec<Overdue> {
        let mut taken = Vec::with_capacity(numbers.len());
        for number in numbers {
            let Some(airborne) = self.air.remove(number) else { continue };
            self.air.hung.insert(number, (airborne.kind, airborne.call.groups().collect()));
            if let Some(kind) = self.kinds.get_mut(airborne.kind) {
                kind.running -= 1;
                kind.hung += 1;
            }
            taken.push(Overdue { number, airborne });
        }
        taken
    }

    /// Returns the groups of a taken call whose future was dropped, unless they were returned before.
    fn has_returned(&mut self, number: u64) -> Option<Vec<GroupRef>> {
        let (kind, groups) = self.air.hung.remove(&number)?;
        if let Some(kind) = self.kinds.get_mut(kind) {
            kind.hung -= 1;
        }
        Some(groups)
    }

    /// Takes the jobs of one call of this kind, and lists the call.
    fn take_off(&mut self, kind: usize, now: Instant, knew: u64) -> Option<(u64, Arc<Flight>)> {
        let (probe, jobs) = self.take_futures(kind)?;
        let call = Call::new(now, knew, jobs.iter())?;
        let name = self.kinds.get(kind)?.name.clone();
        let future = probe.look(jobs.iter().map(|job| job.request(&name)).collect());
        let flight = Flight {
            probe,
            future: Mutex::new(Some(future)),
            waker: Mutex::default(),
            given_up: AtomicBool::new(false),
        };
        let flight = Arc::new(flight);
        let number = self.air.add(Airborne { kind, call, flight: Arc::clone(&flight) });
        Some((number, flight))
    }
}

impl Shared {
    /// Starts what may begin, of all kinds.
    pub(super) fn launch_all(self: &Arc<Self>) {
        let kinds = self.board.lock().kinds.len();
        (0..kinds).for_each(|kind| self.launch(kind));
    }

    /// Starts queued calls of this kind, as many as may be in flight.
    pub(super) fn launch(self: &Arc<Self>, kind: usize) {
        loop {
            let now = Instant::now();
            if !self.may_begin(now) {
                return;
            }
            let knew = self.followed.load(Ordering::Acquire);
            let Some((number, flight)) = self.board.lock().take_off(kind, now, knew) else { return };
            let probe = Arc::clone(&flight.probe);
            probe.spawn(Box::pin(Task { shared: Arc::clone(self), number, flight }));
        }
    }

    /// Drops the futures of calls that were taken from the list, and answers for them.
    pub(super) fn ground(&self, overdue: Vec<Overdue>) -> impl Iterator<Item = Answer> {
        let mut answers = Vec::new();
        for Overdue { number, airborne: Airborne { call, flight, .. } } in overdue {
            let dropped = flight.ground();
            let hangs = !dropped || self.board.lock().has_returned(number).is_none();
            answers.extend(call.overran(hangs));
        }
        answers.into_iter()
    }

    /// Records the answers of a call, or that its task ended without any.
    fn landed(&self, number: u64, answers: impl FnOnce(usize) -> Vec<PokeOutcome>) -> Option<usize> {
        let mut board = self.board.lock();
        let kind = match board.air.remove(number) {
            Some(Airborne { kind, call, .. }) => {
                if let Some(kind) = board.kinds.get_mut(kind) {
                    kind.running -= 1;
                }
                let answers = answers(call.pokes());
                board.air.answers.extend(call.answered(answers));
                Some(kind)
            }
            None => {
                let returned = board.has_returned(number)?;
                board.returned.extend(returned);
                None
            }
        };
        self.tell(&mut board);
        kind
    }
}

impl Flight {
    /// Drops the future and returns true, unless it is being polled or was ready. Its task then does the
    /// rest.
    fn ground(&self) -> bool {
        // The future is either idle, and dropped here, or being polled at this instant. The tick cannot wait
        // for the poll, which may never return, so it only leaves a note. The order ensures that one of the
        // two sees the other. The note is set before the lock is tried, and the task reads it after it has
        // released the lock. If the lock was free, this drops the future; if not, the task finds the note
        // after its poll and ends, which drops the future there.
        self.given_up.store(true, Ordering::SeqCst);
        let future = self.future.try_lock().and_then(|mut place| place.take());
        let was_there = future.is_some();
        self.discard(future);
        // An idle task must be polled once more to learn that it is over, or its runtime would keep it.
        self.wake();
        was_there
    }

    /// Makes the task poll once more.
    fn wake(&self) {
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn discard(&self, mut future: Option<BoxFuture<Vec<PokeOutcome>>>) {
        // The host's destructor may panic, and no one is left to receive the panic.
        let _ = catch_unwind(AssertUnwindSafe(|| self.probe.within(&mut || drop(future.take()))));
    }
}

/// The task of one call.
struct Task {
    shared: Arc<Shared>,
    number: u64,
    flight: Arc<Flight>,
}

impl Task {
    /// Polls the future. Returns its outcomes or its panic, or `None` if the future is gone.
    fn look(&self, context: &mut Context<'_>) -> Poll<Option<std::thread::Result<Vec<PokeOutcome>>>> {
        *self.flight.waker.lock() = Some(context.waker().clone());
        let mut place = self.flight.future.lock();
        let Some(future) = place.as_mut() else { return Poll::Ready(None) };
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        let answers = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(answers)) => Ok(answers),
            Err(panic) => Err(panic),
        };
        let future = place.take();
        drop(place);
        self.flight.discard(future);
        Poll::Ready(Some(answers))
    }
}

impl Future for Task {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Poll::Ready(answers) = self.look(context) else {
            // If the tick gave up the future while it was being polled, it is dropped with this task.
            return if self.flight.given_up.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending };
        };
        let landed = answers
            .and_then(|answers| self.shared.landed(self.number, |requests| checked(answers, requests)));
        if let Some(kind) = landed {
            self.shared.launch(kind);
        }
        Poll::Ready(())
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // It was given up while it was polled, or its runtime shuts down.
        let future = self.flight.future.lock().take();
        if future.is_none() {
            return;
        }
        self.flight.discard(future);
        let gone = || PokeOutcome::Unreachable("the runtime of its poke was shut down".into());
        self.shared.landed(self.number, |requests| vec![gone(); requests]);
    }
}
