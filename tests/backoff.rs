//! What holds for every policy, task and attempt.

use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;
use stationmaster::backoff::{
    AirflowVersion, DEFAULT_CAP, Decision, GiveUp, History, Jitter, RetryKey, RetryPolicy, decide, delay,
    preview,
};
use stationmaster::{TaskKey, Timestamp};

const BASE: Duration = Duration::from_secs(30);
const JITTERS: [Jitter; 5] =
    [Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated, Jitter::Hashed];

fn lengths() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::ZERO),
        Just(Duration::MAX),
        (0u64..10).prop_map(Duration::from_micros),
        (0u64..200_000_000_000).prop_map(Duration::from_micros),
        (any::<u64>(), 0u32..1_000_000_000).prop_map(|(secs, nanos)| Duration::new(secs, nanos)),
    ]
}

fn multipliers() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(1.0),
        Just(2.0),
        Just(f64::MAX),
        1.0..1.001,
        1.0..10.0,
        (0u64..1 << 61)
            .prop_map(|bits| { f64::from_bits(bits | 0x3FF0_0000_0000_0000).clamp(1.0, f64::MAX) })
    ]
}

fn attempts() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..12, 0u32..3_000, any::<u32>(), Just(u32::MAX)]
}

fn tasks() -> impl Strategy<Value = TaskKey> {
    let name = "[a-z\u{65e5}\u{1F600}#]{1,30}";
    (name, name, name, name, any::<Option<u32>>()).prop_filter_map(
        "names are refused",
        |(namespace, workflow, run, task, at)| {
            let key = TaskKey::new(namespace, workflow, run, task).ok()?;
            Some(match at {
                Some(index) => key.mapped(index),
                None => key,
            })
        },
    )
}

fn own_policies() -> impl Strategy<Value = RetryPolicy> {
    let jitter = prop::sample::select(JITTERS.to_vec());
    let optional = || prop::option::of(lengths());
    (lengths(), multipliers(), jitter, optional(), optional(), optional(), prop::option::of(attempts()))
        .prop_filter_map(
            "zero maxima and decorrelated fixed delays are refused",
            |(base, multiplier, jitter, cap, max, budget, attempts)| {
                let mut builder = RetryPolicy::exponential(base).multiplier(multiplier).jitter(jitter);
                builder = cap.into_iter().fold(builder, |builder, cap| builder.cap(cap));
                builder = max.into_iter().fold(builder, |builder, max| builder.max_delay(max));
                builder = budget.into_iter().fold(builder, |builder, budget| builder.budget(budget));
                attempts
                    .into_iter()
                    .fold(builder, |builder, attempts| builder.max_attempts(attempts))
                    .build()
                    .ok()
            },
        )
}

fn policies() -> impl Strategy<Value = RetryPolicy> {
    let version = prop::sample::select(vec![
        AirflowVersion::V2_5,
        AirflowVersion::V2_6,
        AirflowVersion::V2_10,
        AirflowVersion::V3_2,
    ]);
    let airflow = (version, lengths(), multipliers(), prop::option::of(lengths())).prop_filter_map(
        "airflow policies are taken",
        |(version, delay, multiplier, max)| {
            let multiplier =
                if version == AirflowVersion::V3_2 { multiplier } else { multiplier.floor().min(2.0) };
            let builder = RetryPolicy::airflow(version, delay).multiplier(multiplier);
            max.into_iter().fold(builder, |builder, max| builder.max_delay(max)).build().ok()
        },
    );
    prop_oneof![4 => own_policies(), 1 => airflow]
}

fn instants() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        any::<i64>().prop_map(Timestamp::from_micros),
        (0i64..1 << 52).prop_map(Timestamp::from_micros)
    ]
}

