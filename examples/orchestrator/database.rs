//! The database: a SQLite file, or a schema of a PostgreSQL server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use stationmaster::store::{SqliteStore, Store};

use crate::trouble::Trouble;

/// The database that the user named.
#[derive(Debug, Clone)]
pub(crate) enum Database {
    File(PathBuf),
    Postgres { url: String, schema: String },
}

impl Database {
    /// Returns the database that `--db` names.
    pub(crate) fn named(db: &Path, schema: &str) -> Self {
        match db.to_str() {
            Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
                Self::Postgres { url: url.to_owned(), schema: schema.to_owned() }
            }
            _ => Self::File(db.to_owned()),
        }
    }

    /// Opens it, and creates its tables if necessary.
    pub(crate) fn open(&self, work: &Path) -> Result<Arc<dyn Store>, Trouble> {
        match self {
            Self::File(file) => open_file(file, work),
            Self::Postgres { url, schema } => open_postgres(url, schema),
        }
    }
}

fn open_file(file: &Path, work: &Path) -> Result<Arc<dyn Store>, Trouble> {
    // The default folder is ours to create. Any other folder must exist, because a missing one may be a typing
    // error.
    if file.starts_with(work) {
        std::fs::create_dir_all(work).map_err(|error| {
            Trouble::input(format!(
                "cannot make the directory {}: {error}: give another --db",
                work.display()
            ))
        })?;
    }
    match SqliteStore::open(file, Default::default()) {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(Trouble::input(format!(
            "cannot use the database {}: {error}: give another --db",
            file.display()
        ))),
    }
}

#[cfg(feature = "postgres")]
fn open_postgres(url: &str, schema: &str) -> Result<Arc<dyn Store>, Trouble> {
    use stationmaster::store::PostgresStore;
    use stationmaster::store::postgres::PostgresOptions;

    let options = schema.try_into().map(|schema| PostgresOptions::new().schema(schema));
    let options = options.map_err(|error| Trouble::input(error.to_string()))?;
    match PostgresStore::connect(url, options) {
        Ok(store) => Ok(Arc::new(store)),
        // The URL may contain a password.
        Err(error) => {
            Err(Trouble::input(format!("cannot use the PostgreSQL database: {error}: give another --db")))
        }
    }
}

#[cfg(not(feature = "postgres"))]
fn open_postgres(_: &str, _: &str) -> Result<Arc<dyn Store>, Trouble> {
    Err(Trouble::input(
        "this program was built without PostgreSQL: build it with `--features postgres`, or give a file as --db",
    ))
}
