//! A store whose transactions are awaited.

use std::num::NonZeroUsize;
use std::sync::Arc;

use ::tokio::sync::{OwnedSemaphorePermit, Semaphore};
use ::tokio::time::timeout;

use super::blocking::{current, joined};
use crate::error::{NoRuntime, Result, StoreError, StoreErrorKind};
use crate::store::{ReadTx, Store, StoreInfo, Tx, TxMode};

/// How many calls of each mode are at work at once, unless the host says otherwise.
const AT_ONCE: usize = 16;

/// Any store, for tasks of a tokio runtime: each call is one transaction of [`Store`], made on the
/// runtime's threads for blocking work. Clones share the store and the limit of calls at once.
///
/// # How long a call waits
///
/// Calls that read and calls that write have places of their own, so a read never waits for a writer that
/// waits for the store's lock. A call that gets no place within the store's lock timeout
/// ([`StoreInfo::lock_timeout`]) returns kind [`Busy`](StoreErrorKind::Busy), and its body was never run.
/// With a place, it waits as long as the store lets it. A store without a lock timeout, such as one in
/// memory, has no limit for places either.
///
/// The runtime needs a timer (`enable_time`) if the store has a lock timeout, and at least twice
/// [`Self::at_once`] threads for blocking work (tokio's default is 512).
///
/// A body owns what it uses. A future may be dropped at any await: see the [module](super).
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::pool::{PoolSpec, Slots};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::time::from_micros;
/// use stationmaster::tokio::AsyncStore;
/// use stationmaster::{NewTask, TaskKey};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = AsyncStore::new(Arc::new(MemoryStore::new()));
/// let four = PoolSpec::new("db", Slots::Limited(4))?;
/// store.write(move |tx| tx.put_pools(std::slice::from_ref(&four))).await?;
///
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?).pool("db".try_into()?);
/// store.write(move |tx| tx.enqueue(from_micros(0), std::slice::from_ref(&task))).await?;
/// assert!(store.read(|tx| tx.audit()).await?.is_empty());
/// # Ok::<(), stationmaster::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
pub struct AsyncStore {
    store: Arc<dyn Store>,
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
}

impl AsyncStore {
    /// Wraps a store. At most 16 calls that read and 16 that write are at work at once.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, reads: places(AT_ONCE), writes: places(AT_ONCE) }
    }

    /// Sets how many calls that read, and how many that write, are at work at once, counting all clones. Each
    /// takes one of the runtime's blocking threads. The others wait as futures, first come first served.
    /// Clones made before keep their limit.
    #[must_use]
    pub fn at_once(mut self, calls: NonZeroUsize) -> Self {
        self.reads = places(calls.get());
        self.writes = places(calls.get());
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

    /// Runs `body` in a transaction that only reads: [`read`](crate::store::MemoryStore::read).
    ///
    /// # Errors
    ///
    /// As there, `Busy` if no place was free for too long, and [`crate::Error::Runtime`] outside a runtime. A
    /// panic of `body` goes on in the caller.
    pub async fn read<T: Send + 'static>(
        &self,
        body: impl FnMut(&mut ReadTx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.call(TxMode::Read, move |store| store.read(body)).await
    }

    /// Runs `body` in a transaction that writes, again after conflicts: [`write`](crate::store::MemoryStore::write).
    ///
    /// # Errors
    ///
    /// As there, `Busy` if no place was free for too long, and [`crate::Error::Runtime`] outside a runtime. A
    /// panic of `body` rolls back, and goes on in the caller.
    pub async fn write<T: Send + 'static>(
        &self,
        body: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.call(TxMode::Write, move |store| store.write(body)).await
    }

    /// Runs `work` on a blocking thread, once there is a place for a call of this mode. Work that was begun
    /// is done, whether or not the future is still awaited.
    pub(super) async fn call<T: Send + 'static>(
        &self,
        mode: TxMode,
        work: impl FnOnce(&dyn Store) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let runtime = current()?;
        let place = self.place(mode).await?;
        let store = Arc::clone(&self.store);
        let done = runtime.spawn_blocking(move || {
            let _place = place;
            work(&*store)
        });
        joined(done.await)?
    }

    async fn place(&self, mode: TxMode) -> Result<OwnedSemaphorePermit> {
        let places = match mode {
            TxMode::Read => &self.reads,
            TxMode::Write => &self.writes,
        };
        // A free place is taken without a look at the clock.
        if let Ok(place) = Arc::clone(places).try_acquire_owned() {
            return Ok(place);
        }
        let place = Arc::clone(places).acquire_owned();
        let place = match self.store.info().lock_timeout {
            None => place.await,
            Some(limit) => timeout(limit, place).await.map_err(|_| {
                let text = format!(
                    "other {} calls kept all places for {limit:?}: call again, or allow more at once",
                    mode.as_str()
                );
                StoreError::new(StoreErrorKind::Busy, text)
            })?,
        };
        Ok(place.map_err(|_| NoRuntime::ShutDown)?)
    }
}

fn places(calls: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS)))
}
