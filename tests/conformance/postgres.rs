//! The PostgreSQL store: on its own connections, behind a pooler, and in transactions that a host owns, at each isolation level.

use std::sync::{Mutex, PoisonError};

use stationmaster::conformance::{self, Capabilities, Readers};
use stationmaster::store::postgres::tokio_postgres::{Client, Config, IsolationLevel, NoTls};
use stationmaster::store::postgres::{PostgresOptions, Schema, Wake, attach};
use stationmaster::store::{Durability, PostgresStore, Store, StoreInfo, Tx, TxMode};
use stationmaster::{Error, Result};

use crate::scratch::rekeyed::as_by_a_pooler;
use crate::scratch::{Scratch, url};

/// Makes stores by these options, one after the other in one schema.
fn by(change: impl Fn(PostgresOptions) -> PostgresOptions) -> impl Fn() -> Box<dyn Store> {
    let scratch = Scratch::new();
    drop(scratch.open(|options| options));
    move || {
        scratch.empty();
        // What the suite notes it reads in the same transaction.
        Box::new(scratch.open(&change).numbering())
    }
}

fn conforms(change: impl Fn(PostgresOptions) -> PostgresOptions) {
    conformance::run_with(Capabilities::new().readers(Readers::GoOn), &by(change));
}

#[test]
fn postgres_by_default() {
    conforms(|options| options);
}

#[test]
fn postgres_with_connections_that_are_shared() {
    conforms(|options| options.connections(2).wake(Wake::InTransaction));
}

#[test]
fn postgres_as_behind_a_pooler() {
    let scratch = Scratch::new();
    drop(scratch.open(|options| options));
    conformance::run_with(Capabilities::new().readers(Readers::GoOn), &move || {
        scratch.empty();
        Box::new(PostgresStore::open(as_by_a_pooler(), scratch.options()).unwrap().numbering())
    });
}

#[test]
fn postgres_answers_as_the_memory_store_does() {
    conformance::model(&by(|options| options), 0..25, 80);
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

fn host_conforms(level: IsolationLevel) {
    let scratch = Scratch::new();
    drop(scratch.open(|options| options));
    conformance::run_with(Capabilities::new(), &|| {
        scratch.empty();
        Box::new(Host::open(&scratch.0, level))
    });
}

#[test]
fn postgres_in_transactions_that_a_host_owns_at_read_committed() {
    host_conforms(IsolationLevel::ReadCommitted);
}

#[test]
fn postgres_in_transactions_that_a_host_owns_at_repeatable_read() {
    host_conforms(IsolationLevel::RepeatableRead);
}

#[test]
fn postgres_in_transactions_that_a_host_owns_at_serializable() {
    host_conforms(IsolationLevel::Serializable);
}
