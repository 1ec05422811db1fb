//! Limits and families.

use std::collections::HashSet;

use comfy_table::Color;
use serde_json::{Value, json};
use stationmaster::Timestamp;
use stationmaster::admission::Subject;
use stationmaster::admission::limits::{LimitRecord, LimitSpec, Rate};
use stationmaster::id::LimitKey;
use stationmaster::store::Store;

use super::{Found, nothing};
use crate::screen::{Screen, field, key, maybe, number};
use crate::text::visible;
use crate::times::{short, when};

pub fn show(store: &dyn Store, screen: &mut Screen, keys: &[LimitKey]) -> Found {
    let (limits, families, paused) = store.read(|tx| {
        let (limits, families) = match keys {
            [] => (tx.all_limits()?, tx.families()?),
            keys => (tx.limits(keys)?.into_iter().flatten().collect(), Vec::new()),
        };
        Ok((limits, families, tx.paused()?))
    })?;
    let now = screen.now;
    let paused: HashSet<Subject> = paused.into_iter().collect();
    let is_paused = |key: &LimitKey| paused.contains(&Subject::Key(key.clone()));
    let family_is_paused = |prefix: &LimitKey| paused.contains(&Subject::Family(prefix.clone()));
    let found = limits.len() + families.len();
    if screen.is_json() {
        let with = |mut line: Value, is_paused: bool| {
            if let Value::Object(fields) = &mut line {
                fields.insert("paused".into(), json!(is_paused));
            }
            line
        };
        limits.iter().for_each(|limit| screen.line(&with(json!(limit), is_paused(&limit.key))));
        families.iter().for_each(|family| screen.line(&with(json!(family), family_is_paused(&family.key))));
    } else if found == 0 {
        return nothing(screen, "No limit is defined, or no task carries such a key.");
    } else {
        let yes = |is_paused: bool| maybe(is_paused.then_some("yes")).tint(Some(Color::Yellow));
        let limit = |limit: &LimitRecord| {
            let is_full = limit.open().is_some_and(|open| open <= 0);
            vec![
                key(&limit.key),
                number(limit.used).tint(is_full.then_some(Color::Yellow)),
                limit.max.map_or_else(|| field(""), number),
                maybe(limit.rate.as_ref().map(rate)),
                maybe(limit.rate.map(|_| token(limit, now))),
                yes(is_paused(&limit.key)),
            ]
        };
        let family = |family: &LimitSpec| {
            vec![
                field(format!("{}*", family.key)),
                field(""),
                family.max.map_or_else(|| field(""), number),
                maybe(family.rate.as_ref().map(rate)),
                field(""),
                yes(family_is_paused(&family.key)),
            ]
        };
        let rows: Vec<_> = limits.iter().map(limit).chain(families.iter().map(family)).collect();
        screen.table(&["limit", "used", "max", "rate", "token", "paused"], rows);
    }
    let missing: Vec<_> = keys.iter().filter(|key| !limits.iter().any(|limit| limit.key == **key)).collect();
    if !screen.is_json() {
        missing.iter().for_each(|key| screen.say(&format!("limit {}: no one mentioned it.", visible(key))));
    }
    Ok(found > 0 && missing.is_empty())
}

/// Returns when a task with the key may start, as far as its rate allows.
fn token(limit: &LimitRecord, now: Timestamp) -> String {
    limit.token_at.filter(|at| *at > now).map_or_else(|| "now".into(), |at| when(at, now))
}

fn rate(rate: &Rate) -> String {
    format!("{} in {}, {} at once", rate.starts(), short(rate.period()), rate.most_at_once())
}
