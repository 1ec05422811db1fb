//! Hosts, each with a database of its own kind.

use stationmaster::Result;
use stationmaster::store::{Store, Tx};

/// What is in a host's database.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// Every row of each of our tables.
    pub ours: Vec<String>,
    /// How many orders the host has shipped.
    pub orders: i64,
}

/// A host that keeps its orders beside our tables.
pub trait Host {
    /// Ships an order and does this, in one of the host's transactions. Commits both, or neither after an
    /// error.
    fn ship(&mut self, order: i64, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()>;

    /// Whether `admit` is left to the store's own transactions.
    fn refuses_ticks(&self) -> bool;

    /// A store on the same database.
    fn store(&self) -> &dyn Store;

    fn rows(&self) -> Rows;
}

/// A new host with each database.
pub fn hosts() -> impl Iterator<Item = Box<dyn Host>> {
    let hosts: Vec<fn() -> Box<dyn Host>> = vec![
        #[cfg(feature = "sqlite")]
        || Box::new(crate::sqlite::Shop::open()),
        #[cfg(feature = "postgres")]
        || Box::new(crate::postgres::Shop::open()),
    ];
    hosts.into_iter().map(|open| open())
}
