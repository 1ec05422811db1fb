//! The planner: a state machine that requests its input and returns a plan.

mod pages;
mod paging;
mod reasons;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use super::contenders::{Contenders, Next};
use super::heap::Heap;
use super::lane::{Candidate, Lane, LaneId, LanePage};
use super::limits::{LimitRecord, RateUse};
use super::order::OrderKey;
use super::plan::{Need, Plan};
use super::policy::Policy;
use super::share::ShareUse;
use super::subject::{Paused, Subject};
use super::tick_capacity::{Exclusion, Interner, LimitWork, PoolWork};
use super::verdict::{Reason, Refusal};
use super::window::Window;
use crate::id::{LimitKey, PoolName, QueueName};
use crate::pool::PoolRecord;
use crate::time;
use crate::time::Timestamp;
use paging::Paging;

/// Plans one tick. Performs no reads itself: call [`Self::need`], feed it, repeat, then call
/// [`Self::finish`].
#[derive(Debug)]
pub(crate) struct Planner {
    budget: usize,
    rule: Rule,
    lanes: Vec<LaneWork>,
    by_no: HashMap<LaneId, usize>,
    pools: Vec<PoolWork>,
    limits: Vec<LimitWork>,
    pool_names: Interner<PoolName>,
    limit_keys: Interner<LimitKey>,
    queues: Option<BTreeSet<QueueName>>,
    paused: Paused,
    paging: Paging,
    heap: Heap,
    contenders: Contenders,
    /// The lanes whose tasks kept their slots.
    keeping: Vec<usize>,
    /// The number of tasks admitted from these lanes.
    resumed: usize,
    /// Lanes whose next head has not been read.
    hungry: Vec<usize>,
    /// The number of requests for candidates.
    requests: u32,
    admitted: Vec<Candidate>,
    has_capacity: bool,
}

/// A [`Policy`] in use.
#[derive(Debug)]
enum Rule {
    Backfill,
    Reserve { after: Duration, now: Timestamp },
    Window(Window),
}

#[derive(Debug)]
pub(super) struct LaneWork {
    pub(super) lane: Lane,
    /// The pools in which each task still needs slots, with how many it needs of each. Its own pool comes
    /// first. Empty if the tasks kept their slots.
    pools: Vec<(usize, u32)>,
    /// The limits in key order, with how much each task counts against each.
    pub(super) limits: Vec<(usize, u32)>,
    pub(super) excluded: Exclusion,
    buffer: VecDeque<Candidate>,
    last: Option<OrderKey>,
    /// The number of its tasks read so far.
    read: u64,
    admitted: u64,
    /// Whether all its ready tasks have been read.
    is_drained: bool,
    /// Whether its head was refused: this tick admits nothing more from it.
    is_left: bool,
    /// Whether only other admitters serve its queue. Its first task may reserve its pool, but none is
    /// admitted.
    is_foreign: bool,
    /// The paused subjects of its tasks.
    paused: Vec<Subject>,
    /// How many tasks wait in its queue, if no admitter is known to serve it.
    unserved: Option<u64>,
    /// The contender whose turns its tasks use; `None` if they have no share.
    contender: Option<usize>,
    /// The slots that each of its tasks takes, per pair of pool and share.
    share_takes: Vec<(usize, u32)>,
}

impl Rule {
    /// Returns true if tasks that kept their slots go before those of this lane.
    fn is_last(&self, lane: &Lane) -> bool {
        matches!(self, Self::Window(_)) && !lane.keeps_slots
    }
}

impl LaneWork {
    /// Returns true if the tick can admit nothing more from it.
    fn is_over(&self) -> bool {
        self.is_left || (self.is_drained && self.buffer.is_empty())
    }

    /// Returns its own pool; `None` if its tasks need no more slots.
    pub(super) fn main_pool(&self) -> Option<usize> {
        self.pools.first().map(|(pool, _)| *pool)
    }

    /// Returns the limits in key order.
    pub(super) fn keys(&self) -> impl Iterator<Item = usize> {
        self.limits.iter().map(|(limit, _)| *limit)
    }
}

