//! Changes tasks: one that is named, or those selected in a list.

use std::time::Duration;

use super::change::Outcome;
use super::page::{IN_LIST, task_link};
use super::params::Params;
use super::trouble::Trouble;
use super::words::{absolute, relative};
use crate::id::TaskKey;
use crate::lease::TaskId;
use crate::ops::{Cancellation, Changed, Cleared};
use crate::store::{Store, Tx};
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

/// What to do with tasks.
pub(super) enum Verb {
    /// With this grace, for this reason.
    Cancel(Duration, Option<String>),
    Retry,
    Delete,
}

impl Verb {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Cancel(..) => "cancel",
            Self::Retry => "retry",
            Self::Delete => "delete",
        }
    }
}

/// The tasks in a form.
pub(super) enum Tasks {
    One(TaskKey),
    /// The tasks with these numbers, from the list at this address.
    Selected(Vec<TaskId>, String),
}

/// Whether a task was changed, and a text about it.
type Done = (bool, String);

impl Tasks {
    pub(super) fn of(params: &Params) -> Result<Self, Trouble> {
        let Some(list) = params.get("list") else { return Ok(Self::One(params.task()?)) };
        let number = |text: &str| {
            let number = text.parse().map_err(|_| Trouble::bad("number: the number of a task"))?;
            Ok(TaskId(number))
        };
        let numbers = params.all("number").map(number).collect::<Result<Vec<TaskId>, Trouble>>()?;
        match numbers.len() {
            0 => Err(Trouble::bad("No task is selected: go back, and select some.")),
            1..=IN_LIST => Ok(Self::Selected(numbers, list.to_owned())),
            _ => Err(Trouble::bad(format!("At most {IN_LIST} tasks are changed at once."))),
        }
    }

    /// Returns the address of the page that the form came from.
    pub(super) fn back(&self) -> String {
        match self {
            Self::One(key) => task_link(key),
            // The form may contain anything, but the link may only lead to the list.
            Self::Selected(_, list) => match list.split_once('?') {
                Some(("tasks", filters)) => format!("tasks?{filters}"),
                _ => "tasks".into(),
            },
        }
    }

    /// Changes the tasks in one transaction, and returns the result of each.
    pub(super) fn apply(
        &self,
        store: &dyn Store,
        now: Timestamp,
        verb: &Verb,
        who: &str,
    ) -> Result<Vec<Outcome>, Trouble> {
        let outcomes = store.write(|tx| {
            let keys: Vec<Option<TaskKey>> = match self {
                Self::One(key) => vec![Some(key.clone())],
                Self::Selected(numbers, _) => {
                    tx.tasks_by_id(numbers)?.into_iter().map(|task| task.map(|task| task.key)).collect()
                }
            };
            let known: Vec<TaskKey> = keys.iter().flatten().cloned().collect();
            let mut done = verb.apply(tx, now, who, &known)?.into_iter();
            let mut outcome = |(at, key): (usize, Option<TaskKey>)| {
                let (is_done, result) = key.as_ref().and_then(|_| done.next()).unwrap_or_else(unknown);
                let subject = match (key, self) {
                    (Some(key), _) => format!("task {key}"),
                    (None, Self::Selected(numbers, _)) => numbers.get(at).map(numbered).unwrap_or_default(),
                    (None, Self::One(key)) => format!("task {key}"),
                };
                Outcome { subject, is_done, result }
            };
            Ok(keys.into_iter().enumerate().map(&mut outcome).collect())
        })?;
        Ok(outcomes)
    }
}

pub(super) fn numbered(number: &TaskId) -> String {
    format!("task number {}", number.0)
}

fn unknown() -> Done {
    (false, "there is no such task".into())
}

impl Verb {
    fn apply(
        &self,
        tx: &mut Tx<'_>,
        now: Timestamp,
        who: &str,
        keys: &[TaskKey],
    ) -> crate::Result<Vec<Done>> {
        match self {
            Self::Cancel(grace, message) => {
                let by = format!("cancelled by {who} on the dashboard");
                let message = message.as_ref().map_or(by.clone(), |message| format!("{by}: {message}"));
                let done = tx.cancel(now, *grace, keys, &message)?;
                Ok(done.into_iter().map(|done| cancelled(done, now)).collect())
            }
            Self::Retry => retried(tx, now, keys),
            Self::Delete => {
                let done = tx.delete(keys)?;
                Ok(done.into_iter().map(deleted).collect())
            }
        }
    }
}

fn cancelled(done: Cancellation, now: Timestamp) -> Done {
    match done {
        Cancellation::Ended(was) => (true, format!("cancelled; it was {was}")),
        Cancellation::AskedUntil(at) => {
            (true, format!("asked to stop, must do so by {} ({})", absolute(at), relative(at, now)))
        }
        Cancellation::AlreadyEnded(state) => (false, format!("left as it is: it had ended as {state}")),
        Cancellation::Unknown => unknown(),
    }
}

/// Runs ended tasks again, and makes those ready that wait for an instant.
fn retried(tx: &mut Tx<'_>, now: Timestamp, keys: &[TaskKey]) -> crate::Result<Vec<Done>> {
    let cleared = tx.clear(now, keys)?;
    let tasks = tx.tasks(keys)?;
    let is_later = |task: &TaskRecord| {
        task.due.is_some() && matches!(task.state, TaskState::Scheduled | TaskState::UpForRetry)
    };
    let later: Vec<TaskKey> =
        tasks.iter().flatten().filter(|task| is_later(task)).map(|task| task.key.clone()).collect();
    let mut changed = match later.as_slice() {
        [] => Vec::new(),
        later => tx.change(now, later, |task| task.not_before = None)?,
    }
    .into_iter();
    let mut done = |(cleared, task): (Cleared, Option<TaskRecord>)| match (cleared, task) {
        (_, None) | (Cleared::Unknown, _) => unknown(),
        (_, Some(task)) if is_later(&task) => match changed.next() {
            Some(Changed::Done) => (true, "ready now".to_owned()),
            _ => (false, "left as it is: it changed meanwhile".to_owned()),
        },
        (Cleared::Ready, _) => (true, "ready again".to_owned()),
        (Cleared::NotEnded(_), Some(task)) if task.is_ready() => {
            (false, "left as it is: it is ready already".to_owned())
        }
        (Cleared::NotEnded(state), _) => (false, format!("left as it is: it is {state}")),
    };
    Ok(cleared.into_iter().zip(tasks).map(&mut done).collect())
}

fn deleted(done: Changed) -> Done {
    match done {
        Changed::Done => (true, "deleted".into()),
        Changed::NotWaiting(state) => (false, format!("left as it is: it is {state}, so cancel it first")),
        Changed::Busy => {
            (false, "left as it is: its sensor ended a moment ago, so try again in a minute".into())
        }
        Changed::Unknown => unknown(),
    }
}
