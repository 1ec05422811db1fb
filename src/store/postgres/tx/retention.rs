//! Tasks that ended are kept for a while.

use super::super::error::Outcome;
use super::super::wire::ask;
use super::{Db, clamp, first, row};
use crate::store::sql::statement::statement;
use crate::time::Timestamp;

pub(super) const FORGET_ENDED: &str = statement!("forget_ended.sql");
pub(super) const FORGET_NAMES: &str = statement!("forget_names.sql");

impl Db<'_> {
    pub(super) fn forget_ended(
        &mut self,
        before: Timestamp,
        sensors_before: Timestamp,
        limit: usize,
    ) -> Outcome<usize> {
        let forget = ask!(FORGET_ENDED, before.as_micros(), sensors_before.as_micros(), clamp(limit));
        let [attempt, number] = self.numbering(0);
        // A host's transaction may have a view in which a name is older than it is.
        let names = if self.is_own { ask!(FORGET_NAMES, clamp(limit)) } else { ask!("SELECT") };
        let [gone, _, _, _] = self.all([forget, attempt, number, names])?;
        let gone = row::whole(first(&gone)?, 0)?;
        if !self.numbers {
            self.unnumbered = self.unnumbered.saturating_add(gone);
        }
        Ok(gone)
    }
}
