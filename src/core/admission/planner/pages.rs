//! Which lanes the planner requests candidates from, and how many.

use super::{Planner, Rule};
use crate::admission::{LanePage, Reason};

/// The smallest page of candidates requested, if a lane can use that many.
const SMALLEST_PAGE: usize = 16;

/// The most candidates in the smallest pages of all lanes together. If there are more lanes, each gets a
/// smaller page, of at least two candidates.
const MANY: usize = 4_096;

impl Planner {
    /// Requests the next heads of the hungry lanes. Leaves lanes that could not use one.
    ///
    /// The first request divides twice the budget among the lanes. No lane gets more than it has room and
    /// tasks for. A lane that admitted all of its part requests again, for as many as it may use. The same
    /// request tops up the other lanes, to a size that doubles each time. Otherwise each of them would soon
    /// need a request of its own.
    pub(super) fn pages(&mut self) -> Vec<LanePage> {
        // A page costs the store a search, a request costs a round trip, and a row read but not admitted is
        // wasted. One page per task would mean thousands of round trips. A whole budget for each of thousands
        // of lanes would read the entire backlog. Twice the budget, divided among the lanes, is enough for
        // most ticks in one request, because one lane may use what another does not.
        let mut asking = std::mem::take(&mut self.hungry);
        asking.retain(|&at| {
            let can_use = self.can_use_head(at);
            if !can_use {
                self.leave(at);
            }
            can_use
        });
        if asking.is_empty() {
            return Vec::new();
        }
        let left = match &self.rule {
            Rule::Window(window) if self.keeping.is_empty() => window.left(),
            _ => self.budget.saturating_sub(self.admitted.len()).max(1),
        };
        let hungry = asking.len();
        let mut more = 0;
        let total = left.saturating_mul(2).saturating_mul(1 << self.requests.min(16));
        // When lanes come in pages, the lanes of earlier pages already have candidates.
        let sharing = if self.is_paged() { self.lanes.len() } else { hungry };
        let first = (left.saturating_mul(2) / sharing).max(smallest_page(sharing));
        if self.requests > 0 {
            // A lane that used up its candidates has shown that it can use them, so only its room limits the
            // new page. The other lanes still have some candidates, but each would run out later: n lanes in
            // n round trips. Topping them up now, to a size that doubles, takes about log2(n) requests in
            // total.
            let others = (0..self.lanes.len()).filter(|&at| self.may_run_out(at));
            asking.extend(others);
            more = (total / asking.len()).max(smallest_page(asking.len()));
        }
        self.requests += 1;
        let with_ready_at = matches!(self.rule, Rule::Reserve { .. });
        let page = |(place, at): (usize, usize)| {
            let work = &self.lanes[at];
            let share = match (place < hungry, work.read) {
                (true, 0) => first,
                (true, _) => usize::MAX,
                (false, _) => more,
            };
            let room = share.min(self.room(at, left)).saturating_sub(work.buffer.len());
            let unread = usize::try_from(work.lane.ready.saturating_sub(work.read)).unwrap_or(usize::MAX);
            // Even a lane whose counter says 0 is read once.
            let page = LanePage::new(work.lane.id, work.last, room.min(unread.max(1)));
            (page.limit > 0).then(|| page.with_ready_at(with_ready_at))
        };
        asking.into_iter().enumerate().filter_map(page).collect()
    }

    /// Returns true if a lane still has candidates but may need more.
    fn may_run_out(&self, at: usize) -> bool {
        let work = &self.lanes[at];
        !work.is_left && !work.is_drained && !work.buffer.is_empty() && self.can_use_head(at)
    }

    pub(super) fn can_use_head(&self, at: usize) -> bool {
        match &self.rule {
            Rule::Backfill => !self.lanes[at].is_foreign && self.refusal(at).is_none(),
            Rule::Reserve { .. } => match self.refusal(at) {
                None => self.is_unreserved(at),
                Some(Reason::PoolFull { .. }) => self.may_reserve(at),
                Some(_) => false,
            },
            Rule::Window(_) if self.lanes[at].lane.keeps_slots => self.refusal(at).is_none(),
            Rule::Window(window) => {
                let lane = &self.lanes[at];
                // Airflow's query leaves out paused tasks.
                lane.paused.is_empty() && !window.is_excluded(lane, &self.pools, &self.limits)
            }
        }
    }

    /// Returns true if the next task of a lane waits only for its pools, and none of them is reserved yet.
    pub(super) fn may_reserve(&self, at: usize) -> bool {
        let is_open = |(limit, count): &(usize, u32)| !self.limits[*limit].is_reached(*count);
        self.is_unreserved(at) && self.lanes[at].limits.iter().all(is_open)
    }

    pub(super) fn is_unreserved(&self, at: usize) -> bool {
        self.lanes[at].pools.iter().all(|(pool, _)| self.pools[*pool].reserved.is_none())
    }

    /// Returns an upper bound, at least 1, on how many more tasks of a lane are considered.
    fn room(&self, at: usize, left: usize) -> usize {
        let work = &self.lanes[at];
        if let Rule::Window(_) = self.rule
            && !work.lane.keeps_slots
        {
            return left.max(1);
        }
        if work.is_foreign {
            return 1;
        }
        let by_pools = work
            .pools
            .iter()
            .filter_map(|(pool, slots)| self.pools[*pool].open().map(|open| open / i64::from(*slots).max(1)));
        let by_limits = work.limits.iter().filter_map(|(limit, count)| self.limits[*limit].open(*count));
        let room = by_limits.chain(by_pools).min().unwrap_or(i64::MAX);
        left.min(usize::try_from(room).unwrap_or(0)).max(1)
    }
}

/// Returns the smallest page size for this many lanes.
fn smallest_page(lanes: usize) -> usize {
    (MANY / lanes.max(1)).clamp(2, SMALLEST_PAGE)
}
