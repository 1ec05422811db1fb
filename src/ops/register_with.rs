//! Registering sensors under the operator's settings.

use std::collections::HashMap;

use super::attempt::tasks_under;
use super::sense::Registered;
use crate::error::Result;
use crate::lease::LeaseRef;
use crate::sensor::{Ineligible, NewSensor, SmartSensorConfig};
use crate::store::Tx;
use crate::task::TaskState;
use crate::time::Timestamp;

impl Tx<'_> {
    /// Registers sensors like [`register`](Self::register) for tasks that the operator's settings allow to
    /// wait as sensors. Returns [`Registered::Ineligible`] for the others.
    ///
    /// Of two sensors for one lease, the first counts. If it is ineligible, so is the other.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn register_with(
        &mut self,
        now: impl Into<Timestamp>,
        config: &SmartSensorConfig,
        sensors: &[NewSensor],
    ) -> Result<Vec<Registered>> {
        let now = now.into();
        self.whole(|tx| {
            let mut first: HashMap<LeaseRef, Option<Ineligible>> = HashMap::with_capacity(sensors.len());
            let mut ineligible =
                |sensor: &NewSensor| *first.entry(sensor.lease).or_insert_with(|| config.ineligible(sensor));
            let why: Vec<Option<Ineligible>> = sensors.iter().map(&mut ineligible).collect();
            if why.iter().all(Option::is_none) {
                return tx.register(now, sensors);
            }
            let (mut eligible, mut others) = (Vec::new(), Vec::new());
            for (sensor, why) in sensors.iter().zip(&why) {
                match why {
                    None => eligible.push(sensor.clone()),
                    Some(why) => others.push((sensor, *why)),
                }
            }
            let mut kept = keep(tx, &others)?.into_iter();
            let mut registered = tx.register(now, &eligible)?.into_iter();
            let answers = why.iter().map(|why| if why.is_some() { kept.next() } else { registered.next() });
            Ok(answers.map(|answer| answer.unwrap_or(Registered::Stale)).collect())
        })
    }
}

/// Returns the results for sensors that are not eligible. A lost lease takes precedence.
fn keep(tx: &mut Tx<'_>, others: &[(&NewSensor, Ineligible)]) -> Result<Vec<Registered>> {
    let leases: Vec<LeaseRef> = others.iter().map(|(sensor, _)| sensor.lease).collect();
    let tasks = tasks_under(tx, &leases)?;
    let answers = others.iter().zip(tasks).map(|((_, why), task)| match task.map(|task| task.state) {
        Some(TaskState::Running) => Registered::Ineligible(*why),
        Some(TaskState::Queued) => Registered::NotRunning,
        _ => Registered::Stale,
    });
    Ok(answers.collect())
}
