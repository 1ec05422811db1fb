//! Worlds: pools, limits, tasks that were admitted before, tasks that wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stationmaster::admission::limits::{LimitSpec, Rate};
use stationmaster::admission::{Ageing, Policy, Subject};
use stationmaster::id::{LimitKey, PoolName, QueueName};
use stationmaster::pool::Slots;
use stationmaster::store::contract::{LaneKey, OrderKey, RateUse};
use stationmaster::{TaskId, Timestamp};

/// A pool, and a share of it.
pub(crate) type Pair = (PoolName, LimitKey);

/// A ready task.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    pub(crate) lane: LaneKey,
    pub(crate) priority: i32,
    pub(crate) logical_date: Timestamp,
    pub(crate) map_index: Option<u32>,
    pub(crate) ready_at: Timestamp,
    /// Whether it goes on after it sensed, and kept its slots.
    pub(crate) resumed: bool,
}

impl Waiting {
    /// The slots that it has still to be given.
    pub(crate) fn misses(&self) -> Vec<(&PoolName, u32)> {
        if self.resumed { Vec::new() } else { needs_of(&self.lane) }
    }

    /// Its own pool and its share, if it is of one.
    pub(crate) fn pair(&self) -> Option<Pair> {
        Some((self.lane.pool.clone(), self.lane.share.clone()?))
    }

    /// What tasks have in common that are left for one reason.
    pub(crate) fn kind(&self) -> (&LaneKey, bool) {
        (&self.lane, self.resumed)
    }
}

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) pools: Vec<(PoolName, Slots)>,
    /// Keys and families that are defined.
    pub(crate) limits: Vec<LimitSpec>,
    /// What keys owe to the rates that they had.
    pub(crate) owed: Vec<RateUse>,
    pub(crate) paused: Vec<Subject>,
    /// The stamp and the dither of shares that leased tasks are of, and how often any share was granted something.
    pub(crate) stamps: BTreeMap<Pair, (i64, i64)>,
    pub(crate) grants: i64,
    /// How ranks grow.
    pub(crate) ageing: Ageing,
    /// Tasks that hold leases, each in a pool that is there. They may be more than fit: pools shrink.
    pub(crate) leased: Vec<LaneKey>,
    /// In order of arrival.
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) budget: usize,
    /// The queues that the tick serves, or all.
    pub(crate) serves: Option<BTreeSet<QueueName>>,
    /// Those that somebody else serves.
    pub(crate) serve_others: BTreeSet<QueueName>,
    pub(crate) policy: Policy,
    pub(crate) now: Timestamp,
}

impl World {
    /// These tasks wait in these pools, and nothing else is there.
    pub(crate) fn of(pools: Vec<(PoolName, Slots)>, waiting: Vec<Waiting>, now: Timestamp) -> Self {
        Self {
            pools,
            limits: Vec::new(),
            owed: Vec::new(),
            paused: Vec::new(),
            stamps: BTreeMap::new(),
            grants: 0,
            ageing: Ageing::None,
            leased: Vec::new(),
            waiting,
            budget: usize::MAX,
            serves: None,
            serve_others: BTreeSet::new(),
            policy: Policy::Backfill,
            now,
        }
    }

    /// The place of a waiting task in the order, where it has this number.
    pub(crate) fn order(&self, at: usize, id: TaskId) -> OrderKey {
        let task = &self.waiting[at];
        OrderKey::new(self.ageing.rank(task.priority, task.ready_at), task.logical_date, task.map_index, id)
    }

    pub(crate) fn is_served(&self, queue: &QueueName) -> bool {
        self.serves.as_ref().is_none_or(|queues| queues.contains(queue))
    }

    /// Whether a waiting task is still to be made ready when the first tick comes. In a store alone.
    pub(crate) fn is_overdue(&self, at: usize) -> bool {
        at % 4 == 1 && !self.waiting[at].resumed && self.waiting[at].ready_at > Timestamp::UNIX_EPOCH
    }

