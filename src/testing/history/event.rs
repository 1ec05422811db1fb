//! What the processes record.

use serde::{Deserialize, Serialize};

/// An instant of a clock that all processes share, in any unit. The stores' lease instants are from the same
/// clock.
pub type Instant = u64;

/// One granted lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The task's number.
    pub task: i64,
    /// The grant's epoch.
    pub epoch: i64,
    /// The pool.
    pub pool: String,
    /// Slots of it.
    pub slots: u32,
    /// When it expires unless renewed.
    pub expires_at: Instant,
    /// What else it takes, by name: slots of other pools, and counts against limit keys. 0 means that the
    /// task only belongs to it: to its queue, or to the family of a key.
    #[serde(default)]
    pub also: Vec<(String, u32)>,
}

impl Grant {
    /// Creates a grant that takes only slots of one pool.
    pub fn new(task: i64, epoch: i64, pool: &str, slots: u32, expires_at: Instant) -> Self {
        Self { task, epoch, pool: pool.to_owned(), slots, expires_at, also: Vec::new() }
    }

    /// Returns everything that it takes, or belongs to.
    pub(super) fn takes(&self) -> impl Iterator<Item = (&str, u32)> {
        let also = self.also.iter().map(|(name, count)| (name.as_str(), *count));
        std::iter::once((self.pool.as_str(), self.slots)).chain(also)
    }
}

/// A lease that an operation was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId {
    /// The task's number.
    pub task: i64,
    /// The grant's epoch.
    pub epoch: i64,
}

/// An operation and its results. Without a return, the results stand for what may have happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Leases granted. Without a return: unknown, so empty.
    Admit(Vec<Grant>),
    /// Leases renewed until this instant: those that were accepted, or asked for if there was no return.
    Renew(Vec<LeaseId>, Instant),
    /// Leases ended by their holders: those that were accepted, or asked for if there was no return.
    End(Vec<LeaseId>),
    /// Leases ended because they had expired. Without a return: unknown, so empty.
    Reap(Vec<LeaseId>),
    /// A pool's size or a limit's maximum was set; `None` is unlimited.
    Resize(String, Option<u32>),
    /// The named subject was paused; with `false`, resumed.
    Pause(String, bool),
}

/// One operation of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When it was invoked.
    pub invoked: Instant,
    /// When it returned; `None` if the process died before.
    pub returned: Option<Instant>,
    /// What it was.
    pub operation: Operation,
}
