//! Several processes work on one store at once; what each did is checked afterwards.
//!
//! `STATIONMASTER_CONTENTION_SECONDS` sets how long each test runs (10 without it on SQLite, 4 on PostgreSQL).
//! With it, the test of open hosts runs that long at each isolation level.
#![cfg(all(feature = "testing", any(feature = "sqlite", feature = "postgres")))]

#[cfg(feature = "postgres")]
mod count_and_skip;
#[cfg(all(unix, feature = "postgres"))]
mod exact;
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../place/mod.rs"]
mod place;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../postgres_server/mod.rs"]
mod postgres_server;
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../respawn/mod.rs"]
mod respawn;
mod run;
#[cfg(feature = "postgres")]
#[path = "../scratch/mod.rs"]
mod scratch;
#[cfg(feature = "sqlite")]
mod sqlite;
mod worker;

use serde::{Deserialize, Serialize};

/// What a child does.
#[derive(Serialize, Deserialize)]
enum Errand {
    Work(worker::Orders),
    #[cfg(feature = "postgres")]
    CountAndSkip(count_and_skip::Orders),
    #[cfg(all(unix, feature = "postgres"))]
    Host(exact::host::Orders),
}

#[test]
fn child() {
    let Some(argument) = respawn::argument() else { return };
    match serde_json::from_str(&argument).unwrap() {
        Errand::Work(orders) => worker::work(orders),
        #[cfg(feature = "postgres")]
        Errand::CountAndSkip(orders) => count_and_skip::work(orders),
        #[cfg(all(unix, feature = "postgres"))]
        Errand::Host(orders) => exact::host::work(orders),
    }
}
