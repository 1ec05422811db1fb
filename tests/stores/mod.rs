//! The one list of stores that behaviour is tested on: memory, SQLite with its feature, PostgreSQL with its. A
//! test is written once and runs on each of them.
#![allow(dead_code, clippy::unwrap_used)]

#[cfg(feature = "postgres")]
#[path = "../scratch/mod.rs"]
pub mod scratch;

use std::sync::Arc;

use stationmaster::Result;
use stationmaster::feed::TaskEvent;
use stationmaster::store::{MemoryStore, Store, StoreInfo, Tx, TxMode};

/// A kind of store.
pub struct Kind {
    pub name: &'static str,
    make: Box<dyn Fn() -> Box<dyn Store>>,
    /// Each call asks a server, which takes a hundred times as long.
    is_remote: bool,
}

impl Kind {
    fn new(name: &'static str, is_remote: bool, make: impl Fn() -> Box<dyn Store> + 'static) -> Self {
        Self { name, make: Box::new(make), is_remote }
    }

    /// A new store of this kind with nothing in it. Those made before it may still be used.
    pub fn make(&self) -> Made {
        Made { name: self.name, store: (self.make)() }
    }

    /// The same, to be shared.
    pub fn shared(&self) -> Arc<dyn Store> {
        Arc::new(self.make())
    }

    /// Whether a test that tries many cases tries a sample of them here.
    /// With `STATIONMASTER_CASES=all` it tries all on every store.
    pub fn is_sampled(&self) -> bool {
        self.is_remote && !std::env::var("STATIONMASTER_CASES").is_ok_and(|cases| cases == "all")
    }

    /// How many cases a test tries: all, or this many if they are sampled.
    pub fn cases(&self, all: u32, sample: u32) -> u32 {
        if self.is_sampled() { sample } else { all }
    }

    /// Of how many cases a test tries one: of one, or of this many if they are sampled.
    pub fn stride(&self, sample: usize) -> usize {
        if self.is_sampled() { sample } else { 1 }
    }
}

/// What the feed tells, once everything has its number.
pub fn told(store: &Arc<dyn Store>) -> Vec<TaskEvent> {
    use stationmaster::testing::RawStoreExt;
    while store.write_raw(|tx| Ok::<_, stationmaster::Error>(tx.number_changes(10_000)?)).unwrap() > 0 {}
    store.read(|tx| tx.feed(0, usize::MAX)).unwrap()
}

/// The kind that is always there.
pub fn memory() -> Kind {
    Kind::new("memory", false, || Box::new(MemoryStore::new()))
}

/// Every kind, or the one that `STATIONMASTER_STORES` names.
pub fn kinds() -> Vec<Kind> {
    list(false)
}

/// Every kind, so that a transaction sees the numbers of the sensors and events that it changes. PostgreSQL gives
/// them right before the commit otherwise.
pub fn kinds_that_number_at_once() -> Vec<Kind> {
    list(true)
}

#[cfg_attr(not(feature = "postgres"), allow(unused_variables))]
fn list(numbers_at_once: bool) -> Vec<Kind> {
    let mut kinds = vec![
        memory(),
        #[cfg(feature = "sqlite")]
        Kind::new("sqlite", false, || {
            Box::new(stationmaster::store::SqliteStore::in_memory(Default::default()).unwrap())
        }),
        #[cfg(feature = "postgres")]
        Kind::new("postgres", true, {
            let stores = scratch::Stores::new(move |scratch| {
                let store = scratch.open(|options| options);
                if numbers_at_once { store.numbering() } else { store }
            });
            move || Box::new(stores.lend())
        }),
    ];
    if let Ok(name) = std::env::var("STATIONMASTER_STORES") {
        kinds.retain(|kind| kind.name == name);
        assert!(!kinds.is_empty(), "STATIONMASTER_STORES names no store of this build: {name}");
    }
    kinds
}

/// A new store of every kind, each made when its turn has come.
pub fn stores() -> impl Iterator<Item = Arc<dyn Store>> {
    kinds().into_iter().map(|kind| kind.shared())
}

/// A store that says which it is when a test on it fails.
#[derive(Debug)]
pub struct Made {
    name: &'static str,
    store: Box<dyn Store>,
}

impl Store for Made {
    fn info(&self) -> StoreInfo {
        self.store.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.store.transact(mode, body)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was the store {}", self.name);
        }
    }
}
