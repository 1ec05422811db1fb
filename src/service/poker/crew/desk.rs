//! The current work of one of a poker's threads. The tick can inspect it and take it over.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

use parking_lot::Mutex;

use super::board::{Shared, Stint};
use super::call::Call;
use crate::sensor::PokeOutcome;
use crate::sensor::plan::{Answer, GroupRef, Job, Outcome};
use crate::service::observer::spans;
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
            work.done.push(Answer { group: job.group, turn: job.turn, knew, outcome, took: took.take() });
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
