//! The prefix of the store's tables.

use std::fmt;
use std::sync::Arc;

use crate::error::Invalid;
use crate::store::sql::renamed::Renamed;

/// The prefix in the crate's own SQL.
const WRITTEN: &str = "sm_";

/// The prefix of the store's table and index names, so that they can share a database with other tables.
///
/// Default: `sm_`. Cheap to clone. Create it once and keep it, since it caches the statements that use it.
///
/// # Examples
///
/// ```
/// use stationmaster::store::sqlite::Prefix;
/// assert_eq!(Prefix::default().as_str(), "sm_");
/// assert!(Prefix::new("jobs_").is_ok());
/// assert!(Prefix::new("Robert'); DROP").is_err());
/// ```
#[derive(Clone)]
pub struct Prefix {
    text: Arc<str>,
    renamed: Renamed,
}

impl Prefix {
    /// Creates a prefix. It must have 1 to 32 of `a-z`, `0-9` and `_`, begin with a letter, and not begin with
    /// `sqlite_`.
    ///
    /// # Errors
    ///
    /// [`Invalid::Prefix`].
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        let text = text.as_ref();
        let plain = text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        let starts = text.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
        if !plain || !starts || text.len() > 32 || text.starts_with("sqlite_") {
            return Err(Invalid::Prefix { prefix: text.into() });
        }
        Ok(Self { text: text.into(), renamed: Renamed::default() })
    }

    /// Returns the text, as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the full name of a table of the store.
    pub(super) fn table(&self, name: &str) -> String {
        format!("{}{name}", self.text)
    }

    /// Returns a text with this prefix, without caching it.
    pub(super) fn apply(&self, sql: &str) -> String {
        sql.replace(WRITTEN, &self.text)
    }

    /// Calls `with` with a statement that has this prefix.
    pub(super) fn statement<T>(&self, sql: &'static str, with: impl FnOnce(&str) -> T) -> T {
        if &*self.text == WRITTEN {
            return with(sql);
        }
        with(&self.renamed.get(sql, |sql| self.apply(sql)))
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Self { text: WRITTEN.into(), renamed: Renamed::default() }
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, f)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&*self.text, f)
    }
}

impl PartialEq for Prefix {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Prefix {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_not_a_plain_identifier() {
        for bad in ["", "1a", "_a", "A", "a-b", "a\"", "é", "sqlite_x", &"a".repeat(33)] {
            assert!(Prefix::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn is_put_into_every_name_of_a_statement() {
        let prefix = Prefix::new("wf7_").unwrap();
        let put = prefix.statement("SELECT 1 FROM sm_task JOIN sm_lane", str::to_owned);
        assert_eq!(put, "SELECT 1 FROM wf7_task JOIN wf7_lane");
    }
}
