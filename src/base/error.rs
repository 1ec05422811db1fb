//! What can go wrong, grouped by what the caller can do about it.
//!
//! An `Err` means that something is broken or was asked wrongly. A task that may not run yet, a lease that
//! was lost and a poke that found nothing are answers, not errors.

use std::error::Error as StdError;

use crate::base::setters;
use crate::bounds::{MAX_LIMIT_KEYS, MAX_SLOTS};
use crate::id::{Holder, IdError, RequestId, TaskKey};

/// The result of whatever touches a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The result of one store operation.
pub type StoreResult<T> = std::result::Result<T, StoreError>;

/// What a service or a verb returns when it could not do its work.
///
/// In a transaction of the store's nothing is half done: it was rolled back, unless
/// [`StoreError::is_indeterminate`]. In one that the host owns, the host must roll back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Leases were given up for lost: roll back and stop that work, somebody else may be at it. Only
    /// [`fenced`](crate::ops::Fenced::fenced) says so; else a stale lease is an answer.
    #[error("leases are stale: {} of the {of} that were named, the first at place {} (from 1): roll back, and stop that work", stale.len(), stale.first().map_or(0, |at| at + 1))]
    Stale {
        /// The places of the stale ones in what was asked, from 0, rising.
        stale: Vec<usize>,
        /// How many were asked for.
        of: usize,
    },
    /// Attempts had been finished like this before, by a call whose commit took effect. Roll back, and call
    /// again without them if others were named beside them: those are not stored. Only
    /// [`fenced`](crate::ops::Fenced::fenced) says so; else a repeated finish is an answer.
    #[error("{} of the {of} that were named had been finished like this before, the first at place {} (from 1): roll back, and call again without these, which are stored", repeated.len(), repeated.first().map_or(0, |at| at + 1))]
    Repeated {
        /// The places of the repeated ones in what was asked, from 0, rising.
        repeated: Vec<usize>,
        /// How many were asked for.
        of: usize,
    },
    /// A name was refused.
    #[error(transparent)]
    Id(#[from] IdError),
    /// An argument was refused.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A value was refused when it was built: a retry policy, a poke context.
    #[error(transparent)]
    Refused(Box<dyn StdError + Send + Sync>),
    /// There is no async runtime that could do the work: nothing was done.
    #[cfg(feature = "tokio")]
    #[error(transparent)]
    Runtime(#[from] NoRuntime),
    /// The body of a transaction gave up with an error of its own; everything was rolled back.
    #[error("the transaction was rolled back by its caller: {0}")]
    Aborted(#[source] Box<dyn StdError + Send + Sync>),
}

impl Error {
    /// Wraps an error of the host's, to leave a transaction and roll it back.
    pub fn abort(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Aborted(cause.into())
    }

    /// True if the same call may succeed when it is made again.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }

    /// True if it is not known whether the transaction took effect.
    pub fn is_indeterminate(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_indeterminate())
    }
}

/// There is no async runtime that could do the work. Nothing was done.
#[cfg(feature = "tokio")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum NoRuntime {
    /// The future was not polled by a tokio runtime.
    #[error("there is no tokio runtime here: await this in one of its tasks, or enter its handle first")]
    Outside,
    /// The runtime was shut down before the work began.
    #[error("the tokio runtime was shut down before the work began: nothing was done")]
    ShutDown,
}

