//! The operator's switches for sensors, for all or by kind, under the names that Airflow gave them.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::spec::NewSensor;
use crate::base::setters;
use crate::id::SensorKind;
use crate::shard::DEFAULT_CODES;

/// The operator's settings for sensors, named as in the section `[smart_sensor]` of Airflow 2.0 to 2.3.
///
/// They enable or disable sensors, for all tasks or by kind, without a change to any workflow. If a task may
/// not wait as a sensor, its registration says so and the host pokes on its own. Unknown fields are rejected.
/// A missing field takes its default.
///
/// | field | default | Airflow's | |
/// |---|---|---|---|
/// | `use_smart_sensor` | `true` | `false` | hosts opt in by registering; Airflow's workers had no say |
/// | `shard_code_upper_limit` | 10,000 | 10,000 | the number of shard codes |
/// | `shards` | 16 | 5 | most workers sharing the work; idle shards cost rows here, processes there |
/// | `sensors_enabled` | `"*"` | `["NamedHivePartitionSensor"]` | a list, `"a, b"`, or `"*"` for all kinds |
///
/// [`Self::airflow`] returns Airflow's defaults. To create a poker from a config, use
/// `Poker::config(&config)`.
///
/// # Examples
///
/// ```
/// use stationmaster::sensor::SmartSensorConfig;
///
/// let text = r#"{"use_smart_sensor": true, "shards": 5, "sensors_enabled": "file_exists, tcp_accepts"}"#;
/// let config: SmartSensorConfig = serde_json::from_str(text)?;
/// assert_eq!((config.shard_code_upper_limit.get(), config.shards.get()), (10_000, 5));
/// assert!(config.enables(&"tcp_accepts".try_into().unwrap()));
/// assert!(serde_json::from_str::<SmartSensorConfig>(r#"{"shard": 5}"#).is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct SmartSensorConfig {
    /// Whether tasks may wait as sensors at all.
    pub use_smart_sensor: bool,
    /// The number of shard codes, at least 1.
    pub shard_code_upper_limit: NonZeroU32,
    /// The number of shards into which the codes are split, at least 1.
    pub shards: NonZeroU32,
    /// The kinds that may wait as sensors; `None` enables all. In serde, `"*"` stands for all; anything else
    /// is a list of names or one comma-separated string.
    #[serde(with = "kinds")]
    pub sensors_enabled: Option<BTreeSet<SensorKind>>,
}

impl Default for SmartSensorConfig {
    fn default() -> Self {
        Self {
            use_smart_sensor: true,
            shard_code_upper_limit: DEFAULT_CODES,
            shards: NonZeroU32::MIN.saturating_add(15),
            sensors_enabled: None,
        }
    }
}

impl SmartSensorConfig {
    /// Returns Airflow's defaults (2.0 to 2.3): off, 10,000 codes, 5 shards, one kind.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::sensor::SmartSensorConfig;
    /// let text = serde_json::to_string(&SmartSensorConfig::airflow())?;
    /// assert_eq!(text, concat!(
    ///     r#"{"use_smart_sensor":false,"shard_code_upper_limit":10000,"shards":5,"#,
    ///     r#""sensors_enabled":["NamedHivePartitionSensor"]}"#,
    /// ));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn airflow() -> Self {
        Self {
            use_smart_sensor: false,
            shard_code_upper_limit: DEFAULT_CODES,
            shards: NonZeroU32::MIN.saturating_add(4),
            sensors_enabled: Some(SensorKind::new("NamedHivePartitionSensor").into_iter().collect()),
        }
    }

    setters! {
        /// Enables or disables sensors for all tasks.
        use_smart_sensor: bool;
        /// Sets the number of shard codes.
        shard_code_upper_limit: NonZeroU32;
        /// Sets the number of shards into which the codes are split.
        shards: NonZeroU32;
        /// Sets the kinds that may wait as sensors; `None` enables all.
        sensors_enabled: Option<BTreeSet<SensorKind>>;
    }

    /// Returns true if sensors of this kind are enabled.
    pub fn enables(&self, kind: &SensorKind) -> bool {
        self.sensors_enabled.as_ref().is_none_or(|kinds| kinds.contains(kind))
    }

    /// Returns why this task must not wait as a sensor, or `None` if it may.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::canonical::PokeContext;
    /// use stationmaster::sensor::{Ineligible, NewSensor, Settings, SmartSensorConfig};
    /// use stationmaster::{LeaseRef, TaskId};
    ///
    /// let settings = Settings::new(Duration::from_secs(30), Duration::from_secs(3600))?;
    /// let context = PokeContext::from_json(r#"{"path": "/data/in.csv"}"#)?;
    /// let sensor = NewSensor::new(LeaseRef::new(TaskId(1), 1), "file".try_into()?, context, settings);
    /// let config = SmartSensorConfig::default();
    /// assert_eq!(config.ineligible(&sensor), None);
    /// assert_eq!(config.clone().use_smart_sensor(false).ineligible(&sensor), Some(Ineligible::SwitchedOff));
    /// let sensor = sensor.has_callbacks(true);
    /// assert_eq!(config.ineligible(&sensor), Some(Ineligible::HasCallbacks));
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn ineligible(&self, sensor: &NewSensor) -> Option<Ineligible> {
        if !self.use_smart_sensor {
            Some(Ineligible::SwitchedOff)
        } else if !self.enables(&sensor.kind) {
            Some(Ineligible::KindNotEnabled)
        } else if sensor.has_callbacks {
            Some(Ineligible::HasCallbacks)
        } else {
            None
        }
    }
}

