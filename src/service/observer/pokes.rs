//! Counts of pokes, by kind and outcome, until the tick is over.

use std::time::Duration;

use super::metrics::{POKE_SECONDS, POKES};
use super::watch::Watch;
use crate::id::SensorKind;
use crate::sensor::Poked;

/// How a poke ended.
#[derive(Debug, Clone, Copy)]
pub(in crate::service) enum PokeOutcome {
    Landed,
    NotYet,
    Failed,
    Unreachable,
    Overran,
}

impl PokeOutcome {
    const WORDS: [&str; 5] = ["landed", "not_yet", "failed", "unreachable", "overran"];
}

impl From<&Poked> for PokeOutcome {
    fn from(poked: &Poked) -> Self {
        match poked {
            Poked::Landed(_) => Self::Landed,
            Poked::NotYet => Self::NotYet,
            Poked::Failed(_) => Self::Failed,
            Poked::Unreachable(_) => Self::Unreachable,
        }
    }
}

/// Pokes of one tick. Kept from tick to tick, so that it takes memory for new kinds only.
#[derive(Debug, Default)]
pub(in crate::service) struct PokeTally(Vec<(SensorKind, [usize; 5])>);

impl PokeTally {
    /// Counts one answer. `took` is how long its call took; one of the answers to a call says so.
    pub(in crate::service) fn count(
        &mut self,
        watch: &Watch,
        kind: &SensorKind,
        outcome: PokeOutcome,
        took: Option<Duration>,
    ) {
        if !watch.has_observer() {
            return;
        }
        if let Some(took) = took {
            watch.seconds(&POKE_SECONDS, &[("kind", kind.as_str())], took);
        }
        let at = self.0.iter().position(|(known, _)| known == kind).unwrap_or_else(|| {
            self.0.push((kind.clone(), [0; 5]));
            self.0.len() - 1
        });
        if let Some((_, counts)) = self.0.get_mut(at) {
            counts[outcome as usize] += 1;
        }
    }

    /// Tells what it counted, and begins anew.
    pub(super) fn tell(&mut self, watch: &Watch) {
        for (kind, counts) in &mut self.0 {
            for (word, count) in PokeOutcome::WORDS.into_iter().zip(std::mem::take(counts)) {
                watch.counter(&POKES, &[("kind", kind.as_str()), ("outcome", word)], count);
            }
        }
    }
}
