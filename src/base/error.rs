//! Errors, grouped by what the caller can do about them.
//!
//! An `Err` means that something is broken or that the call was wrong. A task that may not run yet, a lost
//! lease and a poke that found nothing are results, not errors.

use std::error::Error as StdError;

use crate::base::setters;
use crate::bounds::{MAX_LIMIT_KEYS, MAX_POOLS, MAX_SLOTS};
use crate::id::{Holder, LimitKey, MAX_BYTES, PoolName, RequestId, TaskKey};

/// The result of everything that uses a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The result of one store operation.
pub type StoreResult<T> = std::result::Result<T, StoreError>;

/// The error of a service or an operation that could not do its work.
///
/// Nothing is left half done. The store's own transaction was rolled back, unless
/// [`StoreError::is_indeterminate`]. A transaction that the host owns must be rolled back by the host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Leases were lost. Roll back and stop that work, because another holder may be doing it. Only
    /// [`fenced`](crate::ops::Fenced::fenced) returns this. Elsewhere a stale lease is a result.
    #[error("leases are stale: {} of the {of} that were named, the first at place {} (from 1): roll back, and stop that work", stale.len(), stale.first().map_or(0, |at| at + 1))]
    Stale {
        /// The indices of the stale ones in the call's input, from 0, ascending.
        stale: Vec<usize>,
        /// The number of items in the call.
        of: usize,
    },
    /// A [`Worker`](crate::service::Worker) lost the lease of an attempt, or found that it had ended. The
    /// result of the handler is not stored. Only [`on_error`](crate::service::Worker::on_error) receives
    /// this.
    #[error(
        "the lease of task {task} (grant {epoch}) was lost, so what its handler returns is not stored, and another worker may run the task: unless the lease was ended on purpose, find out why this process stood still, or could not reach the store, for longer than a lease"
    )]
    LeaseLost {
        /// The task.
        task: Box<TaskKey>,
        /// The fencing token of the lease: [`TaskRecord::epoch`](crate::TaskRecord::epoch).
        epoch: i64,
    },
    /// A committed call had already finished attempts in the same way. Roll back. If the call named other
    /// attempts too, call again with only those, because they are not stored. Only
    /// [`fenced`](crate::ops::Fenced::fenced) returns this. Elsewhere a repeated finish is a result.
    #[error("{} of the {of} that were named had been finished like this before, the first at place {} (from 1): roll back, and call again without these, which are stored", repeated.len(), repeated.first().map_or(0, |at| at + 1))]
    Repeated {
        /// The indices of the repeated ones in the call's input, from 0, ascending.
        repeated: Vec<usize>,
        /// The number of items in the call.
        of: usize,
    },
    /// An argument was refused.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A value was refused when it was built: a retry policy, a poke context.
    #[error(transparent)]
    Refused(Box<dyn StdError + Send + Sync>),
    /// A future was not polled by a tokio runtime. Nothing was done.
    #[cfg(feature = "tokio")]
    #[error("there is no tokio runtime here: await this in one of its tasks, or enter its handle first")]
    NoRuntime,
    /// The tokio runtime was shut down before the work began. Nothing was done.
    #[cfg(feature = "tokio")]
    #[error("the tokio runtime was shut down before the work began: nothing was done")]
    RuntimeShutDown,
    /// The body of a transaction failed with an error of its own. Everything was rolled back.
    #[error("the transaction was rolled back by its caller: {0}")]
    Aborted(#[source] Box<dyn StdError + Send + Sync>),
}

impl Error {
    /// Wraps an error of the host, to leave a transaction and roll it back.
    pub fn abort(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Aborted(cause.into())
    }

    /// Prefixes the message with what was being done when a store or the system failed.
    pub(crate) fn during(self, what: &str) -> Self {
        match self {
            Self::Store(error) => {
                StoreError { message: format!("{what}: {}", error.message), ..error }.into()
            }
            Self::Refused(error) => Self::Refused(format!("{what}: {error}").into()),
            other => other,
        }
    }

    /// Returns true if nothing was committed and the same call may succeed later: see
    /// [`StoreError::is_retryable`].
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }

    /// Returns true if it is unknown whether the transaction took effect.
    pub fn is_indeterminate(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_indeterminate())
    }
}

