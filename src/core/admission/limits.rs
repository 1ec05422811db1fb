//! Limits: how many tasks that carry a key may hold a lease at once, and how many may start in a period.
//!
//! A limit relates to a key as a pool relates to slots. It is defined once, under a name. A task counts
//! against it because the task *carries* that name ([`crate::NewTask::limit`]). The name is any text, such as
//! `tenant/acme`: write `"tenant/acme".try_into()?`. The functions in this module build the keys that
//! correspond to Airflow's limits: per workflow (`max_active_tasks`), per run, per task
//! (`max_active_tis_per_dag`) and per task in a run (`max_active_tis_per_dagrun`). Do not begin your own
//! names with `workflow:`, `run:`, `task:` or `task_in_run:`.
//!
//! A key without a defined limit limits nothing. A limit that is defined later immediately counts all tasks
//! that carry its key, including those already admitted. Queued and running tasks count. Sensing tasks do
//! not.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::cap::WaitingCap;
pub use super::rate::Rate;
pub(crate) use super::rate::RateUse;
use super::share::MAX_WEIGHT;
use super::subject::Subject;
use crate::base::setters;
use crate::bounds::MAX_SLOTS;
use crate::error::Invalid;
use crate::id::{LimitKey, MAX_BYTES, Namespace, TaskKey, WorkflowId};
use crate::time::Timestamp;

/// Returns the key that counts the tasks of a workflow, across all its runs.
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
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub fn workflow(key: &TaskKey) -> Result<LimitKey, Invalid> {
    workflow_named(&key.namespace, &key.workflow)
}

/// Returns the same key as [`workflow`], without needing a task. Use it to define the limit.
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

/// Returns the key that counts the instances of one task, across all runs and map indices.
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

/// What a limit key counts, if a function of this module built it.
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
}

impl Scope {
    /// Returns what this key counts; `None` for a key of the host's own.
    pub(super) fn of(key: &LimitKey) -> Option<Self> {
        match key.as_str().split_once(':')?.0 {
            "workflow" => Some(Self::Workflow),
            "run" => Some(Self::Run),
            "task" => Some(Self::Task),
            "task_in_run" => Some(Self::TaskInRun),
            _ => None,
        }
    }
}

/// Prefixes each part with its length, so that different lists of parts never produce the same key.
fn named(scope: &str, parts: &[&str]) -> Result<LimitKey, Invalid> {
    let mut text = format!("{scope}:");
    for part in parts {
        text.push_str(&part.len().to_string());
        text.push(':');
        text.push_str(part);
    }
    LimitKey::new(text)
}

/// The host's definition of a limit: on one key, or on a family of keys.
///
/// A *family* is all keys that begin with a given prefix and are longer than it. Its definition applies to
/// each of these keys separately. It does not apply to a key that has its own definition, or that a family
/// with a longer prefix matches. Keys need no definitions of their own, and nothing remains when the last
/// task that carries a key has ended.
///
/// A definition of the key itself replaces its family's completely. If it sets only a weight, the family's
/// maximum, rate and cap no longer apply to that key. Repeat the ones that should.
///
/// # Examples
///
/// ```
/// use stationmaster::admission::limits::LimitSpec;
/// let tenants = LimitSpec::new("tenant/".try_into()?, 4)?.family();
/// let large = LimitSpec::new("tenant/large".try_into()?, 40)?;
/// assert!(tenants.is_family && !large.is_family);
/// # Ok::<(), stationmaster::error::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LimitSpec {
    /// The key whose tasks it counts, or the prefix of a family.
    pub key: LimitKey,
    /// Whether it defines a family.
    #[serde(default, rename = "family", skip_serializing_if = "std::ops::Not::not")]
    pub is_family: bool,
    /// The most tasks at once: 0 to [`MAX_SLOTS`], and at least 1 for a family. `None` means any number.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "max_tasks")]
    pub max: Option<u32>,
    /// The most starts per period; `None` means any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The weight of a share with this key, relative to other shares: 1 to 1,000,000. `None` counts as 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// The most of its tasks that may wait; `None` means any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingCap>,
}

