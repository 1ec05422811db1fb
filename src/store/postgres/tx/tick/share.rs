//! What shares hold in pools, and when they had their turns.

use std::collections::BTreeSet;

use tokio_postgres::Row;

use super::super::super::error::Outcome;
use super::super::super::wire::ask;
use super::super::{Db, row};
use crate::admission::ShareUse;
use crate::id::{LimitKey, PoolName};
use crate::store::sql::statement::statement;

pub(in super::super) const FOLDED_SHARES: &str = statement!("folded_shares.sql");
pub(in super::super) const SHARES: &str = statement!("shares.sql");
pub(in super::super) const STAMP_SHARES: &str = statement!("stamp_shares.sql");

/// Reads shares as the next count would find them, and the number of grants to any share. Without rows there are
/// no shares, so that number does not matter.
pub(super) fn read(rows: &[Row]) -> Outcome<(Vec<ShareUse>, i64)> {
    let (mut shares, mut last) = (Vec::new(), 0);
    for row in rows {
        let (pool, share) = (row::name(row, 0)?, row::name(row, 1)?);
        last = row::value(row, 6)?;
        shares.push(match row::value::<Option<i64>>(row, 2)? {
            None => ShareUse::newcomer(pool, share, last),
            Some(held) => {
                let mut used = ShareUse::new(pool, share, held, row::value(row, 4)?, row::value(row, 5)?);
                used.hold(-row::value::<i64>(row, 3)?, last);
                used
            }
        });
    }
    Ok((shares, last))
}

impl Db<'_> {
    pub(in super::super) fn shares(
        &mut self,
        pairs: &[(PoolName, LimitKey)],
    ) -> Outcome<(Vec<ShareUse>, i64)> {
        let asked: BTreeSet<(&PoolName, &LimitKey)> =
            pairs.iter().map(|(pool, share)| (pool, share)).collect();
        let (mut shares, last) = read(&self.one(ask!(SHARES))?)?;
        shares.retain(|used| asked.contains(&(&used.pool, &used.share)));
        Ok((shares, last))
    }

    pub(super) fn stamp_shares(&mut self, shares: &[ShareUse]) -> Outcome<()> {
        let column = |value: fn(&ShareUse) -> i64| shares.iter().map(value).collect::<Vec<i64>>();
        self.one(ask!(
            STAMP_SHARES,
            shares.iter().map(|used| used.pool.as_str().to_owned()).collect::<Vec<_>>(),
            shares.iter().map(|used| used.share.as_str().to_owned()).collect::<Vec<_>>(),
            column(|used| used.stamp),
            column(|used| used.dither),
        ))
        .map(drop)
    }
}