impl Planner {
    /// Creates a planner that admits at most `budget` tasks from these lanes, with [`Policy::Backfill`].
    pub(crate) fn new(budget: usize, lanes: Vec<Lane>) -> Self {
        let mut planner = Self {
            budget,
            rule: Rule::Backfill,
            by_no: HashMap::new(),
            pools: Vec::new(),
            limits: Vec::new(),
            pool_names: Interner::default(),
            limit_keys: Interner::default(),
            queues: None,
            paused: Paused::default(),
            paging: Paging::default(),
            heap: Heap::default(),
            contenders: Contenders::default(),
            keeping: Vec::new(),
            resumed: 0,
            hungry: Vec::new(),
            requests: 0,
            admitted: Vec::new(),
            has_capacity: false,
            lanes: Vec::new(),
        };
        planner.add(lanes);
        planner
    }

    /// Adds lanes whose heads have not been read.
    fn add(&mut self, lanes: Vec<Lane>) {
        for lane in lanes {
            let at = self.lanes.len();
            let pools = missing_slots(&lane).map(|(pool, slots)| (self.pool_names.index(pool), slots));
            let pools = pools.collect();
            let limits = lane.key.counted().map(|(key, count)| (self.limit_keys.index(key), count)).collect();
            let new = self.pool_names.names.iter().skip(self.pools.len()).cloned();
            self.pools.extend(new.map(PoolWork::unknown));
            let new = self.limit_keys.names.iter().skip(self.limits.len()).cloned();
            self.limits.extend(new.map(LimitWork::undefined));
            self.by_no.insert(lane.id, at);
            self.keeping.extend(lane.keeps_slots.then_some(at));
            self.hungry.push(at);
            self.lanes.push(LaneWork {
                pools,
                limits,
                contender: self.contenders.of(&lane),
                share_takes: self.contenders.taken_by(&lane),
                excluded: Exclusion::default(),
                buffer: VecDeque::new(),
                last: None,
                read: 0,
                admitted: 0,
                is_drained: false,
                is_left: false,
                is_foreign: self.queues.as_ref().is_some_and(|queues| !queues.contains(&lane.key.queue)),
                paused: self.paused.of(&lane.key),
                unserved: None,
                lane,
            });
        }
    }

    /// Admits only from lanes of these queues. Other admitters serve the other lanes, which still take part
    /// in the plan.
    #[must_use]
    pub(crate) fn serving(mut self, queues: Option<&BTreeSet<QueueName>>) -> Self {
        self.queues = queues.cloned();
        for work in &mut self.lanes {
            work.is_foreign = queues.is_some_and(|queues| !queues.contains(&work.lane.key.queue));
        }
        self
    }

    /// Admits no task of a paused subject.
    #[must_use]
    pub(crate) fn paused(mut self, paused: &[Subject]) -> Self {
        self.paused = Paused::new(paused);
        for work in &mut self.lanes {
            work.paused = self.paused.of(&work.lane.key);
        }
        self
    }

    /// Refuses the tasks of these queues, which no admitter serves. Each queue comes with its number of
    /// waiting tasks.
    #[must_use]
    pub(crate) fn unserved(mut self, waiting: &BTreeMap<QueueName, u64>) -> Self {
        for work in &mut self.lanes {
            work.unserved = waiting.get(&work.lane.key.queue).copied();
        }
        self
    }

    /// Lets shares take turns by what each holds, after this many grants to tasks of shares.
    #[must_use]
    pub(crate) fn shares(mut self, shares: &[ShareUse], grants: i64) -> Self {
        self.contenders.after(grants);
        self.contenders.known(shares);
        self
    }

    /// Plans with this policy, for a tick at this instant. Must be called before the first [`Self::need`].
    #[must_use]
    pub(crate) fn policy(mut self, policy: &Policy, now: Timestamp) -> Self {
        self.rule = match policy {
            Policy::Backfill => Rule::Backfill,
            Policy::Reserve { after } => Rule::Reserve { after: *after, now },
            Policy::AirflowWindow(window) => Rule::Window(Window::new(window)),
        };
        self
    }

    /// Admits as many tasks as its input allows, then returns what to feed it next.
    pub(crate) fn need(&mut self) -> Need {
        if self.lanes.is_empty() {
            return Need::Nothing;
        }
        if !self.has_capacity {
            return Need::Capacity;
        }
        while self.goes_on() {
            let pages = self.pages();
            if !pages.is_empty() {
                return Need::Candidates(pages);
            }
            if let Some(at) = self.next_lane() {
                self.visit(at);
            } else if let Some(lanes) = self.asks_for_lanes() {
                return lanes;
            } else {
                break;
            }
        }
        Need::Nothing
    }

