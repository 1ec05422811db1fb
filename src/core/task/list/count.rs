//! How many tasks are in each state.

use serde::{Deserialize, Serialize};

use crate::task::TaskState;

/// How many tasks are in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskCount {
    /// The state.
    pub state: TaskState,
    /// How many tasks are in it, or a lower bound.
    pub tasks: u64,
    /// Whether there may be more: counting stopped at the cap.
    pub is_at_least: bool,
}

/// A store's counts of tasks, from which the numbers for each state follow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TaskSums {
    /// Tasks that have not ended, by the lanes' counters.
    pub open: u64,
    /// Ready ones among them, by the lanes' counters.
    pub ready: u64,
    /// Tasks in these states, counted one by one. A state may be left out if it has none.
    pub counted: Vec<(TaskState, u64)>,
}

impl TaskSums {
    /// Returns the count of each state, in the order of [`TaskState::ALL`].
    pub(crate) fn by_state(&self, cap: u64) -> Vec<TaskCount> {
        let counted =
            |state| self.counted.iter().filter(|(of, _)| *of == state).map(|(_, tasks)| tasks).sum::<u64>();
        let others = [TaskState::Queued, TaskState::Running, TaskState::Sensing];
        let waiting = self.open.saturating_sub(others.into_iter().map(counted).sum());
        let retries = counted(TaskState::UpForRetry);
        let count = |state: TaskState| {
            let (tasks, is_at_least) = match state {
                // Tasks beyond the cap may all be waiting to be tried again.
                TaskState::Scheduled if retries > cap => (self.ready, true),
                TaskState::Scheduled => (waiting.saturating_sub(retries), false),
                state if others.contains(&state) => (counted(state), false),
                state => (counted(state).min(cap), counted(state) > cap),
            };
            TaskCount { state, tasks, is_at_least }
        };
        TaskState::ALL.into_iter().map(count).collect()
    }
}
