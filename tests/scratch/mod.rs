//! Schemas of their own for tests, in the PostgreSQL database that `STATIONMASTER_TEST_POSTGRES` names. Dropped with
//! what made them, or at the end of the process if its tests lend them to each other.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod lent;
pub mod rekeyed;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use lent::Lent;
use stationmaster::Result;
use stationmaster::store::Durability;
use stationmaster::store::postgres::tokio_postgres::{Client, Config, Error as PgError, NoTls, Row};
use stationmaster::store::postgres::{PostgresOptions, Schema};
use stationmaster::store::{PostgresStore, Store, StoreInfo, Tx, TxMode};
use tokio::runtime::{Builder, Runtime};

const DEFAULT: &str = "postgres://postgres@127.0.0.1:5432/test";

pub fn url() -> String {
    std::env::var("STATIONMASTER_TEST_POSTGRES").unwrap_or_else(|_| DEFAULT.into())
}

/// A schema that is there for one test.
#[derive(Debug)]
pub struct Scratch(pub Schema);

impl Scratch {
    /// A name that no other test has. Nothing is made.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self::named(&format!("sm_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    /// A schema of this name, which no other test uses. Nothing is made.
    pub fn named(name: &str) -> Self {
        let scratch = Self(Schema::new(name).unwrap());
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
        let tables = "attempt beat cap consumer delta family feed feed_inbox idle lane lane_order lane_use lease level limit_use namespace note numbers outage pause poke_count pool \
                      pool_use rate_use ready ready_lane request run run_beat sensor sensor_change sensor_inbox serving shard shard_take share_clock share_use task task_limit tick turn \
                      worker";
        let delete: String =
            tables.split(' ').map(|table| format!("DELETE FROM \"{schema}\".{table};")).collect();
        query(&format!(
            "{delete} INSERT INTO \"{schema}\".tick VALUES (1, '1:1:', -9223372036854775808, '{{}}'); \
             INSERT INTO \"{schema}\".share_clock VALUES (0); \
             INSERT INTO \"{schema}\".numbers VALUES (0, 0, 0, 0); \
             INSERT INTO \"{schema}\".pool (name, slots) VALUES ('default_pool', 128); \
             SELECT setval('\"{schema}\".task_no', 1, false)"
        ));
    }

    fn drop_schema(&self) {
        drop_named(self.0.as_str());
    }
}

fn drop_named(schema: &str) {
    query(&format!("SET LOCAL client_min_messages = warning; DROP SCHEMA IF EXISTS \"{schema}\" CASCADE"));
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.drop_schema();
        }
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
}

impl Store for ScratchStore {
    fn info(&self) -> StoreInfo {
        self.store.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.store.transact(mode, body)
    }
}

/// Stores that are lent one after the other. Connecting and preparing statements takes as long as ten
/// transactions, so a store that comes back is emptied and lent again.
pub struct Stores {
    open: Box<dyn Fn(&Scratch) -> PostgresStore + Send + Sync>,
    free: Arc<Mutex<Vec<Open>>>,
}

/// A store, closed before its schema goes to another test.
#[derive(Debug)]
struct Open {
    store: PostgresStore,
    schema: Lent,
}

impl Stores {
    pub fn new(open: impl Fn(&Scratch) -> PostgresStore + Send + Sync + 'static) -> Self {
        Self { open: Box::new(open), free: Arc::default() }
    }

    /// A store with nothing in it, in a schema that no other store has at present.
    pub fn lend(&self) -> LentStore {
        let free = self.free.lock().unwrap().pop();
        let open = match free {
            Some(used) => {
                used.schema.empty();
                used
            }
            None => {
                let schema = Lent::new();
                Open { store: (self.open)(&schema), schema }
            }
        };
        LentStore { open: Some(open), free: Arc::downgrade(&self.free) }
    }
}

/// A store that goes back to those that lent it. If they are gone, it is closed, and another test gets its schema.
#[derive(Debug)]
pub struct LentStore {
    open: Option<Open>,
    free: Weak<Mutex<Vec<Open>>>,
}

impl Store for LentStore {
    fn info(&self) -> StoreInfo {
        self.open.as_ref().unwrap().store.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.open.as_ref().unwrap().store.transact(mode, body)
    }
}

impl Drop for LentStore {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if let (Some(free), Some(open)) = (self.free.upgrade(), self.open.take()) {
            free.lock().unwrap().push(open);
        }
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

/// A connection for what tests ask the server themselves. Connecting takes longer than most of what is asked, so
/// it is used again.
struct Line {
    runtime: Runtime,
    client: Client,
}

impl Line {
    fn connect() -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let config: Config = url().parse().expect("STATIONMASTER_TEST_POSTGRES is a URL");
            let (client, connection) =
                config.connect(NoTls).await.unwrap_or_else(|error| unreachable(&error));
            tokio::spawn(connection);
            client
        });
        Self { runtime, client }
    }

    /// A statement that is prepared by name would be left behind in a pooler.
    fn ask(&self, sql: &str, has_rows: bool) -> std::result::Result<Vec<Row>, PgError> {
        self.runtime.block_on(async {
            match has_rows {
                true => self.client.query_typed(sql, &[]).await,
                false => self.client.batch_execute(sql).await.map(|()| Vec::new()),
            }
        })
    }
}

/// On a thread of its own, so that the caller may be in a runtime.
fn ask(sql: &str, has_rows: bool) -> Vec<Row> {
    static FREE: Mutex<Vec<Line>> = Mutex::new(Vec::new());
    let asking = || {
        loop {
            let free = FREE.lock().unwrap().pop();
            let (line, is_new) = free.map_or_else(|| (Line::connect(), true), |line| (line, false));
            match line.ask(sql, has_rows) {
                // The server may have closed it while it was not in use.
                Err(error) if error.is_closed() && !is_new => {}
                Err(error) => panic!("{sql}: {error:?}"),
                Ok(rows) => {
                    FREE.lock().unwrap().push(line);
                    return rows;
                }
            }
        }
    };
    std::thread::scope(|scope| match scope.spawn(asking).join() {
        Ok(rows) => rows,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Runs statements without parameters.
pub fn query(sql: &str) {
    ask(sql, false);
}

/// Runs one statement without parameters, and returns its rows.
pub fn rows(sql: &str) -> Vec<Row> {
    ask(sql, true)
}

fn unreachable(error: &dyn std::error::Error) -> ! {
    panic!(
        "these tests need a PostgreSQL server at {}: {error}. Start one (Debian: `apt-get install postgresql`, or \
         `docker run -e POSTGRES_HOST_AUTH_METHOD=trust -p 5432:5432 postgres`), make a database, and name it in \
         STATIONMASTER_TEST_POSTGRES",
        url()
    )
}
