//! Airflow's `TaskInstance.next_retry_datetime`, to the microsecond, by version.
//!
//! With a retry delay of D seconds, a multiplier m (2 before 3.2) and the stored try number n:
//!
//! ```text
//! base = max(1, ceil(D * m^(n-1)))                        in double precision, then as an integer
//! hash = SHA-1 of "{dag_id}#{task_id}#{date}#{n}"         as one big-endian integer; before 2.10, n + 1
//! wait = min(base + hash mod base, cap)                   whole seconds
//! wait = min(wait, max_retry_delay)                       if that is set and above 0
//! ```
//!
//! Without exponential backoff the wait is D, whatever the cap and the maximum are. Past the cap or the
//! maximum, all tasks wait the same time, as in Airflow. As in Airflow, the hash also lacks the run id and
//! the map index, so the instances of a mapped task retry in step. For a policy without these two properties,
//! see [`Jitter::Hashed`](super::Jitter::Hashed).
//!
//! Up to version 3.0, Airflow raises `OverflowError` from about try number 1024. Here the wait is then the
//! smaller of the cap and the maximum, as in Airflow 3.1 and later. If the sum exceeds the last instant that
//! Python can represent, see [`AirflowRetry::next_retry`].
//!
//! Read from the code of Airflow 2.3.4, 2.5.3, 2.6.0, 2.9.3, 2.10.0, 2.11.2, 3.0.0, 3.1.0 and 3.2.0. Checked
//! against 2,172 recorded results of 2.11.2.

use std::fmt::{self, Write as _};
use std::time::Duration;

use chrono::{DateTime, Datelike, FixedOffset, Timelike};
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

use super::growth;
use crate::base::setters;
use crate::time::Timestamp;

/// A range of Airflow releases that compute the same retry.
///
/// | | releases | number in the hash | cap | multiplier |
/// |---|---|---|---|---|
/// | `V2_5` | 2.3 to 2.5 | n + 1 | `timedelta.max` minus a second | 2 |
/// | `V2_6` | 2.6 to 2.9 | n + 1 | `[core] max_task_retry_delay`, one day | 2 |
/// | `V2_10` | 2.10 to 3.1 | n | the same | 2 |
/// | `V3_2` | 3.2 and later | n | the same | any |
///
/// In JSON `"2.5"`, `"2.6"`, `"2.10"` and `"3.2"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum AirflowVersion {
    /// Airflow 2.3 to 2.5: no cap of one day.
    #[serde(rename = "2.5")]
    V2_5,
    /// Airflow 2.6 to 2.9.
    #[serde(rename = "2.6")]
    V2_6,
    /// Airflow 2.10, 2.11, 3.0 and 3.1.
    #[serde(rename = "2.10")]
    V2_10,
    /// Airflow 3.2 and later: `retry_exponential_backoff` is the multiplier.
    #[serde(rename = "3.2")]
    V3_2,
}

impl AirflowVersion {
    /// Returns the default cap per delay. It is one day; before 2.6 it is 86,399,999,999,999 s (2.7 million
    /// years).
    pub const fn default_cap(self) -> Duration {
        match self {
            Self::V2_5 => Duration::from_secs(86_399_999_999_999),
            _ => Duration::from_secs(86_400),
        }
    }

    /// Returns true if it supports multipliers other than 2.
    pub const fn takes_any_multiplier(self) -> bool {
        matches!(self, Self::V3_2)
    }

    fn hashed_number(self, try_number: u32) -> u64 {
        match self {
            Self::V2_5 | Self::V2_6 => u64::from(try_number) + 1,
            Self::V2_10 | Self::V3_2 => u64::from(try_number),
        }
    }
}

/// The date in Airflow's hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HashedDate<'a> {
    /// The exact text that Airflow put into its hash.
    Text(&'a str),
    /// A date, hashed as Python prints it, with its offset. For a run read from Airflow's database, the
    /// offset is always zero.
    At(DateTime<FixedOffset>),
    /// A run without a date (3.x), hashed as `None`.
    Unset,
}

