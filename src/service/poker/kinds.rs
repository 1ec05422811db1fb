//! The kinds of sensors that a poker has met, by small numbers.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use super::distant::Way;
use crate::id::SensorKind;

/// Kinds by number.
#[derive(Default)]
pub(super) struct Kinds {
    numbers: HashMap<SensorKind, u32>,
    kinds: Vec<Kind>,
    names: Vec<SensorKind>,
}

/// One kind.
#[derive(Default)]
pub(super) struct Kind {
    /// How it is poked; none if this worker does not know how.
    pub(super) way: Option<Way>,
    pub(super) at_once: Option<NonZeroUsize>,
}

impl Kinds {
    /// The number of a kind, met before or not.
    pub(super) fn number(&mut self, name: &SensorKind) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.kinds.len()).unwrap_or(u32::MAX);
        self.kinds.push(Kind::default());
        self.names.push(name.clone());
        self.numbers.insert(name.clone(), number);
        number
    }

    pub(super) fn kind_mut(&mut self, name: &SensorKind) -> Option<&mut Kind> {
        let number = self.number(name);
        self.kinds.get_mut(number as usize)
    }

    /// The name of the kind of this number.
    pub(super) fn name(&self, number: u32) -> Option<&SensorKind> {
        self.names.get(number as usize)
    }

    pub(super) fn is_known(&self, number: u32) -> bool {
        self.kinds.get(number as usize).is_some_and(|kind| kind.way.is_some())
    }

    /// The kinds that this worker can poke, with their numbers.
    pub(super) fn known(&self) -> impl Iterator<Item = (u32, &SensorKind, &Kind)> {
        let known = self
            .numbers
            .iter()
            .filter_map(|(name, number)| Some((*number, name, self.kinds.get(*number as usize)?)));
        known.filter(|(_, _, kind)| kind.way.is_some())
    }
}
