//! The operations that carry a task from *scheduled* to its end.
//!
//! Each takes a transaction, the present instant and many items, and answers one value per item. They run alike in a
//! transaction of the store's ([`crate::store::StoreExt::write`]) and in one that the host owns, so that the host's own rows
//! and these commit or vanish together. What cannot be done for an item because the world moved on (a stale lease, a
//! task that ended) is an answer; an `Err` means that the transaction must be rolled back.
//!
//! A host whose own rows stand or fall with a lease wants the stale answer to be an error, too: [`Fenced::fenced`].

mod admit;
mod attempt;
mod capacity;
mod clear;
mod enqueue;
mod explain;
mod fenced;
mod hand_over;
mod leave;
mod mark;
mod reap;
mod sense;

pub use admit::{Admission, AdmitOrder, admit};
pub use attempt::{Finish, Finished, Outcome, RetryAdvice, finish, renew, start};
pub use clear::{Cleared, clear};
pub use enqueue::{EnqueueOptions, enqueue, enqueue_with};
pub use explain::{Explanation, explain};
pub use fenced::{Fenced, UnderLease};
pub use hand_over::{hand_over, register_with};
pub use mark::{Mark, Marked, mark};
pub(in crate::service) use reap::reap_expired_by;
pub use reap::{Reaped, reap};
pub use sense::{Registered, end_sensors, register};
