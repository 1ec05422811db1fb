//! The schema that the store's tables are in.

use std::fmt;
use std::sync::Arc;

use sha1::{Digest, Sha1};

use crate::error::Invalid;
use crate::store::sql::renamed::Renamed;

/// The schema in the crate's own SQL.
const WRITTEN: &str = "sm.";

/// The channel for notifications in the crate's own SQL.
const WRITTEN_CHANNEL: &str = "'sm_channel'";

/// The prefix of channels for notifications.
const CHANNEL: &str = "stationmaster_";

/// The name of the schema that the store's tables are in.
///
/// Default: `stationmaster`. It is quoted wherever it is used, and every table name is qualified with it; the
/// store ignores `search_path`. Cheap to clone. Create it once and keep it, since it caches the statements
/// that use it.
///
/// # Examples
///
/// ```
/// use stationmaster::store::postgres::Schema;
/// assert_eq!(Schema::default().as_str(), "stationmaster");
/// assert!(Schema::new("jobs_2").is_ok());
/// assert!(Schema::new("Robert'); DROP").is_err());
/// ```
#[derive(Clone)]
pub struct Schema {
    text: Arc<str>,
    renamed: Renamed,
}

impl TryFrom<&str> for Schema {
    type Error = Invalid;

    fn try_from(text: &str) -> Result<Self, Invalid> {
        Self::new(text)
    }
}

impl Schema {
    /// Creates a schema name, checking it: 1 to 63 of `a-z`, `0-9` and `_`, beginning with a letter, not with
    /// `pg_`.
    ///
    /// # Errors
    ///
    /// [`Invalid::Schema`].
    pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
        let text = text.as_ref();
        let plain = text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        let starts = text.as_bytes().first().is_some_and(u8::is_ascii_lowercase);
        if !plain || !starts || text.len() > 63 || text.starts_with("pg_") || text == "information_schema" {
            return Err(Invalid::Schema { schema: text.into() });
        }
        Ok(Self { text: text.into(), renamed: Renamed::default() })
    }

    /// Returns the text, as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the channel for notifications, of at most 63 bytes: `stationmaster_` and the schema, or a
    /// digest of a long one.
    pub(super) fn channel(&self) -> String {
        let name = match self.text.len() <= 63 - CHANNEL.len() {
            true => self.text.to_string(),
            false => format!("{:x}", Sha1::digest(self.text.as_bytes())),
        };
        format!("{CHANNEL}{name}")
    }

    /// Replaces the schema in a text that is used once.
    pub(super) fn apply(&self, sql: &str) -> String {
        let sql = sql.replace(WRITTEN, &format!("\"{}\".", self.text));
        sql.replace(WRITTEN_CHANNEL, &format!("'{}'", self.channel()))
    }

    /// Returns a statement with this schema, and caches it.
    pub(super) fn statement(&self, sql: &'static str) -> Arc<str> {
        self.renamed.get(sql, |sql| self.apply(sql))
    }
}

impl Default for Schema {
    fn default() -> Self {
        Self { text: "stationmaster".into(), renamed: Renamed::default() }
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text, f)
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&*self.text, f)
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Schema {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_only() {
        for bad in ["", "1a", "A", "a b", "a\"b", "a.b", "pg_catalog", "information_schema", &"a".repeat(64)]
        {
            assert!(Schema::new(bad).is_err(), "{bad}");
        }
        assert!(Schema::new("a".repeat(63)).is_ok());
    }

    #[test]
    fn channels_fit_and_differ() {
        let channel = |name: &str| Schema::new(name).unwrap().channel();
        assert_eq!(channel("jobs"), "stationmaster_jobs");
        assert_eq!(channel(&"a".repeat(49)).len(), 63);
        let (long, longer) = (channel(&"a".repeat(50)), channel(&"a".repeat(63)));
        assert!(long.len() <= 63 && longer.len() <= 63 && long != longer);
    }

    #[test]
    fn the_schema_is_quoted_and_qualifies_every_name() {
        let schema = Schema::new("table").unwrap();
        assert_eq!(schema.apply("SELECT no FROM sm.task"), "SELECT no FROM \"table\".task");
    }
}
