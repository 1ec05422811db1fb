//! Pools.

use std::collections::HashSet;

use comfy_table::Color;
use serde_json::{Value, json};
use stationmaster::admission::Subject;
use stationmaster::id::PoolName;
use stationmaster::pool::{PoolRecord, PoolStats};
use stationmaster::store::Store;

use super::{Found, nothing};
use crate::screen::{Screen, field, maybe, number};
use crate::text::visible;

pub fn show(store: &dyn Store, screen: &mut Screen, names: &[PoolName]) -> Found {
    let (pools, stats, paused) = store.read(|tx| {
        let pools: Vec<PoolRecord> = match names {
            [] => tx.all_pools()?,
            names => tx.pools(names)?.into_iter().flatten().collect(),
        };
        let names: Vec<PoolName> = pools.iter().map(|pool| pool.spec.name.clone()).collect();
        let stats = tx.pool_stats(&names)?;
        Ok((pools, stats, tx.paused()?))
    })?;
    let paused: HashSet<Subject> = paused.into_iter().collect();
    let known: Vec<(PoolRecord, Option<PoolStats>, bool)> = pools
        .into_iter()
        .zip(stats)
        .map(|(pool, stats)| {
            let is_paused = paused.contains(&Subject::Pool(pool.spec.name.clone()));
            (pool, stats, is_paused)
        })
        .collect();
    if screen.is_json() {
        for (pool, stats, is_paused) in &known {
            let mut line = json!(pool);
            if let (Value::Object(fields), Some(stats)) = (&mut line, stats) {
                fields.extend([
                    ("open".to_owned(), json!(stats.open)),
                    ("running".to_owned(), json!(stats.running)),
                    ("queued".to_owned(), json!(stats.queued)),
                    ("scheduled".to_owned(), json!(stats.scheduled)),
                    ("sensing".to_owned(), json!(stats.sensing)),
                    ("paused".to_owned(), json!(is_paused)),
                ]);
            }
            screen.line(&line);
        }
    } else if known.is_empty() {
        return nothing(screen, "There is no such pool.");
    } else {
        let heads =
            ["pool", "slots", "open", "running", "queued", "ready", "sensing", "paused", "description"];
        let rows = known.iter().map(|(pool, stats, is_paused)| {
            let count =
                |of: fn(&PoolStats) -> i64| stats.as_ref().map_or_else(|| field(""), |it| number(of(it)));
            let is_full = pool.open().is_some_and(|open| open <= 0);
            vec![
                field(&pool.spec.name),
                number(pool.spec.slots),
                pool.open()
                    .map_or_else(|| number("unlimited"), number)
                    .tint(is_full.then_some(Color::Yellow)),
                count(|stats| stats.running),
                count(|stats| stats.queued),
                count(|stats| stats.scheduled),
                count(|stats| stats.sensing),
                maybe(is_paused.then_some("yes")).tint(Some(Color::Yellow)),
                field(&pool.spec.description),
            ]
        });
        screen.table(&heads, rows.collect::<Vec<_>>());
    }
    let missing: Vec<_> =
        names.iter().filter(|name| !known.iter().any(|(pool, ..)| pool.spec.name == **name)).collect();
    if !screen.is_json() {
        missing.iter().for_each(|name| screen.say(&format!("pool {}: does not exist.", visible(name))));
    }
    Ok(!known.is_empty() && missing.is_empty())
}
