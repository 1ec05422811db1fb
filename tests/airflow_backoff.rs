//! The recorded answers of Airflow 2.11.2, and a file that was tampered with.

#[path = "../examples/airflow_vectors/backoff.rs"]
mod vectors;

use chrono::DateTime;
use serde_json::{Value, json};
use stationmaster::TaskKey;
use stationmaster::backoff::{AirflowVersion, RetryKey, RetryPolicy, delay};

fn rows() -> serde_json::Result<Vec<Value>> {
    let text = include_str!("data/airflow/backoff.jsonl");
    text.lines().map(serde_json::from_str).collect()
}

#[test]
fn every_recorded_answer_is_given() {
    let rows = rows().unwrap();
    assert_eq!(rows.len(), 2_172);
    for row in rows {
        assert_eq!(vectors::check(&row), Ok(()), "{}", row["id"]);
    }
}

#[test]
fn a_changed_answer_is_noticed() {
    for mut row in rows().unwrap().into_iter().filter(|row| row["next_retry"].is_string()) {
        let next = DateTime::parse_from_rfc3339(row["next_retry"].as_str().unwrap()).unwrap();
        row["next_retry"] = json!((next + chrono::Duration::microseconds(1)).to_rfc3339());
        assert!(vectors::check(&row).is_err(), "{}", row["id"]);
    }
}

/// What a host stores is the policy, not the row: it must come to the same, also after JSON.
#[test]
fn the_policy_gives_the_recorded_answers() {
    let mut compared = 0;
    for row in rows().unwrap() {
        let (Some(next), "stored") = (row["next_retry"].as_str(), row["source"].as_str().unwrap()) else {
            continue;
        };
        let seconds = |field: &str| serde_json::to_string(&row[field]).unwrap();
        let multiplier = if row["exponential"] == json!(true) { 2 } else { 1 };
        let policy: RetryPolicy = serde_json::from_str(&format!(
            r#"{{"airflow":"2.10","delay_s":{},"max_delay_s":{},"cap_s":{},"multiplier":{multiplier}}}"#,
            seconds("retry_delay_s"),
            seconds("max_retry_delay_s"),
            seconds("cap_s"),
        ))
        .unwrap();
        assert_eq!(policy.airflow_version(), Some(AirflowVersion::V2_10));
        let (dag, task) = (row["dag_id"].as_str().unwrap(), row["task_id"].as_str().unwrap());
        let task = TaskKey::new("any", dag, "any", task).unwrap();
        let date = DateTime::parse_from_rfc3339(row["logical_date"].as_str().unwrap()).unwrap();
        let key = RetryKey::new(&task).logical_date(date.to_utc());
        let end = DateTime::parse_from_rfc3339(row["end_date"].as_str().unwrap()).unwrap();
        let attempt = row["try_number"].as_u64().unwrap() as u32;
        let answer = end + delay(&policy, &key, attempt);
        assert_eq!(answer, DateTime::parse_from_rfc3339(next).unwrap(), "{}", row["id"]);
        compared += 1;
    }
    assert!(compared > 1_000, "{compared}");
}
