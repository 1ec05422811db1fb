//! Turning running tasks into sensors and back.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::attempt::{RetryAdvice, hold_under};
use super::leave::{self, Leaving};
use crate::bounds::MAX_TEXT_BYTES;
use crate::error::{Error, Invalid, Result, StoreError};
use crate::id::PoolName;
use crate::lease::LeaseRef;
use crate::sensor::{EndReason, Ending, Ineligible, NewSensor, SensorInsert, SensorRecord};
use crate::store::Tx;
use crate::store::contract::{Held, Move, Wait};
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

/// What happened to a registration.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Registered {
    /// The sensor waits. The task's lease has ended, and its slots are free (or kept, by the pool's option).
    Waiting(Box<SensorRecord>),
    /// The task was admitted but not started. Start it first. Nothing was changed.
    NotRunning,
    /// The lease is stale. Nothing was changed. Stop the work.
    Stale,
    /// The task was [cancelled](crate::store::Tx::cancel). It has ended as [`TaskState::Cancelled`], and its
    /// slots are free.
    Cancelled,
    /// The operator's settings do not allow the task to wait as a sensor. Nothing was changed. The task
    /// continues under its lease, and the host pokes it itself.
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
    /// Their limits are freed too. An earlier registration is replaced. Of two sensors for one lease, the
    /// first counts. The call does not consult settings; see
    /// [`register_with`](crate::store::Tx::register_with). A task that was [cancelled](Self::cancel) ends
    /// instead of waiting.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn register(&mut self, now: impl Into<Timestamp>, sensors: &[NewSensor]) -> Result<Vec<Registered>> {
        let now = now.into();
        self.whole(|tx| {
            let mut first: HashMap<LeaseRef, usize> = HashMap::with_capacity(sensors.len());
            for (at, sensor) in sensors.iter().enumerate() {
                first.entry(sensor.lease).or_insert(at);
            }
            let mut open: Vec<usize> = first.values().copied().collect();
            open.sort_unstable();
            let mut answers: Vec<Registered> = vec![Registered::Stale; sensors.len()];
            let mut rows: BTreeMap<usize, SensorInsert> = BTreeMap::new();
            leave::settle(open, |open| {
                let leases: Vec<LeaseRef> = open.iter().map(|at| sensors[*at].lease).collect();
                let held = hold_under(tx, &leases, Wait::ForOthers)?;
                let tasks = held.iter().filter_map(|held| match held {
                    Held::Task(task) => Some(&**task),
                    _ => None,
                });
                let keeping = keeping_pools(tx, tasks)?;
                let (mut leaving, mut places) = (Vec::<Leaving>::new(), Vec::new());
                for (at, held) in open.iter().zip(held) {
                    answers[*at] = match held {
                        Held::Task(task) if task.state == TaskState::Queued => Registered::NotRunning,
                        Held::Task(task) if task.state == TaskState::Running => {
                            places.push(*at);
                            if let Some(to) = leave::cancelled(&task, now) {
                                leaving.push((*task, to));
                                answers[*at] = Registered::Cancelled;
                                continue;
                            }
                            let mut to = Move::new(sensors[*at].lease, task.state, TaskState::Sensing);
                            to.keeps_slots = keeping.contains(&task.lane.pool);
                            let registered_at = task.recorded_at(now);
                            let registered_by = task.lease.as_ref().map(|lease| lease.holder.clone());
                            let insert = sensors[*at].insert(now);
                            rows.insert(*at, SensorInsert { registered_at, registered_by, ..insert });
                            leaving.push((*task, to));
                            continue;
                        }
                        _ => Registered::Stale,
                    };
                }
                let moved = leave::commit(tx, now, &leaving)?;
                let missed = places.into_iter().zip(moved).filter(|(_, moved)| !*moved).map(|(at, _)| at);
                let missed: Vec<usize> = missed.collect();
                missed.iter().for_each(|at| drop(rows.remove(at)));
                Ok(missed)
            })?;
            let (places, rows): (Vec<usize>, Vec<SensorInsert>) = rows.into_iter().unzip();
            for (at, sensor) in places.into_iter().zip(tx.raw().put_sensors(&rows)?) {
                answers[at] = Registered::Waiting(Box::new(sensor));
            }
            for (at, sensor) in sensors.iter().enumerate() {
                // The first sensor of a lease ends it, so a second one finds it stale.
                if let Some(first) = first.get(&sensor.lease).filter(|first| **first != at)
                    && matches!(answers[*first], Registered::NotRunning | Registered::Cancelled)
                {
                    answers[at] = answers[*first].clone();
                }
            }
            Ok(answers)
        })
    }
}

