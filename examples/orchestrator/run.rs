//! One run of the workflow: begun or resumed, and advanced step by step.

use std::collections::HashMap;
use std::path::PathBuf;

use stationmaster::admission::limits;
use stationmaster::admission::{IfExists, Subject};
use stationmaster::ops::{Mark, StopBeforeStart};
use stationmaster::pool::PoolSpec;
use stationmaster::run::{ActiveQuery, RunClose, RunKey, RunRecord, RunStatus};
use stationmaster::store::{Store, Tx};
use stationmaster::task::{Feed, LeaseLoss};
use stationmaster::{NewTask, Result, TaskKey, TaskRecord, TaskState, Timestamp};

use crate::cli::Places;
use crate::graph::{Graph, Step};
use crate::trouble::Trouble;
use crate::workflow::{Source, Task, Workflow};

pub(crate) const NAMESPACE: &str = "orchestrator";

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) key: RunKey,
    pub(crate) started: Timestamp,
    pub(crate) resumed: bool,
    pub(crate) workflow: Workflow,
    pub(crate) workflow_dir: PathBuf,
    pub(crate) places: Places,
    pub(crate) graph: Graph,
    /// The key of each node of the graph.
    pub(crate) keys: Vec<TaskKey>,
    nodes: HashMap<TaskKey, usize>,
}

impl Run {
    /// Resumes the open run of this workflow, or begins a new one.
    pub(crate) fn open(
        store: &dyn Store,
        source: Source,
        graph: Graph,
        places: Places,
        now: Timestamp,
    ) -> Result<Self, Trouble> {
        let Source { workflow, dir, definition } = source;
        let opened = store.write(|tx| {
            let open = match open_run(tx, now, &workflow.name, &definition)? {
                Ok(open) => open,
                Err(refused) => return Ok(Err(refused)),
            };
            define_capacity(tx, &workflow)?;
            let resumed = open.is_some();
            let record = match open {
                Some(run) => run,
                None => {
                    let key = next_key(tx, &workflow.name)?;
                    let run = RunRecord::open(key, now)
                        .workflow(workflow.name.as_str().try_into()?)
                        .attributes(definition.as_str());
                    tx.record_runs(std::slice::from_ref(&run), StopBeforeStart::Reject)?;
                    run
                }
            };
            Ok(Ok((record, resumed)))
        })?;
        let (record, resumed) = opened?;
        let keys: std::result::Result<Vec<TaskKey>, _> = graph
            .nodes
            .iter()
            .map(|node| {
                let task = &workflow.tasks[node.task];
                let key = TaskKey::new(NAMESPACE, &workflow.name, &record.key.id, &task.name)?;
                Ok::<_, stationmaster::Error>(match node.map_index {
                    Some(index) => key.mapped(index),
                    None => key,
                })
            })
            .collect();
        let keys = keys?;
        let nodes = keys.iter().cloned().enumerate().map(|(at, key)| (key, at)).collect();
        let (key, started) = (record.key, record.start);
        Ok(Self { key, started, resumed, workflow, workflow_dir: dir, places, graph, keys, nodes })
    }

    pub(crate) fn id(&self) -> &str {
        self.key.id.as_str()
    }

    /// Returns this task as written in the workflow file.
    pub(crate) fn spec(&self, key: &TaskKey) -> Option<&Task> {
        self.nodes.get(key).map(|node| &self.workflow.tasks[self.graph.nodes[*node].task])
    }

    /// Waits for other transactions, in any process, that end tasks of this run. Must be called before a task is ended
    /// and the run advanced.
    pub(crate) fn take_turn(&self, tx: &mut Tx<'_>) -> Result<()> {
        tx.serialize(&[format!("{}/{}", self.key.namespace, self.key.id)])
    }

    /// Does what follows from the current states: enqueues the tasks whose upstream succeeded, ends those whose
    /// upstream failed, was skipped or was cancelled, and closes the run when nothing is left.
    ///
    /// Call it in the transaction that ends a task, so that no crash can come in between. It depends only on the
    /// database, so repeating it does no harm.
    pub(crate) fn advance(&self, tx: &mut Tx<'_>, now: Timestamp) -> Result<()> {
        let tasks = tx.tasks(&self.keys)?;
        let mut states: Vec<Option<TaskState>> =
            tasks.iter().map(|task| task.as_ref().map(|task| task.state)).collect();
        let steps = self.graph.steps(&states);
        if !steps.is_empty() {
            let new = steps.iter().map(|(at, _)| self.new_task(*at)).collect::<Result<Vec<_>>>()?;
            tx.enqueue(now, &new)?;
            let mut marks = Vec::new();
            for (at, step) in steps {
                let (to, up, how) = match step {
                    Step::Enqueue => {
                        states[at] = Some(TaskState::Scheduled);
                        continue;
                    }
                    Step::Fail(up) => (TaskState::Failed, up, "failed"),
                    Step::Skip(up) if states[up] == Some(TaskState::Cancelled) => {
                        (TaskState::Skipped, up, "was cancelled")
                    }
                    Step::Skip(up) => (TaskState::Skipped, up, "was skipped"),
                };
                states[at] = Some(to);
                let message = format!("upstream {} {how}", short(&self.keys[up]));
                marks.push(Mark::new(self.keys[at].clone(), to, message));
            }
            tx.mark(now, &marks)?;
        }
        if states.iter().all(|state| state.is_some_and(TaskState::is_end)) {
            let any = |state| states.contains(&Some(state));
            let status = match (any(TaskState::Failed), any(TaskState::Cancelled)) {
                (true, _) => RunStatus::Failed,
                (false, true) => RunStatus::Killed,
                (false, false) => RunStatus::Completed,
            };
            tx.close_runs(&[RunClose::new(self.key.clone(), now, status)])?;
        }
        Ok(())
    }

