//! Ending tasks from outside, as a person or a rule of the host decides.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::leave::{self, Leaving};
use super::sense::ended_at;
use crate::bounds::MAX_TEXT_BYTES;
use crate::error::{Error, Invalid, Result};
use crate::id::TaskKey;
use crate::lease::{LeaseRef, TaskId};
use crate::sensor::{EndReason, Ending};
use crate::store::Tx;
use crate::store::contract::{EventNote, Move, StateSet};
use crate::task::TaskState;
use crate::time::Timestamp;

/// An order to end a task from outside, whatever its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Mark {
    /// The task.
    pub key: TaskKey,
    /// How it ends: [`TaskState::Success`], [`TaskState::Failed`] or [`TaskState::Skipped`].
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
    /// It ended the task, which was in this state. A holder finds its lease stale.
    Ended(TaskState),
    /// The task had already ended in this state; nothing was changed.
    AlreadyEnded(TaskState),
    /// `to` is not an end; nothing was changed.
    NotAnEnd,
    /// There is no such task.
    Unknown,
}

impl Tx<'_> {
    /// Ends tasks on the host's order: ends leases, frees slots and stops sensors from waiting.
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
            let tasks = tx.raw().tasks(&keys)?;
            let mut leaving: Vec<Leaving> = Vec::new();
            let mut planned: HashMap<TaskId, usize> = HashMap::new();
            let mut answers = Vec::with_capacity(marks.len());
            for (mark, task) in marks.iter().zip(tasks) {
                answers.push(match task {
                    None => Marked::Unknown,
                    Some(_) if !mark.to.is_end() => Marked::NotAnEnd,
                    Some(task) if task.state.is_end() => Marked::AlreadyEnded(task.state),
                    Some(task) => match planned.get(&task.id) {
                        Some(at) => Marked::AlreadyEnded(leaving[*at].1.to),
                        None => {
                            planned.insert(task.id, leaving.len());
                            let mut to = Move::new(task.lease_ref(), StateSet::of(&[task.state]), mark.to);
                            to.ended_at = Some(task.recorded_at(now));
                            to.message = Some(mark.message.clone());
                            let was = task.state;
                            leaving.push((task, to));
                            Marked::Ended(was)
                        }
                    },
                });
            }
            end_their_sensors(tx, now, &mut leaving, &planned)?;
            let moved = leave::commit(tx, now, &leaving)?;
            if moved.contains(&false) {
                return Err(crate::error::StoreError::conflict(
                    "a task changed between reading and marking it",
                )
                .into());
            }
            Ok(answers)
        })
    }
}

/// Ends the sensors of tasks that are about to be moved, and records events. Sensors end before the moves,
/// because a task must not be recorded as ended before its sensor registered. The same holds for events, as
/// in [`end_sensors`](crate::store::Tx::end_sensors).
fn end_their_sensors(
    tx: &mut Tx<'_>,
    now: Timestamp,
    leaving: &mut [Leaving],
    places: &HashMap<TaskId, usize>,
) -> Result<()> {
    let sensing = leaving.iter().filter(|(task, _)| task.state == TaskState::Sensing);
    let sensors: Vec<LeaseRef> = sensing.map(|(task, _)| task.lease_ref()).collect();
    if sensors.is_empty() {
        return Ok(());
    }
    let mut events = Vec::with_capacity(sensors.len());
    for sensor in tx.raw().end_sensors_if_waiting(&sensors)?.into_iter().flatten() {
        let Some((task, to)) = places.get(&sensor.id).and_then(|at| leaving.get_mut(*at)) else { continue };
        let at = ended_at(task, &sensor, now);
        to.ended_at = Some(at);
        let ending = Ending::new(EndReason::Cancelled, to.to).message(to.message.clone());
        events.push(EventNote::new(sensor, at, ending));
    }
    tx.raw().note_events(&events).map_err(Error::from)
}
