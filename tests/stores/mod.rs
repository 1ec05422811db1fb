//! A new store of each kind. The test declares `mod scratch` for PostgreSQL.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use stationmaster::store::{MemoryStore, Store};

pub fn stores() -> Vec<Arc<dyn Store>> {
    vec![
        Arc::new(MemoryStore::new()),
        #[cfg(feature = "sqlite")]
        Arc::new(stationmaster::store::SqliteStore::in_memory(Default::default()).unwrap()),
        #[cfg(feature = "postgres")]
        Arc::new(crate::scratch::ScratchStore::open(|options| options)),
    ]
}
