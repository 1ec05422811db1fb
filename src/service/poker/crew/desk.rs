//! What one thread of a poker does now: it can be looked at, and taken over, by the tick.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::board::{Shared, Stint};
use super::job::{Answer, Job, Outcome};
use crate::sensor::Poked;
use crate::service::observer::spans;
use crate::service::poker::group::GroupRef;
use crate::service::poker::probe::{PokeRequest, Probe, look};

/// A thread's place.
#[derive(Default)]
pub(super) struct Desk(pub(super) Mutex<Work>);

/// What lies there.
#[derive(Default)]
pub(super) struct Work {
    pub(super) kind: usize,
    /// To be done, one after another.
    pub(super) todo: VecDeque<Job>,
    /// The call that runs.
    pub(super) call: Option<Call>,
    pub(super) done: Vec<Answer>,
    /// The call passed its deadline: the thread does not belong here any more.
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

    /// What to say of it when it has passed its deadline.
    pub(super) fn overran(&self) -> impl Iterator<Item = Answer> {
        let mut took = Some(self.timeout);
        self.asked().map(move |Asked { group, tick }| Answer {
            group,
            tick,
            knew: self.knew,
            outcome: Outcome::Overran(self.timeout),
            took: took.take(),
        })
    }
}

/// Whether the thread still has its place.
pub(super) enum Stay {
    /// It has; so many pokes were made.
    Here(usize),
    /// The poke of these groups passed its deadline, and has returned.
    Taken(Vec<GroupRef>),
}

impl Desk {
    /// Does the work of one stint. What may not begin any more stays on the desk.
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
            let request = |job: &'_ Job| (job.sensors as usize, job.now);
            if let (Probe::One(poke), [(job, _)]) = (&probe, batch.as_slice()) {
                let (sensors, now) = request(job);
                answers.push(look(
                    poke.as_ref(),
                    &PokeRequest { kind: &name, context: &job.context, sensors, now },
                ));
                continue;
            }
            let requests: Vec<PokeRequest<'_>> = batch
                .iter()
                .map(|(job, _)| {
                    let (sensors, now) = request(job);
                    PokeRequest { kind: &name, context: &job.context, sensors, now }
                })
                .collect();
            answers = probe.look(&requests);
        }
    }

    /// Lays down the answers to the last call, and takes up the jobs of the next. False if there is none, or if the place was
    /// taken: then the answers stay in `answers`.
    fn next(
        &self,
        shared: &Shared,
        probe: &Probe,
        batch: &mut Vec<(Job, u64)>,
        answers: &mut Vec<Poked>,
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
        let mut asked = batch.iter().map(|(job, _)| Asked { group: job.group, tick: job.tick });
        let Some(first) = asked.next() else { return false };
        let more = asked.collect();
        let timeout = batch.iter().map(|(job, _)| job.timeout).min().unwrap_or_default();
        work.call = Some(Call { began: now, timeout, knew, first, more });
        true
    }
}
