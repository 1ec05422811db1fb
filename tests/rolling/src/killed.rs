//! The migrator is killed at each of its statements, and the next one goes on.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use stationmaster::store::sqlite::rusqlite::Connection;
use stationmaster::store::sqlite::rusqlite::trace::{TraceEvent, TraceEventCodes};

use crate::child::{Child, say};
use crate::place::Place;
use crate::relay::Relay;
use crate::{new, old, refused_text};

/// Brings a schema to its end, from each step that may be there before, and kills it at each statement.
pub fn everywhere(kind: &str) {
    let (mut kills, began) = (0, Instant::now());
    for from in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        let template = folder.path().join("template.db");
        for statement in 1.. {
            let place = match kind {
                "sqlite" => Place::of_file(&folder.path().join(format!("{statement}.db"))),
                _ => Place::of_server(),
            };
            match &place {
                Place::Sqlite(path) if from > 0 => {
                    if statement == 1 {
                        begin(&Place::of_file(&template), from);
                    }
                    std::fs::copy(&template, path).unwrap();
                }
                place => begin(place, from),
            }
            let was_killed = match &place {
                Place::Sqlite(path) => kill_at_statement(path, statement),
                Place::Postgres { url, schema } => kill_at_request(url, schema, statement),
            };
            check(&place, from, was_killed);
            place.remove();
            if !was_killed {
                break;
            }
            kills += 1;
        }
    }
    let took = began.elapsed().as_secs_f64();
    println!("{kind}: the migrator was killed {kills} times in {took:.1} s, and the next one went on");
    assert!(kills > 20, "it was killed {kills} times only");
}

/// Makes the schema at this version, with something in it.
fn begin(place: &Place, version: usize) {
    if version > 0 {
        let store = old::open(place).unwrap();
        old::describe(&*store, "kept", "by the first").unwrap();
    }
    if version > 1 {
        new::upgrade(place, false).unwrap();
    }
}

/// What a killed migrator leaves is whole steps, which each build finds or refuses as it should; and the next one goes on.
fn check(place: &Place, from: usize, was_killed: bool) {
    let versions = place.versions();
    assert_eq!(versions, (1..=versions.len() as i64).collect::<Vec<_>>());
    // What begins with nothing is made as a whole.
    let is_whole = if from > 0 { versions.len() >= from } else { [0, 3].contains(&versions.len()) };
    assert!(is_whole && (was_killed || versions.len() == 3), "{versions:?}");
    if versions.len() == 3 {
        refused_text(&old::refusal(old::open(place)).expect("version 1 is not to go on"));
    } else if versions.len() > 0 {
        assert!(was_killed);
        old::open(place).unwrap();
    }
    new::upgrade(place, true).unwrap();
    assert_eq!(place.versions(), [1, 2, 3]);
    let store = new::open(place).unwrap();
    assert_eq!(store.read(|tx| tx.audit()).unwrap(), []);
    new::describe(&*store, "new", "by the second").unwrap();
    let described = new::descriptions(&*store).unwrap();
    assert_eq!(described["new"], "by the second");
    assert_eq!(described.get("kept").map(String::as_str), (from > 0).then_some("by the first"));
}

/// A process that kills itself before this statement, from 1 on. Returns false if it ended before.
fn kill_at_statement(path: &Path, statement: usize) -> bool {
    let number = statement.to_string();
    let child = Child::start(&["kill-at", path.to_str().unwrap(), &number]);
    let said: Vec<String> = child.join();
    match said.last().map(String::as_str) {
        Some("now") => true,
        Some("ended") => false,
        other => panic!("{other:?}"),
    }
}

/// In the child.
pub fn kill_at(path: &Path, statement: usize) {
    static LEFT: AtomicUsize = AtomicUsize::new(0);
    LEFT.store(statement, Ordering::Relaxed);
    let mut conn = Connection::open(path).unwrap();
    // A process that is killed needs no flush, and the test is over sooner.
    conn.pragma_update(None, "synchronous", "OFF").unwrap();
    conn.trace_v2(
        TraceEventCodes::SQLITE_TRACE_STMT,
        Some(|event: TraceEvent<'_>| {
            if matches!(event, TraceEvent::Stmt(..)) && LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
                say("now");
                kill_myself();
            }
        }),
    )
    .unwrap();
    new::upgrade_on(&conn, true).unwrap();
    say("ended");
}

fn kill_myself() {
    let me = std::process::id().to_string();
    let _ = std::process::Command::new("kill").args(["-9", &me]).status();
    std::thread::park();
}

/// A process that is killed when the server has carried out this request, from 1 on, and it does not know.
fn kill_at_request(url: &str, schema: &str, request: usize) -> bool {
    let relay = Relay::start(url, request);
    let child = Child::start(&["finish-upgrade", &relay.url, schema]);
    let reached = relay.reached.recv().unwrap();
    match reached {
        true => drop(child.kill()),
        false => assert_eq!(child.join(), ["ended"]),
    }
    reached
}
