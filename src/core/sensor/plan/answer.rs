//! A poker's jobs, their outcomes, and what follows for the sensors.

use std::sync::Arc;
use std::time::Duration;

use super::group::GroupRef;
use super::{Plan, Rules};
use crate::canonical::PokeContext;
use crate::sensor::{Ending, Outage, PokeOutcome, SensorRecord, give_up, settle};
use crate::time::Timestamp;

/// A group to poke.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) group: GroupRef,
    pub(crate) context: PokeContext,
    pub(crate) sensors: u32,
    /// The instant of the turn that asks.
    pub(crate) now: Timestamp,
    /// How long the poke may take.
    pub(crate) timeout: Duration,
    /// Until when its answer is useful, in microseconds: until the last of its sensors has timed out and has
    /// had the usual time for its last look.
    pub(crate) of_use_until: i64,
    /// The turn that asks.
    pub(crate) turn: u64,
}

/// The outcome of a poke.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) group: GroupRef,
    /// The turn that asked.
    pub(crate) turn: u64,
    /// The last turn that had read the store when the poke began.
    pub(crate) knew: u64,
    pub(crate) outcome: Outcome,
    /// How long its call took, or its deadline if that passed. Only the first of a call's answers has it.
    pub(crate) took: Option<Duration>,
}

/// How a poke went, or why there was none.
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
    /// The group's last poke has not returned.
    StillHangs,
    /// Too many pokes of its kind have not returned.
    KindHangs,
    /// This worker has no poke for its kind. That means nothing about the target: its sensors only time out.
    NotServed,
}

/// What an answer did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Applied {
    /// How many sensors shared the group.
    pub(crate) sensors: usize,
    /// The target could not be checked.
    pub(crate) unreachable: bool,
}

/// What an answer means for one sensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    Poked(&'a PokeOutcome),
    OutageBegan,
    /// An outage that began at that instant is over.
    OutageEnded(Timestamp),
}

/// Receives a sensor, and what happened to it.
pub(crate) type Log<'a> = dyn FnMut(&SensorRecord, Event<'_>) + 'a;

impl Answer {
    /// Creates the answer for a group that was due and was not poked. It reaches all sensors, since no poke began
    /// before any of them was known.
    pub(crate) fn without_poke(group: GroupRef, outcome: Outcome) -> Self {
        Self { group, turn: 0, knew: u64::MAX, outcome, took: None }
    }
}

impl Outcome {
    /// Returns the outcome for the sensors.
    fn told(self) -> PokeOutcome {
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
    /// Applies one answer, and gives the group its next time. The answer concerns only the members that were
    /// known when its poke began. A log receives each of them that is kept whole, if the target was poked.
    pub(crate) fn answered(
        &mut self,
        answer: Answer,
        now: Timestamp,
        rules: Rules,
        log: Option<&mut Log<'_>>,
    ) -> Applied {
        let Answer { group, knew, outcome, .. } = answer;
        let served = !matches!(outcome, Outcome::NotServed);
        let hangs = matches!(outcome, Outcome::Overran { hangs: true, .. });
        let poked = outcome.told();
        let unreachable = matches!(poked, PokeOutcome::Unreachable(_));
        let mut applied = Applied { sensors: 0, unreachable };
        if let Some(found) = self.groups.get(group) {
            applied.sensors = found.members as usize;
            if served {
                let outage = Outage::after(found.outage, &poked, now);
                if let Some(log) = log {
                    let turned = match (found.outage, outage) {
                        (None, Some(_)) => Some(Event::OutageBegan),
                        (Some(outage), None) => Some(Event::OutageEnded(outage.since)),
                        _ => None,
                    };
                    let told = self.groups.members(found).filter(|member| member.since <= knew);
                    for sensor in told.filter_map(|member| member.record.as_deref()) {
                        log(sensor, Event::Poked(&poked));
                        turned.into_iter().for_each(|event| log(sensor, event));
                    }
                }
                self.groups.note(group, outage, now);
            } else {
                // No worker pokes the target, so nothing is known of it.
                self.groups.note(group, None, now);
            }
            self.end_members(group, &poked, knew, now, rules);
        }
        match hangs {
            true => self.groups.hangs(group, now, rules),
            false => self.groups.rest(group, now, rules),
        }
        applied
    }

    fn end_members(&mut self, group: GroupRef, poked: &PokeOutcome, knew: u64, now: Timestamp, rules: Rules) {
        let Some(found) = self.groups.get(group) else { return };
        let given_up = |outage: Outage| now >= outage.since + rules.window;
        let somebody = matches!(poked, PokeOutcome::Landed(_) | PokeOutcome::Failed(_))
            || now.as_micros() >= found.timeout
            || found.outage.is_some_and(given_up);
        if !somebody {
            return;
        }
        let mut last: Option<Arc<Ending>> = None;
        for member in self.groups.members(found).filter(|member| member.since <= knew) {
            let mut ending = settle(&member.terms, poked, now);
            if let (None, PokeOutcome::Unreachable(message), Some(outage)) = (&ending, poked, &found.outage) {
                ending = give_up(&member.terms, outage, message, rules.window, now);
            }
            let Some(ending) = ending else { continue };
            // Sensors that end alike share the text.
            let shared = match last.take() {
                Some(before) if *before == ending => before,
                _ => Arc::new(ending),
            };
            self.endings.entry(member.lease).or_insert_with(|| Arc::clone(&shared));
            last = Some(shared);
        }
    }
}
