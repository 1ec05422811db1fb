//! The kinds of sensors that the host registered with a poker.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;

use super::poke::Probe;
use crate::id::SensorKind;
use crate::sensor::plan::GroupRef;

/// The registered kinds.
#[derive(Default)]
pub(super) struct Kinds(BTreeMap<SensorKind, Kind>);

/// One kind.
#[derive(Default)]
pub(super) struct Kind {
    /// How it is poked. `None` if only its limit was set: this worker does not serve it.
    pub(super) probe: Option<Probe>,
    pub(super) at_once: Option<NonZeroUsize>,
    /// Due groups that wait for room in the engine's queue.
    pub(super) due: VecDeque<GroupRef>,
}

impl Kinds {
    /// Returns a kind to change how it is registered.
    pub(super) fn register(&mut self, name: &SensorKind) -> &mut Kind {
        self.0.entry(name.clone()).or_default()
    }

    /// Returns a kind that this worker serves.
    pub(super) fn get_mut(&mut self, name: &SensorKind) -> Option<&mut Kind> {
        self.0.get_mut(name).filter(|kind| kind.probe.is_some())
    }

    /// Returns true if this worker serves this kind.
    pub(super) fn serves(&self, name: &SensorKind) -> bool {
        self.0.get(name).is_some_and(|kind| kind.probe.is_some())
    }

    /// Returns the kinds that this worker serves.
    pub(super) fn served(&self) -> impl Iterator<Item = &SensorKind> {
        self.0.iter().filter(|(_, kind)| kind.probe.is_some()).map(|(name, _)| name)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&SensorKind, &mut Kind)> {
        self.0.iter_mut()
    }

    /// Returns how many due groups wait for room in the engine's queue.
    pub(super) fn waiting(&self) -> usize {
        self.0.values().map(|kind| kind.due.len()).sum()
    }

    /// Removes and returns the due groups that should not be kept.
    pub(super) fn withdraw(&mut self, keep: impl Fn(GroupRef) -> bool) -> Vec<GroupRef> {
        let mut withdrawn = Vec::new();
        for kind in self.0.values_mut() {
            withdrawn.extend(kind.due.iter().filter(|group| !keep(**group)));
            kind.due.retain(|group| keep(*group));
        }
        withdrawn
    }
}
