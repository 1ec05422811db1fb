//! Stub, replaced at the merge.
#![allow(missing_docs)]
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PokeContext(Arc<str>);
impl PokeContext {
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        let v: serde_json::Value = serde_json::from_str(text)?;
        Ok(Self(v.to_string().into()))
    }
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
impl Serialize for PokeContext {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.0)
    }
}
impl<'de> Deserialize<'de> for PokeContext {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let t = String::deserialize(d)?;
        Self::from_json(&t).map_err(serde::de::Error::custom)
    }
}
