//! How a poker works.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::base::setters;
use crate::sensor::SmartSensorConfig;
use crate::shard::DEFAULT_CODES;

/// How a [`super::Poker`] works. All workers of a store use the same `shard_codes` and `shards`.
///
/// Defaults: 10,000 codes in 16 shards, leases of 30 seconds, no poke interval below one second, 16 threads,
/// 10,000 sensors per read. A tick waits half a second for outcomes. A poke may take ten seconds, or as long
/// as its sensors ask for, up to ten minutes. 64 threads may hang. An unreachable target is tried at least
/// every ten minutes, and its sensors tolerate that for 130 minutes.
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
    /// Into how many shards the codes are split (Airflow: `shards`). At most this many workers share the
    /// work.
    pub shards: NonZeroU32,
    /// The most shards that a worker holds. Shards that no worker may hold are not poked
    /// ([`super::PokeReport::unclaimed`]).
    ///
    /// Without it, a worker that is alone takes all shards and reads all their sensors into memory. That
    /// happens after the others died, and at the first start of a fleet until the others have started. Choose
    /// it so that the workers that remain when some fail can still hold all shards. Default: no limit.
    pub most_shards: NonZeroU32,
    /// How long a worker counts as alive and holds its shards without renewing. When the store was
    /// unreachable, workers must come back within a third of it. Workers still missing then count as dead.
    pub lease: Duration,
    /// No group is poked more often than this.
    pub min_interval: Duration,
    /// The most pokes that run at once; 0 counts as 1. The threads are the poker's own, created when needed.
    /// Async pokes (feature `tokio`) need none, and do not count.
    pub threads: usize,
    /// How many sensors are read at once.
    pub page_size: usize,
    /// The longest time until a tick looks for new registrations.
    pub refresh_every: Duration,
    /// How long a tick waits for the outcomes of the pokes it began. It ends as soon as all have arrived. A
    /// later tick processes the rest.
    pub wait_for_answers: Duration,
    /// How long a poke may take if its sensors do not set it ([`crate::sensor::Settings::poke_timeout`];
    /// Airflow: `smart_sensor` `poke_timeout`). After that it counts as
    /// [`crate::sensor::PokeOutcome::Unreachable`], and its thread as hung.
    ///
    /// A sensor that times out waits at most this long for a poke in progress.
    pub poke_timeout: Duration,
    /// The longest [`poke_timeout`](crate::sensor::Settings::poke_timeout) that a sensor may ask for. A
    /// sensor that asks for more gets this.
    pub max_poke_timeout: Duration,
    /// How many hung threads are replaced. For each one above this, the poker works with one thread less
    /// until it returns.
    ///
    /// A kind with half as many hung calls (or one, if that is more) is not poked until one of them returns.
    /// When this many calls hang in all, no kind that has a hung call is poked. Its targets count as
    /// [`crate::sensor::PokeOutcome::Unreachable`], and the threads are left to other kinds.
    pub max_hung: usize,
    /// How long sensors tolerate an unreachable target, from the first such outcome on (Airflow: 130
    /// minutes).
    pub retry_window: Duration,
    /// The longest pause between pokes of an unreachable target. Each failure after the first doubles the
    /// pause. With zero it is poked at its interval, as before.
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
        /// Sets the smallest interval between pokes of a group.
        min_interval: Duration;
        /// Sets the most pokes that run at once.
        threads: usize;
        /// Sets how many sensors are read at once.
        page_size: usize;
        /// Sets the longest time until a tick looks for new registrations.
        refresh_every: Duration;
        /// Sets how long a tick waits for the outcomes of the pokes it began.
        wait_for_answers: Duration;
        /// Sets how long a poke may take if its sensors do not set it.
        poke_timeout: Duration;
        /// Sets the longest poke timeout that a sensor may ask for.
        max_poke_timeout: Duration;
        /// Sets how many hung threads are replaced.
        max_hung: usize;
        /// Sets how long sensors tolerate an unreachable target.
        retry_window: Duration;
        /// Sets the longest pause between pokes of an unreachable target.
        max_pause: Duration;
    }
}

/// The default options with the shard codes and shards of these settings.
///
/// Whether sensors are enabled is checked when they register, not here. Sensors that already wait continue to
/// be poked.
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
