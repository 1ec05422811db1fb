//! The fields of a JSON object, each read once. An error names the field.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// An object whose fields are removed one by one.
pub struct Fields {
    path: String,
    left: Map<String, Value>,
}

impl Fields {
    /// Reads the object at this path of the line.
    pub fn of(value: Value, path: &str) -> Result<Self, String> {
        match value {
            Value::Object(left) => Ok(Self { path: path.to_owned(), left }),
            _ => Err(format!("{path}: an object is expected")),
        }
    }

    fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Takes an optional field.
    pub fn maybe<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, String> {
        let Some(value) = self.left.remove(name) else { return Ok(None) };
        serde_json::from_value(value).map(Some).map_err(|error| format!("{}: {error}", self.at(name)))
    }

    /// Takes a required field.
    pub fn must<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, String> {
        self.maybe(name)?.ok_or_else(|| format!("{}: it is missing", self.at(name)))
    }

    /// Takes a field with a list of objects, and reads each of these. Empty if the field is missing.
    pub fn objects<T>(
        &mut self,
        name: &str,
        read: impl Fn(Fields) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let values: Vec<Value> = self.maybe(name)?.unwrap_or_default();
        let at = |place| format!("{}[{place}]", self.at(name));
        let each = values.into_iter().enumerate();
        each.map(|(place, value)| read(Fields::of(value, &at(place))?)).collect()
    }

    /// Takes a field with numbers by name. Empty if the field is missing.
    pub fn numbers(&mut self, name: &str) -> Result<BTreeMap<String, u32>, String> {
        Ok(self.maybe(name)?.unwrap_or_default())
    }

    /// Returns an error of this field in the words of the crate.
    pub fn wrong(&self, name: &str, error: impl std::fmt::Display) -> String {
        format!("{}: {error}", self.at(name))
    }

    /// Returns the names of the remaining fields.
    pub fn names(&self) -> Vec<String> {
        self.left.keys().cloned().collect()
    }

    /// Refuses fields that were not taken.
    pub fn end(self) -> Result<(), String> {
        match self.left.keys().next() {
            Some(name) => Err(format!("{}: no such field is known", self.at(name))),
            None => Ok(()),
        }
    }
}
