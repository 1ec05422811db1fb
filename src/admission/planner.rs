//! The planner: a state machine that asks for what it needs and ends in a plan.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::capacity::{Bar, Interner, LimitWork, PoolWork};
use super::lane::{Candidate, Lane, LaneNo, LanePage, OrderKey};
use super::limits::LimitRecord;
use super::plan::{Need, Plan};
use super::policy::Policy;
use super::verdict::{Deferral, Reason};
use super::window::{Look, Window};
use crate::pool::PoolRecord;
use crate::time;

/// The smallest page of candidates that is asked for, where a lane may use that many.
const SMALLEST_PAGE: usize = 16;

/// Plans one tick. It reads nothing itself: ask [`Self::need`], feed it, ask again, then [`Self::finish`].
///
/// # Examples
///
/// ```
/// use stationmaster::admission::{Candidate, Lane, LaneKey, LaneNo, Need, OrderKey, Planner};
/// use stationmaster::lease::TaskNo;
/// use stationmaster::pool::{PoolRecord, PoolSpec, Slots};
/// use stationmaster::time::from_micros;
///
/// let pool = PoolRecord::new(PoolSpec::new("db", Slots::Limited(1))?, 0);
/// let lane = LaneKey::new("db".try_into()?, 1, vec![]);
/// let mut planner = Planner::new(10, vec![Lane::new(LaneNo(1), lane, 2)]);
///
/// assert!(matches!(planner.need(), Need::Capacity { .. }));
/// planner.feed_capacity(&[pool], &[]);
/// while let Need::Candidates(pages) = planner.need() {
///     let order = OrderKey::new(0, from_micros(0), None, TaskNo(7));
///     planner.feed_candidates(&pages, &[Candidate::new(pages[0].lane, order)]);
/// }
/// let plan = planner.finish();
/// assert_eq!(plan.admit[0].order.no, TaskNo(7));
/// assert_eq!(plan.deferrals[0].reason.to_string(), "pool db: 0 open of 1, needs 1");
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug)]
pub struct Planner {
    budget: usize,
    rule: Rule,
    lanes: Vec<LaneWork>,
    by_no: HashMap<LaneNo, usize>,
    pools: Vec<PoolWork>,
    limits: Vec<LimitWork>,
    heap: BinaryHeap<Reverse<(OrderKey, usize)>>,
    /// Lanes whose next head is not known.
    hungry: Vec<usize>,
    admitted: Vec<Candidate>,
    has_capacity: bool,
}

/// A [`Policy`] at work.
#[derive(Debug)]
enum Rule {
    Backfill,
    Reserve {
        after: Duration,
        now: DateTime<Utc>,
        /// The lane whose first task may reserve, when it is known since when that task is ready.
        asking: Option<usize>,
    },
    Window(Window),
}

#[derive(Debug)]
pub(super) struct LaneWork {
    pub(super) lane: Lane,
    pub(super) pool: usize,
    /// In order of the keys.
    pub(super) limits: Vec<usize>,
    pub(super) barred: Bar,
    buffer: VecDeque<Candidate>,
    last: Option<OrderKey>,
    admitted: u64,
    source: Source,
}

/// Whether a lane may have ready tasks that were not read yet.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    More,
    Drained,
}

impl Planner {
    /// A planner that admits at most `budget` tasks out of these lanes, by [`Policy::Backfill`].
    pub fn new(budget: usize, lanes: Vec<Lane>) -> Self {
        let mut pools = Interner::default();
        let mut limits = Interner::default();
        let lanes: Vec<LaneWork> = lanes
            .into_iter()
            .map(|lane| LaneWork {
                pool: pools.index(&lane.key.pool),
                limits: lane.key.limits.iter().map(|key| limits.index(key)).collect(),
                lane,
                barred: Bar::default(),
                buffer: VecDeque::new(),
                last: None,
                admitted: 0,
                source: Source::More,
            })
            .collect();
        Self {
            budget,
            rule: Rule::Backfill,
            by_no: lanes.iter().enumerate().map(|(at, work)| (work.lane.no, at)).collect(),
            lanes,
            pools: pools.names.into_iter().map(PoolWork::unknown).collect(),
            limits: limits.names.into_iter().map(LimitWork::undefined).collect(),
            heap: BinaryHeap::new(),
            hungry: Vec::new(),
            admitted: Vec::new(),
            has_capacity: false,
        }
    }

    /// Plans by this policy, in a tick at this instant. To be called before the first [`Self::need`].
    #[must_use]
    pub fn policy(mut self, policy: &Policy, now: DateTime<Utc>) -> Self {
        self.rule = match policy {
            Policy::Backfill => Rule::Backfill,
            Policy::Reserve { after } => Rule::Reserve { after: *after, now, asking: None },
            Policy::AirflowWindow(window) => Rule::Window(Window::new(window)),
        };
        self
    }

