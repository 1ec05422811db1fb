//! The PostgreSQL store: on its own connections, behind a pooler, and in transactions that a host owns, at each isolation level.

use std::sync::{Mutex, PoisonError};

use stationmaster::conformance::{self, Capabilities, Readers};
use stationmaster::store::postgres::tokio_postgres::{Client, Config, IsolationLevel, NoTls};
use stationmaster::store::postgres::{Schema, Wake, attach};
use stationmaster::store::{Durability, PostgresStore, Store, StoreInfo, Tx, TxMode};
use stationmaster::testing::RawStoreExt;
use stationmaster::{Error, Result};

use crate::scratch::rekeyed::as_by_a_pooler;
use crate::scratch::{Scratch, Stores, url};

/// Lends the same store again and again, emptied. What the suite notes it reads in the same transaction.
fn lent(open: impl Fn(&Scratch) -> PostgresStore + Send + Sync + 'static) -> impl Fn() -> Box<dyn Store> {
    let stores = Stores::new(move |scratch| open(scratch).numbering());
    move || Box::new(stores.lend())
}

/// Runs the suite. With `STATIONMASTER_CASES=sample` it runs every third case and two sequences of all operations.
fn conforms(open: impl Fn(&Scratch) -> PostgresStore + Send + Sync + 'static) {
    let (capabilities, lent) = (Capabilities::new().readers(Readers::GoOn), lent(open));
    if !is_asked_for("sample") {
        return conformance::run_with(capabilities, &lent);
    }
    for case in conformance::cases(capabilities).iter().step_by(3) {
        // Shown if the case panics.
        println!("{}", case.name);
        (case.run)(&*lent());
    }
    conformance::model(&lent, 0..2, 80);
}

#[test]
fn postgres_by_default() {
    conforms(|scratch| scratch.open(|options| options));
}

/// Runs two sequences of all operations, and every case with `STATIONMASTER_CASES=all`.
fn conforms_by_sample(open: impl Fn(&Scratch) -> PostgresStore + Send + Sync + 'static) {
    if tries_all() {
        conforms(open);
    } else {
        conformance::model(&lent(open), 0..2, 80);
    }
}

#[test]
fn postgres_with_connections_that_are_shared() {
    conforms_by_sample(|scratch| scratch.open(|options| options.connections(2).wake(Wake::InTransaction)));
}

/// `.ci/pgbouncer` runs cases behind a real pooler.
#[test]
fn postgres_as_behind_a_pooler() {
    conforms_by_sample(|scratch| PostgresStore::open(as_by_a_pooler(), scratch.options()).unwrap());
}

#[test]
fn postgres_answers_as_the_memory_store_does() {
    let seeds = if tries_all() { 25 } else { 6 };
    conformance::model(&lent(|scratch| scratch.open(|options| options)), 0..seeds, 80);
}

/// Whether the suite tries every case at every level, and every sequence; otherwise a sample of them.
fn tries_all() -> bool {
    is_asked_for("all")
}

fn is_asked_for(cases: &str) -> bool {
    std::env::var("STATIONMASTER_CASES").is_ok_and(|named| named == cases)
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

/// Runs every `every`-th case in a host's transactions at this level, beginning with case `first`.
/// With `STATIONMASTER_CASES=all` it runs every case.
fn conforms_at(level: IsolationLevel, every: usize, first: usize) {
    let scratch = Scratch::new();
    drop(scratch.open(|options| options));
    let host = Host::open(&scratch.0, level);
    let every = if tries_all() { 1 } else { every };
    for case in conformance::cases(Capabilities::new()).iter().skip(first % every).step_by(every) {
        scratch.empty();
        // Shown if the case panics.
        println!("{}", case.name);
        (case.run)(&host);
        assert_eq!(host.read_raw(|raw| Ok::<_, Error>(raw.audit()?)).unwrap(), [], "{}", case.name);
    }
}

#[test]
fn postgres_in_a_hosts_transactions_that_read_what_is_committed() {
    conforms_at(IsolationLevel::ReadCommitted, 3, 0);
}

#[test]
fn postgres_in_a_hosts_transactions_that_read_repeatably() {
    conforms_at(IsolationLevel::RepeatableRead, 6, 1);
}

#[test]
fn postgres_in_a_hosts_transactions_that_are_serializable() {
    conforms_at(IsolationLevel::Serializable, 6, 2);
}
