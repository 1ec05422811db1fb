//! Ticks with many lanes: lanes that come in pages, marks for refusals, and the lanes that a tick names.

use std::collections::HashSet;

use super::super::contenders::{Turn, UnreadOf};
use super::super::lane::{Lane, LaneId};
use super::super::order::OrderKey;
use super::super::plan::Behind;
use super::super::sleep::{MARKS, Mark};
use super::{Planner, ShareUse};
use crate::id::QueueName;
use crate::time::Timestamp;

/// The most lanes of one page are this power of 2 times the lanes that a tick names.
const DOUBLINGS: u32 = 12;

/// What a tick knows of its unread lanes.
#[derive(Debug)]
pub(super) struct Paging {
    /// The most lanes that the tick names.
    named: usize,
    /// All unread lanes that do not sleep have their first task behind this place. `None` if all lanes were
    /// read.
    unread: Option<OrderKey>,
    /// The same for shares: a share none of whose lanes has been read has its turn behind this one.
    unread_shares: Option<Turn>,
    /// Whether lanes were left out at the start. If so, refusals are marked.
    is_paged: bool,
    /// The same for lanes of shares.
    pages_shares: bool,
    /// The number of pages that were requested, except pages of one share.
    pages: u32,
    /// The number of marks that the tick may still make.
    marks_left: usize,
    marks: Vec<Mark>,
    /// The earliest instant at which one of its marks ends on its own. Lanes that fell asleep under the mark
    /// may wait only for that, even if the marked lane ends up with another reason.
    pub(super) next_token: Option<Timestamp>,
    /// The class marks, each by its queue and its pools.
    closed: HashSet<(QueueName, Vec<(usize, u32)>)>,
}

impl Default for Paging {
    fn default() -> Self {
        Self {
            named: usize::MAX,
            unread: None,
            unread_shares: None,
            is_paged: false,
            pages_shares: false,
            pages: 0,
            marks_left: MARKS,
            marks: Vec::new(),
            next_token: None,
            closed: HashSet::new(),
        }
    }
}

impl Planner {
    /// Names at most this many lanes, lowest numbers first. If `unread` is set, lanes that begin behind that
    /// place were left out and can be requested. The same applies to shares if `shares` is set.
    #[must_use]
    pub(crate) fn naming(mut self, named: usize, unread: Option<OrderKey>, shares: Option<Turn>) -> Self {
        (self.paging.named, self.paging.unread, self.paging.is_paged) = (named, unread, unread.is_some());
        (self.paging.pages_shares, self.paging.unread_shares) = (shares.is_some(), shares);
        self
    }

    /// Makes at most this many marks. Ends the tick before a lane that might need another mark.
    #[must_use]
    pub(crate) fn marking(mut self, marks: usize) -> Self {
        self.paging.marks_left = marks;
        self
    }

    /// Returns true if it ended without reading some lanes. A planner with a budget of 0 reads no lanes and
    /// returns false.
    pub(super) fn is_cut(&self) -> bool {
        let (alone, shares) = (&self.paging.unread, &self.paging.unread_shares);
        self.budget > 0 && (alone.is_some() || shares.is_some() || self.contenders.are_cut())
    }

    /// Returns true if it planned with only a part of the lanes. Its marks are valid only if its plan is
    /// committed.
    pub(crate) fn is_paged(&self) -> bool {
        self.paging.is_paged
    }

    /// Supplies what [`super::Need::Lanes`] requests: lanes in the order of their first tasks. `unread` and
    /// `unread_shares` are the place and the turn behind which the remaining lanes begin. Feed the shares,
    /// pools and limits that the lanes name with [`Self::feed_shares`] and [`Self::feed_capacity`].
    pub(crate) fn feed_lanes(
        &mut self,
        of: Behind,
        mut lanes: Vec<Lane>,
        unread: Option<OrderKey>,
        unread_shares: Option<Turn>,
    ) {
        // The survey already returned the lanes that the tick names.
        lanes.retain(|lane| !self.by_no.contains_key(&lane.id));
        self.add(lanes);
        match of {
            Behind::Place(_) => self.paging.unread = unread,
            Behind::Turn(_) => self.paging.unread_shares = unread_shares,
            Behind::Of(of) => {
                if let Some(contender) = self.contender(of.lane) {
                    self.contenders.read(contender, of.behind);
                }
                let left = unread.map(|behind| UnreadOf { behind, pages: of.pages + 1, ..of });
                self.feed_shares(&[], left.as_slice());
            }
        }
    }

    /// Supplies the slots held by the shares of fed lanes, and the shares whose other lanes were left out.
    pub(crate) fn feed_shares(&mut self, shares: &[ShareUse], unread: &[UnreadOf]) {
        self.contenders.known(shares);
        for unread in unread {
            if let Some(contender) = self.contender(unread.lane) {
                self.contenders.leave_out(contender, unread.clone());
            }
        }
    }

    /// Returns the contender of a lane that was read.
    fn contender(&self, lane: LaneId) -> Option<usize> {
        self.by_no.get(&lane).and_then(|at| self.lanes[*at].contender)
    }

    /// Returns the unread lanes that may come before the next known lane.
    pub(super) fn hidden(&self) -> Option<Behind> {
        let of_contender = || self.contenders.hidden(&self.heap.first()?).cloned().map(Behind::Of);
        self.hidden_lanes().or_else(of_contender)
    }

