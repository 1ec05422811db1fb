//! Lists and counts of tasks: see `docs/listing.md`.

mod count;
mod cursor;
mod query;
mod walk;

use serde::{Deserialize, Serialize};

use super::record::TaskRecord;
use crate::id::TaskKey;

pub use count::{TaskCount, TaskSums};
pub(crate) use cursor::Cursor;
pub use query::TaskQuery;
#[cfg(feature = "sqlite")]
pub(crate) use walk::Gathered;
pub use walk::{Place, TaskWalk, Walk, Walked};

/// One page of a list of tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskPage {
    /// The tasks. There may be fewer than the limit, or even no tasks, although there is a next page.
    pub tasks: Vec<TaskRecord>,
    /// The next page for [`TaskQuery::after`], as letters and digits. It is valid only for the same query,
    /// with any page length. `None` at the end of the list.
    pub next: Option<String>,
}

impl TaskPage {
    pub(crate) fn new(tasks: Vec<TaskRecord>, next: Option<String>) -> Self {
        Self { tasks, next }
    }

    /// Returns the keys of its tasks, for operations that take keys.
    pub fn keys(&self) -> Vec<TaskKey> {
        self.tasks.iter().map(|task| task.key.clone()).collect()
    }
}
