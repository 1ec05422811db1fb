//! The schema: its migrations, the ledger that records them, and the check of what a database contains.
//!
//! The ledger is a table of the store. `user_version` belongs to the host.

use std::collections::BTreeSet;

use rusqlite::{Connection, ErrorCode};

use super::error::{Fault, Outcome, code};
use super::prefix::Prefix;
use crate::store::sql::ledger::{Ledger, Migration, Steps, untouched};

/// The steps of the schema, in SQL with the default prefix.
pub(super) static STEPS: Steps = Steps {
    known: &[
        Migration {
            name: "0001_initial",
            oldest_compatible: 1,
            sql: concat!(
                include_str!("migrations/0001_initial.sql"),
                include_str!("migrations/0002_contract.sql"),
            ),
        },
        #[cfg(stationmaster_next_schema)]
        Migration {
            name: "0002_about",
            oldest_compatible: 1,
            sql: include_str!("../../../tests/rolling/next/sqlite_expand.sql"),
        },
        #[cfg(stationmaster_next_schema)]
        Migration {
            name: "0003_no_description",
            oldest_compatible: 2,
            sql: include_str!("../../../tests/rolling/next/sqlite_contract.sql"),
        },
    ],
    written: "sm_",
    ledger: "CREATE TABLE sm_migration (
    version           INTEGER PRIMARY KEY,
    name              TEXT NOT NULL,
    checksum          TEXT NOT NULL,
    applied_at        INTEGER NOT NULL,
    oldest_compatible INTEGER NOT NULL
) STRICT;
",
    now: "unixepoch() * 1000000",
};

const READ_LEDGER: &str =
    "SELECT version, name, checksum, oldest_compatible FROM sm_migration ORDER BY version";

/// The tables of this version, without their prefix.
const TABLES: &[&str] = &[
    "attempt",
    "cap",
    "consumer",
    "counter",
    "family",
    "feed",
    "lane",
    "lane_class",
    "lane_contender",
    "lane_group",
    "level",
    "migration",
    "namespace",
    "outage",
    "pause",
    "poke_count",
    "pool",
    "rate",
    "request",
    "run",
    "sensor",
    "serving",
    "shard",
    "shard_take",
    "share_use",
    "task",
    "task_limit",
    "worker",
];

/// The version of the schema that this version of the crate works at.
pub(super) const VERSION: u32 = STEPS.works_at();
const _: () = STEPS.check();

/// What a database contains of a store with some prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    Nothing,
    /// The schema after this many steps. There may be more steps than this version of the crate knows, if it may
    /// continue.
    Applied(usize),
}

impl Found {
    pub(super) fn applied(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Applied(applied) => applied,
        }
    }

    /// Returns true if this version of the crate can work with it as it is.
    pub(super) fn is_current(self) -> bool {
        self.applied() >= VERSION as usize
    }
}

/// Finds out what a database contains. Only reads, from one snapshot.
///
/// A schema that is incomplete, foreign or too new is refused:
/// [`StoreErrorKind::Schema`](crate::error::StoreErrorKind::Schema).
pub(super) fn inspect(conn: &Connection, prefix: &Prefix) -> Outcome<Found> {
    let _one_state = match conn.is_autocommit() {
        true => Some(conn.unchecked_transaction()?),
        false => None,
    };
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
    let mut ledger = Ledger::new(&STEPS);
    while let Some(row) = rows.next()? {
        let (name, checksum): (String, String) = (row.get(1)?, row.get(2)?);
        ledger.check(row.get(0)?, &name, &checksum, row.get(3)?).map_err(Fault::Refused)?;
    }
    let found = Found::Applied(ledger.applied().map_err(Fault::Refused)?);
    match TABLES.iter().map(|name| prefix.table(name)).find(|name| !ours.contains(name)) {
        Some(missing) if found.is_current() => {
            refuse(format!("table {missing} is missing: restore a backup"))
        }
        _ => Ok(found),
    }
}

