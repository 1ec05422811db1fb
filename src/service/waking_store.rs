//! A store that wakes a loop when there may be work for it.

use super::driver::LoopHandle;
use crate::error::Result;
use crate::store::{Store, StoreInfo, Tx, TxMode};

/// Wakes a loop after each commit that returned slots, made tasks ready, changed pools or limits, or asked the
/// holder of a lease to stop.
///
/// Wrap it around the store that all parts of a process use. The admitter's loop then learns at once what the other
/// parts do. A worker or a keeper learns at once which of its tasks were cancelled. They learn of other processes'
/// changes at their next tick. On PostgreSQL, `LoopHandle::listen` reports those at once, too.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::service::{LoopHandle, WakingStore};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::{NewTask, TaskKey, Timestamp};
///
/// let handle = LoopHandle::new();
/// let store = WakingStore::new(MemoryStore::new(), handle.clone());
/// let seen = handle.seen();
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
/// store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, std::slice::from_ref(&task)))?;
/// handle.wait_since(seen, Duration::from_secs(3600)); // returns at once
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug)]
pub struct WakingStore<S> {
    inner: S,
    handle: LoopHandle,
}

impl<S: Store> WakingStore<S> {
    /// Wraps a store so that its commits wake the loops of this handle.
    pub fn new(inner: S, handle: LoopHandle) -> Self {
        Self { inner, handle }
    }

    /// Returns the wrapped store.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

crate::store::transactions!(S => WakingStore<S>);

impl<S: Store> Store for WakingStore<S> {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let (mut wakes, mut cancels) = (false, false);
        let result = self.inner.transact(mode, &mut |tx| {
            let result = body(tx);
            (wakes, cancels) = (tx.effects().wakes_admission, tx.effects().wakes_holders);
            result
        });
        // A commit with an unknown outcome may have taken effect.
        if result.as_ref().map_or_else(crate::Error::is_indeterminate, |()| true) {
            match (cancels, wakes) {
                (true, _) => self.handle.wake_for_cancel(),
                (false, true) => self.handle.wake(),
                (false, false) => {}
            }
        }
        result
    }
}
