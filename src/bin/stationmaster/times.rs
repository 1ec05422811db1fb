//! Typed and shown instants and lengths.

use std::str::FromStr;
use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use stationmaster::Timestamp;

/// An instant as it was typed. It may be relative to the present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    Now,
    Ago(Duration),
    Ahead(Duration),
    At(Timestamp),
    Today(NaiveTime),
}

impl Moment {
    pub fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::Ago(length) => now - length,
            Self::Ahead(length) => now + length,
            Self::At(at) => at,
            Self::Today(time) => DateTime::<Utc>::from(now).date_naive().and_time(time).and_utc().into(),
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "now" {
            return Ok(Self::Now);
        }
        if let Some(length) = text.strip_prefix('+') {
            return Ok(Self::Ahead(length_of(length)?));
        }
        if let Ok(length) = length_of(text) {
            return Ok(Self::Ago(length));
        }
        if let Ok(at) = DateTime::parse_from_rfc3339(text) {
            return Ok(Self::At(at.with_timezone(&Utc).into()));
        }
        for form in ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"] {
            if let Ok(at) = NaiveDateTime::parse_from_str(text.trim_end_matches('Z'), form) {
                return Ok(Self::At(at.and_utc().into()));
            }
        }
        if let Ok(day) = NaiveDate::parse_from_str(text, "%Y-%m-%d") {
            return Ok(Self::At(day.and_time(NaiveTime::MIN).and_utc().into()));
        }
        for form in ["%H:%M", "%H:%M:%S"] {
            if let Ok(time) = NaiveTime::parse_from_str(text, form) {
                return Ok(Self::Today(time));
            }
        }
        Err("an instant is `now`, a length ago (`90s`, `15m`, `3h`, `2d`), a length ahead (`+1h`), a time of today \
             in UTC (`03:00`), a day (`2026-01-31`), or both (`2026-01-31T03:00:00Z`)"
            .into())
    }
}

/// Parses a length that was typed as a number and a unit.
pub fn length_of(text: &str) -> Result<Duration, String> {
    let refused = || "a length is a number and a unit: `500ms`, `90s`, `15m`, `3h` or `2d`".to_owned();
    let unit_at = text.find(|char: char| !char.is_ascii_digit() && char != '.').ok_or_else(refused)?;
    let (number, unit) = text.split_at(unit_at);
    let number: f64 = number.parse().map_err(|_| refused())?;
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(refused()),
    };
    Duration::try_from_secs_f64(number * seconds).map_err(|_| refused())
}

/// Returns an instant, absolute and relative: `2026-01-31 03:00:00Z (3m ago)`.
pub fn when(at: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", absolute(at), relative(at, now))
}

/// Returns until when a holder that was asked to stop must do so.
pub fn must_stop(at: Timestamp, now: Timestamp) -> String {
    let must = if at <= now { "had to" } else { "must" };
    format!("asked to stop, {must} do so by {}", when(at, now))
}

/// Returns `until` and an instant, or `ended` and an instant that has passed.
pub fn until(at: Timestamp, now: Timestamp) -> String {
    let verb = if at <= now { "ended" } else { "until" };
    format!("{verb} {}", when(at, now))
}

/// Returns an instant in UTC, to the second.
pub fn absolute(at: Timestamp) -> String {
    DateTime::<Utc>::from(at).format("%Y-%m-%d %H:%M:%SZ").to_string()
}

fn relative(at: Timestamp, now: Timestamp) -> String {
    match (now.saturating_duration_since(at), at.saturating_duration_since(now)) {
        (Duration::ZERO, Duration::ZERO) => "now".into(),
        (Duration::ZERO, ahead) => format!("in {}", short(ahead)),
        (ago, _) => format!("{} ago", short(ago)),
    }
}

/// Returns a length in its two largest units.
pub fn short(length: Duration) -> String {
    let seconds = length.as_secs();
    let two = |large: u64, unit: &str, small: u64, part: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit} {small}{part}"),
    };
    match seconds {
        0 => format!("{}ms", length.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3_600 => two(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_read() {
        let now: Timestamp = "2026-01-31T12:00:00Z".parse::<DateTime<Utc>>().unwrap().into();
        for (typed, at) in [
            ("now", "2026-01-31T12:00:00Z"),
            ("90s", "2026-01-31T11:58:30Z"),
            ("1.5h", "2026-01-31T10:30:00Z"),
            ("+2d", "2026-02-02T12:00:00Z"),
            ("03:00", "2026-01-31T03:00:00Z"),
            ("03:00:07", "2026-01-31T03:00:07Z"),
            ("2026-01-30", "2026-01-30T00:00:00Z"),
            ("2026-01-30T03:00", "2026-01-30T03:00:00Z"),
            ("2026-01-30 03:00:01", "2026-01-30T03:00:01Z"),
            ("2026-01-30T03:00:00+02:00", "2026-01-30T01:00:00Z"),
        ] {
            let at: Timestamp = at.parse::<DateTime<Utc>>().unwrap().into();
            assert_eq!(typed.parse::<Moment>().unwrap().at(now), at, "{typed}");
        }
        for bad in ["", "3", "3y", "-1h", "h", "25:00", "2026-13-01", "1e999h", "tomorrow", "+", "é"] {
            assert!(bad.parse::<Moment>().is_err(), "{bad}");
        }
    }

    #[test]
    fn lengths_have_two_units() {
        let shown = |seconds| short(Duration::from_secs(seconds));
        assert_eq!([59, 60, 61, 3_600, 90_061].map(shown), ["59s", "1m", "1m 1s", "1h", "1d 1h"]);
        assert_eq!(short(Duration::from_micros(1_500)), "1ms");
        let at = Timestamp::from_micros;
        assert_eq!(when(at(0), at(61_000_000)), "1970-01-01 00:00:00Z (1m 1s ago)");
        assert_eq!(when(at(5_000_000), at(0)), "1970-01-01 00:00:05Z (in 5s)");
        assert_eq!(until(at(5_000_000), at(0)), "until 1970-01-01 00:00:05Z (in 5s)");
        assert_eq!(until(at(0), at(5_000_000)), "ended 1970-01-01 00:00:00Z (5s ago)");
        let stop = |now| must_stop(at(5_000_000), at(now));
        assert_eq!(stop(0), "asked to stop, must do so by 1970-01-01 00:00:05Z (in 5s)");
        assert_eq!(stop(6_000_000), "asked to stop, had to do so by 1970-01-01 00:00:05Z (1s ago)");
    }
}
