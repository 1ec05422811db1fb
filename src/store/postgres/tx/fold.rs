//! The fold applies the deltas that transactions appended to the counters.

use tokio_postgres::Row;

use super::super::error::{Fault, Outcome};
use super::super::wire::{Statement, ask};
use super::{Db, Digest, first, row};
use crate::store::sql::statement::statement;

/// How many deltas one fold takes. It must end within the server's limit for statements.
pub(in super::super) const MOST: i64 = 10_000;

pub(in super::super) const FOLD: &str = statement!("fold.sql");
/// [`FOLD`] for a few deltas of lanes without limits. It returns no row if there are others.
pub(super) const FOLD_FEW: &str =
    "SELECT count, whole, damage, next_due, is_sure FROM sm._fold_few(false, NULL) WHERE count IS NOT NULL";

/// Files what changed. See `lane_order` in the schema.
pub(super) const FILE: &str = "SELECT sm._file($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[])";

/// What a fold changed, if lanes are filed.
#[derive(Debug, Default)]
pub(in super::super) struct Folded {
    lanes: Vec<Digest>,
    pools: Vec<String>,
    keys: Vec<String>,
    /// The shares, with one array per column: pool and name.
    shares: [Vec<String>; 2],
}

impl Folded {
    /// Reads it from the columns after those of every fold. Returns `None` if lanes are not filed.
    pub(in super::super) fn read(answer: &Row) -> Outcome<Option<Self>> {
        let Some(lanes) = row::value(answer, 3)? else { return Ok(None) };
        let shares = [row::value(answer, 7)?, row::value(answer, 8)?];
        Ok(Some(Self { lanes, pools: row::value(answer, 4)?, keys: row::value(answer, 5)?, shares }))
    }

    /// Files it.
    pub(in super::super) fn file(self) -> Statement {
        let [of, shares] = self.shares;
        ask!(FILE, self.lanes, self.pools, self.keys, of, shares)
    }
}

/// Returns how many lanes there were after a fold that created some. It counts only up to the given limit.
pub(super) fn lanes(answer: &Row) -> Outcome<usize> {
    let lanes: Option<i64> = row::value(answer, 6)?;
    Ok(lanes.and_then(|lanes| usize::try_from(lanes).ok()).unwrap_or(0))
}

/// Returns whether a fold took all deltas.
///
/// # Errors
///
/// Returns damage that the fold found: the transaction must be rolled back.
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
            let [answer] = self.at_tick(true, [ask!(FOLD, MOST, 0)])?;
            let answer = first(&answer)?;
            let is_whole = is_whole(answer)?;
            let changed = Folded::read(answer)?;
            self.reaches.files_lanes = changed.is_some();
            if let Some(changed) = changed {
                self.one(changed.file())?;
            }
            if is_whole {
                break;
            }
        }
        self.reaches.set_folded();
        Ok(())
    }
}
