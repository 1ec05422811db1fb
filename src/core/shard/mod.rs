//! Who polls what: fingerprints become shard codes, and each shard is a range of codes.
//!
//! A [`ShardCode`] is the fingerprint modulo an upper limit (AIP-17: `shard_code_upper_limit`, 10,000).
//! [`range`] cuts the codes `[0, limit)` into n half-open ranges whose lengths differ by at most one, so
//! every code is in exactly one of them. They are the ranges of AIP-17's smart sensors. Equal sensors have
//! equal codes, and so one range, whose holder pokes once for all of them.
//!
//! A host sets two numbers: [`PokerOptions::shards`](crate::service::PokerOptions::shards), how many ranges
//! there are, and [`PokerOptions::shard_codes`](crate::service::PokerOptions::shard_codes), the limit. Pokers
//! lease the ranges, so only the ranges of a poker that comes or goes change hands. With another limit nearly
//! all codes change: they are computed from the stored fingerprints, of which a code is only a cache.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;

/// How many shard codes there are; at least 1.
///
/// # Examples
///
/// ```
/// use stationmaster::fingerprint::Fingerprint;
/// use stationmaster::shard::ShardLimit;
///
/// let limit = ShardLimit::default();
/// assert_eq!(limit.get(), 10_000);
/// assert_eq!(limit.code(Fingerprint(123_456)).0, 3_456);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShardLimit(NonZeroU32);

impl ShardLimit {
    /// This many shard codes; none if zero.
    pub const fn new(limit: u32) -> Option<Self> {
        match NonZeroU32::new(limit) {
            Some(limit) => Some(Self(limit)),
            None => None,
        }
    }

    /// The number of codes.
    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// The code of this fingerprint. Computed on its 64 bits without sign: in SQL, on the signed integer that
    /// is stored, a negative remainder would come out.
    pub const fn code(self, fingerprint: Fingerprint) -> ShardCode {
        ShardCode((fingerprint.0 % self.get() as u64) as u32)
    }
}

/// 10,000 codes, as in AIP-17.
impl Default for ShardLimit {
    fn default() -> Self {
        Self(NonZeroU32::MIN.saturating_add(9_999))
    }
}

impl From<NonZeroU32> for ShardLimit {
    fn from(limit: NonZeroU32) -> Self {
        Self(limit)
    }
}

/// A fingerprint modulo a [`ShardLimit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ShardCode(pub u32);

/// The codes from `start` up to, but not including, `end`. Empty if they are equal.
///
/// # Examples
///
/// ```
/// use stationmaster::shard::{ShardCode, ShardRange};
///
/// let range = ShardRange::new(2_000, 4_000).unwrap();
/// assert!(range.contains(ShardCode(2_000)) && !range.contains(ShardCode(4_000)));
/// assert_eq!(ShardRange::new(3, 2), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(u32, u32)", into = "(u32, u32)")]
pub struct ShardRange {
    start: u32,
    end: u32,
}

impl ShardRange {
    /// The range of these codes; none if it would end before it starts.
    pub const fn new(start: u32, end: u32) -> Option<Self> {
        if start <= end { Some(Self { start, end }) } else { None }
    }

    /// The first code.
    pub const fn start(self) -> u32 {
        self.start
    }

    /// The first code after the range.
    pub const fn end(self) -> u32 {
        self.end
    }

    /// How many codes there are.
    pub const fn len(self) -> u32 {
        self.end - self.start
    }

    /// True if there are no codes.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// True if this code is in the range.
    pub const fn contains(self, code: ShardCode) -> bool {
        self.start <= code.0 && code.0 < self.end
    }
}

impl From<ShardRange> for (u32, u32) {
    fn from(range: ShardRange) -> Self {
        (range.start, range.end)
    }
}

impl TryFrom<(u32, u32)> for ShardRange {
    type Error = &'static str;
    fn try_from((start, end): (u32, u32)) -> Result<Self, Self::Error> {
        Self::new(start, end).ok_or("a shard range must not end before it starts")
    }
}

/// Returns the `index`-th of `n` ranges, counted from 0: the codes from `index * limit / n` up to below
/// `(index + 1) * limit / n`.
///
/// The lengths of the ranges differ by at most one. Where `n` exceeds the limit, some are empty; so is every
/// range from `n` on.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU32;
/// use stationmaster::shard::{range, ShardLimit};
///
/// let three = NonZeroU32::new(3).unwrap();
/// let cuts = [0, 1, 2, 3].map(|index| range(ShardLimit::default(), three, index).start());
/// assert_eq!(cuts, [0, 3_334, 6_667, 10_000]);
/// ```
pub fn range(limit: ShardLimit, n: NonZeroU32, index: u32) -> ShardRange {
    let cut = |index: u64| (index * u64::from(limit.get())).div_ceil(u64::from(n.get()));
    let cut = |index: u64| cut(index.min(u64::from(n.get()))) as u32;
    ShardRange { start: cut(u64::from(index)), end: cut(u64::from(index) + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers() -> impl Strategy<Value = NonZeroU32> {
        prop_oneof![1u32..50, 1u32..20_000, Just(u32::MAX)].prop_map(|n| NonZeroU32::new(n).unwrap())
    }

    proptest! {
        #[test]
        fn ranges_cover_every_code_once_and_evenly(limit in numbers(), n in 1u32..3_000) {
            let (limit, n) = (ShardLimit::from(limit), NonZeroU32::new(n).unwrap());
            let ranges: Vec<_> = (0..n.get()).map(|index| range(limit, n, index)).collect();
            prop_assert_eq!(ranges.len() as u32, n.get());
            prop_assert_eq!(ranges[0].start(), 0);
            prop_assert_eq!(ranges[ranges.len() - 1].end(), limit.get());
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end() == pair[1].start()));
            let lengths = ranges.iter().map(|range| range.len());
            let (shortest, longest) = (lengths.clone().min().unwrap(), lengths.max().unwrap());
            prop_assert!(longest - shortest <= 1);
        }
    }

    #[test]
    fn ranges_are_those_of_smart_sensors() {
        // AIP-17 cuts at i * limit / n in real numbers; a code belongs to the range it is not below the start
        // of.
        for (limit, n) in [(10_000, 3), (10_000, 7), (10, 4), (3, 5)] {
            let (limit, count) = (ShardLimit::new(limit).unwrap(), NonZeroU32::new(n).unwrap());
            for index in 0..n as usize {
                let range = range(limit, count, index as u32);
                for code in 0..limit.get() {
                    let cut = |index: usize| index as f64 * f64::from(limit.get()) / f64::from(n);
                    let inside = cut(index) <= f64::from(code) && f64::from(code) < cut(index + 1);
                    assert_eq!(range.contains(ShardCode(code)), inside, "{limit:?} {n} {index} {code}");
                }
            }
        }
    }

    #[test]
    fn indices_beyond_the_last_are_empty() {
        let (limit, n) = (ShardLimit::default(), NonZeroU32::new(3).unwrap());
        assert!(range(limit, n, 3).is_empty());
        assert!(range(limit, n, u32::MAX).is_empty());
        assert_eq!(serde_json::to_string(&range(limit, n, 0)).unwrap(), "[0,3334]");
        assert!(serde_json::from_str::<ShardRange>("[2,1]").is_err());
        assert!(serde_json::from_str::<ShardLimit>("0").is_err());
    }
}
