//! The planner: a state machine that asks for what it needs and ends in a plan.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use super::lane::{Candidate, Lane, LaneNo, LanePage, OrderKey};
use super::limits::LimitRecord;
use super::verdict::{Deferral, Reason};
use crate::id::{LimitKey, PoolName};
use crate::pool::{PoolRecord, Slots};

/// The smallest page of candidates that is asked for, where a lane may use that many.
const SMALLEST_PAGE: usize = 16;

/// What a [`Planner`] must be fed next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// The state of these pools and limits: [`Planner::feed_capacity`].
    Capacity {
        /// Pools; one that does not exist is left out of the answer.
        pools: Vec<PoolName>,
        /// Limits; one that is not defined is left out of the answer.
        limits: Vec<LimitKey>,
    },
    /// Ready tasks of these lanes: [`Planner::feed_candidates`].
    Candidates(Vec<LanePage>),
    /// Nothing more: [`Planner::finish`].
    Nothing,
}

/// What a tick should commit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// The tasks to be admitted, in order.
    pub admit: Vec<Candidate>,
    /// Slots they take, by pool, in order of the names.
    pub pools: Vec<(PoolName, u64)>,
    /// How many of them count against each limit key, in order of the keys.
    pub limits: Vec<(LimitKey, u64)>,
    /// The ready tasks left waiting, by lane.
    pub deferrals: Vec<Deferral>,
}

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

#[derive(Debug)]
struct LaneWork {
    lane: Lane,
    pool: usize,
    limits: Vec<usize>,
    buffer: VecDeque<Candidate>,
    last: Option<OrderKey>,
    admitted: u64,
    source: Source,
    refusal: Option<Reason>,
}

/// Whether a lane may have ready tasks that were not read yet.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    More,
    Drained,
}

#[derive(Debug)]
struct PoolWork {
    name: PoolName,
    /// None if the pool does not exist.
    slots: Option<Slots>,
    used: i64,
    taken: u64,
}

#[derive(Debug)]
struct LimitWork {
    key: LimitKey,
    max: Option<u32>,
    used: i64,
    taken: u64,
}

