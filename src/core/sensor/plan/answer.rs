//! What a poker asks, the answers it gets, and what follows for the sensors.

use std::sync::Arc;
use std::time::Duration;

use super::Plan;
use super::group::GroupRef;
use crate::canonical::PokeContext;
use crate::sensor::{Ending, Outage, PokeOutcome, SensorRecord, give_up, settle};
use crate::time::Timestamp;

/// A group to poke.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) group: GroupRef,
    pub(crate) context: PokeContext,
    pub(crate) sensors: usize,
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
    /// This worker has no poke for its kind. That says nothing of the target: its sensors only time out.
    NotServed,
}

/// What an answer did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Applied {
    /// How many sensors shared the group.
    pub(crate) sensors: usize,
    /// The target could not be looked at.
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

/// Is given a sensor, and what happened to it.
pub(crate) type Log<'a> = dyn FnMut(&SensorRecord, Event<'_>) + 'a;

impl Answer {
    /// Creates the answer for a group that was due and was not poked. It reaches all sensors, since no poke began
    /// before any of them was known.
    pub(crate) fn without_poke(group: GroupRef, outcome: Outcome) -> Self {
        Self { group, turn: 0, knew: u64::MAX, outcome, took: None }
    }
}

impl Outcome {
    /// Returns what the sensors are told.
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
    /// known when its poke began. A log is given each of them that is kept whole, if the target was looked at.
    pub(crate) fn answered(&mut self, answer: Answer, now: Timestamp, log: Option<&mut Log<'_>>) -> Applied {
        let Answer { group, knew, outcome, .. } = answer;
        let served = !matches!(outcome, Outcome::NotServed);
        let hangs = matches!(outcome, Outcome::Overran { hangs: true, .. });
        let poked = outcome.told();
        let mut applied = Applied { sensors: 0, unreachable: matches!(poked, PokeOutcome::Unreachable(_)) };
        if let Some(found) = self.groups.get(group).filter(|found| !found.members.is_empty()) {
            applied.sensors = found.members.len();
            // If no one looks at the target, nothing is known of it.
            let outage = if served { Outage::after(found.outage, &poked, now) } else { None };
            if let Some(log) = log.filter(|_| served) {
                let turned = match (found.outage, outage) {
                    (None, Some(_)) => Some(Event::OutageBegan),
                    (Some(outage), None) => Some(Event::OutageEnded(outage.since)),
                    _ => None,
                };
                let told = self.members_of(found).filter(|member| member.since <= knew);
                for sensor in told.filter_map(|member| member.record.as_deref()) {
                    log(sensor, Event::Poked(&poked));
                    turned.into_iter().for_each(|event| log(sensor, event));
                }
            }
            if found.outage.is_some() && outage.is_none() {
                self.stored.is_over(group.fingerprint, now);
            }
            self.set_outage(group, outage);
            self.end_members(group, &poked, knew, now);
        }
        match hangs {
            true => self.hangs(group, now),
            false => self.rest(group, now),
        }
        applied
    }

    /// Decides which members of a group end by the outcome of a poke that knew of what had been read until that turn.
    fn end_members(&mut self, group: GroupRef, poked: &PokeOutcome, knew: u64, now: Timestamp) {
        let Some(found) = self.groups.get(group) else { return };
        let window = self.rules.retry_window;
        let somebody = matches!(poked, PokeOutcome::Landed(_) | PokeOutcome::Failed(_))
            || now.as_micros() >= found.common.timeout
            || found.outage.is_some_and(|outage| now >= outage.since + window);
        if !somebody {
            return;
        }
        let mut last: Option<Arc<Ending>> = None;
        let members = found.members.iter().filter_map(|id| self.members.get(id));
        for member in members.filter(|member| member.since <= knew) {
            let mut ending = settle(&member.terms, poked, now);
            if let (None, PokeOutcome::Unreachable(message), Some(outage)) = (&ending, poked, &found.outage) {
                ending = give_up(&member.terms, outage, message, window, now);
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
