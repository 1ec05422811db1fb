//! What wakes a loop.

#[cfg(feature = "postgres")]
use crate::error::Result;
#[cfg(feature = "postgres")]
use crate::store::postgres::{Change, Listening, PostgresStore};

use super::driver::{LoopHandle, Service};
use crate::core::admission::queue_mask::QueueMask;

/// Kinds of changes for which the services behind a handle look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    kinds: u8,
    /// The queues in which tasks may become ready.
    queues: QueueMask,
}

impl Wanted {
    /// Holders of leases were asked to stop.
    pub(super) const CANCELS: Self = Self::kind(2);
    /// Sensors were registered or ended.
    pub(super) const SENSORS: Self = Self::kind(4);
    /// The feed has more events.
    pub(super) const EVENTS: Self = Self::kind(8);
    const ALL: Self = Self { kinds: 15, queues: QueueMask::ALL };

    const fn kind(kinds: u8) -> Self {
        Self { kinds, queues: QueueMask::NONE }
    }

    /// Tasks became ready in these queues, or slots or limits came back.
    pub(super) const fn tasks_of(queues: QueueMask) -> Self {
        Self { kinds: 1, queues }
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self { kinds: self.kinds | other.kinds, queues: self.queues.and(other.queues) }
    }

    #[cfg(feature = "postgres")]
    const fn has(self, other: Self) -> bool {
        self.kinds & other.kinds != 0
    }
}

impl LoopHandle {
    /// Notes what a service of this handle looks for. If that is not known, the handle is woken for everything.
    pub(super) fn wants(&self, more: Wanted) {
        let mut state = self.state();
        state.wanted = Some(state.wanted.map_or(more, |wanted| wanted.and(more)));
        state.told_wants = state.told_wants.wrapping_add(1);
    }

    /// Gives the handle to a service. Without `wants`, it may look for anything.
    pub(crate) fn wakes<S: Service>(&self, service: &mut S) {
        let told = self.state().told_wants;
        service.woken_by(self);
        if self.state().told_wants == told {
            self.wants(Wanted::ALL);
        }
    }

    /// Wakes the loops of this handle after each commit, here or on another machine, that may have brought work for the
    /// services that they drive: for an [`Admitter`](super::Admitter) and a [`Worker`](super::Worker) tasks that became
    /// ready in queues that they serve and capacity that came back, for a worker, a [`Keeper`](super::Keeper) and an [`Upkeep`](super::Upkeep) tasks
    /// that were cancelled, for a [`Poker`](super::Poker) sensors, and for a [`FeedReader`](super::FeedReader) events. A
    /// [`Service`] that the host implements is woken for all of this, and so is a handle that drives no service.
    ///
    /// It lasts until the result is dropped. It works like [`PostgresStore::on_change`], where you choose the
    /// changes: it shares the listening connection, a wake-up is a hint, and a loop still looks on its own
    /// from time to time.
    ///
    /// # Errors
    ///
    /// As [`PostgresStore::on_change`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use stationmaster::service::{LoopHandle, Worker};
    /// use stationmaster::store::PostgresStore;
    /// use stationmaster::store::postgres::PostgresOptions;
    ///
    /// let store = Arc::new(PostgresStore::connect("postgres://jobs@127.0.0.1/jobs", PostgresOptions::new())?);
    /// let handle = LoopHandle::new();
    /// let _listening = handle.listen(&store)?;
    /// let worker = Worker::new(store, "worker-1".try_into()?).handler(|attempt| println!("{}", attempt.task().key));
    /// worker.run(&handle)?;
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    #[cfg(feature = "postgres")]
    pub fn listen(&self, store: &PostgresStore) -> Result<Listening> {
        let handle = self.clone();
        store.on_change_at_once(move |change| handle.hear(change))
    }

    #[cfg(feature = "postgres")]
    fn hear(&self, change: Change) {
        let wanted = self.state().wanted.unwrap_or(Wanted::ALL);
        let tasks = wanted.has(Wanted::tasks_of(QueueMask::NONE));
        let (sensors, events) = (wanted.has(Wanted::SENSORS), wanted.has(Wanted::EVENTS));
        if change.cancels() && wanted.has(Wanted::CANCELS) {
            self.wake_for_cancel();
        } else if tasks && change.capacity() || sensors && change.sensors() || events && change.events() {
            self.wake();
        } else if change.ready_in(wanted.queues) {
            self.wake_for_ready();
        }
    }
}
