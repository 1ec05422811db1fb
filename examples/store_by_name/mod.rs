//! Creates an empty store, given the name of its kind.

#[cfg(feature = "postgres")]
#[path = "../../tests/scratch/mod.rs"]
mod scratch;

use std::sync::Arc;

use stationmaster::store::{MemoryStore, Store};

/// Creates an empty store.
pub type Make = Box<dyn Fn() -> Result<Arc<dyn Store>, String>>;

/// Returns a function that creates stores of this kind: `memory`, `sqlite` or `postgres`.
///
/// On PostgreSQL the stores share a schema in the database that `STATIONMASTER_TEST_POSTGRES` names, by default
/// `postgres://postgres@127.0.0.1:5432/test`. Each store begins empty, and the schema is dropped at the end.
pub fn make(kind: &str) -> Option<Make> {
    match kind {
        "memory" => Some(Box::new(|| Ok(Arc::new(MemoryStore::new())))),
        "sqlite" => Some(Box::new(sqlite)),
        "postgres" => Some(postgres()),
        _ => None,
    }
}

#[cfg(feature = "sqlite")]
fn sqlite() -> Result<Arc<dyn Store>, String> {
    use stationmaster::store::SqliteStore;
    let store = SqliteStore::in_memory(Default::default()).map_err(|error| error.to_string())?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "sqlite"))]
fn sqlite() -> Result<Arc<dyn Store>, String> {
    Err("this was built without the feature sqlite".to_owned())
}

#[cfg(feature = "postgres")]
fn postgres() -> Make {
    let scratch = scratch::Scratch::new();
    drop(scratch.open(|options| options));
    Box::new(move || {
        scratch.empty();
        Ok(Arc::new(scratch.open(|options| options)))
    })
}

#[cfg(not(feature = "postgres"))]
fn postgres() -> Make {
    Box::new(|| Err("this was built without the feature postgres".to_owned()))
}
