//! One call of a probe: the groups it pokes, and its deadline.

use std::time::{Duration, Instant};

use crate::id::SensorKind;
use crate::sensor::PokeOutcome;
use crate::sensor::plan::{Answer, GroupRef, Job, Outcome};
use crate::service::poker::probe::PokeRequest;

impl Job {
    /// Returns what the host's poke is given.
    pub(super) fn request(&self, kind: &SensorKind) -> PokeRequest {
        let (kind, context) = (kind.clone(), self.context.clone());
        PokeRequest { kind, context, sensors: self.sensors as usize, now: self.now }
    }
}

/// A call that runs.
pub(super) struct Call {
    pub(super) began: Instant,
    timeout: Duration,
    knew: u64,
    /// The first of its jobs; a call for many has more.
    first: Asked,
    more: Vec<Asked>,
}

/// A group, and the turn that asked for it.
#[derive(Debug, Clone, Copy)]
struct Asked {
    group: GroupRef,
    turn: u64,
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
        let mut asked = jobs.map(|job| Asked { group: job.group, turn: job.turn });
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
        let answer = move |(Asked { group, turn }, outcome)| Answer {
            group,
            turn,
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

    fn asked(&self) -> impl Iterator<Item = Asked> {
        std::iter::once(self.first).chain(self.more.iter().copied())
    }

    /// Returns the answers for a call that passed its deadline. `hangs` says whether it still runs.
    pub(super) fn overran(&self, hangs: bool) -> impl Iterator<Item = Answer> {
        let outcome = move |_| Outcome::Overran { timeout: self.timeout, hangs };
        self.answers(self.timeout, self.asked().map(outcome))
    }
}
