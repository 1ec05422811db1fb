//! A host with a PostgreSQL database.

use stationmaster::store::postgres::attach;
use stationmaster::store::postgres::tokio_postgres::{Client, NoTls, connect};
use stationmaster::store::{PostgresStore, Store, Tx};
use stationmaster::{Error, Result};
use tokio::runtime::{Builder, Runtime};

use crate::host::{Host, Rows};
use crate::scratch::{Scratch, query, rows, url};

/// Keeps its orders in the schema of our tables.
pub struct Shop {
    client: Client,
    runtime: Runtime,
    store: PostgresStore,
    schema: Scratch,
    tables: Vec<String>,
}

impl Shop {
    pub fn open() -> Self {
        let schema = Scratch::new();
        let store = schema.open(|options| options);
        query(&format!("CREATE TABLE \"{}\".orders (id BIGINT PRIMARY KEY)", schema.0));
        let tables = format!("SELECT tablename::text FROM pg_tables WHERE schemaname = '{}'", schema.0);
        let tables = rows(&tables).iter().map(|row| row.get(0)).collect();
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (client, connection) = runtime.block_on(connect(&url(), NoTls)).unwrap();
        runtime.spawn(connection);
        Self { client, runtime, store, schema, tables }
    }
}

impl Host for Shop {
    fn ship(&mut self, order: i64, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let (runtime, schema) = (&self.runtime, &self.schema.0);
        let transaction = runtime.block_on(self.client.transaction()).map_err(Error::abort)?;
        let ship = format!("INSERT INTO \"{schema}\".orders VALUES ({order})");
        runtime.block_on(transaction.batch_execute(&ship)).map_err(Error::abort)?;
        let done = std::thread::scope(|scope| {
            let (tx, serving) = attach(&transaction, schema);
            scope.spawn(|| runtime.block_on(serving));
            let mut tx = tx.tx();
            body(&mut tx)?;
            tx.check_whole()
        });
        let ended = match done {
            Ok(()) => runtime.block_on(transaction.commit()),
            Err(_) => runtime.block_on(transaction.rollback()),
        };
        ended.map_err(Error::abort)?;
        done
    }

    fn refuses_ticks(&self) -> bool {
        true
    }

    fn store(&self) -> &dyn Store {
        &self.store
    }

    fn rows(&self) -> Rows {
        let schema = &self.schema.0;
        let all = |table: &String| {
            format!("SELECT '{table}' AS name, t::text AS row FROM \"{schema}\".\"{table}\" AS t")
        };
        let all: Vec<String> = self.tables.iter().map(all).collect();
        let query = format!("{} ORDER BY name, row", all.join(" UNION ALL "));
        let (mut ours, mut orders) = (Vec::new(), 0);
        for row in self.runtime.block_on(self.client.query(&query, &[])).unwrap() {
            match row.get(0) {
                "orders" => orders += 1,
                table => ours.push(format!("{table} {}", row.get::<_, &str>(1))),
            }
        }
        Rows { ours, orders }
    }
}
