//! The host's own word: a task ends as a person or a rule of the host's says.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::leave;
use crate::bounds::MAX_TEXT_BYTES;
use crate::error::{Invalid, Result};
use crate::id::TaskKey;
use crate::lease::{LeaseRef, TaskNo};
use crate::sensor::{EndReason, Ending};
use crate::store::{EventNote, Move, Moved, StateSet, StoreTx};
use crate::task::TaskState;
use crate::time;

/// Ends a task from outside, wherever it is on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Mark {
    /// The task.
    pub key: TaskKey,
    /// How it ends: [`TaskState::Success`], [`TaskState::Failed`] or [`TaskState::Skipped`].
    pub to: TaskState,
    /// Why, for people.
    pub message: String,
}

impl Mark {
    /// Ends this task like this.
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
    /// The task had ended before, in this state; nothing was changed.
    AlreadyEnded(TaskState),
    /// `to` is not an end; nothing was changed.
    NotAnEnd,
    /// There is no such task.
    Unknown,
}

/// Ends tasks by the host's word: leases end, slots come back, sensors stop waiting.
///
/// # Errors
///
/// [`Invalid::TooManyBytes`] for a message above [`MAX_TEXT_BYTES`]; [`crate::Error::Store`] if the store fails.
pub fn mark(tx: &mut (impl StoreTx + ?Sized), now: DateTime<Utc>, marks: &[Mark]) -> Result<Vec<Marked>> {
    let now = time::truncate(now);
    if let Some(long) = marks.iter().find(|mark| mark.message.len() > MAX_TEXT_BYTES) {
        let (what, bytes) = ("a mark's message", long.message.len());
        return Err(Invalid::TooManyBytes { what, bytes, cap: MAX_TEXT_BYTES }.into());
    }
    let keys: Vec<TaskKey> = marks.iter().map(|mark| mark.key.clone()).collect();
    let tasks = tx.tasks(&keys)?;
    let mut leaving = Vec::new();
    let mut planned: HashMap<TaskNo, TaskState> = HashMap::new();
    let mut answers = Vec::with_capacity(marks.len());
    for (mark, task) in marks.iter().zip(tasks) {
        answers.push(match task {
            None => Marked::Unknown,
            Some(_) if !mark.to.is_end() => Marked::NotAnEnd,
            Some(task) if task.state.is_end() => Marked::AlreadyEnded(task.state),
            Some(task) => match planned.get(&task.no) {
                Some(to) => Marked::AlreadyEnded(*to),
                None => {
                    planned.insert(task.no, mark.to);
                    let mut to = Move::new(task.lease_ref(), StateSet::of(&[task.state]), mark.to);
                    to.ended_at = Some(now);
                    to.message = Some(mark.message.clone());
                    let was = task.state;
                    leaving.push((task, to));
                    Marked::Ended(was)
                }
            },
        });
    }
    let moved = leave::commit(tx, now, &leaving)?;
    if moved.contains(&Moved::No) {
        return Err(
            crate::error::StoreError::conflict("a task changed between reading and marking it").into()
        );
    }
    let sensing = leaving.iter().filter(|(task, _)| task.state == TaskState::Sensing);
    let sensors: Vec<LeaseRef> = sensing.map(|(task, _)| task.lease_ref()).collect();
    if !sensors.is_empty() {
        let by_no: HashMap<_, _> = leaving.iter().map(|(task, to)| (task.no, to)).collect();
        let ended = tx.end_sensors_if_waiting(&sensors)?.into_iter().flatten();
        let events: Vec<EventNote> = ended
            .filter_map(|sensor| {
                let to = by_no.get(&sensor.no)?;
                let ending = Ending::new(EndReason::Cancelled, to.to).message(to.message.clone());
                Some(EventNote::new(sensor, now, ending))
            })
            .collect();
        tx.note_events(&events)?;
    }
    Ok(answers)
}