/// An argument that is wrong in every state of the store. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// A name has no characters.
    #[error("{what} is empty: give it at least one character")]
    EmptyName {
        /// Which kind of name it is.
        what: &'static str,
    },
    /// A name is longer than [`MAX_BYTES`].
    #[error("{what} has {bytes} bytes, more than {MAX_BYTES}: shorten it, or use a hash of it")]
    LongName {
        /// Which kind of name it is.
        what: &'static str,
        /// Its length in bytes.
        bytes: usize,
    },
    /// A name contains the character U+0000.
    #[error("{what} has a NUL character at byte {at}: remove it")]
    NulInName {
        /// Which kind of name it is.
        what: &'static str,
        /// The byte offset of the NUL.
        at: usize,
    },
    /// A task needs 0 slots of a pool, or more than [`MAX_SLOTS`].
    #[error("task {task} asks for {slots} slots of pool {pool}: ask for 1 to {}", MAX_SLOTS)]
    TaskSlots {
        /// The task.
        task: Box<TaskKey>,
        /// The pool.
        pool: PoolName,
        /// The number of slots requested.
        slots: u32,
    },
    /// An edit of a task changed its key.
    #[error("the key of task {task} cannot be changed: enqueue another task, and delete this one")]
    KeyChanged {
        /// The task.
        task: Box<TaskKey>,
    },
    /// A task names its pool among the other pools that it needs.
    #[error("task {task} names pool {pool} twice: ask for all of its slots of a pool at once")]
    PoolTwice {
        /// The task.
        task: Box<TaskKey>,
        /// The pool.
        pool: PoolName,
    },
    /// A task requests slots of more than [`MAX_POOLS`] pools.
    #[error("task {task} needs {count} pools: ask for slots of at most {}", MAX_POOLS)]
    TaskPools {
        /// The task.
        task: Box<TaskKey>,
        /// The number of pools it requests.
        count: usize,
    },
    /// A task counts 0 or more than [`MAX_SLOTS`] against a limit.
    #[error("task {task} counts {count} against limit {limit}: count 1 to {}", MAX_SLOTS)]
    LimitCount {
        /// The task.
        task: Box<TaskKey>,
        /// The limit.
        limit: LimitKey,
        /// The count that was given.
        count: u32,
    },
    /// A pool or limit is larger than [`MAX_SLOTS`].
    #[error("{what} of {value} is above {}: use `Slots::Unlimited`, or no limit", MAX_SLOTS)]
    TooLarge {
        /// What was too large.
        what: &'static str,
        /// The requested value.
        value: u64,
    },
    /// The weight of a share is above 1,000,000.
    #[error("a weight of {weight} for {key} is above 1000000: divide all weights by the same number")]
    Weight {
        /// The key, or the prefix of a family.
        key: LimitKey,
        /// The weight.
        weight: u32,
    },
    /// A task carries more than [`MAX_LIMIT_KEYS`] limit keys.
    #[error("task {task} carries {count} limit keys: carry at most {}", MAX_LIMIT_KEYS)]
    LimitKeys {
        /// The task.
        task: Box<TaskKey>,
        /// The number of keys it carries.
        count: usize,
    },
    /// A payload is larger than its cap.
    #[error("{what} has {bytes} bytes, more than {cap}: keep a reference to it, not the data")]
    TooManyBytes {
        /// What was too large.
        what: &'static str,
        /// Its size in bytes.
        bytes: usize,
        /// The largest size that is accepted.
        cap: usize,
    },
    /// A tick was given a name that another holder's tick used.
    #[error("request {request} is of {holder}: give each tick a name of its own")]
    RequestOfAnother {
        /// The name.
        request: RequestId,
        /// The holder of what that tick was granted.
        holder: Holder,
    },
    /// A verb that writes was called after [`admit`](crate::store::Tx::admit) in one transaction.
    #[error(
        "this transaction has admitted, which is the last it writes: commit it, and begin another one for this verb"
    )]
    AfterAdmit,
    /// A verb that writes was called after [`last`](crate::store::Tx::last) in one transaction.
    #[error(
        "the last verb of this transaction is done, and it may be committed: begin another one for this verb"
    )]
    AfterLast,
    /// A task query cannot be run by any store, or continues a page of another query.
    #[error("{why}")]
    TaskQuery {
        /// What is wrong with it, and what to ask instead.
        why: &'static str,
    },
    /// A request for admission does not serve any queue.
    #[error(
        "a request that serves no queue admits nothing: name at least one, or leave `serves` out to serve all"
    )]
    NoQueues,
    /// A request for admission by Airflow's window names queues, or the store uses something that Airflow's
    /// scheduler does not support: rates, families, shares, several pools per task, or counts above 1.
    #[error("Airflow's window knows no {what}: leave these out, or admit by another policy")]
    WindowWith {
        /// What it does not support.
        what: &'static str,
    },
    /// A store would have more of something than each tick can read.
    #[error("the store would have {count} {what}, more than {cap}: define fewer, or the keys themselves")]
    TooMany {
        /// What would be too numerous.
        what: &'static str,
        /// The number there would be.
        count: usize,
        /// The most that are accepted.
        cap: usize,
    },
    /// [`admit`](crate::store::Tx::admit) was called in a PostgreSQL transaction that the host owns. A tick
    /// holds a lock that all other ticks wait for, so it runs only in short transactions of the store.
    #[error(
        "a tick holds a lock that stops all other ticks, so it does not run in a transaction that the host owns: admit with an Admitter, or in the store's own `write`"
    )]
    TickInHostTransaction,
    /// A verb that decides under a lock was called in a host's PostgreSQL transaction above `READ COMMITTED`.
    /// It would read an older state than the one it locked.
    #[error(
        "above READ COMMITTED this verb would decide on a state from before its lock: call it at READ COMMITTED, or in the store's own `write`"
    )]
    AboveReadCommitted,
    /// A retention time was set for a state in which tasks have not ended.
    #[error("tasks that are {state} have not ended, so they are never forgotten: name an end")]
    NotAnEnd {
        /// The state.
        state: &'static str,
    },
    /// A sensor cannot end in this way.
    #[error("a sensor cannot take its task to {to}: to an end, or to scheduled")]
    Ending {
        /// The state that the end would have moved the task to.
        to: &'static str,
    },
    /// Workers that share sensors disagree on how to split them.
    #[error(
        "worker {other} splits {codes} shard codes into {shards} shards: use the same numbers, or stop it first"
    )]
    Shards {
        /// The other worker, which is alive.
        other: Holder,
        /// Its number of shard codes.
        codes: u32,
        /// Its number of shards.
        shards: u32,
    },
    /// A duration, or the number of shards, is zero or out of range.
    #[error("{what} must be {expected}")]
    Duration {
        /// What is out of range.
        what: &'static str,
        /// The range it must be in.
        expected: &'static str,
    },
    /// A count that must be at least one is zero.
    #[error("{what} of 0 is refused: give at least 1")]
    Zero {
        /// Which count.
        what: &'static str,
    },
    /// A run stops before it starts.
    #[error(
        "run {id} stops {micros} microseconds before it starts: correct its clock, or give its start as the stop"
    )]
    StopBeforeStart {
        /// The run.
        id: String,
        /// The difference, in microseconds.
        micros: i64,
    },
    /// A series has more buckets than its cap: in one row, or in all rows together.
    #[error(
        "the series has {count} buckets, more than {cap}: make them wider, the window shorter, or tell fewer runs apart"
    )]
    Buckets {
        /// A lower bound on the number of buckets.
        count: usize,
        /// The most that are accepted.
        cap: usize,
    },
    /// The path template of a log is refused.
    #[error("{why}")]
    Template {
        /// What is wrong with it, and what to use instead.
        why: String,
    },
    /// The multiplier of a retry policy is below 1, infinite or not a number.
    #[error("a multiplier of {given} is refused: give a finite number of at least 1")]
    Multiplier {
        /// The given multiplier.
        given: f64,
    },
    /// A retry policy has no attempts.
    #[error("0 attempts are refused: give 1 for a task that is never retried")]
    NoAttempts,
    /// A cap or maximum of a retry policy is shorter than a microsecond.
    #[error("{what} of zero is refused: leave it out, or use a fixed delay of zero")]
    ZeroMaximum {
        /// Which of them.
        what: &'static str,
    },
    /// The jitter requires a delay that grows.
    #[error("decorrelated jitter needs a multiplier above 1: raise it, or use full or equal jitter")]
    DecorrelatedFixed,
    /// This version of Airflow supports only the multipliers 1 (fixed) and 2.
    #[error("airflow before 3.2 has no multiplier of {given}: give 1 (fixed) or 2, or choose version 3.2")]
    AirflowMultiplier {
        /// The given multiplier.
        given: f64,
    },
    /// Airflow has its own jitter.
    #[error("airflow mode has a jitter of its own: leave the jitter out")]
    AirflowJitter,
    /// The text is not a fingerprint.
    #[error("a fingerprint is 16 lower-case hexadecimal digits")]
    Fingerprint,
    /// The name of a database schema is not a plain identifier.
    #[error(
        "schema {schema:?} is refused: use 1 to 63 of a-z, 0-9 and _, beginning with a letter, not with pg_"
    )]
    Schema {
        /// The given name.
        schema: String,
    },
    /// A table prefix is not a plain identifier.
    #[error("table prefix {prefix:?} is refused: use 1 to 32 of a-z, 0-9 and _, beginning with a letter")]
    Prefix {
        /// The given prefix.
        prefix: String,
    },
}

