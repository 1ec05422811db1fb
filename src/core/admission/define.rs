//! Definitions of pools, queues and limits, and what happens to existing ones.

use serde::{Deserialize, Serialize};

use super::cap::QueueSpec;
use super::limits::LimitSpec;
use super::subject::Subject;
use crate::error::Invalid;
use crate::pool::PoolSpec;

/// What a host defines: a pool, a queue, or a limit on a key or a family of keys.
///
/// # Examples
///
/// ```
/// use stationmaster::admission::Definition;
/// use stationmaster::pool::{PoolSpec, Slots};
/// let pool: Definition = PoolSpec::new("gpu", Slots::Limited(4))?.into();
/// assert_eq!(serde_json::to_string(&pool)?, r#"{"pool":{"name":"gpu","slots":4,"sensing_slots":"give_back"}}"#);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Definition {
    /// A pool.
    Pool(PoolSpec),
    /// A queue, with a cap on its waiting tasks.
    Queue(QueueSpec),
    /// A limit on a key or a family.
    Limit(LimitSpec),
}

impl From<PoolSpec> for Definition {
    fn from(spec: PoolSpec) -> Self {
        Self::Pool(spec)
    }
}

impl From<QueueSpec> for Definition {
    fn from(spec: QueueSpec) -> Self {
        Self::Queue(spec)
    }
}

impl From<LimitSpec> for Definition {
    fn from(spec: LimitSpec) -> Self {
        Self::Limit(spec)
    }
}

impl From<&PoolSpec> for Definition {
    fn from(spec: &PoolSpec) -> Self {
        Self::Pool(spec.clone())
    }
}

impl From<&QueueSpec> for Definition {
    fn from(spec: &QueueSpec) -> Self {
        Self::Queue(spec.clone())
    }
}

impl From<&LimitSpec> for Definition {
    fn from(spec: &LimitSpec) -> Self {
        Self::Limit(spec.clone())
    }
}

/// What [`define`](crate::store::Tx::define) does to an existing definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IfExists {
    /// Leaves it unchanged. For definitions that operators change while the program runs.
    Leave,
    /// Changes the given fields and leaves the others. The slots of a pool and the cap of a queue are always
    /// given. A pool's description is given unless it is empty, and its option to keep slots if it is set. A
    /// maximum, rate, weight or cap of a limit is given if it is set.
    Change,
    /// Replaces it with exactly what is given. For definitions that only the program's own code changes.
    Replace,
}

/// What happened to a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Defined {
    /// It did not exist, and was created.
    Created,
    /// It already had the requested value. Nothing was written.
    Same,
    /// It existed, differs, and was left unchanged.
    Left,
    /// It existed and was changed or replaced.
    Changed,
}

/// What happened to a definition that a host asked to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Undefined {
    /// It was removed. Tasks that need a removed pool wait, with that reason.
    Removed,
    /// It was not defined.
    NotDefined,
    /// The pool was not removed: tasks hold this many of its slots.
    InUse(i64),
    /// It was not removed: it is the pool [`PoolName::DEFAULT`](crate::id::PoolName::DEFAULT).
    IsDefault,
}

impl Definition {
    /// Returns the subject that it defines.
    pub(crate) fn subject(&self) -> Subject {
        match self {
            Self::Pool(spec) => Subject::Pool(spec.name.clone()),
            Self::Queue(spec) => Subject::Queue(spec.name.clone()),
            Self::Limit(spec) => spec.subject(),
        }
    }

    /// Checks that the values are in range.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        match self {
            Self::Pool(spec) => spec.check(),
            Self::Queue(spec) => spec.waiting.check(),
            Self::Limit(spec) => spec.check(),
        }
    }

    /// Decides what happens to the existing definition, if any. Returns the definition to write, if any.
    pub(crate) fn decide(self, existing: Option<&Self>, if_exists: IfExists) -> (Defined, Option<Self>) {
        let Some(existing) = existing else { return (Defined::Created, Some(self)) };
        let wanted = match if_exists {
            IfExists::Change => self.over(existing.clone()),
            IfExists::Leave | IfExists::Replace => self,
        };
        match if_exists {
            _ if wanted == *existing => (Defined::Same, None),
            IfExists::Leave => (Defined::Left, None),
            IfExists::Change | IfExists::Replace => (Defined::Changed, Some(wanted)),
        }
    }

    /// Returns `other`, with the given fields of this definition.
    fn over(self, other: Self) -> Self {
        match (self, other) {
            (Self::Pool(given), Self::Pool(mut spec)) => {
                spec.slots = given.slots;
                spec.sensing_keeps_slots |= given.sensing_keeps_slots;
                if !given.description.is_empty() {
                    spec.description = given.description;
                }
                Self::Pool(spec)
            }
            (Self::Limit(given), Self::Limit(spec)) => Self::Limit(LimitSpec {
                max: given.max.or(spec.max),
                rate: given.rate.or(spec.rate),
                weight: given.weight.or(spec.weight),
                waiting: given.waiting.or(spec.waiting),
                ..spec
            }),
            (given, _) => given,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::limits::Rate;
    use super::*;
    use crate::id::LimitKey;
    use crate::pool::Slots;

    fn pool(slots: u32) -> PoolSpec {
        PoolSpec::new("p", Slots::Limited(slots)).unwrap()
    }

    #[test]
    fn what_becomes_of_a_definition() {
        use IfExists::{Change, Leave, Replace};
        let described: Definition = pool(1).described("old").into();
        let decide = |given: PoolSpec, if_exists| Definition::from(given).decide(Some(&described), if_exists);
        assert_eq!(decide(pool(2), Leave), (Defined::Left, None));
        assert_eq!(decide(pool(2), Replace), (Defined::Changed, Some(pool(2).into())));
        assert_eq!(decide(pool(2), Change), (Defined::Changed, Some(pool(2).described("old").into())));
        assert_eq!(decide(pool(1), Change), (Defined::Same, None));
        assert_eq!(decide(pool(1), Replace), (Defined::Changed, Some(pool(1).into())));
        for if_exists in [Leave, Change, Replace] {
            assert_eq!(decide(pool(1).described("old"), if_exists), (Defined::Same, None));
            let created = (Defined::Created, Some(described.clone()));
            assert_eq!(described.clone().decide(None, if_exists), created);
        }
    }

    #[test]
    fn a_change_keeps_the_maximum_or_the_rate_that_is_not_given() {
        let key = LimitKey::new("k").unwrap();
        let rate = Rate::new(1, Duration::from_secs(1)).unwrap();
        let (max, both) =
            (LimitSpec::new(key.clone(), 3).unwrap(), LimitSpec::new(key.clone(), 3).unwrap().rate(rate));
        let given = Definition::from(LimitSpec::of(key).rate(rate));
        assert_eq!(
            given.clone().decide(Some(&max.clone().into()), IfExists::Change),
            (Defined::Changed, Some(both.into()))
        );
        assert_eq!(
            given.clone().decide(Some(&max.into()), IfExists::Replace),
            (Defined::Changed, Some(given))
        );
    }
}
