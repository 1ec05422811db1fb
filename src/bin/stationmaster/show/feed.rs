//! The events of the feed, and its consumers.

use serde_json::json;
use stationmaster::feed::{Consumer, TaskEvent};
use stationmaster::store::Store;

use super::{Found, nothing, output};
use crate::screen::{Field, Screen, field, key, maybe, number, state};

/// Shows events after this one, and advances it past the last one that was shown. So the next round continues
/// there.
pub fn list(store: &dyn Store, screen: &mut Screen, after: &mut u64, limit: usize) -> Found {
    let events = store.read(|tx| tx.feed(*after, limit))?;
    if screen.is_json() {
        for event in &events {
            let line = screen.record(event).map_err(output)?;
            screen.line(&line);
        }
    } else if events.is_empty() {
        return nothing(screen, &format!("The feed has nothing after event {after}."));
    } else {
        let mut heads = vec!["seq", "task", "at", "became", "attempt", "message"];
        let row = |event: &TaskEvent| {
            let (at, message) = (screen.when(event.at), maybe(event.message.as_ref()));
            vec![number(event.seq), key(&event.task), at, state(event.state), number(event.attempt), message]
        };
        let mut rows: Vec<Vec<Field>> = events.iter().map(row).collect();
        if screen.shows_payloads() {
            heads.push("value");
            rows.iter_mut().zip(&events).for_each(|(row, event)| row.push(maybe(event.value.as_ref())));
        }
        screen.table(&heads, rows);
    }
    if let Some(last) = events.last() {
        *after = last.seq;
        if !screen.is_json() && events.len() == limit {
            screen.say(&format!("There may be more: --after {}", last.seq));
        }
    }
    Ok(!events.is_empty())
}

pub fn consumers(store: &dyn Store, screen: &mut Screen) -> Found {
    let consumers = store.read(|tx| tx.consumers())?;
    if screen.is_json() {
        consumers.iter().for_each(|consumer| screen.line(&json!(consumer)));
    } else if consumers.is_empty() {
        return nothing(screen, "The feed has no consumers.");
    } else {
        let row = |consumer: &Consumer| {
            let (seen, dropped) = (screen.when(consumer.seen_at), maybe(consumer.dropped.then_some("yes")));
            vec![field(&consumer.name), number(consumer.cursor), seen, number(consumer.lost), dropped]
        };
        let rows: Vec<_> = consumers.iter().map(row).collect();
        screen.table(&["consumer", "accepted", "seen", "lost", "dropped"], rows);
    }
    Ok(!consumers.is_empty())
}
