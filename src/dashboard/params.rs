//! The parameters of a query or a form, and links with parameters.

use std::str::FromStr;

use form_urlencoded::Serializer;

use super::trouble::Trouble;
use crate::error::Invalid;
use crate::id::TaskKey;

/// Names and values as they were sent.
#[derive(Debug, Default)]
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(form_urlencoded::parse(bytes).into_owned().collect())
    }

    /// Returns the first value of this name. An empty value counts as missing, because forms send all their
    /// fields.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(known, _)| known == name)?;
        Some(value.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns all values of this name.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn parsed<T: FromStr<Err = Invalid>>(&self, name: &str) -> Result<Option<T>, Trouble> {
        let parse = |value: &str| value.parse().map_err(|error| Trouble::bad(format!("{name}: {error}")));
        self.get(name).map(parse).transpose()
    }

    /// Returns the task whose key is given in full.
    pub(super) fn task(&self) -> Result<TaskKey, Trouble> {
        let need = |name: &str| {
            self.get(name).ok_or_else(|| {
                Trouble::bad(format!(
                    "The name of the {name} is missing: a task has four, and perhaps an index."
                ))
            })
        };
        let key = TaskKey::new(need("namespace")?, need("workflow")?, need("run")?, need("task")?)?;
        match self.get("index") {
            None => Ok(key),
            Some(index) => {
                let index =
                    index.parse().map_err(|_| Trouble::bad("index: it is a whole number of 0 or more"))?;
                Ok(key.mapped(index))
            }
        }
    }
}

/// Returns a link relative to the pages' own folder, which works wherever they are mounted.
pub(super) fn link<'a>(page: &str, params: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut query = Serializer::new(String::new());
    params.into_iter().filter(|(_, value)| !value.is_empty()).for_each(|(name, value)| {
        query.append_pair(name, value);
    });
    match query.finish() {
        empty if empty.is_empty() => page.to_owned(),
        query => format!("{page}?{query}"),
    }
}

/// Returns the parameters that name a task in a link or a form.
pub(super) fn of_task(key: &TaskKey) -> Vec<(&'static str, String)> {
    let mut params = vec![
        ("namespace", key.namespace.to_string()),
        ("workflow", key.workflow.to_string()),
        ("run", key.run.to_string()),
        ("task", key.task.to_string()),
    ];
    params.extend(key.map_index.map(|index| ("index", index.to_string())));
    params
}
