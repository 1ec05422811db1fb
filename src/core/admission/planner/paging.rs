//! Ticks with many lanes: lanes that come in pages, marks of what is refused, and which lanes a tick names.

use std::collections::HashSet;

use super::super::contenders::{Place, Turn};
use super::super::lane::{Lane, LaneId};
use super::super::order::OrderKey;
use super::super::sleep::{MARKS, Mark};
use super::Planner;
use crate::id::QueueName;
use crate::time::Timestamp;

/// The most lanes of one page, as a multiple of those that a tick names: 2 to this power.
const DOUBLINGS: u32 = 12;

/// What a tick knows of the lanes that it has not read.
#[derive(Debug)]
pub(super) struct Paging {
    /// How many lanes the tick names at most.
    named: usize,
    /// The first task of every lane that is not read and does not sleep is behind this place. `None` if all were read.
    unread: Option<OrderKey>,
    /// Whether lanes were left out at first: then what is refused is marked.
    is_paged: bool,
    /// The number of pages that were asked for.
    pages: u32,
    /// How many marks the tick may still make.
    marks_left: usize,
    marks: Vec<Mark>,
    /// When the first of its marks ends on its own. Lanes that have slept since then may wait only for that,
    /// although the marked lane finally has another reason.
    pub(super) next_token: Option<Timestamp>,
    /// The classes among the marks, each by its queue and its pools.
    closed: HashSet<(QueueName, Vec<(usize, u32)>)>,
}

impl Default for Paging {
    fn default() -> Self {
        Self {
            named: usize::MAX,
            unread: None,
            is_paged: false,
            pages: 0,
            marks_left: MARKS,
            marks: Vec::new(),
            next_token: None,
            closed: HashSet::new(),
        }
    }
}

impl Planner {
    /// Names at most this many lanes, the first ones by number. If there is a place, lanes that begin behind it were left
    /// out, and can be asked for.
    #[must_use]
    pub(crate) fn naming(mut self, named: usize, unread: Option<OrderKey>) -> Self {
        (self.paging.named, self.paging.unread, self.paging.is_paged) = (named, unread, unread.is_some());
        self
    }

    /// Makes at most this many marks, and ends rather than look at a lane that may need another.
    #[must_use]
    pub(crate) fn marking(mut self, marks: usize) -> Self {
        self.paging.marks_left = marks;
        self
    }

    /// Returns true if it ended before lanes that it did not read. One that admits nothing reads none.
    pub(super) fn is_cut(&self) -> bool {
        self.budget > 0 && self.paging.unread.is_some()
    }

    /// Returns true if it planned with a part of the lanes. Its marks hold only if its plan is committed.
    pub(crate) fn is_paged(&self) -> bool {
        self.paging.is_paged
    }

    /// Supplies what [`super::Need::Lanes`] requests: lanes in the order of their first tasks, and the place behind which
    /// the others begin. What they name is fed by [`Self::feed_capacity`].
    pub(crate) fn feed_lanes(&mut self, mut lanes: Vec<Lane>, unread: Option<OrderKey>) {
        self.paging.unread = unread;
        // The survey returned those that the tick names.
        lanes.retain(|lane| !self.by_no.contains_key(&lane.id));
        self.add(lanes);
    }

    /// Returns whether a lane that was not read may come before this turn.
    pub(super) fn hides_before(&self, turn: Option<&Turn>) -> bool {
        let Some(bound) = self.paging.unread else { return false };
        let bound = Turn { is_last: false, level: bound.rank, place: Place::Alone(bound) };
        turn.is_none_or(|turn| *turn > bound)
    }

    /// Returns what it asks for to see more lanes. The pages double, from no more than the budget could use. Each of their
    /// lanes may need a mark.
    pub(super) fn asks_for_lanes(&mut self) -> Option<super::Need> {
        let after = self.paging.unread?;
        let left = self.budget.saturating_sub(self.admitted.len()).saturating_mul(2);
        let first = self.paging.named.min(left).max(1);
        let limit = first.saturating_mul(1 << self.paging.pages.min(DOUBLINGS)).min(self.paging.marks_left);
        if limit == 0 {
            return None;
        }
        self.paging.pages += 1;
        let marks = std::mem::take(&mut self.paging.marks);
        Some(super::Need::Lanes { after, limit, marks })
    }

    /// Leaves a lane whose next task is refused, and marks what refuses it.
    pub(super) fn leave(&mut self, at: usize) {
        self.lanes[at].is_left = true;
        let lane = &self.lanes[at].lane;
        if !self.paging.is_paged || lane.sleeps || lane.is_read_whole() {
            return;
        }
        let Some(mark) = self.refusal(at).and_then(|reason| Mark::of(self.lanes[at].lane.id, reason)) else {
            return;
        };
        if let Mark::Group { next, .. } = &mark {
            self.paging.next_token = self.paging.next_token.into_iter().chain(*next).min();
        }
        let work = &self.lanes[at];
        let is_new = match mark {
            Mark::Class { .. } => {
                self.paging.closed.insert((work.lane.key.queue.clone(), work.pools.clone()))
            }
            Mark::Group { .. } => true,
        };
        if is_new {
            self.paging.marks_left = self.paging.marks_left.saturating_sub(1);
            self.paging.marks.push(mark);
        }
    }

    /// Returns the marks that are still to be made.
    pub(super) fn take_marks(&mut self) -> Vec<Mark> {
        std::mem::take(&mut self.paging.marks)
    }

    /// Returns the last lane that the tick names: the first ones by their numbers, which no candidate has to be read for.
    /// `None` if it names all that it knows.
    pub(super) fn last_named(&self) -> Option<LaneId> {
        let served = self.lanes.iter().filter(|work| !work.is_foreign);
        let mut numbers: Vec<LaneId> = served.map(|work| work.lane.id).collect();
        if numbers.len() <= self.paging.named {
            return None;
        }
        let (_, last, _) = numbers.select_nth_unstable(self.paging.named.checked_sub(1)?);
        Some(*last)
    }
}
