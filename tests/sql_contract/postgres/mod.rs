//! A host on PostgreSQL, with a driver that knows nothing of the crate.

mod hosts;
mod many;
mod rights;
mod waking;

use std::time::Duration;

use stationmaster::store::postgres::Schema;
use stationmaster::store::postgres::tokio_postgres::types::private::BytesMut;
use stationmaster::store::postgres::tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use stationmaster::store::postgres::tokio_postgres::{Client, Config, Error, NoTls, Row};
use tokio::runtime::{Builder, Runtime};

use crate::contract::statement;
use crate::scratch::{Scratch, url};
use crate::world::{Answer, Host, Refusal, Value, World};

pub struct PostgresHost {
    runtime: Runtime,
    client: Client,
    schema: Schema,
}

pub fn world() -> World {
    let (world, []) = world_with();
    world
}

/// A world with more connections like that of its host.
fn world_with<const N: usize>() -> (World, [PostgresHost; N]) {
    let scratch = Scratch::new();
    let store = scratch.open(|options| options);
    let host = PostgresHost::connect(&scratch.0, &url());
    host.batch("CREATE TABLE stationmaster.orders (id BIGINT PRIMARY KEY, state TEXT NOT NULL)");
    let more = std::array::from_fn(|_| PostgresHost::connect(&scratch.0, &url()));
    (World::new(Box::new(host), Box::new(store), Box::new(scratch)), more)
}

/// Runs a statement of the contract.
fn ask(host: &PostgresHost, name: &str, values: &[Value]) -> Answer {
    host.ask(statement("PostgreSQL", name), values)
}

impl PostgresHost {
    fn connect(schema: &Schema, url: &str) -> Self {
        Self::of(schema, &url.parse().unwrap())
    }

    fn of(schema: &Schema, config: &Config) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (client, connection) = runtime.block_on(config.connect(NoTls)).unwrap();
        runtime.spawn(connection);
        let host = Self { runtime, client, schema: schema.clone() };
        // The functions find what they need wherever the host looks for its own.
        host.batch("SET search_path = stationmaster, pg_temp");
        host
    }

    /// The statement with the names of this schema.
    fn named(&self, sql: &str) -> String {
        let quoted = format!("\"{}\"", self.schema);
        sql.replace("stationmaster.", &format!("{quoted}.")).replace("stationmaster,", &format!("{quoted},"))
    }

    /// Which process of the server serves it.
    fn process(&self) -> i32 {
        self.runtime.block_on(self.client.query_one("SELECT pg_backend_pid()", &[])).unwrap().get(0)
    }

    /// Returns when another process waits for a transaction.
    fn wait_until_blocked(&self, process: i32) {
        loop {
            let blocked = "SELECT cardinality(pg_blocking_pids($1)) > 0";
            let row = self.runtime.block_on(self.client.query_one(blocked, &[&process])).unwrap();
            if row.get(0) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl ToSql for Value {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(value) => value.to_sql_checked(kind, out),
            Self::Text(value) => value.to_sql_checked(kind, out),
            Self::Ints(values) => values.to_sql_checked(kind, out),
            Self::Texts(values) => values.to_sql_checked(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

fn read(row: &Row, at: usize) -> Value {
    let kind = row.columns()[at].type_();
    match *kind {
        Type::INT8 => row.get::<_, Option<i64>>(at).into(),
        Type::TEXT => row.get::<_, Option<String>>(at).into(),
        Type::BOOL => i64::from(row.get::<_, bool>(at)).into(),
        Type::VOID => Value::Null,
        _ => panic!("{kind}"),
    }
}

fn refusal(error: &Error) -> Refusal {
    let error = error.as_db_error().unwrap_or_else(|| panic!("{error:?}"));
    Refusal { code: error.code().code().into(), text: error.message().into() }
}

impl Host for PostgresHost {
    fn database(&self) -> &'static str {
        "PostgreSQL"
    }

    fn begin(&self) -> &'static str {
        "BEGIN"
    }

    fn ask(&self, sql: &str, values: &[Value]) -> Answer {
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        let rows = self.runtime.block_on(self.client.query(&self.named(sql), &values));
        let rows = rows.map_err(|error| refusal(&error))?;
        Ok(rows.iter().map(|row| (0..row.len()).map(|at| read(row, at)).collect()).collect())
    }

    fn batch(&self, sql: &str) {
        let done = self.runtime.block_on(self.client.batch_execute(&self.named(sql)));
        done.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    fn rows(&self) -> Vec<String> {
        let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = $1
                      AND tablename NOT IN ('migration', 'orders')";
        let tables = self.ask(tables, &[self.schema.as_str().into()]).unwrap();
        let rows = |table: &Vec<Value>| {
            let table = table[0].text();
            // Numbers of transactions, of rows that were inserted, and of versions of counters.
            let own = if table.ends_with("_inbox") || table == "delta" { "id" } else { "xid" };
            let rows = format!(
                "SELECT '{table} ' || (to_jsonb(t) - '{{xid,version,seen,{own}}}'::text[])::text
                 FROM stationmaster.\"{table}\" t"
            );
            let rows = self.ask(&rows, &[]).unwrap();
            rows.into_iter().map(|row| row[0].text().to_owned()).collect::<Vec<_>>()
        };
        let mut rows: Vec<String> = tables.iter().flat_map(rows).collect();
        rows.sort();
        rows
    }
}
