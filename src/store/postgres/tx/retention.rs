//! Tasks that ended are kept for a while.

use super::super::error::Outcome;
use super::super::wire::ask;
use super::sensor::numbers;
use super::{Db, clamp, first, row, turn};
use crate::store::sql::statement::statement;
use crate::time::Timestamp;

pub(super) const FORGET_ENDED: &str = statement!("forget_ended.sql");

impl Db<'_> {
    pub(super) fn forget_ended(
        &mut self,
        before: Timestamp,
        sensors_before: Timestamp,
        limit: usize,
    ) -> Outcome<usize> {
        let forget = ask!(FORGET_ENDED, before.as_micros(), sensors_before.as_micros(), clamp(limit));
        let [attempt, number] = numbers::number(limit);
        let turns = ask!(turn::FORGET, clamp(limit));
        let [gone, _, _, _] = self.all([forget, attempt, number, turns])?;
        row::whole(first(&gone)?, 0)
    }
}
