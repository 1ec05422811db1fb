//! What outcomes, and the passing of time, do to sensors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::counts::CountedAs;
use super::crew::{Answer, Haul, Outcome};
use super::group::GroupRef;
use super::report::PokeReport;
use super::worker::Poker;
use crate::error::Result;
use crate::lease::LeaseRef;
use crate::ops::{EndedSensor, end_free_sensors};
use crate::sensor::{EndReason, Ending, Outage, PokeOutcome, SensorRecord, give_up, settle};
use crate::time::Timestamp;

/// The most ends in one transaction.
const ENDS: usize = 10_000;

/// A transaction takes no further end once its texts exceed this in total.
const END_BYTES: usize = 64 << 20;

impl Poker {
    /// Processes what the threads returned.
    pub(super) fn take_up(&mut self, haul: &mut Haul, now: Timestamp, report: &mut PokeReport) {
        for Answer { group, knew, outcome, took, .. } in haul.answers.drain(..) {
            report.poked += 1;
            if let Some(found) = self.groups.get(group) {
                report.saved += (found.members as usize).saturating_sub(1);
                if let Some(kind) = self.kinds.name(found.kind) {
                    let outcome = match &outcome {
                        Outcome::Answered(poked) => CountedAs::from(poked),
                        Outcome::Overran { .. } => CountedAs::Overran,
                    };
                    self.counts.count(&self.emitter, kind, outcome, took);
                }
            }
            match outcome {
                Outcome::Answered(poked) => {
                    self.answer(group, &poked, knew, now, report);
                    self.groups.rest(group, now, self.rules());
                }
                Outcome::Overran { timeout, hangs } => {
                    report.overran += 1;
                    let text = format!("the poke took longer than {:.3} s", timeout.as_secs_f64());
                    self.answer(group, &PokeOutcome::Unreachable(text), knew, now, report);
                    match hangs {
                        true => self.groups.hangs(group, now, self.rules()),
                        false => self.groups.rest(group, now, self.rules()),
                    }
                }
            }
        }
        report.late += haul.returned.len();
        for group in haul.returned.drain(..) {
            self.groups.returned(group);
        }
    }

    /// Handles an overdue group whose last poke still hangs.
    pub(super) fn still_hangs(&mut self, group: GroupRef, now: Timestamp, report: &mut PokeReport) {
        let poked = PokeOutcome::Unreachable("its last poke has not returned".into());
        self.answer(group, &poked, u64::MAX, now, report);
        self.groups.rest(group, now, self.rules());
    }

    /// Handles an overdue group with too many hung calls of its kind.
    pub(super) fn kind_hangs(&mut self, group: GroupRef, now: Timestamp, report: &mut PokeReport) {
        report.held_back += 1;
        let poked = PokeOutcome::Unreachable("too many pokes of its kind have not returned".into());
        self.answer(group, &poked, u64::MAX, now, report);
        self.groups.rest(group, now, self.rules());
    }

    /// Handles an overdue group that this worker cannot poke.
    pub(super) fn not_known(&mut self, group: GroupRef, now: Timestamp, report: &mut PokeReport) {
        report.unknown_kind += self.groups.get(group).map_or(0, |found| found.members as usize);
        self.end_members(group, &PokeOutcome::NotYet, u64::MAX, now);
        self.groups.rest(group, now, self.rules());
    }

    /// Applies one outcome. It concerns only the members that were known when its poke began: `knew` is the
    /// last tick that had read the store by then.
    fn answer(
        &mut self,
        group: GroupRef,
        poked: &PokeOutcome,
        knew: u64,
        now: Timestamp,
        report: &mut PokeReport,
    ) {
        report.unreachable += usize::from(matches!(poked, PokeOutcome::Unreachable(_)));
        let Some(found) = self.groups.get(group) else { return };
        let outage = Outage::after(found.outage, poked, now);
        self.groups.note(group, outage);
        report.log_panics += self.log_answer(group, poked, knew, now);
        self.end_members(group, poked, knew, now);
    }

    /// Logs one outcome for each member. Returns how often the log panicked.
    fn log_answer(&self, group: GroupRef, poked: &PokeOutcome, knew: u64, now: Timestamp) -> usize {
        let (Some(log), Some(found)) = (&self.log, self.groups.get(group)) else { return 0 };
        let reached = self.groups.members(found).filter(|member| member.since <= knew);
        // A faulty log must not delay the sensors.
        let panics = |sensor: &&SensorRecord| {
            catch_unwind(AssertUnwindSafe(|| log.poked(sensor, now, poked))).is_err()
        };
        reached.filter_map(|member| member.record.as_deref()).filter(panics).count()
    }

    fn end_members(&mut self, group: GroupRef, poked: &PokeOutcome, knew: u64, now: Timestamp) {
        let Some(found) = self.groups.get(group) else { return };
        let window = self.options.retry_window;
        let given_up = |outage: Outage| now >= outage.since + window;
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

    /// Ends the sensors that have timed out and whose last look has not come in the usual time. Either no
    /// thread was free for it, or the poke takes longer than they can wait. The poke continues for the other
    /// sensors of its group.
    pub(super) fn end_overdue(&mut self, now: Timestamp) {
        let before = now - self.options.poke_timeout;
        for group in self.groups.timed_out(before).filter(|group| group.asked_by(before)) {
            for member in self.groups.members(group).filter(|member| member.terms.times_out_at <= before) {
                if let Some(ending) = settle(&member.terms, &PokeOutcome::NotYet, now) {
                    self.endings.entry(member.lease).or_insert_with(|| Arc::new(ending));
                }
            }
        }
    }

    /// Records the ends in the store, where the sensor still belongs to this worker. The next tick retries
    /// what the store does not accept, and what other transactions held.
    pub(super) fn store_ends(&mut self, now: Timestamp, report: &mut PokeReport) -> Result<()> {
        self.endings.retain(|lease, _| self.groups.knows(*lease));
        let mut passed_over = Vec::new();
        while !self.endings.is_empty() {
            let mut bytes = 0;
            let mut fits = |ending: &Arc<Ending>| {
                let begun = bytes > END_BYTES;
                bytes +=
                    [&ending.value, &ending.message].into_iter().flatten().map(String::len).sum::<usize>();
                !begun
            };
            let chunk = self.endings.iter().take(ENDS).take_while(|(_, ending)| fits(ending));
            let chunk: Vec<(LeaseRef, Ending)> =
                chunk.map(|(lease, ending)| (*lease, Ending::clone(ending))).collect();
            let ended = match self.store.write(|tx| end_free_sensors(tx, now, &chunk)) {
                Ok(ended) => ended,
                Err(error) => {
                    self.endings.extend(passed_over);
                    return Err(error);
                }
            };
            for ((lease, ending), ended) in chunk.into_iter().zip(ended) {
                let shared = self.endings.remove(&lease);
                if ended == EndedSensor::PassedOver {
                    // It still waits for all that is known. The next tick asks again.
                    passed_over.extend(shared.map(|ending| (lease, ending)));
                    continue;
                }
                self.groups.remove(lease.id);
                if ended == EndedSensor::NotWaiting {
                    continue;
                }
                match ending.reason {
                    EndReason::Landed => report.landed += 1,
                    EndReason::Failed => report.failed += 1,
                    EndReason::Unreachable => report.gave_up += 1,
                    _ => report.timed_out += 1,
                }
            }
        }
        self.endings.extend(passed_over);
        Ok(())
    }
}
