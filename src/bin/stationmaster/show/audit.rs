//! Whether the counters equal what they count, and which queues, sensors and leases no service looks after.

use serde_json::json;
use stationmaster::TaskState;
use stationmaster::store::{Discrepancy, Store};
use stationmaster::task::TaskQuery;

use super::{Found, sensors};
use crate::screen::{Screen, field};
use crate::text::visible;
use crate::times::when;

/// How many sensors are checked for kinds that no worker serves.
const SENSORS: usize = 1_000;

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
    if !screen.is_json() {
        missing(store, screen)?;
    }
    Ok(found.is_empty())
}

/// Lists queues, sensors and leases that no service looks after. The store itself is right, so the result is not
/// affected.
fn missing(store: &dyn Store, screen: &mut Screen) -> Result<(), super::Stop> {
    let now = screen.now;
    let (queues, (pokers, _)) = store.read(|tx| Ok((tx.queues()?, tx.sensor_workers(now)?)))?;
    let (counts, next) = store.read(|tx| Ok((tx.count_tasks(1)?, tx.next_expiry()?)))?;
    for queue in &queues {
        if queue.waiting > 0 && !queue.is_served(now) {
            let (name, waiting) = (visible(&queue.name), queue.waiting);
            screen.say(&format!("Queue {name}: no one serves it, and {waiting} wait in it."));
        }
    }
    let is_sensing = |state| state == TaskState::Sensing;
    if pokers.is_empty() && counts.iter().any(|count| is_sensing(count.state) && count.tasks > 0) {
        screen.say("Sensors wait, and no worker pokes them.");
    } else {
        let sensing = TaskQuery::sensing().limit(SENSORS);
        let sensors = store.read(|tx| {
            let keys = tx.list_tasks(&sensing)?.keys();
            tx.sensors(&keys)
        })?;
        let sensors: Vec<_> = sensors.into_iter().flatten().collect();
        sensors::missing(screen, &pokers, &sensors);
    }
    if let Some(at) = next.filter(|at| *at < now) {
        screen
            .say(&format!("A lease ended at {} and its task is still held. Does upkeep run?", when(at, now)));
    }
    Ok(())
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
