//! The numbers of changes and events. See `migrations/0001_initial/sensors.sql`.

use std::collections::HashMap;

use super::super::super::error::Outcome;
use super::super::super::wire::{Answer, Statement, ask};
use super::super::{Db, clamp, first, row};
use crate::store::sql::statement::statement;

/// Tries to take the lock for numbering, and records in the transaction whether it succeeded. The transaction
/// keeps the lock to its end. No transaction waits for it.
pub(in super::super) const TRY: &str = "SELECT set_config('stationmaster.numbers', \
     pg_try_advisory_xact_lock(hashtextextended('sm.numbers', 0))::text, true)";
pub(in super::super) const NUMBER: &str = statement!("number_changes.sql");

/// The most changes, and the most events, of other transactions that are numbered along with a transaction's
/// own.
pub(in super::super) const OTHERS: usize = 10_000;

/// The numbers that each task's changes got, in ascending order.
#[derive(Debug, Default)]
pub(in super::super) struct Numbered {
    changes: HashMap<i64, Vec<u64>>,
    /// The number of changes, or of events if that is larger.
    pub(super) count: usize,
}

impl Numbered {
    /// Reads the result of [`NUMBER`].
    pub(super) fn read(rows: &Answer) -> Outcome<Self> {
        let row = first(rows)?;
        let (tasks, numbers): (Vec<i64>, Vec<i64>) = (row::value(row, 0)?, row::value(row, 1)?);
        let mut numbered = Self { count: tasks.len().max(row::whole(row, 2)?), ..Self::default() };
        for (task, number) in tasks.into_iter().zip(numbers) {
            numbered.changes.entry(task).or_default().push(number.cast_unsigned());
        }
        Ok(numbered)
    }

    /// Returns the number of the task's change that is followed by `count` others. Returns 0 if it has none
    /// yet because another transaction has the lock.
    pub(super) fn last_but(&self, task: i64, count: usize) -> u64 {
        let numbers = self.changes.get(&task).map_or(&[][..], Vec::as_slice);
        numbers.iter().rev().nth(count).copied().unwrap_or(0)
    }
}

/// What [`NUMBER`] returns if it assigns none.
const NONE: &str = "SELECT ARRAY[]::bigint[], ARRAY[]::bigint[], 0::bigint";

impl Db<'_> {
    /// Returns the statements that assign numbers, for the same round trip as a statement that appends this
    /// many changes. The store's own transactions assign numbers last. A host's transaction may stay open for
    /// long and would block all other numbering, so it leaves that to others.
    pub(in super::super) fn numbering(&mut self, appended: usize) -> [Statement; 2] {
        self.unnumbered = match self.numbers {
            true => 0,
            false => self.unnumbered.saturating_add(appended),
        };
        match self.numbers {
            true => [ask!(TRY), ask!(NUMBER, clamp(OTHERS.saturating_add(appended)))],
            false => [ask!("SELECT"), ask!(NONE)],
        }
    }

    pub(in super::super) fn number_changes(&mut self, limit: usize) -> Outcome<usize> {
        let [_, numbered] = self.all([ask!(TRY), ask!(NUMBER, clamp(limit))])?;
        Ok(Numbered::read(&numbered)?.count)
    }
}
