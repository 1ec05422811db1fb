//! The PostgreSQL store: many machines, one database.
//!
//! # Two ways to use it
//!
//! * [`PostgresStore`] keeps its own connections, at most as many as
//!   [`connections`](PostgresOptions::connections) says. It sets timeouts and the like on those only.
//! * [`tx()`] does the same work inside a transaction that the host owns. So the host's rows and the store's commit
//!   together or not at all. It begins nothing, commits nothing and sets nothing.
//!
//! A host whose driver is not tokio-postgres calls functions of the schema: `docs/sql.md`.
//!
//! `docs/postgresql.md` in the repository describes how to get a server, options, grants, isolation, poolers
//! and clocks.
//!
//! # Guarantees
//!
//! * Transactions that change different tasks do not wait, and do not see each other before they commit.
//!   Transactions that give the same name to [`serialize`](crate::store::Tx::serialize) take turns. Ticks
//!   exclude each other, so capacity is exact whatever is open elsewhere. Readers see one state and never
//!   wait.
//! * After any error, and after a panic in the body, the transaction is rolled back and the store keeps
//!   working. The next call replaces a lost connection.
//! * A commit whose response was lost is
//!   [`StoreErrorKind::Indeterminate`](crate::error::StoreErrorKind::Indeterminate); any other error has
//!   changed nothing. Serialization failures and deadlocks are
//!   [`StoreErrorKind::Conflict`](crate::error::StoreErrorKind::Conflict).
//! * Each call of the store except [`ReadTx::audit`](crate::store::ReadTx::audit) takes as many round trips for many
//!   tasks as for one (an enqueue takes another for each 10,000): `docs/postgresql.md` §5 counts them. A transaction
//!   begins with its first call, but for plain ends, which go along with the next one. A write transaction has one more
//!   round trip to commit, unless the commit is sent along with [the last verb](crate::store::Tx::last).
//! * The cost of a call does not depend on how many tasks wait: every statement except those of
//!   [`ReadTx::audit`](crate::store::ReadTx::audit) reads through an index and sorts no table.
//! * Foreign tables are refused and left untouched, and so are those of a newer version of the crate that this one
//!   cannot work beside: `docs/upgrading.md`.
//! * A transaction begun inside another one of the same thread does not wait for a connection. If all are in
//!   use, it is refused at once.
//!
//! # Examples
//!
//! ```no_run
//! use stationmaster::admission::IfExists;
//! use stationmaster::pool::{PoolSpec, Slots};
//! use stationmaster::store::postgres::{PostgresOptions, PostgresStore};
//!
//! let store = PostgresStore::connect("postgres://jobs@127.0.0.1/jobs", PostgresOptions::new())?;
//! store.write(|tx| tx.define([PoolSpec::new("db", Slots::Limited(4))?], IfExists::Replace))?;
//! # Ok::<(), stationmaster::Error>(())
//! ```

mod alone;
mod connect;
mod connection;
mod dial;
mod digest;
mod driver;
mod error;
mod folding;
mod group;
mod habits;
mod holder;
mod host;
mod hub;
mod listen;
mod listen_connection;
mod liveness;
mod looks;
mod migrate;
mod name;
mod news;
mod options;
mod part;
mod pipeline;
mod places;
mod pool;
mod pool_set;
mod request;
mod route;
mod seat;
mod session;
mod sessions;
mod text;
mod tick_lock;
mod time;
mod tx;
mod upgrade;
mod wake;
#[cfg_attr(not(feature = "testing"), allow(dead_code, unreachable_pub))]
pub(crate) mod watch;
mod wire;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

pub use connect::Connector;
pub use host::{PostgresTx, attach, tx};
pub use listen::{Change, Listening};
pub use migrate::{migrations_sql, migrations_sql_from};
pub use name::Schema;
pub use options::PostgresOptions;
/// The driver, in the version that the crate was built with. For hosts that connect, or pass in their own
/// transactions.
pub use tokio_postgres;
pub use upgrade::{finish_upgrade, migrate};
pub use wake::Wake;

use crate::clock::Clock;
use crate::error::{Error, Result, StoreError};
use crate::store::{Store, StoreInfo, Tx, TxMode, serving};
use driver::Driver;
use folding::Folding;
use habits::Habits;
use hub::{Hub, Listens};
use news::NewsSet;
use pool::{Lease, Pool};
use request::Request;
use time::{PostgresClock, Timekeeper};
pub(super) use tx::PostgresBackend;
use wake::Announcer;

