//! Promotion: tasks that are due become ready, earliest first.

use std::collections::BTreeMap;

use super::tasks::TaskRow;
use super::undo::Transaction;
use crate::admission::{Candidate, Lane, LaneId};
use crate::lease::TaskId;
use crate::store::contract::{Overdue, Promote};
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

    /// Returns what [`Self::promote`] would make ready.
    pub(super) fn overdue_tasks(&self, promote: Promote) -> Overdue {
        let tasks = &self.state.tasks;
        let rows = tasks.due(promote.now).take(promote.limit).filter_map(|id| tasks.row(id));
        let candidate =
            |row: &TaskRow| Candidate::new(row.lane, row.record.order()).ready_at(row.record.ready_at);
        let found: Vec<Candidate> = rows.map(candidate).collect();
        let mut ready: BTreeMap<LaneId, u64> = BTreeMap::new();
        for task in &found {
            *ready.entry(task.lane).or_default() += 1;
        }
        let lane = |(id, ready)| Some(Lane::new(id, self.state.lanes.key(id)?.clone(), ready));
        let lanes = ready.into_iter().filter_map(lane).collect();
        Overdue { next_due: tasks.due_after(found.len()), tasks: found, lanes }
    }
}
