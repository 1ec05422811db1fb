//! What sharing pokes saves, per kind.

use std::collections::BTreeMap;

use super::report::PokeReport;
use super::worker::Poker;
use crate::id::SensorKind;
use crate::service::observer::metrics::{POKE_GROUPS, SENSORS};

/// The kinds that were last reported to the observer, with their sensors and groups.
pub(super) type ReportedKinds = BTreeMap<SensorKind, (usize, usize)>;

impl Poker {
    /// Completes the numbers of the kinds that were poked, and adds those that no worker serves.
    pub(super) fn count_kinds(&self, report: &mut PokeReport) {
        for (kind, (sensors, groups)) in self.plan.by_kind() {
            if !self.kinds.serves(kind) {
                report.unserved.insert(kind.clone(), *sensors);
            }
            if let Some(own) = report.by_kind.get_mut(kind) {
                (own.sensors, own.groups) = (*sensors, *groups);
            }
        }
    }

    /// Emits the numbers of sensors and groups of each kind if they changed.
    pub(super) fn emit_kinds(&mut self) {
        if !self.emitter.has_observer() {
            return;
        }
        let now = self.plan.by_kind();
        let gone = self.reported.keys().filter(|kind| !now.contains_key(*kind)).map(|kind| (kind, &(0, 0)));
        let changed = now.iter().filter(|(kind, count)| self.reported.get(*kind) != Some(*count));
        for (kind, (sensors, groups)) in changed.chain(gone) {
            self.emitter.gauge(&SENSORS, &[("kind", kind.as_str())], *sensors as u64);
            self.emitter.gauge(&POKE_GROUPS, &[("kind", kind.as_str())], *groups as u64);
        }
        self.reported.clone_from(now);
    }
}