/// What a store's failure means to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Another writer held the store for longer than the lock timeout. Call again.
    Busy,
    /// One call requested more than the database accepts at once. It exceeded the statement timeout, or is
    /// too large to send. Nothing was changed, and the same call would fail again. Split it, or raise the
    /// limit.
    TooMuch,
    /// The state changed between the decision and the commit. Call again; services do so on their own.
    Conflict,
    /// No space is left. Everything committed is safe. Free some space and call again.
    Full,
    /// The medium or the connection failed before the commit. Nothing was changed. Call again when it works.
    Io,
    /// The stored data is damaged or was not written by this crate.
    Corrupt,
    /// The schema cannot be used. It belongs to a newer, incompatible version of the crate or to another
    /// program, or it is missing or older and may not be changed. It was left unchanged, and the message says
    /// what to do. A process that is refused while it is connected must be stopped: see `docs/upgrading.md`.
    Schema,
    /// The store is read-only.
    ReadOnly,
    /// The commit failed, and it is unknown whether it took effect. If the call is a verb, repeat it: its
    /// result shows what the first call did. Otherwise query the store first; on PostgreSQL the commit may still
    /// take effect after that.
    Indeterminate,
    /// Anything else: see the source.
    Backend,
}

impl StoreErrorKind {
    /// Returns the name, which is also used as a metric label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::TooMuch => "too_much",
            Self::Conflict => "conflict",
            Self::Full => "full",
            Self::Io => "io",
            Self::Corrupt => "corrupt",
            Self::Schema => "schema",
            Self::ReadOnly => "read_only",
            Self::Indeterminate => "indeterminate",
            Self::Backend => "backend",
        }
    }
}

