//! Definitions of pools, queues and limits, and pauses.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::admission::limits::LimitSpec;
use crate::admission::{Defined, Definition, Drain, IfExists, QueueSpec, Subject, Undefined, WaitingCap};
use crate::error::{Invalid, Result, StoreResult};
use crate::id::{LimitKey, PoolName};
use crate::store::contract::StoreTx;
use crate::store::{ReadTx, Tx};

/// The most families in a store. Each tick reads all of them.
const MAX_FAMILIES: usize = 1_000;

impl Tx<'_> {
    /// Defines pools, queues, limits and families. `if_exists` says what happens to those that already exist.
    /// Returns one value for each. If one call names a subject twice, the second definition sees the first.
    ///
    /// Sizes, maxima and rates apply to all tasks from the next tick on. Tasks keep what they hold, so a pool
    /// or a maximum may be smaller than what is in use. Caps apply to enqueues after the commit. Nothing is
    /// paused or resumed, so a program may define everything each time it starts. A call that changes nothing
    /// does not wait.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid`] for a definition that is out of range, and [`Invalid::TooMany`] for more than
    /// 1,000 families in the store. In both cases nothing was defined. Returns [`crate::Error::Store`] if the
    /// store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::admission::limits::LimitSpec;
    /// use stationmaster::admission::{Defined, IfExists};
    /// use stationmaster::pool::{PoolSpec, Slots};
    /// use stationmaster::store::MemoryStore;
    ///
    /// let store = MemoryStore::new();
    /// let pools = [PoolSpec::new("db", Slots::Limited(4))?];
    /// let tenants = [LimitSpec::new("tenant/".try_into()?, 2)?.family()];
    /// store.write(|tx| tx.define(&tenants, IfExists::Replace))?;
    /// assert_eq!(store.write(|tx| tx.define(&pools, IfExists::Leave))?, [Defined::Created]);
    /// assert_eq!(store.write(|tx| tx.define(&pools, IfExists::Leave))?, [Defined::Same]);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn define<D: Into<Definition>>(
        &mut self,
        definitions: impl IntoIterator<Item = D>,
        if_exists: IfExists,
    ) -> Result<Vec<Defined>> {
        let definitions: Vec<Definition> = definitions.into_iter().map(Into::into).collect();
        definitions.iter().try_for_each(Definition::check)?;
        self.check_whole()?;
        self.may_write()?;
        let looked = decide(self.raw(), &definitions, if_exists)?;
        if looked.writes.is_empty() {
            return Ok(looked.answers);
        }
        self.whole(|tx| {
            let raw = tx.decides()?;
            raw.lock_definitions()?;
            // Another transaction may have defined some of them before the lock was taken.
            let Decided { answers, writes, families } = decide(raw, &definitions, if_exists)?;
            if families > MAX_FAMILIES {
                return Err(Invalid::TooMany { what: "families", count: families, cap: MAX_FAMILIES }.into());
            }
            let (mut pools, mut limits, mut caps) = (Vec::new(), Vec::new(), Vec::new());
            for (subject, definition) in writes {
                match definition {
                    Definition::Pool(spec) => pools.push(spec),
                    Definition::Queue(spec) => caps.push((subject, Some(spec.waiting))),
                    Definition::Limit(mut spec) => {
                        caps.push((subject, spec.waiting.take()));
                        limits.push(spec);
                    }
                }
            }
            if !pools.is_empty() {
                raw.put_pools(&pools)?;
            }
            if !limits.is_empty() {
                raw.put_limits(&limits)?;
            }
            if !caps.is_empty() {
                raw.put_caps(&caps)?;
            }
            tx.capacity_changed();
            Ok(answers)
        })
    }

    /// Removes definitions. The default pool is never removed, and no pool is removed while tasks hold its
    /// slots. Tasks that carry a key are still counted, so a limit that is defined again includes them. A
    /// pause stays.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::admission::{IfExists, Subject, Undefined};
    /// use stationmaster::pool::{PoolSpec, Slots};
    /// use stationmaster::store::MemoryStore;
    ///
    /// let store = MemoryStore::new();
    /// store.write(|tx| tx.define([PoolSpec::new("db", Slots::Limited(4))?], IfExists::Leave))?;
    /// let pools = [Subject::Pool("db".try_into()?), Subject::Pool("default_pool".try_into()?)];
    /// assert_eq!(store.write(|tx| tx.undefine(&pools))?, [Undefined::Removed, Undefined::IsDefault]);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn undefine(&mut self, subjects: &[Subject]) -> Result<Vec<Undefined>> {
        let (mut pools, mut keys, mut families) = (Vec::new(), Vec::new(), Vec::new());
        let mut caps = Vec::with_capacity(subjects.len());
        for subject in subjects {
            match subject {
                Subject::Pool(name) => pools.push(name.clone()),
                Subject::Key(key) => keys.push(key.clone()),
                Subject::Family(prefix) => families.push(prefix.clone()),
                Subject::Queue(_) => {}
            }
            caps.push((subject.clone(), None));
        }
        self.whole(|tx| {
            let raw = tx.decides()?;
            let removed = |was| if was { Undefined::Removed } else { Undefined::NotDefined };
            let mut pools = raw.delete_pools_if_unused(&pools)?.into_iter();
            let mut keys = raw.delete_limits(&keys)?.into_iter().map(removed);
            let mut families = raw.delete_families(&families)?.into_iter().map(removed);
            let capped = raw.put_caps(&caps)?;
            let answer = |(subject, was_capped): (&Subject, bool)| match subject {
                Subject::Pool(_) => pools.next(),
                Subject::Key(_) => keys.next(),
                Subject::Family(_) => families.next(),
                Subject::Queue(_) => Some(removed(was_capped)),
            };
            let answers = subjects.iter().zip(capped).map(answer);
            let answers = answers.map(|answer| answer.unwrap_or(Undefined::NotDefined));
            let answers = answers.collect();
            tx.capacity_changed();
            Ok(answers)
        })
    }

    /// Pauses subjects. After the commit, no task of theirs is granted until they are resumed. Returns `true`
    /// for each subject that was not paused before.
    ///
    /// Any subject can be paused, defined or not. Sizes do not change, and work that holds a lease continues.
    /// [`drain`](ReadTx::drain) shows when it has ended. Each tick reads every pause, so pause a family
    /// instead of its thousand keys, and resume subjects that are no longer used.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use stationmaster::admission::{Drain, Subject};
    /// use stationmaster::store::MemoryStore;
    ///
    /// let store = MemoryStore::new();
    /// let gpu = [Subject::Queue("gpu".try_into()?)];
    /// assert_eq!(store.write(|tx| tx.pause(&gpu))?, [true]);
    /// assert_eq!(store.read(|tx| tx.drain(&gpu))?, [Drain::Drained]);
    /// assert_eq!(store.write(|tx| tx.resume(&gpu))?, [true]);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn pause(&mut self, subjects: &[Subject]) -> Result<Vec<bool>> {
        let paused = self.decides()?.put_paused(subjects, true)?;
        // A pause can make room for tasks behind a reservation of the subject, or outside a window that it
        // filled.
        self.capacity_changed();
        Ok(paused)
    }

    /// Resumes subjects. Returns `true` for each subject that was paused. A subject that is also paused in
    /// another way, for example a key whose family is paused, stays paused.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn resume(&mut self, subjects: &[Subject]) -> Result<Vec<bool>> {
        let resumed = self.decides()?.put_paused(subjects, false)?;
        self.capacity_changed();
        Ok(resumed)
    }
}

