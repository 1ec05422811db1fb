//! Processes and servers are killed at random moments. After each kill what is stored is checked with plain SQL, and against
//! what was acknowledged.
//!
//! `STATIONMASTER_KILLS` sets how many processes are killed (200 without it on SQLite, 40 on PostgreSQL),
//! `STATIONMASTER_SERVER_CRASHES` how often the PostgreSQL server is (2 without it).
#![cfg(any(feature = "sqlite", feature = "postgres"))]

mod acknowledged;
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../place/mod.rs"]
mod place;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_rules;
#[cfg(feature = "postgres")]
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../postgres_server/mod.rs"]
mod postgres_server;
#[allow(dead_code, reason = "each test binary uses its own part")]
#[path = "../respawn/mod.rs"]
mod respawn;
mod rules;
#[cfg(feature = "postgres")]
#[path = "../scratch/mod.rs"]
mod scratch;
#[cfg(feature = "sqlite")]
mod sqlite;
mod workload;

use std::time::Duration;

use acknowledged::{Acknowledged, Reached};
use place::{Commits, Place};
use respawn::Respawned;
use serde::{Deserialize, Serialize};
use workload::LostConnection;

#[derive(Serialize, Deserialize)]
struct Orders {
    name: String,
    place: Place,
    commits: Commits,
    lost: LostConnection,
}

/// What a child does.
#[test]
fn child() {
    let Some(argument) = respawn::argument() else { return };
    let Orders { name, place, commits, lost } = serde_json::from_str(&argument).unwrap();
    workload::work(place.open(commits), &name, lost);
}

fn spawn(orders: &Orders) -> Respawned {
    Respawned::new("child", &serde_json::to_string(orders).unwrap())
}

fn kills(default: u32) -> u32 {
    std::env::var("STATIONMASTER_KILLS").map_or(default, |text| text.parse().unwrap())
}

/// Kills one process after another that works on the place. `check` looks at it after each.
fn kill_at_random_moments(place: &Place, kills: u32, pause: Duration, check: &dyn Fn(&Acknowledged)) {
    let mut acknowledged = Acknowledged::default();
    let mut seed = u64::from(std::process::id());
    let has_registered = |acknowledged: &Acknowledged| {
        acknowledged.reached.values().any(|(_, reached)| *reached == Reached::Registered)
    };
    let mut generation = 0;
    // On a slow machine they live longer, until one of them came that far.
    while generation < kills || generation < kills * 5 && !has_registered(&acknowledged) {
        // Every tenth life waits for the medium, from the fifth on.
        let commits = if generation % 10 == 5 { Commits::Durable } else { Commits::Quick };
        let name = generation.to_string();
        let child = spawn(&Orders { name, place: place.clone(), commits, lost: LostConnection::Ends });
        // Every seventh kill may come before the store is open, that is within the migration in the first round.
        if generation % 7 != 0 {
            assert_eq!(child.line().as_deref(), Some("ready"), "generation {generation}");
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let pause = pause * (1 + generation / kills);
        std::thread::sleep(pause / 10 + pause * ((seed >> 33) % 1_000) as u32 / 1_000);
        for line in child.kill() {
            acknowledged.take(&line);
        }
        check(&acknowledged);
        generation += 1;
    }
    println!("{generation} kills, {} acknowledged operations, 0 violations", acknowledged.operations);
    assert!(acknowledged.operations > kills as usize, "the children hardly worked");
    assert!(has_registered(&acknowledged));
}
