//! The schema: its migrations, the ledger that remembers them, and what a database is found to hold.
//!
//! The ledger is one of the store's tables. `user_version` belongs to the host.

use std::collections::BTreeSet;

use rusqlite::{Connection, ErrorCode, params};

use super::error::{Fault, Outcome, code};
use super::prefix::Prefix;
use crate::store::sql::ledger::{Ledger, Migration, untouched};

/// The steps of the schema, in SQL with the default prefix.
const MIGRATIONS: &[Migration] = &[
    Migration { name: "0001_initial", sql: include_str!("migrations/0001_initial.sql") },
    Migration { name: "0002_contract", sql: include_str!("migrations/0002_contract.sql") },
];

const LEDGER: &str = "CREATE TABLE sm_migration (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;
";

const NOTE: &str = "INSERT INTO sm_migration (version, name, checksum, applied_at)
    VALUES (?1, ?2, ?3, unixepoch() * 1000000)";

const READ_LEDGER: &str = "SELECT version, name, checksum FROM sm_migration ORDER BY version";

/// The tables of this version, without their prefix.
const TABLES: &[&str] = &[
    "attempt",
    "consumer",
    "counter",
    "family",
    "feed",
    "lane",
    "level",
    "migration",
    "namespace",
    "pause",
    "pool",
    "rate",
    "request",
    "run",
    "sensor",
    "serving",
    "shard",
    "task",
    "task_limit",
    "worker",
];

/// The version of the schema that this version of the crate reads and writes.
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// What a database holds of a store with some prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// The schema after this many migrations, fewer than there are.
    Older(usize),
    /// The schema of this version.
    Current,
}

/// Finds out what a database holds. Only reads.
///
/// A schema that is newer, incomplete or foreign is refused:
/// [`StoreErrorKind::Schema`](crate::error::StoreErrorKind::Schema).
pub(super) fn inspect(conn: &Connection, prefix: &Prefix) -> Outcome<Found> {
    let ours = objects_of(conn, prefix)?;
    if !ours.contains(&prefix.table("migration")) {
        return match ours.first() {
            None => Ok(Found::Nothing),
            Some(name) => refuse(format!(
                "{name} is there, but no record of migrations: it belongs to something else: choose another table prefix"
            )),
        };
    }
    let mut statement = match conn.prepare(&prefix.apply(READ_LEDGER)) {
        Ok(statement) => statement,
        Err(error) if code(&error).is_some_and(|code| code.code == ErrorCode::Unknown) => {
            return refuse(format!(
                "{} is not the record of migrations of this crate: choose another table prefix",
                prefix.table("migration")
            ));
        }
        Err(error) => return Err(error.into()),
    };
    let mut rows = statement.query([])?;
    let mut ledger = Ledger::new(MIGRATIONS);
    while let Some(row) = rows.next()? {
        let (name, checksum): (String, String) = (row.get(1)?, row.get(2)?);
        ledger.check(row.get(0)?, &name, &checksum).map_err(Fault::Refused)?;
    }
    if let Some(applied) = ledger.older() {
        return Ok(Found::Older(applied));
    }
    match TABLES.iter().map(|name| prefix.table(name)).find(|name| !ours.contains(name)) {
        Some(missing) => refuse(format!("table {missing} is missing: restore a backup")),
        None => Ok(Found::Current),
    }
}

/// Returns the names that begin with the prefix, without those of a store whose longer prefix begins with it.
fn objects_of(conn: &Connection, prefix: &Prefix) -> Outcome<BTreeSet<String>> {
    let mut statement =
        conn.prepare("SELECT lower(name) FROM sqlite_schema WHERE lower(substr(name, 1, length(?1))) = ?1")?;
    let names = statement
        .query_map([prefix.as_str()], |row| row.get::<_, String>(0))?
        .collect::<Result<BTreeSet<_>, _>>()?;
    let nested: Vec<String> = names
        .iter()
        .filter_map(|name| name.strip_suffix("migration"))
        .filter(|longer| longer.len() > prefix.as_str().len())
        .map(str::to_owned)
        .collect();
    Ok(names.into_iter().filter(|name| !nested.iter().any(|longer| name.starts_with(longer))).collect())
}

fn refuse<T>(what: String) -> Outcome<T> {
    Err(Fault::Refused(untouched(what)))
}

/// Brings the schema to this version. Call it inside a write transaction. Inspects the database again.
pub(super) fn migrate_inside(conn: &Connection, prefix: &Prefix) -> Outcome<()> {
    let applied = match inspect(conn, prefix)? {
        Found::Current => return Ok(()),
        Found::Older(applied) => applied,
        Found::Nothing => {
            conn.execute_batch(&prefix.apply(LEDGER))?;
            0
        }
    };
    for (at, migration) in MIGRATIONS.iter().enumerate().skip(applied) {
        conn.execute_batch(&prefix.apply(migration.sql))?;
        conn.execute(&prefix.apply(NOTE), params![at as i64 + 1, migration.name, migration.checksum()])?;
    }
    Ok(())
}