impl Planner {
    /// A planner that admits at most `budget` tasks out of these lanes.
    pub fn new(budget: usize, lanes: Vec<Lane>) -> Self {
        let mut pools = Interner::default();
        let mut limits = Interner::default();
        let lanes: Vec<LaneWork> = lanes
            .into_iter()
            .map(|lane| LaneWork {
                pool: pools.index(&lane.key.pool),
                limits: lane.key.limits.iter().map(|key| limits.index(key)).collect(),
                lane,
                buffer: VecDeque::new(),
                last: None,
                admitted: 0,
                source: Source::More,
                refusal: None,
            })
            .collect();
        Self {
            budget,
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

    /// What must be fed next. Admits as far as it can on what it was fed before.
    pub fn need(&mut self) -> Need {
        if self.lanes.is_empty() {
            return Need::Nothing;
        }
        if !self.has_capacity {
            return Need::Capacity {
                pools: self.pools.iter().map(|pool| pool.name.clone()).collect(),
                limits: self.limits.iter().map(|limit| limit.key.clone()).collect(),
            };
        }
        loop {
            if self.admitted.len() >= self.budget {
                return Need::Nothing;
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
    }

    /// Answers [`Need::Capacity`].
    pub fn feed_capacity(&mut self, pools: &[PoolRecord], limits: &[LimitRecord]) {
        let pools: HashMap<_, _> = pools.iter().map(|pool| (&pool.spec.name, pool)).collect();
        for work in &mut self.pools {
            if let Some(pool) = pools.get(&work.name) {
                work.slots = Some(pool.spec.slots);
                work.used = pool.used;
            }
        }
        let limits: HashMap<_, _> = limits.iter().map(|limit| (&limit.key, limit)).collect();
        for work in &mut self.limits {
            if let Some(limit) = limits.get(&work.key) {
                work.max = limit.max;
                work.used = limit.used;
            }
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

    /// The plan.
    pub fn finish(self) -> Plan {
        let refusals: Vec<Option<Reason>> = (0..self.lanes.len()).map(|at| self.refusal(at)).collect();
        let mut plan = Plan { admit: self.admitted, ..Plan::default() };
        for (work, late) in self.lanes.into_iter().zip(refusals) {
            let left = work.lane.ready.saturating_sub(work.admitted);
            if left > 0 {
                let reason = work.refusal.or(late).unwrap_or(Reason::BudgetSpent { budget: self.budget });
                plan.deferrals.push(Deferral::new(work.lane.key, left, reason));
            }
        }
        plan.pools =
            self.pools.into_iter().filter(|pool| pool.taken > 0).map(|p| (p.name, p.taken)).collect();
        plan.limits =
            self.limits.into_iter().filter(|limit| limit.taken > 0).map(|l| (l.key, l.taken)).collect();
        plan.pools.sort_unstable();
        plan.limits.sort_unstable();
        plan
    }

    /// Admits the head of a lane, or closes the lane for this tick.
    fn visit(&mut self, at: usize) {
        if let Some(reason) = self.refusal(at) {
            self.lanes[at].refusal = Some(reason);
            return;
        }
        let work = &mut self.lanes[at];
        let Some(candidate) = work.buffer.pop_front() else { return };
        work.admitted += 1;
        self.pools[work.pool].taken += u64::from(work.lane.key.slots);
        for &limit in &work.limits {
            self.limits[limit].taken += 1;
        }
        self.admitted.push(candidate);
        if let Some(next) = work.buffer.front() {
            self.heap.push(Reverse((next.order, at)));
        } else if work.source == Source::More {
            self.hungry.push(at);
        }
    }

    /// Asks for the next head of each hungry lane; closes those that could not use one.
    fn pages(&mut self) -> Vec<LanePage> {
        let mut asking = std::mem::take(&mut self.hungry);
        asking.retain(|&at| {
            self.lanes[at].refusal = self.refusal(at);
            self.lanes[at].refusal.is_none()
        });
        let left = self.budget - self.admitted.len();
        let share = (2 * left / asking.len().max(1)).max(SMALLEST_PAGE);
        asking
            .into_iter()
            .map(|at| {
                LanePage::new(self.lanes[at].lane.no, self.lanes[at].last, share.min(self.room(at, left)))
            })
            .collect()
    }

    /// An upper bound, at least 1, on how many more tasks of an open lane can be admitted.
    fn room(&self, at: usize, left: usize) -> usize {
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

impl PoolWork {
    fn unknown(name: PoolName) -> Self {
        Self { name, slots: None, used: 0, taken: 0 }
    }

    fn open(&self) -> Option<i64> {
        self.slots
            .and_then(|slots| slots.open(self.used))
            .map(|open| open.saturating_sub_unsigned(self.taken))
    }

    fn refusal(&self, needs: u32) -> Option<Reason> {
        let Some(slots) = self.slots else {
            return Some(Reason::PoolUnknown { pool: self.name.clone() });
        };
        let total = slots.total()?;
        if needs > total {
            return Some(Reason::NeverFits { pool: self.name.clone(), total, needs });
        }
        let open = self.open()?;
        (i64::from(needs) > open).then(|| Reason::PoolFull { pool: self.name.clone(), open, total, needs })
    }
}

impl LimitWork {
    fn undefined(key: LimitKey) -> Self {
        Self { key, max: None, used: 0, taken: 0 }
    }

    fn open(&self) -> Option<i64> {
        self.max.map(|max| i64::from(max).saturating_sub(self.used).saturating_sub_unsigned(self.taken))
    }

    fn refusal(&self) -> Option<Reason> {
        let (max, open) = (self.max?, self.open()?);
        let used = self.used.saturating_add_unsigned(self.taken);
        (open < 1).then(|| Reason::LimitReached { limit: self.key.clone(), used, max })
    }
}

/// Gives each different name an index, in order of first use.
#[derive(Debug)]
struct Interner<T> {
    names: Vec<T>,
    indices: HashMap<T, usize>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { names: Vec::new(), indices: HashMap::new() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Interner<T> {
    fn index(&mut self, name: &T) -> usize {
        if let Some(&at) = self.indices.get(name) {
            return at;
        }
        self.names.push(name.clone());
        self.indices.insert(name.clone(), self.names.len() - 1);
        self.names.len() - 1
    }
}
