//! A process that works on a SQLite file is killed at random moments.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use crate::acknowledged::{Acknowledged, Task};
use crate::kill_at_random_moments;
use crate::place::{Commits, Place};
use crate::rules::{RULES, TASKS};

/// A statement whose names in braces are those of this store.
fn with_names(sql: &str) -> String {
    sql.replace("{keys}", "json_each(l.limits)")
        .replace("{open}", "AND t.state < 6")
        .replace("{unneeded}", "tasks + ended = 0")
}

fn check(path: &Path, acknowledged: &Acknowledged) {
    if !path.exists() {
        return;
    }
    let db = Connection::open(path).unwrap();
    let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    if count("SELECT count(*) FROM sqlite_schema WHERE name = 'sm_task'") == 0 {
        return;
    }
    let integrity: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(integrity, "ok");
    for (what, sql) in RULES {
        assert_eq!(count(&with_names(sql)), 0, "{what}");
    }
    let mut select = db.prepare(TASKS).unwrap();
    let task = |row: &rusqlite::Row<'_>| {
        Ok(Task { id: row.get(0)?, epoch: row.get(1)?, state: row.get(2)?, first_started: row.get(3)? })
    };
    let tasks: Vec<Task> = select.query_map([], task).unwrap().collect::<Result<_, _>>().unwrap();
    acknowledged.check(&tasks);
}

#[test]
fn survives_kills_at_random_moments() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("crash.db");
    let place = Place::Sqlite(path.clone());
    let kills = crate::kills(200);
    kill_at_random_moments(&place, kills, Duration::from_millis(20), &|acknowledged| {
        check(&path, acknowledged)
    });
    let found = place.open(Commits::Durable).read(|tx| tx.audit()).unwrap();
    assert!(found.is_empty(), "{found:?}");
}
