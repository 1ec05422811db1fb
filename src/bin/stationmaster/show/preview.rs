//! What the next tick would do.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use stationmaster::Timestamp;
use stationmaster::admission::Refusal;
use stationmaster::id::QueueName;
use stationmaster::ops::AdmitRequest;
use stationmaster::store::Store;

use super::tasks::needs;
use super::{Found, output};
use crate::screen::{Screen, field, key, number};
use crate::text::visible;
use crate::times::when;

pub fn show(
    store: &dyn Store,
    screen: &mut Screen,
    budget: usize,
    serves: &[QueueName],
    at: Timestamp,
) -> Found {
    let lease = Duration::from_secs(60);
    let mut order = AdmitRequest::new("inspector".try_into()?, "preview".try_into()?, budget, lease);
    if !serves.is_empty() {
        order = order.serves(serves.iter().cloned());
    }
    let (preview, queues) = store.read(|tx| Ok((tx.preview(at, &order)?, tx.queues()?)))?;
    let found = !preview.granted.is_empty() || !preview.refusals.is_empty();
    if screen.is_json() {
        let granted: Vec<_> = preview
            .granted
            .iter()
            .map(|task| screen.record(task))
            .collect::<Result<_, _>>()
            .map_err(output)?;
        screen.line(&json!({
            "at": at,
            "granted": granted,
            "refusals": preview.refusals,
            "more_lanes": preview.more_lanes,
            "promoted": preview.promoted,
            "next_due": preview.next_due,
        }));
        return Ok(found);
    }
    if preview.granted.is_empty() {
        screen.say("It would admit nothing.");
    } else {
        screen.say("It would admit:");
        let rows = preview.granted.iter().map(|task| vec![key(&task.key), needs(&task.lane)]);
        screen.table(&["task", "needs"], rows);
        let used: BTreeSet<&QueueName> = preview.granted.iter().map(|task| &task.lane.queue).collect();
        for queue in queues.iter().filter(|queue| used.contains(&queue.name) && !queue.is_served(at)) {
            screen.say(&format!(
                "Queue {}: no one serves it, so nothing of it is admitted.",
                visible(&queue.name)
            ));
        }
    }
    if !preview.refusals.is_empty() {
        screen.say("\nIt would leave:");
        let row =
            |refusal: &Refusal| vec![number(refusal.tasks), field(&refusal.reason), needs(&refusal.lane)];
        screen.table(&["tasks", "why", "needs"], preview.refusals.iter().map(row));
    }
    if preview.more_lanes {
        screen.say("Tasks with other needs wait behind these.");
    }
    if let Some(due) = preview.next_due {
        screen.say(&format!("The next task is due {}.", when(due, screen.now)));
    }
    Ok(found)
}
