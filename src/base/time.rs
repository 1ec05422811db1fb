//! Instants and durations as the crate stores them: whole microseconds, UTC.
//!
//! A [`DateTime<Utc>`] passed to any function of the crate is truncated to the microsecond before it is used.
//! So an instant compares the same before and after it was stored. Every [`DateTime<Utc>`] fits an `i64` of
//! microseconds. The reverse does not hold, and [`from_micros`] saturates.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// Returns the microseconds since 1970-01-01T00:00:00Z, rounded down.
///
/// # Examples
///
/// ```
/// use stationmaster::time::{from_micros, micros};
/// assert_eq!(micros(from_micros(-1)), -1);
/// ```
pub fn micros(at: DateTime<Utc>) -> i64 {
    at.timestamp_micros()
}

/// Returns the instant this many microseconds after 1970-01-01T00:00:00Z.
///
/// Saturates at the first and last instant that chrono can represent (years -262143 and +262142).
pub fn from_micros(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).unwrap_or(if micros < 0 {
        truncate(DateTime::<Utc>::MIN_UTC)
    } else {
        truncate(DateTime::<Utc>::MAX_UTC)
    })
}

/// Truncates an instant to the microsecond (rounded down).
pub fn truncate(at: DateTime<Utc>) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(at.timestamp_micros()).unwrap_or(at)
}

/// Returns the length in whole microseconds, rounded down. Saturates at `i64::MAX` (292,000 years).
pub fn duration_micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}

/// Returns `at + length`. Saturates at the last instant that chrono can represent.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::time::{add, from_micros};
/// assert_eq!(add(from_micros(5), Duration::from_micros(7)), from_micros(12));
/// assert!(add(from_micros(5), Duration::MAX) > from_micros(5));
/// ```
pub fn add(at: DateTime<Utc>, length: Duration) -> DateTime<Utc> {
    from_micros(micros(at).saturating_add(duration_micros(length)))
}

/// Returns `at - length`. Saturates at the first instant that chrono can represent.
pub fn sub(at: DateTime<Utc>, length: Duration) -> DateTime<Utc> {
    from_micros(micros(at).saturating_sub(duration_micros(length)))
}

/// Returns how long `later` is after `earlier`; zero if it is not after.
pub fn since(later: DateTime<Utc>, earlier: DateTime<Utc>) -> Duration {
    let span = micros(later).saturating_sub(micros(earlier));
    Duration::from_micros(u64::try_from(span).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saturates_at_both_ends() {
        assert_eq!(from_micros(i64::MAX), truncate(DateTime::<Utc>::MAX_UTC));
        assert_eq!(from_micros(i64::MIN), truncate(DateTime::<Utc>::MIN_UTC));
        assert_eq!(add(DateTime::<Utc>::MAX_UTC, Duration::from_secs(1)), truncate(DateTime::<Utc>::MAX_UTC));
        assert_eq!(sub(DateTime::<Utc>::MIN_UTC, Duration::from_secs(1)), truncate(DateTime::<Utc>::MIN_UTC));
        assert_eq!(since(from_micros(1), from_micros(2)), Duration::ZERO);
    }

    #[test]
    fn truncation_rounds_down_on_both_sides_of_the_epoch() {
        let at = DateTime::from_timestamp(-1, 999_999_999).unwrap();
        assert_eq!(micros(at), -1);
        assert_eq!(truncate(at), from_micros(-1));
    }
}