/// Keeps everything in a schema of a PostgreSQL database. See the [module](self).
///
/// [`Self::on_change`] wakes loops that should learn at once what other machines did.
///
/// It may be created, used and dropped inside and outside tokio runtimes. Dropping it waits for the server to
/// close the connections, at most a second.
#[derive(Debug)]
pub struct PostgresStore {
    announcer: Announcer,
    hub: Arc<Hub>,
    pool: Arc<Pool>,
    options: Arc<PostgresOptions>,
    time: Arc<Timekeeper>,
    folding: Folding,
    habits: Arc<Habits>,
    connector: Connector,
    /// Whether changes of sensors are numbered at once, instead of when their transaction commits.
    numbers_at_once: bool,
    /// After the connections, so that it finds them closed when it is dropped.
    driver: Driver,
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.hub.close();
    }
}

impl PostgresStore {
    /// Numbers changes of sensors at once, so that a transaction can follow its own, as the conformance suite
    /// does. Other transactions then wait for it before they number theirs.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    #[must_use]
    pub fn numbering(mut self) -> Self {
        self.numbers_at_once = true;
        self
    }

    /// Connects without TLS to the server that a URL or a list of `key=value` names. Creates or updates the
    /// tables if necessary. It understands those options of `libpq` that [`tokio_postgres::Config`] does.
    ///
    /// # Errors
    ///
    /// Returns an error of one of these kinds:
    ///
    /// * `Io` if the server cannot be reached.
    /// * `Schema` for foreign tables, or for tables of a newer version that this one cannot work beside. They
    ///   are left untouched.
    /// * `Backend` for a text that names no server, a refused password, or a role without the needed rights.
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

    /// Opens a store like [`Self::connect`], with connections that the host makes: see [`Connector`].
    ///
    /// # Errors
    ///
    /// As [`Self::connect`], and [`Invalid::Zero`](crate::error::Invalid::Zero) for no connections.
    pub fn open(connector: Connector, options: PostgresOptions) -> Result<Self> {
        options.check()?;
        let (options, time) = (Arc::new(options), Arc::new(Timekeeper::default()));
        let (driver, sessions) = Driver::start(&connector, &options, &time)?;
        let opened = sessions.first().map(|session| session.call(Request::Connect));
        let (hub, pool) = (Hub::new(&options), Arc::new(Pool::new(sessions)));
        let announcer = Announcer::start(options.wake, &hub, &pool, driver.runtime());
        let store = Self {
            announcer,
            hub,
            pool,
            options,
            time,
            folding: Folding::default(),
            habits: Arc::default(),
            connector,
            numbers_at_once: false,
            driver,
        };
        opened.transpose().map_err(StoreError::from)?;
        Ok(store)
    }

    /// Returns the database's clock. Hosts on many machines pass it to their services, so that one clock
    /// decides leases.
    ///
    /// It is read when the store connects and then, at most every ten seconds, along with a transaction. Each
    /// reading is off by at most half the time that its response took. Between readings it advances by the
    /// machine's monotonic clock. It does not go back, unless the database's clock was set back by more than
    /// a second.
    ///
    /// When the machine's monotonic and wall clocks move apart by more than a second, the machine was
    /// suspended or its wall clock was set. The next transaction then reads the database's clock again. Until
    /// then the longer of both times counts. So the clock is right at once after a suspension. If the
    /// machine's wall clock was set forward by more than a second, the clock is ahead by as much until that
    /// transaction.
    pub fn clock(&self) -> impl Clock + Clone + use<> {
        PostgresClock(Arc::clone(&self.time))
    }

