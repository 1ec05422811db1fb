//! Queues, and who serves them.

use std::collections::HashSet;

use comfy_table::Color;
use serde_json::{Value, json};
use stationmaster::admission::{QueueRecord, Subject};
use stationmaster::id::QueueName;
use stationmaster::store::Store;
use stationmaster::store::contract::Serving;

use super::{Found, nothing};
use crate::screen::{Screen, field, maybe, number};
use crate::times::when;

pub fn show(store: &dyn Store, screen: &mut Screen, names: &[QueueName]) -> Found {
    let (queues, all, paused) = store.read(|tx| Ok((tx.queues()?, tx.serving()?, tx.paused()?)))?;
    let paused: HashSet<Subject> = paused.into_iter().collect();
    let wanted: Vec<&QueueRecord> =
        queues.iter().filter(|queue| names.is_empty() || names.contains(&queue.name)).collect();
    let now = screen.now;
    // A queue is not shown if no holder has announced it and nothing waits in it.
    let servers = |name: &QueueName| {
        let serves = |serving: &&Serving| serving.includes(name) && now < serving.until();
        all.iter().filter(serves).collect::<Vec<&Serving>>()
    };
    let is_paused = |name: &QueueName| paused.contains(&Subject::Queue(name.clone()));
    if screen.is_json() {
        for queue in &wanted {
            let mut line = json!(queue);
            if let Value::Object(fields) = &mut line {
                let holders: Vec<_> = servers(&queue.name).iter().map(|serving| &serving.holder).collect();
                fields.insert("served_by".into(), json!(holders));
                fields.insert("paused".into(), json!(is_paused(&queue.name)));
            }
            screen.line(&line);
        }
    } else if wanted.is_empty() {
        return nothing(
            screen,
            "There is no such queue: nothing waits or runs in it, and no one serves it by name.",
        );
    } else {
        let rows = wanted.iter().map(|queue| {
            let served = servers(&queue.name);
            let holders: Vec<&str> = served.iter().map(|serving| serving.holder.as_str()).collect();
            let by = match (holders.is_empty(), queue.served_until) {
                (false, Some(until)) => format!("{}, until {}", holders.join(", "), when(until, now)),
                (_, Some(until)) => format!("no one since {}", when(until, now)),
                (_, None) => "no one".into(),
            };
            vec![
                field(&queue.name),
                number(queue.ready),
                number(queue.waiting),
                number(queue.leased),
                number(queue.sensing),
                maybe(is_paused(&queue.name).then_some("yes")).tint(Some(Color::Yellow)),
                field(by).tint(holders.is_empty().then_some(Color::Red)),
            ]
        });
        let heads = ["queue", "ready", "waiting", "leased", "sensing", "paused", "served by"];
        screen.table(&heads, rows.collect::<Vec<_>>());
    }
    Ok(!wanted.is_empty() && names.iter().all(|name| wanted.iter().any(|queue| queue.name == *name)))
}
