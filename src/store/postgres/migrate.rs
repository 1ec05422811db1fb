//! The schema: its migrations, the ledger that remembers them, and what a database is found to hold.

use std::collections::BTreeSet;

use sha1::{Digest, Sha1};
use tokio_postgres::{Client, GenericClient};

use super::error::{Failure, store_error};
use super::name::Schema;
use crate::error::{StoreError, StoreResult};
use crate::store::sql::ledger::{Ledger, Migration, untouched};

/// A function whose body is one of the store's own statements, so that both do the same. Its parameters have the
/// numbers that the statement gives them.
macro_rules! function {
    ($head:literal, $statement:literal) => {
        concat!(
            "CREATE FUNCTION sm.",
            $head,
            " LANGUAGE plpgsql AS $$\n#variable_conflict use_column\nBEGIN RETURN QUERY\n",
            include_str!(concat!("tx/", $statement)),
            "; END $$;\n"
        )
    };
}

/// The steps of the schema, in SQL with the schema written as `sm`.
///
/// A released step never changes. So a statement that changes after a release leaves its text of before in the
/// step, and a later step replaces the function.
const MIGRATIONS: &[Migration] = &[Migration {
    name: "0001_initial",
    sql: concat!(
        include_str!("migrations/0001_initial/tasks.sql"),
        include_str!("migrations/0001_initial/sensors.sql"),
        include_str!("migrations/0001_initial/runs.sql"),
        include_str!("migrations/0001_initial/functions/status.sql"),
        function!(
            "_enqueue(BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], \
             BIGINT[], BIGINT[], TEXT[], TEXT[], TEXT[], TEXT[], TEXT[], TEXT[], TEXT[], BIGINT[], TEXT[], \
             BIGINT[], BIGINT[], TEXT[]) RETURNS TABLE (place BIGINT, no BIGINT, is_new BOOLEAN)",
            "enqueue.sql"
        ),
        function!(
            "_start(BIGINT[], BIGINT[], BIGINT) RETURNS TABLE (no BIGINT, epoch BIGINT, attempt_runs BIGINT)",
            "start.sql"
        ),
        function!(
            "_move(BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], \
             BIGINT[], TEXT[], TEXT[], BIGINT[], BIGINT[]) RETURNS TABLE (place BIGINT, is_told BOOLEAN)",
            "move.sql"
        ),
        include_str!("migrations/0001_initial/functions/enqueue.sql"),
        include_str!("migrations/0001_initial/functions/attempts.sql"),
        include_str!("migrations/0001_initial/functions/cancel.sql"),
    ),
}];

const LEDGER: &str = "CREATE TABLE sm.migration (
    version    BIGINT PRIMARY KEY,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at BIGINT NOT NULL
);
";

/// The tables and views of this version.
const TABLES: &[&str] = &[
    "attempt",
    "beat",
    "consumer",
    "delta",
    "family",
    "feed",
    "feed_inbox",
    "idle",
    "lane",
    "lane_now",
    "lane_use",
    "lease",
    "level",
    "limit_use",
    "migration",
    "namespace",
    "numbers",
    "pause",
    "pool",
    "pool_use",
    "rate_use",
    "ready",
    "request",
    "run",
    "run_beat",
    "sensor",
    "sensor_change",
    "sensor_inbox",
    "serving",
    "shard",
    "status",
    "task",
    "task_limit",
    "tick",
    "tick_lock",
    "turn",
    "unfolded",
    "worker",
];

/// The version of the schema that this version of the crate reads and writes.
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Notes a migration as applied. Names and checksums have no quotes.
fn note(migration: &Migration, at: usize) -> String {
    format!(
        "INSERT INTO sm.migration (version, name, checksum, applied_at) VALUES ({}, '{}', '{}', \
         (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);\n",
        at + 1,
        migration.name,
        migration.checksum()
    )
}

/// What a database holds of a store in some schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// No such schema.
    Nothing,
    /// A schema without any of the store's tables.
    Schema,
    /// The tables after this many migrations, fewer than there are.
    Older(usize),
    /// The tables of this version.
    Current,
}

