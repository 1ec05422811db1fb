//! A poker's jobs, their outcomes, and the effects on the sensors.

use std::sync::Arc;
use std::time::Duration;

use super::Plan;
use super::group::GroupRef;
use crate::canonical::PokeContext;
use crate::sensor::{Ending, Outage, PokeOutcome, SensorRecord, give_up, life, settle};
use crate::time::Timestamp;

/// A group to poke.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) group: GroupRef,
    pub(crate) context: PokeContext,
    pub(crate) sensors: u32,
    /// The instant of the turn that requests the poke.
    pub(crate) now: Timestamp,
    /// How long the poke may take.
    pub(crate) timeout: Duration,
    /// How long its outcome is useful: until all its sensors have timed out and have had the usual time for
    /// their last poke.
    pub(crate) useful_for: Duration,
    /// The turn that requests the poke.
    pub(crate) turn: u64,
}

/// The outcome of a poke.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) group: GroupRef,
    /// The turn that requested the poke.
    pub(crate) turn: u64,
    /// The last turn that had read the store when the poke began.
    pub(crate) knew: u64,
    pub(crate) outcome: Outcome,
    /// How long its call took, or the deadline if that passed. Only the first outcome of a call has it.
    pub(crate) took: Option<Duration>,
}

/// How a poke went, or why it was not made.
#[derive(Debug)]
pub(crate) enum Outcome {
    Answered(PokeOutcome),
    /// It passed its deadline.
    Overran {
        /// How long it was allowed to take.
        timeout: Duration,
        /// It has not returned.
        hangs: bool,
    },
    /// The previous poke of the group has not returned.
    StillHangs,
    /// Too many pokes of its kind have not returned.
    KindHangs,
    /// This worker has no poke function for the kind. That says nothing about the target, so the sensors can
    /// only time out.
    NotServed,
}

/// Receives a sensor, the outcome for it, and in words whether an outage began or ended with it.
pub(crate) type Log<'a> = dyn FnMut(&SensorRecord, &PokeOutcome, Option<&str>) + 'a;

impl Answer {
    /// Creates the answer for a group that was due but was not poked. It applies to all sensors, since no
    /// poke began before a sensor was known.
    pub(crate) fn without_poke(group: GroupRef, outcome: Outcome) -> Self {
        Self { group, turn: 0, knew: u64::MAX, outcome, took: None }
    }
}

impl Outcome {
    /// Returns the outcome as the sensors see it.
    fn poke_outcome(self) -> PokeOutcome {
        let text = match self {
            Self::Answered(poked) => return poked,
            Self::NotServed => return PokeOutcome::NotYet,
            Self::Overran { timeout, .. } => {
                format!("the poke took longer than {:.3} s", timeout.as_secs_f64())
            }
            Self::StillHangs => "its last poke has not returned".into(),
            Self::KindHangs => "too many pokes of its kind have not returned".into(),
        };
        PokeOutcome::Unreachable(text)
    }
}

impl Plan {
    /// Applies one outcome, and sets the group's next due time. The outcome concerns only members that were
    /// known when the poke began. If the target was poked, the log receives each of these members whose whole
    /// record is kept. Returns true if the target could not be checked.
    pub(crate) fn answered(&mut self, answer: Answer, now: Timestamp, log: Option<&mut Log<'_>>) -> bool {
        let Answer { group, knew, outcome, .. } = answer;
        let served = !matches!(outcome, Outcome::NotServed);
        let hangs = matches!(outcome, Outcome::Overran { hangs: true, .. });
        let poked = outcome.poke_outcome();
        let unreachable = matches!(poked, PokeOutcome::Unreachable(_));
        if let Some(found) = self.groups.get(group) {
            if served {
                let outage = Outage::after(found.outage, &poked, now);
                if let Some(log) = log {
                    let turn = match (found.outage, outage) {
                        (None, Some(_)) => Some(life::OUTAGE_BEGAN.to_owned()),
                        (Some(outage), None) => Some(life::outage_ended(outage.since, now)),
                        _ => None,
                    };
                    let reached = self.groups.members.of(found.ring).filter(|member| member.since <= knew);
                    for sensor in reached.filter_map(|member| member.record.as_deref()) {
                        log(sensor, &poked, turn.as_deref());
                    }
                }
                self.groups.note(group, outage, now);
            } else {
                // No worker pokes the target, so its state is unknown.
                self.groups.note(group, None, now);
            }
            self.end_members(group, &poked, knew, now);
        }
        match hangs {
            true => self.groups.hangs(group, now, self.rules),
            false => self.groups.rest(group, now, self.rules),
        }
        unreachable
    }

    fn end_members(&mut self, group: GroupRef, poked: &PokeOutcome, knew: u64, now: Timestamp) {
        let Some(found) = self.groups.get(group) else { return };
        let given_up = |outage: Outage| now >= outage.since + self.rules.window;
        let somebody = matches!(poked, PokeOutcome::Landed(_) | PokeOutcome::Failed(_))
            || now >= found.timeout
            || found.outage.is_some_and(given_up);
        if !somebody {
            return;
        }
        let mut last: Option<Arc<Ending>> = None;
        for member in self.groups.members.of(found.ring).filter(|member| member.since <= knew) {
            let mut ending = settle(&member.terms, poked, now);
            if let (None, PokeOutcome::Unreachable(message), Some(outage)) = (&ending, poked, &found.outage) {
                ending = give_up(&member.terms, outage, message, self.rules.window, now);
            }
            let Some(ending) = ending else { continue };
            // Sensors with equal endings share one copy of the text.
            let shared = match last.take() {
                Some(before) if *before == ending => before,
                _ => Arc::new(ending),
            };
            self.endings.entry(member.lease).or_insert_with(|| Arc::clone(&shared));
            last = Some(shared);
        }
    }
}
