//! Checks, after the fact, what several processes did to one store.
//!
//! Each process records when it invoked an operation, when that returned, and what it returned. A process
//! that was killed leaves an operation without a return: it may or may not have taken effect, at any time
//! since its invocation.
//!
//! The check is *sound*: it reports only what cannot have happened in a correct store, whatever the order in
//! which concurrent operations took effect. A lease counts as *surely held* from the return of the call that
//! granted it to its expiry or the invocation of the first call that may have ended it, whichever comes
//! first.
//!
//! | rule | violated when |
//! |---|---|
//! | [`Rule::Capacity`] | leases that were surely held together need more slots of a pool, or count more against a limit, than there can have been since the first of them was asked for |
//! | [`Rule::Exclusion`] | two leases of one task were surely held together, or one epoch was granted twice |
//! | [`Rule::Fencing`] | a lease was renewed, finished or reaped after it surely had ended, or after a later one of its task was granted |
//! | [`Rule::Tokens`] | more calls than the rate of a key allows were made and returned within some window: see [`History::rate`] |
//! | [`Rule::Pauses`] | a call granted something while the subject that it belongs to was surely paused: the call was made then, and returned before the subject can have been resumed |
//!
//! Pokes are checked by [`pokes`].
//!
//! # Examples
//!
//! ```
//! use stationmaster::testing::history::{Event, Grant, History, Operation, Rule};
//!
//! let grant = |task, epoch| Grant::new(task, epoch, "db", 1, 1000);
//! let mut history = History::new([("db", Some(1))]);
//! history.push(Event { invoked: 1, returned: Some(2), operation: Operation::Admit(vec![grant(7, 1)]) });
//! history.push(Event { invoked: 3, returned: Some(4), operation: Operation::Admit(vec![grant(8, 1)]) });
//! assert_eq!(history.check().unwrap_err().rule, Rule::Capacity);
//! ```

mod pauses;
pub mod pokes;
mod tokens;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};

/// An instant of a clock that all processes share, in any unit. The stores' lease instants are from the same
/// clock.
pub type Instant = u64;

/// One granted lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The task's number.
    pub task: i64,
    /// The grant's epoch.
    pub epoch: i64,
    /// The pool.
    pub pool: String,
    /// Slots of it.
    pub slots: u32,
    /// When it expires unless renewed.
    pub expires_at: Instant,
    /// What else it takes, by name: slots of other pools, and counts against limit keys. 0 means that the
    /// task only belongs to it: to its queue, or to the family of a key.
    #[serde(default)]
    pub also: Vec<(String, u32)>,
}

impl Grant {
    /// Creates a grant that takes only slots of one pool.
    pub fn new(task: i64, epoch: i64, pool: &str, slots: u32, expires_at: Instant) -> Self {
        Self { task, epoch, pool: pool.to_owned(), slots, expires_at, also: Vec::new() }
    }

    /// Returns everything that it takes, or belongs to.
    fn takes(&self) -> impl Iterator<Item = (&str, u32)> {
        let also = self.also.iter().map(|(name, count)| (name.as_str(), *count));
        std::iter::once((self.pool.as_str(), self.slots)).chain(also)
    }
}

/// A lease that an operation was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId {
    /// The task's number.
    pub task: i64,
    /// The grant's epoch.
    pub epoch: i64,
}

/// An operation and its results. Without a return, the results stand for what may have happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operation {
    /// Leases granted. Without a return: unknown, so empty.
    Admit(Vec<Grant>),
    /// Leases renewed until this instant: those that were accepted, or asked for if there was no return.
    Renew(Vec<LeaseId>, Instant),
    /// Leases ended by their holders: those that were accepted, or asked for if there was no return.
    End(Vec<LeaseId>),
    /// Leases ended because they had expired. Without a return: unknown, so empty.
    Reap(Vec<LeaseId>),
    /// A pool's size or a limit's maximum was set; `None` is unlimited.
    Resize(String, Option<u32>),
    /// The named subject was paused; with `false`, resumed.
    Pause(String, bool),
}

/// One operation of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When it was invoked.
    pub invoked: Instant,
    /// When it returned; `None` if the process died before.
    pub returned: Option<Instant>,
    /// What it was.
    pub operation: Operation,
}

