//! Who works on a store: admitters with their queues, and sensor workers with their shards.

use std::ops::Range;

use crate::error::Result;
use crate::sensor::PokeCounts;
use crate::store::ReadTx;
use crate::store::contract::{PokerRow, Serving, ShardLease};
use crate::time::Timestamp;

impl ReadTx<'_> {
    /// Returns the queues that admitters have announced they serve, by holder. Expired announcements may be
    /// included; see [`Serving::until`].
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::ops::AdmitRequest;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::Timestamp;
    ///
    /// let (store, now) = (MemoryStore::new(), Timestamp::UNIX_EPOCH);
    /// let order = AdmitRequest::new("worker-1".try_into()?, "tick-1".try_into()?, 10, Duration::from_secs(30));
    /// store.write(|tx| tx.admit(now, &order))?;
    ///
    /// let serving = store.read(|tx| tx.serving())?;
    /// assert_eq!(serving[0].holder.as_str(), "worker-1");
    /// assert_eq!((&serving[0].queues, serving[0].until()), (&None, now + Duration::from_secs(60)));
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn serving(&mut self) -> Result<Vec<Serving>> {
        Ok(self.raw().serving()?)
    }

    /// Returns the sensor workers that count as alive at this instant, by name, and the leases of all shards
    /// that were ever held, by number. A worker whose leases have expired is no longer alive, or has yet to
    /// renew.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use stationmaster::service::{Poker, Service};
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::Timestamp;
    ///
    /// let (store, now) = (Arc::new(MemoryStore::new()), Timestamp::UNIX_EPOCH);
    /// let mut poker = Poker::new(store.clone(), "poker-1".try_into()?);
    /// poker.tick(now)?;
    ///
    /// let (workers, shards) = store.read(|tx| tx.sensor_workers(now))?;
    /// assert_eq!(workers[0].name.as_str(), "poker-1");
    /// assert!(shards.iter().all(|shard| shard.holder.as_ref() == Some(&workers[0].name)));
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn sensor_workers(&mut self, now: impl Into<Timestamp>) -> Result<(Vec<PokerRow>, Vec<ShardLease>)> {
        let raw = self.raw();
        Ok((raw.live_workers(now.into())?, raw.shard_leases()?))
    }

    /// Returns how many pokes were made and how many sharing saved, for each kind and each hour that begins in
    /// this window. They come by hour, then by kind. An hour in which no sensor of a kind was poked is left out.
    ///
    /// A [`Poker`](crate::service::Poker) stores its counts every third of its lease and when it leaves. The
    /// store keeps them for 31 days.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::Timestamp;
    ///
    /// let (store, now) = (MemoryStore::new(), Timestamp::UNIX_EPOCH);
    /// let day = Duration::from_secs(24 * 3600);
    /// let hours = store.read(|tx| tx.poke_counts(now - day..now))?;
    /// let saved: u64 = hours.iter().map(|hour| hour.saved).sum();
    /// assert_eq!(saved, 0, "no worker has poked yet");
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn poke_counts(&mut self, hours: Range<Timestamp>) -> Result<Vec<PokeCounts>> {
        Ok(self.raw().poke_counts(hours)?)
    }
}
