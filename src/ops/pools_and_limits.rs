//! Pools and limits: defining, changing and reading them.

use crate::admission::limits::{LimitRecord, LimitSpec};
use crate::error::Result;
use crate::id::{LimitKey, PoolName};
use crate::pool::{PoolRecord, PoolSpec, PoolStats};
use crate::store::{LimitDeletion, PoolDeletion, ReadTx, Tx};

impl ReadTx<'_> {
    /// Returns the pools of these names; `None` for a name without a pool.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn pools(&mut self, names: &[PoolName]) -> Result<Vec<Option<PoolRecord>>> {
        Ok(self.raw().pools(names)?)
    }

    /// Returns all pools, by name.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn all_pools(&mut self) -> Result<Vec<PoolRecord>> {
        Ok(self.raw().all_pools()?)
    }

    /// Sums up the slots of these pools by what their tasks are doing. The cost grows with the number of
    /// leases, lanes and sensors.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn pool_stats(&mut self, names: &[PoolName]) -> Result<Vec<Option<PoolStats>>> {
        Ok(self.raw().pool_stats(names)?)
    }

    /// Returns the limits of these keys, including keys that only tasks mentioned; `None` for an unknown key.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn limits(&mut self, keys: &[LimitKey]) -> Result<Vec<Option<LimitRecord>>> {
        Ok(self.raw().limits(keys)?)
    }

    /// Returns all keys that have a defined limit, by key.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn all_limits(&mut self) -> Result<Vec<LimitRecord>> {
        Ok(self.raw().all_limits()?)
    }
}

impl Tx<'_> {
    /// Creates or changes pools. Tasks keep the slots they hold, so a pool can be smaller than what is in
    /// use.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::pool::{PoolSpec, Slots};
    /// use stationmaster::store::MemoryStore;
    ///
    /// let store = MemoryStore::new();
    /// store.write(|tx| tx.put_pools(&[PoolSpec::new("db", Slots::Limited(4))?]))?;
    /// assert_eq!(store.read(|tx| tx.pools(&["db".try_into()?]))?.len(), 1);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn put_pools(&mut self, pools: &[PoolSpec]) -> Result<()> {
        self.decides()?.put_pools(pools)?;
        self.capacity_changed();
        Ok(())
    }

    /// Deletes pools that no task holds slots of. The default pool is never deleted.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn delete_pools(&mut self, pools: &[PoolName]) -> Result<Vec<PoolDeletion>> {
        Ok(self.decides()?.delete_pools_if_unused(pools)?)
    }

    /// Defines or changes limits. Tasks that count against them continue to count.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn put_limits(&mut self, limits: &[LimitSpec]) -> Result<()> {
        self.decides()?.put_limits(limits)?;
        self.capacity_changed();
        Ok(())
    }

    /// Deletes the limits of these keys. Tasks that carry such a key are still counted, so a limit that is
    /// defined again includes them.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn delete_limits(&mut self, keys: &[LimitKey]) -> Result<Vec<LimitDeletion>> {
        let deleted = self.decides()?.delete_limits(keys)?;
        self.capacity_changed();
        Ok(deleted)
    }
}
