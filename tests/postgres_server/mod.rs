//! The PostgreSQL server that tests use, and schemas of their own on it.

use std::sync::atomic::{AtomicU32, Ordering};

use stationmaster::store::postgres::tokio_postgres::{Client, NoTls, SimpleQueryMessage, connect};
use tokio::runtime::{Builder, Runtime};

const VARIABLE: &str = "STATIONMASTER_TEST_POSTGRES";
const DEFAULT: &str = "postgres://postgres@127.0.0.1:5432/test";

/// The server's URL.
pub fn url() -> String {
    std::env::var(VARIABLE).unwrap_or_else(|_| DEFAULT.to_owned())
}

/// The same URL with one more parameter.
pub fn with(url: &str, parameter: &str) -> String {
    let joint = if url.contains('?') { '&' } else { '?' };
    format!("{url}{joint}{parameter}")
}

/// A plain connection, for what a test asks the server itself.
pub struct Plain {
    runtime: Runtime,
    client: Client,
}

impl Plain {
    /// Connects; a test without a server fails with what to do about it.
    pub fn connect(url: &str) -> Self {
        Self::try_connect(url).unwrap_or_else(|error| {
            panic!(
                "no PostgreSQL server answers at {url}: {error}\n\
                 start one, for example\n    \
                 apt-get install postgresql && service postgresql start\n    \
                 docker run --rm -e POSTGRES_HOST_AUTH_METHOD=trust -e POSTGRES_DB=test -p 5432:5432 postgres\n\
                 or name one in {VARIABLE}=postgres://user:password@host:port/database"
            )
        })
    }

    pub fn try_connect(url: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (client, connection) = runtime.block_on(connect(url, NoTls))?;
        runtime.spawn(connection);
        Ok(Self { runtime, client })
    }

    /// Runs statements; the answer is the rows of all of them, as text.
    pub fn ask(&self, sql: &str) -> Vec<Vec<Option<String>>> {
        let messages = self.runtime.block_on(self.client.simple_query(sql));
        let messages = messages.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
            }
            _ => None,
        });
        rows.collect()
    }

    /// The first column of the first row, as a number.
    pub fn number(&self, sql: &str) -> i64 {
        let rows = self.ask(sql);
        rows[0][0].as_deref().expect("a value").parse().expect("a number")
    }
}

/// A schema of the test's own; it is dropped with this.
pub struct Scratch {
    pub url: String,
    pub schema: String,
}

impl Scratch {
    pub fn new(what: &str) -> Self {
        Self::on(&url(), what)
    }

    pub fn on(url: &str, what: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let schema = format!("sm_{what}_{}_{count}", std::process::id());
        Plain::connect(url).ask(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
        Self { url: url.to_owned(), schema }
    }

    pub fn plain(&self) -> Plain {
        Plain::connect(&self.url)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Ok(plain) = Plain::try_connect(&self.url) {
            // Clients that were killed may not have let go yet.
            plain.ask(&format!("SET lock_timeout = '20s'; DROP SCHEMA IF EXISTS {} CASCADE", self.schema));
        }
    }
}
