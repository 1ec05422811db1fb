//! Instants and durations as the crate stores them: whole microseconds, UTC.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// An instant: a whole number of microseconds since 1970-01-01T00:00:00Z, UTC.
///
/// Every store keeps an instant unchanged, so it compares the same before and after it is stored. A function
/// that takes `impl Into<Timestamp>` also accepts a [`DateTime<Utc>`], which it rounds down to the
/// microsecond. Text, JSON and debug output are the same as for [`DateTime<Utc>`].
///
/// Arithmetic saturates at [`Self::MIN`] and [`Self::MAX`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::Timestamp;
///
/// let at = Timestamp::from_micros(5) + Duration::from_micros(7);
/// assert_eq!(at.as_micros(), 12);
/// assert_eq!(at.to_string(), "1970-01-01 00:00:00.000012 UTC");
/// assert_eq!(at + Duration::MAX, Timestamp::MAX);
/// assert!(Timestamp::from(chrono::Utc::now()) > at);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "DateTime<Utc>", into = "DateTime<Utc>")]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const UNIX_EPOCH: Self = Self(0);
    /// The first instant that chrono can represent, in the year -262143.
    pub const MIN: Self = Self(DateTime::<Utc>::MIN_UTC.timestamp_micros());
    /// The last instant that chrono can represent, in the year +262142.
    pub const MAX: Self = Self(DateTime::<Utc>::MAX_UTC.timestamp_micros());

    /// Returns the instant this many microseconds after 1970-01-01T00:00:00Z. Saturates at [`Self::MIN`] and
    /// [`Self::MAX`].
    pub const fn from_micros(micros: i64) -> Self {
        if micros < Self::MIN.0 {
            Self::MIN
        } else if micros > Self::MAX.0 {
            Self::MAX
        } else {
            Self(micros)
        }
    }

    /// Returns the microseconds since 1970-01-01T00:00:00Z.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the time from `earlier` to this instant, or zero if this instant is not later.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::Timestamp;
    ///
    /// let (early, late) = (Timestamp::from_micros(5), Timestamp::from_micros(12));
    /// assert_eq!(late.saturating_duration_since(early), Duration::from_micros(7));
    /// assert_eq!(early.saturating_duration_since(late), Duration::ZERO);
    /// ```
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at [`Self::MAX`]. The length is rounded down to the microsecond.
    fn add(self, length: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(duration_micros(length)))
    }
}

impl AddAssign<Duration> for Timestamp {
    fn add_assign(&mut self, length: Duration) {
        *self = *self + length;
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at [`Self::MIN`]. The length is rounded down to the microsecond.
    fn sub(self, length: Duration) -> Self {
        Self::from_micros(self.0.saturating_sub(duration_micros(length)))
    }
}

impl From<DateTime<Utc>> for Timestamp {
    /// Rounds down to the microsecond.
    fn from(at: DateTime<Utc>) -> Self {
        Self(at.timestamp_micros())
    }
}

impl From<Timestamp> for DateTime<Utc> {
    fn from(at: Timestamp) -> Self {
        // Always in range, so the default is never used.
        Self::from_timestamp_micros(at.0).unwrap_or_default()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        DateTime::from(*self).fmt(f)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&DateTime::from(*self), f)
    }
}

/// Returns the length in whole microseconds, rounded down. Saturates at `i64::MAX` (292,000 years).
pub(crate) fn duration_micros(length: Duration) -> i64 {
    i64::try_from(length.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saturates_at_both_ends() {
        let (first, last) = (Timestamp::MIN, Timestamp::MAX);
        assert_eq!([i64::MIN, i64::MAX].map(Timestamp::from_micros), [first, last]);
        let (second, most) = (Duration::from_secs(1), Duration::MAX);
        assert_eq!([last + second, Timestamp::UNIX_EPOCH + most, last + most], [last; 3]);
        assert_eq!([first - second, Timestamp::UNIX_EPOCH - most, first - most], [first; 3]);
        assert_eq!(first.saturating_duration_since(last), Duration::ZERO);
        assert_eq!(last.saturating_duration_since(first), Duration::from_micros(i64::MAX.unsigned_abs()));
    }

    #[test]
    fn is_what_chrono_makes_of_it_and_rounds_down_on_both_sides_of_the_epoch() {
        assert_eq!(Timestamp::from(DateTime::from_timestamp(-1, 999_999_999).unwrap()).as_micros(), -1);
        assert_eq!(Timestamp::from(DateTime::from_timestamp(0, 1_999).unwrap()).as_micros(), 1);
        for at in [Timestamp::MIN, Timestamp::from_micros(-1), Timestamp::UNIX_EPOCH, Timestamp::MAX] {
            let chrono = DateTime::<Utc>::from(at);
            assert_eq!((chrono.timestamp_micros(), Timestamp::from(chrono)), (at.as_micros(), at));
            assert_eq!(format!("{at} {at:?} {at:>40}"), format!("{chrono} {chrono:?} {chrono:>40}"));
            let json = serde_json::to_string(&at).unwrap();
            assert_eq!(json, serde_json::to_string(&chrono).unwrap());
            assert_eq!(serde_json::from_str::<Timestamp>(&json).unwrap(), at);
        }
        let east: Timestamp = serde_json::from_str("\"2026-01-01T09:00:00.0000019+09:00\"").unwrap();
        assert_eq!(east.to_string(), "2026-01-01 00:00:00.000001 UTC");
    }
}
