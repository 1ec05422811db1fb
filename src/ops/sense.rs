//! Turning running tasks into sensors and back.

use std::collections::HashSet;

use super::attempt::{RetryAdvice, tasks_under};
use super::leave::{self, Leaving};
use crate::bounds::MAX_TEXT_BYTES;
use crate::error::{Invalid, Result, StoreError};
use crate::id::PoolName;
use crate::lease::LeaseRef;
use crate::sensor::{EndReason, Ending, Ineligible, NewSensor, SensorInsert, SensorRecord};
use crate::store::Tx;
use crate::store::contract::{EventNote, Move, StateSet};
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

/// What happened to a registration.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Registered {
    /// The sensor waits. The task's lease has ended, and its slots are free (or kept, by the pool's option).
    Waiting(Box<SensorRecord>),
    /// The task was admitted but not started: start it first. Nothing was changed.
    NotRunning,
    /// The lease is stale. Nothing was changed; stop the work.
    Stale,
    /// The operator's settings do not let the task wait as a sensor. Nothing was changed: the task continues
    /// under its lease, and the host pokes it itself.
    Ineligible(Ineligible),
}

impl Registered {
    /// Returns true if the sensor waits now.
    pub fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_))
    }

    /// Returns true if the host keeps the task and pokes it itself.
    pub fn host_pokes(&self) -> bool {
        matches!(self, Self::Ineligible(_))
    }
}

impl Tx<'_> {
    /// Registers running tasks as sensors and frees their slots in one transaction.
    ///
    /// Their limits are freed too. An earlier registration is replaced. If there are two sensors for one
    /// lease, the first counts. The call does not consult settings; see
    /// [`register_with`](crate::store::Tx::register_with).
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn register(&mut self, now: impl Into<Timestamp>, sensors: &[NewSensor]) -> Result<Vec<Registered>> {
        let now = now.into();
        self.whole(|tx| {
            let leases: Vec<LeaseRef> = sensors.iter().map(|sensor| sensor.lease).collect();
            let tasks = tasks_under(tx, &leases)?;
            let keeping = keeping_pools(tx, tasks.iter().flatten())?;

            let mut leaving: Vec<Leaving> = Vec::with_capacity(sensors.len());
            let mut rows = Vec::with_capacity(sensors.len());
            let mut places: Vec<Result<usize, Registered>> = Vec::with_capacity(sensors.len());
            let mut seen = HashSet::with_capacity(sensors.len());
            for (sensor, task) in sensors.iter().zip(tasks) {
                let task = match task {
                    Some(task) if task.state == TaskState::Queued => {
                        places.push(Err(Registered::NotRunning));
                        continue;
                    }
                    Some(task) if task.state == TaskState::Running && seen.insert(task.id) => task,
                    _ => {
                        places.push(Err(Registered::Stale));
                        continue;
                    }
                };
                let mut to = Move::new(sensor.lease, StateSet::of(&[TaskState::Running]), TaskState::Sensing);
                to.keeps_slots = keeping.contains(&task.lane.pool);
                rows.push(SensorInsert { registered_at: task.recorded_at(now), ..sensor.insert(now) });
                leaving.push((task, to));
                places.push(Ok(leaving.len() - 1));
            }
            if leave::commit(tx, now, &leaving)?.contains(&false) {
                return Err(StoreError::conflict("a task changed while it was registered as a sensor").into());
            }
            let mut waiting: Vec<Option<SensorRecord>> =
                tx.raw().put_sensors(&rows)?.into_iter().map(Some).collect();
            let answer = |place: Result<usize, Registered>| match place {
                Ok(at) => match waiting.get_mut(at).and_then(Option::take) {
                    Some(sensor) => Registered::Waiting(Box::new(sensor)),
                    None => Registered::Stale,
                },
                Err(refused) => refused,
            };
            Ok(places.into_iter().map(answer).collect())
        })
    }
}

/// Returns the pools of these tasks whose sensing tasks keep their slots.
fn keeping_pools<'a>(
    tx: &mut Tx<'_>,
    tasks: impl Iterator<Item = &'a TaskRecord>,
) -> Result<HashSet<PoolName>> {
    let names: HashSet<&PoolName> = tasks.map(|task| &task.lane.pool).collect();
    let names: Vec<PoolName> = names.into_iter().cloned().collect();
    let pools = tx.raw().pools(&names)?.into_iter().flatten();
    Ok(pools.filter(|pool| pool.spec.sensing_keeps_slots).map(|pool| pool.spec.name).collect())
}

