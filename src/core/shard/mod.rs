//! How sensors are split among pokers: fingerprints become shard codes, and each shard is a range of codes.
//!
//! A shard [`code`] is the fingerprint modulo an upper limit (AIP-17: `shard_code_upper_limit`, 10,000).
//! [`range`] splits the codes `[0, limit)` into n half-open ranges whose lengths differ by at most one, so
//! every code is in exactly one range. These are the ranges of AIP-17's smart sensors. Equal sensors have
//! equal codes, so they share one range, and its holder pokes once for all of them.
//!
//! A host sets two numbers. [`Poker::shards`](crate::service::Poker::shards) is the number of ranges.
//! [`Poker::shard_codes`](crate::service::Poker::shard_codes) is the limit. Pokers lease the ranges, so when
//! a poker joins or leaves, only its ranges change hands. A different limit changes nearly all codes. Codes
//! are computed from the stored fingerprints; a stored code is only a cache.

pub(crate) mod balance;

use std::num::NonZeroU32;
use std::ops::Range;

use crate::fingerprint::Fingerprint;

/// The default number of shard codes: 10,000, as in AIP-17.
pub const DEFAULT_CODES: NonZeroU32 = NonZeroU32::MIN.saturating_add(9_999);

/// Returns the shard code of this fingerprint for this number of codes.
///
/// The code is computed on the unsigned 64 bits. In SQL, the remainder of the stored signed integer could be
/// negative.
///
/// # Examples
///
/// ```
/// use stationmaster::fingerprint::Fingerprint;
/// use stationmaster::shard::{DEFAULT_CODES, code};
///
/// assert_eq!(DEFAULT_CODES.get(), 10_000);
/// assert_eq!(code(Fingerprint(123_456), DEFAULT_CODES), 3_456);
/// ```
pub const fn code(fingerprint: Fingerprint, codes: NonZeroU32) -> u32 {
    (fingerprint.0 % codes.get() as u64) as u32
}

/// Returns the `index`-th of `n` ranges, counted from 0. Its codes are those from `index * limit / n` up to,
/// but not including, `(index + 1) * limit / n`.
///
/// The lengths of the ranges differ by at most one. If `n` exceeds the limit, some ranges are empty. Every
/// range from index `n` on is empty too.
///
/// # Examples
///
/// ```
/// use std::num::NonZeroU32;
/// use stationmaster::shard::{DEFAULT_CODES, range};
///
/// let three = NonZeroU32::new(3).unwrap();
/// let cuts = [0, 1, 2, 3].map(|index| range(DEFAULT_CODES, three, index).start);
/// assert_eq!(cuts, [0, 3_334, 6_667, 10_000]);
/// ```
pub fn range(limit: NonZeroU32, n: NonZeroU32, index: u32) -> Range<u32> {
    let cut = |index: u64| (index * u64::from(limit.get())).div_ceil(u64::from(n.get()));
    let cut = |index: u64| cut(index.min(u64::from(n.get()))) as u32;
    cut(u64::from(index))..cut(u64::from(index) + 1)
}

/// Returns the index of the range that contains this code.
pub(crate) fn of(code: u32, limit: NonZeroU32, n: NonZeroU32) -> u32 {
    (u64::from(code) * u64::from(n.get()) / u64::from(limit.get())) as u32
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
        fn a_code_is_in_the_range_that_is_said(limit in numbers(), n in numbers(), code in any::<u32>()) {
            let code = code % limit.get();
            prop_assert!(range(limit, n, of(code, limit, n)).contains(&code));
        }

        #[test]
        fn ranges_cover_every_code_once_and_evenly(limit in numbers(), n in 1u32..3_000) {
            let n = NonZeroU32::new(n).unwrap();
            let ranges: Vec<_> = (0..n.get()).map(|index| range(limit, n, index)).collect();
            prop_assert_eq!(ranges.len() as u32, n.get());
            prop_assert_eq!(ranges[0].start, 0);
            prop_assert_eq!(ranges[ranges.len() - 1].end, limit.get());
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            let lengths = ranges.iter().map(|range| range.len());
            let (shortest, longest) = (lengths.clone().min().unwrap(), lengths.max().unwrap());
            prop_assert!(longest - shortest <= 1);
        }
    }

    #[test]
    fn ranges_are_those_of_smart_sensors() {
        // AIP-17 cuts at i * limit / n in real numbers. A code belongs to a range if it is at or above the
        // range's start.
        for (limit, n) in [(10_000, 3), (10_000, 7), (10, 4), (3, 5)] {
            let (limit, count) = (NonZeroU32::new(limit).unwrap(), NonZeroU32::new(n).unwrap());
            for index in 0..n as usize {
                let range = range(limit, count, index as u32);
                for code in 0..limit.get() {
                    let cut = |index: usize| index as f64 * f64::from(limit.get()) / f64::from(n);
                    let inside = cut(index) <= f64::from(code) && f64::from(code) < cut(index + 1);
                    assert_eq!(range.contains(&code), inside, "{limit:?} {n} {index} {code}");
                }
            }
        }
    }

    #[test]
    fn indices_beyond_the_last_are_empty() {
        let (limit, n) = (DEFAULT_CODES, NonZeroU32::new(3).unwrap());
        assert!(range(limit, n, 3).is_empty());
        assert!(range(limit, n, u32::MAX).is_empty());
        assert_eq!(range(limit, n, 0), 0..3_334);
    }
}
