//! How a store is opened.

use std::time::Duration;

use super::prefix::Prefix;
use crate::base::setters;
use crate::store::Durability;

/// How a [`super::SqliteStore`] is opened.
///
/// Defaults: table prefix `sm_`, busy timeout 10 s, [`Durability::Power`], the file and tables are created, and
/// the store may write.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::store::Durability;
/// use stationmaster::store::sqlite::{Prefix, SqliteOptions};
/// let options = SqliteOptions::new()
///     .prefix(Prefix::new("jobs_")?)
///     .busy_timeout(Duration::from_secs(2))
///     .durability(Durability::Process);
/// assert_eq!(options.prefix.as_str(), "jobs_");
/// # Ok::<(), stationmaster::error::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The prefix of all table and index names.
    pub prefix: Prefix,
    /// How long a call waits for another writer before it returns [`crate::error::StoreErrorKind::Busy`]. At
    /// most 24 days.
    pub busy_timeout: Duration,
    /// What a commit survives once its call has returned.
    ///
    /// * `Power`: the pragma `synchronous = FULL`.
    /// * `Process` (or `None`): `NORMAL`. A power failure may lose the commits since the last checkpoint, and
    ///   a task that they admitted then runs twice. Many times faster for small transactions.
    pub durability: Durability,
    /// Whether opening creates the file, and creates or updates the tables. Otherwise a missing file is refused
    /// (kind `Io`), and so are missing or older tables (kind `Schema`). The host then applies
    /// [`super::migrations_sql_from`], or calls [`super::migrate`]. A database in memory is always created.
    pub apply_migrations: bool,
    /// Whether the file is opened only for reading. Nothing is created or updated, the journal mode stays as it
    /// is, and writes are refused (kind `ReadOnly`). In write-ahead mode SQLite keeps two files beside the
    /// database even for a reader. So the folder must be writable, or the files must exist.
    pub read_only: bool,
}

impl SqliteOptions {
    /// Returns the defaults above.
    pub fn new() -> Self {
        Self {
            prefix: Prefix::default(),
            busy_timeout: Duration::from_secs(10),
            durability: Durability::Power,
            apply_migrations: true,
            read_only: false,
        }
    }

    setters! {
        /// Sets the table prefix.
        prefix: Prefix;
        /// Sets what a commit survives.
        durability: Durability;
        /// Sets whether opening may create the file and change tables.
        apply_migrations: bool;
        /// Sets whether the file is opened only for reading.
        read_only: bool;
    }

    /// Sets how long a call waits for another writer.
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout.min(Duration::from_millis(i32::MAX as u64));
        self
    }

    /// Returns whether opening may create and change tables.
    pub(super) fn may_migrate(&self) -> bool {
        self.apply_migrations && !self.read_only
    }

    pub(super) fn pragma(&self) -> &'static str {
        if self.durability == Durability::Power { "FULL" } else { "NORMAL" }
    }

    /// Returns the timeout, limited to what SQLite accepts, even if the field was set directly.
    pub(super) fn timeout(&self) -> Duration {
        self.busy_timeout.min(Duration::from_millis(i32::MAX as u64))
    }
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self::new()
    }
}
