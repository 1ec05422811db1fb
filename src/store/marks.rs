//! Checks whether a mark holds: whether the pool, key or subject that it names refuses, as counted.

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use std::collections::{BTreeSet, HashMap};

#[cfg(any(feature = "sqlite", feature = "postgres"))]
use crate::admission::limits::{Families, LimitSpec};
use crate::admission::limits::{LimitRecord, RateUse};
use crate::admission::{Cause, Subject, has_token};
use crate::id::{LimitKey, PoolName, QueueName};
use crate::pool::PoolRecord;
use crate::store::Discrepancy;
use crate::time::Timestamp;

/// The queue of a class, and the slots of each pool that its lanes need.
pub(super) type ClassKey = (QueueName, Vec<(PoolName, u32)>);

/// What a mark says.
#[derive(Debug)]
pub(super) enum Sleeps<'a> {
    /// The class is closed by this pool, which has too few open slots.
    Full(&'a PoolName),
    /// The class is closed by this queue, which is paused, or by this pool, which is paused, unknown or too small.
    By(&'a Subject),
    /// The class is closed by its queue or by one of its pools.
    #[cfg(feature = "postgres")]
    Closed,
    /// The group sleeps, at most until then.
    Asleep(&'a Cause, Option<Timestamp>),
}

/// The counters and definitions that a mark is checked against.
pub(super) trait Counted {
    /// Returns a pool.
    fn pool(&self, name: &PoolName) -> Option<&PoolRecord>;
    /// Returns whether the subject is paused.
    fn is_paused(&self, subject: &Subject) -> bool;
    /// Returns a key with the definition that applies to it.
    fn rule(&self, key: &LimitKey) -> LimitRecord;
    /// Returns what a key owes.
    fn rate(&self, key: &LimitKey) -> Option<&RateUse>;
    /// Returns the latest instant at which a token was taken.
    fn clock(&self) -> Option<Timestamp>;
}

/// The facts that an SQL store read about everything that its marks name.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(super) struct Facts {
    pub(super) pools: HashMap<PoolName, PoolRecord>,
    pub(super) limits: HashMap<LimitKey, LimitRecord>,
    pub(super) rates: HashMap<LimitKey, RateUse>,
    pub(super) families: Vec<LimitSpec>,
    pub(super) paused: BTreeSet<Subject>,
    pub(super) clock: Option<Timestamp>,
}

#[cfg(any(feature = "sqlite", feature = "postgres"))]
impl Counted for Facts {
    fn pool(&self, name: &PoolName) -> Option<&PoolRecord> {
        self.pools.get(name)
    }

    fn is_paused(&self, subject: &Subject) -> bool {
        self.paused.contains(subject)
    }

    fn rule(&self, key: &LimitKey) -> LimitRecord {
        let unknown = || LimitRecord::new(key.clone(), None, 0);
        let mut limit = self.limits.get(key).cloned().unwrap_or_else(unknown);
        Families::new(&self.families).apply(&mut limit);
        limit
    }

    fn rate(&self, key: &LimitKey) -> Option<&RateUse> {
        self.rates.get(key)
    }

    fn clock(&self) -> Option<Timestamp> {
        self.clock
    }
}

/// Returns what is wrong with a mark, if anything.
pub(super) fn check(counted: &impl Counted, class: &ClassKey, mark: &Sleeps<'_>) -> Option<Discrepancy> {
    let (queue, pools) = class;
    let is_wrong = || Discrepancy::Mark { mark: format!("queue {queue}, pools {pools:?}: {mark:?}") };
    (!holds(counted, class, mark)).then(is_wrong)
}

fn holds(counted: &impl Counted, (queue, pools): &ClassKey, mark: &Sleeps<'_>) -> bool {
    match mark {
        Sleeps::Full(full) => {
            let needs = pools.iter().find(|(name, _)| name == *full).map(|(_, slots)| i64::from(*slots));
            let open = counted.pool(full).map(PoolRecord::open);
            needs.is_some_and(|needs| open.flatten().is_some_and(|open| needs > open))
        }
        Sleeps::By(Subject::Pool(by)) => {
            pools.iter().find(|(name, _)| name == by).is_some_and(|pool| refuses(counted, pool))
        }
        Sleeps::By(subject) => **subject == Subject::Queue(queue.clone()) && counted.is_paused(subject),
        #[cfg(feature = "postgres")]
        Sleeps::Closed => {
            counted.is_paused(&Subject::Queue(queue.clone()))
                || pools.iter().any(|pool| refuses(counted, pool))
        }
        Sleeps::Asleep(Cause::Paused(subject), _) => counted.is_paused(subject),
        Sleeps::Asleep(Cause::Reached(key, needs), _) => {
            counted.rule(key).open().is_some_and(|open| open < i64::from(*needs))
        }
        Sleeps::Asleep(Cause::Spent(key), next) => {
            let Some(clock) = counted.clock() else { return false };
            let is_over = next.is_none_or(|next| next <= clock);
            counted.rule(key).rate.is_some_and(|rate| is_over || !has_token(rate, counted.rate(key), clock))
        }
    }
}

/// Returns whether a pool refuses this many slots, however many are open.
fn refuses(counted: &impl Counted, (name, slots): &(PoolName, u32)) -> bool {
    let total = counted.pool(name).map(|pool| pool.spec.slots.total());
    let is_too_small = total.is_none_or(|total| total.is_some_and(|total| *slots > total));
    is_too_small || counted.is_paused(&Subject::Pool(name.clone()))
}
