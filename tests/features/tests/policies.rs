//! Policies and durations are read and written alike under all features of `serde_json`.

use std::time::Duration;

use serde_json::Value;
use stationmaster::backoff::{Jitter, RetryPolicy};

#[test]
fn policies_survive() {
    let policy = RetryPolicy::exponential(Duration::from_micros(333_333))
        .multiplier(1.7)
        .jitter(Jitter::Decorrelated)
        .cap(Duration::from_micros((1 << 30) * 1_000_000 - 1))
        .max_delay(Duration::from_secs(u64::MAX))
        .budget(Duration::from_micros(1))
        .max_attempts(3)
        .build()
        .unwrap();
    let text = serde_json::to_string(&policy).unwrap();
    assert_eq!(
        text,
        concat!(
            r#"{"delay_s":0.333333,"multiplier":1.7,"jitter":"decorrelated","cap_s":1073741823.999999,"#,
            r#""max_delay_s":9007199254740992,"max_attempts":3,"budget_s":1e-6}"#
        )
    );
    assert_eq!(serde_json::from_str::<RetryPolicy>(&text).unwrap(), policy);
    let longest = text.replace("9007199254740992", "18446744073709551615");
    assert_eq!(serde_json::from_str::<RetryPolicy>(&longest).unwrap(), policy);
    let value: Value = serde_json::from_str(&longest).unwrap();
    assert_eq!(serde_json::from_value::<RetryPolicy>(value).unwrap(), policy);
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::from_value::<RetryPolicy>(value).unwrap(), policy);
}
