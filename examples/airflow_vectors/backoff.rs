//! Rows with an answer of `TaskInstance.next_retry_datetime` of Airflow 2.11.2.

use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use serde::Deserialize;
use serde_json::Value;
use stationmaster::backoff::{AirflowRetry, AirflowVersion};
use stationmaster::seconds;

#[derive(Deserialize)]
struct Row {
    dag_id: String,
    task_id: String,
    logical_date: DateTime<FixedOffset>,
    date_text: String,
    source: Source,
    try_number: u32,
    #[serde(with = "seconds")]
    retry_delay_s: Duration,
    #[serde(with = "seconds::option")]
    max_retry_delay_s: Option<Duration>,
    exponential: bool,
    #[serde(with = "seconds")]
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
    /// When this try, which ended then, is followed by the next one.
    fn next_retry(&self, retry: AirflowRetry<'_>, end: DateTime<FixedOffset>) -> DateTime<FixedOffset> {
        retry
            .try_number(self.try_number)
            .retry_delay(self.retry_delay_s)
            .multiplier(if self.exponential { 2.0 } else { 0.0 })
            .max_retry_delay(self.max_retry_delay_s)
            .cap(self.cap_s)
            .next_retry(end)
    }

    /// What is documented to be answered where Airflow raised: the cap, and then the maximum.
    fn saturated(&self) -> Duration {
        self.max_retry_delay_s.filter(|max| !max.is_zero()).map_or(self.cap_s, |max| max.min(self.cap_s))
    }
}

/// The date as Python prints it.
fn as_python(date: DateTime<FixedOffset>) -> String {
    let fraction = if date.timestamp_subsec_micros() == 0 { "" } else { "%.6f" };
    date.format(&format!("%Y-%m-%d %H:%M:%S{fraction}%:z")).to_string()
}

/// Compares with the recorded answer, once with the text of the date and once with the date.
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
    let version = AirflowVersion::V2_10;
    let by_text = AirflowRetry::new(version, &row.dag_id, &row.task_id, row.date_text.as_str());
    let by_date = AirflowRetry::new(version, &row.dag_id, &row.task_id, date);
    for (retry, date) in [(by_text, &row.date_text), (by_date, &as_python(date))] {
        let answer = row.next_retry(retry, end);
        if answer != expected || *answer.offset() != offset {
            return Err(format!(
                "expected {}, got {} with date {date}",
                expected.to_rfc3339(),
                answer.to_rfc3339()
            ));
        }
    }
    Ok(())
}
