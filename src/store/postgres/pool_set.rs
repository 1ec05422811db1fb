//! A few pools in two words.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;

use crate::id::PoolName;

/// None, one or two pools. More than two count as all pools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum PoolSet {
    #[default]
    None,
    One(PoolNumber),
    /// The lesser one first.
    Two(PoolNumber, PoolNumber),
    All,
}

/// Identifies a pool in every process. Two given pools collide with a probability of 1 in 2^64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PoolNumber(pub(super) u64);

impl PoolNumber {
    pub(super) fn of(pool: &PoolName) -> Self {
        // Processes of several builds compare numbers, so the hash has no seed.
        let mut hasher = SipHasher24::new();
        hasher.write(pool.as_str().as_bytes());
        Self(hasher.finish())
    }
}

impl PoolSet {
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            _ => other.numbers().fold(self, Self::with),
        }
    }

    fn with(self, number: PoolNumber) -> Self {
        match self {
            Self::None => Self::One(number),
            _ if self.numbers().any(|known| known == number) => self,
            Self::One(known) => Self::Two(known.min(number), known.max(number)),
            Self::Two(..) | Self::All => Self::All,
        }
    }

    /// Returns its pools, or nothing if it means all pools.
    pub(super) fn numbers(self) -> impl Iterator<Item = PoolNumber> {
        let (first, second) = match self {
            Self::None | Self::All => (None, None),
            Self::One(only) => (Some(only), None),
            Self::Two(first, second) => (Some(first), Some(second)),
        };
        first.into_iter().chain(second)
    }

    pub(super) fn has(self, number: PoolNumber) -> bool {
        self == Self::All || self.numbers().any(|known| known == number)
    }

    /// Returns true if each of its pools is known.
    pub(super) fn is_within(self, known: impl Fn(PoolNumber) -> bool) -> bool {
        self != Self::All && self.numbers().all(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_two_pools_are_all() {
        let [a, b, c] = [1, 2, 3].map(|number| PoolSet::One(PoolNumber(number)));
        assert_eq!(b.and(a), PoolSet::Two(PoolNumber(1), PoolNumber(2)));
        assert_eq!((a.and(a), a.and(PoolSet::None), PoolSet::None.and(a)), (a, a, a));
        assert_eq!(a.and(b).and(b.and(a)), a.and(b));
        assert_eq!((a.and(b).and(c), a.and(PoolSet::All)), (PoolSet::All, PoolSet::All));
        let is_first = |number| number == PoolNumber(1);
        assert_eq!(
            [PoolSet::None, a, b, a.and(b), PoolSet::All].map(|set| set.is_within(is_first)),
            [true, true, false, false, false]
        );
    }
}
