//! Counts of pokes, by kind and outcome, until the tick is over.

use std::time::Duration;

use crate::id::SensorKind;
use crate::sensor::PokeOutcome;
use crate::sensor::plan::Outcome;
use crate::service::observer::Emitter;
use crate::service::observer::metrics::{POKE_SECONDS, POKES};

/// How a poke ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum CountedAs {
    Landed,
    NotYet,
    Failed,
    Unreachable,
    Overran,
}

impl CountedAs {
    const WORDS: [&str; 5] = ["landed", "not_yet", "failed", "unreachable", "overran"];
}

impl From<&Outcome> for CountedAs {
    fn from(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Answered(PokeOutcome::Landed(_)) => Self::Landed,
            Outcome::Answered(PokeOutcome::NotYet | PokeOutcome::Progress(_)) | Outcome::NotServed => {
                Self::NotYet
            }
            Outcome::Answered(PokeOutcome::Failed(_)) => Self::Failed,
            Outcome::Overran { .. } => Self::Overran,
            Outcome::Answered(PokeOutcome::Unreachable(_)) | Outcome::StillHangs | Outcome::KindHangs => {
                Self::Unreachable
            }
        }
    }
}

/// Pokes of one tick. Kept from tick to tick, so that it allocates for new kinds only.
#[derive(Debug, Default)]
pub(super) struct PokeCounts(Vec<(SensorKind, [usize; 5])>);

impl PokeCounts {
    /// Counts one outcome. `took` is how long its call took; only one outcome of a call has it.
    pub(super) fn count(
        &mut self,
        emitter: &Emitter,
        kind: &SensorKind,
        outcome: CountedAs,
        took: Option<Duration>,
    ) {
        if !emitter.has_observer() {
            return;
        }
        if let Some(took) = took {
            emitter.seconds(&POKE_SECONDS, &[("kind", kind.as_str())], took);
        }
        let at = self.0.iter().position(|(known, _)| known == kind).unwrap_or_else(|| {
            self.0.push((kind.clone(), [0; 5]));
            self.0.len() - 1
        });
        if let Some((_, counts)) = self.0.get_mut(at) {
            counts[outcome as usize] += 1;
        }
    }

    /// Emits the counts, and resets them to zero.
    pub(super) fn emit(&mut self, emitter: &Emitter) {
        for (kind, counts) in &mut self.0 {
            for (word, count) in CountedAs::WORDS.into_iter().zip(std::mem::take(counts)) {
                emitter.counter(&POKES, &[("kind", kind.as_str()), ("outcome", word)], count);
            }
        }
    }
}
