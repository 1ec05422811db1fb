//! When a poke group is poked.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::fingerprint::Fingerprint;
use crate::time;

/// The first due time after `after` of a group with this fingerprint and interval.
///
/// Due times lie on a grid of the interval, shifted by the fingerprint: every process computes the same ones, nothing
/// is stored, a restart needs no counter, and groups of equal interval are spread over it instead of falling due
/// together. Saturates at the last instant that chrono can hold. An interval below a microsecond counts as one.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::fingerprint::Fingerprint;
/// use stationmaster::sensor::next_poke;
/// use stationmaster::time::from_micros;
///
/// let due = next_poke(Fingerprint(3), Duration::from_micros(10), from_micros(20));
/// assert_eq!(due, from_micros(23));
/// assert_eq!(next_poke(Fingerprint(3), Duration::from_micros(10), due), from_micros(33));
/// ```
pub fn next_poke(fingerprint: Fingerprint, interval: Duration, after: DateTime<Utc>) -> DateTime<Utc> {
    let interval = time::duration_micros(interval).max(1);
    let phase = i64::try_from(fingerprint.0 % interval.unsigned_abs()).unwrap_or(0);
    let after = time::micros(after);
    let past = after.saturating_sub(phase).rem_euclid(interval);
    time::from_micros(after.saturating_add(interval - past))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lies_on_the_grid_and_within_one_interval(
            print: u64,
            interval in 1_i64..1_000_000_000_000,
            after in -1_000_000_000_000_000_i64..1_000_000_000_000_000,
        ) {
            let due = next_poke(
                Fingerprint(print),
                Duration::from_micros(interval.unsigned_abs()),
                time::from_micros(after),
            );
            let due = time::micros(due);
            prop_assert!(due > after && due <= after + interval);
            let phase = (print % interval.unsigned_abs()) as i64;
            prop_assert_eq!((due - phase).rem_euclid(interval), 0);
        }
    }

    #[test]
    fn saturates() {
        let last = DateTime::<Utc>::MAX_UTC;
        assert_eq!(next_poke(Fingerprint(u64::MAX), Duration::MAX, last), time::truncate(last));
    }
}
