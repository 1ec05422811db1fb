//! Names: validated newtypes over text, and the keys built from them.
//!
//! A name is 1 to [`MAX_BYTES`] bytes of UTF-8 without NUL. Nothing else is refused, and nothing is
//! normalised. Every store preserves quotes, emoji, right-to-left text and trailing blanks byte for byte. NUL
//! is refused because PostgreSQL cannot store it and C strings end at it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::base::setters;
use crate::error::Invalid;

/// The longest name, in bytes of UTF-8.
pub const MAX_BYTES: usize = 512;

pub(crate) fn check_name(what: &'static str, text: &str) -> Result<(), Invalid> {
    if text.is_empty() {
        return Err(Invalid::EmptyName { what });
    }
    if text.len() > MAX_BYTES {
        return Err(Invalid::LongName { what, bytes: text.len() });
    }
    match text.bytes().position(|byte| byte == 0) {
        Some(at) => Err(Invalid::NulInName { what, at }),
        None => Ok(()),
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident, $what:literal;)+) => {$(
        $(#[$doc])*
        ///
        /// Cheap to clone. Compared and ordered by bytes.
        ///
        /// # Examples
        ///
        /// ```
        #[doc = concat!("use stationmaster::id::", stringify!($name), ";")]
        #[doc = concat!("let name = ", stringify!($name), "::new(\"nightly\")?;")]
        /// assert_eq!(name.as_str(), "nightly");
        #[doc = concat!("assert!(", stringify!($name), "::new(\"\").is_err());")]
        /// # Ok::<(), stationmaster::error::Invalid>(())
        /// ```
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            #[doc = concat!("Checks and takes ", $what, ".")]
            ///
            /// # Errors
            ///
            /// Returns [`Invalid`] if the text is empty, is longer than [`MAX_BYTES`] or contains a NUL.
            pub fn new(text: impl AsRef<str>) -> Result<Self, Invalid> {
                let text = text.as_ref();
                check_name($what, text)?;
                Ok(Self(text.into()))
            }

            /// Returns the text, unchanged.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&*self.0, f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<&str> for $name {
            type Error = Invalid;
            fn try_from(text: &str) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;
            fn try_from(text: String) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = Invalid;
            fn from_str(text: &str) -> Result<Self, Invalid> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(text).map_err(serde::de::Error::custom)
            }
        }
    )+};
}

names! {
    /// A tenant. All other names are unique within a namespace.
    Namespace, "namespace";
    /// A workflow definition (Airflow: DAG).
    WorkflowId, "workflow id";
    /// One execution of a workflow (Airflow: DAG run).
    RunId, "run id";
    /// A task of a workflow (Airflow: task).
    TaskName, "task id";
    /// A slot pool.
    PoolName, "pool name";
    /// A kind of worker that may take a task (Airflow, Celery: queue).
    QueueName, "queue name";
    /// What a concurrency limit counts; see [`crate::admission::limits`].
    LimitKey, "limit key";
    /// The holder of a lease: one scheduler or worker process. Give each live holder its own name.
    Holder, "holder";
    /// A kind of sensor, which selects the poke function.
    SensorKind, "sensor kind";
    /// The name of one admission tick, so that a tick whose commit had an unknown outcome can be repeated.
    /// Never use a name twice.
    RequestId, "request id";
}

impl PoolName {
    /// The pool of a task that does not name one (Airflow: `default_pool`).
    pub const DEFAULT: &'static str = "default_pool";

    /// Returns the pool [`Self::DEFAULT`].
    pub fn default_pool() -> Self {
        Self(Self::DEFAULT.into())
    }
}

impl QueueName {
    /// The queue of a task that does not name one (Airflow: `default`).
    pub const DEFAULT: &'static str = "default";

    /// Returns the queue [`Self::DEFAULT`].
    pub fn default_queue() -> Self {
        Self(Self::DEFAULT.into())
    }

    pub(crate) fn is_default(&self) -> bool {
        self.as_str() == Self::DEFAULT
    }
}

/// The identity of one task instance, the unit that requests slots.
///
/// # Examples
///
/// ```
/// use stationmaster::TaskKey;
/// let key = TaskKey::new("prod", "nightly", "2026-01-01", "load")?.mapped(3);
/// assert_eq!(key.to_string(), "prod/nightly/2026-01-01/load[3]");
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskKey {
    /// The tenant.
    pub namespace: Namespace,
    /// The workflow.
    pub workflow: WorkflowId,
    /// The execution of the workflow.
    pub run: RunId,
    /// The task.
    pub task: TaskName,
    /// The index within a mapped (fanned-out) task; `None` for a task that is not mapped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub map_index: Option<u32>,
}

impl TaskKey {
    /// Creates the key of a task that is not mapped.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Invalid`](crate::Error::Invalid) if one of the names is refused.
    pub fn new(
        namespace: impl AsRef<str>,
        workflow: impl AsRef<str>,
        run: impl AsRef<str>,
        task: impl AsRef<str>,
    ) -> crate::Result<Self> {
        Ok(Self {
            namespace: Namespace::new(namespace)?,
            workflow: WorkflowId::new(workflow)?,
            run: RunId::new(run)?,
            task: TaskName::new(task)?,
            map_index: None,
        })
    }

    /// Creates the key from names that were already checked.
    pub fn from_parts(
        namespace: Namespace,
        workflow: WorkflowId,
        run: RunId,
        task: TaskName,
        map_index: Option<u32>,
    ) -> Self {
        Self { namespace, workflow, run, task, map_index }
    }

    setters! {
        /// Sets the index of this instance within a mapped task.
        mapped(map_index: u32) { map_index = Some(map_index) }
    }
}

/// Formats the key for people and logs. The text cannot be parsed back, because names may contain `/` and
/// `[`.
impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{}", self.namespace, self.workflow, self.run, self.task)?;
        match self.map_index {
            Some(index) => write!(f, "[{index}]"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_empty_long_and_nul() {
        assert_eq!(TaskName::new(""), Err(Invalid::EmptyName { what: "task id" }));
        assert_eq!(PoolName::new("a\0b"), Err(Invalid::NulInName { what: "pool name", at: 1 }));
        assert!(RunId::new("x".repeat(MAX_BYTES)).is_ok());
        assert_eq!(
            RunId::new("x".repeat(MAX_BYTES + 1)),
            Err(Invalid::LongName { what: "run id", bytes: MAX_BYTES + 1 })
        );
    }

    #[test]
    fn serde_checks_too() {
        assert!(serde_json::from_str::<Holder>("\"\"").is_err());
        let key = TaskKey::new("ns", "w", "r", "t\u{1F600}\u{202E}'\"\n").unwrap().mapped(0);
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<TaskKey>(&text).unwrap(), key);
    }

    #[test]
    fn an_unmapped_task_sorts_before_its_mapped_ones() {
        let plain = TaskKey::new("n", "w", "r", "t").unwrap();
        assert!(plain < plain.clone().mapped(0));
    }
}
