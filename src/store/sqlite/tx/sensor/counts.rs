//! The pokes that workers made and saved.

use std::ops::Range;

use rusqlite::params;

use super::super::super::error::Outcome;
use super::super::{Db, clamp};
use crate::sensor::{PokeCountRow, PokeCounts};
use crate::store::contract::FORGOTTEN_AT_ONCE;
use crate::store::sql::records;
use crate::time::{Timestamp, duration_micros};

const PUT: &str = "REPLACE INTO sm_poke_count (hour, kind, worker, incarnation, poked, saved, duration) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
pub(in super::super) const FORGET: &str = "DELETE FROM sm_poke_count WHERE (hour, kind, worker, incarnation) IN \
     (SELECT hour, kind, worker, incarnation FROM sm_poke_count WHERE hour < ?1 \
     ORDER BY hour, kind, worker, incarnation LIMIT ?2)";
pub(in super::super) const SUMS: &str = "SELECT hour, kind, sum(poked), sum(saved), sum(duration) FROM sm_poke_count \
     WHERE hour >= ?1 AND hour < ?2 GROUP BY hour, kind ORDER BY hour, kind";

impl Db<'_> {
    pub(super) fn put_poke_counts(&mut self, counts: &[PokeCountRow], forget: Timestamp) -> Outcome<()> {
        let mut put = self.prepare(PUT)?;
        for PokeCountRow { worker, incarnation, counts } in counts {
            put.execute(params![
                counts.hour.as_micros(),
                counts.kind.as_str(),
                worker.as_str(),
                incarnation.cast_signed(),
                clamp(counts.poked),
                clamp(counts.saved),
                duration_micros(counts.duration),
            ])?;
        }
        self.prepare(FORGET)?.execute((forget.as_micros(), clamp(FORGOTTEN_AT_ONCE)))?;
        Ok(())
    }

    pub(super) fn poke_counts(&mut self, hours: &Range<Timestamp>) -> Outcome<Vec<PokeCounts>> {
        let mut statement = self.prepare(SUMS)?;
        let window = (hours.start.as_micros(), hours.end.as_micros());
        statement.query_and_then(window, |row| records::poke_counts(row))?.collect()
    }
}
