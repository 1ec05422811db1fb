//! The pokes that workers made and saved.

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::super::error::Outcome;
use super::super::super::wire::ask;
use super::super::{Db, clamp};
use crate::sensor::{PokeCountRow, PokeCounts};
use crate::store::contract::FORGOTTEN_AT_ONCE;
use crate::store::sql::records;
use crate::time::{Timestamp, duration_micros};

/// The same hour, kind, worker and incarnation must not be given twice.
pub(in super::super) const PUT: &str = "INSERT INTO sm.poke_count (hour, kind, worker, incarnation, poked, saved, duration) \
     SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) \
       given (hour, kind, worker, incarnation, poked, saved, duration) \
     ORDER BY given.hour, given.kind COLLATE \"C\", given.worker COLLATE \"C\", given.incarnation \
     ON CONFLICT (hour, kind, worker, incarnation) DO UPDATE SET poked = excluded.poked, \
       saved = excluded.saved, duration = excluded.duration";
/// Skips rows that other transactions are deleting.
pub(in super::super) const FORGET: &str = "WITH old AS MATERIALIZED ( \
       SELECT ctid AS at FROM sm.poke_count WHERE hour < $1::bigint \
       ORDER BY hour, kind, worker, incarnation LIMIT $2::bigint FOR UPDATE SKIP LOCKED) \
     DELETE FROM sm.poke_count WHERE ctid = ANY (ARRAY(SELECT at FROM old))";
pub(in super::super) const SUMS: &str = "SELECT hour, kind, sum(poked)::bigint, sum(saved)::bigint, sum(duration)::bigint FROM sm.poke_count \
     WHERE hour >= $1::bigint AND hour < $2::bigint GROUP BY hour, kind ORDER BY hour, kind";

impl Db<'_> {
    pub(super) fn put_poke_counts(&mut self, counts: &[PokeCountRow], forget: Timestamp) -> Outcome<()> {
        let key = |row: &PokeCountRow| {
            (row.counts.hour, row.counts.kind.clone(), row.worker.clone(), row.incarnation)
        };
        let last: BTreeMap<_, &PokeCountRow> = counts.iter().map(|row| (key(row), row)).collect();
        let numbers =
            |number: fn(&PokeCountRow) -> i64| -> Vec<i64> { last.values().map(|row| number(row)).collect() };
        let texts = |text: fn(&PokeCountRow) -> &str| -> Vec<String> {
            last.values().map(|row| text(row).to_owned()).collect()
        };
        let put = ask!(
            PUT,
            numbers(|row| row.counts.hour.as_micros()),
            texts(|row| row.counts.kind.as_str()),
            texts(|row| row.worker.as_str()),
            numbers(|row| row.incarnation.cast_signed()),
            numbers(|row| clamp(row.counts.poked)),
            numbers(|row| clamp(row.counts.saved)),
            numbers(|row| duration_micros(row.counts.duration)),
        );
        let forget = ask!(FORGET, forget.as_micros(), clamp(FORGOTTEN_AT_ONCE));
        self.all([put, forget]).map(|_| ())
    }

    pub(super) fn poke_counts(&mut self, hours: &Range<Timestamp>) -> Outcome<Vec<PokeCounts>> {
        let rows = self.one(ask!(SUMS, hours.start.as_micros(), hours.end.as_micros()))?;
        rows.iter().map(records::poke_counts).collect()
    }
}
