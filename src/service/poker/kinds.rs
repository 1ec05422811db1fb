//! The kinds of sensors that a poker has seen, identified by small numbers.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::num::NonZeroUsize;

use super::poke::Probe;
use crate::id::SensorKind;
use crate::sensor::plan::{GroupRef, Slab};

/// This many kinds are kept even if unused.
const FEW: usize = 64;

/// Kinds by number.
pub(super) struct Kinds {
    numbers: HashMap<SensorKind, u32>,
    kinds: Slab<Kind>,
    /// The number of kinds at which it checks which are still used.
    sweep_at: usize,
}

/// One kind.
pub(super) struct Kind {
    pub(super) name: SensorKind,
    /// How it is poked. `None` if this worker does not serve it.
    pub(super) probe: Option<Probe>,
    pub(super) at_once: Option<NonZeroUsize>,
    /// Due groups that wait for room in the engine's queue.
    pub(super) due: VecDeque<GroupRef>,
}

impl Default for Kinds {
    fn default() -> Self {
        Self { numbers: HashMap::new(), kinds: Slab::default(), sweep_at: FEW }
    }
}

impl Kinds {
    /// Returns the number of a kind, seen before or not.
    pub(super) fn number(&mut self, name: &SensorKind) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let kind = Kind { name: name.clone(), probe: None, at_once: None, due: VecDeque::new() };
        let Some(number) = self.kinds.insert(kind) else { return u32::MAX };
        self.numbers.insert(name.clone(), number);
        number
    }

    /// Forgets, from time to time, kinds that the host did not register and that no sensor has any more.
    pub(super) fn sweep(&mut self, used: impl FnOnce() -> HashSet<u32>) {
        if self.numbers.len() < self.sweep_at {
            return;
        }
        let (used, kinds) = (used(), &mut self.kinds);
        self.numbers.retain(|_, number| {
            let is_registered = |kind: &Kind| kind.probe.is_some() || kind.at_once.is_some();
            let keep = used.contains(number) || kinds.get(*number).is_some_and(is_registered);
            if !keep {
                kinds.remove(*number);
            }
            keep
        });
        self.sweep_at = FEW.max(2 * self.numbers.len());
    }

    /// Returns the kind with this number.
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Kind> {
        self.kinds.get_mut(number)
    }

    /// Returns the name of the kind with this number.
    pub(super) fn name(&self, number: u32) -> Option<&SensorKind> {
        self.kinds.get(number).map(|kind| &kind.name)
    }

    /// Returns the numbers of the kinds that this worker serves.
    pub(super) fn served(&self) -> Vec<u32> {
        self.kinds.iter().filter(|(_, kind)| kind.probe.is_some()).map(|(number, _)| number).collect()
    }

    /// Returns true if this worker serves the kind with this number.
    pub(super) fn serves(&self, number: u32) -> bool {
        self.kinds.get(number).is_some_and(|kind| kind.probe.is_some())
    }

    /// Returns the names of the kinds that this worker serves.
    pub(super) fn served_names(&self) -> BTreeSet<SensorKind> {
        let served = self.kinds.iter().filter(|(_, kind)| kind.probe.is_some());
        served.map(|(_, kind)| kind.name.clone()).collect()
    }

    /// Returns the number of a kind that was seen before.
    pub(super) fn known(&self, name: &SensorKind) -> Option<u32> {
        self.numbers.get(name).copied()
    }

    /// Returns how many due groups wait for room in the engine's queue.
    pub(super) fn waiting(&self) -> usize {
        self.kinds.iter().map(|(_, kind)| kind.due.len()).sum()
    }

    /// Removes and returns the due groups that should not be kept.
    pub(super) fn withdraw(&mut self, keep: impl Fn(GroupRef) -> bool) -> Vec<GroupRef> {
        let mut withdrawn = Vec::new();
        for number in self.served() {
            let Some(kind) = self.kinds.get_mut(number) else { continue };
            withdrawn.extend(kind.due.iter().filter(|group| !keep(**group)));
            kind.due.retain(|group| keep(*group));
        }
        withdrawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: u32) -> SensorKind {
        SensorKind::new(format!("k{n}")).unwrap()
    }

    #[test]
    fn kinds_that_nobody_uses_are_forgotten() {
        let mut kinds = Kinds::default();
        let first = kinds.number(&name(0));
        kinds.get_mut(first).unwrap().at_once = NonZeroUsize::new(1);
        let used = kinds.number(&name(1));
        for n in 2..10_000 {
            kinds.number(&name(n));
            kinds.sweep(|| HashSet::from([used]));
        }
        assert!(kinds.numbers.len() < 2 * FEW, "{} kinds are kept", kinds.numbers.len());
        assert_eq!(kinds.numbers.len(), kinds.kinds.len());
        assert_eq!((kinds.number(&name(1)), kinds.name(used)), (used, Some(&name(1))));
        assert_eq!(kinds.number(&name(0)), first);
        assert_eq!(kinds.get_mut(first).unwrap().at_once, NonZeroUsize::new(1));
    }
}
