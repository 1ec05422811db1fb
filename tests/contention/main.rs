//! Several processes work on one store at once; what each did is checked afterwards.
//!
//! `STATIONMASTER_CONTENTION_SECONDS` sets how long each test runs (10 without it on SQLite, 4 on PostgreSQL).
#![cfg(all(feature = "testing", any(feature = "sqlite", feature = "postgres")))]

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

/// What a child does.
#[test]
fn child() {
    if let Some(argument) = respawn::argument() {
        worker::work(serde_json::from_str(&argument).unwrap());
    }
}