fn maximum(policy: &RetryPolicy) -> Duration {
    policy.max_delay().map_or(policy.cap(), |max| max.min(policy.cap()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_answer_is_total_and_capped(
        policy in policies(), task in tasks(), attempt in attempts(), date in any::<Option<i64>>(),
    ) {
        let mut key = RetryKey::new(&task);
        key.logical_date = date.map(Timestamp::from_micros);
        let wait = delay(&policy, &key, attempt);
        let fixed_by_airflow = policy.airflow_version().is_some() && policy.multiplier() == 1.0;
        prop_assert!(wait <= maximum(&policy) || fixed_by_airflow);
        prop_assert_eq!(wait.subsec_nanos() % 1_000, 0);
        prop_assert_eq!(wait, delay(&policy, &key, attempt));
    }

    #[test]
    fn the_same_through_json(policy in policies(), task in tasks(), attempt in attempts()) {
        let policy_again: RetryPolicy = serde_json::from_str(&serde_json::to_string(&policy).unwrap()).unwrap();
        let task_again: TaskKey = serde_json::from_str(&serde_json::to_string(&task).unwrap()).unwrap();
        prop_assert_eq!(&policy_again, &policy);
        let again = delay(&policy_again, &RetryKey::new(&task_again), attempt);
        prop_assert_eq!(delay(&policy, &RetryKey::new(&task), attempt), again);
        let value = serde_json::to_value(&policy).unwrap();
        prop_assert_eq!(serde_json::from_value::<RetryPolicy>(value).unwrap(), policy);
    }

    #[test]
    fn hashed_is_from_the_delay_to_its_double(base in 1u64..43_200, attempt in 1u32..20, task in tasks()) {
        let policy = RetryPolicy::exponential(Duration::from_secs(base)).build().unwrap();
        let grown = Duration::from_secs(base << (attempt - 1)).min(DEFAULT_CAP / 2);
        let wait = delay(&policy, &RetryKey::new(&task), attempt);
        prop_assert!((grown..grown * 2).contains(&wait), "{wait:?} of {grown:?}");
    }

    #[test]
    fn full_and_equal_stay_in_their_ranges(policy in own_policies(), task in tasks(), attempt in attempts()) {
        let text = serde_json::to_string(&policy).unwrap();
        let with = |jitter: &str| -> Duration {
            let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
            json["jitter"] = jitter.into();
            delay(&serde_json::from_value(json).unwrap(), &RetryKey::new(&task), attempt)
        };
        let whole = with("none");
        prop_assert!(with("full") < whole || whole.is_zero());
        prop_assert!(with("equal") < whole || whole <= Duration::from_micros(1));
        prop_assert!(with("equal") >= whole / 2 - Duration::from_nanos(500).min(whole / 2));
    }

    #[test]
    fn without_jitter_delays_never_fall(policy in own_policies(), task in tasks(), attempt in attempts()) {
        let json = serde_json::to_value(&policy).map(|mut json| { json["jitter"] = "none".into(); json }).unwrap();
        let policy: RetryPolicy = serde_json::from_value(json).unwrap();
        let key = RetryKey::new(&task);
        prop_assert!(delay(&policy, &key, attempt) <= delay(&policy, &key, attempt.saturating_add(1)));
        let most = Duration::from_micros(i64::MAX as u64).min(maximum(&policy));
        prop_assert_eq!(delay(&policy, &key, 1), policy.base().min(most));
    }

    #[test]
    fn decorrelated_follows_the_delay_before(
        base in 1u64..1_000_000, multiplier in 1.01..5.0, attempt in 2u32..250, task in tasks(),
    ) {
        let base = Duration::from_millis(base);
        let builder = RetryPolicy::exponential(base).multiplier(multiplier);
        let policy = builder.jitter(Jitter::Decorrelated).build().unwrap();
        let key = RetryKey::new(&task);
        let before = delay(&policy, &key, attempt - 1);
        let wait = delay(&policy, &key, attempt);
        let longest = before.mul_f64(2.0 * multiplier - 1.0).max(base) + Duration::from_micros(1);
        prop_assert!(wait >= base && wait <= longest);
    }

    #[test]
    fn decisions_keep_limits_and_budget(
        policy in policies(), task in tasks(), attempt in attempts(), start in instants(), failed in instants(),
        hint in prop::option::of(lengths()), override_delay in prop::option::of(lengths()),
    ) {
        let key = RetryKey::new(&task);
        let mut history = History::new(attempt, start, failed);
        history.hint = hint;
        history.override_delay = override_delay;
        match decide(&policy, &key, &history) {
            Decision::RetryAt(at) => {
                prop_assert!(policy.max_attempts().is_none_or(|most| attempt < most));
                prop_assert!(policy.budget().is_none_or(|budget| at.saturating_duration_since(start) <= budget));
                let floor = hint.unwrap_or_default().min(policy.cap());
                let floor = override_delay.unwrap_or(floor.max(delay(&policy, &key, attempt)));
                prop_assert_eq!(at, failed + floor);
            }
            Decision::GiveUp(GiveUp::RetryLimit { attempt: failed, max_attempts }) => {
                prop_assert!(failed == attempt && attempt >= max_attempts);
                prop_assert_eq!(Some(max_attempts), policy.max_attempts());
            }
            Decision::GiveUp(GiveUp::Budget { budget, needed }) => {
                prop_assert_eq!(Some(budget), policy.budget());
                prop_assert!(needed > budget);
            }
            other => prop_assert!(false, "{:?}", other),
        }
        let json = serde_json::to_string(&history).unwrap();
        let again: History = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(again.attempt, history.attempt);
    }

    #[test]
    fn the_preview_is_what_is_decided(policy in policies(), task in tasks(), n in 0u32..20) {
        let key = RetryKey::new(&task);
        let start = Timestamp::UNIX_EPOCH;
        let mut decided = Vec::new();
        let mut now = start;
        for attempt in 1..=n {
            let Decision::RetryAt(at) = decide(&policy, &key, &History::new(attempt, start, now)) else { break };
            decided.push(at);
            now = at;
        }
        let retries = preview(&policy, &key, n);
        prop_assume!(retries.clone().all(|retry| retry.total < Duration::from_secs(1 << 40)));
        let previewed: Vec<_> = retries.map(|retry| start + retry.total).collect();
        prop_assert_eq!(previewed, decided);
    }
}

#[test]
fn at_the_cap_retries_stay_spread() {
    for jitter in [Jitter::Full, Jitter::Equal, Jitter::Decorrelated, Jitter::Hashed] {
        for attempt in [13, 40, 1_000, u32::MAX] {
            let policy = RetryPolicy::exponential(BASE).jitter(jitter).build().unwrap();
            let instants: HashSet<_> = (0..1_000)
                .map(|index| {
                    let task = TaskKey::new("n", "w", "r", "t").unwrap().mapped(index);
                    delay(&policy, &RetryKey::new(&task), attempt)
                })
                .collect();
            assert!(instants.len() > 990, "{jitter:?}, attempt {attempt}: {} instants", instants.len());
            assert!(instants.iter().all(|wait| *wait < policy.cap()));
        }
    }
}

#[test]
fn a_base_above_the_cap_stays_spread_too() {
    for jitter in [Jitter::Full, Jitter::Equal, Jitter::Decorrelated, Jitter::Hashed] {
        let policy = RetryPolicy::exponential(DEFAULT_CAP * 10).jitter(jitter).build().unwrap();
        let waits = (0..100).map(|index| {
            let task = TaskKey::new("n", "w", "r", "t").unwrap().mapped(index);
            delay(&policy, &RetryKey::new(&task), 1)
        });
        let waits: HashSet<_> = waits.collect();
        assert!(waits.len() > 95 && waits.iter().all(|wait| *wait < DEFAULT_CAP), "{jitter:?}");
    }
}

/// A fan-out of 100,000 fails at once: 64 classes of the range, chi-square within its 99.9 % point for 63
/// degrees of freedom.
#[test]
fn a_fan_out_is_spread_evenly() {
    for jitter in [Jitter::Full, Jitter::Equal, Jitter::Decorrelated, Jitter::Hashed] {
        let policy = RetryPolicy::exponential(BASE).jitter(jitter).build().unwrap();
        let (low, width) = match jitter {
            Jitter::Full => (0.0, 30.0),
            Jitter::Equal => (15.0, 15.0),
            Jitter::Hashed => (30.0, 30.0),
            _ => (30.0, 60.0),
        };
        let mut classes = [0u32; 64];
        for index in 0..100_000 {
            let task = TaskKey::new("n", "w", "r", "t").unwrap().mapped(index);
            let wait = delay(&policy, &RetryKey::new(&task), 1).as_secs_f64();
            classes[((wait - low) / width * 64.0) as usize] += 1;
        }
        let expected = 100_000.0 / 64.0;
        let statistic: f64 =
            classes.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        assert!(statistic < 103.5, "{jitter:?}: chi-square {statistic}");
    }
}

/// Microseconds from an independent implementation. They must never change: retries that are planned would
/// move.
#[test]
fn delays_are_pinned() {
    let task = TaskKey::new("prod", "nightly", "2026-01-01", "load").unwrap();
    let other = TaskKey::new("日", "次", "😀", "x").unwrap().mapped(7);
    let rows = [
        (task.clone(), 1, [16453024, 23226512, 46453024, 38448255]),
        (task.clone(), 2, [23966418, 41983209, 83966418, 64559002]),
        (task.clone(), 7, [1576455253, 1748227626, 3496455253, 37670792]),
        (task.clone(), 40, [28833021900, 57616510950, 57616510950, 1019460006]),
        (task.clone(), 300, [46037560105, 66218780052, 66218780052, 14434821296]),
        (task.clone().mapped(0), 1, [13070509, 21535254, 43070509, 60636701]),
        (task.clone().mapped(0), 300, [76893248718, 81646624359, 81646624359, 4363326060]),
        (other.clone(), 1, [27804369, 28902184, 57804369, 51655344]),
        (other.clone(), 2, [849516, 30424758, 60849516, 53698942]),
        (other, 300, [61355996138, 73877998069, 73877998069, 17249603033]),
    ];
    for (task, attempt, expected) in rows {
        for (jitter, expected) in
            [Jitter::Full, Jitter::Equal, Jitter::Hashed, Jitter::Decorrelated].into_iter().zip(expected)
        {
            let policy = RetryPolicy::exponential(BASE).jitter(jitter).build().unwrap();
            let wait = delay(&policy, &RetryKey::new(&task), attempt);
            assert_eq!(wait, Duration::from_micros(expected), "{task}, attempt {attempt}, {jitter:?}");
        }
    }
}

#[test]
fn a_hint_exceeds_the_maximum_but_not_the_cap() {
    let task = TaskKey::new("n", "w", "r", "t").unwrap();
    let key = RetryKey::new(&task);
    let policy = RetryPolicy::fixed(BASE).max_delay(BASE).build().unwrap();
    let decided = |history: History| match decide(&policy, &key, &history) {
        Decision::RetryAt(at) => at.as_micros() / 1_000_000,
        other => unreachable!("{other:?}"),
    };
    let failure = || History::new(1, Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
    assert_eq!(decided(failure()), 30);
    assert_eq!(decided(failure().hint(Duration::from_secs(5))), 30);
    assert_eq!(decided(failure().hint(Duration::from_secs(45))), 45);
    assert_eq!(decided(failure().hint(Duration::MAX)), 86_400);
    assert_eq!(decided(failure().hint(Duration::MAX).override_delay(Duration::from_secs(1))), 1);
    assert_eq!(decided(failure().override_delay(Duration::from_secs(100_000))), 100_000);
}

#[test]
fn the_budget_ends_with_its_last_instant() {
    let task = TaskKey::new("n", "w", "r", "t").unwrap();
    let key = RetryKey::new(&task);
    let policy = RetryPolicy::fixed(BASE).budget(Duration::from_secs(100)).build().unwrap();
    let fails_at = |seconds: i64| {
        decide(
            &policy,
            &key,
            &History::new(1, Timestamp::UNIX_EPOCH, Timestamp::from_micros(seconds * 1_000_000)),
        )
    };
    assert_eq!(fails_at(70), Decision::RetryAt(Timestamp::from_micros(100_000_000)));
    let spent = GiveUp::Budget { budget: Duration::from_secs(100), needed: Duration::from_secs(101) };
    assert_eq!(fails_at(71), Decision::GiveUp(spent));
    assert_eq!(
        spent.to_string(),
        "the next attempt would start 101s after the first, more than the budget of 100s"
    );
    let json = serde_json::to_string(&fails_at(71)).unwrap();
    assert_eq!(json, r#"{"give_up":{"budget":{"budget_s":100,"needed_s":101}}}"#);
    assert_eq!(serde_json::from_str::<Decision>(&json).unwrap(), fails_at(71));
}

#[test]
fn no_retries_means_none() {
    let task = TaskKey::new("n", "w", "r", "t").unwrap();
    let key = RetryKey::new(&task);
    let history =
        History::new(1, Timestamp::UNIX_EPOCH, Timestamp::from_micros(1)).override_delay(Duration::ZERO);
    let given_up = Decision::GiveUp(GiveUp::RetryLimit { attempt: 1, max_attempts: 1 });
    assert_eq!(decide(&RetryPolicy::none(), &key, &history), given_up);
    assert_eq!(preview(&RetryPolicy::none(), &key, u32::MAX).count(), 0);
}
