//! Rows with recorded results of `TaskInstance.next_retry_datetime` of Airflow 2.11.2.

use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use serde::Deserialize;
use serde_json::Value;
use stationmaster::backoff::{AirflowRetry, AirflowVersion};

#[derive(Deserialize)]
struct Row {
    dag_id: String,
    task_id: String,
    logical_date: DateTime<FixedOffset>,
    date_text: String,
    source: Source,
    try_number: u32,
    #[serde(with = "stationmaster::seconds")]
    retry_delay_s: Duration,
    #[serde(with = "stationmaster::seconds::option")]
    max_retry_delay_s: Option<Duration>,
    exponential: bool,
    #[serde(with = "stationmaster::seconds")]
    cap_s: Duration,
    end_date: String,
    next_retry: Option<String>,
    error: Option<String>,
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Source {
    Stored,
    Memory,
}

impl Row {
    fn retry(&self) -> AirflowRetry<'_> {
        AirflowRetry::new(AirflowVersion::V2_10, &self.dag_id, &self.task_id)
            .try_number(self.try_number)
            .retry_delay(self.retry_delay_s)
            .multiplier(if self.exponential { 2.0 } else { 0.0 })
            .max_retry_delay(self.max_retry_delay_s)
            .cap(self.cap_s)
    }

    /// Returns the documented result for rows for which Airflow raised an exception: the cap, and then the
    /// maximum.
    fn saturated(&self) -> Duration {
        self.max_retry_delay_s.filter(|max| !max.is_zero()).map_or(self.cap_s, |max| max.min(self.cap_s))
    }
}

/// Compares with the recorded result, once with the text of the date and once with the date.
pub(crate) fn check(row: &Value) -> Result<(), String> {
    let row = Row::deserialize(row).map_err(|error| error.to_string())?;
    let end = DateTime::parse_from_rfc3339(&row.end_date).map_err(|error| format!("end_date: {error}"))?;
    let (expected, offset) = match (&row.next_retry, &row.error) {
        (Some(next), None) => {
            let next = DateTime::parse_from_rfc3339(next).map_err(|error| format!("next_retry: {error}"))?;
            (next, *next.offset())
        }
        (None, Some(_)) => (end + row.saturated(), *end.offset()),
        _ => return Err("has neither next_retry nor error, or both".to_owned()),
    };
    let date = match row.source {
        Source::Memory => row.logical_date,
        Source::Stored => row.logical_date.to_utc().fixed_offset(),
    };
    for (by, retry) in
        [("text", row.retry().hashed_date(&row.date_text)), ("date", row.retry().logical_date(date))]
    {
        let answer = retry.next_retry(end);
        if answer != expected || *answer.offset() != offset {
            return Err(format!(
                "expected {}, got {} by the {by} {}",
                expected.to_rfc3339(),
                answer.to_rfc3339(),
                row.date_text
            ));
        }
    }
    Ok(())
}
