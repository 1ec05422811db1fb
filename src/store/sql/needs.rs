//! The needs of a lane's tasks besides slots of their own pool, as one text.
//!
//! It is a JSON array: the limit keys in byte order, then the other pools in byte order. A key is a string, or if its
//! tasks count other than 1 against it, an array of the key and that number. The share's key is an array of the key,
//! the number and the priority. A pool is an object.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::admission::LaneKey;
use crate::id::{LimitKey, PoolName};

#[derive(Serialize)]
#[serde(untagged)]
enum Need<'a> {
    Key(&'a LimitKey),
    Share(&'a LimitKey, u32, i32),
    Counted(&'a LimitKey, u32),
    Pool { pool: &'a PoolName, slots: u32 },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Key(LimitKey),
    Share(LimitKey, u32, i32),
    Counted(LimitKey, u32),
    Pool { pool: PoolName, slots: u32 },
}

/// Returns the text of these needs. Equal needs have equal texts.
pub(in crate::store) fn to_text(lane: &LaneKey) -> serde_json::Result<String> {
    if lane.counts.is_empty() && lane.also.is_empty() && lane.share.is_none() {
        return serde_json::to_string(&lane.limits);
    }
    let key = |(key, count)| match count {
        _ if lane.share.as_ref() == Some(key) => Need::Share(key, count, lane.priority),
        1 => Need::Key(key),
        _ => Need::Counted(key, count),
    };
    let pools = lane.also.iter().map(|(pool, slots)| Need::Pool { pool, slots: *slots });
    serde_json::to_string(&lane.counted().map(key).chain(pools).collect::<Vec<_>>())
}

/// Adds the needs in a text to a lane.
pub(in crate::store) fn from_text(mut lane: LaneKey, text: &str) -> serde_json::Result<LaneKey> {
    // Most lanes have only names, and a tick may read many lanes.
    if !text.get(1..).is_some_and(|text| text.contains(['[', '{'])) {
        lane.limits = serde_json::from_str(text)?;
        return Ok(lane);
    }
    let (mut counts, mut also) = (BTreeMap::new(), BTreeMap::new());
    for need in serde_json::from_str::<Vec<Stored>>(text)? {
        match need {
            Stored::Key(key) => lane.limits.push(key),
            Stored::Share(key, count, priority) => {
                lane.limits.push(key.clone());
                counts.insert(key.clone(), count);
                (lane.share, lane.priority) = (Some(key), priority);
            }
            Stored::Counted(key, count) => {
                lane.limits.push(key.clone());
                counts.insert(key, count);
            }
            Stored::Pool { pool, slots } => {
                also.insert(pool, slots);
            }
        }
    }
    Ok(lane.counts(counts).also(also))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(keys: &[&str]) -> LaneKey {
        let keys = keys.iter().map(|key| LimitKey::new(*key).unwrap()).collect();
        LaneKey::new(PoolName::default_pool(), 1, keys)
    }

    #[test]
    fn needs_come_back_from_their_text() {
        let (pool, key) = (PoolName::new("{a}").unwrap(), LimitKey::new("b").unwrap());
        let plain = lane(&["b", "[a"]);
        let counted = plain.clone().counts([(key, 3)]);
        let both = counted.clone().also([(pool, 2)]);
        let shared = both.clone().share(LimitKey::new("b").unwrap(), -7);
        let alone = lane(&[]).share(LimitKey::new("a").unwrap(), 0);
        let texts = [
            r#"["[a","b"]"#,
            r#"["[a",["b",3]]"#,
            r#"["[a",["b",3],{"pool":"{a}","slots":2}]"#,
            r#"["[a",["b",3,-7],{"pool":"{a}","slots":2}]"#,
            r#"[["a",1,0]]"#,
        ];
        for (needs, text) in [plain, counted, both, shared, alone].into_iter().zip(texts) {
            assert_eq!(to_text(&needs).unwrap(), text);
            assert_eq!(from_text(lane(&[]), text).unwrap(), needs);
        }
    }
}
