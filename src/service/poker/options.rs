//! How a poker works, and the setters for it.

use std::num::NonZeroU32;
use std::time::Duration;

use super::worker::Poker;
use crate::base::setters;
use crate::sensor::SmartSensorConfig;
use crate::sensor::plan::Rules;
use crate::shard::DEFAULT_CODES;

/// The settings of a [`Poker`] besides its [`Rules`]. The setters document both.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) most_shards: Option<NonZeroU32>,
    pub(super) threads: usize,
    pub(super) page_size: usize,
    pub(super) refresh_every: Duration,
    pub(super) wait_for_answers: Duration,
    pub(super) max_hung: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            most_shards: None,
            threads: 16,
            page_size: 10_000,
            refresh_every: Duration::from_secs(1),
            wait_for_answers: Duration::from_millis(500),
            max_hung: 64,
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            min_interval: Duration::from_secs(1),
            max_pause: Duration::from_secs(600),
            window: Duration::from_secs(130 * 60),
            usual_timeout: Duration::from_secs(10),
            max_timeout: Duration::from_secs(600),
            lease: Duration::from_secs(30),
            codes: DEFAULT_CODES,
            shards: NonZeroU32::MIN.saturating_add(15),
        }
    }
}

/// # Settings
///
/// All workers of a store use the same [`shard_codes`](Self::shard_codes) and [`shards`](Self::shards).
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use stationmaster::service::Poker;
/// use stationmaster::store::MemoryStore;
///
/// let store = Arc::new(MemoryStore::new());
/// let poker = Poker::new(store, "poker".try_into()?).threads(64).poke_timeout(Duration::from_secs(60));
/// # Ok::<(), stationmaster::Error>(())
/// ```
impl Poker {
    setters! {
        /// Sets the number of shard codes (Airflow: `shard_code_upper_limit`). Default: 10,000.
        shard_codes(codes: NonZeroU32) { plan.rules.codes = codes }
        /// Sets how many shards the codes are divided into (Airflow: `shards`). At most this many workers share the
        /// work. Default: 16, at most 65,536.
        shards(shards: NonZeroU32) { plan.rules.shards = shards }
        /// Sets the most shards that a worker holds. Default: no limit. Shards that no worker may hold are not
        /// poked ([`PokeReport::unclaimed`](super::PokeReport::unclaimed)).
        ///
        /// Without it, a worker that is alone takes all shards and reads all their sensors into memory. That
        /// happens after the others died, and at the first start of a fleet until the others have started.
        /// Choose it so that the workers that remain when some fail can still hold all shards.
        most_shards(shards: NonZeroU32) { options.most_shards = Some(shards) }
        /// Sets how long a worker counts as alive and holds its shards without renewing, at least ten
        /// milliseconds. Default: 30 seconds. After the store was unreachable, workers must come back within
        /// a third of this length. Workers still missing then count as dead.
        lease(length: Duration) { plan.rules.lease = length }
        /// Sets the shortest time between two pokes of a group. Default: one second.
        min_interval(length: Duration) { plan.rules.min_interval = length }
        /// Sets the most pokes that run at once; 0 counts as 1. Default: 16. The threads are the poker's own,
        /// created when needed. Async pokes (feature `tokio`) need none, and do not count.
        threads(count: usize) { options.threads = count }
        /// Sets how many sensors are read at once. Default: 10,000.
        page_size(sensors: usize) { options.page_size = sensors }
        /// Sets the longest time until a tick looks for new registrations. Default: one second.
        refresh_every(length: Duration) { options.refresh_every = length }
        /// Sets how long a tick waits for the outcomes of the pokes it began. Default: half a second. It ends
        /// as soon as all have arrived. A later tick processes the rest.
        wait_for_answers(length: Duration) { options.wait_for_answers = length }
        /// Sets how long a poke may take if its sensors do not set it
        /// ([`Settings::poke_timeout`](crate::sensor::Settings::poke_timeout); Airflow: `smart_sensor`
        /// `poke_timeout`). Default: ten seconds. After that it counts as
        /// [`PokeOutcome::Unreachable`](crate::sensor::PokeOutcome::Unreachable), and its thread as hung.
        ///
        /// A sensor that times out waits at most this long for a poke in progress.
        poke_timeout(length: Duration) { plan.rules.usual_timeout = length }
        /// Sets the longest [`poke_timeout`](crate::sensor::Settings::poke_timeout) that a sensor may ask for.
        /// A sensor that asks for more gets this. Default: ten minutes.
        max_poke_timeout(length: Duration) { plan.rules.max_timeout = length }
        /// Sets how many hung threads are replaced. For each one above this, the poker works with one thread
        /// fewer until it returns. Default: 64.
        ///
        /// A kind with half as many hung calls (or one, if that is more) is not poked until one of them
        /// returns. When this many calls hang in all, no kind that has a hung call is poked. Its targets count
        /// as [`PokeOutcome::Unreachable`](crate::sensor::PokeOutcome::Unreachable), and the threads are left
        /// to other kinds.
        max_hung(threads: usize) { options.max_hung = threads }
        /// Sets how long sensors tolerate an unreachable target, from the first such outcome on. Default: 130
        /// minutes, as in Airflow.
        retry_window(length: Duration) { plan.rules.window = length }
        /// Sets the longest pause between pokes of an unreachable target. The pause doubles as the outage lasts: a
        /// target of interval `i` is poked about `i`, `3i`, `7i` … after it began. With zero the pause does not grow,
        /// and the target is poked at its interval. Default: ten minutes.
        max_pause(length: Duration) { plan.rules.max_pause = length }
    }

    /// Sets the shard codes and shards of these settings.
    ///
    /// Whether sensors are enabled is checked when they register, not here. Sensors that already wait continue
    /// to be poked.
    #[must_use]
    pub fn config(self, config: &SmartSensorConfig) -> Self {
        self.shard_codes(config.shard_code_upper_limit).shards(config.shards)
    }
}
