//! Ticks with many lanes: lanes that come in pages, marks of what is refused, and which lanes a tick names.

use std::collections::{BTreeMap, HashSet};

use super::super::contenders::{Place, Turn};
use super::super::lane::{Candidate, Lane, LanePage};
use super::super::order::OrderKey;
use super::super::sleep::Mark;
use super::super::verdict::Refusal;
use super::{LaneWork, Planner};
use crate::id::QueueName;

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
    marks: Vec<Mark>,
    /// The classes among the marks, each by its queue and its pools.
    closed: HashSet<(QueueName, Vec<(usize, u32)>)>,
    /// Whether the first tasks of lanes were asked for.
    has_heads: bool,
}

impl Default for Paging {
    fn default() -> Self {
        Self {
            named: usize::MAX,
            unread: None,
            is_paged: false,
            pages: 0,
            marks: Vec::new(),
            closed: HashSet::new(),
            has_heads: false,
        }
    }
}

impl Planner {
    /// Names at most so many lanes. If there is a place, those lanes without a share that begin behind it were left out,
    /// and can be asked for.
    #[must_use]
    pub(crate) fn naming(mut self, named: usize, unread: Option<OrderKey>) -> Self {
        (self.paging.named, self.paging.unread, self.paging.is_paged) = (named, unread, unread.is_some());
        self
    }

    /// Returns true if it planned with a part of the lanes. Its marks hold only if its plan is committed.
    pub(crate) fn is_paged(&self) -> bool {
        self.paging.is_paged
    }

    /// Supplies what [`super::Need::Lanes`] requests: lanes in the order of their first tasks, and the place behind which
    /// the others begin. What they name is fed by [`Self::feed_capacity`].
    pub(crate) fn feed_lanes(&mut self, lanes: Vec<Lane>, unread: Option<OrderKey>) {
        self.paging.unread = unread;
        self.add(lanes);
    }

    /// Supplies what [`super::Need::Heads`] requests.
    pub(crate) fn feed_heads(&mut self, heads: &[Candidate]) {
        for head in heads {
            if let Some(at) = self.by_no.get(&head.lane) {
                self.lanes[*at].lane.head.get_or_insert(head.order);
            }
        }
    }

    /// Returns whether a lane that was not read may come before this turn.
    pub(super) fn hides_before(&self, turn: Option<&Turn>) -> bool {
        let Some(bound) = self.paging.unread else { return false };
        let bound = Turn { is_last: false, level: bound.rank, place: Place::Alone(bound) };
        turn.is_none_or(|turn| *turn > bound)
    }

    /// Returns what it asks for to see more lanes. The pages double, from no more than the budget could use.
    pub(super) fn asks_for_lanes(&mut self) -> Option<super::Need> {
        let after = self.paging.unread?;
        let left = self.budget.saturating_sub(self.admitted.len()).saturating_mul(2);
        let first = self.paging.named.min(left).max(1);
        let limit = first.saturating_mul(1 << self.paging.pages.min(DOUBLINGS));
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
        let work = &self.lanes[at];
        let is_new = match mark {
            Mark::Class { .. } => {
                self.paging.closed.insert((work.lane.key.queue.clone(), work.pools.clone()))
            }
            Mark::Group { .. } => true,
        };
        if is_new {
            self.paging.marks.push(mark);
        }
    }

    /// Asks, once, for the first tasks of lanes of which none was read, if they decide which lanes are named.
    pub(super) fn asks_for_heads(&mut self) -> super::Need {
        let served = self.lanes.iter().filter(|work| !work.is_foreign);
        if self.paging.has_heads || served.clone().count() <= self.paging.named {
            return super::Need::Nothing;
        }
        self.paging.has_heads = true;
        let unknown = served.filter(|work| work.lane.head.is_none());
        let pages: Vec<LanePage> = unknown.map(|work| LanePage::new(work.lane.id, None, 1)).collect();
        if pages.is_empty() { super::Need::Nothing } else { super::Need::Heads(pages) }
    }

    /// Returns the marks that are still to be made.
    pub(super) fn take_marks(&mut self) -> Vec<Mark> {
        std::mem::take(&mut self.paging.marks)
    }

    /// Keeps the refusals of the first lanes by the places of their first tasks when the tick began, in this order, and
    /// returns whether there were other lanes.
    pub(super) fn cut(&self, refusals: &mut Vec<(usize, Refusal)>) -> bool {
        let served = |work: &&LaneWork| !work.is_foreign;
        if !self.paging.is_paged && self.lanes.iter().filter(served).count() <= self.paging.named {
            return false;
        }
        let place = |work: &LaneWork| (work.lane.head.is_none(), work.lane.head, work.lane.id);
        let mut places: Vec<_> = self.lanes.iter().filter(served).map(place).collect();
        if places.len() > self.paging.named {
            places.select_nth_unstable(self.paging.named);
            places.truncate(self.paging.named);
        }
        let named: HashSet<_> = places.into_iter().map(|(.., id)| id).collect();
        let refused = std::mem::take(refusals).into_iter();
        let refused = refused.filter(|(at, _)| named.contains(&self.lanes[*at].lane.id));
        let by_place: BTreeMap<_, _> =
            refused.map(|refused| (place(&self.lanes[refused.0]), refused)).collect();
        *refusals = by_place.into_values().collect();
        true
    }
}
