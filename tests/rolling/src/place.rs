//! Where a store is: a file, or a schema on the server that the crate's tests use.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use stationmaster::store::postgres::tokio_postgres::{Client, Config, NoTls};
use stationmaster::store::sqlite::rusqlite::Connection;

#[derive(Debug, Clone)]
pub enum Place {
    Sqlite(PathBuf),
    Postgres { url: String, schema: String },
}

impl Place {
    pub fn of_file(path: &Path) -> Self {
        Self::Sqlite(path.to_owned())
    }

    /// A schema that is not there yet.
    pub fn of_server() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let default = "postgres://postgres@127.0.0.1:5432/test".to_owned();
        let url = std::env::var("STATIONMASTER_TEST_POSTGRES").unwrap_or(default);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        Self::Postgres { url, schema: format!("rolling_{}_{number}", std::process::id()) }
    }

    /// As a child receives it.
    pub fn arguments(&self) -> [&str; 2] {
        match self {
            Self::Sqlite(path) => ["sqlite", path.to_str().unwrap()],
            Self::Postgres { url, schema } => [url, schema],
        }
    }

    pub fn of_arguments(first: &str, second: &str) -> Self {
        match first {
            "sqlite" => Self::Sqlite(second.into()),
            url => Self::Postgres { url: url.into(), schema: second.into() },
        }
    }

    /// Works with a connection of its own to the server.
    pub fn with_client<T>(&self, work: impl AsyncFnOnce(&mut Client) -> T) -> T {
        let Self::Postgres { url, .. } = self else { panic!("not on a server") };
        let config: Config = url.parse().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(async {
            let connected = config.connect(NoTls).await;
            let (mut client, connection) =
                connected.unwrap_or_else(|error| panic!("a server at {url}: {error}"));
            tokio::spawn(connection);
            work(&mut client).await
        })
    }

    /// Runs a text in one transaction, as the host's own migrator does.
    pub fn run(&self, sql: &str) {
        match self {
            Self::Sqlite(path) => {
                let conn = Connection::open(path).unwrap();
                conn.execute_batch(&format!("BEGIN IMMEDIATE; {sql} COMMIT")).unwrap();
            }
            Self::Postgres { .. } => {
                self.with_client(async |client| client.batch_execute(sql).await).unwrap()
            }
        }
    }

    /// The versions that the record of migrations has; none if there is no record.
    pub fn versions(&self) -> Vec<i64> {
        match self {
            Self::Sqlite(path) => {
                let conn = Connection::open(path).unwrap();
                let Ok(mut query) = conn.prepare("SELECT version FROM jobs_migration ORDER BY version")
                else {
                    return Vec::new();
                };
                query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
            }
            Self::Postgres { schema, .. } => self.with_client(async |client| {
                let query = format!("SELECT version FROM \"{schema}\".migration ORDER BY version");
                let rows = client.query_typed(&query, &[]).await.unwrap_or_default();
                rows.iter().map(|row| row.get(0)).collect()
            }),
        }
    }
}

/// What is left of a test goes, unless it failed.
impl Place {
    pub fn remove(&self) {
        if let Self::Postgres { schema, .. } = self {
            let drop =
                format!("SET client_min_messages = warning; DROP SCHEMA IF EXISTS \"{schema}\" CASCADE");
            self.with_client(async |client| client.batch_execute(&drop).await).unwrap();
        }
    }
}
