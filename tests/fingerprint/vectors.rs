//! The published vectors; also compiled into the test crate that turns on the features of `serde_json`.

use serde::Deserialize;
use serde_json::Value;
use stationmaster::canonical::{CanonicalError, PokeContext};
use stationmaster::fingerprint::Fingerprint;
use stationmaster::id::SensorKind;

#[derive(Deserialize)]
struct Vector {
    kind: SensorKind,
    json: String,
    canonical: Option<String>,
    fingerprint: Option<Fingerprint>,
    error: Option<String>,
}

fn name(error: &CanonicalError) -> &'static str {
    match error {
        CanonicalError::Syntax { .. } => "syntax",
        CanonicalError::NotFinite { .. } => "not_finite",
        CanonicalError::Number { .. } => "number",
        CanonicalError::DuplicateKey { .. } => "duplicate_key",
        CanonicalError::TooDeep { .. } => "too_deep",
        CanonicalError::TooLarge { .. } => "too_large",
        CanonicalError::NotAnObject { .. } => "not_an_object",
        _ => "other",
    }
}

/// Compares all vectors; the message of a failure is the vector.
pub(crate) fn hold() -> serde_json::Result<()> {
    let text = include_str!("../data/fingerprint_vectors.jsonl");
    let mut held = 0;
    for line in text.lines() {
        let vector: Vector = serde_json::from_str(line)?;
        match PokeContext::from_json(&vector.json) {
            Ok(context) => {
                assert_eq!(Some(context.as_str()), vector.canonical.as_deref(), "{line}");
                assert_eq!(Some(Fingerprint::new(&vector.kind, &context)), vector.fingerprint, "{line}");
                let value = context.to_value();
                assert_eq!(PokeContext::from_value(&value).as_ref(), Ok(&context), "{line}");
                let embedded = serde_json::to_string(&context)?;
                assert_eq!(serde_json::from_str::<PokeContext>(&embedded)?, context, "{line}");
                serde_json::from_str::<Value>(context.as_str())?;
            }
            Err(error) => assert_eq!(Some(name(&error)), vector.error.as_deref(), "{line}: {error}"),
        }
        held += 1;
    }
    assert!(held > 250, "{held}");
    Ok(())
}
