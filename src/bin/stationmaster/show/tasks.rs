//! Lists and counts of tasks.

use serde_json::json;
use stationmaster::id::{PoolName, QueueName};
use stationmaster::store::Store;
use stationmaster::store::contract::LaneKey;
use stationmaster::task::{TaskPage, TaskQuery};
use stationmaster::{TaskRecord, TaskState};

use super::{Found, Stop, goes_on, nothing, output};
use crate::args::{Filter, Page};
use crate::failure::Failure;
use crate::screen::{Field, Screen, field, key, number, state};
use crate::times::{must_stop, until, when};

/// The most tasks of a state that are counted.
const MOST: usize = 100_000;

/// How many tasks are read at once for a whole list.
const AT_ONCE: usize = 1_000;

pub fn list(store: &dyn Store, screen: &mut Screen, query: &TaskQuery, page: &Page) -> Found {
    let mut found = Vec::new();
    let next = walk(store, query, page, |tasks| found.extend(tasks))?;
    if screen.is_json() {
        for task in &found {
            let line = screen.record(task).map_err(output)?;
            screen.line(&line);
        }
    } else if found.is_empty() && next.is_none() {
        return nothing(screen, "No task is like this.");
    } else {
        let now = screen.now;
        let row = |task: &TaskRecord| {
            let (since, note) = (screen.maybe_when(since(task)), field(note(task, now)));
            vec![key(&task.key), state(task.state), since, needs(&task.lane), note]
        };
        let mut heads = vec!["task", "state", "since", "needs", "note"];
        let mut rows: Vec<Vec<Field>> = found.iter().map(row).collect();
        if screen.shows_payloads() {
            heads.push("payload");
            rows.iter_mut().zip(&found).for_each(|(row, task)| row.push(field(&task.payload)));
        }
        screen.table(&heads, rows);
    }
    if let Some(next) = next {
        goes_on(screen, &next);
    }
    Ok(!found.is_empty())
}

/// Reads one page or all of them, each in its own transaction. Returns where the list continues.
pub fn walk(
    store: &dyn Store,
    query: &TaskQuery,
    page: &Page,
    mut each: impl FnMut(Vec<TaskRecord>),
) -> Result<Option<String>, Stop> {
    let mut query = query.clone().limit(if page.all { AT_ONCE } else { page.limit() });
    query.after = page.after.clone();
    let mut left = page.limit();
    loop {
        let TaskPage { tasks, next, .. } = store.read(|tx| tx.list_tasks(&query))?;
        left = left.saturating_sub(tasks.len());
        each(tasks);
        // A page may be short or empty without being the last.
        match next {
            Some(next) if page.all => query = query.after(next),
            Some(next) if left > 0 => query = query.limit(left).after(next),
            next => return Ok(next),
        }
    }
}

pub fn count(store: &dyn Store, screen: &mut Screen, filter: &Filter) -> Found {
    if !filter.is_empty() {
        let text = "tasks are counted by state alone: leave out the filters, or list them with --all";
        return Err(Stop::Other(Failure::Usage(text.into())));
    }
    let counts = store.read(|tx| tx.count_tasks(MOST))?;
    let found = counts.iter().any(|count| count.tasks > 0);
    if screen.is_json() {
        for count in &counts {
            screen.line(&json!(count));
        }
    } else {
        let row = |count: &stationmaster::task::TaskCount| {
            let more = if count.is_at_least { "+" } else { "" };
            vec![state(count.state), number(format!("{}{more}", count.tasks))]
        };
        screen.table(&["state", "tasks"], counts.iter().map(row));
    }
    Ok(found)
}

/// Returns when the task entered its state.
fn since(task: &TaskRecord) -> Option<stationmaster::Timestamp> {
    match task.state {
        TaskState::Scheduled => Some(if task.due.is_some() { task.enqueued_at } else { task.ready_at }),
        TaskState::Queued => task.queued_at,
        TaskState::Running | TaskState::Sensing => task.started_at,
        _ => task.ended_at,
    }
}

/// Returns what is most useful to know about a task in its state.
fn note(task: &TaskRecord, now: stationmaster::Timestamp) -> String {
    let mut notes = Vec::new();
    if let Some(lease) = &task.lease {
        notes.push(format!("held by {}, lease {}", lease.holder, until(lease.expires_at, now)));
        notes.extend(lease.cancel_at.map(|at| must_stop(at, now)));
    } else {
        notes.extend(task.due.map(|due| match due <= now {
            true => format!("due since {}; the next tick makes it ready", when(due, now)),
            false => format!("not before {}", when(due, now)),
        }));
        let is_shown = task.state.is_end() || task.state == TaskState::UpForRetry;
        notes.extend(task.message.as_deref().filter(|_| is_shown).map(shortened));
    }
    if task.attempt > 1 {
        notes.push(format!("attempt {}", task.attempt));
    }
    notes.join("; ")
}

/// Returns the first 200 characters. Another command shows the whole message.
pub fn shortened(message: &str) -> String {
    match message.char_indices().nth(200) {
        Some((at, _)) => format!("{}…", &message[..at]),
        None => message.to_owned(),
    }
}

/// Returns what a task needs, as far as it is not the default: another queue or pool, several slots, limits.
pub fn needs(lane: &LaneKey) -> Field {
    let mut needs = Vec::new();
    if lane.queue.as_str() != QueueName::DEFAULT {
        needs.push(format!("queue {}", lane.queue));
    }
    let pools = std::iter::once((&lane.pool, &lane.slots)).chain(&lane.also);
    for (pool, slots) in pools {
        match slots {
            1 if pool.as_str() == PoolName::DEFAULT => {}
            1 => needs.push(format!("pool {pool}")),
            slots => needs.push(format!("pool {pool}: {slots} slots")),
        }
    }
    for limit in &lane.limits {
        let count = lane.counts.get(limit).filter(|count| **count != 1);
        let count = count.map_or_else(String::new, |count| format!(" ({count})"));
        needs.push(format!("limit {limit}{count}"));
    }
    field(needs.join(", "))
}