/// Refuses a database without the tables of this version.
pub(super) fn check(conn: &Connection, prefix: &Prefix) -> Outcome<()> {
    match inspect(conn, prefix)? {
        found if found.is_current() => Ok(()),
        Found::Nothing => {
            refuse(format!("there are no tables with prefix {prefix}: create them with `sqlite::migrate`"))
        }
        Found::Applied(applied) => refuse(format!(
            "the tables with prefix {prefix} have version {applied}, this version of the crate needs {VERSION}: \
             bring them up to date with `sqlite::migrate`"
        )),
    }
}

/// Returns the names that begin with the prefix, except those of a store whose longer prefix begins with it.
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

/// Returns the SQL that brings a schema of this version to the one that the crate needs. For version 0 (no
/// schema), the needed version and later ones, this includes the steps of [`super::finish_upgrade`]. Empty if
/// there is nothing to do.
///
/// [`StoreInfo::schema`](crate::store::StoreInfo::schema) is the needed version. A host keeps one file per
/// text, and applies each in one transaction. A comment before each step says which versions work after it.
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
    prefix.apply(&STEPS.text_from(version as usize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{StoreError, StoreErrorKind};
    use crate::store::sqlite::migrate;

    const CURRENT: Found = Found::Applied(STEPS.known.len());

    #[test]
    fn the_list_of_tables_is_what_the_migrations_create() {
        let conn = Connection::open_in_memory().unwrap();
        migrate(&conn, &Prefix::default()).unwrap();
        let tables: Vec<String> = conn
            .prepare(
                "SELECT substr(name, 4) FROM sqlite_schema WHERE type = 'table' \
                 AND name NOT GLOB 'sm_version_*' ORDER BY name",
            )
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
        assert_eq!(inspect(&conn, &prefix).unwrap(), CURRENT);
    }

    #[test]
    fn stores_with_nested_prefixes_live_side_by_side() {
        let conn = Connection::open_in_memory().unwrap();
        migrate(&conn, &Prefix::new("sm_b_").unwrap()).unwrap();
        assert_eq!(inspect(&conn, &Prefix::default()).unwrap(), Found::Nothing);
        migrate(&conn, &Prefix::default()).unwrap();
        assert_eq!(inspect(&conn, &Prefix::default()).unwrap(), CURRENT);
    }

    #[test]
    fn whatever_is_not_ours_is_refused() {
        let ours = migrations_sql(&Prefix::default());
        for foreign in [
            "CREATE TABLE sm_task (x)",
            "CREATE VIEW SM_anything AS SELECT 1",
            "CREATE TABLE sm_migration (id)",
            &format!("{ours} UPDATE sm_migration SET checksum = 'x'"),
            &format!(
                "{ours} INSERT INTO sm_migration VALUES ({0}, 'later', 'x', 0, {0})",
                CURRENT.applied() + 1
            ),
            &format!(
                "{ours} INSERT INTO sm_migration VALUES ({0}, 'later', 'x', 0, 1)",
                CURRENT.applied() + 2
            ),
            &format!("{ours} DROP TABLE sm_task"),
        ] {
            let conn = Connection::open_in_memory().unwrap();
            conn.execute_batch(foreign).unwrap();
            let refused = inspect(&conn, &Prefix::default()).unwrap_err();
            assert_eq!(StoreError::from(refused).kind(), StoreErrorKind::Schema, "{foreign}");
        }
    }

    #[test]
    fn a_newer_schema_that_lets_this_version_go_on_is_left_as_it_is() {
        let (conn, prefix) = (Connection::open_in_memory().unwrap(), Prefix::default());
        migrate(&conn, &prefix).unwrap();
        let later = CURRENT.applied() + 1;
        let step = "CREATE TABLE sm_later (x); INSERT INTO sm_migration VALUES";
        conn.execute_batch(&format!("{step} ({later}, 'later', 'x', 0, {VERSION})")).unwrap();
        assert_eq!(inspect(&conn, &prefix).unwrap(), Found::Applied(later));
        check(&conn, &prefix).unwrap();
        migrate(&conn, &prefix).unwrap();
        crate::store::sqlite::finish_upgrade(&conn, &prefix).unwrap();
        assert_eq!(inspect(&conn, &prefix).unwrap(), Found::Applied(later));
    }
}
