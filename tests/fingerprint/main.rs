//! Canonical contexts and fingerprints: the published vectors, and what holds for all documents.

mod vectors;

use std::num::NonZeroU32;

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use stationmaster::canonical::{CanonicalError, MAX_BYTES, PokeContext};
use stationmaster::fingerprint::Fingerprint;
use stationmaster::id::SensorKind;
use stationmaster::shard::{DEFAULT_CODES, code, range};

#[test]
fn the_published_vectors_hold() {
    vectors::hold().unwrap();
}

fn documents() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-1e25..1e25).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    });
    prop::collection::vec((any::<String>(), value), 0..6)
        .prop_map(|members| Value::Object(members.into_iter().collect()))
}

/// The same JSON with white space, and the members of each object in another order.
fn scrambled(value: &Value, seed: usize) -> String {
    match value {
        Value::Object(members) => {
            let mut written: Vec<_> = members
                .iter()
                .map(|(key, member)| format!(" {} : {}\n", json!(key), scrambled(member, seed / 3)))
                .collect();
            let turn = seed % written.len().max(1);
            written.rotate_left(turn);
            if seed % 2 == 1 {
                written.reverse();
            }
            format!("{{{}}}", written.join(","))
        }
        Value::Array(elements) => {
            let written: Vec<_> = elements.iter().map(|element| scrambled(element, seed / 3)).collect();
            format!("[\t{}]", written.join(" , "))
        }
        other => other.to_string(),
    }
}

proptest! {
    #[test]
    fn the_canonical_form_is_its_own_canonical_form(document in documents()) {
        let context = PokeContext::from_value(&document).unwrap();
        prop_assert_eq!(&PokeContext::from_json(context.as_str()).unwrap(), &context);
        prop_assert_eq!(&PokeContext::from_value(&context.to_value()).unwrap(), &context);
        let json = serde_json::to_string(&context).unwrap();
        prop_assert_eq!(&serde_json::from_str::<PokeContext>(&json).unwrap(), &context);
    }

    #[test]
    fn the_order_of_members_does_not_matter(document in documents(), seed in any::<usize>()) {
        let context = PokeContext::from_value(&document).unwrap();
        prop_assert_eq!(PokeContext::from_json(&scrambled(&document, seed)).unwrap(), context);
    }

    #[test]
    fn another_document_is_another_context(a in documents(), b in documents()) {
        let (a, b) = (PokeContext::from_value(&a).unwrap(), PokeContext::from_value(&b).unwrap());
        let kind = SensorKind::new("k").unwrap();
        prop_assert_eq!(a == b, Fingerprint::new(&kind, &a) == Fingerprint::new(&kind, &b));
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        let _ = PokeContext::from_json(&text);
    }

    #[test]
    fn damaged_json_is_read_or_refused(document in documents(), at in any::<usize>(), with in any::<char>()) {
        let mut text: Vec<char> = document.to_string().chars().collect();
        let at = at % text.len();
        text[at] = with;
        let _ = PokeContext::from_json(&text.iter().collect::<String>());
    }

    #[test]
    fn what_is_read_is_json_to_others_too(document in documents()) {
        let context = PokeContext::from_value(&document).unwrap();
        let theirs: Value = serde_json::from_str(context.as_str()).unwrap();
        let keys = |value: &Value| value.as_object().map(|members| members.keys().cloned().collect::<Vec<_>>());
        let sorted = |value: &Value| keys(value).map(|mut keys| { keys.sort(); keys });
        prop_assert_eq!(sorted(&theirs), sorted(&document));
    }
}

#[test]
fn errors_name_the_path() {
    for (text, message) in [
        (
            r#"{"a":{"b c":[0,{"d":NaN}]}}"#,
            r#"$.a["b c"][1].d is NaN: JSON has no such number, use null or a string"#,
        ),
        (r#"{"a":[1e999]}"#, "$.a[0] is 1e999, which does not survive as a number: use a string"),
        (r#"{"a":{"":1,"":2}}"#, r#"$.a[""] occurs twice: keep one of them"#),
        (r#"{"a":tru}"#, "not JSON at byte 5, in $.a: expected a value"),
        (r#"[1]"#, "$ is an array: a poke context is an object of named fields"),
    ] {
        assert_eq!(PokeContext::from_json(text).unwrap_err().to_string(), message);
    }
    let deep = (0..64).fold(json!({}), |inner, _| json!([inner]));
    let path = format!("$.x{}", "[0]".repeat(63));
    assert_eq!(PokeContext::from_value(&json!({ "x": deep })), Err(CanonicalError::TooDeep { path }));
}

#[test]
fn size_is_bounded() {
    let of = |length: usize| PokeContext::from_value(&json!({ "a": "x".repeat(length) }));
    let around = r#"{"a":""}"#.len();
    assert_eq!(of(MAX_BYTES - around).unwrap().as_str().len(), MAX_BYTES);
    assert!(matches!(of(MAX_BYTES - around + 1), Err(CanonicalError::TooLarge { .. })));
    let blank = format!("{{{}}}", " ".repeat(MAX_BYTES * 15));
    assert_eq!(PokeContext::from_json(&blank).unwrap().as_str(), "{}");
    let blank = format!("{{{}}}", " ".repeat(MAX_BYTES * 16));
    assert!(matches!(PokeContext::from_json(&blank), Err(CanonicalError::TooLarge { .. })));
    let brackets = "[".repeat(1_000_000);
    assert!(matches!(PokeContext::from_json(&brackets), Err(CanonicalError::TooDeep { .. })));
}

#[test]
fn fields_of_the_hosts_come_back() {
    let context = PokeContext::of(&json!({"x": 0.1, "y": u64::MAX, "z": i64::MIN})).unwrap();
    let back: Map<String, Value> = context.decode().unwrap();
    assert_eq!(back["x"].as_f64(), Some(0.1));
    assert_eq!(back["y"].as_u64(), Some(u64::MAX));
    assert_eq!(back["z"].as_i64(), Some(i64::MIN));
    let nan = PokeContext::of(&std::collections::BTreeMap::from([(vec![1], 2)]));
    assert!(matches!(nan, Err(CanonicalError::Serialize { .. })));
}

/// The contexts of sensors are alike: counters, dates, tables. Codes and owners must be even all the same.
#[test]
fn a_million_fingerprints_are_spread_evenly() {
    const SENSORS: u32 = 1_000_000;
    let kind = SensorKind::new("hive.NamedPartition").unwrap();
    let (limit, workers) = (DEFAULT_CODES, NonZeroU32::new(16).unwrap());
    let mut codes = vec![0u32; limit.get() as usize];
    let ranges: Vec<_> = (0..workers.get()).map(|index| range(limit, workers, index)).collect();
    let mut owners = [0u32; 16];
    for sensor in 0..SENSORS {
        let text = format!(r#"{{"ds":"2026-{:02}","table":"t{}"}}"#, sensor % 12 + 1, sensor / 12);
        let code = code(Fingerprint::new(&kind, &PokeContext::from_json(&text).unwrap()), limit);
        codes[code as usize] += 1;
        owners[ranges.partition_point(|range| range.end <= code)] += 1;
    }
    // The 99.9 % points of chi-square with 9,999 and 15 degrees of freedom.
    for (counts, bound) in [(&codes[..], 10_442.7), (&owners[..], 37.7)] {
        let expected = f64::from(SENSORS) / counts.len() as f64;
        let statistic: f64 =
            counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        assert!(statistic < bound, "chi-square {statistic} of {} classes", counts.len());
    }
}