    /// Returns the unread lanes that may come before the next known lane, without those of its contender.
    fn hidden_lanes(&self) -> Option<Behind> {
        if self.paging.unread.is_none() && self.paging.unread_shares.is_none() {
            return None;
        }
        let turn = self.heap.turn();
        let turn = turn.as_ref();
        let hides = |bound: &Turn| turn.is_none_or(|turn| **turn > *bound);
        let falls = |bound: &Turn| turn.is_some_and(|turn| self.contenders.falls_before(turn, bound));
        let alone = self.paging.unread.filter(|place| hides(&Turn::alone(*place)));
        let share = self.paging.unread_shares.as_ref().filter(|bound| hides(bound) || falls(bound));
        match (alone, share) {
            (Some(place), Some(turn)) if Turn::alone(place) > *turn => Some(Behind::Turn(turn.clone())),
            (Some(place), _) => Some(Behind::Place(place)),
            (None, Some(turn)) => Some(Behind::Turn(turn.clone())),
            (None, None) => None,
        }
    }

    /// Returns a request for more lanes, if one is needed. Pages double in size, starting with no more lanes
    /// than the budget could use. Each lane of a page may need a mark.
    pub(super) fn asks_for_lanes(&mut self) -> Option<super::Need> {
        let of = self.hidden()?;
        let left = self.budget.saturating_sub(self.admitted.len()).saturating_mul(2);
        let (first, pages) = match &of {
            Behind::Of(of) => (1, of.pages),
            Behind::Place(_) | Behind::Turn(_) => {
                self.paging.pages += 1;
                (self.paging.named.min(left).max(1), self.paging.pages - 1)
            }
        };
        let limit = first.saturating_mul(1 << pages.min(DOUBLINGS)).min(self.paging.marks_left);
        if limit == 0 {
            return None;
        }
        let marks = std::mem::take(&mut self.paging.marks);
        Some(super::Need::Lanes { of, limit, marks })
    }

    /// Leaves a lane whose next task is refused, and marks the cause of the refusal.
    pub(super) fn leave(&mut self, at: usize) {
        self.lanes[at].is_left = true;
        let lane = &self.lanes[at].lane;
        let is_paged = if lane.key.share.is_some() { self.paging.pages_shares } else { self.paging.is_paged };
        if !is_paged || lane.sleeps || lane.keeps_slots {
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

    /// Returns the marks that still have to be recorded.
    pub(super) fn take_marks(&mut self) -> Vec<Mark> {
        std::mem::take(&mut self.paging.marks)
    }

    /// Returns the last lane that the tick names; `None` if it names all known lanes. The lowest numbers are
    /// named, so that no candidate has to be read for this.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::admission::limits::LimitRecord;
    use crate::admission::{Candidate, LaneKey, Need};
    use crate::id::LimitKey;
    use crate::lease::TaskId;
    use crate::pool::{PoolRecord, PoolSpec, Slots};
    use crate::time::Timestamp;

    const AT: Timestamp = Timestamp::UNIX_EPOCH;

    fn place(id: i64) -> OrderKey {
        OrderKey::new(0, AT, None, TaskId(id))
    }

    /// Starting a task that kept its slots moves its share forward. The share's unread lanes then precede its
    /// known lanes that come later in the order.
    #[test]
    fn a_share_whose_turn_falls_hides_its_unread_lanes() {
        let (share, full) = (LimitKey::new("share").unwrap(), LimitKey::new("full").unwrap());
        let lane = |id: i64, slots: u32, limits: &[&LimitKey]| {
            let limits = limits.iter().map(|key| (*key).clone()).collect();
            let key = LaneKey::new("db".try_into().unwrap(), slots, limits).share(share.clone(), 0);
            Lane::new(LaneId(id), key, 1)
        };
        let used = ShareUse::new("db".try_into().unwrap(), share.clone(), 1, 0, 900_000);
        let pair = Arc::new((used.pool.clone(), share.clone()));
        let bound = Turn::of_share(0, used.turn(1), pair, place(5));
        let known = vec![lane(-1, 1, &[]).keeps_slots(true), lane(3, 3, &[])];
        let planner = Planner::new(9, known).shares(&[used], 1);
        let mut planner = planner.naming(1, None, Some(Turn::FIRST));

        let pools = [PoolRecord::new(PoolSpec::new("db", Slots::Unlimited).unwrap(), 1)];
        let limits = [LimitRecord::new(full.clone(), Some(1), 1)];
        let heads = [(-1, 1), (3, 9), (1, 5), (2, 8)];
        let mut turns = 0;
        loop {
            match planner.need() {
                Need::Capacity => planner.feed_capacity(&pools, &limits, &[], AT),
                Need::Candidates(pages) => {
                    let of = |page: &crate::admission::LanePage| {
                        let head = heads.iter().find(|(lane, _)| page.lane.0 == *lane).unwrap();
                        Candidate::new(page.lane, place(head.1))
                    };
                    planner.feed_candidates(&pages, &pages.iter().map(of).collect::<Vec<_>>());
                }
                Need::Lanes { of, .. } => {
                    let Behind::Turn(_) = of else { panic!("{of:?}") };
                    let (lane, unread) = match turns {
                        0 => (lane(1, 1, &[&full]), Some(bound.clone())),
                        _ => (lane(2, 2, &[]), None),
                    };
                    turns += 1;
                    planner.feed_lanes(of, vec![lane], None, unread);
                    planner.feed_capacity(&pools, &limits, &[], AT);
                }
                Need::Nothing => break,
            }
        }
        let admitted: Vec<i64> = planner.finish().admit.iter().map(|task| task.order.id.0).collect();
        assert_eq!((admitted, turns), (vec![1, 8, 9], 2));
    }
}
