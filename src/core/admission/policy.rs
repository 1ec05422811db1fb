//! What a tick does with a task that does not fit.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::setters;
use crate::id::LimitKey;

/// What a tick does with a task that does not fit: the one choice that the order of admission leaves open.
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
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Policy {
    /// It waits, and whatever fits behind it goes first. No slot stays open that anyone could use, and a task
    /// that needs many slots may wait for ever behind small ones (Airflow does the same:
    /// apache/airflow#29474).
    #[default]
    Backfill,
    /// As [`Self::Backfill`], until it has waited long enough: then the open slots of its pool gather for it.
    ///
    /// When the walk comes to the first task of a lane that it does not admit, and that task
    ///
    /// * is kept only by the open slots of its pool ([`crate::admission::Reason::PoolFull`], all its limits
    ///   open), and
    /// * is ready for `after` or longer ([`crate::TaskRecord::ready_at`]),
    ///
    /// then its pool is closed, for this tick, to every task behind it in the order. Tasks before it go first
    /// as ever: a higher priority is not held up. What is passed over has the reason
    /// [`crate::admission::Reason::Reserved`]. The next tick decides anew, so a reservation ends with the
    /// task's admission, or with whatever takes it away.
    ///
    /// A task that never fits, or that waits for a limit, reserves nothing. A task that waits behind another
    /// one of the same needs becomes the first of them in its time.
    Reserve {
        /// The least time that it is ready, in whole microseconds. Zero is strict order within each pool.
        #[serde(rename = "after_s", with = "crate::seconds")]
        after: Duration,
    },
    /// Admits as Airflow 2.11 does, window and all: see [`AirflowWindow`].
    AirflowWindow(AirflowWindow),
}

/// The admission round of Airflow 2.11.2 (`SchedulerJobRunner._executable_task_instances_to_queued`), for
/// hosts that must reproduce its decisions.
///
/// A round looks at the first `max_tis` ready tasks in the order, and no further. What it admits is admitted;
/// if it admits nothing, it bars what stood in the way and looks at the next `max_tis` of the rest, until
/// something is admitted, nothing is left, or a window was not full:
///
/// 1. `max_tis` is at most the sum of all open slots of all pools; a pool with less than none counts as none.
///    (This compares tasks with slots, as Airflow does.) If it is zero, nothing is looked at.
/// 2. Pools without open slots are barred from the start.
/// 3. Each task of a window is refused by the first that holds: pool unknown, or without open slots: bars the
///    pool; more slots needed than the pool has or has open: bars the task (all its instances, in every run
///    and pool); workflow limit reached: bars the workflow; definition missing: the workflow's tasks fail;
///    limit of the task or of the task in its run reached: bars it; budget spent: bars the task.
/// 4. What is barred in a round is left out from the next one on, not before.
///
/// Tasks must carry the keys [`crate::admission::limits::workflow`], [`crate::admission::limits::task`] and
/// [`crate::admission::limits::task_in_run`], whether or not limits are defined for them: they say what is
/// barred together. Where one is missing, the task's lane is barred instead. Limits on other keys bar what
/// carries them. As a lane for each task of each run is the price, a tick costs as much as there are such
/// lanes.
///
/// Not reproduced: several executors, row locks of concurrent schedulers, and the order of tasks that are
/// equal to Airflow (by arrival here).
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
#[non_exhaustive]
pub struct AirflowWindow {
    /// How many tasks a round looks at (Airflow: `max_tis_per_query`, 16). Zero admits nothing.
    pub max_tis: usize,
    /// Workflows ([`crate::admission::limits::workflow`]) that have limits on tasks and whose definition is
    /// gone. The tick admits none of their tasks; those that it met are told in [`super::Plan::missing`], and
    /// the host fails all their scheduled tasks, as Airflow does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<LimitKey>,
}

impl AirflowWindow {
    /// Looks at this many tasks at a time; no definition is missing.
    pub fn new(max_tis: usize) -> Self {
        Self { max_tis, missing: Vec::new() }
    }

    setters! {
        /// Sets the workflows whose definition is gone.
        missing: Vec<LimitKey>;
    }
}