/// A store operation failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    kind: StoreErrorKind,
    message: String,
    #[source]
    source: Option<Box<dyn StdError + Send + Sync>>,
    /// Whether the store itself asks for the same call again, although no other transaction caused the
    /// conflict.
    is_again: bool,
}

impl StoreError {
    /// Creates an error of this kind. `message` says what happened and what the user can do.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None, is_again: false }
    }

    setters! {
        /// Adds the driver's error as the source.
        with_source(source: impl Into<Box<dyn StdError + Send + Sync>>) { source = Some(source.into()) }
    }

    /// Creates an error for a conditional write that found a state other than the one the decision was based
    /// on.
    pub fn conflict(what: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Conflict, what)
    }

    /// Creates a conflict that the store itself caused. The call must be repeated at once.
    #[cfg(feature = "postgres")]
    pub(crate) fn again(what: impl Into<String>) -> Self {
        Self { is_again: true, ..Self::conflict(what) }
    }

    /// Returns true for a conflict that no other transaction caused. The call must be repeated at once.
    pub(crate) fn is_again(&self) -> bool {
        self.is_again
    }

    /// Returns what the failure means to the caller.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Returns true for [`Busy`](StoreErrorKind::Busy), [`Conflict`](StoreErrorKind::Conflict),
    /// [`Full`](StoreErrorKind::Full) and [`Io`](StoreErrorKind::Io): nothing was committed, and the cause
    /// may pass. Call again, after a pause. The last two can last until space is made or the medium is
    /// repaired.
    pub fn is_retryable(&self) -> bool {
        use StoreErrorKind::{Busy, Conflict, Full, Io};
        matches!(self.kind, Busy | Conflict | Full | Io)
    }

    /// Returns true for [`StoreErrorKind::Indeterminate`].
    pub fn is_indeterminate(&self) -> bool {
        self.kind == StoreErrorKind::Indeterminate
    }
}