/// A rule that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// No pool and no limit is oversubscribed.
    Capacity,
    /// No rate is exceeded, in no window of any length.
    Tokens,
    /// What is paused is not granted.
    Pauses,
    /// No task has two leases.
    Exclusion,
    /// An ended lease does nothing.
    Fencing,
    /// A group is poked by one worker; see [`pokes`].
    Pokes,
    /// A result reaches the sensors of its group; see [`pokes`].
    Answers,
}

/// What cannot have happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The broken rule.
    pub rule: Rule,
    /// When it was seen.
    pub at: Instant,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} violated at {}: {}", self.rule, self.at, self.what)
    }
}

impl std::error::Error for Violation {}

/// How much a history holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Leases granted.
    pub grants: usize,
    /// Leases ended by their holders.
    pub ended: usize,
    /// Leases ended by upkeep.
    pub reaped: usize,
    /// Operations whose process died before they returned.
    pub unknown: usize,
}

/// What all processes did.
#[derive(Debug, Clone, Default)]
pub struct History {
    events: Vec<Event>,
    sizes: HashMap<String, Vec<Size>>,
    rates: HashMap<String, tokens::Rate>,
    keeping: HashSet<String>,
}

/// A size that a pool may have had.
#[derive(Debug, Clone, Copy)]
struct Size {
    invoked: Instant,
    returned: Option<Instant>,
    slots: Option<u32>,
}

/// What is known of one lease.
#[derive(Debug, Clone)]
struct Held<'a> {
    id: LeaseId,
    grant: &'a Grant,
    invoked: Instant,
    from: Instant,
    expires_at: Instant,
    /// The first call that may have ended it.
    maybe_ended: Instant,
    /// The return of the first call that surely ended it.
    surely_ended: Option<Instant>,
}

impl Held<'_> {
    fn until(&self) -> Instant {
        self.expires_at.min(self.maybe_ended)
    }
}

