//! The schema: its migrations, the ledger of applied ones, and what a database contains.

use std::collections::BTreeSet;

use tokio_postgres::GenericClient;

use super::error::store_error;
use super::name::Schema;
use crate::error::StoreResult;
use crate::store::sql::ledger::{Ledger, Migration, Steps, untouched};

/// Defines a function whose body is one of the store's own statements, so that both do the same. Its parameters are
/// numbered as in the statement.
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

/// The first step of the schema, in SQL with the schema written as `sm`.
///
/// A released step never changes. If a statement changes after a release, the step keeps the old text, and a later
/// step replaces the function.
const INITIAL: Migration = Migration {
    name: "0001_initial",
    oldest_compatible: 1,
    sql: concat!(
        include_str!("migrations/0001_initial/tasks.sql"),
        include_str!("migrations/0001_initial/sensors.sql"),
        include_str!("migrations/0001_initial/runs.sql"),
        include_str!("migrations/0001_initial/functions/status.sql"),
        function!(
            "_enqueue(BIGINT[], BIGINT[], BIGINT[], BIGINT[], TEXT[], TEXT[], TEXT[], BIGINT[], BIGINT[], \
             BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], TEXT[], TEXT[], TEXT[], TEXT[], \
             BIGINT[], TEXT[], TEXT[], BIGINT) RETURNS TABLE (place BIGINT, no BIGINT, is_new BOOLEAN)",
            "enqueue.sql"
        ),
        function!(
            "_caps(TEXT[], TEXT[]) \
             RETURNS TABLE (kind BIGINT, name TEXT, most BIGINT, strict BIGINT, waiting BIGINT)",
            "cap/hold_caps.sql"
        ),
        function!(
            "_start(BIGINT[], BIGINT[], BIGINT) RETURNS TABLE (no BIGINT, epoch BIGINT, attempt_runs BIGINT)",
            "start.sql"
        ),
        function!(
            "_move(BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], BIGINT[], \
             BIGINT[], TEXT[], TEXT[], BIGINT[], BIGINT[]) RETURNS TABLE (place BIGINT, is_fed BOOLEAN)",
            "move.sql"
        ),
        include_str!("migrations/0001_initial/functions/fold_few.sql"),
        include_str!("migrations/0001_initial/functions/order.sql"),
        include_str!("migrations/0001_initial/functions/end_one.sql"),
        function!(
            "_end_many(BIGINT[], BIGINT[], BIGINT[], BIGINT[], TEXT[], TEXT[], BIGINT) \
             RETURNS TABLE (place BIGINT, is_recorded BOOLEAN, is_fed BOOLEAN)",
            "end.sql"
        ),
        include_str!("migrations/0001_initial/functions/take_few.sql"),
        include_str!("migrations/0001_initial/functions/tick_ahead.sql"),
        include_str!("migrations/0001_initial/functions/enqueue.sql"),
        include_str!("migrations/0001_initial/functions/attempts.sql"),
        include_str!("migrations/0001_initial/functions/cancel.sql"),
    ),
};

pub(super) static STEPS: Steps = Steps {
    known: &[
        INITIAL,
        #[cfg(stationmaster_next_schema)]
        Migration {
            name: "0002_about",
            oldest_compatible: 1,
            sql: include_str!("../../../tests/rolling/next/postgres_expand.sql"),
        },
        #[cfg(stationmaster_next_schema)]
        Migration {
            name: "0003_no_description",
            oldest_compatible: 2,
            sql: include_str!("../../../tests/rolling/next/postgres_contract.sql"),
        },
    ],
    written: "sm.",
    ledger: "CREATE TABLE sm.migration (
    version           BIGINT PRIMARY KEY,
    name              TEXT NOT NULL,
    checksum          TEXT NOT NULL,
    applied_at        BIGINT NOT NULL,
    oldest_compatible BIGINT NOT NULL
);
",
    now: "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
};

/// The tables and views of this version.
const TABLES: &[&str] = &[
    "attempt",
    "beat",
    "cap",
    "consumer",
    "delta",
    "family",
    "feed",
    "feed_inbox",
    "idle",
    "lane",
    "lane_now",
    "lane_order",
    "lane_use",
    "lease",
    "level",
    "limit_use",
    "migration",
    "namespace",
    "note",
    "numbers",
    "outage",
    "pause",
    "poke_count",
    "pool",
    "pool_use",
    "rate_use",
    "ready",
    "ready_lane",
    "request",
    "run",
    "run_beat",
    "sensor",
    "sensor_change",
    "sensor_inbox",
    "serving",
    "shard",
    "shard_take",
    "share_clock",
    "share_use",
    "sharing",
    "status",
    "task",
    "task_limit",
    "tick",
    "tick_lock",
    "turn",
    "unfolded",
    "worker",
];

/// The version of the schema that this version of the crate works with.
pub(super) const VERSION: u32 = STEPS.works_at();
const _: () = STEPS.check();

/// Returns SQL that fails if processes of this version must not continue, or if run outside a transaction. Inside one,
/// it waits only for a step that would refuse them. Such a step waits for the end of the transaction.
pub(super) fn gate(schema: &Schema) -> String {
    format!("LOCK TABLE {} IN ACCESS SHARE MODE;", gate_table(schema))
}

