//! Which tasks of its pool go before a task.

use stationmaster::ops::Position;
use stationmaster::store::Store;
use stationmaster::{TaskKey, TaskRecord};

use super::Stop;

/// How many tasks are named.
const NAMED: u64 = 5;

/// Names the first tasks that go before this one. Returns `None` if there are none.
pub fn before(store: &dyn Store, task: &TaskRecord, position: Position) -> Result<Option<String>, Stop> {
    let (before, more_than) = match position {
        Position::Before(before) if before > 0 => (before, ""),
        Position::MoreThan(most) => (most, "more than "),
        _ => return Ok(None),
    };
    let first = store.read(|tx| tx.first_ready(&task.lane.pool, before.min(NAMED)))?;
    // It may have become the first meanwhile.
    let names: Vec<TaskKey> =
        first.into_iter().map(|first| first.key).take_while(|first| *first != task.key).collect();
    if names.is_empty() {
        return Ok(None);
    }
    let rest = before.saturating_sub(names.len() as u64);
    let names = names.iter().map(TaskKey::to_string).collect::<Vec<_>>().join(", ");
    let is_all = rest == 0 && more_than.is_empty();
    let more = if is_all { String::new() } else { format!(", and {more_than}{rest} more") };
    Ok(Some(format!("before it: {names}{more}")))
}
