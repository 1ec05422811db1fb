//! Leases: a timed grant of slots to one holder, fenced by an epoch.
//!
//! An admitted task holds a lease. Its holder renews it (that is its heartbeat) before it expires, and names
//! its epoch in every call. Each grant of a task raises its epoch, so a holder that was given up for dead and
//! comes back changes nothing: its calls answer that they are stale.

pub(crate) mod grace;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::id::Holder;

/// The number a store gave a task, in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub i64);

/// Names one grant of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeaseRef {
    /// The task.
    pub id: TaskId,
    /// Its fencing token: counts the grants of this task.
    pub epoch: i64,
}

impl LeaseRef {
    /// The grant of this task with this epoch.
    pub fn new(id: TaskId, epoch: i64) -> Self {
        Self { id, epoch }
    }
}

/// A timed grant, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lease {
    /// Who holds it.
    pub holder: Holder,
    /// The first instant at which it is expired.
    pub expires_at: DateTime<Utc>,
}

impl Lease {
    /// A lease of this holder, until this instant.
    pub fn new(holder: Holder, expires_at: DateTime<Utc>) -> Self {
        Self { holder, expires_at }
    }

    /// True from `expires_at` on.
    pub fn is_expired(&self, now: DateTime<Utc>) -> bool {
        now >= self.expires_at
    }
}
