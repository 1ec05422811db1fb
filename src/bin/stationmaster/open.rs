//! Opens the store that `--db` names, and starts nothing in it.

use std::sync::Arc;

use stationmaster::Timestamp;
use stationmaster::clock::Clock;
use stationmaster::store::Store;

use crate::args::Options;
use crate::failure::Failure;

/// What the command does with the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Reads,
    /// Reads everything, for as long as that takes.
    ReadsAll,
    Changes,
    /// Reads for several people at once.
    #[cfg(feature = "dashboard")]
    Pages,
}

/// A store, and the clock that decides leases in it.
pub struct Opened {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
}

impl Opened {
    #[allow(dead_code, reason = "a build may have no store")]
    fn new(store: impl Store + 'static, clock: impl Clock + 'static) -> Self {
        Self { store: Arc::new(store), clock: Arc::new(clock) }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

pub fn open(options: &Options, access: Access) -> Result<Opened, Failure> {
    let Some(db) = &options.db else {
        let text =
            "name the store: --db FILE, --db postgres://USER@HOST/DATABASE, or the variable STATIONMASTER_DB";
        return Err(Failure::Usage(text.into()));
    };
    let is_server =
        ["postgres://", "postgresql://", "host=", "dbname="].iter().any(|begin| db.starts_with(begin));
    if is_server { postgres(db, options, access) } else { sqlite(db, options, access) }
}

#[cfg(feature = "postgres")]
fn postgres(db: &str, options: &Options, access: Access) -> Result<Opened, Failure> {
    use std::time::Duration;

    use stationmaster::store::PostgresStore;
    use stationmaster::store::postgres::{PostgresOptions, Schema, Wake};

    let with = PostgresOptions::new().schema(Schema::new(&options.schema)?).apply_migrations(false);
    let with = match access {
        Access::Reads => with.connections(1).wake(Wake::Never),
        Access::ReadsAll => with.connections(1).wake(Wake::Never).statement_timeout(Duration::ZERO),
        Access::Changes => with.connections(2),
        #[cfg(feature = "dashboard")]
        Access::Pages => with.connections(2).wake(Wake::Never),
    };
    let store = PostgresStore::connect(db, with)?;
    let clock = store.clock();
    Ok(Opened::new(store, clock))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &str, _: &Options, _: Access) -> Result<Opened, Failure> {
    Err(without("PostgreSQL", "postgres"))
}

/// Creates nothing, so that a mistyped name leaves nothing behind. If the command only reads, it does not change the
/// file.
#[cfg(feature = "sqlite")]
fn sqlite(db: &str, options: &Options, access: Access) -> Result<Opened, Failure> {
    use stationmaster::clock::SystemClock;
    use stationmaster::store::SqliteStore;
    use stationmaster::store::sqlite::{Prefix, SqliteOptions};

    if !std::path::Path::new(db).is_file() {
        return Err(Failure::Store(format!("{db}: there is no such file, and none is created here")));
    }
    let with = SqliteOptions::new().prefix(Prefix::new(&options.prefix)?);
    let with = match access {
        Access::Changes => with.apply_migrations(false),
        _ => with.read_only(true),
    };
    Ok(Opened::new(SqliteStore::open(db, with)?, SystemClock))
}

#[cfg(not(feature = "sqlite"))]
fn sqlite(_: &str, _: &Options, _: Access) -> Result<Opened, Failure> {
    Err(without("SQLite", "sqlite"))
}

#[cfg(not(all(feature = "sqlite", feature = "postgres")))]
fn without(what: &str, feature: &str) -> Failure {
    Failure::Usage(format!("this program was built without {what}: build it with the feature `{feature}`"))
}
