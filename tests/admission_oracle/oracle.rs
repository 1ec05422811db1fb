//! The naive oracle: a walk over the whole backlog, written from `docs/admission.md` and nothing else.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use stationmaster::admission::limits::{LimitSpec, Rate};
use stationmaster::admission::{Policy, Reason, Subject};
use stationmaster::id::{LimitKey, PoolName, QueueName};
use stationmaster::pool::Slots;
use stationmaster::store::contract::{LaneKey, OrderKey, RateUse, ShareUse};
use stationmaster::{TaskId, Timestamp};

use crate::world::{Pair, Waiting, World, count_of, needs_of};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expected {
    /// The admitted tasks, by their place in `World::waiting`, in order.
    pub(crate) admitted: Vec<usize>,
    /// How many tasks of each lane are left, and why; apart those that kept their slots.
    pub(crate) left: BTreeMap<(LaneKey, bool), (u64, Reason)>,
    /// The first instant at which all keys of a task have tokens that waits for nothing else.
    pub(crate) has_tokens: Option<Timestamp>,
    /// What the keys that took tokens owe now, by key.
    pub(crate) owed: Vec<RateUse>,
    /// The shares that had turns, by pool and share.
    pub(crate) shares: Vec<ShareUse>,
    /// The stamp and the dither of every share, and the number of grants to any.
    pub(crate) stamps: BTreeMap<Pair, (i64, i64)>,
    pub(crate) grants: i64,
}

/// Whose turn it is.
#[derive(Clone)]
pub(crate) struct Turns<'a> {
    world: &'a World,
    /// What each share holds of each pool, its stamp and its dither.
    uses: BTreeMap<Pair, [i64; 3]>,
    grants: i64,
}

/// Level; 0 without a share and 1 with one; what is held, by weight; stamp; pool and share; place.
type Key = (i64, u8, (u8, i128, i64), Option<Pair>, OrderKey);

impl<'a> Turns<'a> {
    pub(crate) fn new(world: &'a World) -> Self {
        let mut uses: BTreeMap<Pair, [i64; 3]> = BTreeMap::new();
        for (pair, (stamp, dither)) in &world.stamps {
            uses.insert(pair.clone(), [world.held(pair), *stamp, *dither]);
        }
        for pair in world.waiting.iter().filter_map(|task| task.pair()) {
            let held = world.held(&pair);
            uses.entry(pair).or_insert([held, 2 * world.grants, 0]);
        }
        Self { world, uses, grants: world.grants }
    }

    /// What a store tells of all of them.
    pub(crate) fn all(&self) -> Vec<ShareUse> {
        let used = |(pair, [held, stamp, dither]): (&Pair, &[i64; 3])| {
            ShareUse::new(pair.0.clone(), pair.1.clone(), *held, *stamp, *dither)
        };
        self.uses.iter().map(used).collect()
    }

    pub(crate) fn key(&self, at: usize, id: TaskId) -> Key {
        let (task, place) = (&self.world.waiting[at], self.world.order(at, id));
        let Some(pair) = task.pair() else { return (place.rank, 0, (0, 0, 0), None, place) };
        let [held, stamp, dither] = self.uses[&pair];
        let weight = rule(self.world, &pair.1).and_then(|spec| spec.weight).unwrap_or(1);
        let turn = match held {
            0 => (0, 0, stamp),
            _ => (1, (i128::from(held) * 1_048_576 + i128::from(dither)) / i128::from(weight), stamp),
        };
        (-i64::from(task.priority), 1, turn, Some(pair), place)
    }

    /// Gives a task of a share its turn, with slots of these pools.
    pub(crate) fn take(&mut self, at: usize, pools: &[(&PoolName, u32)]) {
        let Some((own, share)) = self.world.waiting[at].pair() else { return };
        let before = self.grants;
        self.grants += 1;
        for (pool, slots) in pools {
            let used = self.uses.entry(((*pool).clone(), share.clone())).or_insert([0, 2 * before, 0]);
            used[0] += i64::from(*slots);
        }
        let used = self.uses.get_mut(&(own, share)).unwrap();
        (used[1], used[2]) = (2 * self.grants, (used[2] + 648_056) % 1_048_576);
    }
}

struct Walk<'a> {
    world: &'a World,
    open: HashMap<&'a PoolName, Option<i64>>,
    used: HashMap<&'a LimitKey, i64>,
    /// What keys with a rate owe at the store's clock, and whether they took tokens.
    owed: BTreeMap<&'a LimitKey, (i128, bool)>,
    reserved: HashMap<&'a PoolName, TaskId>,
    /// Slots that are kept for tasks that somebody else is to admit, and the first of these.
    kept: HashMap<&'a PoolName, (i64, TaskId)>,
}

