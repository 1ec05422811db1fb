//! The tasks of one run and their dependencies. A pure function from states to steps.

use std::collections::HashMap;

use stationmaster::TaskState;

use crate::check;
use crate::trouble::Trouble;
use crate::workflow::Workflow;

/// One task instance.
#[derive(Debug)]
pub(crate) struct Node {
    /// Its index in [`Workflow::tasks`].
    pub(crate) task: usize,
    pub(crate) map_index: Option<u32>,
    /// The indices of the nodes that it waits for. They are lower than its own.
    upstream: Vec<usize>,
}

#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
}

/// What to do with a node that is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Enqueue,
    /// This upstream node failed.
    Fail(usize),
    /// This upstream node was skipped or cancelled.
    Skip(usize),
}

impl Step {
    fn state(self) -> TaskState {
        match self {
            Self::Enqueue => TaskState::Scheduled,
            Self::Fail(_) => TaskState::Failed,
            Self::Skip(_) => TaskState::Skipped,
        }
    }
}

impl Graph {
    pub(crate) fn new(workflow: &Workflow) -> Result<Self, Trouble> {
        let mut nodes: Vec<Node> = Vec::new();
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for task in check::order(workflow)? {
            let spec = &workflow.tasks[task];
            let count = spec.map.map_or(1, |count| count as usize);
            let mut own = Vec::with_capacity(count);
            for index in 0..count {
                let mut upstream = Vec::new();
                for name in &spec.after {
                    let others = places.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
                    match others.get(index) {
                        Some(twin) if spec.map.is_some() && others.len() == count => upstream.push(*twin),
                        _ => upstream.extend(others),
                    }
                }
                own.push(nodes.len());
                nodes.push(Node { task, map_index: spec.map.map(|_| index as u32), upstream });
            }
            places.insert(&spec.name, own);
        }
        Ok(Self { nodes })
    }

    /// Returns the steps that follow from these states, for nodes that the store does not know yet (`None`).
    ///
    /// A node waits until all its upstream nodes have ended. The result depends only on the states, so this may be
    /// called at any time and any number of times, also after a crash.
    pub(crate) fn steps(&self, states: &[Option<TaskState>]) -> Vec<(usize, Step)> {
        let mut states = states.to_vec();
        let mut steps = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if states[at].is_some()
                || !node.upstream.iter().all(|up| states[*up].is_some_and(TaskState::is_end))
            {
                continue;
            }
            let first = |of: &[TaskState]| {
                let is_one = |up: &usize| states[*up].is_some_and(|state| of.contains(&state));
                node.upstream.iter().copied().find(is_one)
            };
            let without_result = [TaskState::Skipped, TaskState::Cancelled];
            let step = match (first(&[TaskState::Failed]), first(&without_result)) {
                (Some(failed), _) => Step::Fail(failed),
                (None, Some(up)) => Step::Skip(up),
                (None, None) => Step::Enqueue,
            };
            states[at] = Some(step.state());
            steps.push((at, step));
        }
        steps
    }
}
