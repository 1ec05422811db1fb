//! What a tick does with a task that does not fit.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::setters;
use crate::id::LimitKey;

/// What a tick does with a task that does not fit. The order of admission leaves only this choice open.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::admission::Policy;
/// let policy = Policy::Reserve { after: Duration::from_secs(600) };
/// assert_eq!(serde_json::to_string(&policy)?, r#"{"reserve":{"after_s":600}}"#);
/// assert_eq!(serde_json::from_str::<Policy>("\"backfill\"")?, Policy::default());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Policy {
    /// The task waits, and tasks behind it that fit go first. No slot stays open that another task could use.
    /// A task that needs many slots may wait forever behind small ones (Airflow does the same:
    /// apache/airflow#29474).
    #[default]
    Backfill,
    /// Works like [`Self::Backfill`] until the task has waited long enough. Then the open slots of its pools
    /// are reserved for it.
    ///
    /// In each lane, this concerns the first task that the walk does not admit. For this tick, the walk
    /// closes that task's pools to every task behind it in the order if the task
    ///
    /// * waits only for open slots of its pools ([`crate::admission::Reason::PoolFull`], all its limits
    ///   open), while no other task has a reservation there, and
    /// * has been ready for `after` or longer ([`crate::TaskRecord::ready_at`]).
    ///
    /// Tasks before it still go first, so a higher priority is not held up. Tasks that are passed over get
    /// the reason [`crate::admission::Reason::Reserved`]. The next tick decides again, so a reservation ends
    /// when the task is admitted or otherwise stops waiting.
    ///
    /// A task that never fits or that waits for a limit reserves nothing. A task that waits behind another
    /// with the same needs eventually becomes the first of them.
    Reserve {
        /// The minimum time that the task has been ready, in whole microseconds. Zero means strict order
        /// within each pool, if tasks need one pool each.
        #[serde(rename = "after_s", with = "crate::seconds")]
        after: Duration,
    },
    /// Admits as Airflow 2.11 does, including the window: see [`AirflowWindow`].
    AirflowWindow(AirflowWindow),
}

/// The admission round of Airflow 2.11.2 (`SchedulerJobRunner._executable_task_instances_to_queued`), for
/// hosts that must reproduce its decisions.
///
/// A round considers only the first `max_tis` ready tasks in the order: the window. If it admits something,
/// that is the result. Otherwise it excludes whatever prevented admission, and the next round considers the
/// next `max_tis` tasks of the rest. The rounds end when something is admitted, when nothing is left, when a
/// window was not full, or when a round excluded nothing new.
///
/// 1. `max_tis` is at most the sum of the open slots of all pools. A pool with a negative number counts as
///    zero. (This compares tasks with slots, as Airflow does.) If the result is zero, no task is considered.
/// 2. Pools without open slots are excluded from the start.
/// 3. Each task of a window is refused for the first of these reasons that applies:
///    * The pool is unknown or has no open slots. This excludes the pool.
///    * The task needs more slots than the pool has, or than it has open. This excludes the task: all its
///      instances, in every run and pool.
///    * The workflow limit is reached. This excludes the workflow.
///    * The definition is missing. The host fails the workflow's tasks.
///    * The limit of the task is reached, or that of the task in its run. This excludes the task, or the task
///      in that run.
///    * The budget is spent. This excludes the task.
/// 4. Exclusions of a round take effect from the next round on, not before.
///
/// Tasks must carry the keys [`crate::admission::limits::workflow`], [`crate::admission::limits::task`] and
/// [`crate::admission::limits::task_in_run`], whether or not limits are defined for them. The keys say what
/// is excluded together. If a task lacks its key, its lane is excluded instead. A reached limit on any other
/// key excludes the tasks that carry that key. Each task of each run therefore has its own lane, and the cost
/// of a tick grows with the number of these lanes.
///
/// Three things are not reproduced: multiple executors, row locks of concurrent schedulers, and the order of
/// tasks that Airflow considers equal. Here such tasks go by arrival.
///
/// # Examples
///
/// ```
/// use stationmaster::admission::{AirflowWindow, Policy};
/// let policy = Policy::AirflowWindow(AirflowWindow::new(16));
/// assert_eq!(serde_json::to_string(&policy)?, r#"{"airflow_window":{"max_tis":16}}"#);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct AirflowWindow {
    /// The number of tasks that a round considers (Airflow: `max_tis_per_query`, 16). With zero, nothing is
    /// admitted.
    pub max_tis: usize,
    /// Workflows ([`crate::admission::limits::workflow`]) that have limits on tasks and whose definition is
    /// missing. The tick admits none of their tasks. Those that it encountered are in
    /// [`Admission::missing`](crate::ops::Admission::missing). The host fails all their scheduled tasks, as
    /// Airflow does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<LimitKey>,
}

impl AirflowWindow {
    /// Creates a window of this many tasks, with no missing definitions.
    pub fn new(max_tis: usize) -> Self {
        Self { max_tis, missing: Vec::new() }
    }

    setters! {
        /// Sets the workflows whose definitions are missing.
        missing: Vec<LimitKey>;
    }
}
