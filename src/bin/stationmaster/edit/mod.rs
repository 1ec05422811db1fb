//! The commands that change something. Each says how many tasks or subjects it will change, and asks.

mod pick;
mod subjects;

use serde::Serialize;
use serde_json::{Value, json};
use stationmaster::ops::{Cancellation, Changed, Cleared};
use stationmaster::store::Tx;
use stationmaster::{NewTask, Result, TaskKey, TaskState};

use crate::args::{Command, Edit};
use crate::failure::Failure;
use crate::open::Opened;
use crate::screen::Style;
use crate::times::must_stop;

/// What was done about one task.
pub struct Done {
    /// Whether the task is now as the command wants it.
    done: bool,
    text: String,
    /// The result of the library's verb.
    result: Value,
}

impl Done {
    fn new(done: bool, text: impl Into<String>, result: impl Serialize) -> Self {
        Self { done, text: text.into(), result: json!(result) }
    }
}

const UNKNOWN: &str = "there is no such task";

pub fn run(command: &Command, opened: &Opened, style: Style) -> std::result::Result<bool, Failure> {
    // Each verb takes the instant at which it runs, because the user may take long to answer.
    match command {
        Command::Cancel { pick, grace, message, sure } => {
            pick::apply(opened, style, pick, sure, "Cancel", |tx, keys| {
                let now = opened.now();
                let done = tx.cancel(now, *grace, keys, message)?;
                Ok(done.into_iter().map(|done| cancelled(done, now)).collect())
            })
        }
        Command::Retry { pick, sure } => {
            pick::apply(opened, style, pick, sure, "Run again", |tx, keys| retry(tx, opened.now(), keys))
        }
        Command::Change { pick, edit, sure } => {
            pick::apply(opened, style, pick, sure, "Change", |tx, keys| {
                let now = opened.now();
                let done = tx.change(now, keys, |task| change(task, edit, now))?;
                Ok(done.into_iter().map(|done| changed(done, "changed")).collect())
            })
        }
        Command::Delete { pick, sure } => pick::apply(opened, style, pick, sure, "Delete", |tx, keys| {
            let done = tx.delete(keys)?;
            Ok(done.into_iter().map(|done| changed(done, "deleted")).collect())
        }),
        Command::Pause { subjects, sure } => subjects::set(opened, style, subjects, sure, true),
        Command::Resume { subjects, sure } => subjects::set(opened, style, subjects, sure, false),
        // The other commands only show something.
        _ => Ok(true),
    }
}

fn cancelled(done: Cancellation, now: stationmaster::Timestamp) -> Done {
    match done {
        Cancellation::Ended(was) => Done::new(true, format!("cancelled; it was {was}"), done),
        Cancellation::AskedUntil(at) => Done::new(true, must_stop(at, now), done),
        Cancellation::AlreadyEnded(state) => Done::new(false, format!("it had ended: {state}"), done),
        Cancellation::Unknown => Done::new(false, UNKNOWN, done),
        other => Done::new(false, format!("{other:?}"), done),
    }
}

fn changed(done: Changed, word: &str) -> Done {
    match done {
        Changed::Done => Done::new(true, word, done),
        Changed::NotWaiting(state) => Done::new(false, format!("left as it is: it is {state}"), done),
        Changed::Busy => Done::new(false, "its sensor ended a moment ago: delete it again", done),
        Changed::Unknown => Done::new(false, UNKNOWN, done),
        other => Done::new(false, format!("{other:?}"), done),
    }
}

/// Runs ended tasks again, and makes tasks ready that wait for a retry.
fn retry(tx: &mut Tx<'_>, now: stationmaster::Timestamp, keys: &[TaskKey]) -> Result<Vec<Done>> {
    let cleared = tx.clear(now, keys)?;
    let is_up = |cleared: &Cleared| *cleared == Cleared::NotEnded(TaskState::UpForRetry);
    let up: Vec<TaskKey> =
        keys.iter().zip(&cleared).filter(|(_, cleared)| is_up(cleared)).map(|(key, _)| key.clone()).collect();
    let mut ready =
        if up.is_empty() { Vec::new() } else { tx.change(now, &up, |task| task.not_before = None)? }
            .into_iter();
    let done = |cleared: Cleared| match cleared {
        Cleared::Ready => Done::new(true, "ready again", cleared),
        Cleared::NotEnded(TaskState::UpForRetry) => match ready.next() {
            Some(Changed::Done) => Done::new(true, "ready now", Cleared::Ready),
            Some(other) => changed(other, "ready now"),
            None => Done::new(false, "left as it is", cleared),
        },
        Cleared::NotEnded(state) => Done::new(false, format!("left as it is: it is {state}"), cleared),
        Cleared::Unknown => Done::new(false, UNKNOWN, cleared),
        other => Done::new(false, format!("{other:?}"), other),
    };
    Ok(cleared.into_iter().map(done).collect())
}

fn change(task: &mut NewTask, edit: &Edit, now: stationmaster::Timestamp) {
    let Edit { set_queue, set_priority, set_pool, set_slots, set_not_before } = edit;
    if let Some(queue) = set_queue {
        task.queue = queue.clone();
    }
    if let Some(priority) = set_priority {
        task.priority = *priority;
    }
    if let Some(pool) = set_pool {
        task.pool = pool.clone();
    }
    if let Some(slots) = set_slots {
        task.pool_slots = *slots;
    }
    if let Some(moment) = set_not_before {
        task.not_before = Some(moment.at(now));
    }
}
