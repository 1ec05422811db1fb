//! Sensors that wait for another task to end.

use std::collections::BTreeSet;
use std::slice;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Condition;
use crate::base::setters;
use crate::id::TaskKey;
use crate::sensor::PokeOutcome;
use crate::service::poker::{Poke, PokeRequest};
use crate::store::Store;
use crate::store::serving::for_service;
use crate::task::TaskState;

/// Waits until another task of the store has ended. It lands with that task's value.
///
/// Defaults: it lands on `success`, and fails on `failed`, `skipped` and `cancelled`. The outcome is "not
/// yet" for a task that does not exist, or is in any other state. A state in both sets lands. An ended task
/// no longer exists after it was forgotten.
///
/// # Examples
///
/// ```
/// use stationmaster::service::kinds::{Condition, TaskEnded};
/// use stationmaster::{TaskKey, TaskState};
/// let upstream = TaskKey::new("prod", "ingest", "2026-01-01", "load")?;
/// // However it ends, and as long as that takes.
/// let any_end = TaskEnded::new(upstream).lands_on(TaskState::ALL.into_iter().filter(|state| state.is_end()));
/// assert!(any_end.context()?.as_str().contains(r#""lands_on":["success","failed","skipped","cancelled"]"#));
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskEnded {
    task: TaskKey,
    #[serde(default = "success")]
    lands_on: BTreeSet<TaskState>,
    #[serde(default = "other_ends")]
    fails_on: BTreeSet<TaskState>,
}

fn success() -> BTreeSet<TaskState> {
    [TaskState::Success].into()
}

fn other_ends() -> BTreeSet<TaskState> {
    [TaskState::Failed, TaskState::Skipped, TaskState::Cancelled].into()
}

impl TaskEnded {
    /// Waits for the success of this task.
    pub fn new(task: TaskKey) -> Self {
        Self { task, lands_on: success(), fails_on: other_ends() }
    }

    setters! {
        /// Sets the states on which it lands.
        lands_on(states: impl IntoIterator<Item = TaskState>) { lands_on = states.into_iter().collect() }
        /// Sets the states on which it fails.
        fails_on(states: impl IntoIterator<Item = TaskState>) { fails_on = states.into_iter().collect() }
    }

    fn look(&self, store: &dyn Store) -> PokeOutcome {
        let found = match store.read(|tx| tx.tasks(slice::from_ref(&self.task))) {
            Ok(mut found) => found.pop().flatten(),
            Err(error) => return PokeOutcome::Unreachable(error.to_string()),
        };
        match found {
            Some(task) if self.lands_on.contains(&task.state) => PokeOutcome::Landed(task.value),
            Some(task) if self.fails_on.contains(&task.state) => {
                let why = task.message.map(|why| format!(": {why}")).unwrap_or_default();
                PokeOutcome::Failed(format!("task {} is {}{why}", self.task, task.state))
            }
            _ => PokeOutcome::NotYet,
        }
    }
}

impl Condition for TaskEnded {
    const KIND: &'static str = "task_ended";
    const EXAMPLE: &'static str =
        r#"{"task": {"namespace": "prod", "workflow": "ingest", "run": "2026-01-01", "task": "load"}}"#;
}

/// Returns the poke of [`TaskEnded`], which looks in this store.
pub fn task_ended(store: Arc<dyn Store>) -> impl Poke + 'static {
    let store = for_service(store);
    move |request: &PokeRequest| match TaskEnded::read(&request.context) {
        Ok(wanted) => wanted.look(store.as_ref()),
        Err(wrong) => wrong,
    }
}