/// Returns the SQL of the whole schema, including its record of migrations, for hosts that apply migrations
/// themselves.
///
/// Apply it in one transaction, once. For what later versions of the crate add, use [`migrations_sql_from`]
/// or [`super::migrate`].
///
/// # Examples
///
/// ```
/// use stationmaster::store::sqlite::{Prefix, migrations_sql};
/// let sql = migrations_sql(&Prefix::new("jobs_")?);
/// assert!(sql.contains("CREATE TABLE jobs_task") && !sql.contains("sm_"));
/// # Ok::<(), stationmaster::error::Invalid>(())
/// ```
pub fn migrations_sql(prefix: &Prefix) -> String {
    migrations_sql_from(prefix, 0)
}

/// Returns the SQL that brings a schema of this version up to date. Version 0 means no schema. Empty if there
/// is nothing to do.
///
/// [`StoreInfo::schema`](crate::store::StoreInfo::schema) is the version that this version of the crate
/// needs. A host keeps one file per step, and creates the next one when that number rises.
///
/// # Examples
///
/// ```
/// use stationmaster::store::sqlite::{Prefix, migrate, migrations_sql_from, rusqlite::Connection};
/// let (conn, prefix) = (Connection::open_in_memory()?, Prefix::default());
/// conn.execute_batch(&migrations_sql_from(&prefix, 0))?;
/// migrate(&conn, &prefix)?;
/// assert_eq!(migrations_sql_from(&prefix, 1_000), "");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn migrations_sql_from(prefix: &Prefix, version: u32) -> String {
    let mut sql = if version == 0 { prefix.apply(LEDGER) } else { String::new() };
    for (at, migration) in MIGRATIONS.iter().enumerate().skip(version as usize) {
        let note = NOTE
            .replace("?1", &(at + 1).to_string())
            .replace("?2", &format!("'{}'", migration.name))
            .replace("?3", &format!("'{}'", migration.checksum()));
        sql.push_str(&prefix.apply(migration.sql));
        sql.push_str(&prefix.apply(&note));
        sql.push_str(";\n");
    }
    sql
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{StoreError, StoreErrorKind};

    #[test]
    fn the_list_of_tables_is_what_the_migrations_create() {
        let conn = Connection::open_in_memory().unwrap();
        migrate_inside(&conn, &Prefix::default()).unwrap();
        let tables: Vec<String> = conn
            .prepare("SELECT substr(name, 4) FROM sqlite_schema WHERE type = 'table' ORDER BY name")
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(tables, TABLES);
    }

    #[test]
    fn the_text_for_hosts_makes_a_current_schema() {
        let conn = Connection::open_in_memory().unwrap();
        let prefix = Prefix::new("x_").unwrap();
        conn.execute_batch(&migrations_sql(&prefix)).unwrap();
        assert_eq!(inspect(&conn, &prefix).unwrap(), Found::Current);
    }

    #[test]
    fn each_step_of_the_text_for_hosts_leads_to_the_current_schema() {
        let prefix = Prefix::default();
        for version in 1..=MIGRATIONS.len() {
            let conn = Connection::open_in_memory().unwrap();
            let whole = migrations_sql(&prefix);
            let rest = migrations_sql_from(&prefix, version as u32);
            conn.execute_batch(whole.strip_suffix(&rest).unwrap()).unwrap();
            let older = if rest.is_empty() { Found::Current } else { Found::Older(version) };
            assert_eq!(inspect(&conn, &prefix).unwrap(), older);
            conn.execute_batch(&rest).unwrap();
            assert_eq!(inspect(&conn, &prefix).unwrap(), Found::Current);
        }
    }

    #[test]
    fn an_older_schema_is_brought_up_to_date() {
        let (conn, prefix) = (Connection::open_in_memory().unwrap(), Prefix::default());
        let whole = migrations_sql(&prefix);
        let first = whole.strip_suffix(&migrations_sql_from(&prefix, 1)).unwrap();
        conn.execute_batch(first).unwrap();
        migrate_inside(&conn, &prefix).unwrap();
        assert_eq!(inspect(&conn, &prefix).unwrap(), Found::Current);
    }

    #[test]
    fn stores_with_nested_prefixes_live_side_by_side() {
        let conn = Connection::open_in_memory().unwrap();
        migrate_inside(&conn, &Prefix::new("sm_b_").unwrap()).unwrap();
        assert_eq!(inspect(&conn, &Prefix::default()).unwrap(), Found::Nothing);
        migrate_inside(&conn, &Prefix::default()).unwrap();
        assert_eq!(inspect(&conn, &Prefix::default()).unwrap(), Found::Current);
    }

    #[test]
    fn whatever_is_not_ours_is_refused() {
        let ours = migrations_sql(&Prefix::default());
        for foreign in [
            "CREATE TABLE sm_task (x)",
            "CREATE VIEW SM_anything AS SELECT 1",
            "CREATE TABLE sm_migration (id)",
            &format!("{ours} UPDATE sm_migration SET checksum = 'x'"),
            &format!("{ours} INSERT INTO sm_migration VALUES ({}, 'later', 'x', 0)", VERSION + 1),
            &format!("{ours} DROP TABLE sm_task"),
        ] {
            let conn = Connection::open_in_memory().unwrap();
            conn.execute_batch(foreign).unwrap();
            let refused = inspect(&conn, &Prefix::default()).unwrap_err();
            assert_eq!(StoreError::from(refused).kind(), StoreErrorKind::Schema, "{foreign}");
        }
    }
}
