//! What a store does with the feed of task events and its consumers.

use crate::error::StoreResult;
use crate::feed::{Consumer, TaskEvent};
use crate::id::Holder;
use crate::time::Timestamp;

/// The feed of task events, and its consumers.
///
/// Events are written by [`TaskTx::move_if`](super::TaskTx::move_if) and
/// [`end_if_leased`](super::TaskTx::end_if_leased), as the task's [`Feed`](crate::task::Feed) says. Their
/// numbers begin with 1, have no gaps, and are never used twice. No event becomes visible with a number below
/// that of one that was already visible. Events of one call keep its order. A store may assign the numbers
/// later: [`number_changes`](super::SensorTx::number_changes).
pub trait FeedTx {
    /// Returns at most `limit` events after number `after`, in order.
    fn feed(&mut self, after: u64, limit: usize) -> StoreResult<Vec<TaskEvent>>;

    /// Returns the number of the last event; 0 if there was none.
    fn feed_last(&mut self) -> StoreResult<u64>;

    /// Among the first `limit` events by number, deletes those whose number is at most `accepted`, and those
    /// that happened before this instant (`at < before`). Returns how many.
    fn forget_feed(&mut self, accepted: u64, before: Timestamp, limit: usize) -> StoreResult<usize>;

    /// Returns all consumers, by name.
    fn consumers(&mut self) -> StoreResult<Vec<Consumer>>;

    /// Locks a consumer until the transaction ends, and returns it.
    fn hold_consumer(&mut self, name: &Holder) -> StoreResult<Option<Consumer>>;

    /// Inserts a consumer, or replaces it.
    fn put_consumer(&mut self, consumer: &Consumer) -> StoreResult<()>;

    /// Deletes a consumer, and returns whether there was one.
    fn delete_consumer(&mut self, name: &Holder) -> StoreResult<bool>;
}
