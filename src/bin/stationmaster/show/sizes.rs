//! What the store takes on disk.

use serde_json::json;
use stationmaster::store::Store;

use super::{Found, nothing};
use crate::screen::{Screen, field, number};

pub fn show(store: &dyn Store, screen: &mut Screen) -> Found {
    let sizes = store.read(|tx| tx.sizes())?;
    if sizes.is_empty() {
        return nothing(screen, "The store keeps nothing on disk.");
    }
    if screen.is_json() {
        sizes.iter().for_each(|(part, bytes)| screen.line(&json!({ "part": part, "bytes": bytes })));
    } else {
        let rows: Vec<_> = sizes.iter().map(|(part, bytes)| vec![field(part), number(bytes)]).collect();
        screen.table(&["part", "bytes"], rows);
    }
    Ok(true)
}
