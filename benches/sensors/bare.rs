//! The same changes and reads in hand-written SQL: what SQLite itself costs.

use std::path::Path;
use std::time::{Duration, Instant};

use stationmaster::sensor::NewSensor;
use stationmaster::store::sqlite::rusqlite::{Connection, params};

use crate::fleet::now;

fn open(path: &Path) -> Connection {
    let conn = Connection::open(path).expect("a database");
    conn.pragma_update(None, "synchronous", "NORMAL").expect("set");
    conn.pragma_update(None, "cache_size", -32_768).expect("set");
    conn
}

/// Registers running tasks: their states, a row each, the pool's slots and the counter.
pub(crate) fn register(path: &Path, sensors: &[NewSensor]) -> Duration {
    let conn = open(path);
    let began = Instant::now();
    conn.execute_batch("BEGIN IMMEDIATE").expect("begun");
    {
        let mut task = conn
            .prepare("UPDATE sm_task SET state = 4, held_slots = 0, holder = NULL, expires_at = NULL WHERE no = ?1 AND epoch = ?2 AND state = 2")
            .expect("a statement");
        let columns: Vec<String> = conn
            .prepare("SELECT name FROM pragma_table_info('sm_sensor') WHERE \"notnull\"")
            .expect("a statement")
            .query_map([], |row| row.get(0))
            .expect("columns")
            .map(|name| name.expect("a name"))
            .filter(|name: &String| {
                !["epoch", "state", "changed", "fingerprint", "kind", "context"].contains(&name.as_str())
            })
            .collect();
        let sql = format!(
            "INSERT INTO sm_sensor (no, epoch, state, changed, fingerprint, kind, context, {}) VALUES (?1, ?2, 0, ?3, ?4, ?5, ?6{})",
            columns.join(", "),
            ", ?7".repeat(columns.len())
        );
        let mut sensor = conn.prepare(&sql).expect("a statement");
        let now = now().as_micros();
        for (change, new) in (1_i64..).zip(sensors) {
            let insert = new.insert(crate::fleet::now());
            task.execute(params![new.lease.id.0, new.lease.epoch]).expect("written");
            sensor
                .execute(params![
                    new.lease.id.0,
                    new.lease.epoch,
                    change,
                    insert.fingerprint.to_i64(),
                    new.kind.as_str(),
                    new.context.as_str(),
                    now
                ])
                .expect("written");
        }
        let rows = i64::try_from(sensors.len()).expect("a number");
        conn.execute("UPDATE sm_pool SET used = used - ?1 WHERE name = 'wide'", [rows]).expect("written");
        conn.execute("UPDATE sm_counter SET value = ?1 WHERE name = 'sensor'", [rows]).expect("written");
    }
    conn.execute_batch("COMMIT").expect("committed");
    began.elapsed()
}

/// Reads all sensors and their tasks once, in the order in which they lie.
pub(crate) fn read(path: &Path) -> (usize, Duration) {
    let conn = open(path);
    let began = Instant::now();
    let mut statement = conn
        .prepare("SELECT s.*, t.namespace, t.workflow, t.run, t.task, t.map_index FROM sm_sensor s JOIN sm_task t ON t.no = s.no")
        .expect("a statement");
    let columns = statement.column_count();
    let mut rows = statement.query([]).expect("rows");
    let (mut found, mut bytes) = (0, 0);
    while let Some(row) = rows.next().expect("a row") {
        for column in 0..columns {
            bytes += row.get_ref(column).expect("a value").as_str().map_or(8, str::len);
        }
        found += 1;
    }
    std::hint::black_box(bytes);
    (found, began.elapsed())
}
