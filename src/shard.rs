//! Who polls what: fingerprints become shard codes, and each worker owns a range of codes.
//!
//! A [`ShardCode`] is the fingerprint modulo an upper limit (AIP-17: `shard_code_upper_limit`, 10,000). [`split`] cuts the
//! codes `[0, limit)` into n half-open ranges whose lengths differ by at most one, so that every code has exactly one
//! owner, for every limit and every n; they are the ranges of AIP-17's smart sensors. Equal sensors have equal
//! codes, and so one owner, which is what lets it poke once for all of them.
//!
//! # When numbers change
//!
//! Nothing is stranded: [`owner`] answers for every code, also one that was computed with a larger limit.
//!
//! * **Another n.** Ranges move at their edges. From n to n + 1 workers just half of all codes get an owner with another
//!   index; see [`moved`] for any two numbers. Where the holder of a range may change its index, [`heirs`] pairs the new
//!   ranges with the old ones so that as few codes move as can be for ranges of one piece and even length: from
//!   n to n + 1 at most a quarter and a code per range. Where that is too much, make a fixed number of ranges, several
//!   times the number of workers, and let workers lease them: then only ranges of workers that come or go change hands.
//! * **Another limit.** Codes are computed again from the fingerprints that are stored, and nearly all change: for n workers
//!   about (n - 1)/n of the sensors get another owner. A code is a cache of the fingerprint, never the only thing kept.

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

    const fn overlap(self, other: Self) -> u32 {
        let start = if self.start > other.start { self.start } else { other.start };
        let end = if self.end < other.end { self.end } else { other.end };
        end.saturating_sub(start)
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

/// Cuts the codes `[0, limit)` into `n` ranges, in order.
///
/// Every code is in exactly one of them, and their lengths differ by at most one; where `n` exceeds the limit, some are
/// empty. Range `i` has the codes from `i * limit / n` up to below `(i + 1) * limit / n`.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU32;
/// use stationmaster::shard::{split, ShardLimit};
///
/// let five = NonZeroU32::new(5).unwrap();
/// let ranges: Vec<_> = split(ShardLimit::default(), five).map(|range| (range.start(), range.end())).collect();
/// assert_eq!(ranges, [(0, 2000), (2000, 4000), (4000, 6000), (6000, 8000), (8000, 10_000)]);
/// ```
pub fn split(
    limit: ShardLimit,
    n: NonZeroU32,
) -> impl DoubleEndedIterator<Item = ShardRange> + ExactSizeIterator + Clone {
    // `u32` ranges know their exact length only as far as `usize` reaches: `..n` is one of those that implement it.
    (0..n.get()).map(move |index| range(limit, n, index))
}

/// The range with this index, counted from 0; empty if there is none.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU32;
/// use stationmaster::shard::{range, ShardLimit};
///
/// let three = NonZeroU32::new(3).unwrap();
/// assert_eq!(range(ShardLimit::default(), three, 1).start(), 3_334);
/// ```
pub fn range(limit: ShardLimit, n: NonZeroU32, index: u32) -> ShardRange {
    let cut = |index: u64| (index * u64::from(limit.get())).div_ceil(u64::from(n.get()));
    let cut = |index: u64| cut(index.min(u64::from(n.get()))) as u32;
    ShardRange { start: cut(u64::from(index)), end: cut(u64::from(index) + 1) }
}

/// Which of `n` ranges has this code, counted from 0.
///
/// A code at or above the limit, left from a larger one, is taken modulo the limit: every code has an owner at all times.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU32;
/// use stationmaster::shard::{owner, ShardCode, ShardLimit};
///
/// let five = NonZeroU32::new(5).unwrap();
/// assert_eq!(owner(ShardCode(1_999), ShardLimit::default(), five), 0);
/// assert_eq!(owner(ShardCode(2_000), ShardLimit::default(), five), 1);
/// assert_eq!(owner(ShardCode(32_000), ShardLimit::default(), five), 1);
/// ```
pub fn owner(code: ShardCode, limit: ShardLimit, n: NonZeroU32) -> u32 {
    let code = u64::from(code.0 % limit.get());
    (code * u64::from(n.get()) / u64::from(limit.get())) as u32
}

/// How many codes get an owner with another index when `from` ranges become `to`.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU32;
/// use stationmaster::shard::{moved, ShardLimit};
///
/// let n = |n| NonZeroU32::new(n).unwrap();
/// assert_eq!(moved(ShardLimit::default(), n(4), n(5)), 5_000);
/// assert_eq!(moved(ShardLimit::default(), n(5), n(5)), 0);
/// ```
pub fn moved(limit: ShardLimit, from: NonZeroU32, to: NonZeroU32) -> u32 {
    let stays =
        (0..from.min(to).get()).map(|index| range(limit, from, index).overlap(range(limit, to, index)));
    limit.get() - stays.sum::<u32>()
}
