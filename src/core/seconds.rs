//! Durations in JSON: a number of seconds, for fields whose names end in `_s`.
//!
//! A whole number of seconds is written as an integer (`30`), any other length with at most six decimals
//! (`0.25`). The written value is read back exactly, even by the default float parser of `serde_json`,
//! because lengths are first truncated to what survives: whole microseconds, whole seconds from 2^30 s (34
//! years) on, and 2^53 s (285 million years) for everything longer. See [`clip`].
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Wait {
//!     #[serde(with = "stationmaster::seconds")]
//!     poke_interval_s: Duration,
//! }
//!
//! let wait: Wait = serde_json::from_str(r#"{"poke_interval_s":1.5}"#)?;
//! assert_eq!(wait.poke_interval_s, Duration::from_millis(1500));
//! assert_eq!(serde_json::to_string(&wait)?, r#"{"poke_interval_s":1.5}"#);
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};
use serde::ser::Serializer;

/// From this many seconds on (34 years), a length is kept in whole seconds.
pub const WHOLE_FROM_S: u64 = 1 << 30;

/// The longest length, in seconds. Every whole number up to here is exact in a double.
pub const MAX_S: u64 = 1 << 53;

/// Truncates the length to what survives in JSON: whole microseconds, whole seconds from [`WHOLE_FROM_S`] on,
/// and at most [`MAX_S`]. Rounds down.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::seconds::{MAX_S, clip};
/// assert_eq!(clip(Duration::from_nanos(1_999)), Duration::from_micros(1));
/// assert_eq!(clip(Duration::MAX), Duration::from_secs(MAX_S));
/// ```
pub fn clip(length: Duration) -> Duration {
    let micros = if length.as_secs() < WHOLE_FROM_S { length.subsec_micros() } else { 0 };
    Duration::new(length.as_secs().min(MAX_S), micros * 1_000)
}

/// Returns the length of this many seconds, rounded to the microsecond and truncated as by [`clip`]. Returns
/// `None` if the number is negative, not finite or above 2^64.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::seconds::from_f64;
/// assert_eq!(from_f64(0.333333), Some(Duration::from_micros(333_333)));
/// assert_eq!(from_f64(f64::NAN), None);
/// ```
pub fn from_f64(seconds: f64) -> Option<Duration> {
    if !(0.0..=u64::MAX as f64).contains(&seconds) {
        return None;
    }
    if seconds >= WHOLE_FROM_S as f64 {
        return Some(clip(Duration::from_secs(seconds as u64)));
    }
    Some(Duration::from_micros((seconds * 1e6).round() as u64))
}

/// Writes the length as a number of seconds.
///
/// # Errors
///
/// Returns only errors of the serializer.
pub fn serialize<S: Serializer>(length: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    let length = clip(*length);
    match length.subsec_micros() {
        0 => serializer.serialize_u64(length.as_secs()),
        _ => serializer.serialize_f64(length.as_micros() as f64 / 1e6),
    }
}

/// Reads a number of seconds.
///
/// # Errors
///
/// Returns an error if it is not a number, or is negative, not finite or above 2^64.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_f64(Seconds)
}

struct Seconds;

impl Visitor<'_> for Seconds {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of seconds from 0 to 2^64")
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<Duration, E> {
        Ok(clip(Duration::from_secs(seconds)))
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<Duration, E> {
        match u64::try_from(seconds) {
            Ok(seconds) => self.visit_u64(seconds),
            Err(_) => Err(E::invalid_value(serde::de::Unexpected::Signed(seconds), &self)),
        }
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<Duration, E> {
        from_f64(seconds).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Float(seconds), &self))
    }
}

/// The same for `Option<Duration>`. `None` is `null`, or a field left out with `#[serde(default)]`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Limits {
///     #[serde(default, with = "stationmaster::seconds::option")]
///     timeout_s: Option<Duration>,
/// }
///
/// let limits: Limits = serde_json::from_str("{}")?;
/// assert_eq!(limits.timeout_s, None);
/// # Ok::<(), serde_json::Error>(())
/// ```
pub mod option {
    use super::*;

    /// Writes the length as a number of seconds, or `null`.
    ///
    /// # Errors
    ///
    /// Returns only errors of the serializer.
    pub fn serialize<S: Serializer>(length: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match length {
            Some(length) => super::serialize(length, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads a number of seconds, or `null`.
    ///
    /// # Errors
    ///
    /// The same as [`super::deserialize`].
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        deserializer.deserialize_option(OptionalSeconds)
    }

    struct OptionalSeconds;

    impl<'de> Visitor<'de> for OptionalSeconds {
        type Value = Option<Duration>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number of seconds from 0 to 2^64, or null")
        }

        fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            super::deserialize(deserializer).map(Some)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Field(#[serde(with = "crate::seconds")] Duration);

    proptest! {
        #[test]
        fn survives_json(secs in prop_oneof![0u64..100, any::<u64>(), 0..WHOLE_FROM_S], nanos in 0u32..1_000_000_000) {
            let clipped = Field(clip(Duration::new(secs, nanos)));
            let text = serde_json::to_string(&clipped).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Field>(&text).unwrap(), &clipped, "through {}", text);
            let value = serde_json::to_value(&clipped).unwrap();
            prop_assert_eq!(serde_json::from_value::<Field>(value).unwrap(), clipped);
        }
    }

    #[test]
    fn the_last_microsecond_before_whole_seconds_survives() {
        let longest = Field(Duration::new(WHOLE_FROM_S - 1, 999_999_000));
        let text = serde_json::to_string(&longest).unwrap();
        assert_eq!(text, "1073741823.999999");
        assert_eq!(serde_json::from_str::<Field>(&text).unwrap(), longest);
        assert_eq!(serde_json::from_str::<Field>("1e19").unwrap(), Field(Duration::from_secs(MAX_S)));
    }

    #[test]
    fn refuses_what_is_no_length() {
        for text in ["-1", "-0.5", "1e30", "18446744073709555000", "\"5\"", "null"] {
            assert!(serde_json::from_str::<Field>(text).is_err(), "{text}");
        }
    }
}
