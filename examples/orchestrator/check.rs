//! Refuses a workflow that cannot run, before anything is written.

use std::collections::{HashMap, HashSet};

use stationmaster::admission::limits;
use stationmaster::id::PoolName;
use stationmaster::pool::{PoolSpec, Slots};

use crate::trouble::Trouble;
use crate::workflow::{Task, WaitFor, Workflow};

const MAX_NAME: usize = 64;
const MAX_MAP: u32 = 1_000;
/// A task may carry 16 keys, and one of them is the workflow's.
const MAX_LIMIT_KEYS: usize = 16;

/// Checks everything except the order of the tasks, which [`order`] checks.
pub(crate) fn check(workflow: &Workflow) -> Result<(), Trouble> {
    plain_name("the workflow", &workflow.name)?;
    if workflow.max_active_tasks == Some(0) {
        return refuse("max_active_tasks is 0, so no task could run: raise it, or leave it out");
    }
    let default_pool = PoolSpec::default_pool();
    let mut pools = HashMap::from([(default_pool.name, default_pool.slots)]);
    let mut defined = HashSet::new();
    for pool in &workflow.pools {
        if !defined.insert(&pool.name) {
            return refuse(format!("pool {} is defined twice: remove one of them", pool.name));
        }
        pools.insert(pool.name.clone(), pool.slots);
    }
    let mut limits = HashSet::new();
    for limit in &workflow.limits {
        let spec = limit.name.as_str().try_into().map(|key| limits::LimitSpec::new(key, limit.max));
        if limit.max == 0 || !matches!(spec, Ok(Ok(_))) {
            return refuse(format!("limit {:?} needs a name, and a max of at least 1", limit.name));
        }
        if !limits.insert(limit.name.as_str()) {
            return refuse(format!("limit {} is defined twice: remove one of them", limit.name));
        }
    }
    if workflow.tasks.is_empty() {
        return refuse("the workflow has no tasks: give it at least one");
    }
    let mut tasks = HashSet::new();
    for task in &workflow.tasks {
        plain_name("a task", &task.name)?;
        if !tasks.insert(task.name.as_str()) {
            return refuse(format!("task {} is there twice: rename or remove one of them", task.name));
        }
    }
    for task in &workflow.tasks {
        check_needs(task, &pools, &limits)?;
        check_work(task)?;
        if let Some(unknown) = task.after.iter().find(|name| !tasks.contains(name.as_str())) {
            let name = &task.name;
            return refuse(format!(
                "task {name} waits for {unknown:?}, which is no task: correct its `after`"
            ));
        }
    }
    Ok(())
}

fn check_needs(task: &Task, pools: &HashMap<PoolName, Slots>, limits: &HashSet<&str>) -> Result<(), Trouble> {
    let (name, pool, needs) = (&task.name, &task.pool, task.pool_slots);
    match pools.get(pool) {
        None => {
            return refuse(format!(
                "task {name} names pool {pool:?}, which does not exist: add it to `pools`, or correct the name"
            ));
        }
        Some(Slots::Limited(total)) if needs > *total => {
            return refuse(format!(
                "task {name} needs {needs} slots of pool {pool}, which has {total}: lower its pool_slots, or enlarge the \
                 pool"
            ));
        }
        Some(_) if needs == 0 => return refuse(format!("task {name} has pool_slots 0: give at least 1")),
        Some(_) => {}
    }
    if let Some(unknown) = task.limits.iter().find(|limit| !limits.contains(limit.as_str())) {
        return refuse(format!(
            "task {name} names limit {unknown:?}, which is not in `limits`: add it there"
        ));
    }
    if task.limits.len() >= MAX_LIMIT_KEYS {
        return refuse(format!(
            "task {name} names {} limits: name fewer than {MAX_LIMIT_KEYS}",
            task.limits.len()
        ));
    }
    Ok(())
}