impl History {
    /// Creates the history of a store whose pools had these sizes before it begins.
    pub fn new<'p>(pools: impl IntoIterator<Item = (&'p str, Option<u32>)>) -> Self {
        let first = |slots| vec![Size { invoked: 0, returned: Some(0), slots }];
        let sizes = pools.into_iter().map(|(pool, slots)| (pool.to_owned(), first(slots))).collect();
        Self { events: Vec::new(), sizes, rates: HashMap::new(), keeping: HashSet::new() }
    }

    /// Declares that tasks keep slots of this pool between two leases, as sensors may. So a lease may have
    /// slots from the time of an earlier lease of its task, when the pool was larger.
    pub fn keeps_slots(&mut self, pool: &str) {
        self.keeping.insert(pool.to_owned());
    }

    /// Adds a rate of a key: this many starts in a period, in the unit of the instants, with this burst. A
    /// window of length t then has at most `burst + starts * t / period` grants.
    pub fn rate(&mut self, key: &str, starts: u32, period: Instant, burst: u32) {
        self.rates.insert(key.to_owned(), tokens::Rate { starts, period, burst });
    }

    /// Adds an operation; the order does not matter.
    pub fn push(&mut self, event: Event) {
        if let Operation::Resize(pool, slots) = &event.operation {
            let size = Size { invoked: event.invoked, returned: event.returned, slots: *slots };
            self.sizes.entry(pool.clone()).or_default().push(size);
        }
        self.events.push(event);
    }

    /// Checks for what cannot have happened.
    ///
    /// # Errors
    ///
    /// The first [`Violation`] found.
    pub fn check(&self) -> Result<Summary, Violation> {
        let mut leases = self.leases()?;
        let summary = self.follow(&mut leases)?;
        check_exclusion(&leases)?;
        self.check_capacity(&leases)?;
        self.check_tokens()?;
        self.check_pauses()?;
        Ok(summary)
    }

    fn leases(&self) -> Result<BTreeMap<LeaseId, Held<'_>>, Violation> {
        let mut leases = BTreeMap::new();
        for event in &self.events {
            let (Operation::Admit(grants), Some(from)) = (&event.operation, event.returned) else { continue };
            for grant in grants {
                let id = LeaseId { task: grant.task, epoch: grant.epoch };
                let held = Held {
                    id,
                    grant,
                    invoked: event.invoked,
                    from,
                    expires_at: grant.expires_at,
                    maybe_ended: Instant::MAX,
                    surely_ended: None,
                };
                if leases.insert(id, held).is_some() {
                    let what = format!("epoch {} of task {} was granted twice", id.epoch, id.task);
                    return Err(Violation { rule: Rule::Exclusion, at: from, what });
                }
            }
        }
        Ok(leases)
    }

    /// Applies renewals and ends in the order of their invocations, and checks that none was accepted too
    /// late.
    fn follow(&self, leases: &mut BTreeMap<LeaseId, Held<'_>>) -> Result<Summary, Violation> {
        let granted: BTreeMap<LeaseId, Instant> = leases.values().map(|held| (held.id, held.from)).collect();
        let mut events: Vec<&Event> = self.events.iter().collect();
        events.sort_by_key(|event| event.invoked);
        let mut summary = Summary { grants: leases.len(), ..Summary::default() };
        for event in events {
            summary.unknown += usize::from(event.returned.is_none());
            let (ids, ends) = match &event.operation {
                Operation::Renew(ids, _) => (ids, false),
                Operation::End(ids) => (ids, true),
                Operation::Reap(ids) => (ids, true),
                Operation::Admit(_) | Operation::Resize(..) | Operation::Pause(..) => continue,
            };
            for id in ids {
                let Some(held) = leases.get_mut(id) else { continue };
                if event.returned.is_some() {
                    check_accepted(held, event, &granted)?;
                }
                match (&event.operation, event.returned) {
                    (Operation::Renew(_, until), Some(_)) => held.expires_at = *until,
                    (Operation::Renew(_, until), None) => held.expires_at = held.expires_at.min(*until),
                    (_, returned) if ends => {
                        held.maybe_ended = held.maybe_ended.min(event.invoked);
                        held.surely_ended = held.surely_ended.or(returned);
                    }
                    _ => {}
                }
                match &event.operation {
                    Operation::End(_) if event.returned.is_some() => summary.ended += 1,
                    Operation::Reap(_) => summary.reaped += 1,
                    _ => {}
                }
            }
        }
        Ok(summary)
    }

    fn check_capacity(&self, all: &BTreeMap<LeaseId, Held<'_>>) -> Result<(), Violation> {
        let mut by_pool: HashMap<&str, Vec<(&Held<'_>, u32)>> = HashMap::new();
        for held in all.values().filter(|held| held.from < held.until()) {
            let is_limited = |name: &str| name == held.grant.pool || self.sizes.contains_key(name);
            for (name, count) in held.grant.takes().filter(|(name, count)| *count > 0 && is_limited(name)) {
                by_pool.entry(name).or_default().push((held, count));
            }
        }
        for (pool, mut leases) in by_pool {
            leases.sort_by_key(|(held, _)| held.from);
            let mut together: Vec<(&Held<'_>, u32)> = Vec::new();
            for (held, count) in leases {
                let at = held.from;
                together.retain(|(other, _)| other.until() > at);
                together.push((held, count));
                let used: u64 = together.iter().map(|(_, count)| u64::from(*count)).sum();
                let began = |held: &Held<'_>| match self.keeping.contains(pool) {
                    true => first_asked(all, held),
                    false => held.invoked,
                };
                let since = together.iter().map(|(held, _)| began(held)).min().unwrap_or(at);
                if let Some(most) = self.most(pool, since, at)
                    && used > u64::from(most)
                {
                    let ids: Vec<LeaseId> = together.iter().map(|(held, _)| held.id).collect();
                    let what = format!("{pool} had {used} of at most {most} taken, by {ids:?}");
                    return Err(Violation { rule: Rule::Capacity, at, what });
                }
            }
        }
        Ok(())
    }

    /// Returns the most slots that a pool may have had at some instant in `since..=until`; `None` if it may
    /// have been unlimited.
    fn most(&self, pool: &str, since: Instant, until: Instant) -> Option<u32> {
        let sizes = self.sizes.get(pool).map_or(&[][..], Vec::as_slice);
        let overwritten = |size: &Size| {
            let later = |other: &Size| {
                size.returned.is_some_and(|returned| other.invoked >= returned)
                    && other.returned.is_some_and(|returned| returned <= since)
                    && (other.invoked, other.returned) > (size.invoked, size.returned)
            };
            sizes.iter().any(later)
        };
        let possible = sizes.iter().filter(|size| size.invoked <= until && !overwritten(size));
        possible.map(|size| size.slots).try_fold(0, |most, slots| Some(most.max(slots?)))
    }
}

