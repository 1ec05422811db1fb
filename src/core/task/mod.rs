//! Tasks: what a host enqueues, and what is stored about them.
//!
//! ```text
//! enqueue ──> Scheduled ──admit──> Queued ──start──> Running ──finish──> Success | Failed | Skipped
//!                ^  ^              (a lease on pool slots)  │  │
//!                │  └── not before t ◄── UpForRetry ◄───────┘  └─register─> Sensing (slots given back)
//!                └───────── resume, or straight to its end ◄── landed | timed out | failed
//! ```
//!
//! A task that has not ended becomes `Cancelled` when it is [cancelled](crate::store::Tx::cancel): at once if
//! it waits, or within a grace period if it has a holder.
//!
//! A task that may not start before some instant is [`TaskState::Scheduled`] or [`TaskState::UpForRetry`]
//! with a *due* instant. It takes no part in admission until a tick at or after that instant promotes it. A
//! task in state `Scheduled` without a due instant is *ready*.

use crate::base::words;

pub(crate) mod attempt;
pub(crate) mod change;
mod feed;
pub(crate) mod list;
mod record;
pub(crate) mod spec;
mod state;

pub use attempt::{KeptAttempts, PastAttempt};
pub use feed::Feed;
pub use list::{TaskCount, TaskPage, TaskQuery};
pub use record::{TaskRecord, attempt_run_id};
pub(crate) use spec::TaskInsert;
pub use spec::{LeaseLoss, NewTask};
pub use state::TaskState;

words! {
    /// How [`NewTask::attempt_runs`] is written.
    attempt_runs { Off, Record }
}
