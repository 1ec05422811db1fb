//! A store in a PostgreSQL schema.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use stationmaster::error::{Error, Result, StoreError, StoreErrorKind};
use stationmaster::store::postgres::tokio_postgres::error::SqlState;
use stationmaster::store::postgres::tokio_postgres::{
    Client, Error as PgError, IsolationLevel, NoTls, connect,
};
use stationmaster::store::postgres::{PostgresOptions, PostgresStore, Schema, attach};
use stationmaster::store::{Durability, Store, StoreInfo, Tx, TxMode};
use tokio::runtime::{Builder, Runtime};

use super::Commits;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Level {
    pub const ALL: [Self; 3] = [Self::ReadCommitted, Self::RepeatableRead, Self::Serializable];

    pub fn isolation(self) -> IsolationLevel {
        match self {
            Self::ReadCommitted => IsolationLevel::ReadCommitted,
            Self::RepeatableRead => IsolationLevel::RepeatableRead,
            Self::Serializable => IsolationLevel::Serializable,
        }
    }
}

/// Who begins and ends the transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owner {
    Store,
    /// A host that hands its transaction to the store at once.
    Host,
    /// A host that looks at something first: above READ COMMITTED it then sees the database as it was before it waited for other
    /// writers.
    HostThatLooks,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Database {
    pub url: String,
    pub schema: String,
    /// The level of a host's transactions.
    pub level: Level,
    pub owner: Owner,
}

impl Database {
    pub fn options(&self) -> PostgresOptions {
        let schema = Schema::new(&self.schema).unwrap();
        PostgresOptions::new().schema(schema)
    }

    pub fn open(&self, commits: Commits) -> Result<Arc<dyn Store>> {
        let commit = match commits {
            Commits::Durable => Durability::Power,
            Commits::Quick => Durability::Process,
        };
        let options = self.options().durability(commit);
        let store = PostgresStore::connect(&self.url, options)?;
        Ok(match self.owner {
            Owner::Store => Arc::new(store),
            Owner::Host | Owner::HostThatLooks => Arc::new(Host::new(self, commits)),
        })
    }
}

/// A host with a connection and transactions of its own, in which the store works. What the host's own statements meet, it
/// answers as a store does.
#[derive(Debug)]
struct Host {
    runtime: Runtime,
    client: Mutex<Client>,
    schema: Schema,
    level: Level,
    looks: bool,
}

impl Host {
    fn new(database: &Database, commits: Commits) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let (client, connection) = connect(&database.url, NoTls).await.unwrap();
            tokio::spawn(connection);
            if commits == Commits::Quick {
                client.batch_execute("SET synchronous_commit = off").await.unwrap();
            }
            client
        });
        let schema = Schema::new(&database.schema).unwrap();
        Self {
            runtime,
            client: Mutex::new(client),
            schema,
            level: database.level,
            looks: database.owner == Owner::HostThatLooks,
        }
    }
}

/// The error of one of the host's own statements. Nothing of its transaction happened.
fn of_host(error: PgError) -> Error {
    match error.code() {
        Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED) => {
            StoreError::conflict(error.to_string()).into()
        }
        _ => StoreError::new(StoreErrorKind::Backend, error.to_string()).into(),
    }
}

impl Store for Host {
    fn info(&self) -> StoreInfo {
        StoreInfo::new("postgres of a host", 1, Durability::Process)
    }

    fn transact(&self, _: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let level = self.level.isolation();
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = client.build_transaction().isolation_level(level).start();
        let transaction = self.runtime.block_on(begin).map_err(of_host)?;
        if self.looks {
            self.runtime.block_on(transaction.batch_execute("SELECT 1")).map_err(of_host)?;
        }
        std::thread::scope(|scope| {
            let (tx, serving) = attach(&transaction, &self.schema);
            scope.spawn(|| self.runtime.block_on(serving));
            let mut tx = tx.tx();
            body(&mut tx)?;
            tx.check_whole()
        })?;
        self.runtime.block_on(transaction.commit()).map_err(of_host)
    }
}