fn max_tasks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let max = Option::<u32>::deserialize(deserializer)?;
    if max.is_some_and(|max| max > MAX_SLOTS) {
        return Err(D::Error::custom(format!(
            "the most tasks of a limit must be a number from 0 to {MAX_SLOTS}"
        )));
    }
    Ok(max)
}

impl LimitSpec {
    /// Creates a limit of at most `max` tasks at once with this key.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::TooLarge`] above [`MAX_SLOTS`].
    pub fn new(key: LimitKey, max: u32) -> Result<Self, Invalid> {
        let spec = Self { max: Some(max), ..Self::of(key) };
        spec.check()?;
        Ok(spec)
    }

    /// Creates a definition of this key that does not limit anything yet.
    pub fn of(key: LimitKey) -> Self {
        Self { key, is_family: false, max: None, rate: None, weight: None, waiting: None }
    }

    /// Makes this the definition of the family of all keys that begin with its key.
    #[must_use]
    pub fn family(mut self) -> Self {
        self.is_family = true;
        self
    }

    setters! {
        /// Sets the most starts per period.
        rate: Some(Rate);
        /// Sets the weight of a share with this key, relative to other shares: 1 to 1,000,000. The range is
        /// checked when the limit is defined. See [`NewTask::share`](crate::NewTask::share).
        weight: Some(u32);
        /// Sets the most of its tasks that may wait.
        waiting: Some(WaitingCap);
    }

    /// Returns the subject that it defines.
    pub fn subject(&self) -> Subject {
        if self.is_family { Subject::Family(self.key.clone()) } else { Subject::Key(self.key.clone()) }
    }

    /// Checks that the values are in range.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        self.waiting.as_ref().map_or(Ok(()), WaitingCap::check)?;
        let bytes = self.key.as_str().len();
        match self.weight {
            Some(0) => return Err(Invalid::Zero { what: "the weight of a share" }),
            Some(weight) if weight > MAX_WEIGHT => {
                return Err(Invalid::Weight { key: self.key.clone(), weight });
            }
            _ => {}
        }
        match self.max {
            Some(0) if self.is_family => Err(Invalid::Zero { what: "the maximum of a family" }),
            Some(max) if max > MAX_SLOTS => Err(Invalid::TooLarge { what: "a limit", value: max.into() }),
            // Every key of the family is longer than its prefix.
            _ if self.is_family && bytes >= MAX_BYTES => {
                Err(Invalid::LongName { what: "the prefix of a family", bytes: bytes + 1 })
            }
            _ => Ok(()),
        }
    }
}

/// A limit key as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LimitRecord {
    /// The key whose tasks it counts.
    pub key: LimitKey,
    /// The most tasks at once, from the key's own definition or its family's; `None` means any number.
    pub max: Option<u32>,
    /// The most starts per period, from the same definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// The weight of a share with this key, from the same definition; `None` counts as 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// The most of its tasks that may wait, from the same definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<WaitingCap>,
    /// Whether the key itself is defined. If not, tasks carry it, and a family's definition may apply.
    #[serde(default)]
    pub is_defined: bool,
    /// The number of leased tasks that carry the key.
    pub used: i64,
    /// When its rate next has a token, unless another start takes it. This may be in the past. `None` if it
    /// has no rate or owes nothing. Stores leave it out; [`ReadTx::limits`](crate::store::ReadTx::limits)
    /// sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_at: Option<Timestamp>,
}

impl LimitRecord {
    /// Creates the record of a key that has a maximum or is only carried by tasks. For stores.
    pub fn new(key: LimitKey, max: Option<u32>, used: i64) -> Self {
        Self {
            key,
            max,
            rate: None,
            weight: None,
            cap: None,
            is_defined: max.is_some(),
            used,
            token_at: None,
        }
    }

