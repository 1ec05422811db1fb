//! How a store is opened.

use std::time::Duration;

use super::name::Schema;
use crate::store::{Durability, TxMode};

/// The isolation level of transactions that write. The store answers the same at each of them: its writers take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Isolation {
    /// `READ COMMITTED`: the cheapest, and enough.
    #[default]
    ReadCommitted,
    /// `REPEATABLE READ`.
    RepeatableRead,
    /// `SERIALIZABLE`: for hosts whose own transactions on the same tables are.
    Serializable,
}

impl Isolation {
    fn sql(self) -> &'static str {
        match self {
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}

/// When a commit is on the medium.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum SynchronousCommit {
    /// Before the call returns: commits survive the loss of power. What the server is set to, and `on` if that is `off`.
    #[default]
    On,
    /// Soon after (`off`): commits survive the end of the host's process, but the last ones may be lost when the server
    /// crashes, and then a task that was admitted by them runs twice. Many times faster for small transactions.
    Off,
}

/// Who else uses the connections that the store is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Pooling {
    /// Nobody: settings are made once, statements are prepared once.
    #[default]
    Session,
    /// A pooler hands the server's connections from transaction to transaction, such as PgBouncer with
    /// `pool_mode = transaction`: settings are made in each transaction, and no statement is prepared.
    Transaction,
}

/// Whether opening a store may change the database's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Migrations {
    /// Creates the tables, or brings them up to date, if need be.
    #[default]
    Apply,
    /// Tables that are missing or older are refused (kind `Schema`): the host applies [`super::migrations_sql`] or calls
    /// [`super::migrate`] with a role that may.
    Check,
}

/// Whether commits wake those who listen: see [`super::PostgresStore::on_change`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Notify {
    /// A transaction that may bring work to another process sends a `NOTIFY`. The server lets such commits, of all its
    /// databases, take turns.
    #[default]
    On,
    /// None does: others see at their next tick what changed.
    Off,
}

/// How a [`super::PostgresStore`] is opened. Durations of zero switch a limit off.
///
/// Defaults: schema `stationmaster`, [`Isolation::ReadCommitted`], [`SynchronousCommit::On`], [`Pooling::Session`],
/// [`Migrations::Apply`], [`Notify::On`], 2 readers, 10 s to connect and to wait for another writer, 30 s for a statement, 60 s for an idle
/// transaction. All of it is set on the store's own connections only.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::store::postgres::{PostgresOptions, Schema};
/// let options = PostgresOptions::new().schema(Schema::new("jobs")?).lock_timeout(Duration::from_secs(2));
/// assert_eq!(options.schema.as_str(), "jobs");
/// # Ok::<(), stationmaster::error::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// Where the tables are.
    pub schema: Schema,
    /// The level of transactions that write. Those that read are `REPEATABLE READ, READ ONLY`.
    pub isolation: Isolation,
    /// When a commit is on the medium.
    pub synchronous_commit: SynchronousCommit,
    /// Who else uses the connections.
    pub pooling: Pooling,
    /// Whether opening may change tables.
    pub migrations: Migrations,
    /// Whether commits wake those who listen.
    pub notify: Notify,
    /// How many transactions of this store may read at a time, each on a connection of its own; at least 1. One more
    /// connection writes.
    pub readers: u32,
    /// How long a call tries to connect before it answers an error of kind `Io`.
    pub connect_timeout: Duration,
    /// How long a call waits for another writer before it answers [`crate::error::StoreErrorKind::Busy`].
    pub lock_timeout: Duration,
    /// How long the server works on a statement before it gives up. The client waits a little longer and then gives the
    /// connection up.
    pub statement_timeout: Duration,
    /// How long a transaction may be open without asking anything before the server ends it: what bounds how long a host
    /// that is stopped in the middle of one holds up all others.
    pub idle_in_transaction_timeout: Duration,
}

impl PostgresOptions {
    /// The defaults above.
    pub fn new() -> Self {
        Self {
            schema: Schema::default(),
            isolation: Isolation::default(),
            synchronous_commit: SynchronousCommit::default(),
            pooling: Pooling::default(),
            migrations: Migrations::default(),
            notify: Notify::default(),
            readers: 2,
            connect_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
            idle_in_transaction_timeout: Duration::from_secs(60),
        }
    }

    /// Sets the schema.
    #[must_use]
    pub fn schema(mut self, schema: Schema) -> Self {
        self.schema = schema;
        self
    }

    /// Sets the isolation level of transactions that write.
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets when a commit is on the medium.
    #[must_use]
    pub fn synchronous_commit(mut self, synchronous: SynchronousCommit) -> Self {
        self.synchronous_commit = synchronous;
        self
    }

