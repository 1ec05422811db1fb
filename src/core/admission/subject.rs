//! What a host can define or pause.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::lane::LaneKey;
use crate::id::{LimitKey, PoolName, QueueName};

/// What a host defines or pauses: a pool, a queue, a limit key, or a family of keys.
///
/// # Examples
///
/// ```
/// use stationmaster::admission::Subject;
/// let subject = Subject::Queue("gpu".try_into()?);
/// assert_eq!(serde_json::to_string(&subject)?, r#"{"queue":"gpu"}"#);
/// assert_eq!(subject.to_string(), "queue gpu");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Subject {
    /// The queue of this name.
    Queue(QueueName),
    /// The pool of this name.
    Pool(PoolName),
    /// All tasks that carry this key.
    Key(LimitKey),
    /// All tasks that carry a key that begins with this text and is longer.
    Family(LimitKey),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(name) => write!(f, "queue {name}"),
            Self::Pool(name) => write!(f, "pool {name}"),
            Self::Key(key) => write!(f, "limit {key}"),
            Self::Family(prefix) => write!(f, "limits {prefix}*"),
        }
    }
}

impl Subject {
    /// Returns its kind, as stores number it, and its name.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(crate) fn parts(&self) -> (i64, &str) {
        match self {
            Self::Queue(name) => (0, name.as_str()),
            Self::Pool(name) => (1, name.as_str()),
            Self::Key(key) => (2, key.as_str()),
            Self::Family(prefix) => (3, prefix.as_str()),
        }
    }

    /// Returns true if a task with these needs belongs to it.
    pub(crate) fn concerns(&self, lane: &LaneKey) -> bool {
        match self {
            Self::Queue(name) => lane.queue == *name,
            Self::Pool(name) => lane.pools().any(|(pool, _)| pool == name),
            Self::Key(key) => lane.limits.contains(key),
            Self::Family(prefix) => lane.limits.iter().any(|key| is_of_family(key, prefix)),
        }
    }
}

/// Returns true for a key that begins with this prefix and is longer.
pub(crate) fn is_of_family(key: &LimitKey, prefix: &LimitKey) -> bool {
    key.as_str().len() > prefix.as_str().len() && key.as_str().starts_with(prefix.as_str())
}

/// The paused subjects, for lookups.
#[derive(Debug, Default)]
pub(crate) struct Paused {
    subjects: BTreeSet<Subject>,
    /// The prefixes of paused families, shortest first.
    families: Vec<LimitKey>,
}

impl Paused {
    pub(crate) fn new(paused: &[Subject]) -> Self {
        let of_family = |subject: &Subject| match subject {
            Subject::Family(prefix) => Some(prefix.clone()),
            _ => None,
        };
        let mut families: Vec<LimitKey> = paused.iter().filter_map(of_family).collect();
        families.sort_unstable_by_key(|prefix| prefix.as_str().len());
        Self { subjects: paused.iter().cloned().collect(), families }
    }

    /// Returns the paused subjects of tasks with these needs, each once. The order is the queue, the pools,
    /// then for each key in byte order the key itself and its families, shortest first.
    pub(crate) fn of(&self, lane: &LaneKey) -> Vec<Subject> {
        let mut found = Vec::new();
        if self.subjects.is_empty() {
            return found;
        }
        let mut add = |subject: Subject| {
            if self.subjects.contains(&subject) && !found.contains(&subject) {
                found.push(subject);
            }
        };
        add(Subject::Queue(lane.queue.clone()));
        lane.pools().for_each(|(pool, _)| add(Subject::Pool(pool.clone())));
        for key in &lane.limits {
            add(Subject::Key(key.clone()));
            let families = self.families.iter().filter(|prefix| is_of_family(key, prefix));
            families.for_each(|prefix| add(Subject::Family(prefix.clone())));
        }
        found
    }
}

/// How far a paused subject has drained.
///
/// # Examples
///
/// ```
/// use stationmaster::admission::Drain;
/// assert_eq!(serde_json::to_string(&Drain::Draining { leases: 2 })?, r#"{"draining":{"leases":2}}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drain {
    /// It is not paused.
    Open,
    /// It is paused, and some of its tasks still hold leases.
    Draining {
        /// The number of these leases.
        leases: u64,
    },
    /// It is paused, and none of its tasks holds a lease. It stays drained until it is resumed.
    Drained,
}
