//! Checks what several pokers did to the sensors of one store.
//!
//! Each process records what it registered and which pokes it made; the store's events show how sensors ended. As in
//! the [history of leases](super), only what cannot have happened is reported.
//!
//! | rule | violated when |
//! |---|---|
//! | [`Rule::Pokes`] | two workers surely poked one group together, or at one due time, while the lease of the first surely held; or a poke began after the worker's lease had ended |
//! | [`Rule::Answers`] | a registration ended twice, or ended although no ending result can have reached it, or did not end although a result for its group that ends it was committed |
//!
//! # Examples
//!
//! ```
//! use stationmaster::testing::history::Rule;
//! use stationmaster::testing::history::pokes::{Poke, PokeHistory, Record};
//!
//! let poke = |worker: &str, began, returned| Poke::new(worker, "file a", began).returned(returned).held_until(99);
//! let mut history = PokeHistory::new();
//! history.push(Record::PokeOutcome(poke("one", 10, 14)));
//! history.push(Record::PokeOutcome(poke("two", 12, 16)));
//! assert_eq!(history.check().unwrap_err().rule, Rule::Pokes);
//! ```

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::{Instant, Rule, Violation};

/// One registration of one task's sensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RegistrationId {
    /// The task's number.
    pub task: i64,
    /// Which of its registrations.
    pub generation: u64,
}

/// One poke by one worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Poke {
    /// Who poked.
    pub worker: String,
    /// What was poked: kind and context, as one text.
    pub group: String,
    /// When it began.
    pub began: Instant,
    /// When it returned; `None` if the worker died before.
    pub returned: Option<Instant>,
    /// Until when the worker's lease on the group surely held when it began, if that is known.
    pub held_until: Option<Instant>,
    /// The due time that it was made for, as any number that is the same for all workers, if that is known.
    pub due: Option<u64>,
    /// What its result does to the sensors of the group.
    pub answer: Answer,
}

/// What a result does to the sensors that share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Answer {
    /// They keep waiting; also for a poke that did not return.
    #[default]
    GoesOn,
    /// They end, unless the worker died before it committed that.
    Ends,
    /// They ended: the commit was acknowledged.
    Ended,
}

impl Poke {
    /// Creates a poke that did not return.
    pub fn new(worker: impl Into<String>, group: impl Into<String>, began: Instant) -> Self {
        let (worker, group) = (worker.into(), group.into());
        Self { worker, group, began, returned: None, held_until: None, due: None, answer: Answer::GoesOn }
    }

    /// Sets when it returned.
    #[must_use]
    pub fn returned(mut self, at: Instant) -> Self {
        self.returned = Some(at);
        self
    }

    /// Sets until when the worker's lease surely held.
    #[must_use]
    pub fn held_until(mut self, at: Instant) -> Self {
        self.held_until = Some(at);
        self
    }

    /// Sets the due time that it was made for.
    #[must_use]
    pub fn due(mut self, due: u64) -> Self {
        self.due = Some(due);
        self
    }

    /// Sets what its result does.
    #[must_use]
    pub fn answer(mut self, answer: Answer) -> Self {
        self.answer = answer;
        self
    }

    /// Returns the end of the time in which no one else may poke the group.
    fn alone_until(&self) -> Instant {
        let returned = self.returned.unwrap_or(self.began);
        self.held_until.map_or(returned, |until| returned.min(until))
    }
}

/// One record of what happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Record {
    /// A sensor was registered.
    Registered {
        /// Which.
        id: RegistrationId,
        /// What it waits for: the group that [`Poke`] names.
        group: String,
        /// When the call was made.
        invoked: Instant,
        /// When it returned; `None` if that is unknown.
        returned: Option<Instant>,
    },
    /// A group was poked.
    PokeOutcome(Poke),
    /// The store reported the end of a registration: an event.
    Ended {
        /// Which.
        id: RegistrationId,
        /// When that was seen: at or after the commit.
        at: Instant,
    },
}

/// How much a history holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PokeSummary {
    /// Registrations.
    pub registrations: usize,
    /// Pokes.
    pub pokes: usize,
    /// Registrations that ended.
    pub ended: usize,
    /// Pokes whose worker died before they returned.
    pub unknown: usize,
}

/// What all workers did.
#[derive(Debug, Clone, Default)]
pub struct PokeHistory {
    records: Vec<Record>,
}

/// A registration, when it surely was there, and its end.
struct Waited<'a> {
    group: &'a str,
    invoked: Instant,
    returned: Option<Instant>,
    ended: Option<Instant>,
}

