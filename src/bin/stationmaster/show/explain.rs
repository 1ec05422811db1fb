//! Why tasks do not run.

use serde_json::json;
use stationmaster::ops::{Explanation, Position};
use stationmaster::store::Store;
use stationmaster::{TaskKey, Timestamp};

use super::Found;
use crate::screen::{Screen, field, maybe};

/// The most tasks that are counted before a task.
pub const MOST_BEFORE: u64 = 100;

/// How many tasks one transaction explains.
const AT_ONCE: usize = 1_000;

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
    for (key, (why, position)) in keys.iter().zip(&explained) {
        for (at, (text, changes)) in lines(why, *position).into_iter().enumerate() {
            let key = maybe(Some(key).filter(|_| at == 0));
            rows.push(vec![key, field(text), screen.maybe_when(changes)]);
        }
    }
    screen.table(&["task", "why", "changes"], rows);
    Ok(found)
}

/// Returns for people all that a task waits for: each reason, and when it may end on its own. The first line also says
/// how many tasks are before it.
pub fn lines(why: &Explanation, position: Position) -> Vec<(String, Option<Timestamp>)> {
    let first = match why {
        Explanation::NotBefore { due, .. } => Some((format!("not before {due}"), Some(*due))),
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
