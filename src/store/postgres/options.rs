//! How a store is opened.

use std::time::Duration;

use super::migrate;
use super::name::Schema;
use super::request::Opening;
use super::route::Route;
use super::wake::Wake;
use crate::base::setters;
use crate::error::Invalid;
use crate::store::Durability;

/// How a [`super::PostgresStore`] is opened. A duration of zero switches a limit off.
///
/// Defaults: schema `stationmaster`, [`Durability::Power`], tables are created, [`Wake::Beside`], 4
/// connections, 10 s to connect and to wait for a lock, 30 s for a statement, 60 s for an idle
/// transaction. They are set only on the store's own connections, and behind a pooler only in its own
/// transactions.
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
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// Where the tables are.
    pub schema: Schema,
    /// What a commit survives once its call has returned.
    ///
    /// * `Power`: what the server's `synchronous_commit` is set to, and `on` if that is `off`.
    /// * `Process` (or `None`): `off`. When the server crashes, the last commits may be lost, and a task that
    ///   they admitted then runs twice. Many times faster for small transactions.
    pub durability: Durability,
    /// Whether opening creates or updates the tables. Otherwise missing or older tables are refused (kind
    /// `Schema`). The host then applies [`super::migrations_sql_from`], or calls [`super::migrate`] with a role
    /// that may.
    pub apply_migrations: bool,
    /// How commits wake listeners ([`super::PostgresStore::on_change`]).
    pub wake: Wake,
    /// How many connections the store may have, including the one that listens; at least 1. They are opened
    /// when they are needed, and each may read and write.
    ///
    /// Of those that do not listen, one is reserved for transactions that begin with `renew`, and one for the
    /// crate's services. So neither waits for a host's long closure. With fewer than 3, none is reserved.
    ///
    /// One more is opened briefly whenever a call has waited 3 s for the tick lock, to end a tick whose
    /// client has stopped.
    pub connections: u32,
    /// How long a call tries to connect before it returns an error of kind `Io`.
    pub connect_timeout: Duration,
    /// How long a call waits for one of the store's connections, and then again for a transaction that has
    /// locked the same task, run or key. After that it returns [`crate::error::StoreErrorKind::Busy`]. A tick
    /// and a change of pools or limits wait equally long for each other.
    pub lock_timeout: Duration,
    /// How long the server works on a statement before it gives up. The client drops the connection when it
    /// has heard nothing for this long plus the lock timeout plus 5 s. By then the server is gone, or
    /// something in between has dropped the connection. With zero it waits forever.
    pub statement_timeout: Duration,
    /// How long a transaction may be idle before the server ends it. If a host stops in the middle of a
    /// transaction, this bounds how long it blocks others from the same tasks. If it changed pools or limits,
    /// it blocks all ticks for as long.
    pub idle_in_transaction_timeout: Duration,
}

impl PostgresOptions {
    /// Returns the defaults above.
    pub fn new() -> Self {
        Self {
            schema: Schema::default(),
            durability: Durability::Power,
            apply_migrations: true,
            wake: Wake::Beside,
            connections: 4,
            connect_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(30),
            idle_in_transaction_timeout: Duration::from_secs(60),
        }
    }

    setters! {
        /// Sets the schema.
        schema: Schema;
        /// Sets what a commit survives.
        durability: Durability;
        /// Sets whether opening may change tables.
        apply_migrations: bool;
        /// Sets how commits wake listeners.
        wake: Wake;
        /// Sets how many connections the store may have.
        connections: u32;
        /// Sets how long a call tries to connect.
        connect_timeout: Duration;
        /// Sets how long a call waits for a connection, and for a lock.
        lock_timeout: Duration;
        /// Sets how long the server works on a statement.
        statement_timeout: Duration;
        /// Sets how long a transaction may be idle.
        idle_in_transaction_timeout: Duration;
    }

    /// Returns what a commit survives. A server always preserves it beyond the host's process.
    pub(super) fn kept(&self) -> Durability {
        self.durability.max(Durability::Process)
    }

    /// Returns whether commits wait for a flush.
    pub(super) fn survives_power(&self) -> bool {
        self.durability == Durability::Power
    }

    /// Refuses options that no store can work with.
    pub(super) fn check(&self) -> Result<(), Invalid> {
        match self.connections {
            0 => Err(Invalid::Zero { what: "`connections`" }),
            _ => Ok(()),
        }
    }