    /// Calls `callback` after each commit that may have brought work, here or on another machine: tasks
    /// became ready, slots were returned, sensors were registered or ended, the feed has more events. The
    /// call is only a hint. Read the store to see what changed. Keep polling without it from time to time, as
    /// a loop does after its `longest`.
    ///
    /// Returns once the server listens. Commits from then on are reported. All callbacks of a store share one
    /// of its [`connections`](PostgresOptions::connections), which then serves no transactions until the last
    /// callback has ended. A lost connection is replaced. Since changes may have been missed, the callback is
    /// then called once with everything. Changes that arrive while the callback runs are reported by one call
    /// after it. A call may be spurious. Renewals, heartbeats, polls, ticks that only grant, and tasks that
    /// are not due yet cause none, nor do stores opened with [`Wake::Never`]. What this store commits is
    /// reported without asking the server.
    ///
    /// The callback runs on its own thread, one call at a time. It should be short, because nothing is
    /// reported to it meanwhile. It delays nothing else. After a panic in it, the next change is reported as
    /// usual.
    ///
    /// # Errors
    ///
    /// Returns an error of one of these kinds:
    ///
    /// * `Io` if the server cannot be reached.
    /// * `Busy` if transactions use all connections for longer than the lock timeout.
    /// * `Backend` if the store has only one connection. Also if it connects through a pooler, which may lose
    ///   notifications: open another store, which connects directly.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use stationmaster::service::LoopHandle;
    /// use stationmaster::store::PostgresStore;
    /// use stationmaster::store::postgres::PostgresOptions;
    ///
    /// let store = PostgresStore::connect("postgres://jobs@127.0.0.1/jobs", PostgresOptions::new())?;
    /// let (admitting, poking) = (LoopHandle::new(), LoopHandle::new());
    /// let (admitter, poker) = (admitting.clone(), poking.clone());
    /// let _listening = store.on_change(move |change| {
    ///     if change.tasks() {
    ///         admitter.wake();
    ///     }
    ///     if change.sensors() {
    ///         poker.wake();
    ///     }
    /// })?;
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn on_change(&self, callback: impl Fn(Change) + Send + Sync + 'static) -> Result<Listening> {
        Ok(self.hub.listen(&self.listens(), callback)?)
    }

    /// Works like [`Self::on_change`], but calls on the thread where the news arrives: the one that
    /// committed, or the store's own. So the callback must not block.
    pub(crate) fn on_change_at_once(
        &self,
        callback: impl Fn(Change) + Send + Sync + 'static,
    ) -> Result<Listening> {
        Ok(self.hub.listen_at_once(&self.listens(), callback)?)
    }

    fn listens(&self) -> Listens<'_> {
        Listens {
            runtime: self.driver.runtime(),
            connector: &self.connector,
            options: &self.options,
            time: &self.time,
            pool: &self.pool,
        }
    }
}

crate::store::transactions!(=> PostgresStore);

impl Store for PostgresStore {
    fn info(&self) -> StoreInfo {
        let info = StoreInfo::new("postgres", migrate::VERSION, self.options.kept());
        match self.options.lock_timeout {
            Duration::ZERO => info,
            timeout => info.lock_timeout(timeout),
        }
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let (news, mut is_over, is_announced) = (Cell::new(NewsSet::NONE), false, Cell::new(false));
        let commits_along = self.habits.commits_along(mode);
        let announce = |lease: &Lease| is_announced.set(self.announcer.announce_on(lease, news.get()));
        let body = |wire: Box<dyn wire::Wire + '_>| {
            let mut tx =
                PostgresBackend::inside(wire, mode, self.announcer.in_transaction()).own(&self.habits);
            if self.numbers_at_once {
                tx = tx.numbering();
            }
            if commits_along {
                tx = tx.commits_along();
            }
            let ran = match Tx::run(&mut tx, |tx| body(tx)) {
                Ok(()) => tx.check_whole().and_then(|()| tx.conclude()).map_err(Error::Store),
                Err(Error::Store(error)) => Err(Error::Store(error)),
                // The body may have failed because of what an end returned, so that must be true.
                Err(error) => tx.make_deferred().map_err(Error::Store).and(Err(error)),
            };
            news.set(tx.news());
            is_over = tx.is_over();
            if tx.was_too_soon() {
                self.habits.committed_too_soon();
            }
            if tx.was_not_ahead() {
                self.habits.had_to_decide();
            }
            ran.map(|()| PostgresBackend::flushes_after(&tx))
        };
        let done = sessions::transact_then(&self.pool, &self.options, mode, body, announce);
        // A commit with an unknown outcome may have taken effect.
        if is_over || done.as_ref().map_or_else(Error::is_indeterminate, |()| true) {
            self.announcer.committed(news.get(), is_announced.get());
        }
        if done.is_ok() && mode == TxMode::Write && serving::is_service() {
            self.folding.attend(&self.pool, &self.options);
        }
        done
    }
}
