//! A schema of its own on a PostgreSQL server, for hosts with a driver of their own.

use stationmaster::store::PostgresStore;
use stationmaster::store::postgres::{PostgresOptions, Schema};

use crate::contract::statement;
use crate::shop::Shop;

pub struct Server {
    pub url: String,
    pub schema: String,
}

impl Server {
    /// The server that the crate's tests use.
    pub fn new(host: &str) -> Self {
        let default = "postgres://postgres@127.0.0.1:5432/test".to_owned();
        let url = std::env::var("STATIONMASTER_TEST_POSTGRES").unwrap_or(default);
        Self { url, schema: format!("host_{host}_{}", std::process::id()) }
    }

    pub fn shop(&self) -> Shop {
        let schema = Schema::new(&self.schema).expect("a name");
        Shop::of(PostgresStore::connect(&self.url, PostgresOptions::new().schema(schema)).expect("a store"))
    }

    /// The statement of this name with the names of this schema.
    pub fn statement(&self, name: &str) -> &'static str {
        self.named(statement("PostgreSQL", name))
    }

    /// What is left of the program goes.
    pub fn drop_schema(&self) -> &'static str {
        Box::leak(format!("DROP SCHEMA {} CASCADE", self.schema).into_boxed_str())
    }

    /// A host writes its statements down. These live as long, because their schema is known only here.
    pub fn named(&self, sql: &str) -> &'static str {
        Box::leak(sql.replace("stationmaster.", &format!("{}.", self.schema)).into_boxed_str())
    }
}
