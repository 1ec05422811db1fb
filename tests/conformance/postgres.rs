//! The PostgreSQL store: on its own connections, behind a pooler, and in transactions that a host owns, at each isolation level.

use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};

use stationmaster::conformance::{self, Capabilities, Readers};
use stationmaster::store::postgres::tokio_postgres::{Client, Config, IsolationLevel, NoTls};
use stationmaster::store::postgres::{Schema, Wake, attach};
use stationmaster::store::{Durability, PostgresStore, Store, StoreInfo, Tx, TxMode};
use stationmaster::{Error, Result};

use crate::scratch::rekeyed::as_by_a_pooler;
use crate::scratch::{Scratch, Stores, url};

/// Lends the same store again and again, emptied. What the suite notes it reads in the same transaction.
fn lent(open: impl Fn(&Scratch) -> PostgresStore + Send + Sync + 'static) -> impl Fn() -> Box<dyn Store> {
    let stores = Stores::new(move |scratch| open(scratch).numbering());
    move || Box::new(stores.lend())
}

fn conforms(open: impl Fn(&Scratch) -> PostgresStore + Send + Sync + 'static) {
    conformance::run_with(Capabilities::new().readers(Readers::GoOn), &lent(open));
}

#[test]
fn postgres_by_default() {
    conforms(|scratch| scratch.open(|options| options));
}

#[test]
fn postgres_with_connections_that_are_shared() {
    conforms(|scratch| scratch.open(|options| options.connections(2).wake(Wake::InTransaction)));
}

/// A few sequences of all operations. `.ci/pgbouncer` runs every case behind a real pooler, and so does this test
/// with `STATIONMASTER_CASES=all`.
#[test]
fn postgres_as_behind_a_pooler() {
    let pooled = |scratch: &Scratch| PostgresStore::open(as_by_a_pooler(), scratch.options()).unwrap();
    if tries_all() {
        conforms(pooled);
    } else {
        conformance::model(&lent(pooled), 0..2, 80);
    }
}

#[test]
fn postgres_answers_as_the_memory_store_does() {
    let seeds = if tries_all() { 25 } else { 6 };
    conformance::model(&lent(|scratch| scratch.open(|options| options)), 0..seeds, 80);
}

/// Whether the suite tries every case at every level, and every sequence; otherwise a sample of them.
fn tries_all() -> bool {
    std::env::var("STATIONMASTER_CASES").is_ok_and(|cases| cases == "all")
}

/// A host that owns the connection and its transactions.
#[derive(Debug)]
struct Host {
    runtime: tokio::runtime::Runtime,
    client: Mutex<Client>,
    schema: Schema,
    level: IsolationLevel,
}

impl Host {
    fn open(schema: &Schema, level: IsolationLevel) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let config: Config = url().parse().unwrap();
            let (client, connection) = config.connect(NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute("SET synchronous_commit = off").await.unwrap();
            client
        });
        Self { runtime, client: Mutex::new(client), schema: schema.clone(), level }
    }
}

impl Store for Host {
    fn info(&self) -> StoreInfo {
        StoreInfo::new("postgres of a host", 1, Durability::Process)
    }

    fn transact(&self, _: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = client.build_transaction().isolation_level(self.level).start();
        let transaction = self.runtime.block_on(begin).map_err(Error::abort)?;
        std::thread::scope(|scope| {
            let (tx, serving) = attach(&transaction, &self.schema);
            scope.spawn(|| self.runtime.block_on(serving));
            // What the suite notes it reads in the same transaction.
            let mut tx = tx.numbering().tx();
            body(&mut tx)?;
            tx.check_whole()
        })?;
        self.runtime.block_on(transaction.commit()).map_err(Error::abort)
    }
}

/// The same host for each case.
#[derive(Debug)]
struct Shared(Arc<Host>);

impl Store for Shared {
    fn info(&self) -> StoreInfo {
        self.0.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.0.transact(mode, body)
    }
}

const LEVELS: [IsolationLevel; 3] =
    [IsolationLevel::ReadCommitted, IsolationLevel::RepeatableRead, IsolationLevel::Serializable];

/// Runs each case at one level, the next case at the next one, and so on from this level. Returns what failed.
fn by_turns(scratch: &Scratch, hosts: &[Arc<Host>], first: usize) -> Vec<String> {
    let turn = Cell::new(first);
    let failures = conformance::failures(Capabilities::new(), &|| {
        scratch.empty();
        Box::new(Shared(hosts[turn.replace(turn.get() + 1) % hosts.len()].clone()))
    });
    let cases = conformance::cases(Capabilities::new());
    let level = |case: &str| {
        let place = cases.iter().position(|known| known.name == case).unwrap();
        LEVELS[(first + place) % LEVELS.len()]
    };
    failures.iter().map(|failure| format!("at {:?}: {failure}", level(failure.case))).collect()
}

/// Every level sees a third of the cases. With `STATIONMASTER_CASES=all` every level sees every case.
#[test]
fn postgres_in_transactions_that_a_host_owns() {
    let scratch = Scratch::new();
    drop(scratch.open(|options| options));
    let hosts = LEVELS.map(|level| Arc::new(Host::open(&scratch.0, level)));
    let firsts = if tries_all() { 0..LEVELS.len() } else { 0..1 };
    let failed: Vec<String> = firsts.flat_map(|first| by_turns(&scratch, &hosts, first)).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
