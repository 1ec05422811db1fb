//! One call: pokes that a thread makes one after the other, or that a future makes together.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::state::Setting;
use crate::id::SensorKind;
use crate::sensor::PokeOutcome;
use crate::sensor::plan::{Answer, GroupRef, Job, Outcome};
use crate::service::poker::poke::{AsyncProbe, BoxFuture, How, PokeRequest, Probe};

/// Jobs behind a poke that takes longer than this go back to their queue.
pub(super) const STUCK: Duration = Duration::from_millis(20);

/// A call of a kind's poke. Its runner and the tick share it.
pub(super) struct Call {
    pub(super) number: u64,
    pub(super) kind: SensorKind,
    pub(super) probe: Probe,
    pub(super) began: Instant,
    /// The engine's setting when the call began. It decides until when its pokes begin.
    setting: Setting,
    pub(super) work: Mutex<Work>,
}

/// The past, current and future work of a call.
pub(super) struct Work {
    /// Jobs of pokes that have not begun.
    pub(super) todo: VecDeque<Job>,
    /// The jobs of the running poke. Empty if the call is about to end.
    pub(super) asked: Vec<Job>,
    asked_at: Instant,
    timeout: Duration,
    pub(super) done: Vec<Answer>,
    /// How many jobs have an outcome.
    pub(super) made: usize,
    pub(super) phase: Phase,
    /// The future of a call on a runtime, while it is not being polled. It must be dropped while no lock is held,
    /// because that runs the host's code.
    pub(super) future: Option<BoxFuture<Vec<PokeOutcome>>>,
    pub(super) waker: Option<Waker>,
}

/// How the tick counts a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Runs,
    /// It was given up, and its future is being dropped. Until then it counts among the calls of its kind.
    Drops,
    /// It was given up: whatever it returns from now on is dropped.
    Hangs,
    /// It was given up before the poker left: no group waits for its end, and its kind is not held back for it.
    Forgotten,
}

impl Call {
    /// Begins a call for these jobs with its first poke.
    pub(super) fn new(
        number: u64,
        (kind, probe): (SensorKind, &Probe),
        jobs: VecDeque<Job>,
        setting: Setting,
        now: Instant,
    ) -> Self {
        let mut work = Work {
            todo: jobs,
            asked: Vec::new(),
            asked_at: now,
            timeout: Duration::ZERO,
            done: Vec::new(),
            made: 0,
            phase: Phase::Runs,
            future: None,
            waker: None,
        };
        let probe = probe.clone();
        work.ask(probe.at_most, now);
        Self { number, kind, probe, began: now, setting, work: Mutex::new(work) }
    }

    /// Returns the requests of the running poke.
    pub(super) fn requests(&self) -> Vec<PokeRequest> {
        let request = |job: &Job| PokeRequest {
            kind: self.kind.clone(),
            context: job.context.clone(),
            sensors: job.sensors as usize,
            now: job.now,
        };
        self.work.lock().asked.iter().map(request).collect()
    }

    /// Records the outcomes of the finished poke, and begins the next one. Returns false if there is none, or if the
    /// call was given up and the outcomes are dropped.
    pub(super) fn answered(&self, outcomes: Vec<PokeOutcome>, now: Instant) -> bool {
        let mut work = self.work.lock();
        if work.phase != Phase::Runs {
            return false;
        }
        let took = now.saturating_duration_since(work.asked_at);
        work.answer(outcomes.into_iter().map(Outcome::Answered), took, self.setting.knew);
        work.asked.clear();
        self.setting.may_begin(now) && work.ask(self.probe.at_most, now)
    }

    /// Ends the running poke without a result, because it passed its deadline. `hangs` says whether its runner still
    /// works on it.
    pub(super) fn overran(&self, work: &mut Work, hangs: bool) {
        let timeout = work.timeout;
        let overran = std::iter::repeat_with(|| Outcome::Overran { timeout, hangs });
        work.answer(overran, timeout, self.setting.knew);
        work.phase = if hangs { Phase::Hangs } else { Phase::Drops };
    }

    /// Returns the runtime of a call that is a future.
    pub(super) fn runtime(&self) -> Option<&dyn AsyncProbe> {
        match &self.probe.how {
            How::Threads(_) => None,
            How::Runtime(probe) => Some(probe.as_ref()),
        }
    }
}

impl Work {
    /// Begins the poke of the next jobs. Returns false if there are none.
    fn ask(&mut self, at_most: usize, now: Instant) -> bool {
        let length = self.todo.len().min(at_most);
        self.asked.extend(self.todo.drain(..length));
        self.asked_at = now;
        let shortest = self.asked.iter().map(|job| job.timeout).min();
        // With several groups, the longest time counts: the end of one must not cut short the poke of the others.
        let useful = self.asked.iter().map(|job| job.useful_for).max();
        self.timeout = shortest.into_iter().chain(useful).min().unwrap_or_default();
        !self.asked.is_empty()
    }

    /// Records the outcomes of the running poke. The first one carries its duration.
    fn answer(&mut self, outcomes: impl Iterator<Item = Outcome>, took: Duration, knew: u64) {
        let mut took = Some(took);
        for (&Job { group, turn, .. }, outcome) in self.asked.iter().zip(outcomes) {
            self.made += 1;
            self.done.push(Answer { group, turn, knew, outcome, took: took.take() });
        }
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = GroupRef> {
        self.asked.iter().map(|job| job.group)
    }

    /// Returns true if the running poke has passed its deadline.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        !self.asked.is_empty() && self.deadline().is_some_and(|deadline| deadline <= now)
    }

    /// Returns when the running poke has taken too long for others to wait behind it. `None` if no other waits.
    fn stuck_at(&self) -> Option<Instant> {
        let behind = self.todo.iter().map(|job| job.timeout.min(job.useful_for).min(STUCK)).min();
        behind.map(|length| self.asked_at + length)
    }

    /// Returns true if others wait behind a poke that takes too long for that.
    pub(super) fn is_stuck(&self, now: Instant) -> bool {
        self.stuck_at().is_some_and(|at| at <= now)
    }

    fn deadline(&self) -> Option<Instant> {
        self.asked_at.checked_add(self.timeout)
    }

    /// Returns when the call must be checked. `None` if it is about to end.
    pub(super) fn check_at(&self) -> Option<Instant> {
        if self.asked.is_empty() {
            return None;
        }
        self.deadline().into_iter().chain(self.stuck_at()).min()
    }
}