/// Formats the date as Python prints an aware `datetime`: a space between date and time, six decimals unless
/// they are zero.
impl fmt::Display for HashedDate<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = match self {
            Self::Text(text) => return f.write_str(text),
            Self::Unset => return f.write_str("None"),
            Self::At(at) => at,
        };
        write!(f, "{:04}-{:02}-{:02} ", at.year(), at.month(), at.day())?;
        write!(f, "{:02}:{:02}:{:02}", at.hour(), at.minute(), at.second())?;
        match at.nanosecond() / 1_000 {
            0 => {}
            micros => write!(f, ".{:06}", micros.min(999_999))?,
        }
        let offset = at.offset().local_minus_utc();
        let sign = if offset < 0 { '-' } else { '+' };
        let offset = offset.unsigned_abs();
        write!(f, "{sign}{:02}:{:02}", offset / 3600, offset / 60 % 60)?;
        match offset % 60 {
            0 => Ok(()),
            seconds => write!(f, ":{seconds:02}"),
        }
    }
}

/// One failed try, as Airflow sees it.
///
/// For a policy to store, use [`RetryPolicy::airflow`](super::RetryPolicy::airflow). This type does the same
/// computation, with inputs that only Airflow has.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::backoff::{AirflowRetry, AirflowVersion};
///
/// let retry = AirflowRetry::new(AirflowVersion::V2_10, "etl", "load")
///     .hashed_date("2024-09-27 07:40:51.500000+00:00")
///     .try_number(3)
///     .retry_delay(Duration::from_secs(60));
/// assert_eq!(retry.wait(), Duration::from_secs(257));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AirflowRetry<'a> {
    version: AirflowVersion,
    dag_id: &'a str,
    task_id: &'a str,
    date: HashedDate<'a>,
    try_number: u32,
    retry_delay: Duration,
    multiplier: f64,
    max_retry_delay: Option<Duration>,
    cap: Duration,
}

impl<'a> AirflowRetry<'a> {
    /// Creates the first try of a task with Airflow's defaults: exponential backoff by 2, a delay of 300 s,
    /// no maximum of its own, and the version's cap. The run has no date (3.x), which is hashed as `None`.
    pub fn new(version: AirflowVersion, dag_id: &'a str, task_id: &'a str) -> Self {
        Self {
            version,
            dag_id,
            task_id,
            date: HashedDate::Unset,
            try_number: 1,
            retry_delay: Duration::from_secs(300),
            multiplier: 2.0,
            max_retry_delay: None,
            cap: version.default_cap(),
        }
    }

