//! A store whose transactions are awaited.

use std::num::NonZeroUsize;
use std::sync::Arc;

use ::tokio::sync::{OwnedSemaphorePermit, Semaphore};
use ::tokio::time::timeout;

use super::blocking::{current, joined};
use crate::error::{Error, Result, StoreError, StoreErrorKind};
use crate::store::{ReadTx, Store, StoreInfo, Tx, TxMode};

/// How many calls of each mode run at once, unless the host sets another limit.
const AT_ONCE: usize = 16;

/// Any store, for tasks of a tokio runtime. Each call is one transaction of [`Store`] on the runtime's
/// blocking threads. Clones share the store and the limit of concurrent calls.
///
/// # How long a call waits
///
/// Calls that read and calls that write have separate places, so a read never waits for a writer that waits
/// for the store's lock. A call that gets no place within the store's lock timeout
/// ([`StoreInfo::lock_timeout`]) returns kind [`Busy`](StoreErrorKind::Busy), and its body is never run. Once
/// it has a place, it waits as long as the store allows. A store without a lock timeout, such as one in
/// memory, has no limit for places either.
///
/// The runtime needs a timer (`enable_time`) if the store has a lock timeout, and at least twice
/// [`Self::at_once`] blocking threads (tokio's default is 512).
///
/// A body owns what it uses. A future may be dropped at any await: see the [module](super).
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::admission::IfExists;
/// use stationmaster::pool::{PoolSpec, Slots};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::tokio::AsyncStore;
/// use stationmaster::{NewTask, TaskKey, Timestamp};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = AsyncStore::new(Arc::new(MemoryStore::new()));
/// let four = PoolSpec::new("db", Slots::Limited(4))?;
/// store.write(move |tx| tx.define([&four], IfExists::Replace)).await?;
///
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?).pool("db".try_into()?);
/// store.write(move |tx| tx.enqueue(Timestamp::UNIX_EPOCH, std::slice::from_ref(&task))).await?;
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
    /// Wraps a store. At most 16 reading and 16 writing calls run at once.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, reads: places(AT_ONCE), writes: places(AT_ONCE) }
    }

    /// Sets how many reading calls, and how many writing ones, run at once, over all clones. Each takes one
    /// of the runtime's blocking threads. The others wait as futures, first come first served. Earlier clones
    /// keep their limit.
    #[must_use]
    pub fn at_once(mut self, calls: NonZeroUsize) -> Self {
        self.reads = places(calls.get());
        self.writes = places(calls.get());
        self
    }

    /// Returns the wrapped store, for services, and for threads that may block.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns a description of the store.
    pub fn info(&self) -> StoreInfo {
        self.store.info()
    }

    /// Runs `body` in a transaction that only reads: [`read`](crate::store::MemoryStore::read).
    ///
    /// # Errors
    ///
    /// Those of that method, `Busy` if no place was free for too long, and [`crate::Error::NoRuntime`] outside
    /// a runtime. A panic of `body` resumes in the caller.
    pub async fn read<T: Send + 'static>(
        &self,
        body: impl FnMut(&mut ReadTx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.call(TxMode::Read, move |store| store.read(body)).await
    }

    /// Runs `body` in a transaction that writes, and repeats it after conflicts:
    /// [`write`](crate::store::MemoryStore::write).
    ///
    /// # Errors
    ///
    /// Those of that method, `Busy` if no place was free for too long, and [`crate::Error::NoRuntime`] outside
    /// a runtime. A panic of `body` rolls back, and resumes in the caller.
    pub async fn write<T: Send + 'static>(
        &self,
        body: impl FnMut(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.call(TxMode::Write, move |store| store.write(body)).await
    }

    /// Runs `work` on a blocking thread, once there is a place for a call of this mode. Work that has begun
    /// runs to its end, even if the future is dropped.
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
        // A free place is taken without reading the clock.
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
        place.map_err(|_| Error::RuntimeShutDown)
    }
}

fn places(calls: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(calls.min(Semaphore::MAX_PERMITS)))
}
