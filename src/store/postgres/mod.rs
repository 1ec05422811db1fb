//! The PostgreSQL store: many machines, one database.
//!
//! # Two ways to use it
//!
//! * [`PostgresStore`] keeps its own connections: one that writes, a few that read. It sets timeouts and the like on those only.
//! * [`tx()`] does the same work inside a transaction that the host owns, so that rows of the host and of the store commit
//!   together or not at all. It begins nothing, commits nothing and sets nothing.
//!
//! How to get a server, options, grants, isolation, poolers and clocks: `docs/postgresql.md` in the repository.
//!
//! # What is promised
//!
//! * Writers of one schema take turns, in the order in which they ask; a transaction that writes sees what the one before it
//!   committed, at every isolation level. Readers see one state and wait for nobody.
//! * After any error, and after a panic in the body, the transaction is rolled back and the store goes on working; a connection
//!   that was lost is made anew by the next call.
//! * A commit whose answer was lost is [`StoreErrorKind::Indeterminate`](crate::error::StoreErrorKind::Indeterminate); any other
//!   error has changed nothing. Serialization failures and deadlocks are
//!   [`StoreErrorKind::Conflict`](crate::error::StoreErrorKind::Conflict).
//! * Each call of the store is one round trip, whatever the number of tasks; a transaction begins with its first call, and what
//!   writes has one more to commit.
//! * The cost of a call does not depend on how many tasks wait: every statement but those of
//!   [`TaskTx::audit`](crate::store::TaskTx::audit) reads through an index and sorts no table.
//! * Tables of a newer version of the crate or of somebody else's are refused and left untouched.
//! * A transaction begun inside another one of its mode on the same thread is refused at once.
//!
//! # Examples
//!
//! ```no_run
//! use stationmaster::pool::{PoolSpec, Slots};
//! use stationmaster::store::postgres::{PostgresOptions, PostgresStore};
//! use stationmaster::store::StoreExt;
//!
//! let store = PostgresStore::connect("postgres://jobs@127.0.0.1/jobs", PostgresOptions::new())?;
//! store.write(|tx| Ok(tx.put_pools(&[PoolSpec::new("db", Slots::Limited(4))?])?))?;
//! # Ok::<(), stationmaster::Error>(())
//! ```

mod connect;
mod driver;
mod error;
mod host;
mod line;
mod link;
mod migrate;
mod name;
mod options;
mod pipeline;
mod text;
mod time;
mod turn;
mod tx;
#[cfg_attr(not(feature = "testing"), allow(dead_code, unreachable_pub))]
pub(crate) mod watch;
mod wire;

use std::sync::Arc;

pub use connect::Connector;
pub use host::{attach, tx};
pub use migrate::{migrate, migrations_sql};
pub use name::Schema;
pub use options::{Isolation, Migrations, Pooling, PostgresOptions, SynchronousCommit};
pub use time::PostgresClock;
/// The driver, in the version the crate was built with: for hosts that connect, or hand in their own transactions.
pub use tokio_postgres;

use crate::error::{Error, Result, StoreError};
use crate::store::{Store, StoreInfo, StoreTx, TxMode};
use driver::Driver;
use line::Lines;
use link::Work;
use time::Timekeeper;
use tx::Access;
pub use tx::PostgresTx;

/// Keeps everything in a schema of a PostgreSQL database. See the [module](self).
///
/// It may be made, used and dropped inside and outside of tokio runtimes; dropping it takes as long as the server takes to say
/// good-bye, and at most a second.
#[derive(Debug)]
pub struct PostgresStore {
    writer: Lines,
    readers: Lines,
    options: Arc<PostgresOptions>,
    time: Arc<Timekeeper>,
    /// After the lines, so that it finds them closed when it is dropped.
    _driver: Driver,
}

impl PostgresStore {
    /// Connects without TLS to what a URL or a list of `key=value` names, and creates the tables or brings them up to
    /// date, if need be. The options of `libpq` are understood, as far as [`tokio_postgres::Config`] does.
    ///
    /// # Errors
    ///
    /// By kind: `Io` if the server cannot be connected to, `Schema` for newer or foreign tables (left untouched), `Backend` for a
    /// text that names no server, a refused password, or a role that may not do what is needed.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use stationmaster::store::PostgresStore;
    /// use stationmaster::store::postgres::PostgresOptions;
    /// let store = PostgresStore::connect("postgres://jobs@127.0.0.1/jobs", PostgresOptions::new())?;
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn connect(url: &str, options: PostgresOptions) -> Result<Self> {
        Self::open(Connector::plain(url)?, options)
    }

    /// As [`Self::connect`], with connections that the host makes: see [`Connector`].
    ///
    /// # Errors
    ///
    /// As [`Self::connect`].
    pub fn open(connector: Connector, options: PostgresOptions) -> Result<Self> {
        let (options, time) = (Arc::new(options), Arc::new(Timekeeper::default()));
        let (driver, writer, readers) = Driver::start(&connector, &options, &time)?;
        let opened = writer.have(Work::Connect);
        let store = Self {
            writer: Lines::new(TxMode::Write, vec![writer]),
            readers: Lines::new(TxMode::Read, readers),
            options,
            time,
            _driver: driver,
        };
        opened.map_err(StoreError::from)?;
        Ok(store)
    }

    /// The database's clock. Hosts of many machines give it to their services, so that leases are decided by one clock.
    pub fn clock(&self) -> PostgresClock {
        PostgresClock(Arc::clone(&self.time))
    }
}

impl Store for PostgresStore {
    fn info(&self) -> StoreInfo {
        StoreInfo::new("postgres", migrate::VERSION, self.options.durability())
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut dyn StoreTx) -> Result<()>) -> Result<()> {
        let (lines, access) = match mode {
            TxMode::Read => (&self.readers, Access::Read),
            TxMode::Write => (&self.writer, Access::Write),
        };
        lines.transact(&self.options, |wire| {
            let mut tx = PostgresTx::inside(wire, access);
            body(&mut tx)?;
            tx.check_whole().map_err(Error::Store)
        })
    }
}
