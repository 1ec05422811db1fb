//! Contexts and fingerprints do not depend on the features of `serde_json`.

#[path = "../../fingerprint/vectors.rs"]
mod vectors;

use serde_json::Value;
use stationmaster::canonical::PokeContext;

#[test]
fn the_published_vectors_hold() {
    vectors::hold().unwrap();
}

/// Values of numbers that each configuration of `serde_json` reads without loss.
#[test]
fn values_are_as_good_as_text() {
    for (json, canonical) in [
        (r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#),
        (r#"{"n":[1.0,1e0,1.00,-0,-0.0,0e9]}"#, r#"{"n":[1,1,1,0,0,0]}"#),
        (r#"{"n":[1e2,1E+2,0.5,-2.5e-3]}"#, r#"{"n":[100,100,0.5,-0.0025]}"#),
        (
            r#"{"n":[18446744073709551615,-9223372036854775808]}"#,
            r#"{"n":[18446744073709551615,-9223372036854775808]}"#,
        ),
        (r#"{"n":[18446744073709551616,1e300]}"#, r#"{"n":[18446744073709552000,1e+300]}"#),
    ] {
        let value: Value = serde_json::from_str(json).unwrap();
        assert_eq!(PokeContext::from_value(&value).unwrap().as_str(), canonical, "{json}");
    }
}

#[test]
fn beyond_doubles_is_refused_by_all() {
    let json = r#"{"n":1e400}"#;
    let refused = match serde_json::from_str::<Value>(json) {
        Ok(value) => PokeContext::from_value(&value).is_err(),
        Err(_) => true,
    };
    assert!(refused);
    assert!(PokeContext::from_json(json).is_err());
}
