//! Why tasks do not run.

use serde_json::json;
use stationmaster::TaskKey;
use stationmaster::ops::{Explanation, Position};
use stationmaster::store::Store;

use super::Found;
use crate::screen::{Screen, field, key as key_field};

/// Up to how many tasks before a task are counted.
pub const MOST_BEFORE: u64 = 100;

/// How many tasks are asked about in a transaction.
const AT_ONCE: usize = 1_000;

pub fn show(store: &dyn Store, screen: &mut Screen, keys: &[TaskKey]) -> Found {
    let (now, mut told) = (screen.now, Vec::with_capacity(keys.len()));
    for keys in keys.chunks(AT_ONCE) {
        let (whys, positions) =
            store.read(|tx| Ok((tx.explain(now, keys)?, tx.positions(keys, MOST_BEFORE)?)))?;
        told.extend(whys.into_iter().zip(positions));
    }
    let found = told.iter().any(|(why, _)| *why != Explanation::Unknown);
    if screen.is_json() {
        for (key, (why, position)) in keys.iter().zip(&told) {
            let text = why.to_string();
            let at = why.changes_at();
            screen.line(&json!({
                "key": key, "why": why, "text": text, "position": position, "changes_at": at
            }));
        }
        return Ok(found);
    }
    let row = |(key, (reason, position)): (&TaskKey, &(Explanation, Position))| {
        let changes = screen.maybe_when(reason.changes_at());
        vec![key_field(key), field(why(reason, *position)), changes]
    };
    let rows: Vec<_> = keys.iter().zip(&told).map(row).collect();
    screen.table(&["task", "why", "changes"], rows);
    Ok(found)
}

/// Returns the reason, and how many tasks stand before it, for people.
pub fn why(why: &Explanation, position: Position) -> String {
    let place = match position {
        Position::Before(0) => "; first in its pool's order",
        Position::Before(1) => "; 1 task of its pool goes before it",
        Position::Before(before) => return format!("{why}; {before} tasks of its pool go before it"),
        Position::MoreThan(most) => return format!("{why}; more than {most} tasks of its pool go before it"),
        _ => "",
    };
    format!("{why}{place}")
}
