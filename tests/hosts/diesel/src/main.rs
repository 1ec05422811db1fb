//! A host on diesel: its orders and our tasks in one database and one transaction, by the statements of
//! `docs/sql.md`.

#[path = "../../contract.rs"]
mod contract;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
#[path = "../../server.rs"]
mod server;
#[path = "../../shop.rs"]
mod shop;
mod sqlite;

use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Text};

diesel::table! {
    orders (id) {
        id -> BigInt,
        state -> Text,
    }
}

#[derive(QueryableByName)]
struct Status {
    #[diesel(sql_type = BigInt)]
    epoch: i64,
    #[diesel(sql_type = Text)]
    state: String,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    sqlite::run()?;
    #[cfg(feature = "postgres")]
    postgres::run()?;
    Ok(())
}
