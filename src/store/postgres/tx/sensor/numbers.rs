//! The numbers of changes and events. See `migrations/0001_initial/sensors.sql`.

use std::collections::HashMap;

use super::super::super::error::Outcome;
use super::super::super::wire::{Answer, Statement, ask};
use super::super::{Db, clamp, first, row};
use crate::store::sql::statement::statement;

/// Tries the lock of numbers, which the transaction keeps to its end, and remembers in the transaction whether
/// it has it. No one waits for it.
pub(in super::super) const TRY: &str = "SELECT set_config('stationmaster.numbers', \
     pg_try_advisory_xact_lock(hashtextextended('sm.numbers', 0))::text, true)";
pub(in super::super) const NUMBER: &str = statement!("number_changes.sql");

/// How many changes, and how many events, of other transactions get their numbers along with what a
/// transaction appends.
pub(in super::super) const OTHERS: usize = 10_000;

/// The numbers that the changes of each task got, rising.
#[derive(Debug, Default)]
pub(in super::super) struct Numbered {
    changes: HashMap<i64, Vec<u64>>,
    /// How many changes, or events if these are more.
    pub(super) count: usize,
}

impl Numbered {
    /// Reads the answer of [`NUMBER`].
    pub(super) fn read(rows: &Answer) -> Outcome<Self> {
        let row = first(rows)?;
        let (tasks, numbers): (Vec<i64>, Vec<i64>) = (row::value(row, 0)?, row::value(row, 1)?);
        let mut numbered = Self { count: tasks.len().max(row::whole(row, 2)?), ..Self::default() };
        for (task, number) in tasks.into_iter().zip(numbers) {
            numbered.changes.entry(task).or_default().push(number.cast_unsigned());
        }
        Ok(numbered)
    }

    /// Returns the number of a task's change that this many others follow. 0 if it has none yet: then another
    /// transaction has the lock.
    pub(super) fn last_but(&self, task: i64, count: usize) -> u64 {
        let numbers = self.changes.get(&task).map_or(&[][..], Vec::as_slice);
        numbers.iter().rev().nth(count).copied().unwrap_or(0)
    }
}

/// What [`NUMBER`] returns if it assigns none.
const NONE: &str = "SELECT ARRAY[]::bigint[], ARRAY[]::bigint[], 0::bigint";

impl Db<'_> {
    /// Returns what follows a statement that appends this many changes, in the same round trip, if they get
    /// their numbers at once. The store's own transactions assign them last. A host's may be open for long,
    /// and would block all other numbering, so it leaves that to others.
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
