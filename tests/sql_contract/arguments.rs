//! What the crate would refuse is refused.

use std::time::Duration;

use stationmaster::Timestamp;
use stationmaster::backoff::{AirflowVersion, Jitter, RetryPolicy};

use crate::world::{NOW, Value, Why, databases, good, key, values};

#[test]
fn what_the_crate_would_refuse_is_refused() {
    let long = "x".repeat(513);
    let keys: Vec<String> = (0..17).map(|n| format!("{n:02}")).collect();
    let mut bad: Vec<(usize, Value)> = Vec::new();
    for name in [1, 2, 3, 4, 6] {
        bad.extend([Value::Null, "".into(), long.as_str().into()].map(|value| (name, value)));
    }
    bad.extend(["".into(), Value::from(long.as_str())].map(|value| (16, value)));
    bad.push((0, Value::Null));
    bad.extend([-1, 1_i64 << 32].map(|value| (5, value.into())));
    bad.extend([Value::Null, 0_i64.into(), (1_i64 << 31).into()].map(|value| (7, value)));
    let arrays = ["", "{}", "[1]", "null", "[null]", r#"[""]"#, r#"["a""#, r#"["\u0000"]"#, r#"[["a"]]"#];
    bad.extend(arrays.map(|value| (8, value.into())));
    bad.extend([Value::Null, serde_json::to_string(&keys).unwrap().into()].map(|value| (8, value)));
    bad.push((8, serde_json::to_string(&[&long]).unwrap().into()));
    bad.extend([Value::Null, (1_i64 << 31).into(), (-(1_i64 << 31) - 1).into()].map(|value| (9, value)));
    bad.push((13, "{".into()));
    let (first, last) = (Timestamp::MIN.as_micros(), Timestamp::MAX.as_micros());
    for at in [0, 11, 12] {
        bad.extend([first - 1, last + 1, i64::MIN, i64::MAX].map(|value| (at, value.into())));
    }
    bad.extend([-1, 1_i64 << 32].map(|value| (14, value.into())));
    bad.extend([Value::Null, "x".repeat((1 << 20) + 1).into()].map(|value| (15, value)));
    for make in databases() {
        let world = make();
        let nothing = world.state(&[key("t")]);
        for (at, value) in &bad {
            let mut values = good();
            values[*at] = value.clone();
            let done = world.run("enqueue", &values);
            let refused = done.expect_err(&format!("parameter {} of {value:?}", at + 1));
            assert_eq!(refused.why(), Why::Argument, "parameter {} of {value:?}", at + 1);
        }
        assert_eq!(world.state(&[key("t")]), nothing, "nothing was changed");

        world.run("enqueue", &good()).unwrap();
        let lease = world.admit(NOW)[0].lease_ref();
        let before = world.state(&[key("t")]);
        let long = "x".repeat((1 << 20) + 1);
        for (outcome, text, retry_at) in [
            ("done", None, None),
            ("success", None, Some(5)),
            ("failed", Some(long.as_str()), None),
            ("success", Some(long.as_str()), None),
        ] {
            let refused = world.finish(lease, NOW, outcome, text, retry_at).unwrap_err();
            assert_eq!(refused.why(), Why::Argument, "{outcome}");
        }
        let null = None::<i64>;
        let end = |at: Option<i64>, outcome: Option<&str>| {
            values![at, lease.id.0, lease.epoch, outcome, null, null, null]
        };
        for (at, outcome) in [(None, Some("success")), (Some(NOW), None)] {
            assert_eq!(world.run("finish", &end(at, outcome)).unwrap_err().why(), Why::Argument);
        }
        let start = values![null, lease.id.0, lease.epoch];
        assert_eq!(world.run("start", &start).unwrap_err().why(), Why::Argument);
        assert_eq!(world.state(&[key("t")]), before);
    }
}

#[test]
fn instants_are_taken_as_far_as_the_crate_reads_them() {
    for make in databases() {
        let world = make();
        for (at, logical_date) in [Timestamp::MIN, Timestamp::MAX].into_iter().enumerate() {
            let mut values = good();
            values[4] = format!("t{at}").into();
            values[11] = logical_date.as_micros().into();
            world.run("enqueue", &values).unwrap();
        }
        let lease = world.admit(NOW)[0].lease_ref();
        let before = world.state(&[key("t0"), key("t1")]);
        for at in [i64::MIN, i64::MAX] {
            for refused in [
                world.start(lease, at),
                world.finish(lease, at, "success", None, None),
                world.finish(lease, NOW, "failed", None, Some(at)),
            ] {
                assert_eq!(refused.unwrap_err().why(), Why::Argument);
            }
        }
        assert_eq!(world.state(&[key("t0"), key("t1")]), before);
    }
}

/// One that could not be read would fail every tick of every admitter.
#[test]
fn a_retry_policy_is_taken_if_the_crate_can_read_it() {
    let second = Duration::from_secs(1);
    let built = [
        RetryPolicy::fixed(Duration::ZERO).build(),
        RetryPolicy::fixed(Duration::MAX).max_attempts(u32::MAX).budget(second).build(),
        RetryPolicy::exponential(Duration::from_micros(1))
            .multiplier(f64::MAX)
            .jitter(Jitter::Decorrelated)
            .build(),
        RetryPolicy::exponential(second)
            .cap(Duration::from_micros(1))
            .max_delay(second)
            .jitter(Jitter::None)
            .build(),
        RetryPolicy::airflow(AirflowVersion::V2_5, second).build(),
        RetryPolicy::airflow(AirflowVersion::V3_2, second).multiplier(1.5).max_attempts(4).build(),
    ];
    let refused = [
        "null",
        "3",
        "{}",
        "[]",
        "",
        r#"{"retries": 3}"#,
        r#"{"delay_s": "1"}"#,
        r#"{"delay_s": null}"#,
        r#"{"delay_s": -1}"#,
        r#"{"delay_s": 1e999}"#,
        r#"{"delay_s": 1, "delay_s": 1}"#,
        r#"{"delay_s": 1, "retries": 3}"#,
        r#"{"delay_s": 1, "max_attempts": 0}"#,
        r#"{"delay_s": 1, "max_attempts": 1.5}"#,
        r#"{"delay_s": 1, "max_attempts": 4294967296}"#,
        r#"{"delay_s": 1, "multiplier": 0.5}"#,
        r#"{"delay_s": 1, "cap_s": 0}"#,
        r#"{"delay_s": 1, "max_delay_s": 0}"#,
        r#"{"delay_s": 1, "budget_s": [1]}"#,
        r#"{"delay_s": 1, "jitter": "some"}"#,
        r#"{"delay_s": 1, "jitter": "decorrelated"}"#,
        r#"{"delay_s": 1, "airflow": "1.10"}"#,
        r#"{"delay_s": 1, "airflow": "3.2", "jitter": "full"}"#,
        r#"{"delay_s": 1, "airflow": "2.6", "multiplier": 3}"#,
    ];
    for make in databases() {
        let world = make();
        let take = |at: usize, json: &str| {
            let mut values = good();
            values[4] = format!("t{at}").into();
            values[13] = json.into();
            world.run("enqueue", &values)
        };
        for (at, policy) in built.iter().enumerate() {
            let json = serde_json::to_string(policy.as_ref().unwrap()).unwrap();
            take(at, &json).unwrap_or_else(|error| panic!("{json}: {error:?}"));
        }
        for json in refused {
            assert!(serde_json::from_str::<RetryPolicy>(json).is_err(), "{json}");
            assert_eq!(take(99, json).expect_err(json).why(), Why::Argument, "{json}");
        }
        // These are whole numbers to some readers, but not to the crate.
        for json in [r#"{"delay_s": 1, "max_attempts": 3.0}"#, r#"{"delay_s": 1, "max_attempts": 3e0}"#] {
            assert!(serde_json::from_str::<RetryPolicy>(json).is_err(), "{json}");
            assert_eq!(take(99, json).expect_err(json).why(), Why::Argument, "{json}");
        }
        assert_eq!(world.admit(NOW).len(), 3, "as many as the pool has slots");
    }
}