    /// Takes the lane whose first task is considered next. Returns `None` if there is no lane, or if the
    /// first task of an unread lane may come first.
    fn next_lane(&mut self) -> Option<usize> {
        self.contenders.push_changed(&mut self.heap);
        loop {
            if self.hidden().is_some() {
                return None;
            }
            let lane = match self.heap.pop()? {
                Next::Lane(at) => Some(at),
                Next::Contender { at, entry } => self.contenders.take(at, entry),
            };
            if lane.is_some() {
                return lane;
            }
        }
    }

    /// Pushes a lane onto the heap, ordered by its first task.
    fn push(&mut self, at: usize) {
        let work = &self.lanes[at];
        let Some(head) = work.buffer.front().map(|head| head.order) else { return };
        match work.contender {
            None => self.heap.push_alone(self.rule.is_last(&work.lane), head, at),
            Some(contender) if work.is_foreign => {
                self.heap.push(self.contenders.first_turn(contender, head), Next::Lane(at));
            }
            Some(contender) => self.contenders.push(contender, head, at),
        }
    }

    /// Returns true if the tick may admit or consider another task.
    fn goes_on(&mut self) -> bool {
        match &mut self.rule {
            Rule::Window(window) => {
                let resumes = |at: &usize| !self.lanes[*at].is_over();
                (self.admitted.len() < self.budget && self.keeping.iter().any(resumes))
                    || window.left() > 0
                    || window.next_round(self.admitted.len() - self.resumed)
            }
            Rule::Backfill | Rule::Reserve { .. } => self.admitted.len() < self.budget,
        }
    }

    /// Supplies what [`Need::Capacity`] requests.
    ///
    /// `rates` is what each key owes, and `clock` is the time of the store's clock.
    pub(crate) fn feed_capacity(
        &mut self,
        pools: &[PoolRecord],
        limits: &[LimitRecord],
        rates: &[RateUse],
        clock: Timestamp,
    ) {
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
        let rates: HashMap<_, _> = rates.iter().map(|used| (&used.key, used)).collect();
        for work in &mut self.limits {
            if let Some(limit) = limits.get(&work.key) {
                work.known(limit, rates.get(&work.key).copied(), clock);
            }
        }
        self.contenders.weigh(|share| limits.get(share).and_then(|limit| limit.weight).unwrap_or(1));
        if let Rule::Window(_) = self.rule {
            Window::exclude_full(&mut self.pools);
        }
        self.has_capacity = true;
    }

    /// Supplies what [`Need::Candidates`] requests. The tasks of a page must be in order; the pages may be in
    /// any order.
    pub(crate) fn feed_candidates(&mut self, pages: &[LanePage], candidates: &[Candidate]) {
        let had = pages.iter().filter_map(|page| self.by_no.get(&page.lane).map(|at| (*at, page.limit)));
        let had: Vec<_> = had.map(|(at, limit)| (at, limit, self.lanes[at].buffer.len())).collect();
        for candidate in candidates {
            if let Some(work) = self.by_no.get(&candidate.lane).map(|at| &mut self.lanes[*at]) {
                work.last = Some(candidate.order);
                work.buffer.push_back(*candidate);
            }
        }
        for (at, limit, had) in had {
            let work = &mut self.lanes[at];
            let got = work.buffer.len() - had;
            work.read += got as u64;
            if got < limit || work.read >= work.lane.ready {
                work.is_drained = true;
            }
            // A lane that still had candidates is already in the heap, by its head. Refilling it must not add
            // a second entry.
            if had == 0 {
                self.push(at);
            }
        }
    }

    /// Returns the plan and ends the planner's work.
    pub(crate) fn finish(&mut self) -> Plan {
        let mut plan = Plan { next_token: self.paging.next_token, ..Plan::default() };
        let last_named = self.last_named();
        for at in 0..self.lanes.len() {
            let work = &self.lanes[at];
            let left = work.lane.ready.saturating_sub(work.admitted);
            if left > 0 && !work.is_foreign {
                let reason = self.reason(at);
                plan.next_token = plan.next_token.into_iter().chain(reason.changes_at()).min();
                if last_named.is_none_or(|last| work.lane.id <= last) {
                    plan.refusals.push(Refusal::new(&work.lane, left, reason));
                }
            }
        }
        plan.more_lanes = self.is_paged() || last_named.is_some();
        plan.is_cut = self.is_cut();
        plan.marks = self.take_marks();
        plan.admit = std::mem::take(&mut self.admitted);
        plan.shares = self.contenders.started();
        plan.rates = self.limits.iter().filter_map(LimitWork::owes).collect();
        if let Rule::Window(window) = &mut self.rule {
            plan.missing = std::mem::take(&mut window.met).into_iter().collect();
        }
        plan
    }