    setters! {
        /// Sets the date of the run. It is hashed as Python prints it, with its offset. For a run read from
        /// Airflow's database, the offset is always zero.
        logical_date(at: DateTime<FixedOffset>) { date = HashedDate::At(at) }
        /// Sets the exact text of the date that Airflow put into its hash.
        hashed_date(text: &'a str) { date = HashedDate::Text(text) }
        /// Sets the number of the failed try, as in Airflow's database: 1 for the first, 0 for a task that
        /// never ran (which halves its delay).
        try_number: u32;
        /// Sets `retry_delay`, rounded down to microseconds.
        retry_delay: Duration;
        /// Sets `retry_exponential_backoff` as a number. If it is above 0 and not 1, each delay is the
        /// previous one multiplied by it. Anything else (0, 1, a negative number, NaN) is a fixed delay.
        /// Before 3.2, pass 2 for `True` and 0 for `False`.
        multiplier: f64;
        /// Sets `max_retry_delay`; zero means no maximum, as in Airflow.
        max_retry_delay: Option<Duration>;
        /// Sets `[core] max_task_retry_delay`, in place of the version's default.
        cap: Duration;
    }

    /// Returns how long after the end of the failed try the next one starts.
    pub fn wait(&self) -> Duration {
        if !(self.multiplier > 0.0 && self.multiplier != 1.0) {
            return whole_micros(self.retry_delay);
        }
        let power = match self.try_number.checked_sub(1) {
            Some(exponent) => growth::power(self.multiplier, exponent),
            None => 1.0 / self.multiplier,
        };
        let base = (total_seconds(self.retry_delay) * power).ceil();
        let wait = if base < (1u64 << 63) as f64 {
            self.spread(base.max(1.0) as u64)
        } else {
            // Beyond any cap, or a value for which Airflow raised an error.
            Duration::MAX
        };
        let wait = wait.min(whole_micros(self.cap));
        match self.max_retry_delay.map(whole_micros) {
            Some(max) if !max.is_zero() => wait.min(max),
            _ => wait,
        }
    }

    /// Returns the instant of the next try, in the time zone of the end of the failed one.
    ///
    /// Saturates at [`Timestamp::MAX`]. Airflow raises an error after the year 9999.
    ///
    /// # Examples
    ///
    /// ```
    /// use chrono::DateTime;
    /// use stationmaster::backoff::{AirflowRetry, AirflowVersion};
    ///
    /// let retry = AirflowRetry::new(AirflowVersion::V2_10, "etl", "load").multiplier(0.0);
    /// let end = DateTime::parse_from_rfc3339("2026-01-01T00:00:00.000007+09:00")?;
    /// assert_eq!(retry.next_retry(end).to_rfc3339(), "2026-01-01T00:05:00.000007+09:00");
    /// # Ok::<(), chrono::ParseError>(())
    /// ```
    pub fn next_retry(&self, end_date: DateTime<FixedOffset>) -> DateTime<FixedOffset> {
        DateTime::from(Timestamp::from(end_date.to_utc()) + self.wait()).with_timezone(end_date.offset())
    }

    /// Returns `base + hash mod base` seconds. The hash is skipped where it cannot matter.
    fn spread(&self, base: u64) -> Duration {
        let shortest = Duration::from_secs(base);
        if base == 1 || shortest >= self.cap {
            return shortest;
        }
        Duration::from_secs(base + self.hash_modulo(base))
    }

    fn hash_modulo(&self, modulus: u64) -> u64 {
        let mut hasher = Hasher(Sha1::new());
        let number = self.version.hashed_number(self.try_number);
        // Writing to a hash cannot fail.
        let _ = write!(hasher, "{}#{}#{}#{number}", self.dag_id, self.task_id, self.date);
        let digest: [u8; 20] = hasher.0.finalize().into();
        digest.chunks(4).fold(0, |rest, bytes| {
            let word = bytes.iter().fold(0u128, |word, byte| (word << 8) | u128::from(*byte));
            (((u128::from(rest) << 32) | word) % u128::from(modulus)) as u64
        })
    }
}

/// Truncates to microseconds, the precision of `timedelta`.
fn whole_micros(length: Duration) -> Duration {
    Duration::new(length.as_secs(), length.subsec_micros() * 1_000)
}

/// Returns `timedelta.total_seconds()`: the double nearest to the number of microseconds divided by a
/// million.
fn total_seconds(length: Duration) -> f64 {
    const MILLION: u128 = 1_000_000;
    let micros = length.as_micros();
    if micros < 1 << 53 {
        return micros as f64 / 1e6;
    }
    // Rounding twice would differ from rounding once. So divide with bits to spare and mark the remainder in
    // the last bit.
    let scaled = micros << 40;
    let sticky = u128::from(!scaled.is_multiple_of(MILLION));
    ((scaled / MILLION) | sticky) as f64 / (1u64 << 40) as f64
}

struct Hasher(Sha1);

impl fmt::Write for Hasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_printed_as_python_prints_them() {
        for (rfc3339, python) in [
            ("2024-01-02T03:04:05Z", "2024-01-02 03:04:05+00:00"),
            ("2024-01-02T03:04:05.000100Z", "2024-01-02 03:04:05.000100+00:00"),
            ("2024-01-02T03:04:05.5+09:00", "2024-01-02 03:04:05.500000+09:00"),
            ("0999-01-02T03:04:05-03:30", "0999-01-02 03:04:05-03:30"),
        ] {
            let at = DateTime::parse_from_rfc3339(rfc3339).unwrap();
            assert_eq!(HashedDate::At(at).to_string(), python);
        }
        let odd = DateTime::UNIX_EPOCH.with_timezone(&FixedOffset::east_opt(561).unwrap());
        assert_eq!(HashedDate::At(odd).to_string(), "1970-01-01 00:09:21+00:09:21");
        let _ = HashedDate::At(DateTime::<chrono::Utc>::MAX_UTC.fixed_offset()).to_string();
        let edge = DateTime::<chrono::Utc>::MAX_UTC.with_timezone(&FixedOffset::east_opt(86_399).unwrap());
        let _ = HashedDate::At(edge).to_string();
        assert_eq!(HashedDate::Unset.to_string(), "None");
    }

