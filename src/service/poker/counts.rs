//! Counts pokes for the store, which sums them over all workers.
//!
//! The store learns of them with the renewal of the worker's shards and when the worker leaves. Nothing is written
//! per poke.

use std::collections::BTreeMap;
use std::time::Duration;

use super::report::PokeReport;
use crate::error::Result;
use crate::id::{Holder, SensorKind};
use crate::sensor::{PokeCountRow, PokeCounts};
use crate::store::Tx;
use crate::time::Timestamp;

const HOUR: Duration = Duration::from_secs(3600);

/// How long the store keeps them.
const COUNTS_ARE_KEPT: Duration = Duration::from_secs(31 * 24 * 3600);

/// How long the worker remembers hours that it has stored. A clock that is set back by less changes no total.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// What was counted of a kind in an hour.
#[derive(Debug)]
struct Counted {
    counts: PokeCounts,
    /// Whether the store has it.
    is_stored: bool,
}

/// What a worker counted.
#[derive(Debug, Default)]
pub(super) struct CountedPokes {
    hours: BTreeMap<(Timestamp, SensorKind), Counted>,
}

/// Returns when the hour of this instant began.
fn hour_of(now: Timestamp) -> Timestamp {
    let length = i64::try_from(HOUR.as_micros()).unwrap_or(i64::MAX);
    Timestamp::from_micros(now.as_micros().div_euclid(length).saturating_mul(length))
}

impl CountedPokes {
    /// Adds the pokes of a tick.
    pub(super) fn add(&mut self, now: Timestamp, by_kind: &BTreeMap<SensorKind, PokeReport>) {
        let hour = hour_of(now);
        for (kind, own) in by_kind.iter().filter(|(_, own)| own.poked > 0) {
            let new = || PokeCounts::new(hour, kind.clone(), 0, 0, Duration::ZERO);
            let counted = self.hours.entry((hour, kind.clone()));
            let counted = counted.or_insert_with(|| Counted { counts: new(), is_stored: false });
            counted.is_stored = false;
            let counts = &mut counted.counts;
            counts.poked += own.poked as u64;
            counts.saved += own.saved as u64;
            // The store keeps microseconds.
            let micros = u64::try_from(own.duration.as_micros()).unwrap_or(u64::MAX);
            counts.duration = counts.duration.saturating_add(Duration::from_micros(micros));
        }
    }

    /// Stores the totals that the store does not have, for this incarnation of a worker. The caller calls
    /// [`Self::stored`] once the transaction is committed. If it is not known whether an earlier one was, this one
    /// replaces its rows.
    pub(super) fn store(
        &self,
        tx: &mut Tx<'_>,
        (worker, incarnation): (&Holder, u64),
        now: Timestamp,
    ) -> Result<()> {
        let new = self.hours.values().filter(|counted| !counted.is_stored);
        let row =
            |Counted { counts, .. }: &Counted| PokeCountRow::new(worker.clone(), incarnation, counts.clone());
        let rows: Vec<PokeCountRow> = new.map(row).collect();
        if !rows.is_empty() {
            tx.raw().put_poke_counts(&rows, now - COUNTS_ARE_KEPT)?;
        }
        Ok(())
    }

    /// Notes that the transaction of [`Self::store`] was committed. Nothing was counted since.
    pub(super) fn stored(&mut self, now: Timestamp) {
        self.hours.retain(|(hour, _), _| *hour >= now - REMEMBERED);
        self.hours.values_mut().for_each(|counted| counted.is_stored = true);
    }
}