    /// Slots of a pool that its leased tasks hold, and those that kept theirs.
    pub(crate) fn used_slots(&self, pool: &PoolName) -> i64 {
        let resumed = self.waiting.iter().filter(|task| task.resumed).map(|task| &task.lane);
        let needs = self.leased.iter().chain(resumed).flat_map(needs_of).filter(|(name, _)| *name == pool);
        needs.map(|(_, slots)| i64::from(slots)).sum()
    }

    /// Slots that tasks of a share hold of a pool.
    pub(crate) fn held(&self, (pool, share): &Pair) -> i64 {
        let resumed = self.waiting.iter().filter(|task| task.resumed).map(|task| &task.lane);
        let lanes = self.leased.iter().chain(resumed).filter(|lane| lane.share.as_ref() == Some(share));
        lanes.flat_map(needs_of).filter(|(name, _)| *name == pool).map(|(_, slots)| i64::from(slots)).sum()
    }

    /// What leased tasks count against a key.
    pub(crate) fn used_limit(&self, key: &LimitKey) -> i64 {
        let carry = self.leased.iter().filter(|lane| lane.limits.contains(key));
        carry.map(|lane| i64::from(count_of(lane, key))).sum()
    }
}

/// The pools that a task needs, its own first, then the others by their names.
pub(crate) fn needs_of(lane: &LaneKey) -> Vec<(&PoolName, u32)> {
    let mut needs = vec![(&lane.pool, lane.slots)];
    needs.extend(lane.also.iter().map(|(pool, slots)| (pool, *slots)));
    needs
}

/// How much a task counts against a key that it carries.
pub(crate) fn count_of(lane: &LaneKey, key: &LimitKey) -> u32 {
    *lane.counts.get(key).unwrap_or(&1)
}

pub(crate) fn pool_name(n: u64) -> PoolName {
    PoolName::new(format!("p{n}")).unwrap()
}

/// Queue 0 is the default one.
pub(crate) fn queue_name(n: u64) -> QueueName {
    QueueName::new(["default", "gpu", "cpu", "nobody's"][n as usize]).unwrap()
}

pub(crate) fn limit_key(n: u64) -> LimitKey {
    LimitKey::new(["l0", "l1", "lx0", "lx1", "m0", "n"][n as usize]).unwrap()
}

/// Of the families the last matches no key: one of its own length is not of it.
const FAMILIES: [&str; 4] = ["l", "lx", "m", "n"];