/// All that keeps each waiting task from its start before any walk, where this many tasks wait in these
/// queues, which no one serves.
pub(crate) fn obstacles(world: &World, unserved: &BTreeMap<QueueName, u64>) -> Vec<Vec<Reason>> {
    let walk = Walk::begin(world);
    let of = |task: &Waiting| {
        let mut all = Vec::new();
        for subject in subjects(&task.lane).into_iter().filter(|subject| world.paused.contains(subject)) {
            let reason = Reason::Paused { subject };
            if !all.contains(&reason) {
                all.push(reason);
            }
        }
        if let Some(waiting) = unserved.get(&task.lane.queue) {
            all.push(Reason::Unserved { queue: task.lane.queue.clone(), waiting: *waiting });
        }
        // What refuses a task that needs one pool alone, and carries one key alone, one after another.
        let alone = |lane: &LaneKey| Waiting { lane: lane.clone(), ..task.clone() };
        let (mut by_pools, mut by_limits, mut by_rates) = (Vec::new(), Vec::new(), Vec::new());
        for (pool, slots) in needs_of(&task.lane) {
            by_pools.extend(walk.pool(&alone(&LaneKey::new(pool.clone(), slots, vec![]))));
        }
        for kind in ["pool_unknown", "never_fits", "pool_full"] {
            all.extend(by_pools.iter().filter(|reason| reason.name() == kind).cloned());
        }
        for key in &task.lane.limits {
            let count = count_of(&task.lane, key);
            let lane =
                LaneKey::new(task.lane.pool.clone(), 1, vec![key.clone()]).counts([(key.clone(), count)]);
            by_limits.extend(walk.limit(&lane));
            by_rates.extend(walk.rate(&lane));
        }
        all.extend(by_limits);
        all.extend(by_rates);
        let first = all.iter().find(|reason| reason.name() != "unserved").cloned();
        assert_eq!(first, walk.refusal(task), "a tick gives the first: {world:?}");
        all
    };
    world.waiting.iter().map(of).collect()
}

/// What may be paused of a task: the queue, the pools, then each key and its families, the shortest prefix first.
fn subjects(lane: &LaneKey) -> Vec<Subject> {
    let mut subjects = vec![Subject::Queue(lane.queue.clone())];
    subjects.extend(needs_of(lane).into_iter().map(|(pool, _)| Subject::Pool(pool.clone())));
    for key in &lane.limits {
        subjects.push(Subject::Key(key.clone()));
        for end in 1..key.as_str().len() {
            subjects.push(Subject::Family(LimitKey::new(&key.as_str()[..end]).unwrap()));
        }
    }
    subjects
}

/// What the tick must answer, where the waiting task at place `n` has the number `numbers[n]`.
pub(crate) fn walk(world: &World, numbers: &[TaskId]) -> Expected {
    let mut walk = Walk::begin(world);
    let mut turns = Turns::new(world);
    let begun = turns.clone();
    let mut had_turns: BTreeSet<Pair> = BTreeSet::new();
    let mut order: VecDeque<usize> = (0..world.waiting.len()).collect();
    let sort = |order: &mut VecDeque<usize>, turns: &Turns<'_>| {
        // What others are to admit is looked at as if nothing had been admitted before it.
        let turns = |at: &usize| if world.is_served(&world.waiting[*at].lane.queue) { turns } else { &begun };
        order.make_contiguous().sort_by_cached_key(|at| turns(at).key(*at, numbers[*at]));
    };
    sort(&mut order, &turns);

    let mut admitted = Vec::new();
    let mut refused: HashSet<(&LaneKey, bool)> = HashSet::new();
    while let Some(at) = order.pop_front().filter(|_| admitted.len() < world.budget) {
        let at = &at;
        let task = &world.waiting[*at];
        let (lane, kind) = (&task.lane, task.kind());
        if !world.is_served(&lane.queue) {
            // Of a lane that somebody else serves the first task alone is looked at.
            if world.serve_others.contains(&lane.queue) && refused.insert(kind) {
                match walk.refusal(task) {
                    Some(reason) => walk.reserve(*at, numbers[*at], &reason),
                    None => walk.keep(*at, numbers[*at]),
                }
            }
            continue;
        }
        match walk.refusal(task) {
            // Nor is any of those behind it that need the same.
            None if walk.passed_over(task).is_some() => drop(refused.insert(kind)),
            None => {
                walk.take(task);
                admitted.push(*at);
                if let Some(pair) = task.pair() {
                    turns.take(*at, &task.misses());
                    had_turns.insert(pair);
                    sort(&mut order, &turns);
                }
            }
            Some(reason) => {
                if refused.insert(kind) {
                    walk.reserve(*at, numbers[*at], &reason);
                }
            }
        }
    }

    let mut left: BTreeMap<(LaneKey, bool), (u64, Reason)> = BTreeMap::new();
    for at in (0..world.waiting.len()).filter(|at| !admitted.contains(at)) {
        let task = &world.waiting[at];
        if !world.is_served(&task.lane.queue) {
            continue;
        }
        let kind = (task.lane.clone(), task.resumed);
        left.entry(kind).or_insert_with(|| (0, walk.reason(task))).0 += 1;
    }
    let waits = left.iter().filter(|(_, (_, reason))| matches!(reason, Reason::RateSpent { .. }));
    let last = |lane| walk.rates(lane).filter_map(|reason| reason.changes_at()).max();
    let has_tokens = waits.filter_map(|((lane, _), _)| last(lane)).min();
    let took = |(key, (owed, took)): (&&LimitKey, &(i128, bool))| {
        let rate = rule(world, key)?.rate?;
        let used = RateUse::new((*key).clone(), *owed as i64, clock(world), rate.starts(), rate.period());
        took.then_some(used)
    };
    let had_turn = |used: &ShareUse| had_turns.contains(&(used.pool.clone(), used.share.clone()));
    Expected {
        admitted,
        left,
        has_tokens,
        owed: walk.owed.iter().filter_map(took).collect(),
        shares: turns.all().into_iter().filter(had_turn).collect(),
        stamps: turns
            .uses
            .iter()
            .map(|(pair, [_, stamp, dither])| (pair.clone(), (*stamp, *dither)))
            .collect(),
        grants: turns.grants,
    }
}

