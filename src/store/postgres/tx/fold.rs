//! The fold: what transactions changed is applied to the counters.

use tokio_postgres::Row;

use super::super::error::{Fault, Outcome};
use super::super::wire::ask;
use super::{Db, first, row};
use crate::store::sql::statement::statement;

/// How many deltas one fold takes: it must end within the server's limit for statements.
pub(in super::super) const MOST: i64 = 10_000;

pub(in super::super) const FOLD: &str = statement!("fold.sql");
/// [`FOLD`] of a few deltas of lanes without limits. It returns no row if it is not for them.
pub(super) const FOLD_FEW: &str = "SELECT count, whole, damage, next_due, is_sure FROM sm._fold_few(false)";

/// Returns whether a fold took all deltas that there were.
///
/// # Errors
///
/// Damage that it found: the transaction must be rolled back.
pub(in super::super) fn is_whole(answer: &Row) -> Outcome<bool> {
    let damaged: Vec<String> = row::value(answer, 2)?;
    if !damaged.is_empty() {
        let text =
            format!("the counters do not fit what was changed ({}): restore a backup", damaged.join(", "));
        return Err(Fault::Damaged(text));
    }
    row::value(answer, 1)
}

impl Db<'_> {
    /// Folds all deltas that the transaction sees.
    pub(super) fn fold(&mut self) -> Outcome<()> {
        loop {
            let [answer] = self.at_tick(true, [ask!(FOLD, MOST)])?;
            if is_whole(first(&answer)?)? {
                break;
            }
        }
        self.reaches.set_folded();
        Ok(())
    }
}
