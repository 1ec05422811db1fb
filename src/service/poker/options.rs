//! How a poker works.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::base::setters;
use crate::sensor::SmartSensorConfig;
use crate::shard::DEFAULT_CODES;

/// How a [`super::Poker`] works. All workers of a store use the same `shard_codes` and `shards`.
///
/// Defaults: 10,000 codes in 16 shards, leases of 30 seconds, no poke interval below one second, 16 threads,
/// 10,000 sensors to a read; a tick waits half a second for answers; a poke may take ten seconds, or as long
/// as its sensors ask for, up to ten minutes; 64 threads may hang; a target that cannot be looked at is tried
/// every ten minutes at least, and its sensors bear that for 130 minutes.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::service::PokerOptions;
/// let options = PokerOptions::default().threads(64).poke_timeout(Duration::from_secs(60));
/// assert_eq!((options.threads, options.max_hung), (64, 64));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PokerOptions {
    /// The number of shard codes (Airflow: `shard_code_upper_limit`).
    pub shard_codes: NonZeroU32,
    /// Into how many shards the codes are split (Airflow: `shards`). At most so many workers share the work.
    pub shards: NonZeroU32,
    /// The most shards that a worker holds; what nobody may hold is not poked
    /// ([`super::PokeReport::unclaimed`]).
    ///
    /// Without it a worker that is alone takes them all, and reads all their sensors into its memory: after
    /// the others died, and at the first start of a fleet until the others have started. Choose it so that
    /// the workers that are left when some fail can still hold all shards. Default: no limit.
    pub most_shards: NonZeroU32,
    /// How long a worker counts as alive and holds its shards without renewing. A third of it must be enough
    /// for workers to come back after the store could not be reached: then what is still missing counts as
    /// dead.
    pub lease: Duration,
    /// No group is poked more often than this.
    pub min_interval: Duration,
    /// How many pokes are made at once, at most; 0 counts as 1. The threads are the poker's own, made when
    /// they are needed. Async pokes (feature `tokio`) need none, and do not count.
    pub threads: usize,
    /// How many sensors are read at once.
    pub page_size: usize,
    /// How long at most until a tick looks for new registrations.
    pub refresh_every: Duration,
    /// How long a tick waits for the answers to the pokes it began. It ends as soon as all are there; what
    /// comes later is taken up by a later tick.
    pub wait_for_answers: Duration,
    /// How long a poke may take where the sensors do not say ([`crate::sensor::Settings::poke_timeout`];
    /// Airflow: `smart_sensor` `poke_timeout`). Then it counts as [`crate::sensor::PokeOutcome::Unreachable`], and
    /// its thread as hung.
    ///
    /// A sensor that times out waits this long, and no longer, for a poke that is under way.
    pub poke_timeout: Duration,
    /// The longest [`poke_timeout`](crate::sensor::Settings::poke_timeout) that a sensor may ask for; one
    /// that asks for more gets this.
    pub max_poke_timeout: Duration,
    /// How many hung threads are replaced. Each one above this makes the poker work with a thread less until
    /// it returns.
    ///
    /// A kind with half as many hung calls (or one, if that is more) is not poked until one of them returns,
    /// and when this many hang, no kind that has a hung call is: its targets count as
    /// [`crate::sensor::PokeOutcome::Unreachable`], and the threads are left to others.
    pub max_hung: usize,
    /// How long sensors bear a target that cannot be looked at, from the first such answer on (Airflow: 130
    /// minutes).
    pub retry_window: Duration,
    /// A target that cannot be looked at is tried after longer and longer pauses, at most this long: each
    /// failure after the first doubles them. Zero: at its interval, as before.
    pub max_pause: Duration,
}

impl Default for PokerOptions {
    fn default() -> Self {
        Self {
            shard_codes: DEFAULT_CODES,
            shards: NonZeroU32::MIN.saturating_add(15),
            most_shards: NonZeroU32::MAX,
            lease: Duration::from_secs(30),
            min_interval: Duration::from_secs(1),
            threads: 16,
            page_size: 10_000,
            refresh_every: Duration::from_secs(1),
            wait_for_answers: Duration::from_millis(500),
            poke_timeout: Duration::from_secs(10),
            max_poke_timeout: Duration::from_secs(600),
            max_hung: 64,
            retry_window: Duration::from_secs(130 * 60),
            max_pause: Duration::from_secs(600),
        }
    }
}

impl PokerOptions {
    setters! {
        /// Sets the number of shard codes.
        shard_codes: NonZeroU32;
        /// Sets into how many shards the codes are split.
        shards: NonZeroU32;
        /// Sets the most shards that a worker holds.
        most_shards: NonZeroU32;
        /// Sets how long a worker holds its shards without renewing.
        lease: Duration;
        /// Sets the smallest poke interval of all.
        min_interval: Duration;
        /// Sets how many pokes are made at once.
        threads: usize;
        /// Sets how many sensors are read at once.
        page_size: usize;
        /// Sets how long at most until a tick looks for new registrations.
        refresh_every: Duration;
        /// Sets how long a tick waits for the answers to the pokes it began.
        wait_for_answers: Duration;
        /// Sets how long a poke may take where the sensors do not say.
        poke_timeout: Duration;
        /// Sets the longest poke timeout that a sensor may ask for.
        max_poke_timeout: Duration;
        /// Sets how many hung threads are replaced.
        max_hung: usize;
        /// Sets how long sensors bear a target that cannot be looked at.
        retry_window: Duration;
        /// Sets the longest pause between pokes of a target that cannot be looked at.
        max_pause: Duration;
    }
}

/// The default options with the shard codes and shards of these settings.
///
/// Whether sensors are switched on is asked when they register, not here: those that wait already are poked
/// on.
///
/// # Examples
///
/// ```
/// use stationmaster::sensor::SmartSensorConfig;
/// use stationmaster::service::PokerOptions;
/// let options = PokerOptions::from(&SmartSensorConfig::airflow());
/// assert_eq!((options.shard_codes.get(), options.shards.get()), (10_000, 5));
/// ```
impl From<&SmartSensorConfig> for PokerOptions {
    fn from(config: &SmartSensorConfig) -> Self {
        Self::default().shard_codes(config.shard_code_upper_limit).shards(config.shards)
    }
}