/// The definition that holds for a key: its own, or that of the family with the longest prefix.
pub(crate) fn rule<'a>(world: &'a World, key: &LimitKey) -> Option<&'a LimitSpec> {
    let own = world.limits.iter().find(|spec| !spec.is_family && spec.key == *key);
    let matches = |spec: &&LimitSpec| spec.is_family && is_of(key, &spec.key);
    own.or_else(|| world.limits.iter().filter(matches).max_by_key(|spec| spec.key.as_str().len()))
}

fn is_of(key: &LimitKey, prefix: &LimitKey) -> bool {
    key.as_str().starts_with(prefix.as_str()) && key != prefix
}

/// The store's clock.
fn clock(world: &World) -> Timestamp {
    world.owed.iter().map(|used| used.at).max().map_or(world.now, |last| last.max(world.now))
}

/// What a key owes at the store's clock to the rate that holds now.
fn owed(world: &World, key: &LimitKey, rate: Rate) -> i128 {
    owed_at(world, key, rate, clock(world))
}

fn owed_at(world: &World, key: &LimitKey, rate: Rate, at: Timestamp) -> i128 {
    let Some(used) = world.owed.iter().find(|used| used.key == *key) else { return 0 };
    let passed = i128::from(at.as_micros() - used.at.as_micros());
    let (was, now) = (used.period.as_micros() as i128, rate.period().as_micros() as i128);
    let left = (i128::from(used.owed) - i128::from(used.starts) * passed).max(0);
    let owed = left * now / was;
    if owed * was < left * now { owed + 1 } else { owed }
}

impl<'a> Walk<'a> {
    fn begin(world: &'a World) -> Self {
        let open = world.pools.iter().map(|(name, slots)| (name, slots.open(world.used_slots(name))));
        let keys: BTreeSet<&LimitKey> = world.waiting.iter().flat_map(|task| &task.lane.limits).collect();
        let used = keys.iter().map(|key| (*key, world.used_limit(key)));
        let owed =
            keys.iter().filter_map(|key| Some((*key, (owed(world, key, rule(world, key)?.rate?), false))));
        Self {
            world,
            open: open.collect(),
            used: used.collect(),
            owed: owed.collect(),
            reserved: HashMap::new(),
            kept: HashMap::new(),
        }
    }

    fn take(&mut self, task: &'a Waiting) {
        let lane = &task.lane;
        for (pool, slots) in task.misses() {
            if let Some(Some(open)) = self.open.get_mut(pool) {
                *open -= i64::from(slots);
            }
        }
        for key in &lane.limits {
            *self.used.get_mut(key).unwrap() += i64::from(count_of(lane, key));
            if let Some((owed, took)) = self.owed.get_mut(key) {
                *owed += rule(self.world, key).unwrap().rate.unwrap().period().as_micros() as i128;
                *took = true;
            }
        }
    }

    fn reserve(&mut self, at: usize, id: TaskId, reason: &Reason) {
        let task = &self.world.waiting[at];
        let lane = &task.lane;
        let only_its_pools =
            matches!(reason, Reason::PoolFull { .. }) && self.limit(lane).or(self.rate(lane)).is_none();
        let pools = task
            .misses()
            .into_iter()
            .map(|(pool, _)| pool)
            .filter(|pool| self.open.get(pool).is_some_and(Option::is_some));
        let pools: Vec<_> = pools.collect();
        let is_free = pools.iter().all(|pool| !self.reserved.contains_key(pool));
        if only_its_pools && is_free && self.has_waited(at) {
            self.reserved.extend(pools.into_iter().map(|pool| (pool, id)));
        }
    }

