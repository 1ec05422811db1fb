//! The report that is printed when a run has ended.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use chrono::DateTime;
use stationmaster::run::{ActiveQuery, RunKey, RunRecord};
use stationmaster::store::Store;
use stationmaster::{Result, TaskRecord, TaskState, Timestamp};

use crate::run::{NAMESPACE, Run, is_ours, short};
use crate::screen::say;
use crate::session::Tally;

/// How many runs of the last hour are listed. The others are only counted.
const LISTED_RUNS: usize = 5;

/// Prints the report. Returns whether the run succeeded.
pub(crate) fn print(store: &dyn Store, run: &Run, tally: &Tally, now: Timestamp) -> Result<bool> {
    let hour = ActiveQuery::new(now - Duration::from_secs(3600), now + Duration::from_micros(1))
        .namespace(NAMESPACE.try_into()?);
    let (tasks, attempts, pools, active, whole) = store.read(|tx| {
        let tasks: Vec<TaskRecord> = tx.tasks(&run.keys)?.into_iter().flatten().collect();
        let attempts = tx.runs(&attempt_keys(&tasks)?)?;
        let whole = tx.runs(std::slice::from_ref(&run.key))?.pop().flatten();
        Ok((tasks, attempts, tx.all_pools()?, tx.active_runs(&hour)?, whole))
    })?;
    print_tasks(run, &tasks, attempts);
    say(format_args!("\npool peak usage{}", scope(run)));
    for pool in pools {
        let (name, total) = (&pool.spec.name, pool.spec.slots);
        if run.workflow.tasks.iter().any(|task| task.pool == *name) {
            say(format_args!("  {name}: {} of {total} slots", tally.peaks.of(name)));
        }
    }
    let (pokes, saved) = (tally.pokes.load(Ordering::SeqCst), tally.saved.load(Ordering::SeqCst));
    say(format_args!("\npokes: {pokes} made, {saved} saved by sharing{}", scope(run)));
    print_active(&active);
    print_failures(run, &tasks);

    let count = |state| tasks.iter().filter(|task| task.state == state).count();
    let (failed, cancelled) = (count(TaskState::Failed), count(TaskState::Cancelled));
    let verdict = match (failed, cancelled) {
        (0, 0) => "success",
        (0, _) => "cancelled",
        _ => "failed",
    };
    let of_run =
        ["tasks", "--namespace", NAMESPACE, "--workflow", run.workflow.name.as_str(), "--run", run.id()];
    say(format_args!("show it: {}", run.places.database.inspect(&of_run)));
    let took = whole.map_or(Duration::ZERO, |whole| between(whole.start, whole.stop.unwrap_or(now)));
    say(format_args!(
        "run {}: {verdict}, {} tasks ({} success, {failed} failed, {} skipped{}), {:.1} s",
        run.id(),
        tasks.len(),
        count(TaskState::Success),
        count(TaskState::Skipped),
        if cancelled == 0 { String::new() } else { format!(", {cancelled} cancelled") },
        took.as_secs_f64()
    ));
    Ok(verdict == "success")
}

fn between(start: Timestamp, stop: Timestamp) -> Duration {
    stop.saturating_duration_since(start)
}

/// Counts in memory do not include what a killed process did.
fn scope(run: &Run) -> &'static str {
    if run.resumed { " (since the run was resumed)" } else { "" }
}

/// Returns the keys under which all attempts of these tasks are in the active-run index.
fn attempt_keys(tasks: &[TaskRecord]) -> Result<Vec<RunKey>> {
    let mut keys = Vec::new();
    for task in tasks {
        for attempt in 1..=task.attempt {
            keys.push(task.attempt_run(attempt)?);
        }
    }
    Ok(keys)
}

/// One line of the table: a task, or all instances of a mapped task.
#[derive(Default)]
struct Line {
    states: BTreeMap<TaskState, usize>,
    attempts: u32,
    waited: Duration,
    ran: Duration,
}

fn print_tasks(run: &Run, tasks: &[TaskRecord], attempts: Vec<Option<RunRecord>>) {
    let mut attempts = attempts.into_iter();
    let mut lines: Vec<Line> = run.workflow.tasks.iter().map(|_| Line::default()).collect();
    for (node, task) in run.graph.nodes.iter().zip(tasks) {
        let line = &mut lines[node.task];
        *line.states.entry(task.state).or_default() += 1;
        line.attempts += task.attempt;
        let until = task.first_started_at.or(task.ended_at).unwrap_or(task.enqueued_at);
        line.waited = line.waited.max(between(task.enqueued_at, until));
        for attempt in attempts.by_ref().take(task.attempt as usize).flatten() {
            line.ran += between(attempt.start, attempt.stop.unwrap_or(attempt.start));
        }
    }
    let names: Vec<String> = run
        .workflow
        .tasks
        .iter()
        .map(|task| match task.map {
            Some(count) => format!("{} x {count}", task.name),
            None => task.name.clone(),
        })
        .collect();
    let width = names.iter().map(String::len).max().unwrap_or(0).max("task".len());
    say(format_args!("\n{:<width$}  {:<22} {:>8} {:>9} {:>9}", "task", "state", "attempts", "waited", "ran"));
    for (name, line) in names.iter().zip(&lines) {
        let states: Vec<String> = match line.states.iter().collect::<Vec<_>>()[..] {
            [(state, _)] => vec![state.to_string()],
            _ => line.states.iter().map(|(state, count)| format!("{count} {state}")).collect(),
        };
        say(format_args!(
            "{name:<width$}  {:<22} {:>8} {:>7.1} s {:>7.1} s",
            states.join(", "),
            line.attempts,
            line.waited.as_secs_f64(),
            line.ran.as_secs_f64()
        ));
    }
    say("(mapped tasks: attempts and time run are sums, time waited is the longest)");
}

fn print_active(active: &[RunRecord]) {
    let runs: Vec<&RunRecord> = active.iter().filter(|run| is_ours(run)).collect();
    let attempts = active.len() - runs.len();
    say(format_args!("\nactive in the last hour: {} runs, {attempts} attempts of tasks", runs.len()));
    for run in runs.iter().rev().take(LISTED_RUNS) {
        let start = DateTime::from(run.start).format("%H:%M:%S");
        match run.stop {
            Some(stop) => {
                let took = between(run.start, stop).as_secs_f64();
                say(format_args!("  {} {:?}, began {start} UTC, took {took:.1} s", run.key.id, run.status));
            }
            None => say(format_args!("  {} {:?}, began {start} UTC", run.key.id, run.status)),
        }
    }
    if runs.len() > LISTED_RUNS {
        say(format_args!("  and {} before", runs.len() - LISTED_RUNS));
    }
}

fn print_failures(run: &Run, tasks: &[TaskRecord]) {
    let ended_badly = tasks.iter().filter(|task| task.state == TaskState::Failed);
    for (at, task) in ended_badly.enumerate() {
        if at == 0 {
            say("\nfailed");
        }
        let message = task.message.as_deref().unwrap_or("no message");
        match task.attempt {
            0 => say(format_args!("  {}: {message}", short(&task.key))),
            attempt => {
                let log = run.places.log(&task.key, attempt);
                say(format_args!("  {}: {message}; see {}", short(&task.key), log.display()));
            }
        }
    }
    say("");
}
