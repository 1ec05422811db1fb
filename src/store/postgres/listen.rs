//! Reports commits to a host. A report is only a hint: the tables decide.

use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::hub::{Hub, Inbox};
use super::news::{News, NewsSet};
use crate::core::admission::queue_mask::QueueMask;
use crate::id::PoolName;

/// What may have changed, so that it is worth looking. See [`super::PostgresStore::on_change`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change(pub(super) NewsSet);

impl Change {
    /// Returns true if tasks became ready, or slots or limits were returned or changed: what an admitter
    /// waits for.
    pub fn tasks(self) -> bool {
        self.ready() || self.capacity()
    }

    /// Returns true if tasks became ready. A task that is not due yet is not ready.
    pub fn ready(self) -> bool {
        self.0.has(News::Ready)
    }

    /// Returns true if tasks became ready in one of these queues, unless all of them are in full pools.
    pub(crate) fn ready_in(self, queues: QueueMask, full: &[PoolName]) -> bool {
        self.0.is_ready_in(queues, full)
    }

    /// Returns true if slots or limits were returned or changed. That concerns an admitter whose last tick
    /// left tasks waiting.
    pub fn capacity(self) -> bool {
        self.0.has(News::Capacity)
    }

    /// Returns true if sensors were registered or ended: what a poker follows.
    pub fn sensors(self) -> bool {
        self.0.has(News::Sensors)
    }

    /// Returns true if holders of leases were asked to stop, because their tasks were cancelled. Wake a
    /// worker or a keeper for it with
    /// [`LoopHandle::wake_for_cancel`](crate::service::LoopHandle::wake_for_cancel).
    pub fn cancels(self) -> bool {
        self.0.has(News::Cancels)
    }

    /// Returns true if the feed may have more events: what a [reader](crate::service::FeedReader) waits for.
    pub fn events(self) -> bool {
        self.0.has(News::Events)
    }
}

/// Keeps a callback registered. See [`super::PostgresStore::on_change`].
///
/// The registration ends when this, or the store, is dropped. Dropping it waits for a running call, unless
/// that call drops it.
#[must_use = "dropping it ends the listening"]
pub struct Listening {
    pub(super) hub: Arc<Hub>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) caller: Option<JoinHandle<()>>,
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listening").field("hub", &self.hub).finish_non_exhaustive()
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.hub.remove(&self.inbox);
        let Some(caller) = self.caller.take() else { return };
        if caller.thread().id() != thread::current().id() {
            let _ = caller.join();
        }
    }
}
