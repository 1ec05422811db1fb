//! Pools and limits: what a host defines, changes and reads.

use crate::admission::limits::{LimitRecord, LimitSpec};
use crate::error::Result;
use crate::id::{LimitKey, PoolName};
use crate::pool::{PoolRecord, PoolSpec, PoolStats};
use crate::store::{LimitDeletion, PoolDeletion, ReadTx, Tx};

impl ReadTx<'_> {
    /// Returns the pools of these names; `None` where there is none.
    ///
    /// # Errors
    ///
    /// Only the store's.
    pub fn pools(&mut self, names: &[PoolName]) -> Result<Vec<Option<PoolRecord>>> {
        Ok(self.raw().pools(names)?)
    }

    /// Returns all pools, by name.
    ///
    /// # Errors
    ///
    /// Only the store's.
    pub fn all_pools(&mut self) -> Result<Vec<PoolRecord>> {
        Ok(self.raw().all_pools()?)
    }

    /// Sums up the slots of these pools by what their tasks are doing. Costs as much as there are leases,
    /// lanes and sensors.
    ///
    /// # Errors
    ///
    /// Only the store's.
    pub fn pool_stats(&mut self, names: &[PoolName]) -> Result<Vec<Option<PoolStats>>> {
        Ok(self.raw().pool_stats(names)?)
    }

    /// Returns the limits of these keys, also of keys that only tasks made known; `None` where there is none.
    ///
    /// # Errors
    ///
    /// Only the store's.
    pub fn limits(&mut self, keys: &[LimitKey]) -> Result<Vec<Option<LimitRecord>>> {
        Ok(self.raw().limits(keys)?)
    }

    /// Returns all keys that a limit is defined for, by key.
    ///
    /// # Errors
    ///
    /// Only the store's.
    pub fn all_limits(&mut self) -> Result<Vec<LimitRecord>> {
        Ok(self.raw().all_limits()?)
    }
}

impl Tx<'_> {
    /// Creates or changes pools. What tasks hold of them stays, so a pool can be smaller than what is in use.
    ///
    /// # Errors
    ///
    /// Only the store's.
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
        self.raw().put_pools(pools)?;
        self.capacity_changed();
        Ok(())
    }

    /// Deletes pools that no task holds slots of. The default pool is never deleted.
    ///
    /// # Errors
    ///
    /// Only the store's.
    pub fn delete_pools(&mut self, pools: &[PoolName]) -> Result<Vec<PoolDeletion>> {
        Ok(self.raw().delete_pools_if_unused(pools)?)
    }

    /// Defines or changes limits. What counts against them stays.
    ///
    /// # Errors
    ///
    /// Only the store's.
    pub fn put_limits(&mut self, limits: &[LimitSpec]) -> Result<()> {
        self.raw().put_limits(limits)?;
        self.capacity_changed();
        Ok(())
    }

    /// Removes the limits of these keys. Tasks that carry such a key are counted further, so a limit that is
    /// defined again finds them.
    ///
    /// # Errors
    ///
    /// Only the store's.
    pub fn delete_limits(&mut self, keys: &[LimitKey]) -> Result<Vec<LimitDeletion>> {
        let deleted = self.raw().delete_limits(keys)?;
        self.capacity_changed();
        Ok(deleted)
    }
}
