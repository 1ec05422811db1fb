//! Workers under fire: their processes are killed and frozen, their handlers panic, hang, fail and ignore
//! that they are asked to stop, their connections are terminated, their database is down for a third of the
//! time. Every effect must take place exactly once, and every task must end.
//!
//! `STATIONMASTER_FIRE_SECONDS` sets how long there is fire (9 without it).
#![cfg(all(unix, feature = "testing", any(feature = "sqlite", feature = "postgres")))]

mod effects;
mod fire;
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../place/mod.rs"]
mod place;
#[cfg(feature = "postgres")]
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../postgres_server/mod.rs"]
mod postgres_server;
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../respawn/mod.rs"]
mod respawn;
mod worker;

use std::path::PathBuf;

use effects::Effects;
use fire::Database;
use place::Place;
use serde::{Deserialize, Serialize};
use worker::Kind;

/// What a process receives.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Orders {
    effects: Effects,
    holder: String,
    kind: Kind,
    /// It stops once this file exists.
    stop: PathBuf,
}

#[test]
fn child() {
    let Some(argument) = respawn::argument() else { return };
    worker::work(serde_json::from_str(&argument).unwrap());
}

#[cfg(feature = "sqlite")]
fn on_a_file(kind: Kind) {
    let folder = tempfile::tempdir().unwrap();
    let effects = Effects { place: Place::Sqlite(folder.path().join("fire.db")) };
    fire::survive(kind, &Database::File, &effects);
}

#[cfg(feature = "sqlite")]
#[test]
fn threads_on_sqlite() {
    on_a_file(Kind::Threads);
}

#[cfg(all(feature = "sqlite", feature = "tokio"))]
#[test]
fn futures_on_sqlite() {
    on_a_file(Kind::Futures);
}

#[cfg(feature = "postgres")]
fn on_a_server(kind: Kind) {
    use place::postgres::{Database as At, Level, Owner};
    let Some(server) = postgres_server::OwnServer::start() else { return };
    let (level, owner) = (Level::ReadCommitted, Owner::Store);
    let place = Place::Postgres(At { url: server.url(), schema: "fire".into(), level, owner });
    fire::survive(kind, &Database::Server(server), &Effects { place });
}

#[cfg(feature = "postgres")]
#[test]
fn threads_on_postgres() {
    on_a_server(Kind::Threads);
}

#[cfg(all(feature = "postgres", feature = "tokio"))]
#[test]
fn futures_on_postgres() {
    on_a_server(Kind::Futures);
}
