//! The kinds of sensors that a poker serves.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroUsize;

use super::poke::Probe;
use crate::id::SensorKind;
use crate::sensor::plan::GroupRef;

/// The kinds of which the host said anything.
#[derive(Default)]
pub(super) struct Kinds(BTreeMap<SensorKind, Kind>);

/// One kind.
#[derive(Default)]
pub(super) struct Kind {
    /// How it is poked; `None` if this worker does not serve it.
    pub(super) probe: Option<Probe>,
    pub(super) at_once: Option<NonZeroUsize>,
    /// Due groups that wait for a place in the engine's queue.
    pub(super) due: VecDeque<GroupRef>,
}

impl Kinds {
    /// Returns a kind, of which the host said something before or not.
    pub(super) fn of_host(&mut self, name: SensorKind) -> &mut Kind {
        self.0.entry(name).or_default()
    }

    /// Returns a kind that this worker serves.
    pub(super) fn get_mut(&mut self, name: &SensorKind) -> Option<&mut Kind> {
        self.0.get_mut(name).filter(|kind| kind.probe.is_some())
    }

    /// Returns true if this worker serves the kind.
    pub(super) fn serves(&self, name: &SensorKind) -> bool {
        self.0.get(name).is_some_and(|kind| kind.probe.is_some())
    }

    /// Returns the names of the kinds that this worker serves.
    pub(super) fn served(&self) -> impl Iterator<Item = &SensorKind> {
        self.0.iter().filter(|(_, kind)| kind.probe.is_some()).map(|(name, _)| name)
    }

    /// Returns the due groups of each kind.
    pub(super) fn due(&mut self) -> impl Iterator<Item = (&SensorKind, &mut VecDeque<GroupRef>)> {
        self.0.iter_mut().map(|(name, kind)| (name, &mut kind.due))
    }

    /// Returns how many due groups wait for a place in the engine's queue.
    pub(super) fn waiting(&self) -> usize {
        self.0.values().map(|kind| kind.due.len()).sum()
    }

    /// Takes out the due groups that are not to be kept.
    pub(super) fn withdraw(&mut self, keep: impl Fn(GroupRef) -> bool) -> Vec<GroupRef> {
        let mut withdrawn = Vec::new();
        for (_, due) in self.due() {
            withdrawn.extend(due.iter().filter(|group| !keep(**group)));
            due.retain(|group| keep(*group));
        }
        withdrawn
    }
}
