//! How a store is opened.

use std::time::Duration;

use super::prefix::Prefix;
use crate::store::Durability;

/// When a commit is on the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Synchronous {
    /// Before the call returns: commits survive the loss of power.
    #[default]
    Full,
    /// At the next checkpoint: commits survive the end of the process, but the last ones may be lost with the
    /// power, and then a task that was admitted by them runs twice. Many times faster for small transactions.
    Normal,
}

impl Synchronous {
    pub(super) fn pragma(self) -> &'static str {
        match self {
            Self::Full => "FULL",
            Self::Normal => "NORMAL",
        }
    }

    pub(super) fn durability(self) -> Durability {
        match self {
            Self::Full => Durability::Power,
            Self::Normal => Durability::Process,
        }
    }
}

/// How a [`super::SqliteStore`] is opened.
///
/// Defaults: table prefix `sm_`, busy timeout 10 s, [`Synchronous::Full`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::store::sqlite::{Prefix, SqliteOptions, Synchronous};
/// let options = SqliteOptions::new()
///     .prefix(Prefix::new("jobs_")?)
///     .busy_timeout(Duration::from_secs(2))
///     .synchronous(Synchronous::Normal);
/// assert_eq!(options.prefix.as_str(), "jobs_");
/// # Ok::<(), stationmaster::error::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// What the names of all tables and indexes begin with.
    pub prefix: Prefix,
    /// How long a call waits for another writer before it answers [`crate::error::StoreErrorKind::Busy`]. At
    /// most 24 days.
    pub busy_timeout: Duration,
    /// When a commit is on the medium.
    pub synchronous: Synchronous,
}

impl SqliteOptions {
    /// The defaults above.
    pub fn new() -> Self {
        Self {
            prefix: Prefix::default(),
            busy_timeout: Duration::from_secs(10),
            synchronous: Synchronous::Full,
        }
    }

    /// Sets the table prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: Prefix) -> Self {
        self.prefix = prefix;
        self
    }

    /// Sets how long a call waits for another writer.
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout.min(Duration::from_millis(i32::MAX as u64));
        self
    }

    /// Sets when a commit is on the medium.
    #[must_use]
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// The timeout within what SQLite takes, also if the field was set directly.
    pub(super) fn timeout(&self) -> Duration {
        self.busy_timeout.min(Duration::from_millis(i32::MAX as u64))
    }
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self::new()
    }
}
