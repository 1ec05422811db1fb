//! Shares: what each holds of its pools, and what waits.

use std::cmp::Reverse;

use serde_json::{Value, json};
use stationmaster::id::LimitKey;
use stationmaster::store::Store;
use stationmaster::store::contract::ShareUse;

use super::{Found, nothing};
use crate::screen::{Screen, field, maybe, number};

pub fn show(store: &dyn Store, screen: &mut Screen, keys: &[LimitKey], limit: usize) -> Found {
    let shares = store.read(|tx| tx.shares())?;
    let mut wanted: Vec<&ShareUse> =
        shares.iter().filter(|used| keys.is_empty() || keys.contains(&used.share)).collect();
    // The shares that hold the most come first, and among equals those with the most waiting tasks.
    wanted.sort_by_key(|used| Reverse((used.held, used.waiting)));
    let all = wanted.len();
    wanted.truncate(limit);
    if wanted.is_empty() {
        return nothing(screen, "No task of such a share is ready or leased.");
    }
    if screen.is_json() {
        for used in wanted {
            let mut line = json!(used);
            if let Value::Object(fields) = &mut line {
                fields.insert("part".into(), json!(used.part(&shares)));
            }
            screen.line(&line);
        }
        return Ok(true);
    }
    let rows = wanted.iter().map(|used| {
        vec![
            field(&used.share),
            field(&used.pool),
            number(used.held),
            maybe(used.part(&shares).map(|part| format!("{part:.1}"))),
            number(used.weight),
            number(used.waiting),
        ]
    });
    let rows: Vec<_> = rows.collect();
    screen.table(&["share", "pool", "held", "part", "weight", "ready"], rows);
    if all > limit {
        screen.say(&format!("There are {} more: add --limit {all}.", all - limit));
    }
    Ok(true)
}