/// Returns when the first of a task's leases up to this one may have been asked for. Any of them may have left its slots
/// to the next. Before one that is not known, that may have been at any time.
fn first_asked(leases: &BTreeMap<LeaseId, Held<'_>>, held: &Held<'_>) -> Instant {
    let earlier = (1..held.id.epoch).rev().map(|epoch| leases.get(&LeaseId { epoch, ..held.id }));
    earlier.map(|known| known.map_or(0, |known| known.invoked)).min().unwrap_or(held.invoked)
}

/// Checks an accepted call under a lease: the lease must not surely have ended before, nor a later one of its
/// task have begun.
fn check_accepted(
    held: &Held<'_>,
    event: &Event,
    granted: &BTreeMap<LeaseId, Instant>,
) -> Result<(), Violation> {
    let LeaseId { task, epoch } = held.id;
    let fencing = |what| Err(Violation { rule: Rule::Fencing, at: event.invoked, what });
    if held.surely_ended.is_some_and(|ended| ended < event.invoked) {
        return fencing(format!("epoch {epoch} of task {task} was accepted after it had ended"));
    }
    if held.surely_ended.is_some() && !matches!(event.operation, Operation::Renew(..)) {
        return fencing(format!("epoch {epoch} of task {task} was ended twice"));
    }
    let later = LeaseId { task, epoch: epoch.saturating_add(1) }..=LeaseId { task, epoch: i64::MAX };
    match granted.range(later).find(|(_, from)| **from < event.invoked) {
        Some((later, _)) => fencing(format!(
            "epoch {epoch} of task {task} was accepted after epoch {} had been granted",
            later.epoch
        )),
        None => Ok(()),
    }
}

