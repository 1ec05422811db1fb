//! The order in which a tick considers lanes and shares.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::contenders::{Next, Turn};
use super::order::OrderKey;

/// The lanes and contenders whose first tasks are known, first turn first.
///
/// Lanes without a share have a heap of their own. Their entries hold no turn of a share and are half as large,
/// so a tick over many of them moves less memory.
#[derive(Debug, Default)]
pub(super) struct Heap {
    /// [`Turn::is_last`], the first task, and the lane.
    alone: BinaryHeap<Reverse<(bool, OrderKey, usize)>>,
    shares: BinaryHeap<Reverse<(Turn, Next)>>,
}

impl Heap {
    /// Adds a lane without a share, by its first task.
    pub(super) fn push_alone(&mut self, is_last: bool, head: OrderKey, lane: usize) {
        self.alone.push(Reverse((is_last, head, lane)));
    }

    /// Adds a contender, or a lane of a share.
    pub(super) fn push(&mut self, turn: Turn, next: Next) {
        self.shares.push(Reverse((turn, next)));
    }

    /// Returns the first entry.
    pub(super) fn first(&self) -> Option<Next> {
        if self.begins_alone() {
            return self.alone.peek().map(|Reverse((.., lane))| Next::Lane(*lane));
        }
        self.shares.peek().map(|Reverse((_, next))| *next)
    }

    /// Returns the turn of the first entry.
    pub(super) fn turn(&self) -> Option<Cow<'_, Turn>> {
        if self.begins_alone() {
            let Reverse((is_last, head, _)) = *self.alone.peek()?;
            return Some(Cow::Owned(Turn { is_last, ..Turn::alone(head) }));
        }
        self.shares.peek().map(|Reverse((turn, _))| Cow::Borrowed(turn))
    }

    /// Removes the first entry.
    pub(super) fn pop(&mut self) -> Option<Next> {
        if self.begins_alone() {
            return self.alone.pop().map(|Reverse((.., lane))| Next::Lane(lane));
        }
        self.shares.pop().map(|Reverse((_, next))| next)
    }

    /// Returns true if the first entry is a lane without a share. At equal levels these go before shares.
    fn begins_alone(&self) -> bool {
        match (self.alone.peek(), self.shares.peek()) {
            (Some(Reverse((is_last, head, _))), Some(Reverse((turn, _)))) => {
                (*is_last, head.rank) <= (turn.is_last, turn.level)
            }
            (alone, _) => alone.is_some(),
        }
    }
}
