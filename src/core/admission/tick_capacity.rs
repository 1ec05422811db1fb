//! The pools and limits of one tick: the open capacity, minus what the tick has used.

use std::collections::HashMap;

use super::limits::{LimitRecord, RateUse};
use super::rate::Bucket;
use super::verdict::Reason;
use crate::id::{LimitKey, PoolName};
use crate::lease::TaskId;
use crate::pool::{PoolRecord, Slots};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct PoolWork {
    pub(super) name: PoolName,
    /// `None` if the pool does not exist.
    pub(super) slots: Option<Slots>,
    used: i64,
    pub(super) taken: u64,
    /// The task for which its open slots are reserved.
    pub(super) reserved: Option<TaskId>,
    /// Open slots that are kept for tasks of queues that others serve, and the first of these tasks.
    kept: i64,
    kept_for: Option<TaskId>,
    pub(super) excluded: Exclusion,
}

#[derive(Debug)]
pub(super) struct LimitWork {
    pub(super) key: LimitKey,
    max: Option<u32>,
    used: i64,
    bucket: Option<Bucket>,
    pub(super) weight: u32,
    /// How much the tasks that this tick admits count against it.
    taken: u64,
    /// The number of these tasks.
    starts: u64,
    pub(super) excluded: Exclusion,
}

/// Whether something was excluded, and in which round of the tick.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Exclusion(Option<u32>);

impl Exclusion {
    /// Excludes it. Returns true if it was not excluded before.
    pub(super) fn put(&mut self, round: u32) -> bool {
        self.0.replace(self.0.unwrap_or(round)).is_none()
    }

    /// Returns true from the round after the one in which it was excluded.
    pub(super) fn holds_in(self, round: u32) -> bool {
        self.0.is_some_and(|excluded| excluded < round)
    }
}

impl PoolWork {
    pub(super) fn unknown(name: PoolName) -> Self {
        Self {
            name,
            slots: None,
            used: 0,
            taken: 0,
            reserved: None,
            kept: 0,
            kept_for: None,
            excluded: Exclusion::default(),
        }
    }

    pub(super) fn known(&mut self, pool: &PoolRecord) {
        self.slots = Some(pool.spec.slots);
        self.used = pool.used;
    }

    /// Returns the slots that this tick leaves open; `None` if the pool is unlimited or unknown.
    pub(super) fn open(&self) -> Option<i64> {
        self.slots
            .and_then(|slots| slots.open(self.used))
            .map(|open| open.saturating_sub_unsigned(self.taken))
    }

    /// Returns the refusal that any task gets from a pool that does not exist.
    pub(super) fn unknown_to(&self) -> Option<Reason> {
        self.slots.is_none().then(|| Reason::PoolUnknown { pool: self.name.clone() })
    }

    /// Returns the refusal of a task that needs more slots than the pool has.
    pub(super) fn too_small(&self, needs: u32) -> Option<Reason> {
        let total = self.slots?.total()?;
        (needs > total).then(|| Reason::NeverFits { pool: self.name.clone(), total, needs })
    }

    /// Returns the refusal of a task that needs more slots than are open.
    pub(super) fn full(&self, needs: u32) -> Option<Reason> {
        let (total, open) = (self.slots?.total()?, self.open()?);
        (i64::from(needs) > open).then(|| Reason::PoolFull { pool: self.name.clone(), open, total, needs })
    }

    /// Reserves its open slots for a task. Unlimited slots need no reservation.
    pub(super) fn reserve(&mut self, task: TaskId) {
        self.reserved = self.open().map(|_| task);
    }

    /// Keeps slots for a task that fits and that another holder is to admit.
    pub(super) fn keep(&mut self, needs: u32, task: TaskId) {
        self.kept = self.kept.saturating_add(needs.into());
        self.kept_for.get_or_insert(task);
    }

    /// Returns the reason of a task that fits but is skipped, because open slots are reserved for others.
    pub(super) fn reservation(&self, needs: u32) -> Option<Reason> {
        let open = self.open()?;
        let kept_for = self.kept_for.filter(|_| i64::from(needs) > open.saturating_sub(self.kept));
        let task = self.reserved.or(kept_for)?;
        Some(Reason::Reserved { pool: self.name.clone(), open, task })
    }
}

impl LimitWork {
    pub(super) fn undefined(key: LimitKey) -> Self {
        let excluded = Exclusion::default();
        Self { key, max: None, used: 0, bucket: None, weight: 1, taken: 0, starts: 0, excluded }
    }

    /// Sets its counts. `owed` is what its starts owe to a rate.
    pub(super) fn known(&mut self, limit: &LimitRecord, owed: Option<&RateUse>, clock: Timestamp) {
        self.max = limit.max;
        self.used = limit.used;
        self.weight = limit.weight.unwrap_or(1);
        self.bucket = limit.rate.map(|rate| Bucket::new(rate, owed, clock));
    }

    /// Counts one more start, of a task that counts this much.
    pub(super) fn take(&mut self, count: u32) {
        self.taken += u64::from(count);
        self.starts += 1;
    }

    /// Returns how many more tasks of this count it admits in this tick; `None` means any number.
    pub(super) fn open(&self, count: u32) -> Option<i64> {
        let by_rate = self.bucket.map(|bucket| bucket.left(self.starts));
        let by_max = self.open_of_max().map(|open| open.div_euclid(i64::from(count.max(1))));
        by_max.into_iter().chain(by_rate).min()
    }

    fn open_of_max(&self) -> Option<i64> {
        self.max.map(|max| i64::from(max).saturating_sub(self.used).saturating_sub_unsigned(self.taken))
    }

    /// Returns what its starts owe after this tick, if it has a rate and the tick took tokens.
    pub(super) fn owes(&self) -> Option<RateUse> {
        self.bucket.filter(|_| self.starts > 0).map(|bucket| bucket.after(&self.key, self.starts))
    }

    /// Returns true if it has no room for a task of this count.
    pub(super) fn is_reached(&self, count: u32) -> bool {
        self.open(count).is_some_and(|open| open < 1)
    }

    pub(super) fn refusal(&self, needs: u32) -> Option<Reason> {
        let (max, open) = (self.max?, self.open_of_max()?);
        let used = self.used.saturating_add_unsigned(self.taken);
        let reached = || Reason::LimitReached { limit: self.key.clone(), used, max, needs };
        (open < i64::from(needs)).then(reached)
    }

    /// Returns the refusal by its rate. It comes after the refusals by the maxima of all keys.
    pub(super) fn spent(&self) -> Option<Reason> {
        let bucket = self.bucket.filter(|bucket| bucket.left(self.starts) < 1)?;
        let (limit, rate, next) = (self.key.clone(), bucket.rate, bucket.next(self.starts));
        Some(Reason::RateSpent { limit, rate, next })
    }
}

/// Assigns an index to each distinct name, in order of first use.
#[derive(Debug)]
pub(super) struct Interner<T> {
    pub(super) names: Vec<T>,
    indices: HashMap<T, usize>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { names: Vec::new(), indices: HashMap::new() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Interner<T> {
    pub(super) fn index(&mut self, name: &T) -> usize {
        if let Some(&at) = self.indices.get(name) {
            return at;
        }
        self.names.push(name.clone());
        self.indices.insert(name.clone(), self.names.len() - 1);
        self.names.len() - 1
    }
}
