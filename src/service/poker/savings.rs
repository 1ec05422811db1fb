//! What sharing saves, per kind.

use std::collections::BTreeMap;
use std::time::Duration;

use super::report::PokeReport;
use super::worker::Poker;
use crate::id::SensorKind;
use crate::sensor::PokeOutcome;
use crate::sensor::plan::Outcome;
use crate::service::observer::metrics::{POKE_GROUPS, SENSORS};

/// The kinds last shown to the observer, with their sensors and groups.
pub(super) type ToldKinds = BTreeMap<SensorKind, (usize, usize)>;

impl PokeReport {
    /// Returns how a poke ended, in a word.
    pub(super) fn word(outcome: &Outcome) -> &'static str {
        match outcome {
            Outcome::Answered(PokeOutcome::Landed(_)) => "landed",
            Outcome::Answered(PokeOutcome::Failed(_)) => "failed",
            Outcome::Answered(PokeOutcome::Unreachable(_)) => "unreachable",
            Outcome::Overran { .. } => "overran",
            _ => "not_yet",
        }
    }

    /// Counts a poke of this kind that ended so and that this many sensors share.
    pub(super) fn count_shared(
        &mut self,
        kind: &SensorKind,
        word: &'static str,
        sensors: usize,
        took: Option<Duration>,
    ) {
        if !self.by_kind.contains_key(kind) {
            self.by_kind.insert(kind.clone(), Self::default());
        }
        if let Some(own) = self.by_kind.get_mut(kind) {
            own.poked += 1;
            own.saved += sensors.saturating_sub(1);
            own.duration += took.unwrap_or_default();
            *own.outcomes.entry(word).or_default() += 1;
        }
    }
}

impl Poker {
    /// Completes the numbers of the kinds that were poked, and names those that no one serves.
    pub(super) fn count_kinds(&self, report: &mut PokeReport) {
        let unserved = self.plan.by_kind().iter().filter(|(kind, _)| !self.kinds.serves(kind));
        report.unserved = unserved.map(|(kind, (sensors, _))| (kind.clone(), *sensors)).collect();
        for (kind, own) in &mut report.by_kind {
            (own.sensors, own.groups) = self.plan.by_kind().get(kind).copied().unwrap_or_default();
        }
    }

    /// Emits the sensors and groups of each kind for which they changed.
    pub(super) fn emit_kinds(&mut self) {
        let now = self.plan.by_kind();
        if !self.emitter.has_observer() || self.told_kinds == *now {
            return;
        }
        let gone = self.told_kinds.keys().filter(|kind| !now.contains_key(*kind)).map(|kind| (kind, &(0, 0)));
        let changed = now.iter().filter(|(kind, count)| self.told_kinds.get(*kind) != Some(*count));
        for (kind, (sensors, groups)) in changed.chain(gone) {
            self.emitter.gauge(&SENSORS, &[("kind", kind.as_str())], *sensors as u64);
            self.emitter.gauge(&POKE_GROUPS, &[("kind", kind.as_str())], *groups as u64);
        }
        self.told_kinds = now.clone();
    }
}
