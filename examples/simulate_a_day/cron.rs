//! Cron expressions: minute, hour, day of month, month, day of week; in UTC.
//!
//! A field is `*`, a number, a range `8-18`, each with an optional step (`*/15`, `8-18/2`), or a list of these with
//! commas. Sunday is 0 or 7. If both days are restricted, either one suffices, as in Vixie's cron.

use chrono::{DateTime, Datelike, Duration, Timelike, Utc};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Cron {
    text: String,
    /// One bit for each number that a field allows.
    fields: [u64; 5],
    /// Whether both days are restricted.
    either_day: bool,
}

/// Name, first and last number of each field.
const FIELDS: [(&str, u32, u32); 5] =
    [("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7)];

impl TryFrom<String> for Cron {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [_, _, day, _, weekday] = words[..] else {
            return Err(format!("the cron expression {text:?} has {} fields: give five", words.len()));
        };
        let either_day = day != "*" && weekday != "*";
        let mut fields = [0; 5];
        for ((bits, word), (name, first, last)) in fields.iter_mut().zip(&words).zip(FIELDS) {
            *bits = field(word, first, last).ok_or_else(|| {
                format!(
                    "{word:?} is no {name} of a cron expression: give numbers from {first} to {last}, *, -, / or ,"
                )
            })?;
        }
        // Sunday is 7, too.
        fields[4] |= fields[4] >> 7;
        Ok(Self { text, fields, either_day })
    }
}

impl From<Cron> for String {
    fn from(cron: Cron) -> Self {
        cron.text
    }
}

fn field(word: &str, first: u32, last: u32) -> Option<u64> {
    let mut bits = 0;
    for part in word.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, step.parse().ok().filter(|step| *step > 0)?),
            None => (part, 1),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" => (first, last),
            Some((from, to)) => (from.parse().ok()?, to.parse().ok()?),
            None => {
                let one = range.parse().ok()?;
                (one, if part == range { one } else { last })
            }
        };
        if from < first || to > last || from > to {
            return None;
        }
        bits |= (from..=to).step_by(step).fold(0, |bits, number| bits | 1 << number);
    }
    Some(bits)
}

impl Cron {
    /// Returns the instants in `[begin, end)`, in order.
    pub(crate) fn instants(&self, begin: DateTime<Utc>, end: DateTime<Utc>) -> Vec<DateTime<Utc>> {
        let into_minute = begin.timestamp_micros().rem_euclid(60_000_000);
        let first = begin + Duration::microseconds((60_000_000 - into_minute) % 60_000_000);
        std::iter::successors(Some(first), |at| Some(*at + Duration::minutes(1)))
            .take_while(|at| *at < end)
            .filter(|at| self.is_due(*at))
            .collect()
    }

    fn is_due(&self, at: DateTime<Utc>) -> bool {
        let [minutes, hours, days, months, weekdays] = self.fields;
        let allows = |bits: u64, number: u32| bits >> number & 1 == 1;
        let (day, weekday) = (allows(days, at.day()), allows(weekdays, at.weekday().num_days_from_sunday()));
        allows(minutes, at.minute())
            && allows(hours, at.hour())
            && allows(months, at.month())
            && if self.either_day { day || weekday } else { day && weekday }
    }
}
