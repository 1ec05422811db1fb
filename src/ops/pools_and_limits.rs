//! Pools and limits: what is defined and what is used.

use crate::admission::limits::{Families, LimitRecord, LimitSpec};
use crate::error::Result;
use crate::id::{LimitKey, PoolName};
use crate::pool::{PoolRecord, PoolStats};
use crate::store::ReadTx;

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

    /// Returns the limits of these keys, including keys that only tasks mentioned; `None` for an unknown key. A
    /// key that is not defined itself has the maximum and the rate of its family.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn limits(&mut self, keys: &[LimitKey]) -> Result<Vec<Option<LimitRecord>>> {
        let mut limits = self.raw().limits(keys)?;
        let families = self.raw().families()?;
        let families = Families::new(&families);
        limits.iter_mut().flatten().for_each(|limit| families.apply(limit));
        Ok(limits)
    }

    /// Returns the definitions of all families, by prefix.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn families(&mut self) -> Result<Vec<LimitSpec>> {
        Ok(self.raw().families()?)
    }

    /// Returns all keys that are defined themselves, by key.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn all_limits(&mut self) -> Result<Vec<LimitRecord>> {
        Ok(self.raw().all_limits()?)
    }
}
