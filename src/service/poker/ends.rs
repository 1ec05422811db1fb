//! Applies outcomes and the passing of time to sensors.

use super::engine::Collected;
use super::life::panics;
use super::report::PokeReport;
use super::worker::Poker;
use crate::error::Result;
use crate::ops::{EndedSensor, end_free_sensors};
use crate::sensor::plan::{Answer, GroupRef, Log, Outcome};
use crate::sensor::{EndReason, PokeOutcome, SensorRecord};
use crate::service::observer::metrics::POKE_SECONDS;
use crate::time::Timestamp;

/// Returns the word for the outcome of a poke.
fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Answered(PokeOutcome::Landed(_)) => "landed",
        Outcome::Answered(PokeOutcome::Failed(_)) => "failed",
        Outcome::Answered(PokeOutcome::Unreachable(_)) => "unreachable",
        Outcome::Overran { .. } => "overran",
        _ => "not_yet",
    }
}

impl Poker {
    /// Processes what the engine collected.
    pub(super) fn take_up(&mut self, collected: &mut Collected, now: Timestamp, report: &mut PokeReport) {
        self.note_costs(&collected.answers);
        for answer in collected.answers.drain(..) {
            report.poked += 1;
            report.overran += usize::from(matches!(answer.outcome, Outcome::Overran { .. }));
            if let Some((kind, sensors)) = self.plan.target(answer.group) {
                if let Some(took) = answer.took {
                    self.emitter.seconds(&POKE_SECONDS, &[("kind", kind.as_str())], took);
                }
                let saved = sensors.saturating_sub(1);
                report.saved += saved;
                let own = report.by_kind.entry(kind.clone()).or_default();
                own.poked += 1;
                own.saved += saved;
                own.duration += answer.took.unwrap_or_default();
                *own.outcomes.entry(word(&answer.outcome)).or_default() += 1;
            }
            self.apply(answer, now, report);
        }
        report.late += collected.returned.len();
        collected.returned.drain(..).for_each(|group| self.plan.returned(group));
    }

    /// Records the cost of these pokes. The outcomes of a call are consecutive, and only the first one carries its
    /// duration.
    fn note_costs(&mut self, answers: &[Answer]) {
        let calls = answers.chunk_by(|_, next| next.took.is_none());
        for call in calls {
            let took = call.first().and_then(|first| first.took).unwrap_or_default();
            let each = took / u32::try_from(call.len()).unwrap_or(u32::MAX);
            call.iter().for_each(|answer| self.plan.note_cost(answer.group, each));
        }
    }

    /// Handles a due group that cannot be poked.
    pub(super) fn pass_over(
        &mut self,
        group: GroupRef,
        why: Outcome,
        now: Timestamp,
        report: &mut PokeReport,
    ) {
        report.held_back += usize::from(matches!(why, Outcome::KindHangs));
        if matches!(why, Outcome::NotServed) {
            report.unknown_kind += self.plan.target(group).map_or(0, |(_, sensors)| sensors);
        }
        self.apply(Answer::without_poke(group, why), now, report);
    }

    /// Applies one outcome, and logs it for each sensor that it reaches.
    fn apply(&mut self, answer: Answer, now: Timestamp, report: &mut PokeReport) {
        let panicked = &mut report.log_panics;
        let mut log = self.log.as_deref().map(|log| {
            move |sensor: &SensorRecord, poked: &PokeOutcome, turn: Option<&str>| {
                *panicked += panics(|| log.poked(sensor, now, poked));
                *panicked += turn.map_or(0, |what| panics(|| log.noted(sensor, now, what)));
            }
        });
        let log = log.as_mut().map(|log| log as &mut Log<'_>);
        report.unreachable += usize::from(self.plan.answered(answer, now, log));
    }

    /// Records the ends in the store, for sensors that still belong to this worker. The next tick retries ends that
    /// the store did not accept, and those that other transactions held.
    pub(super) fn store_ends(&mut self, now: Timestamp, report: &mut PokeReport) -> Result<()> {
        let mut last = None;
        loop {
            let chunk = self.plan.ends(last);
            last = chunk.last().map(|(lease, _)| *lease);
            if last.is_none() {
                return Ok(());
            }
            let ended = self.store.write(|tx| end_free_sensors(tx, now, &chunk))?;
            for ((lease, ending), ended) in chunk.into_iter().zip(ended) {
                match (ended, ending.reason) {
                    // As far as is known, the sensor still waits. The next tick tries again.
                    (EndedSensor::PassedOver, _) => continue,
                    (EndedSensor::NotWaiting, _) => {}
                    (EndedSensor::Ended, EndReason::Landed) => report.landed += 1,
                    (EndedSensor::Ended, EndReason::Failed) => report.failed += 1,
                    (EndedSensor::Ended, EndReason::Unreachable) => report.gave_up += 1,
                    (EndedSensor::Ended, _) => report.timed_out += 1,
                }
                if ended == EndedSensor::Ended {
                    self.note_end(lease, &ending, now);
                }
                self.plan.forget(lease);
            }
        }
    }
}