/// Reads and writes [`SmartSensorConfig::sensors_enabled`]. `"*"` stands for all kinds; anything else is a
/// list of names or one comma-separated string.
mod kinds {
    use super::*;

    type Enabled = Option<BTreeSet<SensorKind>>;

    #[derive(Deserialize)]
    #[serde(untagged, expecting = "\"*\", a list of sensor kinds, or a text with commas between them")]
    enum Kinds {
        Text(String),
        List(Vec<String>),
    }

    pub(super) fn serialize<S: Serializer>(kinds: &Enabled, serializer: S) -> Result<S::Ok, S::Error> {
        match kinds {
            None => serializer.serialize_str("*"),
            Some(kinds) => serializer.collect_seq(kinds),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Enabled, D::Error> {
        let names = match Kinds::deserialize(deserializer)? {
            Kinds::Text(text) if text.trim() == "*" => return Ok(None),
            Kinds::Text(text) => {
                text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
            }
            Kinds::List(names) => names,
        };
        names.into_iter().map(SensorKind::new).collect::<Result<_, _>>().map(Some).map_err(Error::custom)
    }
}

/// The reason why a task must not wait as a sensor. Its host then pokes on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ineligible {
    /// Sensors are disabled for all tasks (`use_smart_sensor`).
    SwitchedOff,
    /// Its kind is not one of `sensors_enabled`.
    KindNotEnabled,
    /// It has [callbacks](NewSensor::has_callbacks) that only its own process can call.
    HasCallbacks,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<SmartSensorConfig, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn what_is_written_is_read_back() {
        for config in [SmartSensorConfig::default(), SmartSensorConfig::airflow()] {
            assert_eq!(read(&serde_json::to_string(&config).unwrap()).unwrap(), config);
        }
        assert_eq!(read("{}").unwrap(), SmartSensorConfig::default());
    }

    #[test]
    fn kinds_come_as_a_list_as_text_or_all() {
        let config = |text: &str| read(&format!(r#"{{"sensors_enabled": {text}}}"#)).unwrap();
        let two = Some(["a", "b"].map(|kind| SensorKind::new(kind).unwrap()).into());
        assert_eq!(config(r#"["b", "a", "b"]"#).sensors_enabled, two);
        assert_eq!(config(r#"" a ,b, ""#).sensors_enabled, two);
        assert_eq!(config(r#""*""#).sensors_enabled, None);
        assert!(!config(r#""""#).enables(&"a".try_into().unwrap()), "none");
        assert!(!config(r#"["*"]"#).enables(&"a".try_into().unwrap()), "a kind of that name");
    }

    #[test]
    fn what_makes_no_sense_is_refused_and_says_why() {
        for (text, part) in [
            (r#"{"shards": 0}"#, "expected a nonzero"),
            (r#"{"shard_code_upper_limit": 0}"#, "expected a nonzero"),
            (r#"{"shards": -1}"#, "expected a nonzero"),
            (r#"{"use_smart_sensors": true}"#, "unknown field `use_smart_sensors`, expected one of"),
            (r#"{"use_smart_sensor": "yes"}"#, "expected a boolean"),
            (r#"{"sensors_enabled": [""]}"#, "sensor kind is empty"),
            (r#"{"sensors_enabled": 5}"#, "a list of sensor kinds"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
