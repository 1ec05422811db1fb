//! The current work of one of a poker's threads. The tick can inspect it and take it over.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::board::{Shared, Stint};
use super::job::{Answer, Job, Outcome};
use crate::sensor::PokeOutcome;
use crate::service::observer::spans;
use crate::service::poker::group::GroupRef;
use crate::service::poker::probe::{PokeRequest, Probe, look};

/// The work assigned to a thread.
#[derive(Default)]
pub(super) struct Desk(pub(super) Mutex<Work>);

/// The jobs and the running call of a thread.
#[derive(Default)]
pub(super) struct Work {
    pub(super) kind: usize,
    /// Jobs to do, one after another.
    pub(super) todo: VecDeque<Job>,
    /// The call that runs.
    pub(super) call: Option<Call>,
    pub(super) done: Vec<Answer>,
    /// True once the call passed its deadline: the thread no longer owns this work.
    pub(super) taken: bool,
}

/// A call that runs.
pub(super) struct Call {
    began: Instant,
    timeout: Duration,
    knew: u64,
    /// The first of its jobs; a call for many has more.
    first: Asked,
    more: Vec<Asked>,
}

/// A group, and the tick that asked for it.
#[derive(Debug, Clone, Copy)]
struct Asked {
    group: GroupRef,
    tick: u64,
}

impl Call {
    /// Creates a call for these jobs. Returns `None` for no jobs.
    pub(super) fn new<'a>(
        began: Instant,
        knew: u64,
        jobs: impl Iterator<Item = &'a Job> + Clone,
    ) -> Option<Self> {
        let timeout = jobs.clone().map(|job| job.timeout).min()?;
        // Of several groups the latest counts, since the end of one must not cut short the poke of the
        // others.
        let until = jobs.clone().map(|job| job.of_use_until).max()?;
        let left = until.saturating_sub(jobs.clone().next()?.now.as_micros());
        let timeout = timeout.min(Duration::from_micros(u64::try_from(left).unwrap_or(0)));
        let mut asked = jobs.map(|job| Asked { group: job.group, tick: job.tick });
        let first = asked.next()?;
        Some(Self { began, timeout, knew, first, more: asked.collect() })
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = GroupRef> {
        self.asked().map(|asked| asked.group)
    }

    /// Returns the answers for the outcomes of the call.
    pub(super) fn answered(&self, answers: Vec<PokeOutcome>) -> impl Iterator<Item = Answer> {
        self.answers(self.began.elapsed(), answers.into_iter().map(Outcome::Answered))
    }

    /// Returns one answer for each group. The first says how long the call took.
    fn answers(
        &self,
        took: Duration,
        outcomes: impl Iterator<Item = Outcome>,
    ) -> impl Iterator<Item = Answer> {
        let mut took = Some(took);
        let answer = move |(Asked { group, tick }, outcome)| Answer {
            group,
            tick,
            knew: self.knew,
            outcome,
            took: took.take(),
        };
        self.asked().zip(outcomes).map(answer)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.began.checked_add(self.timeout)
    }

    pub(super) fn pokes(&self) -> usize {
        1 + self.more.len()
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    fn asked(&self) -> impl Iterator<Item = Asked> {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }

    /// Returns the answers for a call that passed its deadline. `hangs` says whether it still runs.
    pub(super) fn overran(&self, hangs: bool) -> impl Iterator<Item = Answer> {
        let outcome = move |_| Outcome::Overran { timeout: self.timeout, hangs };
        self.answers(self.timeout, self.asked().map(outcome))
    }
}

/// Whether the thread still owns its work.
pub(super) enum Stay {
    /// It does; this many pokes were made.
    Here(usize),
    /// The poke of these groups passed its deadline, and has returned.
    Taken(Vec<GroupRef>),
}

impl Desk {
    /// Does one batch of work. Jobs that may no longer begin stay assigned.
    pub(super) fn work(&self, shared: &Shared, stint: Stint) -> Stay {
        let Stint { kind, name, probe, jobs } = stint;
        {
            let mut work = self.0.lock();
            (work.kind, work.todo) = (kind, jobs);
        }
        let (mut made, mut batch, mut answers) = (0, Vec::new(), Vec::new());
        loop {
            let groups = |batch: &[(Job, u64)]| batch.iter().map(|(job, _)| job.group).collect();
            if !self.next(shared, &probe, &mut batch, &mut answers) {
                return match answers.is_empty() {
                    true => Stay::Here(made),
                    false => Stay::Taken(groups(&batch)),
                };
            }
            made += batch.len();
            let _span = spans::poke(&name, batch.len());
            if let (Probe::One(poke), [(job, _)]) = (&probe, batch.as_slice()) {
                answers.push(look(poke.as_ref(), &job.request(&name)));
                continue;
            }
            let requests: Vec<PokeRequest> = batch.iter().map(|(job, _)| job.request(&name)).collect();
            answers = probe.look(&requests);
        }
    }

    /// Records the answers to the last call, and starts the jobs of the next. Returns false if there is none,
    /// or if the tick took over the work. In that case the answers stay in `answers`.
    fn next(
        &self,
        shared: &Shared,
        probe: &Probe,
        batch: &mut Vec<(Job, u64)>,
        answers: &mut Vec<PokeOutcome>,
    ) -> bool {
        let now = Instant::now();
        let mut work = self.0.lock();
        if work.taken {
            return false;
        }
        let mut took = work.call.take().map(|call| now.saturating_duration_since(call.began));
        for ((job, knew), poked) in batch.drain(..).zip(answers.drain(..)) {
            let outcome = Outcome::Answered(poked);
            work.done.push(Answer { group: job.group, tick: job.tick, knew, outcome, took: took.take() });
        }
        if !shared.may_begin(now) {
            return false;
        }
        let most = match probe {
            Probe::One(_) => 1,
            Probe::Many(_, most) => *most,
        };
        let knew = shared.followed.load(Ordering::Acquire);
        let length = work.todo.len().min(most);
        batch.extend(work.todo.drain(..length).map(|job| (job, knew)));
        work.call = Call::new(now, knew, batch.iter().map(|(job, _)| job));
        work.call.is_some()
    }
}