    fn new_task(&self, at: usize) -> Result<NewTask> {
        let (key, spec) = (&self.keys[at], &self.workflow.tasks[self.graph.nodes[at].task]);
        let mut task = NewTask::new(key.clone())
            .pool(spec.pool.clone())
            .pool_slots(spec.pool_slots)
            .priority(spec.priority)
            .logical_date(self.started)
            .retry(spec.retry.clone())
            .lease_loss(LeaseLoss::Requeue { at_most: 20 })
            .attempts_as_runs(true)
            .feed(if spec.wait_for.is_some() { Feed::EndsAndSensors } else { Feed::Off })
            .limit(limits::workflow(key)?);
        for limit in &spec.limits {
            task = task.limit(limit.as_str().try_into()?);
        }
        Ok(task)
    }

    /// Returns the progress of the run, from its record and its tasks.
    pub(crate) fn progress(&self, run: &[Option<RunRecord>], tasks: &[Option<TaskRecord>]) -> Progress {
        let mut progress = Progress { total: self.keys.len(), ..Progress::default() };
        progress.closed = is_closed(run);
        for task in tasks.iter().flatten() {
            match task.state {
                TaskState::Running => progress.running += 1,
                TaskState::Sensing => progress.sensing += 1,
                state if state.is_end() => progress.ended += 1,
                _ => progress.waiting += 1,
            }
        }
        let states: Vec<_> = tasks.iter().map(|task| task.as_ref().map(|task| task.state)).collect();
        progress.may_advance = !self.graph.steps(&states).is_empty() || progress.ended == progress.total;
        progress
    }
}

/// The progress of a run.
#[derive(Debug, Default, Clone)]
pub(crate) struct Progress {
    pub(crate) total: usize,
    pub(crate) ended: usize,
    pub(crate) running: usize,
    pub(crate) sensing: usize,
    /// Enqueued, but not running.
    pub(crate) waiting: usize,
    pub(crate) closed: bool,
    /// Whether [`Run::advance`] has something to do.
    pub(crate) may_advance: bool,
}

/// Returns a task's name within its run.
pub(crate) fn short(key: &TaskKey) -> String {
    match key.map_index {
        Some(index) => format!("{}[{index}]", key.task),
        None => key.task.to_string(),
    }
}

/// Returns the run to resume, if there is one. A refusal is not an error of the transaction, because nothing was
/// written.
fn open_run(
    tx: &mut Tx<'_>,
    now: Timestamp,
    workflow: &str,
    definition: &str,
) -> Result<Result<Option<RunRecord>, Trouble>> {
    let query = ActiveQuery::new(now, Timestamp::MAX).namespace(NAMESPACE.try_into()?);
    let open = tx.active_runs(&query)?;
    let Some(run) = open.into_iter().find(|run| run.stop.is_none() && is_ours(run)) else {
        return Ok(Ok(None));
    };
    let id = &run.key.id;
    let owner = run.workflow.as_ref().map_or("", |name| name.as_str());
    if owner != workflow {
        let text = format!(
            "the database has the unfinished run {id} of workflow {owner}: resume that with its own file first, or give \
             another database with --db"
        );
        return Ok(Err(Trouble::Input(text)));
    }
    if run.attributes.as_deref() != Some(definition) {
        let text = format!(
            "the workflow file was changed since the unfinished run {id} began: put the old file back to resume it, or \
             begin anew in another database with --db"
        );
        return Ok(Err(Trouble::Input(text)));
    }
    Ok(Ok(Some(run)))
}

/// A run that no longer exists counts as closed.
pub(crate) fn is_closed(run: &[Option<RunRecord>]) -> bool {
    run.iter().flatten().all(|run| run.stop.is_some())
}

/// Distinguishes runs of workflows from their tasks' attempts, which are in the same index.
pub(crate) fn is_ours(run: &RunRecord) -> bool {
    run.attributes.is_some()
}

/// Returns the key with the lowest number that no run of this workflow has.
fn next_key(tx: &mut Tx<'_>, workflow: &str) -> Result<RunKey> {
    const PAGE: usize = 100;
    let mut first = 1;
    loop {
        let keys =
            (first..first + PAGE).map(|number| RunKey::new(NAMESPACE, format!("{workflow}-{number:04}")));
        let keys = keys.collect::<std::result::Result<Vec<_>, _>>()?;
        let runs = tx.runs(&keys)?;
        if let Some((key, _)) = keys.into_iter().zip(runs).find(|(_, run)| run.is_none()) {
            return Ok(key);
        }
        first += PAGE;
    }
}

fn define_capacity(tx: &mut Tx<'_>, workflow: &Workflow) -> Result<()> {
    let mut pools = Vec::new();
    let default_pool = PoolSpec::default_pool();
    if workflow.pools.iter().all(|pool| pool.name != default_pool.name) {
        pools.push(default_pool);
    }
    for pool in &workflow.pools {
        pools.push(PoolSpec::new(&pool.name, pool.slots)?.described(&pool.description));
    }
    tx.define(&pools, IfExists::Replace)?;
    let name = workflow.name.as_str().try_into()?;
    let whole = limits::workflow_named(&NAMESPACE.try_into()?, &name)?;
    let mut specs = Vec::new();
    match workflow.max_active_tasks {
        Some(max) => specs.push(limits::LimitSpec::new(whole, max)?),
        None => {
            tx.undefine(&[Subject::Key(whole)])?;
        }
    }
    for limit in &workflow.limits {
        specs.push(limits::LimitSpec::new(limit.name.as_str().try_into()?, limit.max)?);
    }
    tx.define(&specs, IfExists::Replace).map(drop)
}
