//! One text for each JSON value, the same in every build and in every language.
//!
//! Sensors that wait for the same thing are found by comparing what they wait for. The bytes of
//! `serde_json::to_string` are unsuitable: they change with cargo features that any crate in the host's graph
//! can turn on. This module writes JSON itself, by RFC 8785 (JSON Canonicalization Scheme) with one
//! difference, marked (*):
//!
//! * There is no white space. Members are sorted by the UTF-16 code units of their keys.
//! * Strings have the shortest escapes: `\"`, `\\`, `\b`, `\t`, `\n`, `\f`, `\r`. Other characters below
//!   U+0020 are `\u00xx` in lower case, and all others are unchanged. There is no Unicode normalisation.
//! * (*) 64-bit integers, signed or unsigned, are written exactly.
//! * Other numbers are written as JavaScript prints a double: `1.0` and `1e0` become `1`, `-0.0` becomes `0`,
//!   `1e-7` stays.
//!
//! The following are refused, with their path: duplicate keys, NaN and infinities, numbers that neither a
//! 64-bit integer nor a double represents exactly as written, lone surrogates, more than [`MAX_DEPTH`]
//! levels, and more than [`MAX_BYTES`] bytes.
//!
//! [`PokeContext::from_json`] detects all of these. A [`serde_json::Value`] has already lost some of them.
//! `serde_json` keeps the last of duplicate keys and turns a long number into the nearest double. By default
//! it sometimes misses that double by a unit in the last place. If you have the text, pass the text.

mod error;
mod number;
mod parse;
mod write;

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

pub use error::CanonicalError;

/// The maximum nesting depth of arrays and objects; the outermost is level 1.
pub const MAX_DEPTH: usize = 64;

/// The longest canonical text, in bytes.
pub const MAX_BYTES: usize = 64 * 1024;

/// What a sensor waits for: a JSON object in its canonical form.
///
/// Two contexts are equal if their bytes are equal. They are also ordered by their bytes, and cloning one
/// copies no data. In serde, a context is a string that contains the canonical text, because embedded JSON
/// would go through number parsers that are not exact. Text read from serde is made canonical or refused.
///
/// # Examples
///
/// ```
/// use serde_json::json;
/// use stationmaster::canonical::PokeContext;
///
/// let context = PokeContext::from_value(&json!({"table": "sales", "ds": "2026-01-01", "min": 1.0}))?;
/// assert_eq!(context.as_str(), r#"{"ds":"2026-01-01","min":1,"table":"sales"}"#);
///
/// let same = PokeContext::from_json(r#" { "min": 1, "table": "sales", "ds": "2026-01-01" } "#)?;
/// assert_eq!(context, same);
///
/// let error = PokeContext::from_json(r#"{"tables": [{"name": "a", "name": "b"}]}"#).unwrap_err();
/// assert_eq!(error.to_string(), "$.tables[0].name occurs twice: keep one of them");
/// # Ok::<(), stationmaster::canonical::CanonicalError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PokeContext(Arc<str>);

impl PokeContext {
    /// Creates a context from this JSON object.
    ///
    /// # Errors
    ///
    /// Returns [`CanonicalError`] if the value is not an object, or is too deep or too large.
    pub fn from_value(value: &Value) -> Result<Self, CanonicalError> {
        if !value.is_object() {
            return Err(CanonicalError::NotAnObject { found: name_of(value) });
        }
        write::value(value).map(|text| Self(text.into()))
    }

    /// Creates a context from this text, which must contain one JSON object.
    ///
    /// # Errors
    ///
    /// Returns [`CanonicalError`] if the text is not JSON, is not an object, is too deep or too large, or has
    /// a duplicate key or a number that would not survive.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::canonical::{CanonicalError, PokeContext};
    ///
    /// let lost = PokeContext::from_json(r#"{"id": 18446744073709551617}"#);
    /// assert!(matches!(lost, Err(CanonicalError::Number { path, .. }) if path == "$.id"));
    /// ```
    pub fn from_json(text: &str) -> Result<Self, CanonicalError> {
        let node = parse::document(text)?;
        if !matches!(node, parse::Node::Object(_)) {
            return Err(CanonicalError::NotAnObject { found: node.name() });
        }
        write::node(&node).map(|text| Self(text.into()))
    }

    /// Returns the context stored as this text, if `vouch` confirms that it is unchanged. For stores.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn vouched(text: &str, vouch: impl FnOnce(&Self) -> bool) -> Option<Self> {
        let context = Self(text.into());
        vouch(&context).then_some(context)
    }

    /// Creates a context from a value that serialises to a JSON object.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`from_value`](Self::from_value), and [`CanonicalError::Serialize`] if the value
    /// does not serialise. Note that `serde_json` turns NaN and infinities into `null`.
    ///
    /// # Examples
    ///
    /// ```
    /// #[derive(serde::Serialize)]
    /// struct Partition<'a> {
    ///     table: &'a str,
    ///     ds: &'a str,
    /// }
    ///
    /// use stationmaster::canonical::PokeContext;
    /// let context = PokeContext::of(&Partition { table: "sales", ds: "2026-01-01" })?;
    /// assert_eq!(context.as_str(), r#"{"ds":"2026-01-01","table":"sales"}"#);
    /// # Ok::<(), stationmaster::canonical::CanonicalError>(())
    /// ```
    pub fn of<T: Serialize + ?Sized>(fields: &T) -> Result<Self, CanonicalError> {
        match serde_json::to_value(fields) {
            Ok(value) => Self::from_value(&value),
            Err(error) => Err(CanonicalError::Serialize { problem: error.to_string() }),
        }
    }

    /// Returns the canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the JSON object, with every number unchanged.
    pub fn to_value(&self) -> Value {
        // This type contains only text that this module wrote, so it parses.
        parse::document(&self.0).map_or(Value::Null, parse::Node::into_value)
    }

    /// Reads the fields back into one of the host's types. A poke function does this first.
    ///
    /// # Errors
    ///
    /// Returns an error if the object does not fit the type.
    ///
    /// # Examples
    ///
    /// ```
    /// #[derive(serde::Deserialize)]
    /// struct Partition {
    ///     table: String,
    /// }
    ///
    /// use stationmaster::canonical::PokeContext;
    /// let context = PokeContext::from_json(r#"{"table":"sales"}"#)?;
    /// assert_eq!(context.decode::<Partition>()?.table, "sales");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_value(self.to_value())
    }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

impl fmt::Debug for PokeContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for PokeContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for PokeContext {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for PokeContext {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::str::FromStr for PokeContext {
    type Err = CanonicalError;
    fn from_str(text: &str) -> Result<Self, CanonicalError> {
        Self::from_json(text)
    }
}

impl TryFrom<&Value> for PokeContext {
    type Error = CanonicalError;
    fn try_from(value: &Value) -> Result<Self, CanonicalError> {
        Self::from_value(value)
    }
}

impl Serialize for PokeContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PokeContext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::from_json(&text).map_err(serde::de::Error::custom)
    }
}