    #[test]
    fn total_seconds_is_rounded_once() {
        assert_eq!(total_seconds(Duration::from_micros(333_333)), 0.333333);
        assert_eq!(total_seconds(Duration::from_secs(1 << 40)), 2f64.powi(40));
        // 2^53 + 1 microseconds: the nearest double in steps of 2^-20 s.
        assert_eq!(total_seconds(Duration::from_micros((1 << 53) + 1)), 9_007_199_254.740_993);
        assert!(total_seconds(Duration::MAX).is_finite());
    }

    #[test]
    fn the_number_in_the_hash_moved_in_2_10() {
        let date = "2024-01-01 00:00:00+00:00";
        let retry = |version| {
            AirflowRetry::new(version, "d", "t").hashed_date(date).retry_delay(Duration::from_secs(1 << 20))
        };
        let old = retry(AirflowVersion::V2_6).cap(Duration::MAX).try_number(1);
        let new = retry(AirflowVersion::V2_10).cap(Duration::MAX).try_number(2);
        // The same hash, of "d#t#…#2", modulo 2^20 and modulo 2^21.
        assert_eq!(old.wait().as_secs() % (1 << 20), new.wait().as_secs() % (1 << 20));
        assert_ne!(
            retry(AirflowVersion::V2_6).cap(Duration::MAX).wait(),
            retry(AirflowVersion::V2_10).cap(Duration::MAX).wait()
        );
    }

    #[test]
    fn where_airflow_raised_the_cap_and_the_maximum_hold() {
        for try_number in [1024, 1025, 5000, u32::MAX] {
            for delay in [Duration::ZERO, Duration::from_secs(30), Duration::MAX] {
                let retry = AirflowRetry::new(AirflowVersion::V2_10, "d", "t")
                    .try_number(try_number)
                    .retry_delay(delay);
                let expected = if delay.is_zero() && try_number == 1024 { 1 } else { 86_400 };
                assert_eq!(retry.wait(), Duration::from_secs(expected), "try {try_number}, delay {delay:?}");
                let short = retry.max_retry_delay(Some(Duration::from_millis(700)));
                assert_eq!(short.wait(), Duration::from_millis(700));
            }
        }
        let ancient = AirflowRetry::new(AirflowVersion::V2_5, "d", "t").try_number(u32::MAX);
        assert_eq!(ancient.wait(), Duration::from_secs(86_399_999_999_999));
        let end = DateTime::parse_from_rfc3339("2024-01-01T00:00:00+09:00").unwrap();
        assert_eq!(Timestamp::from(ancient.next_retry(end).to_utc()), Timestamp::MAX);
    }

    #[test]
    fn multipliers_of_3_2() {
        let retry = |multiplier, try_number| {
            AirflowRetry::new(AirflowVersion::V3_2, "d", "t")
                .retry_delay(Duration::from_millis(1500))
                .multiplier(multiplier)
                .try_number(try_number)
                .wait()
        };
        for fixed in [0.0, 1.0, -3.0, f64::NAN, f64::NEG_INFINITY] {
            assert_eq!(retry(fixed, 7), Duration::from_millis(1500));
        }
        assert_eq!(retry(f64::INFINITY, 2), Duration::from_secs(86_400));
        assert_eq!(retry(0.5, 40), Duration::from_secs(1));
        let third = retry(3.0, 4).as_secs();
        assert!((41..=81).contains(&third), "{third}");
    }
}