/// An argument that no store state could make right. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Invalid {
    /// `pool_slots` is 0 or above [`MAX_SLOTS`].
    #[error("task {task} asks for {slots} slots: ask for 1 to {}", MAX_SLOTS)]
    TaskSlots {
        /// The task.
        task: Box<TaskKey>,
        /// What it asked for.
        slots: u32,
    },
    /// A pool or limit is larger than [`MAX_SLOTS`].
    #[error("{what} of {value} is above {}: use `Slots::Unlimited`, or no limit", MAX_SLOTS)]
    TooLarge {
        /// What was too large.
        what: &'static str,
        /// The value asked for.
        value: u64,
    },
    /// A task carries more limit keys than [`MAX_LIMIT_KEYS`].
    #[error("task {task} carries {count} limit keys: carry at most {}", MAX_LIMIT_KEYS)]
    LimitKeys {
        /// The task.
        task: Box<TaskKey>,
        /// How many keys it carries.
        count: usize,
    },
    /// A payload is larger than its cap.
    #[error("{what} has {bytes} bytes, more than {cap}: keep a reference to it, not the data")]
    TooManyBytes {
        /// What was too large.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The largest size that is taken.
        cap: usize,
    },
    /// A tick was given a name that another holder's tick had.
    #[error("request {request} is of {holder}: give each tick a name of its own")]
    RequestOfAnother {
        /// The name.
        request: RequestId,
        /// Who holds what it was granted.
        holder: Holder,
    },
    /// A sensor cannot end like this.
    #[error("a sensor cannot take its task to {to}: to an end, or to scheduled")]
    Ending {
        /// Where it was to take it.
        to: &'static str,
    },
    /// Workers that share sensors do not agree on how to share them.
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
    /// A duration is zero, or out of its range.
    #[error("{what} must be {expected}")]
    Duration {
        /// Which duration.
        what: &'static str,
        /// The range it must be in.
        expected: &'static str,
    },
    /// A count of which there must be at least one is zero.
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
        /// By how much, in microseconds.
        micros: i64,
    },
    /// A series has more buckets than its cap: in one row, or in all rows together.
    #[error(
        "the series has {count} buckets, more than {cap}: make them wider, the window shorter, or tell fewer runs apart"
    )]
    Buckets {
        /// How many it has, at least.
        count: usize,
        /// The most that are taken.
        cap: usize,
    },
    /// The path template of a log is refused.
    #[error("{why}")]
    Template {
        /// What is wrong with it, and what to give instead.
        why: String,
    },
    /// The name of a database schema is not a plain identifier.
    #[error(
        "schema {schema:?} is refused: use 1 to 63 of a-z, 0-9 and _, beginning with a letter, not with pg_"
    )]
    Schema {
        /// What was given.
        schema: String,
    },
    /// A table prefix is not a plain identifier.
    #[error("table prefix {prefix:?} is refused: use 1 to 32 of a-z, 0-9 and _, beginning with a letter")]
    Prefix {
        /// What was given.
        prefix: String,
    },
}

/// What a store's failure means to its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Another writer held the store for longer than the lock timeout. Call again.
    Busy,
    /// One call asked for more than the database does or takes at once: it ran into the limit of time for a
    /// statement, or is too large to be sent. Nothing was changed, and the same call would fail again. Split
    /// it, or raise the limit.
    TooMuch,
    /// The state changed between the decision and the commit. Call again: services do so themselves.
    Conflict,
    /// No space is left. Everything committed is safe; make space and call again.
    Full,
    /// The medium failed.
    Io,
    /// What is stored is damaged or not ours.
    Corrupt,
    /// The schema was written by a newer version of the crate, or by something else. It was left untouched.
    Schema,
    /// The store can be read only.
    ReadOnly,
    /// The commit failed in a way that leaves open whether it took effect. Ask the store before trying again.
    Indeterminate,
    /// Anything else: see the source.
    Backend,
}

impl StoreErrorKind {
    /// The name, which also serves as a label of metrics.
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
}

impl StoreError {
    /// An error of this kind; `message` tells the user what happened and what to do.
    pub fn new(kind: StoreErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    setters! {
        /// The same with the driver's error behind it.
        with_source(source: impl Into<Box<dyn StdError + Send + Sync>>) { source = Some(source.into()) }
    }

    /// A conditional write found another state than the one it was decided on.
    pub fn conflict(what: impl Into<String>) -> Self {
        Self::new(StoreErrorKind::Conflict, what)
    }

    /// What the failure means to the caller.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// True for [`StoreErrorKind::Busy`] and [`StoreErrorKind::Conflict`]: nothing was changed, call again.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Busy | StoreErrorKind::Conflict)
    }

    /// True for [`StoreErrorKind::Indeterminate`].
    pub fn is_indeterminate(&self) -> bool {
        self.kind == StoreErrorKind::Indeterminate
    }
}