/// Returns which of these tasks' pools let sensing tasks keep their slots.
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
    /// Ends sensors. Each task that is still sensing under that registration moves on, and the
    /// [feed](crate::feed) reports it if the task opted in.
    ///
    /// The attempt fails if the sensor failed, exceeded its execution timeout or could not be poked for too
    /// long. The task's policy then decides on a retry. A sensor that timed out ([`EndReason::TimedOut`]) is
    /// not retried, because it used all its time.
    ///
    /// A resumed task has not failed: the attempt that registered the sensor does not count against its retry
    /// policy. If the sensor landed without a value, the task's value is empty, not `None`.
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
        let ended = end_sensors(self, now.into(), ends, Wait::ForOthers)?;
        Ok(ended.into_iter().map(|ended| ended == EndedSensor::Ended).collect())
    }
}

/// The result of ending one sensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndedSensor {
    /// It ended, and its task moved on.
    Ended,
    /// It no longer waits under that registration.
    NotWaiting,
    /// Another transaction holds its task or its run. The sensor still waits, unless that transaction ends
    /// it.
    PassedOver,
}

/// Works like [`end_sensors`](crate::store::Tx::end_sensors), but skips what other transactions hold. Used by
/// pokers, which must not wait for a host.
pub(crate) fn end_free_sensors(
    tx: &mut Tx<'_>,
    now: Timestamp,
    ends: &[(LeaseRef, Ending)],
) -> Result<Vec<EndedSensor>> {
    end_sensors(tx, now, ends, Wait::Never)
}

fn end_sensors(
    tx: &mut Tx<'_>,
    now: Timestamp,
    ends: &[(LeaseRef, Ending)],
    wait: Wait,
) -> Result<Vec<EndedSensor>> {
    tx.whole(|tx| {
        if ends.is_empty() {
            return Ok(Vec::new());
        }
        for (_, ending) in ends {
            check(ending)?;
        }
        let refs: Vec<LeaseRef> = ends.iter().map(|(sensor, _)| *sensor).collect();
        // Locked first, so that neither the tasks nor their sensors change until this transaction ends.
        let mut tasks: Vec<Option<TaskRecord>> = Vec::with_capacity(refs.len());
        let mut answers = vec![EndedSensor::NotWaiting; refs.len()];
        for (held, answer) in hold_under(tx, &refs, wait)?.into_iter().zip(&mut answers) {
            if held == Held::Busy {
                *answer = EndedSensor::PassedOver;
            }
            tasks.push(match held {
                Held::Task(task) if task.state == TaskState::Sensing => Some(*task),
                _ => None,
            });
        }
        if wait == Wait::Never {
            let mut free = leave::hold_runs(tx, tasks.iter().flatten())?.into_iter();
            for (task, answer) in tasks.iter().zip(&mut answers).filter(|(task, _)| task.is_some()) {
                if task.is_some() && free.next() == Some(false) {
                    *answer = EndedSensor::PassedOver;
                }
            }
        }
        let is_sensing = |at: &usize| tasks[*at].is_some() && answers[*at] != EndedSensor::PassedOver;
        let open: Vec<usize> = (0..refs.len()).filter(is_sensing).collect();
        let waiting: Vec<LeaseRef> = open.iter().map(|at| refs[*at]).collect();
        let sensors =
            if waiting.is_empty() { Vec::new() } else { tx.raw().end_sensors_if_waiting(&waiting)? };

        let mut leaving: Vec<Leaving> = Vec::new();
        for (at, sensor) in open.into_iter().zip(sensors) {
            let (Some(task), Some(sensor)) = (tasks[at].take(), sensor) else { continue };
            let (_, ending) = &ends[at];
            let mut to = decide(&task, ending, now);
            to.ended_at = Some(ended_at(&task, &sensor, now));
            to.reason = Some(ending.reason);
            leaving.push((task, to));
            answers[at] = EndedSensor::Ended;
        }
        if leave::commit(tx, now, &leaving)?.contains(&false) {
            return Err(sensing_task_changed());
        }
        Ok(answers)
    })
}

/// Returns the error of a store that let a task change while this transaction held it. The sensor has already
/// been ended, so the move cannot be decided again.
pub(super) fn sensing_task_changed() -> Error {
    StoreError::conflict("a sensing task changed while its sensor was ended").into()
}

/// Returns the instant to record as the end of a sensing task, which is never before its sensor registered.
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
    let attempt_failed =
        matches!(ending.reason, EndReason::Failed | EndReason::ExecutionTimedOut | EndReason::Unreachable);
    if attempt_failed && ending.to == TaskState::Failed {
        let message = ending.message.clone().unwrap_or_default();
        return leave::failed(task, now, message, RetryAdvice::Policy);
    }
    let goes_on = ending.to == TaskState::Scheduled;
    // The presence of a value tells the next attempt that the sensor has landed.
    let no_value = (goes_on && ending.reason == EndReason::Landed).then(String::new);
    Move {
        forgive: u32::from(goes_on),
        keeps_slots: goes_on,
        message: ending.message.clone(),
        value: ending.value.clone().or(no_value),
        ..Move::new(task.lease_ref(), task.state, ending.to)
    }
}
