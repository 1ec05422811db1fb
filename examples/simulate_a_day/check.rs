//! Checks whether a workload makes sense. Each refusal says what to correct.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use stationmaster::id::PoolName;
use stationmaster::pool::Slots;

use crate::trouble::Trouble;
use crate::workload::{Starts, Task, Workflow, Workload};

/// Longer ones must be typing errors.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

pub(crate) fn check(workload: &Workload) -> Result<(), Trouble> {
    let workers = workload.workers;
    if workers.count == 0 || workers.places == 0 {
        return refuse("workers: give a count and places of at least 1");
    }
    if workers.lease_s < Duration::from_secs(1) || workers.lease_s > LONGEST {
        return refuse("workers: give a lease_s of at least 1");
    }
    for crash in &workload.crashes {
        if crash.worker == 0 || crash.worker > workers.count {
            return refuse(format!("a crash names worker {}: give 1 to {}", crash.worker, workers.count));
        }
        let from_to = |crash: &crate::workload::Crash| crash.at_s..crash.at_s + crash.back_after_s;
        let again = workload.crashes.iter().filter(|other| {
            other.worker == crash.worker && (from_to(other).contains(&crash.at_s) || other.at_s == crash.at_s)
        });
        if again.count() > 1 {
            return refuse(format!("worker {} crashes while it is away: move one crash", crash.worker));
        }
    }
    unique("pool", workload.pools.iter().map(|pool| pool.name.as_str()))?;
    unique("limit", workload.limits.iter().map(|limit| limit.name.as_str()))?;
    unique("target", workload.targets.iter().map(|target| target.name.as_str()))?;
    unique("workflow", workload.workflows.iter().map(|workflow| workflow.name.as_str()))?;
    for target in &workload.targets {
        if target.every_s < Duration::from_secs(1) || !target.lands_after_s.is_ordered() {
            return refuse(format!(
                "target {}: give an every_s of at least 1, and percentiles that rise",
                target.name
            ));
        }
    }
    let names = Names {
        pools: workload.pools.iter().map(|pool| (&pool.name, pool.slots)).collect(),
        limits: workload.limits.iter().map(|limit| limit.name.as_str()).collect(),
        targets: workload.targets.iter().map(|target| target.name.as_str()).collect(),
    };
    workload.workflows.iter().try_for_each(|workflow| check_workflow(workflow, &names))
}

struct Names<'a> {
    pools: HashMap<&'a PoolName, Slots>,
    limits: HashSet<&'a str>,
    targets: HashSet<&'a str>,
}

fn check_workflow(workflow: &Workflow, names: &Names<'_>) -> Result<(), Trouble> {
    let name = &workflow.name;
    if let Starts::Every { period_s, .. } = workflow.starts
        && period_s < Duration::from_secs(1)
    {
        return refuse(format!("workflow {name}: give a period_s of at least 1"));
    }
    if workflow.tasks.is_empty() {
        return refuse(format!("workflow {name} has no tasks: give it one, or leave it out"));
    }
    if workflow.max_active_tasks == Some(0) {
        return refuse(format!("workflow {name}: with max_active_tasks 0 its tasks would never run"));
    }
    unique("task", workflow.tasks.iter().map(|task| task.name.as_str()))?;
    let mut before = HashSet::new();
    for task in &workflow.tasks {
        if let Some(unknown) = task.after.iter().find(|other| !before.contains(other.as_str())) {
            return refuse(format!(
                "task {name}/{} is after {unknown:?}: name tasks of the workflow that stand before it",
                task.name
            ));
        }
        before.insert(task.name.as_str());
        if let Err(what) = check_task(task, names) {
            return refuse(format!("task {name}/{}: {what}", task.name));
        }
    }
    Ok(())
}

fn check_task(task: &Task, names: &Names<'_>) -> Result<(), String> {
    match names.pools.get(&task.pool) {
        None => return Err(format!("there is no pool {:?}: add it, or correct the name", task.pool)),
        Some(Slots::Limited(total)) if task.pool_slots > *total => {
            let (needs, pool) = (task.pool_slots, &task.pool);
            return Err(format!(
                "it needs {needs} slots of pool {pool}, which has {total}: it would never run"
            ));
        }
        Some(_) if task.pool_slots == 0 => return Err("give pool_slots of at least 1".into()),
        Some(_) => {}
    }
    if let Some(unknown) = task.limits.iter().find(|limit| !names.limits.contains(limit.as_str())) {
        return Err(format!("there is no limit {unknown:?}: add it, or correct the name"));
    }
    if !(0.0..=1.0).contains(&task.fails) {
        return Err("fails is a probability: give 0 to 1".into());
    }
    if task.retry.max_attempts().is_none() && task.retry.budget().is_none() {
        return Err("it might be retried for ever: give its retry max_attempts or a budget_s".into());
    }
    if task.takes_s.is_some_and(|takes| !takes.is_ordered() || takes.max() > LONGEST) {
        return Err("takes_s: give percentiles that rise, at most a year".into());
    }
    match &task.wait_for {
        None if task.takes_s.is_none() => Err("give takes_s, wait_for, or both".into()),
        Some(wait) if !names.targets.contains(wait.target.as_str()) => {
            Err(format!("there is no target {:?}: add it, or correct the name", wait.target))
        }
        Some(wait) if wait.interval_s < Duration::from_secs(1) || wait.timeout_s < wait.interval_s => {
            Err("wait_for: give an interval_s of at least 1, and a timeout_s of at least that".into())
        }
        _ => Ok(()),
    }
}

fn unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), Trouble> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return refuse(format!("{what} {name:?} is there twice: rename or remove one of them"));
        }
    }
    Ok(())
}

fn refuse<T>(text: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Input(text.into()))
}