impl Tx<'_> {
    /// Ends sensors. Each task that is still sensing under that registration moves on, and an event is kept
    /// for the host.
    ///
    /// The attempt fails if the sensor failed, could not be poked for too long or exceeded its execution
    /// timeout. The task's policy then decides whether it is retried. A sensor that timed out
    /// ([`EndReason::TimedOut`]) is not retried, because it used all its time.
    ///
    /// A task that is resumed did not fail: the attempt that registered does not count against its retry
    /// policy.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::Ending`] for a state that is neither an end nor `Scheduled`. Returns
    /// [`Invalid::TooManyBytes`] for a value or message above [`MAX_TEXT_BYTES`]. Returns
    /// [`crate::Error::Store`] if the store fails.
    pub fn end_sensors(
        &mut self,
        now: impl Into<Timestamp>,
        ends: &[(LeaseRef, Ending)],
    ) -> Result<Vec<bool>> {
        let now = now.into();
        self.whole(|tx| {
            if ends.is_empty() {
                return Ok(Vec::new());
            }
            for (_, ending) in ends {
                check(ending)?;
            }
            let refs: Vec<LeaseRef> = ends.iter().map(|(sensor, _)| *sensor).collect();
            let tasks = tasks_under(tx, &refs)?;
            let sensors = tx.raw().end_sensors_if_waiting(&refs)?;

            let mut leaving: Vec<Leaving> = Vec::new();
            let mut notes = Vec::new();
            let mut places = Vec::with_capacity(ends.len());
            for (((_, ending), task), sensor) in ends.iter().zip(tasks).zip(sensors) {
                let sensing = |task: &TaskRecord| task.state == TaskState::Sensing;
                let (Some(task), Some(sensor)) = (task.filter(sensing), sensor) else {
                    places.push(None);
                    continue;
                };
                let mut to = decide(&task, ending, now);
                let at = ended_at(&task, &sensor, now);
                to.ended_at = Some(at);
                let ending = Ending { to: to.to, message: to.message.clone(), ..ending.clone() };
                notes.push(EventNote::new(sensor, at, ending));
                leaving.push((task, to));
                places.push(Some(leaving.len() - 1));
            }
            // The events come first: a task that has an event is not among those that can be forgotten.
            if !notes.is_empty() {
                tx.raw().note_events(&notes)?;
            }
            if leave::commit(tx, now, &leaving)?.contains(&false) {
                return Err(StoreError::conflict("a sensing task changed while its sensor was ended").into());
            }
            Ok(places.into_iter().map(|place| place.is_some()).collect())
        })
    }
}

/// Returns the instant recorded as the end of a sensing task: not before its sensor registered.
pub(super) fn ended_at(task: &TaskRecord, sensor: &SensorRecord, now: Timestamp) -> Timestamp {
    task.recorded_at(now).max(sensor.registered_at)
}

fn check(ending: &Ending) -> Result<(), Invalid> {
    if !ending.to.is_end() && ending.to != TaskState::Scheduled {
        return Err(Invalid::Ending { to: ending.to.as_str() });
    }
    let texts = [("a landed value", &ending.value), ("a sensor's message", &ending.message)];
    for (what, text) in texts {
        let bytes = text.as_ref().map_or(0, String::len);
        if bytes > MAX_TEXT_BYTES {
            return Err(Invalid::TooManyBytes { what, bytes, cap: MAX_TEXT_BYTES });
        }
    }
    Ok(())
}

fn decide(task: &TaskRecord, ending: &Ending, now: Timestamp) -> Move {
    let from = StateSet::of(&[TaskState::Sensing]);
    let attempt_failed =
        matches!(ending.reason, EndReason::Failed | EndReason::ExecutionTimedOut | EndReason::Unreachable);
    if attempt_failed && ending.to == TaskState::Failed {
        let message = ending.message.clone().unwrap_or_default();
        return leave::failed(task, from, now, message, RetryAdvice::Policy);
    }
    Move {
        forgive: u32::from(ending.to == TaskState::Scheduled),
        message: ending.message.clone(),
        value: ending.value.clone(),
        ..Move::new(task.lease_ref(), from, ending.to)
    }
}
