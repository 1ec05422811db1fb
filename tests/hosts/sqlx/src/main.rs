//! A host on sqlx: its orders and our tasks in one database and one transaction, by the statements of
//! `docs/sql.md`.

#[path = "../../contract.rs"]
mod contract;
mod postgres;
#[path = "../../server.rs"]
mod server;
#[path = "../../shop.rs"]
mod shop;
mod sqlite;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    sqlite::run().await?;
    postgres::run().await
}
