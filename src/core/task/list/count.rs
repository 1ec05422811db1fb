//! Counts of tasks by state.

use serde::{Deserialize, Serialize};

use crate::task::TaskState;

/// The number of tasks in a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TaskCount {
    /// The state.
    pub state: TaskState,
    /// The number of tasks in it, or a lower bound.
    pub tasks: u64,
    /// True if there may be more, because counting stopped at the cap.
    pub is_at_least: bool,
}

/// A store's counts of tasks, from which the count for each state is computed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct TaskSums {
    /// Tasks that have not ended, from the lanes' counters.
    pub open: u64,
    /// Those of them that are ready, from the lanes' counters.
    pub ready: u64,
    /// Tasks in these states, counted one by one. A state without tasks may be left out.
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
                // All tasks beyond the cap may be waiting for a retry.
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
