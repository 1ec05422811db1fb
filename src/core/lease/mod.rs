//! Leases: a timed grant of slots to one holder, fenced by an epoch.
//!
//! An admitted task holds a lease. Its holder renews the lease before it expires (the heartbeat) and passes
//! its epoch in every call. Each grant of a task raises the task's epoch. So a holder that was considered
//! dead and comes back changes nothing: its calls return that they are stale.

mod fencing;
pub(crate) mod grace;
pub(crate) mod keep;

use serde::{Deserialize, Serialize};

use crate::id::Holder;
use crate::time::Timestamp;

/// The number that a store assigned to a task, in order of arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub i64);

/// Identifies one grant of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeaseRef {
    /// The task.
    pub id: TaskId,
    /// The task's fencing token: the number of grants of this task.
    pub epoch: i64,
}

impl LeaseRef {
    /// Creates a reference to the grant of this task with this epoch.
    pub fn new(id: TaskId, epoch: i64) -> Self {
        Self { id, epoch }
    }
}

/// What a renewal did for one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Renewal {
    /// The lease is valid until at least the requested instant.
    Renewed,
    /// Another transaction holds the lease right now, for example to end it. Continue the work, and renew
    /// again soon. Only a store with concurrent write transactions returns this.
    Busy,
    /// The lease was lost: stop the work. Another holder may be doing it.
    Lost,
    /// The lease is renewed, but never beyond this instant, because someone
    /// [cancelled](crate::store::Tx::cancel) the task. Stop the work, and end it before then.
    Cancelled(Timestamp),
}

impl Renewal {
    /// Returns true if the lease was lost.
    pub fn is_lost(self) -> bool {
        self == Self::Lost
    }
}

/// A timed grant, as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Lease {
    /// The holder.
    pub holder: Holder,
    /// The first instant at which it is expired. It is never after `cancel_at`.
    pub expires_at: Timestamp,
    /// The deadline by which the holder must end it, because someone [cancelled](crate::store::Tx::cancel)
    /// the task. `None` if it was not cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_at: Option<Timestamp>,
    /// The holder's last [note](crate::store::Tx::note) about its work. `None` if it left no note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When it left that note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noted_at: Option<Timestamp>,
}

impl Lease {
    /// Creates a lease of this holder until this instant.
    pub fn new(holder: Holder, expires_at: Timestamp) -> Self {
        Self { holder, expires_at, cancel_at: None, note: None, noted_at: None }
    }

    /// Returns true from `expires_at` on.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.expires_at
    }
}
