//! Pools and limits: what is defined and what is used.

use std::collections::BTreeMap;

use crate::admission::limits::{Families, LimitRecord, LimitSpec};
use crate::admission::{Subject, WaitingCap};
use crate::core::admission::cap::capped_by;
use crate::error::Result;
use crate::id::{LimitKey, PoolName};
use crate::pool::{PoolRecord, PoolStats};
use crate::store::ReadTx;

impl ReadTx<'_> {
    /// Returns the pools with these names, or `None` for a name without a pool.
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

    /// Returns the slots of these pools, summed by what their tasks are doing. The cost grows with the number
    /// of leases, lanes and sensors.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn pool_stats(&mut self, names: &[PoolName]) -> Result<Vec<Option<PoolStats>>> {
        Ok(self.raw().pool_stats(names)?)
    }

    /// Returns the limits of these keys, including undefined keys that tasks carry, or `None` for an unknown
    /// key. An undefined key has the maximum, the rate and the cap of its family. A limit with a rate
    /// includes the instant from which a token is available.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn limits(&mut self, keys: &[LimitKey]) -> Result<Vec<Option<LimitRecord>>> {
        let mut limits = self.limits_without_tokens(keys)?;
        self.name_tokens(limits.iter_mut().flatten())?;
        Ok(limits)
    }

    /// Sets the instant from which a token is available, for limits with a rate.
    fn name_tokens<'l>(&mut self, limits: impl Iterator<Item = &'l mut LimitRecord>) -> Result<()> {
        let mut rated: Vec<&mut LimitRecord> = limits.filter(|limit| limit.rate.is_some()).collect();
        if rated.is_empty() {
            return Ok(());
        }
        let keys: Vec<LimitKey> = rated.iter().map(|limit| limit.key.clone()).collect();
        let owed: BTreeMap<_, _> =
            self.raw().rates(&keys)?.0.into_iter().map(|used| (used.key.clone(), used)).collect();
        for limit in &mut rated {
            limit.token_at = limit.rate.and_then(|rate| Some(owed.get(&limit.key)?.next(rate)));
        }
        Ok(())
    }

    pub(super) fn limits_without_tokens(&mut self, keys: &[LimitKey]) -> Result<Vec<Option<LimitRecord>>> {
        let mut limits = self.raw().limits(keys)?;
        let families = self.raw().families()?;
        let families = Families::new(&families);
        let caps = self.caps()?;
        for limit in limits.iter_mut().flatten() {
            families.apply(limit);
            let capped = capped_by(&limit.key, limit.is_defined, &families);
            limit.cap = capped.and_then(|capped| caps.get(&capped).copied());
        }
        Ok(limits)
    }

    /// Returns the definitions of all families, by prefix.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn families(&mut self) -> Result<Vec<LimitSpec>> {
        let caps = self.caps()?;
        let capped = |spec: LimitSpec| LimitSpec { waiting: caps.get(&spec.subject()).copied(), ..spec };
        Ok(self.raw().families()?.into_iter().map(capped).collect())
    }

    /// Returns the limits of all keys that have their own definition, by key, like [`Self::limits`].
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn all_limits(&mut self) -> Result<Vec<LimitRecord>> {
        let caps = self.caps()?;
        let cap = |limit: &LimitRecord| caps.get(&Subject::Key(limit.key.clone())).copied();
        let capped = |limit: LimitRecord| LimitRecord { cap: cap(&limit), ..limit };
        let mut limits: Vec<LimitRecord> = self.raw().all_limits()?.into_iter().map(capped).collect();
        self.name_tokens(limits.iter_mut())?;
        Ok(limits)
    }

    pub(super) fn caps(&mut self) -> Result<BTreeMap<Subject, WaitingCap>> {
        Ok(self.raw().caps()?.into_iter().collect())
    }
}
