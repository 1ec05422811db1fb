//! The host's part: runs of workflows, and the dependencies between tasks.

use std::collections::HashMap;

use chrono::DateTime;
use stationmaster::admission::limits;
use stationmaster::run::{RunKey, RunRecord};
use stationmaster::task::Feed;
use stationmaster::{NewTask, Result, TaskKey, TaskState, Timestamp};

use crate::workload::{Task, Workload};

/// The namespace of all tasks here.
pub(crate) const NAMESPACE: &str = "day";

/// A task of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) run: usize,
    task: usize,
}

#[derive(Debug)]
pub(crate) struct Run {
    workflow: usize,
    /// The instant for which it was scheduled, and at which it starts.
    pub(crate) date: Timestamp,
    pub(crate) key: RunKey,
    tasks: Vec<Progress>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Waits,
    Enqueued,
    Ended(TaskState),
}

/// All runs of the day.
#[derive(Debug)]
pub(crate) struct Runs<'a> {
    workload: &'a Workload,
    pub(crate) runs: Vec<Run>,
    places: HashMap<TaskKey, Place>,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(workload: &'a Workload) -> Self {
        Self { workload, runs: Vec::new(), places: HashMap::new() }
    }

    pub(crate) fn begin(&mut self, workflow: usize, date: Timestamp) -> Result<(usize, RunRecord)> {
        let spec = &self.workload.workflows[workflow];
        let key = RunKey::new(NAMESPACE, format!("{}/{}", spec.name, id(date)))?;
        let tasks = vec![Progress::Waits; spec.tasks.len()];
        let record = RunRecord::open(key.clone(), date).workflow(spec.name.as_str().try_into()?);
        self.runs.push(Run { workflow, date, key, tasks });
        Ok((self.runs.len() - 1, record))
    }

    pub(crate) fn place(&self, key: &TaskKey) -> Option<Place> {
        self.places.get(key).copied()
    }

    pub(crate) fn spec(&self, place: Place) -> &'a Task {
        &self.workload.workflows[self.runs[place.run].workflow].tasks[place.task]
    }

    /// Returns all keys that were enqueued, by run and task.
    pub(crate) fn keys(&self) -> Vec<TaskKey> {
        let mut keys: Vec<(&TaskKey, &Place)> = self.places.iter().collect();
        keys.sort_by_key(|(_, place)| (place.run, place.task));
        keys.into_iter().map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn end(&mut self, place: Place, state: TaskState) {
        self.runs[place.run].tasks[place.task] = Progress::Ended(state);
    }

    /// Advances a run. Returns the tasks to enqueue, whose upstream tasks have all succeeded. A task with an upstream
    /// task that did not succeed ends like it.
    pub(crate) fn advance(&mut self, run: usize) -> Result<Vec<NewTask>> {
        let (workload, at) = (self.workload, run);
        let run = &mut self.runs[at];
        let workflow = &workload.workflows[run.workflow];
        let mut ready = Vec::new();
        for (task, spec) in workflow.tasks.iter().enumerate() {
            if run.tasks[task] != Progress::Waits {
                continue;
            }
            let mut upstream =
                workflow.tasks.iter().zip(&run.tasks).filter(|(other, _)| spec.after.contains(&other.name));
            let badly = upstream.clone().find_map(|(_, progress)| match progress {
                Progress::Ended(state) if *state != TaskState::Success => Some(*state),
                _ => None,
            });
            if let Some(state) = badly {
                run.tasks[task] = Progress::Ended(state);
            } else if upstream.all(|(_, progress)| matches!(progress, Progress::Ended(_))) {
                run.tasks[task] = Progress::Enqueued;
                let key = TaskKey::new(NAMESPACE, &workflow.name, id(run.date), &spec.name)?;
                self.places.insert(key.clone(), Place { run: at, task });
                ready.push(new_task(key, spec, workflow.max_active_tasks.is_some(), run.date)?);
            }
        }
        Ok(ready)
    }

    /// Returns how all its tasks ended, or `None` if one has not.
    pub(crate) fn ended(&self, run: usize) -> Option<TaskState> {
        let mut worst = TaskState::Success;
        for progress in &self.runs[run].tasks {
            match progress {
                Progress::Ended(TaskState::Success) => {}
                Progress::Ended(state) if worst != TaskState::Failed => worst = *state,
                Progress::Ended(_) => {}
                Progress::Waits | Progress::Enqueued => return None,
            }
        }
        Some(worst)
    }
}

fn id(date: Timestamp) -> String {
    DateTime::from(date).format("%Y-%m-%dT%H:%M:%S%.f").to_string()
}

fn new_task(key: TaskKey, spec: &Task, is_limited: bool, date: Timestamp) -> Result<NewTask> {
    let mut task = NewTask::new(key)
        .pool(spec.pool.clone())
        .pool_slots(spec.pool_slots)
        .priority(spec.priority)
        .logical_date(date)
        .retry(spec.retry.clone())
        .lease_loss(spec.lease_loss)
        .feed(if spec.wait_for.is_some() { Feed::EndsAndSensors } else { Feed::Off });
    for name in &spec.limits {
        task = task.limit(name.as_str().try_into()?);
    }
    if is_limited {
        let workflow = limits::workflow(&task.key)?;
        task = task.limit(workflow);
    }
    Ok(task)
}