    /// Returns what begins transactions. In a writing transaction each statement sees what was committed
    /// before it: a statement after a lock must see what the lock waited for.
    ///
    /// Behind a pooler, the settings are made here, and end with the transaction.
    pub(super) fn beginnings(&self, route: Route) -> Beginnings {
        let (settings, durable) = match route {
            Route::Direct => (String::new(), String::new()),
            Route::Pooled => (self.settings("SET LOCAL"), self.durable("true")),
        };
        // Sent along with the BEGIN, so that a step that refuses the transaction does not leave it half done.
        let gate_table = migrate::gate_table(&self.schema);
        let gate = migrate::gate(&self.schema);
        let read = format!("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY;{settings}{gate}");
        let write = format!("BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE;{settings}{durable}{gate}");
        let wait = match self.lock_timeout {
            Duration::ZERO => RENEWAL_WAITS,
            timeout => timeout.min(RENEWAL_WAITS),
        };
        let renew = format!("{write}SET LOCAL lock_timeout = {};", millis(wait));
        Beginnings { read, write, renew, gate: gate_table }
    }

    /// Returns the settings for a connection with its own server process. Outside transactions it refuses to write, so
    /// a statement sent along with a failed BEGIN has no effect. A statement alone is at `READ COMMITTED`, whatever the
    /// role or database has set.
    pub(super) fn session(&self) -> String {
        let (settings, durable) = (self.settings("SET"), self.durable("false"));
        format!("{settings}{durable}SET default_transaction_isolation = 'read committed';{};", OUTSIDE.reads)
    }

    fn settings(&self, set: &str) -> String {
        let mut settings = String::new();
        for (name, value) in [
            ("statement_timeout", millis(self.statement_timeout)),
            ("lock_timeout", self.lock_timeout_in_millis()),
            ("idle_in_transaction_session_timeout", millis(self.idle_in_transaction_timeout)),
        ] {
            settings.push_str(&format!("{set} {name} = {value};"));
        }
        for planner in PLANNER {
            settings.push_str(&format!("{set} {planner};"));
        }
        if !self.survives_power() {
            settings.push_str(&format!("{set} synchronous_commit = off;"));
        }
        settings
    }

    /// Returns the lock timeout in the server's form.
    pub(super) fn lock_timeout_in_millis(&self) -> i32 {
        millis(self.lock_timeout)
    }

    /// Turns `synchronous_commit` on if the server has it off, and keeps any stricter value.
    fn durable(&self, local: &str) -> String {
        if !self.survives_power() {
            return String::new();
        }
        format!(
            "SELECT set_config('synchronous_commit', 'on', {local}) \
             WHERE current_setting('synchronous_commit') = 'off';"
        )
    }

    /// Returns how long the client waits for the next response before it drops the connection.
    pub(super) fn patience(&self) -> Option<Duration> {
        if self.statement_timeout.is_zero() {
            return None;
        }
        Some(self.lock_timeout.saturating_add(self.statement_timeout).saturating_add(GRACE))
    }

    /// Returns how long a listening connection may be quiet before the server is probed.
    pub(super) fn quiet(&self) -> Duration {
        match self.statement_timeout {
            Duration::ZERO => MOST_QUIET,
            timeout => timeout.clamp(LEAST_QUIET, MOST_QUIET),
        }
    }
}

/// How long a transaction that renewed may wait for a row. It is short because its connection is the one
/// reserved for renewals.
const RENEWAL_WAITS: Duration = Duration::from_millis(250);

/// What begins transactions on a connection.
pub(super) struct Beginnings {
    read: String,
    write: String,
    renew: String,
    /// The table that a statement alone names first.
    pub(super) gate: String,
}

impl Beginnings {
    pub(super) fn of(&self, opening: Opening) -> &str {
        match opening {
            Opening::Read => &self.read,
            Opening::Write => &self.write,
            Opening::Renew => &self.renew,
        }
    }
}

/// The settings by which a session refuses writes outside transactions, or allows them.
pub(super) struct Outside {
    pub(super) reads: &'static str,
    pub(super) writes: &'static str,
}

pub(super) const OUTSIDE: Outside = Outside {
    reads: "SET default_transaction_read_only = on",
    writes: "SET default_transaction_read_only = off",
};

/// Plans are made once per connection, perhaps while a table is empty, and must still be right when it is
/// long. So tables are read through an index. The parts of a statement may be hashed and sorted, because they
/// are only as long as the call. Compiling plans would cost more than running them.
pub(super) const PLANNER: [&str; 5] = [
    "enable_seqscan = off",
    "enable_bitmapscan = off",
    "enable_mergejoin = off",
    "jit = off",
    "plan_cache_mode = force_generic_plan",
];

/// How much longer than the server the client waits; also how long it waits for the response to a trivial
/// query.
pub(super) const GRACE: Duration = Duration::from_secs(5);

/// Added to [`GRACE`], it is no longer than the client's patience with a statement.
const MOST_QUIET: Duration = Duration::from_secs(30);
const LEAST_QUIET: Duration = Duration::from_secs(1);

/// Returns a limit in the server's form: milliseconds, 0 for no limit.
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