    /// What must be fed next. Admits as far as it can on what it was fed before.
    pub fn need(&mut self) -> Need {
        if self.lanes.is_empty() {
            return Need::Nothing;
        }
        if !self.has_capacity {
            let limits = self.limits.iter().map(|limit| limit.key.clone()).collect();
            if matches!(self.rule, Rule::Window(_)) {
                return Need::AllPools { limits };
            }
            return Need::Capacity {
                pools: self.pools.iter().map(|pool| pool.name.clone()).collect(),
                limits,
            };
        }
        while self.goes_on() {
            if let Rule::Reserve { asking: Some(at), .. } = self.rule
                && let Some(head) = self.lanes[at].buffer.front()
            {
                return Need::ReadyAt(head.order.no);
            }
            let pages = self.pages();
            if !pages.is_empty() {
                return Need::Candidates(pages);
            }
            let Some(Reverse((_, at))) = self.heap.pop() else {
                return Need::Nothing;
            };
            self.visit(at);
        }
        Need::Nothing
    }

    /// Whether the tick may admit, or look at, another task.
    fn goes_on(&mut self) -> bool {
        match &mut self.rule {
            Rule::Window(window) => window.left() > 0 || window.next_round(self.admitted.len()),
            Rule::Backfill | Rule::Reserve { .. } => self.admitted.len() < self.budget,
        }
    }

    /// Answers [`Need::Capacity`] and [`Need::AllPools`].
    pub fn feed_capacity(&mut self, pools: &[PoolRecord], limits: &[LimitRecord]) {
        if let Rule::Window(window) = &mut self.rule {
            window.fit(pools);
        }
        let pools: HashMap<_, _> = pools.iter().map(|pool| (&pool.spec.name, pool)).collect();
        for work in &mut self.pools {
            if let Some(pool) = pools.get(&work.name) {
                work.known(pool);
            }
        }
        let limits: HashMap<_, _> = limits.iter().map(|limit| (&limit.key, limit)).collect();
        for work in &mut self.limits {
            if let Some(limit) = limits.get(&work.key) {
                work.known(limit);
            }
        }
        if let Rule::Window(_) = self.rule {
            Window::bar_full(&mut self.pools);
        }
        self.has_capacity = true;
        self.hungry = (0..self.lanes.len()).collect();
    }

    /// Answers [`Need::Candidates`]: the tasks of each page in order, the pages in any order.
    pub fn feed_candidates(&mut self, pages: &[LanePage], candidates: &[Candidate]) {
        for candidate in candidates {
            if let Some(work) = self.by_no.get(&candidate.lane).map(|at| &mut self.lanes[*at]) {
                work.last = Some(candidate.order);
                work.buffer.push_back(*candidate);
            }
        }
        for page in pages {
            let Some(&at) = self.by_no.get(&page.lane) else { continue };
            let work = &mut self.lanes[at];
            if work.buffer.len() < page.limit {
                work.source = Source::Drained;
            }
            if let Some(head) = work.buffer.front() {
                self.heap.push(Reverse((head.order, at)));
            }
        }
    }

    /// Answers [`Need::ReadyAt`].
    pub fn feed_ready_at(&mut self, ready_at: DateTime<Utc>) {
        if let Rule::Reserve { after, now, asking } = &mut self.rule
            && let Some(lane) = asking.take().map(|at| &self.lanes[at])
            && time::duration_micros(time::since(*now, ready_at)) >= time::duration_micros(*after)
        {
            self.pools[lane.pool].reserved = lane.buffer.front().map(|head| head.order.no);
        }
    }

    /// The plan.
    pub fn finish(mut self) -> Plan {
        let mut plan = Plan::default();
        for at in 0..self.lanes.len() {
            let work = &self.lanes[at];
            let left = work.lane.ready.saturating_sub(work.admitted);
            if left > 0 {
                let reason = self.reason(at);
                plan.deferrals.push(Deferral::new(self.lanes[at].lane.key.clone(), left, reason));
            }
        }
        plan.admit = std::mem::take(&mut self.admitted);
        plan.pools =
            self.pools.into_iter().filter(|pool| pool.taken > 0).map(|p| (p.name, p.taken)).collect();
        plan.limits =
            self.limits.into_iter().filter(|limit| limit.taken > 0).map(|l| (l.key, l.taken)).collect();
        plan.pools.sort_unstable();
        plan.limits.sort_unstable();
        if let Rule::Window(window) = self.rule {
            plan.missing = window.met.into_iter().collect();
        }
        plan
    }

