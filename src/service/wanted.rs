//! The changes that wake a loop.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

#[cfg(feature = "postgres")]
use crate::error::Result;
#[cfg(feature = "postgres")]
use crate::store::postgres::{Change, Listening, PostgresStore};

use super::driver::{LoopHandle, Service};
use crate::core::admission::queue_mask::QueueMask;
use crate::id::{PoolName, QueueName};

/// The kinds of changes that the services of a handle look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted(u8);

impl Wanted {
    /// Slots or limits were returned. Each [`TaskWish`] decides separately about ready tasks.
    const CAPACITY: Self = Self(1);
    /// Holders of leases were asked to stop.
    pub(super) const CANCELS: Self = Self(2);
    /// Sensors were registered or ended.
    pub(super) const SENSORS: Self = Self(4);
    /// The feed has more events.
    pub(super) const EVENTS: Self = Self(8);
    /// Any change, and any task that became ready.
    const ALL: Self = Self(31);

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[cfg(feature = "postgres")]
    const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The ready tasks that one admitter looks for.
#[derive(Debug, Default)]
pub(super) struct TaskWish {
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "only PostgreSQL says where tasks became ready")
    )]
    queues: QueueMask,
    /// Pools without an open slot. No task that becomes ready there can run before capacity is returned.
    full: Mutex<Vec<PoolName>>,
}

impl TaskWish {
    pub(super) fn new(serves: Option<&BTreeSet<QueueName>>) -> Self {
        Self { queues: QueueMask::serving(serves), full: Mutex::default() }
    }

    /// Notes which pools an admitter found full. It begins each look with none: a task that becomes ready during the
    /// look may be too late for it, and slots may have been returned before.
    pub(super) fn full(&self, pools: Vec<PoolName>) {
        *self.full.lock() = pools;
    }

    #[cfg(feature = "postgres")]
    fn is_for(&self, change: Change) -> bool {
        change.ready_in(self.queues, &self.full.lock())
    }
}

impl LoopHandle {
    /// Notes what a service of this handle looks for. If that is unknown, every change wakes the handle.
    pub(super) fn wants(&self, more: Wanted) {
        let mut state = self.state();
        state.wanted = Some(state.wanted.map_or(more, |wanted| wanted.and(more)));
        state.wishes_noted = state.wishes_noted.wrapping_add(1);
    }

    /// Notes which ready tasks an admitter of this handle looks for.
    pub(super) fn wants_tasks(&self, wish: &Arc<TaskWish>) {
        self.wants(Wanted::CAPACITY);
        let mut state = self.state();
        state.wishes.retain(|known| Arc::strong_count(known) > 1 && !Arc::ptr_eq(known, wish));
        state.wishes.push(Arc::clone(wish));
    }

    /// Gives the handle to a service. If the service does not report what it looks for, it may look for anything.
    pub(crate) fn wakes<S: Service>(&self, service: &mut S) {
        let noted = self.state().wishes_noted;
        service.woken_by(self);
        if self.state().wishes_noted == noted {
            self.wants(Wanted::ALL);
        }
    }

    /// Wakes the loops of this handle after each commit, here or on another machine, that may have brought work for
    /// their services. For an [`Admitter`](super::Admitter) and a [`Worker`](super::Worker) that is returned
    /// capacity, and tasks that became ready in the queues that they serve. Tasks whose pools were full at the last
    /// look do not count. For a worker, a [`Keeper`](super::Keeper) and an [`Upkeep`](super::Upkeep) it is cancelled
    /// tasks, for a [`Poker`](super::Poker) sensors, for a [`FeedReader`](super::FeedReader) events. A host's
    /// [`Service`] is woken for all of this, and so is a handle without a service.
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
        let (wanted, wishes) = {
            let state = self.state();
            (state.wanted.unwrap_or(Wanted::ALL), state.wishes.clone())
        };
        let kinds = [
            (change.capacity(), Wanted::CAPACITY),
            (change.sensors(), Wanted::SENSORS),
            (change.events(), Wanted::EVENTS),
        ];
        if change.cancels() && wanted.has(Wanted::CANCELS) {
            self.wake_for_cancel();
        } else if kinds.iter().any(|(is_there, kind)| *is_there && wanted.has(*kind)) {
            self.wake();
        } else if change.ready() && wanted == Wanted::ALL || wishes.iter().any(|wish| wish.is_for(change)) {
            self.wake_for_ready();
        }
    }
}