impl PokeHistory {
    /// Creates a history without records.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a record; the order does not matter.
    pub fn push(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Checks for what cannot have happened. The history must be complete: all ends, and no cancelled sensor.
    ///
    /// # Errors
    ///
    /// The first [`Violation`] found.
    pub fn check(&self) -> Result<PokeSummary, Violation> {
        let mut pokes: HashMap<&str, Vec<&Poke>> = HashMap::new();
        let mut summary = PokeSummary::default();
        for record in &self.records {
            if let Record::PokeOutcome(poke) = record {
                summary.pokes += 1;
                summary.unknown += usize::from(poke.returned.is_none());
                pokes.entry(&poke.group).or_default().push(poke);
            }
        }
        for pokes in pokes.values_mut() {
            pokes.sort_by_key(|poke| poke.began);
            check_alone(pokes)?;
        }
        let waited = self.waited()?;
        summary.registrations = waited.len();
        for (id, waited) in &waited {
            summary.ended += usize::from(waited.ended.is_some());
            check_answer(*id, waited, pokes.get(waited.group).map_or(&[], Vec::as_slice))?;
        }
        Ok(summary)
    }

    fn waited(&self) -> Result<BTreeMap<RegistrationId, Waited<'_>>, Violation> {
        let answers = |at, what| Violation { rule: Rule::Answers, at, what };
        let mut waited: BTreeMap<RegistrationId, Waited<'_>> = BTreeMap::new();
        for record in &self.records {
            if let Record::Registered { id, group, invoked, returned } = record {
                let new = Waited { group, invoked: *invoked, returned: *returned, ended: None };
                if waited.insert(*id, new).is_some() {
                    return Err(answers(*invoked, format!("{id:?} was registered twice")));
                }
            }
        }
        for record in &self.records {
            let Record::Ended { id, at } = record else { continue };
            let Some(waited) = waited.get_mut(id) else {
                return Err(answers(*at, format!("{id:?} ended and was never registered")));
            };
            if waited.ended.replace(*at).is_some() {
                return Err(answers(*at, format!("{id:?} ended twice")));
            }
        }
        Ok(waited)
    }
}

/// Pokes of one group, in the order in which they began.
fn check_alone(pokes: &[&Poke]) -> Result<(), Violation> {
    let violation = |at, what| Err(Violation { rule: Rule::Pokes, at, what });
    let mut by_due: HashMap<u64, &Poke> = HashMap::new();
    let mut alone: Option<&Poke> = None;
    for poke in pokes {
        let Poke { worker, group, began, .. } = poke;
        if poke.held_until.is_some_and(|until| until <= *began) {
            return violation(*began, format!("{worker} poked {group} after its lease had ended"));
        }
        if let Some(first) = alone
            && first.worker != *worker
            && first.alone_until() > *began
        {
            return violation(*began, format!("{worker} poked {group} while {} did", first.worker));
        }
        if let Some(due) = poke.due {
            let first = by_due.entry(due).or_insert(poke);
            if first.worker != *worker && first.held_until.is_none_or(|until| until > *began) {
                return violation(
                    *began,
                    format!("{worker} poked {group} at the due time of {}", first.worker),
                );
            }
        }
        if alone.is_none_or(|first| first.alone_until() <= poke.alone_until()) {
            alone = Some(poke);
        }
    }
    Ok(())
}

fn check_answer(id: RegistrationId, waited: &Waited<'_>, pokes: &[&Poke]) -> Result<(), Violation> {
    let group = waited.group;
    let reached = |poke: &&&Poke, ended: Instant| {
        poke.answer != Answer::GoesOn
            && poke.began <= ended
            && poke.returned.is_none_or(|returned| returned >= waited.invoked)
    };
    match waited.ended {
        Some(at) if !pokes.iter().any(|poke| reached(&poke, at)) => {
            let what = format!("{id:?} ended, and no answer of {group} can have reached it");
            Err(Violation { rule: Rule::Answers, at, what })
        }
        Some(_) => Ok(()),
        None => {
            let missed = |poke: &&&Poke| {
                poke.answer == Answer::Ended && waited.returned.is_some_and(|returned| returned < poke.began)
            };
            pokes.iter().find(missed).map_or(Ok(()), |poke| {
                let what = format!("{id:?} waits on, though {group} was answered and that was committed");
                Err(Violation { rule: Rule::Answers, at: poke.began, what })
            })
        }
    }
}

#[cfg(test)]
mod tests;
