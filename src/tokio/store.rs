//! A store whose transactions are awaited.

use std::num::NonZeroUsize;
use std::sync::Arc;

use ::tokio::sync::Semaphore;

use super::blocking::{current, joined};
use crate::error::{NoRuntime, Result};
use crate::store::{Store, StoreExt, StoreInfo, StoreTx};

/// How many calls are at work at once, unless the host says otherwise.
const AT_ONCE: usize = 16;

/// Any store, for tasks of a tokio runtime: each call is one transaction of [`StoreExt`], made on the runtime's threads for
/// blocking work. Clones share the store and the limit of calls at once.
///
/// The life-cycle operations stand here under their own names; those of the runs are in [`Self::runs`]. A future may be
/// dropped at any await: see the [module](super).
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::pool::{PoolSpec, Slots};
/// use stationmaster::store::{MemoryStore, SurveyQuery};
/// use stationmaster::time::from_micros;
/// use stationmaster::tokio::AsyncStore;
/// use stationmaster::{NewTask, TaskKey};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = AsyncStore::new(Arc::new(MemoryStore::new()));
/// let four = PoolSpec::new("db", Slots::Limited(4))?;
/// store.write(move |tx| Ok(tx.put_pools(std::slice::from_ref(&four))?)).await?;
///
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?).pool("db".try_into()?);
/// store.enqueue(from_micros(0), [task]).await?;
/// assert_eq!(store.read(|tx| Ok(tx.survey(&SurveyQuery::new())?)).await?.lanes.len(), 1);
/// # Ok::<(), stationmaster::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct AsyncStore {
    store: Arc<dyn Store>,
    calls: Arc<Semaphore>,
}

impl AsyncStore {
    /// Calls of this store, at most 16 at once.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, calls: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Sets how many calls of it and its clones are at work at once: so many of the runtime's blocking threads they take at
    /// most. The others wait as futures, first come first served. Clones made before keep their limit.
    #[must_use]
    pub fn at_once(mut self, calls: NonZeroUsize) -> Self {
        self.calls = Arc::new(Semaphore::new(calls.get().min(Semaphore::MAX_PERMITS)));
        self
    }

    /// The store behind it: for services, and for threads that may block.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// What the store is.
    pub fn info(&self) -> StoreInfo {
        self.store.info()
    }

    /// Runs `body` in a transaction that only reads: [`StoreExt::read`].
    ///
    /// # Errors
    ///
    /// As there, and [`crate::Error::Runtime`] outside a runtime. A panic of `body` goes on in the caller.
    pub async fn read<T: Send + 'static>(
        &self,
        body: impl FnMut(&mut dyn StoreTx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.call(move |store| store.read(body)).await
    }

    /// Runs `body` in a transaction that writes, again after conflicts: [`StoreExt::write`].
    ///
    /// # Errors
    ///
    /// As there, and [`crate::Error::Runtime`] outside a runtime. A panic of `body` rolls back, and goes on in the caller.
    pub async fn write<T: Send + 'static>(
        &self,
        body: impl FnMut(&mut dyn StoreTx) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.call(move |store| store.write(body)).await
    }

    /// Has work done with the store by a blocking thread, when one is free for this store. Work that was begun is done,
    /// whether or not somebody still waits for it.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Store) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let runtime = current()?;
        let place = Arc::clone(&self.calls).acquire_owned().await.map_err(|_| NoRuntime::ShutDown)?;
        let store = Arc::clone(&self.store);
        let done = runtime.spawn_blocking(move || {
            let _place = place;
            work(&*store)
        });
        joined(done.await)?
    }
}
