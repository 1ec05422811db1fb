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

mod capacity;
mod event;
mod pauses;
pub mod pokes;
mod tokens;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use capacity::Size;
pub use event::{Event, Grant, Instant, LeaseId, Operation};

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
mod tests;