    /// Why the tasks that are left in a lane were not admitted, by what the tick leaves open.
    fn reason(&self, at: usize) -> Reason {
        let work = &self.lanes[at];
        let missing = || match &self.rule {
            Rule::Window(window) => {
                let keys = work.limits.iter().map(|limit| &self.limits[*limit].key);
                let workflow = keys.into_iter().find(|key| window.met.contains(*key))?;
                Some(Reason::WorkflowMissing { workflow: workflow.clone() })
            }
            Rule::Backfill | Rule::Reserve { .. } => None,
        };
        let stopped = || match &self.rule {
            Rule::Window(window) if self.admitted.len() < self.budget => {
                Reason::OutsideWindow { size: window.size() }
            }
            _ => Reason::BudgetSpent { budget: self.budget },
        };
        self.refusal(at)
            .or_else(missing)
            .or_else(|| self.pools[work.pool].reservation())
            .unwrap_or_else(stopped)
    }

    /// Admits the head of a lane, or leaves the lane. A window looks at what it refuses, and goes on in the lane.
    fn visit(&mut self, at: usize) {
        let admits = match &mut self.rule {
            Rule::Window(window) => {
                let (work, budget_left) =
                    (&mut self.lanes[at], self.budget.saturating_sub(self.admitted.len()));
                if window.is_barred(work, &self.pools, &self.limits) {
                    return;
                }
                window.look(work, &mut self.pools, &mut self.limits, budget_left) == Look::Admit
            }
            Rule::Backfill | Rule::Reserve { .. } => {
                if !self.walk_admits(at) {
                    return;
                }
                true
            }
        };
        let work = &mut self.lanes[at];
        let Some(candidate) = work.buffer.pop_front() else { return };
        if admits {
            work.admitted += 1;
            self.pools[work.pool].taken += u64::from(work.lane.key.slots);
            for &limit in &work.limits {
                self.limits[limit].taken += 1;
            }
            self.admitted.push(candidate);
        }
        if let Some(next) = work.buffer.front() {
            self.heap.push(Reverse((next.order, at)));
        } else if work.source == Source::More {
            self.hungry.push(at);
        }
    }

    /// Whether the walk admits the head of a lane. If it does not, it may want to know since when that task is ready.
    fn walk_admits(&mut self, at: usize) -> bool {
        let Some(refusal) = self.refusal(at) else {
            return self.pools[self.lanes[at].pool].reserved.is_none();
        };
        let may_reserve = matches!(refusal, Reason::PoolFull { .. }) && self.may_reserve(at);
        if let Rule::Reserve { asking, .. } = &mut self.rule
            && may_reserve
        {
            *asking = Some(at);
        }
        false
    }

    /// Asks for the next head of each hungry lane; leaves those that could not use one.
    fn pages(&mut self) -> Vec<LanePage> {
        let mut asking = std::mem::take(&mut self.hungry);
        asking.retain(|&at| self.can_use_head(at));
        let left = match &self.rule {
            Rule::Window(window) => window.left(),
            Rule::Backfill | Rule::Reserve { .. } => self.budget - self.admitted.len(),
        };
        let share = (left.saturating_mul(2) / asking.len().max(1)).max(SMALLEST_PAGE);
        asking
            .into_iter()
            .map(|at| {
                LanePage::new(self.lanes[at].lane.no, self.lanes[at].last, share.min(self.room(at, left)))
            })
            .collect()
    }

    fn can_use_head(&self, at: usize) -> bool {
        match &self.rule {
            Rule::Backfill => self.refusal(at).is_none(),
            Rule::Reserve { .. } => match self.refusal(at) {
                None => self.pools[self.lanes[at].pool].reserved.is_none(),
                Some(Reason::PoolFull { .. }) => self.may_reserve(at),
                Some(_) => false,
            },
            Rule::Window(window) => !window.is_barred(&self.lanes[at], &self.pools, &self.limits),
        }
    }

    /// Whether only its pool keeps the next task of a lane, and nothing is reserved there yet.
    fn may_reserve(&self, at: usize) -> bool {
        let work = &self.lanes[at];
        let open = |limit: &usize| !self.limits[*limit].is_reached();
        self.pools[work.pool].reserved.is_none() && work.limits.iter().all(open)
    }

    /// An upper bound, at least 1, on how many more tasks of a lane are looked at.
    fn room(&self, at: usize, left: usize) -> usize {
        if let Rule::Window(_) = self.rule {
            return left.max(1);
        }
        let work = &self.lanes[at];
        let by_pool = self.pools[work.pool].open().map(|open| open / i64::from(work.lane.key.slots).max(1));
        let by_limits = work.limits.iter().filter_map(|limit| self.limits[*limit].open());
        let room = by_limits.chain(by_pool).min().unwrap_or(i64::MAX);
        left.min(usize::try_from(room).unwrap_or(0)).max(1)
    }

    /// Why the next task of this lane cannot be admitted, if so.
    fn refusal(&self, at: usize) -> Option<Reason> {
        let work = &self.lanes[at];
        self.pools[work.pool]
            .refusal(work.lane.key.slots)
            .or_else(|| work.limits.iter().find_map(|limit| self.limits[*limit].refusal()))
    }
}
