//! Shares: what each holds of a pool, and how many of its tasks wait.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::id::{LimitKey, PoolName};
use crate::store::ReadTx;
use crate::store::contract::{ShareUse, SurveyQuery};

impl ReadTx<'_> {
    /// Returns, by pool and share, what each share holds of each pool, its weight, and how many of its tasks
    /// wait there.
    ///
    /// A share is listed under the pools that its ready and leased tasks name as their own.
    /// [`ShareUse::part`] is the part of a pool that a share should have.
    ///
    /// Like the cost of a tick, the cost grows with the number of leases and of lanes with ready tasks.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?).share("tenant/acme".try_into()?);
    /// store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, std::slice::from_ref(&task)))?;
    /// let shares = store.read(|tx| tx.shares())?;
    /// assert_eq!((shares[0].share.as_str(), shares[0].held, shares[0].waiting), ("tenant/acme", 0, 1));
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn shares(&mut self) -> Result<Vec<ShareUse>> {
        let mut waiting = BTreeMap::<(PoolName, LimitKey), u64>::new();
        for lane in self.raw().survey(&SurveyQuery::new())?.lanes {
            if let Some(share) = &lane.key.share {
                *waiting.entry((lane.key.pool.clone(), share.clone())).or_default() += lane.ready;
            }
        }
        for (lane, _) in self.raw().leases()?.1 {
            waiting.extend(
                lane.share
                    .map(|share| ((lane.pool, share), 0))
                    .filter(|(pair, _)| !waiting.contains_key(pair)),
            );
        }
        if waiting.is_empty() {
            return Ok(Vec::new());
        }
        let pairs: Vec<(PoolName, LimitKey)> = waiting.keys().cloned().collect();
        let (known, grants) = self.raw().shares(&pairs)?;
        let mut known: BTreeMap<_, _> =
            known.into_iter().map(|used| ((used.pool.clone(), used.share.clone()), used)).collect();
        let keys: BTreeSet<&LimitKey> = pairs.iter().map(|(_, share)| share).collect();
        let limits = self.limits_without_tokens(&keys.into_iter().cloned().collect::<Vec<_>>())?;
        let weights = limits.into_iter().flatten().filter_map(|limit| Some((limit.key, limit.weight?)));
        let weights: BTreeMap<LimitKey, u32> = weights.collect();
        let with_use = |((pool, share), waiting): ((PoolName, LimitKey), u64)| {
            let used = known.remove(&(pool.clone(), share.clone()));
            let weight = weights.get(&share).copied().unwrap_or(1);
            ShareUse { weight, waiting, ..used.unwrap_or_else(|| ShareUse::newcomer(pool, share, grants)) }
        };
        Ok(waiting.into_iter().map(with_use).collect())
    }
}
