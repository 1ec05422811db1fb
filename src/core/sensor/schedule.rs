//! When a poke group is poked.

use std::time::Duration;

use super::spec::Settings;
use crate::fingerprint::Fingerprint;
use crate::time;
use crate::time::Timestamp;

/// Returns the first due time after `after` of a group with this fingerprint and interval.
///
/// Due times lie on a grid of the interval, shifted by the fingerprint. Every process computes the same due
/// times. Nothing is stored, and a restart needs no counter. Groups with equal intervals are spread over the
/// interval instead of becoming due together. The result saturates at the last instant that chrono can
/// represent. An interval below a microsecond counts as one microsecond.
pub(crate) fn next_poke(fingerprint: Fingerprint, interval: Duration, after: Timestamp) -> Timestamp {
    let interval = time::duration_micros(interval).max(1);
    let phase = i64::try_from(fingerprint.0 % interval.unsigned_abs()).unwrap_or(0);
    let after = after.as_micros();
    let past = after.saturating_sub(phase).rem_euclid(interval);
    Timestamp::from_micros(after.saturating_add(interval - past))
}

/// Returns the interval of a sensor that has waited for `age`. Without [`Settings::max_interval`] it is
/// constant. Otherwise an interval of `i` doubles at the ages `i`, `3i`, `7i`, `15i` …, up to that maximum.
///
/// The sensor is poked at about these ages. The interval follows from the age alone, so nothing is counted or
/// stored. Below the maximum it is `i` times a power of two, so the due times of a longer interval are also
/// due times of a shorter one.
pub(crate) fn interval_at(settings: &Settings, age: Duration) -> Duration {
    let Some(longest) = settings.max_interval else { return settings.interval };
    let interval = settings.interval.as_micros().max(1);
    let doublings = (age.as_micros() / interval).saturating_add(1).ilog2();
    let length = interval.checked_shl(doublings).filter(|length| length >> doublings == interval);
    length
        .and_then(|length| u64::try_from(length).ok())
        .map_or(longest, |length| Duration::from_micros(length).min(longest))
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
                Timestamp::from_micros(after),
            );
            let due = due.as_micros();
            prop_assert!(due > after && due <= after + interval);
            let phase = (print % interval.unsigned_abs()) as i64;
            prop_assert_eq!((due - phase).rem_euclid(interval), 0);
        }
    }

    proptest! {
        /// The interval never exceeds the age by more than the initial interval. Every due time of a longer
        /// interval is one of the shorter.
        #[test]
        fn grows_with_the_age_in_nested_grids(
            print: u64,
            interval in 1_000_u64..10_000_000_000,
            factor in 0_u32..12,
            age in 0_u64..10_000_000_000_000,
        ) {
            let interval = Duration::from_micros(interval);
            let settings = Settings::new(interval, interval).unwrap().max_interval(interval * (1 << factor)).unwrap();
            let (age, print) = (Duration::from_micros(age), Fingerprint(print));
            let length = interval_at(&settings, age);
            prop_assert!(interval <= length && length <= interval * (1 << factor));
            prop_assert!(length <= age + interval, "a sensor is not left alone for longer than it has waited");
            let due = next_poke(print, length, Timestamp::UNIX_EPOCH);
            let before = Timestamp::from_micros(due.as_micros() - 1);
            prop_assert_eq!(next_poke(print, interval, before), due);
        }
    }

    #[test]
    fn due_times_lie_on_a_grid_shifted_by_the_fingerprint() {
        let next =
            |after| next_poke(Fingerprint(3), Duration::from_micros(10), Timestamp::from_micros(after));
        assert_eq!([20, 23].map(next), [23, 33].map(Timestamp::from_micros));
    }

    #[test]
    fn intervals_double_with_the_age_up_to_the_longest() {
        let s = Duration::from_secs;
        let settings = Settings::new(s(10), s(86_400)).unwrap().max_interval(s(60)).unwrap();
        let intervals = [0, 9, 10, 29, 30, 70, 5_000].map(|age| interval_at(&settings, s(age)).as_secs());
        assert_eq!(intervals, [10, 10, 20, 20, 40, 60, 60]);
    }

    #[test]
    fn intervals_saturate() {
        let settings = Settings::new(Duration::from_millis(1), Duration::MAX).unwrap();
        assert_eq!(interval_at(&settings, Duration::MAX), Duration::from_millis(1));
        let doubling = settings.max_interval(Duration::MAX).unwrap();
        assert!(interval_at(&doubling, Duration::MAX) <= doubling.max_interval.unwrap());
        assert_eq!(interval_at(&doubling, Duration::ZERO), Duration::from_millis(1));
    }

    #[test]
    fn saturates() {
        let last = Timestamp::MAX;
        assert_eq!(next_poke(Fingerprint(u64::MAX), Duration::MAX, last), last);
    }
}