    /// Sets who else uses the connections.
    #[must_use]
    pub fn pooling(mut self, pooling: Pooling) -> Self {
        self.pooling = pooling;
        self
    }

    /// Sets whether opening may change tables.
    #[must_use]
    pub fn migrations(mut self, migrations: Migrations) -> Self {
        self.migrations = migrations;
        self
    }

    /// Sets whether commits wake those who listen.
    #[must_use]
    pub fn notify(mut self, notify: Notify) -> Self {
        self.notify = notify;
        self
    }

    /// Sets how many transactions may read at a time.
    #[must_use]
    pub fn readers(mut self, readers: u32) -> Self {
        self.readers = readers;
        self
    }

    /// Sets how long a call tries to connect.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long a call waits for another writer.
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = timeout;
        self
    }

    /// Sets how long the server works on a statement.
    #[must_use]
    pub fn statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = timeout;
        self
    }

    /// Sets how long a transaction may be open without asking anything.
    #[must_use]
    pub fn idle_in_transaction_timeout(mut self, timeout: Duration) -> Self {
        self.idle_in_transaction_timeout = timeout;
        self
    }

    pub(super) fn durability(&self) -> Durability {
        match self.synchronous_commit {
            SynchronousCommit::On => Durability::Power,
            SynchronousCommit::Off => Durability::Process,
        }
    }

    /// What begins a transaction. One that writes takes its turn before it looks: the lock is asked for before any snapshot
    /// is taken, so at every level it sees what the writer before it committed.
    pub(super) fn begin(&self, mode: TxMode) -> String {
        let begin = match mode {
            TxMode::Read => "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY".to_owned(),
            TxMode::Write => format!("BEGIN ISOLATION LEVEL {}, READ WRITE", self.isolation.sql()),
        };
        let settings = match self.pooling {
            Pooling::Session => String::new(),
            Pooling::Transaction => self.settings("SET LOCAL"),
        };
        let turn = match mode {
            TxMode::Read => "",
            TxMode::Write => super::turn::LOCK,
        };
        self.schema.apply(&format!("{begin};{settings}{turn}"))
    }

    /// What is set on a connection of the store's own. Between transactions it refuses to write: so a statement that was
    /// sent along with a BEGIN that failed does nothing.
    pub(super) fn session(&self) -> Option<String> {
        match self.pooling {
            Pooling::Session => {
                Some(format!("{}SET default_transaction_read_only = on;", self.settings("SET")))
            }
            Pooling::Transaction => None,
        }
    }

    fn settings(&self, set: &str) -> String {
        let local = set == "SET LOCAL";
        let commit = match self.synchronous_commit {
            SynchronousCommit::Off => format!("{set} synchronous_commit = off;"),
            // To ask takes a snapshot: before the turn is taken that must not be.
            SynchronousCommit::On if local => String::new(),
            SynchronousCommit::On => "SELECT set_config('synchronous_commit', 'on', false) \
                 WHERE current_setting('synchronous_commit') = 'off';"
                .to_owned(),
        };
        let mut settings = String::new();
        for (name, value) in [
            ("statement_timeout", millis(self.statement_timeout)),
            ("lock_timeout", millis(self.lock_timeout)),
            ("idle_in_transaction_session_timeout", millis(self.idle_in_transaction_timeout)),
        ] {
            settings.push_str(&format!("{set} {name} = {value};"));
        }
        for planner in PLANNER {
            settings.push_str(&format!("{set} {planner};"));
        }
        settings + &commit
    }

    /// How long the client waits for the answers of so many statements.
    pub(super) fn patience(&self, statements: usize) -> Option<Duration> {
        if self.statement_timeout.is_zero() {
            return None;
        }
        let each = u32::try_from(statements).unwrap_or(u32::MAX).saturating_add(2);
        Some(self.statement_timeout.saturating_mul(each).saturating_add(GRACE))
    }
}

/// Plans are made once per connection, perhaps while a table is empty, and must be right when it is long: through an index,
/// without a sort. Compiling them would cost more than they do.
pub(super) const PLANNER: [&str; 7] = [
    "enable_seqscan = off",
    "enable_bitmapscan = off",
    "enable_hashjoin = off",
    "enable_mergejoin = off",
    "enable_sort = off",
    "jit = off",
    "plan_cache_mode = force_generic_plan",
];

/// How much longer than the server the client waits.
const GRACE: Duration = Duration::from_secs(5);

/// A limit as the server takes it: milliseconds, 0 for none.
fn millis(limit: Duration) -> i32 {
    match limit.is_zero() {
        true => 0,
        false => i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1),
    }
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self::new()
    }
}
