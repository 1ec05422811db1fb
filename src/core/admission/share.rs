//! Shares: what each share holds of a pool, and which has the next turn.

use serde::{Deserialize, Serialize};

use crate::id::{LimitKey, PoolName};

/// The largest weight of a share.
pub(crate) const MAX_WEIGHT: u32 = 1_000_000;

/// The units of a dither in one slot: a dither is a fraction of a slot.
const SLOT: i64 = 1 << 20;
/// 2^20 divided by the golden ratio: consecutive dithers are spread evenly over one slot.
const STEP: i64 = 648_056;

/// What the tasks of a share hold of a pool, and when the share last had a turn there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ShareUse {
    /// The pool.
    pub pool: PoolName,
    /// The key of the share.
    pub share: LimitKey,
    /// The slots of the pool that its tasks hold, including slots held while sensing.
    pub held: i64,
    /// Twice the number of the grant that last stamped it, plus one if it has given back its last slot since
    /// then.
    pub stamp: i64,
    /// The fraction of a slot, in units of 2^-20, that is added to what it holds.
    pub dither: i64,
    /// Its weight. Stores leave it at 1; [`ReadTx::shares`](crate::store::ReadTx::shares) sets it.
    #[serde(default = "one")]
    pub weight: u32,
    /// The number of its ready tasks whose own pool is this one. Stores leave it at 0; `shares` sets it too.
    #[serde(default)]
    pub waiting: u64,
}

fn one() -> u32 {
    1
}

impl ShareUse {
    /// Creates the entry of a share from a store's data.
    pub fn new(pool: PoolName, share: LimitKey, held: i64, stamp: i64, dither: i64) -> Self {
        Self { pool, share, held, stamp, dither, weight: 1, waiting: 0 }
    }

    /// Creates the entry of a share that arrives after this many grants to tasks of any share.
    pub fn newcomer(pool: PoolName, share: LimitKey, grants: i64) -> Self {
        Self::new(pool, share, 0, grants.saturating_mul(2), 0)
    }

    /// Returns how many slots of its pool the share should hold: its part, by weight, of all slots that the
    /// `shares` with ready tasks hold there. Priorities are ignored. Returns `None` if the share has no ready
    /// task.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::store::contract::ShareUse;
    /// let mut shares = ["a", "b"].map(|key| ShareUse::new("db".try_into().unwrap(), key.try_into().unwrap(), 3, 0, 0));
    /// shares[0].waiting = 9;
    /// assert_eq!((shares[0].part(&shares), shares[1].part(&shares)), (Some(3.0), None));
    /// shares[1].waiting = 1;
    /// shares[1].weight = 2;
    /// assert_eq!((shares[0].part(&shares), shares[1].part(&shares)), (Some(2.0), Some(4.0)));
    /// ```
    pub fn part(&self, shares: &[Self]) -> Option<f64> {
        let rivals = shares.iter().filter(|other| other.pool == self.pool && other.waiting > 0);
        let (held, weight) = rivals.fold((0.0, 0.0), |(held, weight), other| {
            (held + other.held as f64, weight + f64::from(other.weight))
        });
        (self.waiting > 0).then(|| held * f64::from(self.weight) / weight.max(1.0))
    }

    /// Adds slots that its tasks took or gave back, after this many grants. A share that has none left goes
    /// behind those that have waited since then.
    pub(crate) fn hold(&mut self, more: i64, grants: i64) {
        let held = self.held.saturating_add(more);
        if self.held > 0 && held == 0 {
            self.stamp = grants.saturating_mul(2).saturating_add(1);
        }
        self.held = held;
    }

    /// Stamps it with this grant to one of its tasks.
    pub(crate) fn start(&mut self, grant: i64) {
        self.stamp = grant.saturating_mul(2);
        self.dither = (self.dither + STEP) % SLOT;
    }

    /// Returns the number of the grant that last stamped it.
    pub(crate) fn grant(&self) -> i64 {
        self.stamp / 2
    }

    /// Returns its turn; the smallest is next.
    pub(crate) fn turn(&self, weight: u32) -> ShareTurn {
        let holds = self.held > 0;
        let parts = self.held.saturating_mul(SLOT).saturating_add(self.dither) / i64::from(weight.max(1));
        ShareTurn { holds, parts: if holds { parts } else { 0 }, stamp: self.stamp }
    }
}

/// A share's turn among those of one pool and level. Shares that hold nothing go first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ShareTurn {
    pub(crate) holds: bool,
    /// What it holds, in fractions of a slot per unit of weight.
    pub(crate) parts: i64,
    pub(crate) stamp: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(held: i64, dither: i64) -> ShareUse {
        ShareUse::new(PoolName::default_pool(), LimitKey::new("a").unwrap(), held, 0, dither)
    }

    /// The steps of the example in docs/admission.md.
    #[test]
    fn turns_of_the_example() {
        let mut a = share(0, 0);
        assert!(a.turn(2) < share(1, 0).turn(1_000_000), "who holds nothing goes first");
        a.hold(1, 0);
        a.start(1);
        assert_eq!((a.held, a.stamp, a.dither), (1, 2, 648_056));
        assert_eq!((a.turn(2).parts, a.turn(1).parts), (848_316, 1_696_632));
        a.hold(1, 3);
        a.start(4);
        assert_eq!((a.dither, a.turn(2).parts), (247_536, 1_172_344));
    }

    #[test]
    fn who_gave_back_the_last_slot_goes_behind_the_newcomers_of_then() {
        let mut a = share(3, 5);
        a.hold(-2, 7);
        assert_eq!((a.held, a.stamp), (1, 0));
        a.hold(-1, 7);
        assert_eq!((a.held, a.stamp, a.dither, a.grant()), (0, 15, 5, 7));
        let newcomer = ShareUse::newcomer(PoolName::default_pool(), LimitKey::new("b").unwrap(), 7);
        assert!(newcomer.turn(1) < a.turn(1));
        assert!(a.turn(1) < ShareUse::newcomer(a.pool.clone(), a.share.clone(), 8).turn(1));
    }

    #[test]
    fn numbers_saturate() {
        let mut a = share(i64::MAX, SLOT - 1);
        assert_eq!(a.turn(0).parts, i64::MAX);
        a.hold(1, 0);
        a.start(i64::MAX);
        assert_eq!((a.held, a.stamp), (i64::MAX, i64::MAX));
    }
}