impl ReadTx<'_> {
    /// Returns for each subject whether it is paused, and whether any of its tasks still hold leases.
    ///
    /// Tasks that became sensors hold no lease, whether or not they keep slots. The end of a lease wakes
    /// capacity listeners, which can then call this again. The cost grows with the number of leases and
    /// lanes.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn drain(&mut self, subjects: &[Subject]) -> Result<Vec<Drain>> {
        // A pause waits for ticks that planned before it, so a reader that sees the pause also sees what they
        // granted.
        let (paused, leases) = self.raw().leases()?;
        let paused: HashSet<Subject> = paused.into_iter().collect();
        let drain = |subject: &Subject| {
            if !paused.contains(subject) {
                return Drain::Open;
            }
            let of_it = leases.iter().filter(|(lane, _)| subject.concerns(lane));
            match of_it.map(|(_, leases)| leases).sum() {
                0 => Drain::Drained,
                leases => Drain::Draining { leases },
            }
        };
        Ok(subjects.iter().map(drain).collect())
    }

    /// Returns the paused subjects: queues, pools, keys, then families, each by name.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn paused(&mut self) -> Result<Vec<Subject>> {
        Ok(self.raw().paused()?)
    }
}

/// The rows to write, and the values to return to the host.
struct Decided {
    answers: Vec<Defined>,
    /// The last definition of each subject.
    writes: HashMap<Subject, Definition>,
    /// The number of families after the write.
    families: usize,
}

