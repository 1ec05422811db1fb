//! Whether the counters equal what they count.

use serde_json::json;
use stationmaster::store::{Discrepancy, Store};

use super::Found;
use crate::screen::{Screen, field};

/// Returns false if something is wrong.
pub fn show(store: &dyn Store, screen: &mut Screen) -> Found {
    let found = store.read(|tx| tx.audit())?;
    if screen.is_json() {
        found.iter().for_each(|what| screen.line(&json!(what)));
    } else if found.is_empty() {
        screen.say("Every counter equals what it counts.");
    } else {
        screen.table(&["what is wrong"], found.iter().map(|what| vec![field(text(what))]));
        screen.say("Tx::repair_counters, or upkeep with repairs, sets counters right.");
    }
    Ok(found.is_empty())
}

fn text(what: &Discrepancy) -> String {
    match what {
        Discrepancy::Pool { pool, counted, held } => {
            format!("pool {pool}: counts {counted} slots, and {held} are held")
        }
        Discrepancy::Limit { key, counted, held } => {
            format!("limit {key}: counts {counted}, and tasks count {held}")
        }
        Discrepancy::Lane { lane, counted, held } => {
            format!(
                "queue {}, pool {}: counts {counted} ready tasks of a kind, of {held}",
                lane.queue, lane.pool
            )
        }
        Discrepancy::LaneTasks { lane, counted, held } => {
            format!("queue {}, pool {}: counts {counted} tasks of a kind, of {held}", lane.queue, lane.pool)
        }
        Discrepancy::Task { task, problem } => format!("task number {}: {problem}", task.0),
        other => format!("{other:?}"),
    }
}
