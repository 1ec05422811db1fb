//! Limits on concurrency: how many tasks that carry a key may hold a lease at once.
//!
//! A limit relates to a key as a pool relates to slots. It is defined once, under a name. A task counts
//! against it because the task *carries* that name ([`crate::NewTask::limit`]). The functions here build the
//! usual names: per workflow (Airflow: `max_active_tasks`), per run, per task (`max_active_tis_per_dag`), per
//! task in a run (`max_active_tis_per_dagrun`), and anything else, such as a tenant or a database.
//!
//! A key without a defined limit limits nothing. A limit that is defined later immediately counts all tasks
//! that carry its key, including those already admitted. Queued and running tasks count; sensing tasks do
//! not.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::bounds::MAX_SLOTS;
use crate::error::Invalid;
use crate::id::{LimitKey, Namespace, TaskKey, WorkflowId};

/// Returns the key that counts the tasks of a workflow, over all its runs.
///
/// # Errors
///
/// Returns [`Invalid::LongName`] if the parts together exceed [`crate::id::MAX_BYTES`] bytes.
///
/// # Examples
///
/// ```
/// use stationmaster::{TaskKey, admission::limits};
/// let key = TaskKey::new("prod", "nightly", "2026-01-01", "load")?;
/// assert_eq!(limits::workflow(&key)?.as_str(), "workflow:4:prod7:nightly");
/// # Ok::<(), stationmaster::error::Invalid>(())
/// ```
pub fn workflow(key: &TaskKey) -> Result<LimitKey, Invalid> {
    workflow_named(&key.namespace, &key.workflow)
}

/// Returns the key of [`workflow`] without a task at hand, to define the limit.
///
/// # Errors
///
/// The same as [`workflow`].
///
/// # Examples
///
/// ```
/// use stationmaster::{TaskKey, admission::limits};
/// let key = TaskKey::new("prod", "nightly", "2026-01-01", "load")?;
/// let defined = limits::LimitSpec::new(limits::workflow_named(&"prod".try_into()?, &"nightly".try_into()?)?, 4)?;
/// assert_eq!(defined.key, limits::workflow(&key)?, "what the workflow's tasks carry");
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub fn workflow_named(namespace: &Namespace, workflow: &WorkflowId) -> Result<LimitKey, Invalid> {
    named("workflow", &[namespace.as_str(), workflow.as_str()])
}

/// Returns the key that counts the tasks of one run.
///
/// # Errors
///
/// The same as [`workflow`].
pub fn run(key: &TaskKey) -> Result<LimitKey, Invalid> {
    named("run", &[key.namespace.as_str(), key.workflow.as_str(), key.run.as_str()])
}

/// Returns the key that counts the instances of one task, over all runs and map indices.
///
/// # Errors
///
/// The same as [`workflow`].
pub fn task(key: &TaskKey) -> Result<LimitKey, Invalid> {
    named("task", &[key.namespace.as_str(), key.workflow.as_str(), key.task.as_str()])
}

/// Returns the key that counts the mapped instances of one task in one run.
///
/// # Errors
///
/// The same as [`workflow`].
pub fn task_in_run(key: &TaskKey) -> Result<LimitKey, Invalid> {
    let parts = [key.namespace.as_str(), key.workflow.as_str(), key.run.as_str(), key.task.as_str()];
    named("task_in_run", &parts)
}

/// Returns the key that counts everything that carries this name: a tenant, a database, a licence.
///
/// # Errors
///
/// Returns [`Invalid`] if the name is empty, too long or contains a NUL.
pub fn custom(name: &str) -> Result<LimitKey, Invalid> {
    LimitKey::new(format!("free:{name}"))
}

/// What a limit key counts, if a function of this module made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// [`workflow`].
    Workflow,
    /// [`run`].
    Run,
    /// [`task`].
    Task,
    /// [`task_in_run`].
    TaskInRun,
    /// [`free`].
    Free,
}

impl Scope {
    /// Returns what this key counts; `None` for a key that the host made itself.
    pub(super) fn of(key: &LimitKey) -> Option<Self> {
        match key.as_str().split_once(':')?.0 {
            "workflow" => Some(Self::Workflow),
            "run" => Some(Self::Run),
            "task" => Some(Self::Task),
            "task_in_run" => Some(Self::TaskInRun),
            "free" => Some(Self::Free),
            _ => None,
        }
    }
}

/// Prefixes each part by its length, so that no two lists of parts make the same key.
fn named(scope: &str, parts: &[&str]) -> Result<LimitKey, Invalid> {
    let mut text = format!("{scope}:");
    for part in parts {
        text.push_str(&part.len().to_string());
        text.push(':');
        text.push_str(part);
    }
    LimitKey::new(text)
}

/// The definition of a limit by a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LimitSpec {
    /// The key whose tasks it counts.
    pub key: LimitKey,
    /// The most tasks at once, 0 to [`MAX_SLOTS`].
    #[serde(deserialize_with = "max_tasks")]
    pub max: u32,
}

fn max_tasks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let max = u32::deserialize(deserializer)?;
    if max > MAX_SLOTS {
        return Err(D::Error::custom(format!(
            "the most tasks of a limit must be a number from 0 to {MAX_SLOTS}"
        )));
    }
    Ok(max)
}

impl LimitSpec {
    /// Creates a limit of at most `max` tasks at once that carry this key.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::TooLarge`] above [`MAX_SLOTS`].
    pub fn new(key: LimitKey, max: u32) -> Result<Self, Invalid> {
        if max > MAX_SLOTS {
            return Err(Invalid::TooLarge { what: "a limit", value: max.into() });
        }
        Ok(Self { key, max })
    }
}

/// A limit key as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LimitRecord {
    /// The key whose tasks it counts.
    pub key: LimitKey,
    /// The most tasks at once; `None` if tasks carry the key but no limit is defined for it.
    pub max: Option<u32>,
    /// The number of tasks with a lease that carry the key.
    pub used: i64,
}

impl LimitRecord {
    /// Creates a record from a row. For stores.
    pub fn new(key: LimitKey, max: Option<u32>, used: i64) -> Self {
        Self { key, max, used }
    }

    /// Returns how many more tasks it admits. Negative after the limit was lowered; `None` if it limits
    /// nothing.
    pub fn open(&self) -> Option<i64> {
        self.max.map(|max| i64::from(max).saturating_sub(self.used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_different_parts_differ() {
        let a = TaskKey::new("a", "b7:c", "r", "t").unwrap();
        let b = TaskKey::new("a4:b", "c", "r", "t").unwrap();
        assert_ne!(workflow(&a).unwrap(), workflow(&b).unwrap());
        assert_ne!(run(&a).unwrap(), task(&TaskKey::new("a", "b7:c", "t", "r").unwrap()).unwrap());
    }
}
