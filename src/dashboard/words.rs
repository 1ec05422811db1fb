//! Names, instants, lengths and numbers as pages show them.

use std::fmt::Display;
use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::time::Timestamp;

/// Returns the text with every character that is not plainly visible escaped: `\n`, `\u{202e}`. The templates escape
/// HTML. This escapes characters that make one name look like another.
pub(super) fn visible(text: impl Display) -> String {
    escaped(&text.to_string(), |_| false)
}

/// Works like [`visible`] for a text of several lines, and keeps the lines.
pub(super) fn visible_lines(text: &str) -> String {
    escaped(text, |char| matches!(char, '\n' | '\t'))
}

/// Returns JSON with every character that is not plainly visible escaped. A parser reads the same JSON.
pub(super) fn visible_json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for char in json.chars() {
        if matches!(char, ' '..='~') || char.escape_debug().len() == 1 {
            shown.push(char);
        } else {
            shown.extend(char.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    shown
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            // Rust's literals escape these, but a page needs no escape.
            '"' | '\'' | '\\' => shown.push(char),
            char if stays(char) => shown.push(char),
            _ => shown.extend(char.escape_debug()),
        }
    }
    shown
}

/// Returns an instant in UTC, to the second.
pub(super) fn absolute(at: Timestamp) -> String {
    DateTime::<Utc>::from(at).format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Returns an instant in the format of the attribute `datetime`.
pub(super) fn iso(at: Timestamp) -> String {
    DateTime::<Utc>::from(at).format("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(super) fn relative(at: Timestamp, now: Timestamp) -> String {
    match (now.saturating_duration_since(at), at.saturating_duration_since(now)) {
        (Duration::ZERO, Duration::ZERO) => "now".into(),
        (Duration::ZERO, ahead) => format!("in {}", short(ahead)),
        (ago, _) => format!("{} ago", short(ago)),
    }
}

/// Returns a length in its two largest units.
pub(super) fn short(length: Duration) -> String {
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

/// Returns a number with its thousands separated.
pub(super) fn number(number: impl Display) -> String {
    let text = number.to_string();
    let digits = text.trim_start_matches('-').len();
    let sign = text.len() - digits;
    let mut shown = String::with_capacity(text.len() + digits / 3);
    for (at, char) in text.chars().enumerate() {
        if at > sign && (text.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(char);
    }
    shown
}

/// Returns a size in its largest unit of 1,024.
pub(super) fn bytes(size: u64) -> String {
    match size {
        0..1_024 => format!("{size} B"),
        1_024..1_048_576 => format!("{:.1} KiB", size as f64 / 1_024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", size as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", size as f64 / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lengths_are_readable() {
        assert_eq!(
            [0, 999, 1_000, -1_000, 1_234_567].map(number),
            ["0", "999", "1,000", "-1,000", "1,234,567"]
        );
        let shown = |seconds| short(Duration::from_secs(seconds));
        assert_eq!([59, 60, 61, 3_600, 90_061].map(shown), ["59s", "1m", "1m 1s", "1h", "1d 1h"]);
    }

    #[test]
    fn sizes_have_a_unit() {
        let shown = [0, 1_023, 1_024, 1_572_864, 3 << 30].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "3.0 GiB"]);
    }

    #[test]
    fn what_is_not_visible_is_escaped() {
        assert_eq!(visible("a\u{202e}b\n\"é漢🚂\""), "a\\u{202e}b\\n\"é漢🚂\"");
        assert_eq!(visible_lines("a\u{202e}b\n\tc\r"), "a\\u{202e}b\n\tc\\r");
        assert_eq!(visible_json("[\"a\u{202e}é漢\u{e0001}\"]"), "[\"a\\u202eé漢\\udb40\\udc01\"]");
    }
}
