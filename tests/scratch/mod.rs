//! Schemas of their own for tests, in the PostgreSQL database that `STATIONMASTER_TEST_POSTGRES` names. Dropped with what made them.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod rekeyed;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use stationmaster::Result;
use stationmaster::store::Durability;
use stationmaster::store::postgres::tokio_postgres::{Client, Config, NoTls, Row};
use stationmaster::store::postgres::{PostgresOptions, Schema};
use stationmaster::store::{PostgresStore, Store, StoreInfo, Tx, TxMode};

const DEFAULT: &str = "postgres://postgres@127.0.0.1:5432/test";

pub fn url() -> String {
    std::env::var("STATIONMASTER_TEST_POSTGRES").unwrap_or_else(|_| DEFAULT.into())
}

/// A schema that is there for one test, or until those that lent it want it back.
#[derive(Debug)]
pub struct Scratch(pub Schema, Weak<Free>);

type Free = Mutex<Vec<Scratch>>;

impl Scratch {
    /// A name that no other test has. Nothing is made.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("sm_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let scratch = Self(Schema::new(name).unwrap(), Weak::new());
        scratch.drop_schema();
        scratch
    }

    /// The fastest options for a store in it.
    pub fn options(&self) -> PostgresOptions {
        PostgresOptions::new().schema(self.0.clone()).durability(Durability::Process)
    }

    /// A store in it.
    pub fn open(&self, change: impl FnOnce(PostgresOptions) -> PostgresOptions) -> PostgresStore {
        PostgresStore::connect(&url(), change(self.options())).unwrap_or_else(|error| unreachable(&error))
    }

    /// Makes a store's tables in it as they were when they were made: faster than making them again.
    pub fn empty(&self) {
        let schema = &self.0;
        let tables = "beat delta event event_inbox idle lane lane_use lease level limit_use namespace numbers pool \
                      pool_use ready request run sensor sensor_change sensor_inbox shard task task_limit tick worker";
        let delete: String =
            tables.split(' ').map(|table| format!("DELETE FROM \"{schema}\".{table};")).collect();
        query(&format!(
            "{delete} INSERT INTO \"{schema}\".tick VALUES (1, '1:1:', -9223372036854775808, '{{}}'); \
             INSERT INTO \"{schema}\".numbers VALUES (0, 0, 0, 0); \
             ALTER SEQUENCE \"{schema}\".task_no RESTART; \
             INSERT INTO \"{schema}\".pool (name, slots) VALUES ('default_pool', 128)"
        ));
    }

    fn drop_schema(&self) {
        query(&format!(
            "SET LOCAL client_min_messages = warning; DROP SCHEMA IF EXISTS \"{}\" CASCADE",
            self.0
        ));
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        match self.1.upgrade() {
            Some(free) => free.lock().unwrap().push(Self(self.0.clone(), Weak::new())),
            None => self.drop_schema(),
        }
    }
}

/// Schemas for stores that come and go: making one takes as long as a hundred transactions, emptying one as a few.
#[derive(Debug, Default)]
pub struct Schemas(Arc<Free>);

impl Schemas {
    /// A store with nothing in it, in a schema that no other store has at present.
    pub fn open(&self) -> ScratchStore {
        let free = self.0.lock().unwrap().pop();
        let mut scratch = free.inspect(Scratch::empty).unwrap_or_else(Scratch::new);
        scratch.1 = Arc::downgrade(&self.0);
        ScratchStore { store: scratch.open(|options| options), scratch }
    }
}

/// A store in a schema of its own, closed before that goes.
#[derive(Debug)]
pub struct ScratchStore {
    pub store: PostgresStore,
    pub scratch: Scratch,
}

impl ScratchStore {
    pub fn open(change: impl FnOnce(PostgresOptions) -> PostgresOptions) -> Self {
        let scratch = Scratch::new();
        Self { store: scratch.open(change), scratch }
    }

    /// So that a transaction sees the numbers of the sensors and events that it changes.
    pub fn numbering(self) -> Self {
        Self { store: self.store.numbering(), scratch: self.scratch }
    }
}

impl Store for ScratchStore {
    fn info(&self) -> StoreInfo {
        self.store.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.store.transact(mode, body)
    }
}

/// Does something with a connection of the test's own, on a thread of its own.
pub fn with_client<T: Send + 'static, F>(work: impl FnOnce(Client) -> F + Send + 'static) -> T
where
    F: Future<Output = T>,
{
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let config: Config = url().parse().expect("STATIONMASTER_TEST_POSTGRES is a URL");
            let (client, connection) =
                config.connect(NoTls).await.unwrap_or_else(|error| unreachable(&error));
            tokio::spawn(connection);
            work(client).await
        })
    });
    match thread.join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs statements without parameters.
pub fn query(sql: &str) {
    let sql = sql.to_owned();
    with_client(move |client| async move {
        client.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    });
}

/// Runs one statement without parameters, and answers its rows.
pub fn rows(sql: &str) -> Vec<Row> {
    let sql = sql.to_owned();
    with_client(move |client| async move {
        // A statement that is prepared by name would be left behind in a pooler.
        client.query_typed(&sql, &[]).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    })
}

fn unreachable(error: &dyn std::error::Error) -> ! {
    panic!(
        "these tests need a PostgreSQL server at {}: {error}. Start one (Debian: `apt-get install postgresql`, or \
         `docker run -e POSTGRES_HOST_AUTH_METHOD=trust -p 5432:5432 postgres`), make a database, and name it in \
         STATIONMASTER_TEST_POSTGRES",
        url()
    )
}
