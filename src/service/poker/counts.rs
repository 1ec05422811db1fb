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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Totals {
    poked: u64,
    saved: u64,
    duration: Duration,
}

/// What a worker counted, and what of it the store has.
#[derive(Debug, Default)]
pub(super) struct CountedPokes {
    hours: BTreeMap<(Timestamp, SensorKind), [Totals; 2]>,
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
            let [counted, _] = self.hours.entry((hour, kind.clone())).or_default();
            counted.poked += own.poked as u64;
            counted.saved += own.saved as u64;
            // The store keeps microseconds. A total that it has must equal the one that is counted.
            let micros = u64::try_from(own.duration.as_micros()).unwrap_or(u64::MAX);
            counted.duration = counted.duration.saturating_add(Duration::from_micros(micros));
        }
    }

    /// Stores the totals that the store does not have, for this incarnation of a worker. Returns them, for
    /// [`Self::stored`]. If it is not known whether an earlier transaction was committed, this one replaces its rows.
    pub(super) fn store(
        &self,
        tx: &mut Tx<'_>,
        (worker, incarnation): (&Holder, u64),
        now: Timestamp,
    ) -> Result<Vec<PokeCountRow>> {
        let changed = self.hours.iter().filter(|(_, [counted, stored])| counted != stored);
        let row = |((hour, kind), [counted, _]): (&(Timestamp, SensorKind), &[Totals; 2])| {
            let Totals { poked, saved, duration } = *counted;
            PokeCountRow::new(
                worker.clone(),
                incarnation,
                PokeCounts::new(*hour, kind.clone(), poked, saved, duration),
            )
        };
        let rows: Vec<PokeCountRow> = changed.map(row).collect();
        if !rows.is_empty() {
            tx.raw().put_poke_counts(&rows, now - COUNTS_ARE_KEPT)?;
        }
        Ok(rows)
    }

    /// Notes that the transaction with these rows was committed.
    pub(super) fn stored(&mut self, rows: Vec<PokeCountRow>, now: Timestamp) {
        for PokeCountRow { counts: row, .. } in rows {
            let totals = Totals { poked: row.poked, saved: row.saved, duration: row.duration };
            if let Some([_, stored]) = self.hours.get_mut(&(row.hour, row.kind)) {
                *stored = totals;
            }
        }
        let from = now - REMEMBERED;
        self.hours.retain(|(hour, _), [counted, stored]| *hour >= from || counted != stored);
    }
}