fn check_exclusion(leases: &BTreeMap<LeaseId, Held<'_>>) -> Result<(), Violation> {
    let mut latest: HashMap<i64, (Instant, LeaseId)> = HashMap::new();
    let mut by_time: Vec<&Held<'_>> = leases.values().filter(|held| held.from < held.until()).collect();
    by_time.sort_by_key(|held| held.from);
    for held in by_time {
        if let Some((until, other)) = latest.get(&held.id.task)
            && *until > held.from
        {
            let what =
                format!("task {} was held under epochs {} and {}", held.id.task, other.epoch, held.id.epoch);
            return Err(Violation { rule: Rule::Exclusion, at: held.from, what });
        }
        latest.insert(held.id.task, (held.until(), held.id));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(task: i64, epoch: i64, pool: &str, slots: u32, expires_at: Instant) -> Grant {
        Grant::new(task, epoch, pool, slots, expires_at)
    }

    fn event(invoked: Instant, returned: Instant, operation: Operation) -> Event {
        Event { invoked, returned: Some(returned), operation }
    }

    fn lost(invoked: Instant, operation: Operation) -> Event {
        Event { invoked, returned: None, operation }
    }

    fn admit(invoked: Instant, returned: Instant, grants: &[Grant]) -> Event {
        event(invoked, returned, Operation::Admit(grants.to_vec()))
    }

    fn ids(ids: &[(i64, i64)]) -> Vec<LeaseId> {
        ids.iter().map(|(task, epoch)| LeaseId { task: *task, epoch: *epoch }).collect()
    }

    fn end(invoked: Instant, returned: Instant, of: &[(i64, i64)]) -> Event {
        event(invoked, returned, Operation::End(ids(of)))
    }

    fn check(events: Vec<Event>) -> Result<Summary, Violation> {
        let mut history =
            History::new([("one", Some(1)), ("three", Some(3)), ("wide", None), ("key", Some(2))]);
        history.rate("rate", 2, 10, 3);
        events.into_iter().for_each(|event| history.push(event));
        history.check()
    }

    const FAR: Instant = 1_000_000;

    /// A grant of a task of the wide pool.
    fn also(task: i64, also: &[(&str, u32)]) -> Grant {
        let also = also.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        Grant { also, ..grant(task, 1, "wide", 1, FAR) }
    }

    /// Starts by these calls, of a key with a rate of 2 in 10 and a burst of 3.
    fn starts<const N: usize>(calls: [(Instant, Instant); N]) -> Vec<Event> {
        let start = |(task, (invoked, returned))| admit(invoked, returned, &[also(task, &[("rate", 1)])]);
        (1..).zip(calls).map(start).collect()
    }

    fn pause(invoked: Instant, returned: Instant, is_paused: bool) -> Event {
        event(invoked, returned, Operation::Pause("queue".into(), is_paused))
    }

    #[test]
    fn accepts_what_may_have_happened() {
        let resize = |at, slots| event(at, at + 1, Operation::Resize("one".into(), Some(slots)));
        for fine in [
            vec![],
            vec![
                admit(1, 2, &[grant(1, 1, "one", 1, FAR)]),
                end(3, 5, &[(1, 1)]),
                admit(4, 6, &[grant(2, 1, "one", 1, FAR)]),
            ],
            // The holder died in the call that ends: it may have ended.
            vec![
                admit(1, 2, &[grant(1, 1, "one", 1, FAR)]),
                lost(3, Operation::End(ids(&[(1, 1)]))),
                admit(4, 5, &[grant(2, 1, "one", 1, FAR)]),
            ],
            // It expired.
            vec![admit(1, 2, &[grant(1, 1, "one", 1, 9)]), admit(10, 11, &[grant(1, 2, "one", 1, FAR)])],
            // A renewal that was accepted, and one whose end is unknown.
            vec![
                admit(1, 2, &[grant(1, 1, "one", 1, 9)]),
                lost(3, Operation::Renew(ids(&[(1, 1)]), 99)),
                admit(10, 11, &[grant(1, 2, "one", 1, FAR)]),
            ],
            // A busy pool was shrunk.
            vec![
                admit(1, 2, &[grant(1, 1, "three", 3, FAR)]),
                event(3, 4, Operation::Resize("three".into(), Some(1))),
            ],
            // Granted while it was larger; a resize of a dead process may have come at any time.
            vec![resize(1, 2), admit(3, 4, &[grant(1, 1, "one", 2, FAR)]), resize(5, 1)],
            vec![
                lost(1, Operation::Resize("one".into(), Some(2))),
                admit(30, 40, &[grant(1, 1, "one", 2, FAR)]),
            ],
            vec![admit(1, 2, &[grant(1, 1, "wide", 1_000, FAR), grant(2, 1, "wide", 1_000, FAR)])],
            // Keys, one with a maximum and one that nothing limits.
            vec![admit(1, 2, &[also(1, &[("key", 2)]), also(2, &[("free", 99)])])],
            // The burst, then one in each five; and calls that may have been made later or earlier.
            starts([(1, 1), (1, 1), (1, 1), (6, 6), (11, 11), (16, 16)]),
            starts([(1, 1), (1, 1), (1, 1), (2, 6), (3, 11)]),
            // Resumed in time, and paused by a call that began before.
            vec![pause(1, 2, true), pause(3, 4, false), admit(3, 9, &[also(1, &[("queue", 0)])])],
            vec![pause(3, 9, true), admit(5, 6, &[also(1, &[("queue", 0)])])],
            // Two calls at once, in either order.
            vec![
                admit(1, 9, &[grant(1, 1, "one", 1, FAR)]),
                end(2, 8, &[(1, 1)]),
                admit(3, 7, &[grant(2, 1, "one", 1, FAR)]),
            ],
        ] {
            assert!(check(fine.clone()).is_ok(), "{:?}: {fine:?}", check(fine.clone()));
        }
    }

    #[test]
    fn what_a_task_kept_was_taken_when_the_pool_was_larger() {
        let shrunk = |task, epoch| {
            [
                admit(1, 2, &[grant(1, 1, "three", 3, FAR)]),
                end(3, 4, &[(1, 1)]),
                event(5, 6, Operation::Resize("three".into(), Some(1))),
                admit(7, 8, &[grant(task, epoch, "three", 3, FAR)]),
            ]
        };
        let check = |events: [Event; 4], keeps: bool| {
            let mut history = History::new([("three", Some(3))]);
            if keeps {
                history.keeps_slots("three");
            }
            events.into_iter().for_each(|event| history.push(event));
            history.check().map_err(|violation| violation.rule)
        };
        assert_eq!(check(shrunk(1, 2), false), Err(Rule::Capacity));
        assert!(check(shrunk(1, 2), true).is_ok());
        assert!(check(shrunk(1, 3), true).is_ok(), "of the lease between them nothing is known");
        assert_eq!(check(shrunk(2, 1), true), Err(Rule::Capacity), "another task kept nothing");
    }

    #[test]
    fn rejects_broken_histories() {
        use Rule::{Capacity, Exclusion, Fencing, Pauses, Tokens};
        let of_queue = |invoked, returned| admit(invoked, returned, &[also(1, &[("queue", 0)])]);
        let first = || admit(1, 2, &[grant(1, 1, "one", 1, 50)]);
        let resize = |at, slots| event(at, at + 1, Operation::Resize("one".into(), Some(slots)));
        let reap = |invoked, returned, of: &[(i64, i64)]| event(invoked, returned, Operation::Reap(ids(of)));
        let renew =
            |invoked, of: &[(i64, i64)], until| event(invoked, invoked + 1, Operation::Renew(ids(of), until));
        let cases: Vec<(Rule, Vec<Event>)> = vec![
            (Capacity, vec![first(), admit(3, 4, &[grant(2, 1, "one", 1, FAR)])]),
            (Capacity, vec![admit(1, 2, &[grant(1, 1, "three", 2, FAR), grant(2, 1, "three", 2, FAR)])]),
            (Capacity, vec![admit(1, 2, &[grant(1, 1, "one", 2, FAR)])]),
            (
                Capacity,
                vec![admit(1, 4, &[grant(1, 1, "one", 1, FAR)]), admit(2, 3, &[grant(2, 1, "one", 1, FAR)])],
            ),
            (Capacity, vec![first(), end(9, 10, &[(1, 1)]), admit(3, 4, &[grant(2, 1, "one", 1, FAR)])]),
            (Capacity, vec![first(), renew(10, &[(1, 1)], 90), admit(60, 61, &[grant(2, 1, "one", 1, FAR)])]),
            (Capacity, vec![resize(1, 0), admit(5, 6, &[grant(1, 1, "one", 1, FAR)])]),
            (Capacity, vec![resize(1, 5), resize(3, 1), admit(5, 6, &[grant(1, 1, "one", 2, FAR)])]),
            (
                Capacity,
                vec![
                    lost(9, Operation::Resize("one".into(), Some(5))),
                    admit(5, 6, &[grant(1, 1, "one", 2, FAR)]),
                ],
            ),
            (Capacity, vec![admit(1, 2, &[grant(1, 1, "nowhere", 1, FAR)])]),
            (Capacity, vec![admit(1, 2, &[also(1, &[("key", 2)]), also(2, &[("key", 1)])])]),
            (Tokens, starts([(1, 1), (1, 1), (1, 1), (2, 5)])),
            (Tokens, vec![admit(1, 1, &[1, 2, 3, 4].map(|task| also(task, &[("rate", 7)])))]),
            (Tokens, starts([(1, 1), (50, 51), (50, 51), (50, 51), (51, 54)])),
            (Pauses, vec![pause(1, 2, true), of_queue(3, 4)]),
            (Pauses, vec![pause(1, 2, false), pause(3, 4, true), of_queue(5, 6), pause(7, 8, false)]),
            (Exclusion, vec![first(), admit(60, 61, &[grant(1, 1, "one", 1, FAR)])]),
            (
                Exclusion,
                vec![
                    admit(1, 2, &[grant(1, 1, "wide", 1, FAR)]),
                    admit(3, 4, &[grant(1, 2, "wide", 1, FAR)]),
                ],
            ),
            (
                Exclusion,
                vec![
                    admit(3, 4, &[grant(1, 1, "wide", 1, FAR)]),
                    admit(1, 2, &[grant(1, 2, "wide", 1, FAR)]),
                ],
            ),
            (Exclusion, vec![admit(1, 2, &[grant(1, 1, "wide", 1, FAR), grant(1, 1, "wide", 1, FAR)])]),
            (Fencing, vec![first(), end(3, 4, &[(1, 1)]), end(5, 6, &[(1, 1)])]),
            (Fencing, vec![first(), end(3, 6, &[(1, 1)]), end(4, 5, &[(1, 1)])]),
            (Fencing, vec![first(), end(3, 4, &[(1, 1)]), renew(5, &[(1, 1)], 99)]),
            (Fencing, vec![first(), reap(51, 52, &[(1, 1)]), end(53, 54, &[(1, 1)])]),
            (Fencing, vec![first(), reap(51, 52, &[(1, 1)]), reap(53, 54, &[(1, 1)])]),
            (Fencing, vec![first(), admit(60, 61, &[grant(1, 2, "one", 1, 90)]), end(62, 63, &[(1, 1)])]),
            (Fencing, vec![first(), admit(60, 61, &[grant(1, 2, "one", 1, 90)]), renew(62, &[(1, 1)], 99)]),
        ];
        assert!(cases.len() >= 20);
        for (rule, broken) in cases {
            let found = check(broken.clone()).map_err(|violation| violation.rule);
            assert_eq!(found, Err(rule), "{broken:?}");
        }
    }
}
