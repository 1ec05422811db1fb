//! Promotion: tasks whose instant has come become ready, earliest first.

use super::undo::Transaction;
use crate::lease::TaskId;
use crate::store::contract::Promote;
use crate::task::{TaskRecord, TaskState};

impl Transaction<'_> {
    pub(super) fn promote(&mut self, promote: Promote) -> usize {
        let due: Vec<TaskId> = self.state.tasks.due(promote.now).take(promote.limit).collect();
        for id in &due {
            let promote = |task: &mut TaskRecord| (task.state, task.due) = (TaskState::Scheduled, None);
            self.change_task_if(*id, |_| true, promote);
        }
        due.len()
    }
}