/// Finds out what a database holds. Only reads.
async fn inspect<C: GenericClient + Sync>(client: &C, schema: &Schema) -> StoreResult<Found> {
    let name = schema.as_str();
    let look = format!(
        "SELECT current_setting('server_encoding'), EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = '{name}'), \
         ARRAY(SELECT relname::text FROM pg_catalog.pg_class \
               WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = '{name}') \
               AND relkind IN ('r', 'p', 'v', 'm', 'f'))"
    );
    let row = client.query_typed(&look, &[]).await.map_err(store_error)?.pop();
    let (encoding, exists, relations): (String, bool, Vec<String>) = match row {
        Some(row) => {
            let part = |error| store_error(error);
            (row.try_get(0).map_err(part)?, row.try_get(1).map_err(part)?, row.try_get(2).map_err(part)?)
        }
        None => return refuse("it says nothing of itself".into()),
    };
    if encoding != "UTF8" {
        return refuse(format!("its encoding is {encoding}: create it with ENCODING 'UTF8'"));
    }
    let relations: BTreeSet<String> = relations.into_iter().collect();
    let ours = || TABLES.iter().find(|table| relations.contains(**table));
    if !relations.contains("migration") {
        return match ours() {
            None if exists => Ok(Found::Schema),
            None => Ok(Found::Nothing),
            Some(table) => refuse(format!(
                "{name}.{table} is there, but no record of migrations: it belongs to something else: choose another schema"
            )),
        };
    }
    let ledger = schema.apply("SELECT version, name, checksum FROM sm.migration ORDER BY version");
    let rows = match client.query_typed(&ledger, &[]).await {
        Ok(rows) => rows,
        Err(error) if error.code().is_some_and(|code| code.code() == "42703") => {
            return refuse(format!(
                "{name}.migration is not the record of migrations of this crate: choose another schema"
            ));
        }
        Err(error) => return Err(store_error(error)),
    };
    let mut ledger = Ledger::new(MIGRATIONS);
    for row in rows {
        let (Ok(version), Ok(noted), Ok(checksum)) =
            (row.try_get::<_, i64>(0), row.try_get::<_, String>(1), row.try_get::<_, String>(2))
        else {
            return refuse(format!("{name}.migration is not of this crate: choose another schema"));
        };
        ledger.check(version, &noted, &checksum)?;
    }
    if let Some(applied) = ledger.older() {
        return Ok(Found::Older(applied));
    }
    match TABLES.iter().find(|table| !relations.contains(**table)) {
        Some(missing) => refuse(format!("table {name}.{missing} is missing: restore a backup")),
        None => Ok(Found::Current),
    }
}

fn refuse<T>(what: String) -> StoreResult<T> {
    Err(untouched(what))
}

/// Refuses a database without the tables of this version.
pub(super) async fn check<C: GenericClient + Sync>(client: &C, schema: &Schema) -> StoreResult<()> {
    match inspect(client, schema).await? {
        Found::Current => Ok(()),
        Found::Nothing | Found::Schema => refuse(format!(
            "schema {schema} has no tables of the store: create them with `postgres::migrate`"
        )),
        Found::Older(version) => refuse(format!(
            "the tables in schema {schema} have version {version}, this version of the crate needs {VERSION}: \
             bring them up to date with `postgres::migrate`"
        )),
    }
}

/// Creates or updates the store's schema and tables, in its own transaction. Concurrent calls wait for each
/// other.
///
/// # Errors
///
/// [`StoreErrorKind::Schema`](crate::error::StoreErrorKind::Schema) if the tables were written by a newer
/// version of the crate or by something else, and any error from the server. Nothing was changed.
///
/// # Examples
///
/// ```no_run
/// # async fn example(mut client: stationmaster::store::postgres::tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use stationmaster::store::postgres::{Schema, migrate};
/// migrate(&mut client, &Schema::default()).await?;
/// # Ok(())
/// # }
/// ```
pub async fn migrate(client: &mut Client, schema: &Schema) -> StoreResult<()> {
    if inspect(client, schema).await? == Found::Current {
        return Ok(());
    }
    let transaction = client
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::ReadCommitted)
        .read_only(false)
        .start()
        .await
        .map_err(store_error)?;
    let lock = format!("SELECT pg_advisory_xact_lock({})", lock_number(schema));
    transaction.batch_execute(&lock).await.map_err(|error| StoreError::from(Failure::of_waiting(error)))?;
    let (create, applied) = match inspect(&transaction, schema).await? {
        Found::Current => return Ok(()),
        Found::Nothing => (format!("CREATE SCHEMA \"{schema}\";\n{LEDGER}"), 0),
        Found::Schema => (LEDGER.to_owned(), 0),
        Found::Older(applied) => (String::new(), applied),
    };
    let mut sql = create;
    for (at, migration) in MIGRATIONS.iter().enumerate().skip(applied) {
        sql.push_str(migration.sql);
        sql.push_str(&note(migration, at));
    }
    transaction.batch_execute(&schema.apply(&sql)).await.map_err(store_error)?;
    transaction.commit().await.map_err(store_error)
}

/// Returns the number of the advisory lock for migrations of this schema.
fn lock_number(schema: &Schema) -> i64 {
    let digest = Sha1::digest(format!("stationmaster migration of {schema}"));
    digest.iter().take(8).fold(0, |number, byte| number << 8 | i64::from(*byte))
}

/// Returns the SQL of the whole schema, including its record of migrations, for hosts that apply migrations
/// themselves.
///
/// Apply it in one transaction, once. Later versions of the crate bring older tables up to date with
/// [`migrate`].
///
/// # Examples
///
/// ```
/// use stationmaster::store::postgres::{Schema, migrations_sql};
/// let sql = migrations_sql(&Schema::new("jobs")?);
/// assert!(sql.contains("CREATE TABLE \"jobs\".task") && !sql.contains("sm."));
/// # Ok::<(), stationmaster::error::Invalid>(())
/// ```
pub fn migrations_sql(schema: &Schema) -> String {
    let mut sql = format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\";\n{LEDGER}");
    for (at, migration) in MIGRATIONS.iter().enumerate() {
        sql.push_str(migration.sql);
        sql.push_str(&note(migration, at));
    }
    schema.apply(&sql)
}
