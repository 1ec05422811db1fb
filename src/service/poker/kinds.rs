//! The kinds of sensors that a poker has seen, by small numbers.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroUsize;

use super::distant::Way;
use crate::id::SensorKind;
use crate::sensor::plan::Slab;

/// This many kinds are kept, used or not.
const FEW: usize = 64;

/// Kinds by number.
pub(super) struct Kinds {
    numbers: HashMap<SensorKind, u32>,
    kinds: Slab<Kind>,
    /// At this many kinds it checks which are still used.
    sweep_at: usize,
}

/// One kind.
pub(super) struct Kind {
    name: SensorKind,
    /// How it is poked; `None` if this worker does not know how.
    pub(super) way: Option<Way>,
    pub(super) at_once: Option<NonZeroUsize>,
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
        let kind = Kind { name: name.clone(), way: None, at_once: None };
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
            let told = |kind: &Kind| kind.way.is_some() || kind.at_once.is_some();
            let keep = used.contains(number) || kinds.get(*number).is_some_and(told);
            if !keep {
                kinds.remove(*number);
            }
            keep
        });
        self.sweep_at = FEW.max(2 * self.numbers.len());
    }

    pub(super) fn kind_mut(&mut self, name: &SensorKind) -> Option<&mut Kind> {
        let number = self.number(name);
        self.kinds.get_mut(number)
    }

    /// Returns the name of the kind with this number.
    pub(super) fn name(&self, number: u32) -> Option<&SensorKind> {
        self.kinds.get(number).map(|kind| &kind.name)
    }

    pub(super) fn is_known(&self, number: u32) -> bool {
        self.kinds.get(number).is_some_and(|kind| kind.way.is_some())
    }

    /// Returns the kinds that this worker can poke, with their numbers.
    pub(super) fn known(&self) -> impl Iterator<Item = (u32, &SensorKind, &Kind)> {
        let all = self.kinds.iter().map(|(number, kind)| (number, &kind.name, kind));
        all.filter(|(_, _, kind)| kind.way.is_some())
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
        kinds.kind_mut(&name(0)).unwrap().at_once = NonZeroUsize::new(1);
        let used = kinds.number(&name(1));
        for n in 2..10_000 {
            kinds.number(&name(n));
            kinds.sweep(|| HashSet::from([used]));
        }
        assert!(kinds.numbers.len() < 2 * FEW, "{} kinds are kept", kinds.numbers.len());
        assert_eq!(kinds.numbers.len(), kinds.kinds.len());
        assert_eq!((kinds.number(&name(1)), kinds.name(used)), (used, Some(&name(1))));
        assert_eq!(kinds.kind_mut(&name(0)).unwrap().at_once, NonZeroUsize::new(1));
    }
}