    /// Returns the lanes that it planned with.
    pub(crate) fn into_lanes(self) -> Vec<Lane> {
        self.lanes.into_iter().map(|work| work.lane).collect()
    }

    /// Admits the head of a lane, or leaves the lane. A window counts a refused task and continues in the
    /// lane.
    fn visit(&mut self, at: usize) {
        let keeps_slots = self.lanes[at].lane.keeps_slots;
        let admits = match &mut self.rule {
            Rule::Window(window) if !keeps_slots => {
                let (work, budget_left) =
                    (&mut self.lanes[at], self.budget.saturating_sub(self.admitted.len()));
                if window.is_excluded(work, &self.pools, &self.limits) {
                    work.is_left = true;
                    return;
                }
                window.look(work, &mut self.pools, &mut self.limits, budget_left)
            }
            _ => {
                if !self.walk_admits(at) {
                    self.leave(at);
                    return;
                }
                true
            }
        };
        let work = &mut self.lanes[at];
        let Some(candidate) = work.buffer.pop_front() else { return };
        if admits {
            work.admitted += 1;
            for &(pool, slots) in &work.pools {
                self.pools[pool].taken += u64::from(slots);
            }
            for &(limit, count) in &work.limits {
                self.limits[limit].take(count);
            }
            if let Some(contender) = work.contender {
                self.contenders.start(contender, &work.share_takes);
            }
            self.admitted.push(candidate);
            self.resumed += usize::from(keeps_slots);
        }
        if !work.buffer.is_empty() {
            self.push(at);
        } else if !work.is_drained {
            self.hungry.push(at);
        }
    }

    /// Returns true if the walk admits the head of a lane. If the head waits only for its pools and has been
    /// ready for long enough, the open slots of all its pools are reserved for it. Otherwise other tasks
    /// would use the slots of one pool while the head waits for another. If the head fits but another holder
    /// is to admit it, its slots are kept.
    fn walk_admits(&mut self, at: usize) -> bool {
        let refusal = self.refusal(at);
        let work = &self.lanes[at];
        if refusal.is_none() && !work.is_foreign {
            return self.reservation(at).is_none();
        }
        if let Rule::Reserve { after, now } = self.rule
            && let Some(head) = work.buffer.front()
            && let Some(ready_at) = head.ready_at
            && time::duration_micros(now.saturating_duration_since(ready_at)) >= time::duration_micros(after)
        {
            let id = head.order.id;
            let (keeps, reserves) = match refusal {
                None => (self.reservation(at).is_none(), false),
                Some(Reason::PoolFull { .. }) => (false, self.may_reserve(at)),
                Some(_) => (false, false),
            };
            for &(pool, needs) in &self.lanes[at].pools {
                if keeps {
                    self.pools[pool].keep(needs, id);
                }
                if reserves {
                    self.pools[pool].reserve(id);
                }
            }
        }
        false
    }
}

/// Returns the slots that each task of a lane still needs.
fn missing_slots(lane: &Lane) -> impl Iterator<Item = (&PoolName, u32)> {
    lane.key.pools().filter(|_| !lane.keeps_slots)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::LaneKey;
    use crate::lease::TaskId;
    use crate::pool::{PoolSpec, Slots};

    #[test]
    fn is_fed_what_it_asks_for_and_ends_in_a_plan() {
        let pool = PoolRecord::new(PoolSpec::new("db", Slots::Limited(1)).unwrap(), 0);
        let lane = LaneKey::new("db".try_into().unwrap(), 1, vec![]);
        let mut planner = Planner::new(10, vec![Lane::new(LaneId(1), lane, 2)]);

        assert!(matches!(planner.need(), Need::Capacity));
        planner.feed_capacity(&[pool], &[], &[], Timestamp::UNIX_EPOCH);
        while let Need::Candidates(pages) = planner.need() {
            let order = OrderKey::new(0, Timestamp::UNIX_EPOCH, None, TaskId(7));
            planner.feed_candidates(&pages, &[Candidate::new(pages[0].lane, order)]);
        }
        let plan = planner.finish();
        assert_eq!(plan.admit[0].order.id, TaskId(7));
        assert_eq!(plan.refusals[0].reason.to_string(), "pool db: 0 open of 1, needs 1");
    }
}
