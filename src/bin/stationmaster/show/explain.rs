//! Why tasks do not run.

use serde_json::json;
use stationmaster::ops::{Explanation, Position};
use stationmaster::store::Store;
use stationmaster::{TaskKey, TaskRecord, TaskState, Timestamp};

use super::before::before;
use super::tasks::shortened;
use super::{Found, mapped};
use crate::screen::{Screen, field, key as key_field, keys as keys_field};
use crate::times::absolute;

/// The most tasks that are counted before a task.
pub const MOST_BEFORE: u64 = 100;

/// How many tasks one transaction explains.
const AT_ONCE: usize = 1_000;

/// For how many of the tasks those that go before them are named.
const DETAILED: usize = 10;

pub fn show(store: &dyn Store, screen: &mut Screen, keys: &[TaskKey]) -> Found {
    let (now, mut explained) = (screen.now, Vec::with_capacity(keys.len()));
    for keys in keys.chunks(AT_ONCE) {
        let (whys, positions) =
            store.read(|tx| Ok((tx.explain(now, keys)?, tx.positions(keys, MOST_BEFORE)?)))?;
        explained.extend(whys.into_iter().zip(positions));
    }
    let found = explained.iter().any(|(why, _)| *why != Explanation::Unknown);
    if screen.is_json() {
        for (key, (why, position)) in keys.iter().zip(&explained) {
            let text = why.to_string();
            let at = why.changes_at();
            screen.line(&json!({
                "key": key, "why": why, "text": text, "position": position, "changes_at": at
            }));
        }
        return Ok(found);
    }
    let mut rows = Vec::with_capacity(keys.len());
    let mut tasks: Vec<Option<TaskRecord>> = Vec::with_capacity(keys.len());
    for keys in keys.chunks(AT_ONCE) {
        tasks.extend(store.read(|tx| tx.tasks(keys))?);
    }
    let mut left = DETAILED;
    for ((key, (why, position)), task) in keys.iter().zip(&explained).zip(&tasks) {
        let mut reasons = lines(why, *position, task.as_ref());
        let first = match task {
            Some(task) if left > 0 => before(store, task, *position)?,
            _ => None,
        };
        left -= usize::from(first.is_some());
        if *why == Explanation::Unknown
            && let Some((text, _)) = reasons.first_mut()
        {
            text.push_str(&mapped::hint(store, keys)?);
        }
        let mut key = Some(key_field(key));
        let mut name = || key.take().unwrap_or_else(|| field(""));
        for (text, changes) in reasons {
            rows.push(vec![name(), field(text), screen.maybe_when(changes)]);
        }
        if let Some(first) = first {
            rows.push(vec![name(), keys_field(first), field("")]);
        }
    }
    screen.table(&["task", "why", "changes"], rows);
    Ok(found)
}

/// Returns for people all that a task waits for: each reason, and when it may end on its own. The first line also says
/// how many tasks are before it.
pub fn lines(
    why: &Explanation,
    position: Position,
    task: Option<&TaskRecord>,
) -> Vec<(String, Option<Timestamp>)> {
    let first = match why {
        Explanation::NotBefore { due, .. } => {
            let (retry, after) = task.and_then(retry).unwrap_or_default();
            Some((format!("{retry}not before {}{after}", absolute(*due)), Some(*due)))
        }
        Explanation::Refused { .. } => None,
        why => Some((why.to_string(), None)),
    };
    let reasons = why.reasons().map(|reason| (reason.to_string(), reason.changes_at()));
    let mut lines: Vec<_> = first.into_iter().chain(reasons).collect();
    if let Some((text, _)) = lines.first_mut() {
        text.push_str(&place(position));
    }
    lines
}

fn place(position: Position) -> String {
    match position {
        Position::Before(0) => "; first in its pool's order".into(),
        Position::Before(1) => "; 1 task of its pool goes before it".into(),
        Position::Before(before) => format!("; {before} tasks of its pool go before it"),
        Position::MoreThan(most) => format!("; more than {most} tasks of its pool go before it"),
        _ => String::new(),
    }
}

/// Returns what to say about a task that waits to be tried again, before the instant and after it.
fn retry(task: &TaskRecord) -> Option<(&'static str, String)> {
    if task.state != TaskState::UpForRetry {
        return None;
    }
    let message = task.message.as_deref().map_or_else(|| "no message".to_owned(), shortened);
    Some(("retry ", format!("; attempt {} ended with: {message}", task.attempt)))
}
