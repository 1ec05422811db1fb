//! The slots that shares hold of pools, and the stamps of their turns.

use std::collections::BTreeSet;

use super::super::error::Outcome;
use super::Db;
use super::turns::used;
use crate::admission::{Lane, LaneKey, ShareUse};
use crate::id::{LimitKey, PoolName};

/// Adds slots and lanes. Stamps a new share, and one that gives back its last slot.
pub(super) const COUNT_SHARE: &str = "INSERT INTO sm_share_use (pool, share, held, lanes, stamp) \
     VALUES (?1, ?2, ?3, ?4, 2 * (SELECT value FROM sm_counter WHERE name = 'grants')) \
     ON CONFLICT (pool, share) DO UPDATE SET changed = 1, held = held + excluded.held, lanes = lanes + excluded.lanes, \
     stamp = iif(held > 0 AND held + excluded.held = 0, 1 + 2 * (SELECT value FROM sm_counter WHERE name = 'grants'), stamp)";
pub(super) const STAMP: &str = "INSERT INTO sm_share_use (pool, share, stamp, dither) VALUES (?1, ?2, ?3, ?4) \
     ON CONFLICT (pool, share) DO UPDATE SET changed = 1, stamp = excluded.stamp, dither = excluded.dither";
pub(super) const SHARE: &str =
    "SELECT pool, share, held, stamp, dither FROM sm_share_use WHERE pool = ?1 AND share = ?2";
pub(super) const FORGET_SHARES: &str =
    "DELETE FROM sm_share_use INDEXED BY sm_share_use_unused WHERE held = 0 AND lanes = 0";
/// For audits.
pub(super) const SHARES: &str = "SELECT pool, share, held, lanes FROM sm_share_use";

impl Db<'_> {
    /// Counts slots of a pool that the tasks of a share took or gave back, and lanes whose own pool it is.
    pub(super) fn count_share(
        &self,
        pool: &PoolName,
        share: &LimitKey,
        slots: i64,
        lanes: i64,
    ) -> Outcome<()> {
        self.prepare(COUNT_SHARE)?.execute((pool.as_str(), share.as_str(), slots, lanes))?;
        Ok(())
    }

    /// Counts a lane of a share that now has tasks, or no longer has any.
    pub(super) fn count_lane_of_share(&self, lane: &LaneKey, more: i64) -> Outcome<()> {
        match &lane.share {
            Some(share) => self.count_share(&lane.pool, share, 0, more),
            None => Ok(()),
        }
    }

    /// Stamps the shares that had turns.
    pub(super) fn stamp_shares(&self, shares: &[ShareUse]) -> Outcome<()> {
        let Some(last) = shares.iter().map(ShareUse::grant).max() else { return Ok(()) };
        let mut stamp = self.prepare(STAMP)?;
        for used in shares {
            stamp.execute((used.pool.as_str(), used.share.as_str(), used.stamp, used.dither))?;
        }
        if last > self.counter("grants")? {
            self.set_counter("grants", last)?;
        }
        Ok(())
    }

    /// Deletes shares with neither slots nor lanes.
    pub(super) fn forget_unused_shares(&self) -> Outcome<()> {
        self.prepare(FORGET_SHARES)?.execute([])?;
        Ok(())
    }

    /// Returns the rows of these lanes' shares, and the number of grants to tasks of shares.
    pub(super) fn shares_of(&self, lanes: &[Lane]) -> Outcome<(Vec<ShareUse>, i64)> {
        let shared = lanes.iter().filter_map(|lane| Some((&lane.key.pool, lane.key.share.as_ref()?)));
        let pairs: BTreeSet<(&PoolName, &LimitKey)> = shared.collect();
        // A store without shares makes no query.
        if pairs.is_empty() { Ok((Vec::new(), 0)) } else { self.shares(pairs) }
    }

    pub(super) fn shares<'k>(
        &self,
        pairs: impl IntoIterator<Item = (&'k PoolName, &'k LimitKey)>,
    ) -> Outcome<(Vec<ShareUse>, i64)> {
        let mut statement = self.prepare(SHARE)?;
        let mut found = Vec::new();
        for (pool, share) in pairs {
            found.extend(statement.query((pool.as_str(), share.as_str()))?.next()?.map(used).transpose()?);
        }
        Ok((found, self.counter("grants")?))
    }
}