    /// Creates the record of a key with its own definition, if any. For stores.
    pub fn defined(key: LimitKey, spec: Option<LimitSpec>, used: i64) -> Self {
        let is_defined = spec.is_some();
        let (max, rate, weight) = spec.map_or((None, None, None), |spec| (spec.max, spec.rate, spec.weight));
        Self { key, max, rate, weight, cap: None, is_defined, used, token_at: None }
    }

    /// Returns the definition that applies to the key, without its cap.
    pub(crate) fn spec(self) -> LimitSpec {
        let Self { key, max, rate, weight, .. } = self;
        LimitSpec { max, rate, weight, ..LimitSpec::of(key) }
    }

    /// Returns how many more tasks its maximum admits; `None` if it has no maximum. The number is negative
    /// after the maximum was lowered below the current use.
    pub fn open(&self) -> Option<i64> {
        self.max.map(|max| i64::from(max).saturating_sub(self.used))
    }
}

/// The families of a store, for finding the one that applies to a key.
#[derive(Debug, Default)]
pub(crate) struct Families<'a> {
    specs: BTreeMap<&'a str, &'a LimitSpec>,
    /// The lengths of the prefixes.
    lengths: BTreeSet<usize>,
}

impl<'a> Families<'a> {
    pub(crate) fn new(families: impl IntoIterator<Item = &'a LimitSpec>) -> Self {
        let specs: BTreeMap<_, _> = families.into_iter().map(|spec| (spec.key.as_str(), spec)).collect();
        let lengths = specs.keys().map(|prefix| prefix.len()).collect();
        Self { specs, lengths }
    }

    /// Returns the family with the longest prefix that matches this key.
    pub(super) fn of(&self, key: &LimitKey) -> Option<&'a LimitSpec> {
        let key = key.as_str();
        let lengths = self.lengths.range(..key.len()).rev();
        lengths.filter_map(|length| key.get(..*length)).find_map(|prefix| self.specs.get(prefix).copied())
    }

    /// Applies its family's definition to a key that has none of its own.
    pub(crate) fn apply(&self, limit: &mut LimitRecord) {
        if !limit.is_defined
            && let Some(spec) = self.of(&limit.key)
        {
            (limit.max, limit.rate, limit.weight) = (spec.max, spec.rate, spec.weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_holds_unless_the_key_itself_is_defined() {
        let key = |text: &str| LimitKey::new(text).unwrap();
        let family = |prefix: &str, max| LimitSpec::new(key(prefix), max).unwrap().family();
        let families = [family("t", 1), family("t/", 2), family("t/größe", 3)];
        let families = Families::new(&families);
        let holds = |mut limit: LimitRecord| {
            families.apply(&mut limit);
            limit.max
        };
        let carried = |text: &str| holds(LimitRecord::new(key(text), None, 0));
        let found = ["x", "t", "t/", "t/a", "t/größ", "t/größen", "ü"].map(carried);
        assert_eq!(found, [None, None, Some(1), Some(2), Some(2), Some(3), None]);
        assert_eq!(holds(LimitRecord::new(key("t/a"), Some(9), 0)), Some(9));
        assert_eq!(holds(LimitRecord::defined(key("t/a"), Some(LimitSpec::of(key("t/a"))), 0)), None);
    }

    #[test]
    fn refuses_families_without_room() {
        let family =
            |prefix: String, max| LimitSpec::new(LimitKey::new(prefix).unwrap(), max).unwrap().family();
        assert!(matches!(family("t/".into(), 0).check(), Err(Invalid::Zero { .. })));
        assert!(matches!(family("t".repeat(512), 1).check(), Err(Invalid::LongName { .. })));
        assert_eq!(family("t".repeat(511), 1).check(), Ok(()));
    }

    #[test]
    fn keys_of_different_parts_differ() {
        let a = TaskKey::new("a", "b7:c", "r", "t").unwrap();
        let b = TaskKey::new("a4:b", "c", "r", "t").unwrap();
        assert_ne!(workflow(&a).unwrap(), workflow(&b).unwrap());
        assert_ne!(run(&a).unwrap(), task(&TaskKey::new("a", "b7:c", "t", "r").unwrap()).unwrap());
    }
}
