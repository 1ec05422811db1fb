//! What the operator's settings mean for the services.

use super::poker::PokerOptions;
use crate::sensor::SmartSensorConfig;

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
