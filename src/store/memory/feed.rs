//! The feed of ended tasks, and its consumers.

use std::ops::Bound;

use super::state::Write;
use super::undo::Transaction;
use crate::error::StoreResult;
use crate::feed::{Consumer, TaskEvent};
use crate::id::Holder;
use crate::store::contract::{FeedTx, Move};
use crate::task::TaskRecord;
use crate::time::Timestamp;

impl Transaction<'_> {
    /// Writes an event for this move, if the task opted in.
    pub(super) fn write_event(&mut self, was: &TaskRecord, order: &Move) {
        if !was.feed.includes(was.state, order.to) {
            return;
        }
        self.state.last.feed += 1;
        let seq = self.state.last.feed;
        let event = TaskEvent {
            seq,
            id: was.id,
            task: was.key.clone(),
            attempt: was.attempt,
            at: order.ended_at.or(order.at).unwrap_or(was.ready_at),
            state: order.to,
            reason: order.reason,
            value: order.value.clone(),
            message: order.message.clone(),
        };
        self.write(Write::Feed(seq, Some(Box::new(event))));
    }
}

impl FeedTx for Transaction<'_> {
    fn feed(&mut self, after: u64, limit: usize) -> StoreResult<Vec<TaskEvent>> {
        let events = self.state.feed.range((Bound::Excluded(after), Bound::Unbounded));
        Ok(events.take(limit).map(|(_, event)| (**event).clone()).collect())
    }

    fn feed_last(&mut self) -> StoreResult<u64> {
        Ok(self.state.last.feed)
    }

    fn forget_feed(&mut self, accepted: u64, before: Timestamp, limit: usize) -> StoreResult<usize> {
        self.writable()?;
        let first = self.state.feed.iter().take(limit);
        let old = first.filter(|(seq, event)| **seq <= accepted || event.at < before);
        let old: Vec<u64> = old.map(|(seq, _)| *seq).collect();
        old.iter().for_each(|seq| self.write(Write::Feed(*seq, None)));
        Ok(old.len())
    }

    fn consumers(&mut self) -> StoreResult<Vec<Consumer>> {
        Ok(self.state.consumers.values().map(|consumer| (**consumer).clone()).collect())
    }

    fn hold_consumer(&mut self, name: &Holder) -> StoreResult<Option<Consumer>> {
        self.writable()?;
        Ok(self.state.consumers.get(name).map(|consumer| (**consumer).clone()))
    }

    fn put_consumer(&mut self, consumer: &Consumer) -> StoreResult<()> {
        self.writable()?;
        self.write(Write::Consumer(consumer.name.clone(), Some(Box::new(consumer.clone()))));
        Ok(())
    }

    fn delete_consumer(&mut self, name: &Holder) -> StoreResult<bool> {
        self.writable()?;
        let is_there = self.state.consumers.contains_key(name);
        if is_there {
            self.write(Write::Consumer(name.clone(), None));
        }
        Ok(is_there)
    }
}
