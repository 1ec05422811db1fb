//! Processes that work on a PostgreSQL schema are killed at random moments, and so is a server under load.

use std::time::{Duration, Instant};

use crate::acknowledged::{Acknowledged, Task};
use crate::place::postgres::{Database, Level, Owner};
use crate::place::{Commits, Place};
use crate::postgres_rules::{RULES, TASKS};
use crate::postgres_server::{OwnServer, Plain};
use crate::respawn::Respawned;
use crate::scratch::{Scratch, url};
use crate::workload::LostConnection;
use crate::{Orders, kill_at_random_moments, spawn};

/// A statement that was written with the schema `sm`.
fn on(schema: &str, sql: &str) -> String {
    sql.replace("sm.", &format!("{schema}."))
}

fn check(plain: &Plain, schema: &str, acknowledged: &Acknowledged) {
    if plain.number(&format!(
        "SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}' AND tablename = 'task'"
    )) == 0
    {
        return;
    }
    for (what, sql) in RULES {
        assert_eq!(plain.number(&on(schema, sql)), 0, "{what}");
    }
    let tasks = plain.ask(&on(schema, TASKS)).into_iter().map(|row| {
        let number = |column: usize| row[column].as_deref().unwrap().parse::<i64>().unwrap();
        Task {
            id: number(0),
            epoch: number(1),
            state: number(2),
            first_started: row[3].as_deref() == Some("t"),
        }
    });
    acknowledged.check(&tasks.collect::<Vec<_>>());
}

fn audit(place: &Place) {
    let found = place.open(Commits::Durable).read(|tx| tx.audit()).unwrap();
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn clients_survive_kills_at_random_moments() {
    let scratch = Scratch::new();
    let (plain, schema) = (Plain::connect(&url()), scratch.0.to_string());
    let place = Place::Postgres(Database {
        url: url(),
        schema: schema.clone(),
        level: Level::ReadCommitted,
        owner: Owner::Store,
    });
    let check = |acknowledged: &Acknowledged| check(&plain, &schema, acknowledged);
    kill_at_random_moments(&place, crate::kills(40), Duration::from_millis(250), &check);
    audit(&place);
}

/// What clients said since they were asked last, and whether each of them had something done.
fn hear(clients: &[Respawned], acknowledged: &mut Acknowledged) -> Vec<bool> {
    let mut hear_one = |client: &Respawned| {
        let lines = client.said();
        lines.iter().for_each(|line| acknowledged.take(line));
        lines.iter().any(|line| line.starts_with("admitted"))
    };
    clients.iter().map(&mut hear_one).collect()
}

#[test]
fn a_server_that_crashes_under_load_loses_nothing_and_clients_go_on() {
    const CLIENTS: usize = 3;
    let crashes: u32 = std::env::var("STATIONMASTER_SERVER_CRASHES").map_or(2, |text| text.parse().unwrap());
    let Some(mut server) = OwnServer::start() else { return };
    let place = Place::Postgres(Database {
        url: server.url(),
        schema: "crash".into(),
        level: Level::ReadCommitted,
        owner: Owner::Store,
    });
    let spawn_one = |n: usize| {
        let (name, commits, lost) = (format!("c{n}"), Commits::Durable, LostConnection::IsBorne);
        spawn(&Orders { name, place: place.clone(), commits, lost })
    };
    let mut clients: Vec<Respawned> = (0..CLIENTS).map(spawn_one).collect();
    let mut acknowledged = Acknowledged::default();
    let mut longest = Duration::ZERO;
    for crash in 0..=crashes {
        let began = Instant::now();
        let mut waited_for = [true; CLIENTS];
        while waited_for.contains(&true) {
            std::thread::sleep(Duration::from_millis(20));
            let heard = hear(&clients, &mut acknowledged);
            waited_for.iter_mut().zip(heard).for_each(|(waited, heard)| *waited &= !heard);
            clients.iter_mut().for_each(Respawned::must_live);
            assert!(began.elapsed() < Duration::from_secs(60), "clients do not go on after crash {crash}");
        }
        longest = longest.max(began.elapsed());
        std::thread::sleep(Duration::from_millis(500 + u64::from(crash % 3) * 250));
        if crash < crashes {
            server.crash();
        }
        hear(&clients, &mut acknowledged);
        // What was heard before is surely acknowledged; the clients work on meanwhile.
        check(&Plain::connect(&server.url()), "crash", &acknowledged);
    }
    for client in clients {
        client.kill().iter().for_each(|line| acknowledged.take(line));
    }
    check(&Plain::connect(&server.url()), "crash", &acknowledged);
    audit(&place);
    println!(
        "{crashes} server crashes under {CLIENTS} clients: {} acknowledged operations kept, errors borne {:?}, all clients \
         worked again within {longest:.1?} of a start, 0 violations",
        acknowledged.operations, acknowledged.bore
    );
}
