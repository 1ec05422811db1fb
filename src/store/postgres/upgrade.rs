//! Upgrades a schema one step at a time, while other processes use it.
//!
//! Each step is its own transaction. It first takes a lock that the server releases at its end. So a killed migrator
//! leaves only complete steps behind and blocks no other process. The next migrator continues after the last step.
//! Between two steps another migrator, even of an older version, may run, so each one looks again under the lock.

use std::time::{Duration, Instant};

use sha1::{Digest, Sha1};
use tokio_postgres::{Client, IsolationLevel};

use super::error::{Failure, store_error};
use super::migrate::{Found, STEPS, inspect};
use super::name::Schema;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::store::sql::ledger::Goal;

/// How long a step is tried while open transactions hold its tables.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a step waits for a table. Other transactions wait behind it, so it gives up early, and is tried again.
const SHORT_WAITS: &str = "SET LOCAL lock_timeout = '1s'";

/// Lets transactions pass that waited behind a step. Sleeps on the server, because the host's runtime may have no
/// timers.
const PAUSE: &str = "SELECT pg_sleep(0.2)";

/// Creates the store's schema and tables, or brings them to the version that this version of the crate needs.
///
/// Each step is its own transaction, and only one caller at a time applies it. A process of the previous version of
/// the crate works beside these steps. Steps that it cannot work with are left to [`finish_upgrade`], or to the next
/// version of the crate that changes the schema. `docs/upgrading.md` in the repository describes a whole upgrade.
///
/// A step waits at most a second for a table that an open transaction holds, and is tried again for 20 s.
///
/// # Errors
///
/// [`StoreErrorKind::Schema`] if the tables were written by another program, or by a newer version of the
/// crate that this one cannot work beside. [`StoreErrorKind::Busy`] if a transaction that stays open holds
/// the tables. Any error from the server. The step that failed was undone; the steps before it are done.
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
    bring(client, schema, Goal::Working).await
}

/// Ends an upgrade: applies what [`migrate`] does, and the steps that older versions cannot work beside.
///
/// Call it when no process of an older version is left. If one still runs, its next transaction is refused with kind
/// [`StoreErrorKind::Schema`]. The call waits for that process's open transactions. Until this is called, a process
/// of the previous version may come back. If it is never called, the next version of the crate that changes the
/// schema does it on opening.
///
/// # Errors
///
/// As [`migrate`].
///
/// # Examples
///
/// ```no_run
/// # async fn example(mut client: stationmaster::store::postgres::tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// use stationmaster::store::postgres::{Schema, finish_upgrade};
/// finish_upgrade(&mut client, &Schema::default()).await?;
/// # Ok(())
/// # }
/// ```
pub async fn finish_upgrade(client: &mut Client, schema: &Schema) -> StoreResult<()> {
    bring(client, schema, Goal::Whole).await
}

async fn bring(client: &mut Client, schema: &Schema, goal: Goal) -> StoreResult<()> {
    let mut applied = inspect(client, schema).await?.applied();
    let mut began = Instant::now();
    while !STEPS.next(applied, goal).is_empty() {
        match step(client, schema, goal).await {
            Ok(now) => (applied, began) = (now, Instant::now()),
            Err(error) if !matches!(error.kind(), StoreErrorKind::Busy | StoreErrorKind::Conflict) => {
                return Err(error);
            }
            Err(error) if began.elapsed() >= PATIENCE => {
                let text = format!(
                    "the next step of the schema was tried for {PATIENCE:?}, while transactions that stay open held its \
                     tables: end them, and call again ({error})"
                );
                return Err(StoreError::new(StoreErrorKind::Busy, text).with_source(error));
            }
            Err(_) => client.batch_execute(PAUSE).await.map_err(store_error)?,
        }
    }
    Ok(())
}

/// Applies the next step, unless another migrator did meanwhile. Returns how many steps are then applied.
async fn step(client: &mut Client, schema: &Schema, goal: Goal) -> StoreResult<usize> {
    let transaction = client
        .build_transaction()
        .isolation_level(IsolationLevel::ReadCommitted)
        .read_only(false)
        .start()
        .await
        .map_err(store_error)?;
    let lock = format!("SELECT pg_advisory_xact_lock({}); {SHORT_WAITS}", lock_number(schema));
    transaction.batch_execute(&lock).await.map_err(|error| StoreError::from(Failure::of_waiting(error)))?;
    let found = inspect(&transaction, schema).await?;
    let next = STEPS.next(found.applied(), goal);
    let applied = next.end;
    if !next.is_empty() {
        let create = match found {
            Found::Nothing => format!("CREATE SCHEMA \"{schema}\";\n"),
            Found::Schema | Found::Applied(_) => String::new(),
        };
        transaction.batch_execute(&(create + &schema.apply(&STEPS.sql(next)))).await.map_err(store_error)?;
        transaction.commit().await.map_err(store_error)?;
    }
    Ok(applied)
}

/// Returns the number of the advisory lock for migrations of this schema.
fn lock_number(schema: &Schema) -> i64 {
    let digest = Sha1::digest(format!("stationmaster migration of {schema}"));
    digest.iter().take(8).fold(0, |number, byte| number << 8 | i64::from(*byte))
}