fn check_work(task: &Task) -> Result<(), Trouble> {
    let name = &task.name;
    if task.timeout_s.is_some_and(|length| length.is_zero()) {
        return refuse(format!("task {name} has a timeout_s of 0: give more, or leave it out"));
    }
    if task.map.is_some_and(|count| count == 0 || count > MAX_MAP) {
        return refuse(format!("task {name}: map must be 1 to {MAX_MAP}"));
    }
    match (&task.command, &task.wait_for) {
        (Some(command), None) => {
            if command.trim().is_empty() {
                return refuse(format!("task {name} has an empty command: say what to run"));
            }
            if task.interval_s.is_some() || task.soft_fail {
                return refuse(format!("task {name} is a command: interval_s and soft_fail are for sensors"));
            }
            if task.retry.max_attempts().is_none() && task.retry.budget().is_none() {
                return refuse(format!("task {name} would be retried for ever: give its retry max_attempts"));
            }
            Ok(())
        }
        (None, Some(wait_for)) => {
            if task.retry.max_attempts() != Some(1) {
                return refuse(format!("task {name} is a sensor: give it a timeout_s instead of a retry"));
            }
            if task.interval_s.is_some_and(|length| length.as_millis() == 0) {
                return refuse(format!("task {name} has an interval_s below 0.001: give more"));
            }
            match wait_for {
                WaitFor::File(text) | WaitFor::Command(text) | WaitFor::Tcp(text)
                    if text.trim().is_empty() =>
                {
                    refuse(format!("task {name} waits for an empty text: say what to wait for"))
                }
                WaitFor::Tcp(address) if port_of(address).is_none() => refuse(format!(
                    "task {name} waits for {address:?}: give host:port, such as localhost:5432"
                )),
                _ => Ok(()),
            }
        }
        _ => refuse(format!("task {name} must have either a command or a wait_for")),
    }
}

fn port_of(address: &str) -> Option<u16> {
    let (host, port) = address.rsplit_once(':')?;
    if host.is_empty() { None } else { port.parse().ok() }
}

/// Returns the tasks in an order in which each comes after those that it waits for.
pub(crate) fn order(workflow: &Workflow) -> Result<Vec<usize>, Trouble> {
    let by_name: HashMap<&str, usize> =
        workflow.tasks.iter().enumerate().map(|(at, task)| (task.name.as_str(), at)).collect();
    let upstream =
        |at: usize| workflow.tasks[at].after.iter().filter_map(|name| by_name.get(name.as_str()).copied());
    let mut placed = vec![false; workflow.tasks.len()];
    let mut order = Vec::with_capacity(placed.len());
    while order.len() < placed.len() {
        let before = order.len();
        for at in 0..placed.len() {
            if !placed[at] && upstream(at).all(|up| placed[up]) {
                placed[at] = true;
                order.push(at);
            }
        }
        if order.len() == before {
            return refuse(circle(workflow, &placed, upstream));
        }
    }
    Ok(order)
}

/// Every remaining task waits for another remaining one, so walking upstream must lead to a cycle.
fn circle<I: Iterator<Item = usize>>(
    workflow: &Workflow,
    placed: &[bool],
    upstream: impl Fn(usize) -> I,
) -> String {
    let mut walk: Vec<usize> = Vec::new();
    let mut at = placed.iter().position(|placed| !placed).unwrap_or(0);
    while !walk.contains(&at) {
        walk.push(at);
        at = upstream(at).find(|up| !placed[*up]).unwrap_or(at);
    }
    let from = walk.iter().position(|seen| *seen == at).unwrap_or(0);
    let names: Vec<&str> =
        walk[from..].iter().chain([&at]).map(|at| workflow.tasks[*at].name.as_str()).collect();
    format!("tasks wait for each other in a circle, {}: remove one of these `after`", names.join(" after "))
}

/// Names become file names, so they are more restricted than in the library.
fn plain_name(what: &str, name: &str) -> Result<(), Trouble> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > MAX_NAME || name.starts_with(['.', '-']) || !name.chars().all(plain) {
        return refuse(format!(
            "{what} is named {name:?}: use 1 to {MAX_NAME} of a-z, A-Z, 0-9, _ - and ., not beginning with - or ."
        ));
    }
    Ok(())
}

fn refuse<T>(text: impl Into<String>) -> Result<T, Trouble> {
    Err(Trouble::Input(text.into()))
}
