//! Deletes ended tasks after a while.

use super::super::error::Outcome;
use super::super::wire::{Answer, ask};
use super::{Db, clamp, first, row};
use crate::store::sql::codes::Code;
use crate::store::sql::statement::statement;
use crate::task::TaskState;
use crate::time::Timestamp;

pub(super) const FORGET_ENDED: &str = statement!("forget_ended.sql");
pub(super) const OLD_NAMES: &str = statement!("old_names.sql");
pub(super) const FORGET_NAMES: &str = statement!("forget_names.sql");

impl Db<'_> {
    pub(super) fn forget_ended(
        &mut self,
        state: TaskState,
        before: Timestamp,
        sensors_before: Timestamp,
        limit: usize,
    ) -> Outcome<usize> {
        let forget =
            ask!(FORGET_ENDED, before.as_micros(), sensors_before.as_micros(), clamp(limit), state.code());
        let [attempt, number] = self.numbering(0);
        // A host's transaction may have a snapshot in which a name seems older than it is.
        let names = if self.is_own { ask!(OLD_NAMES) } else { ask!("SELECT FALSE") };
        let [gone, _, _, old_names] = self.all([forget, attempt, number, names])?;
        self.forget_names_last(&old_names, clamp(limit))?;
        let gone = row::whole(first(&gone)?, 0)?;
        if !self.numbers {
            self.unnumbered = self.unnumbered.saturating_add(gone);
        }
        Ok(gone)
    }

    /// Deletes names before the transaction commits, if there are old ones. A transaction that uses one of
    /// them waits for this one, so this one must not wait for anything.
    pub(super) fn forget_names_last(&mut self, old_names: &Answer, most: i64) -> Outcome<()> {
        if row::value(first(old_names)?, 0)? {
            self.old_names = self.old_names.max(most);
        }
        Ok(())
    }
}