/// SplitMix64: the same worlds on every machine.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `below - 1`.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        self.next() % below.max(1)
    }

    pub(crate) fn lane(&mut self, pools: u64, largest: u64, keys: u64, queues: u64, wide: bool) -> LaneKey {
        let limits: Vec<LimitKey> = (0..self.below(3)).map(|_| limit_key(self.below(keys))).collect();
        let lane = LaneKey::new(pool_name(self.below(pools)), 1 + self.below(largest) as u32, limits.clone());
        let lane = lane.queue(queue_name(self.below(queues)));
        if !wide {
            return lane;
        }
        let counts: Vec<_> = limits.into_iter().map(|key| (key, 1 + self.below(4) as u32)).collect();
        let also = (0..self.below(3)).map(|_| (pool_name(self.below(pools)), 1 + self.below(largest) as u32));
        let also: Vec<_> = also.filter(|(pool, _)| *pool != lane.pool).collect();
        lane.counts(counts).also(also)
    }

    /// Definitions of some of this many keys. Families and rates occur only if the world has them.
    fn limits(&mut self, keys: u64, roomy: u64, ruled: bool, weighed: bool) -> Vec<LimitSpec> {
        let mut limits = Vec::new();
        for n in 0..keys {
            if self.below(if ruled { 2 } else { 4 }) > 0 {
                let max = self.below(roomy) as u32;
                let mut spec = LimitSpec::of(limit_key(n));
                spec.weight = self.weight(weighed);
                limits.push(if ruled {
                    self.rule(spec, max)
                } else {
                    spec.max = Some(max);
                    spec
                });
            }
        }
        for prefix in FAMILIES.iter().filter(|_| ruled) {
            if self.below(2) == 0 {
                let max = 1 + self.below(roomy) as u32;
                let mut spec = LimitSpec::of(LimitKey::new(prefix).unwrap()).family();
                spec.weight = self.weight(weighed);
                limits.push(self.rule(spec, max));
            }
        }
        limits
    }

    pub(crate) fn weight(&mut self, weighed: bool) -> Option<u32> {
        (weighed && self.below(2) == 0).then(|| 1 + self.below(6) as u32)
    }

    /// What was noted of shares that these tasks are of: of some nothing.
    fn stamps(&mut self, leased: &[LaneKey]) -> (BTreeMap<Pair, (i64, i64)>, i64) {
        let mut stamps = BTreeMap::new();
        for lane in leased {
            for (pool, _) in needs_of(lane) {
                let Some(share) = &lane.share else { continue };
                let noted = (2 * self.below(30) as i64, self.below(1 << 20) as i64);
                stamps.insert((pool.clone(), share.clone()), if self.below(3) == 0 { (0, 0) } else { noted });
            }
        }
        let last = stamps.values().map(|(stamp, _)| stamp / 2).max().unwrap_or(0);
        (stamps, last)
    }

    /// Makes a lane one of a share, in half of the cases.
    fn shared(&mut self, lane: LaneKey, keys: u64, priority: i32) -> LaneKey {
        if self.below(2) == 0 { lane.share(limit_key(self.below(keys)), priority) } else { lane }
    }

    /// Adds a maximum, a rate, both or none.
    pub(crate) fn rule(&mut self, mut spec: LimitSpec, max: u32) -> LimitSpec {
        let kind = self.below(5);
        spec.max = (kind != 1 && kind != 4).then_some(max);
        if kind == 1 || kind == 2 { spec.rate(self.rate()) } else { spec }
    }

    fn rate(&mut self) -> Rate {
        let period = Duration::from_micros(1 + self.below(30));
        let rate = Rate::new(1 + self.below(9) as u32, period).unwrap();
        rate.burst(1 + self.below(12) as u32).unwrap()
    }

    /// What some of this many keys owe to one rate or another, since lately or from the future: the clock
    /// stepped back.
    fn owed(&mut self, keys: u64) -> Vec<RateUse> {
        let mut owed = Vec::new();
        for n in 0..keys {
            if self.below(2) == 0 {
                let rate = self.rate();
                let period = rate.period().as_micros() as i64;
                let (owes, at) = (1 + self.below(4 * period as u64) as i64, 980 + self.below(40) as i64);
                let at = Timestamp::from_micros(at);
                owed.push(RateUse::new(limit_key(n), owes, at, rate.starts(), rate.period()));
            }
        }
        owed
    }

    pub(crate) fn paused(&mut self, pools: u64, keys: u64, queues: u64) -> Vec<Subject> {
        let subject = |random: &mut Self| match random.below(4) {
            0 => Subject::Pool(pool_name(random.below(pools))),
            1 => Subject::Queue(queue_name(random.below(queues))),
            2 => Subject::Key(limit_key(random.below(keys))),
            _ => Subject::Family(LimitKey::new(FAMILIES[random.below(4) as usize]).unwrap()),
        };
        (0..=self.below(2)).map(|_| subject(self)).collect()
    }

    /// Each of the queues with a chance of one in two.
    pub(crate) fn queues(&mut self, queues: u64) -> BTreeSet<QueueName> {
        (0..queues).filter(|_| self.below(2) == 0).map(queue_name).collect()
    }
}

