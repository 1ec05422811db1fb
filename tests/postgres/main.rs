//! What the PostgreSQL store promises beyond the conformance suite.
#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod ahead;
mod alone;
mod bent;
mod beside;
mod bounded;
mod bounds;
mod connections;
mod deferred;
mod exact;
mod failover;
mod folding;
mod frozen;
mod grouped;
mod holder;
mod host;
mod inbox;
mod interrupted;
mod leftovers;
mod limits;
mod listening;
mod one_or_many;
mod passing;
mod pooler;
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../postgres_server/mod.rs"]
mod postgres_server;
mod round_trips;
mod runtimes;
#[path = "../scratch/mod.rs"]
mod scratch;
mod silent;
mod stepped;
mod surveys;
mod tables;
mod ticks_ahead;
mod turns;

use stationmaster::error::StoreErrorKind;
use stationmaster::id::PoolName;
use stationmaster::pool::{PoolSpec, Slots};
use stationmaster::store::Store;
use stationmaster::testing::raw;
use stationmaster::{Error, NewTask, Result, TaskKey};

fn kind(error: &Error) -> StoreErrorKind {
    match error {
        Error::Store(error) => error.kind(),
        other => panic!("{other}"),
    }
}

fn pool(name: &str, slots: u32) -> PoolSpec {
    PoolSpec::new(name, Slots::Limited(slots)).unwrap()
}

fn put(store: &dyn Store, name: &str) -> Result<()> {
    store.write(|tx| Ok(raw(tx).put_pools(&[pool(name, 1)])?))
}

/// How many pools there are besides the default one.
fn pools(store: &dyn Store) -> usize {
    store.read(|tx| tx.all_pools()).unwrap().len() - 1
}

fn pool_name(name: &str) -> PoolName {
    PoolName::new(name).unwrap()
}

fn task(name: &str) -> NewTask {
    NewTask::new(TaskKey::new("n", "w", "r", name).unwrap())
}