/// Decides on each definition, given what the store contains.
fn decide(raw: &mut dyn StoreTx, definitions: &[Definition], if_exists: IfExists) -> Result<Decided> {
    let mut known = existing(raw, definitions)?;
    let (mut answers, mut writes) = (Vec::with_capacity(definitions.len()), HashMap::new());
    for definition in definitions {
        let subject = definition.subject();
        let (answer, write) = definition.clone().decide(known.get(&subject), if_exists);
        if let Some(write) = write {
            known.insert(subject.clone(), write.clone());
            writes.insert(subject, write);
        }
        answers.push(answer);
    }
    let families = known.keys().filter(|subject| matches!(subject, Subject::Family(_))).count();
    Ok(Decided { answers, writes, families })
}

/// Returns the stored definitions of these subjects, and all families if one is to be defined.
fn existing(raw: &mut dyn StoreTx, definitions: &[Definition]) -> StoreResult<HashMap<Subject, Definition>> {
    let (mut pools, mut keys, mut with_families) = (Vec::<PoolName>::new(), Vec::<LimitKey>::new(), false);
    let mut caps = BTreeMap::<Subject, WaitingCap>::new();
    if definitions.iter().any(|definition| !matches!(definition, Definition::Pool(_))) {
        caps.extend(raw.caps()?);
    }
    for definition in definitions {
        match definition {
            Definition::Pool(spec) => pools.push(spec.name.clone()),
            Definition::Queue(_) => {}
            Definition::Limit(spec) if spec.is_family => with_families = true,
            Definition::Limit(spec) => keys.push(spec.key.clone()),
        }
    }
    let mut found: Vec<Definition> = Vec::new();
    if !pools.is_empty() {
        found.extend(raw.pools(&pools)?.into_iter().flatten().map(|pool| pool.spec.into()));
    }
    if !keys.is_empty() {
        let limits = raw.limits(&keys)?.into_iter().flatten().filter(|limit| limit.is_defined);
        let spec = |limit: crate::admission::limits::LimitRecord| {
            let waiting = caps.get(&Subject::Key(limit.key.clone())).copied();
            LimitSpec { waiting, ..limit.spec() }.into()
        };
        found.extend(limits.map(spec));
    }
    if with_families {
        let capped =
            |spec: LimitSpec| LimitSpec { waiting: caps.get(&spec.subject()).copied(), ..spec }.into();
        found.extend(raw.families()?.into_iter().map(capped));
    }
    let queue = |(subject, cap): (Subject, WaitingCap)| match subject {
        Subject::Queue(name) => Some(QueueSpec::new(name, cap).into()),
        _ => None,
    };
    found.extend(caps.into_iter().filter_map(queue));
    Ok(found.into_iter().map(|definition| (definition.subject(), definition)).collect())
}
