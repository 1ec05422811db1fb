//! What shares hold of pools, and when they had their turns.

use std::collections::{BTreeSet, HashMap};

use super::state::{Filing, Write, replace_named};
use super::undo::Transaction;
use crate::admission::{Lane, LaneKey, Pair, ShareTurn, ShareUse};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ShareRow {
    pub(super) used: ShareUse,
    /// The number of the share's lanes that name this pool as their own.
    pub(super) lanes: i64,
}

impl ShareRow {
    fn is_unused(&self) -> bool {
        (self.used.held, self.lanes) == (0, 0)
    }
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct Shares {
    rows: HashMap<Pair, ShareRow>,
    /// The shares without slots and lanes. They are kept until the next tick.
    unused: BTreeSet<Pair>,
}

impl Shares {
    pub(super) fn swap(&mut self, pair: &Pair, row: Option<ShareRow>) -> Option<ShareRow> {
        let is_unused = row.as_ref().is_some_and(ShareRow::is_unused);
        let filing = if is_unused { Filing::In } else { Filing::Out };
        filing.entry(&mut self.unused, pair.clone());
        replace_named(&mut self.rows, pair, row)
    }

    /// Returns the turn of a share with this weight, after this many grants.
    pub(super) fn turn(&self, pair: &Pair, grants: i64, weight: u32) -> ShareTurn {
        let newcomer = || ShareUse::newcomer(pair.0.clone(), pair.1.clone(), grants).turn(weight);
        self.rows.get(pair).map_or_else(newcomer, |row| row.used.turn(weight))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&Pair, &ShareRow)> {
        self.rows.iter()
    }
}

impl Transaction<'_> {
    /// Changes the row of a share. A missing row begins like that of a new share.
    pub(super) fn change_share(&mut self, pair: Pair, change: impl FnOnce(&mut ShareRow, i64)) {
        let grants = self.state.last.grants;
        let new = || {
            let used = ShareUse::newcomer(pair.0.clone(), pair.1.clone(), grants);
            ShareRow { used, lanes: 0 }
        };
        let mut row = self.state.shares.rows.get(&pair).cloned().unwrap_or_else(new);
        change(&mut row, grants);
        self.write(Write::Share(pair, Some(Box::new(row))));
    }

    /// Counts a lane that was created or removed.
    pub(super) fn count_lane_of_share(&mut self, lane: &LaneKey, more: i64) {
        if let Some(share) = &lane.share {
            self.change_share((lane.pool.clone(), share.clone()), |row, _| row.lanes += more);
        }
    }

    /// Stores the stamps of the shares that had turns.
    pub(super) fn stamp_shares(&mut self, shares: &[ShareUse]) {
        for stamped in shares {
            let pair = (stamped.pool.clone(), stamped.share.clone());
            self.change_share(pair, |row, _| {
                (row.used.stamp, row.used.dither) = (stamped.stamp, stamped.dither);
            });
        }
        let last = shares.iter().map(ShareUse::grant).max().unwrap_or(0);
        self.state.last.grants = self.state.last.grants.max(last);
    }

    /// Forgets shares that have neither slots nor lanes.
    pub(super) fn forget_unused_shares(&mut self) {
        for pair in self.state.shares.unused.clone() {
            self.write(Write::Share(pair, None));
        }
    }

    /// Returns what is stored about the shares of these lanes.
    pub(super) fn shares_of(&self, lanes: &[Lane]) -> Vec<ShareUse> {
        let shared = lanes.iter().filter_map(|lane| Some((lane.key.pool.clone(), lane.key.share.clone()?)));
        self.known_shares(&shared.collect())
    }

    pub(super) fn known_shares(&self, pairs: &BTreeSet<Pair>) -> Vec<ShareUse> {
        let rows = &self.state.shares.rows;
        pairs.iter().filter_map(|pair| rows.get(pair)).map(|row| row.used.clone()).collect()
    }
}

#[cfg(test)]
impl Shares {
    pub(super) fn rebuilt(&self) -> Self {
        let mut shares = Self::default();
        for (pair, row) in &self.rows {
            shares.swap(pair, Some(row.clone()));
        }
        shares
    }
}
