//! Ending tasks from outside, as a person or a rule of the host decides.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::leave::{self, Leaving};
use super::sense::{ended_at, sensing_task_changed};
use crate::bounds::MAX_TEXT_BYTES;
use crate::error::{Invalid, Result};
use crate::id::TaskKey;
use crate::lease::{LeaseRef, TaskId};
use crate::sensor::EndReason;
use crate::store::Tx;
use crate::store::contract::{Held, Move, Wait};
use crate::task::TaskState;
use crate::time::Timestamp;

/// An order to end a task from outside, whatever its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Mark {
    /// The task.
    pub key: TaskKey,
    /// How it ends: in one of the states that [end](TaskState::is_end) a task.
    pub to: TaskState,
    /// The reason, for people.
    pub message: String,
}

impl Mark {
    /// Creates a mark that ends this task in this state.
    pub fn new(key: TaskKey, to: TaskState, message: impl Into<String>) -> Self {
        Self { key, to, message: message.into() }
    }
}

/// What a [`Mark`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Marked {
    /// It ended the task, which was in this state. If the task had a holder, it finds its lease stale.
    Ended(TaskState),
    /// The task had already ended in this state. Nothing was changed.
    AlreadyEnded(TaskState),
    /// `to` is not an end. Nothing was changed.
    NotAnEnd,
    /// There is no such task.
    Unknown,
}

impl Tx<'_> {
    /// Ends tasks on the host's order: ends leases, frees slots and ends sensors.
    ///
    /// Slots are free at once, although the holder of a lease may still be working. [`cancel`](Self::cancel)
    /// gives it time to stop.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::TooManyBytes`] for a message above [`MAX_TEXT_BYTES`]. Returns
    /// [`crate::Error::Store`] if the store fails.
    pub fn mark(&mut self, now: impl Into<Timestamp>, marks: &[Mark]) -> Result<Vec<Marked>> {
        let now = now.into();
        self.whole(|tx| {
            if let Some(long) = marks.iter().find(|mark| mark.message.len() > MAX_TEXT_BYTES) {
                let (what, bytes) = ("a mark's message", long.message.len());
                return Err(Invalid::TooManyBytes { what, bytes, cap: MAX_TEXT_BYTES }.into());
            }
            let keys: Vec<TaskKey> = marks.iter().map(|mark| mark.key.clone()).collect();
            let mut answers = Vec::with_capacity(marks.len());
            // Of several marks for one task, the first counts. The others find the task ended.
            let (mut ids, mut first) = (HashMap::new(), HashMap::new());
            for (at, (mark, task)) in marks.iter().zip(tx.raw().tasks(&keys)?).enumerate() {
                answers.push(match task {
                    None => Marked::Unknown,
                    Some(_) if !mark.to.is_end() => Marked::NotAnEnd,
                    Some(task) if task.state.is_end() => Marked::AlreadyEnded(task.state),
                    Some(task) => {
                        first.entry(task.id).or_insert(at);
                        ids.insert(at, task.id);
                        Marked::AlreadyEnded(mark.to)
                    }
                });
            }
            let mut open: Vec<usize> = first.values().copied().collect();
            open.sort_unstable();
            leave::settle(open, |open| {
                let held: Vec<TaskId> = open.iter().filter_map(|at| ids.get(at).copied()).collect();
                let (mut leaving, mut places) = (Vec::new(), Vec::new());
                for (at, held) in open.iter().zip(tx.raw().hold_tasks(&held, Wait::ForOthers)?) {
                    answers[*at] = match held {
                        Held::Task(task) if task.state.is_end() => Marked::AlreadyEnded(task.state),
                        Held::Task(task) => {
                            let (mark, was) = (&marks[*at], task.state);
                            let mut to = Move::new(task.lease_ref(), was, mark.to);
                            to.ended_at = Some(task.recorded_at(now));
                            to.message = Some(mark.message.clone());
                            leaving.push((*task, to));
                            places.push(*at);
                            Marked::Ended(was)
                        }
                        Held::Busy | Held::Unknown => Marked::Unknown,
                    };
                }
                let ended = end_their_sensors(tx, now, &mut leaving)?;
                let moved = leave::commit(tx, now, &leaving)?;
                let mut missed = Vec::new();
                for ((at, moved), (task, _)) in places.into_iter().zip(moved).zip(&leaving) {
                    if !moved && ended.contains(&task.id) {
                        return Err(sensing_task_changed());
                    }
                    missed.extend((!moved).then_some(at));
                }
                Ok(missed)
            })?;
            for (at, id) in ids {
                let Some(first) = first.get(&id).filter(|first| **first != at) else { continue };
                answers[at] = match answers[*first] {
                    Marked::Ended(_) => Marked::AlreadyEnded(marks[*first].to),
                    other => other,
                };
            }
            Ok(answers)
        })
    }
}

/// Ends the sensors of tasks that are about to be moved, before the moves, because a task must not be
/// recorded as ended before its sensor registered.
///
/// Returns the tasks whose sensors were ended.
pub(super) fn end_their_sensors(
    tx: &mut Tx<'_>,
    now: Timestamp,
    leaving: &mut [Leaving],
) -> Result<HashSet<TaskId>> {
    let sensing = leaving.iter().enumerate().filter(|(_, (task, _))| task.state == TaskState::Sensing);
    let (places, sensors): (HashMap<TaskId, usize>, Vec<LeaseRef>) =
        sensing.map(|(at, (task, _))| ((task.id, at), task.lease_ref())).unzip();
    let mut ended = HashSet::with_capacity(sensors.len());
    if sensors.is_empty() {
        return Ok(ended);
    }
    for sensor in tx.raw().end_sensors_if_waiting(&sensors)?.into_iter().flatten() {
        let Some((task, to)) = places.get(&sensor.id).and_then(|at| leaving.get_mut(*at)) else { continue };
        to.ended_at = Some(ended_at(task, &sensor, now));
        to.reason = Some(EndReason::Cancelled);
        ended.insert(sensor.id);
    }
    Ok(ended)
}