/// The random world of this number: up to 200 tasks, half of them with few kinds of needs, half with many.
pub(crate) fn random(number: u64) -> World {
    let mut random = Random(number);
    let known = 1 + random.below(5);
    // One pool more is named than there is.
    let (named, keys) = (known + 1, 1 + random.below(6));
    // In half of the worlds there is one queue, and everybody serves it.
    let queues = [1, 1, 2, 4][random.below(4) as usize];
    let largest = [1, 3, 8][random.below(3) as usize];
    let roomy = [8, 40, 200][random.below(3) as usize];
    let pools = (0..known).map(|n| {
        let slots = match random.below(8) {
            0 => Slots::Unlimited,
            _ => Slots::Limited(random.below(roomy) as u32),
        };
        (pool_name(n), slots)
    });
    let pools = pools.collect();
    let ruled = random.below(2) == 0;
    // Whether tasks need several pools, and count more than 1 against limits.
    let wide = random.below(2) == 0;
    // Whether some tasks are of shares.
    let shared = random.below(2) == 0;
    let limits = random.limits(keys, roomy, ruled, shared);
    let paused = if ruled && random.below(2) == 0 { random.paused(named, keys, queues) } else { Vec::new() };
    let mut leased: Vec<_> =
        (0..random.below(20)).map(|_| random.lane(known, largest, keys, queues, wide)).collect();
    if shared {
        leased = leased.into_iter().map(|lane| random.shared(lane, keys, 0)).collect();
    }
    let (stamps, grants) = random.stamps(&leased);
    // A store learns it with a grant.
    let owed = if ruled && !leased.is_empty() { random.owed(keys) } else { Vec::new() };
    let mut kinds: Vec<LaneKey> =
        (0..1 + random.below(30)).map(|_| random.lane(named, largest, keys, queues, wide)).collect();
    if shared {
        kinds = kinds.into_iter().map(|lane| random.shared(lane, keys, 0)).collect();
    }
    let spread = [1, 3, 100][random.below(3) as usize];
    // Whether some tasks kept their slots.
    let resumes = random.below(2) == 0;
    let waiting = (0..random.below(201)).map(|_| Waiting {
        lane: kinds[random.below(kinds.len() as u64) as usize].clone(),
        priority: random.below(2 * spread) as i32 - spread as i32,
        logical_date: Timestamp::from_micros(random.below(spread) as i64),
        map_index: random.below(spread + 1).checked_sub(1).map(|index| index as u32),
        ready_at: Timestamp::from_micros(random.below(1000) as i64),
        resumed: resumes && random.below(6) == 0,
    });
    let mut waiting: Vec<Waiting> = waiting.collect();
    for task in waiting.iter_mut().filter(|task| task.lane.share.is_some()) {
        task.lane.priority = task.priority;
    }
    let ageing = match random.below(4) {
        0 if shared => Ageing::Linear { period: Duration::from_micros(1 + random.below(200)) },
        _ => Ageing::None,
    };
    // No task held slots of a pool that is not there.
    for task in &mut waiting {
        task.resumed &= needs_of(&task.lane).iter().all(|(pool, _)| **pool != pool_name(known));
    }
    let budget = match random.below(4) {
        0 => random.below(10) as usize,
        1 => random.below(100) as usize,
        _ => usize::MAX,
    };
    let policy = match random.below(4) {
        0 => Policy::Reserve { after: Duration::ZERO },
        1 | 2 => Policy::Reserve { after: Duration::from_micros(random.below(1100)) },
        _ => Policy::Backfill,
    };
    let serves = (queues > 1).then(|| random.queues(queues)).filter(|queues| !queues.is_empty());
    let serve_others = random.queues(queues);
    let now = Timestamp::from_micros(1000);
    World {
        pools,
        limits,
        owed,
        paused,
        stamps,
        grants,
        ageing,
        leased,
        waiting,
        budget,
        serves,
        serve_others,
        policy,
        now,
    }
}
