//! Registering under the operator's settings, and what the host does where that is refused or fails.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::sense::{Registered, register};
use crate::error::Result;
use crate::lease::{LeaseRef, TaskNo};
use crate::sensor::{Ineligible, NewSensor, SmartSensorConfig};
use crate::store::{Store, StoreExt, StoreTx};
use crate::task::TaskState;

/// As [`register`], if the operator's settings let the task wait as a sensor; [`Registered::Ineligible`] if not.
///
/// Of two sensors for one lease the first counts here, too: if it is ineligible, so is the other.
///
/// # Errors
///
/// [`crate::Error::Store`] if the store fails.
pub fn register_with(
    tx: &mut (impl StoreTx + ?Sized),
    now: DateTime<Utc>,
    config: &SmartSensorConfig,
    sensors: &[NewSensor],
) -> Result<Vec<Registered>> {
    let mut first: HashMap<LeaseRef, Option<Ineligible>> = HashMap::with_capacity(sensors.len());
    let mut ineligible =
        |sensor: &NewSensor| *first.entry(sensor.lease).or_insert_with(|| config.ineligible(sensor));
    let why: Vec<Option<Ineligible>> = sensors.iter().map(&mut ineligible).collect();
    if why.iter().all(Option::is_none) {
        return register(tx, now, sensors);
    }
    let (mut eligible, mut others) = (Vec::new(), Vec::new());
    for (sensor, why) in sensors.iter().zip(&why) {
        match why {
            None => eligible.push(sensor.clone()),
            Some(why) => others.push((sensor, *why)),
        }
    }
    let mut kept = keep(tx, &others)?.into_iter();
    let mut registered = register(tx, now, &eligible)?.into_iter();
    let answers = why.iter().map(|why| if why.is_some() { kept.next() } else { registered.next() });
    Ok(answers.map(|answer| answer.unwrap_or(Registered::Stale)).collect())
}

/// What is said of those that must not be sensors: a lost lease is the more urgent news.
fn keep(tx: &mut (impl StoreTx + ?Sized), others: &[(&NewSensor, Ineligible)]) -> Result<Vec<Registered>> {
    let nos: Vec<TaskNo> = others.iter().map(|(sensor, _)| sensor.lease.no).collect();
    let tasks = tx.tasks_by_no(&nos)?;
    let answers = others.iter().zip(tasks).map(|((sensor, why), task)| {
        match task.filter(|task| task.lease_ref() == sensor.lease).map(|task| task.state) {
            Some(TaskState::Running) => Registered::Ineligible(*why),
            Some(TaskState::Queued) => Registered::NotRunning,
            _ => Registered::Stale,
        }
    });
    Ok(answers.collect())
}

/// As [`register_with`], in a transaction of its own, and with a failure of the store as a value: whatever happens, each
/// task either waits as a sensor, or its host knows that it must poke by itself or stop.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::canonical::PokeContext;
/// use stationmaster::sensor::{Ineligible, NewSensor, Settings, SmartSensorConfig};
/// use stationmaster::service::lifecycle::{Registered, enqueue, hand_over, start};
/// use stationmaster::service::{Admitter, AdmitterOptions, Service};
/// use stationmaster::store::{MemoryStore, StoreExt};
/// use stationmaster::time::from_micros;
/// use stationmaster::{NewTask, TaskKey};
///
/// let (store, now) = (std::sync::Arc::new(MemoryStore::new()), from_micros(0));
/// store.write(|tx| enqueue(tx, now, &[NewTask::new(TaskKey::new("prod", "nightly", "r1", "wait")?)]))?;
/// let task = Admitter::new(store.clone(), "w".try_into()?, AdmitterOptions::default())?.tick(now)?.granted.remove(0);
/// store.write(|tx| start(tx, now, &[task.lease_ref()]))?;
///
/// let settings = Settings::new(Duration::from_secs(30), Duration::from_secs(3600))?;
/// let context = PokeContext::from_json(r#"{"path": "/data/in.csv"}"#)?;
/// let sensor = NewSensor::new(task.lease_ref(), "file".try_into()?, context, settings);
/// let off = SmartSensorConfig::default().use_smart_sensor(false);
/// match &hand_over(store.as_ref(), now, &off, &[sensor])[..] {
///     [Registered::Waiting(_)] => unreachable!("the task's process could end here"),
///     [answer] if answer.host_pokes() => assert_eq!(*answer, Registered::Ineligible(Ineligible::SwitchedOff)),
///     other => unreachable!("{other:?}"),
/// }
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub fn hand_over(
    store: &(impl Store + ?Sized),
    now: DateTime<Utc>,
    config: &SmartSensorConfig,
    sensors: &[NewSensor],
) -> Vec<Registered> {
    match store.write(|tx| register_with(tx, now, config, sensors)) {
        Ok(answers) => answers,
        Err(error) => {
            let message = error.to_string();
            sensors.iter().map(|_| Registered::Failed(message.clone())).collect()
        }
    }
}