/// Returns the name of the table that exists as long as processes of this version may continue.
pub(super) fn gate_table(schema: &Schema) -> String {
    schema.apply(&STEPS.gate(VERSION))
}

/// What a database contains of a store in some schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// No such schema.
    Nothing,
    /// A schema without any of the store's tables.
    Schema,
    /// The tables after this many steps. If this version of the crate may continue, there may be more steps than it
    /// knows.
    Applied(usize),
}

impl Found {
    pub(super) fn applied(self) -> usize {
        match self {
            Self::Nothing | Self::Schema => 0,
            Self::Applied(applied) => applied,
        }
    }
}

/// Returns the names of what is in a schema, or `None` if there is no such schema.
async fn relations<C: GenericClient + Sync>(
    client: &C,
    schema: &Schema,
) -> StoreResult<Option<BTreeSet<String>>> {
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
    Ok(exists.then(|| relations.into_iter().collect()))
}

fn missing(relations: &BTreeSet<String>) -> Option<&'static str> {
    TABLES.iter().find(|table| !relations.contains(**table)).copied()
}

/// Returns what a database contains. Only reads.
pub(super) async fn inspect<C: GenericClient + Sync>(client: &C, schema: &Schema) -> StoreResult<Found> {
    let name = schema.as_str();
    let Some(relations) = relations(client, schema).await? else { return Ok(Found::Nothing) };
    if !relations.contains("migration") {
        return match TABLES.iter().find(|table| relations.contains(**table)) {
            None => Ok(Found::Schema),
            Some(table) => refuse(format!(
                "{name}.{table} is there, but no record of migrations: it belongs to something else: choose another schema"
            )),
        };
    }
    let ledger =
        schema.apply("SELECT version, name, checksum, oldest_compatible FROM sm.migration ORDER BY version");
    let rows = match client.query_typed(&ledger, &[]).await {
        Ok(rows) => rows,
        Err(error) if error.code().is_some_and(|code| code.code() == "42703") => {
            return refuse(format!(
                "{name}.migration is not the record of migrations of this crate: choose another schema"
            ));
        }
        Err(error) => return Err(store_error(error)),
    };
    let mut ledger = Ledger::new(&STEPS);
    for row in rows {
        let (Ok(version), Ok(noted), Ok(checksum), Ok(oldest)) = (
            row.try_get::<_, i64>(0),
            row.try_get::<_, String>(1),
            row.try_get::<_, String>(2),
            row.try_get::<_, i64>(3),
        ) else {
            return refuse(format!("{name}.migration is not of this crate: choose another schema"));
        };
        ledger.check(version, &noted, &checksum, oldest)?;
    }
    let applied = ledger.applied()?;
    if applied < VERSION as usize || missing(&relations).is_none() {
        return Ok(Found::Applied(applied));
    }
    // A step may have been applied since the names were read.
    match self::relations(client, schema).await?.and_then(|relations| missing(&relations)) {
        Some(missing) => refuse(format!("table {name}.{missing} is missing: restore a backup")),
        None => Ok(Found::Applied(applied)),
    }
}

fn refuse<T>(what: String) -> StoreResult<T> {
    Err(untouched(what))
}

/// Refuses a database that lacks the tables of this version.
pub(super) async fn check<C: GenericClient + Sync>(client: &C, schema: &Schema) -> StoreResult<()> {
    match inspect(client, schema).await? {
        Found::Applied(applied) if applied >= VERSION as usize => Ok(()),
        Found::Applied(applied) => refuse(format!(
            "the tables in schema {schema} have version {applied}, this version of the crate needs {VERSION}: \
             bring them up to date with `postgres::migrate`"
        )),
        Found::Nothing | Found::Schema => refuse(format!(
            "schema {schema} has no tables of the store: create them with `postgres::migrate`"
        )),
    }
}

/// Returns the SQL of the whole schema, including its record of migrations, for hosts that apply migrations
/// themselves.
///
/// Apply it in one transaction, once. For later additions, use [`migrations_sql_from`] or [`super::migrate`].
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
    migrations_sql_from(schema, 0)
}

/// Returns the SQL that upgrades a schema of this version to the one that the crate needs. For version 0 (no schema),
/// and for the needed version and later ones, this includes the steps of [`super::finish_upgrade`]. Empty if there is
/// nothing to do.
///
/// [`StoreInfo::schema`](crate::store::StoreInfo::schema) is the needed version. A host keeps each text in a file, and
/// applies it in one transaction. A comment before each step says which versions work after it.
///
/// # Examples
///
/// ```
/// use stationmaster::store::postgres::{Schema, migrations_sql_from};
/// assert_eq!(migrations_sql_from(&Schema::default(), 1_000), "");
/// ```
pub fn migrations_sql_from(schema: &Schema, version: u32) -> String {
    let create = format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\";\n");
    let steps = schema.apply(&STEPS.text_from(version as usize));
    if version == 0 { create + &steps } else { steps }
}