    /// Its slots are not for others in this walk, unless they are for somebody already.
    fn keep(&mut self, at: usize, id: TaskId) {
        let task = &self.world.waiting[at];
        if self.has_waited(at) && self.passed_over(task).is_none() {
            for (pool, slots) in task.misses() {
                self.kept.entry(pool).or_insert((0, id)).0 += i64::from(slots);
            }
        }
    }

    fn has_waited(&self, at: usize) -> bool {
        let Policy::Reserve { after } = self.world.policy else { return false };
        self.world.now.saturating_duration_since(self.world.waiting[at].ready_at) >= after
    }

    /// The first of its pools whose slots are for somebody else, and for whom.
    fn passed_over<'l>(&self, task: &'l Waiting) -> Option<(&'l PoolName, i64, TaskId)> {
        task.misses().into_iter().find_map(|(pool, needs)| {
            let open = self.open.get(pool).copied().flatten()?;
            let kept = self.kept.get(pool).filter(|(slots, _)| i64::from(needs) > open - slots);
            let task = self.reserved.get(pool).copied().or(kept.map(|(_, id)| *id))?;
            Some((pool, open, task))
        })
    }

    /// Paused, pool unknown, never fits, pool full, limit reached, rate spent: the first that holds.
    fn refusal(&self, task: &Waiting) -> Option<Reason> {
        let lane = &task.lane;
        let paused = self.paused(lane).map(|subject| Reason::Paused { subject });
        paused.or_else(|| self.pool(task)).or_else(|| self.limit(lane)).or_else(|| self.rate(lane))
    }

    fn paused(&self, lane: &LaneKey) -> Option<Subject> {
        subjects(lane).into_iter().find(|subject| self.world.paused.contains(subject))
    }

    fn rate(&self, lane: &LaneKey) -> Option<Reason> {
        self.rates(lane).next()
    }

    fn rates(&self, lane: &LaneKey) -> impl Iterator<Item = Reason> {
        lane.limits.iter().filter_map(|key| {
            let rate = rule(self.world, key)?.rate?;
            let token = rate.period().as_micros() as i128;
            let missing = self.owed[key].0 + token - i128::from(rate.most_at_once()) * token;
            if missing <= 0 {
                return None;
            }
            let (owed, took) = self.owed[key];
            let most = (i128::from(rate.most_at_once()) - 1) * token;
            let mut next = clock(self.world).as_micros();
            // Before a start what is owed comes back as the rate says under which it was owed.
            let owed_then = |next: i64| match took {
                true => owed - i128::from(next - clock(self.world).as_micros()) * i128::from(rate.starts()),
                false => owed_at(self.world, key, rate, Timestamp::from_micros(next)),
            };
            while owed_then(next) > most {
                next += 1;
            }
            Some(Reason::RateSpent { limit: key.clone(), rate, next: Timestamp::from_micros(next) })
        })
    }

    /// A pool that is not there, one that is too small, one that is full: each looked for in all of them first.
    fn pool(&self, task: &Waiting) -> Option<Reason> {
        let (mut small, mut full) = (None, None);
        for (pool, needs) in task.misses() {
            let pool = pool.clone();
            let Some((_, slots)) = self.world.pools.iter().find(|(name, _)| *name == pool) else {
                return Some(Reason::PoolUnknown { pool });
            };
            let Slots::Limited(total) = *slots else { continue };
            let open = self.open[&pool].unwrap();
            if needs > total {
                small = small.or(Some(Reason::NeverFits { pool, total, needs }));
            } else if i64::from(needs) > open {
                full = full.or(Some(Reason::PoolFull { pool, open, total, needs }));
            }
        }
        small.or(full)
    }

    /// The first of several, in the order of the keys.
    fn limit(&self, lane: &LaneKey) -> Option<Reason> {
        lane.limits.iter().find_map(|key| {
            let (used, max) = (self.used[key], rule(self.world, key)?.max?);
            let needs = count_of(lane, key);
            let is_above = used + i64::from(needs) > i64::from(max);
            is_above.then(|| Reason::LimitReached { limit: key.clone(), used, max, needs })
        })
    }

    /// Why tasks of a lane are left, told by what the walk left open.
    fn reason(&self, task: &Waiting) -> Reason {
        self.refusal(task).unwrap_or_else(|| match self.passed_over(task) {
            Some((pool, open, task)) => Reason::Reserved { pool: pool.clone(), open, task },
            None => Reason::BudgetSpent { budget: self.world.budget },
        })
    }
}
