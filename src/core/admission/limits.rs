//! Limits on concurrency: how many tasks that carry a key may hold a lease at once.
//!
//! A limit is to a key what a pool is to slots: it is defined once, under a name, and a task counts against
//! it because it *carries* that name ([`crate::NewTask::limit`]). The functions here give the usual names:
//! per workflow (Airflow: `max_active_tasks`), per run, per task (`max_active_tis_per_dag`), per task in a
//! run (`max_active_tis_per_dagrun`), and anything else, such as a tenant or a database.
//!
//! A key that no limit is defined for limits nothing; a limit that is defined later counts at once all tasks
//! that carry its key, those already admitted included. Queued and running tasks count; sensing ones do not.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::bounds::MAX_SLOTS;
use crate::error::Invalid;
use crate::id::{IdError, LimitKey, Namespace, TaskKey, WorkflowId};

/// Counts the tasks of a workflow, over all its runs.
///
/// # Errors
///
/// [`IdError::TooLong`] if the parts make more than [`crate::id::MAX_BYTES`] bytes.
///
/// # Examples
///
/// ```
/// use stationmaster::{TaskKey, admission::limits};
/// let key = TaskKey::new("prod", "nightly", "2026-01-01", "load")?;
/// assert_eq!(limits::workflow(&key)?.as_str(), "workflow:4:prod7:nightly");
/// # Ok::<(), stationmaster::id::IdError>(())
/// ```
pub fn workflow(key: &TaskKey) -> Result<LimitKey, IdError> {
    workflow_named(&key.namespace, &key.workflow)
}

/// [`workflow`], where there is no task at hand: to define the limit.
///
/// # Errors
///
/// As [`workflow`].
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
pub fn workflow_named(namespace: &Namespace, workflow: &WorkflowId) -> Result<LimitKey, IdError> {
    named("workflow", &[namespace.as_str(), workflow.as_str()])
}

/// Counts the tasks of one run.
///
/// # Errors
///
/// As [`workflow`].
pub fn run(key: &TaskKey) -> Result<LimitKey, IdError> {
    named("run", &[key.namespace.as_str(), key.workflow.as_str(), key.run.as_str()])
}

/// Counts the instances of one task, over all runs and map indices.
///
/// # Errors
///
/// As [`workflow`].
pub fn task(key: &TaskKey) -> Result<LimitKey, IdError> {
    named("task", &[key.namespace.as_str(), key.workflow.as_str(), key.task.as_str()])
}

/// Counts the instances of one task in one run: the mapped ones.
///
/// # Errors
///
/// As [`workflow`].
pub fn task_in_run(key: &TaskKey) -> Result<LimitKey, IdError> {
    let parts = [key.namespace.as_str(), key.workflow.as_str(), key.run.as_str(), key.task.as_str()];
    named("task_in_run", &parts)
}

/// Counts whatever carries this name: a tenant, a database, a licence.
///
/// # Errors
///
/// [`IdError`] if the name is empty, too long or has a NUL.
pub fn custom(name: &str) -> Result<LimitKey, IdError> {
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
    /// What this key counts; `None` for a key of the host's own making.
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

/// Parts are prefixed by their length, so that no two lists of parts make the same key.
fn named(scope: &str, parts: &[&str]) -> Result<LimitKey, IdError> {
    let mut text = format!("{scope}:");
    for part in parts {
        text.push_str(&part.len().to_string());
        text.push(':');
        text.push_str(part);
    }
    LimitKey::new(text)
}

/// What a host says of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LimitSpec {
    /// What it counts.
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
    /// At most `max` tasks that carry this key at once.
    ///
    /// # Errors
    ///
    /// [`Invalid::TooLarge`] above [`MAX_SLOTS`].
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
    /// What it counts.
    pub key: LimitKey,
    /// The most tasks at once; `None` if tasks carry the key but no limit is defined for it.
    pub max: Option<u32>,
    /// Tasks with a lease that carry the key.
    pub used: i64,
}

impl LimitRecord {
    /// For stores: a row they read.
    pub fn new(key: LimitKey, max: Option<u32>, used: i64) -> Self {
        Self { key, max, used }
    }

    /// How many more tasks it lets in; negative after it was lowered; `None` if it limits nothing.
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
