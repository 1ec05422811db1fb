//! Caps on waiting: how many tasks may wait in a queue or with a limit key, and which enqueues are refused.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::lane::LaneKey;
use super::limits::Families;
use super::subject::Subject;
use crate::base::setters;
use crate::bounds::MAX_SLOTS;
use crate::error::Invalid;
use crate::id::{LimitKey, QueueName, TaskKey};

/// Caps how many tasks may wait in a queue, or with a limit key. An enqueue beyond it is refused.
///
/// A task *waits* while it has neither a lease nor a sensor and has not ended: it is ready, not yet due, or
/// between two attempts. Only enqueueing is refused. An accepted task may always wait again, so retries and
/// requeued or resumed tasks may exceed the cap.
///
/// A cap is exact in memory and on SQLite. On PostgreSQL, concurrent transactions do not see each other's
/// tasks, so together they may exceed it. With [`strict`](Self::strict) they take turns instead.
///
/// # Examples
///
/// ```
/// use stationmaster::admission::WaitingCap;
/// let cap = WaitingCap::new(1_000)?.strict(true);
/// assert_eq!(serde_json::to_string(&cap)?, r#"{"most":1000,"strict":true}"#);
/// assert_eq!(serde_json::from_str::<WaitingCap>(r#"{"most":1000}"#)?, WaitingCap::new(1_000)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct WaitingCap {
    /// The most tasks that may wait: 0 to [`MAX_SLOTS`]. With 0, every enqueue is refused.
    #[serde(deserialize_with = "most")]
    pub most: u32,
    /// Whether enqueues under this cap take turns on PostgreSQL: each waits until the earlier ones have
    /// committed or rolled back. No other call waits. Other stores are exact without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
}

fn most<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let most = u32::deserialize(deserializer)?;
    WaitingCap::new(most).map(|cap| cap.most).map_err(D::Error::custom)
}

impl WaitingCap {
    /// Creates a cap on the number of waiting tasks. It is not strict.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::TooLarge`] above [`MAX_SLOTS`].
    pub fn new(most: u32) -> Result<Self, Invalid> {
        let cap = Self { most, strict: false };
        cap.check()?;
        Ok(cap)
    }

    setters! {
        /// Sets whether enqueues under this cap take turns on PostgreSQL.
        strict: bool;
    }

    /// Checks that the values are in range.
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        match self.most {
            most if most > MAX_SLOTS => {
                Err(Invalid::TooLarge { what: "a cap on waiting tasks", value: most.into() })
            }
            _ => Ok(()),
        }
    }
}

/// The host's definition of a queue: a cap on its waiting tasks. A queue can be used without a definition.
///
/// # Examples
///
/// ```
/// use stationmaster::admission::{Definition, IfExists, QueueSpec, WaitingCap};
/// use stationmaster::store::{Inserted, MemoryStore};
/// use stationmaster::{NewTask, TaskKey, Timestamp};
///
/// let store = MemoryStore::new();
/// let films = QueueSpec::new("films".try_into()?, WaitingCap::new(1)?);
/// store.write(|tx| tx.define([&films], IfExists::Replace))?;
///
/// let film = |name| Ok::<_, stationmaster::Error>(
///     NewTask::new(TaskKey::new("prod", "films", "r1", name)?).queue("films".try_into()?)
/// );
/// let films = [film("first")?, film("second")?];
/// let enqueued = store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, &films))?;
/// assert!(matches!(enqueued[..], [Inserted::New(_), Inserted::Refused { waiting: 1, most: 1, .. }]));
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct QueueSpec {
    /// The queue.
    pub name: QueueName,
    /// How many of its tasks may wait.
    pub waiting: WaitingCap,
}

impl QueueSpec {
    /// Creates the definition of a queue with this cap on the number of waiting tasks.
    pub fn new(name: QueueName, waiting: WaitingCap) -> Self {
        Self { name, waiting }
    }
}

/// A cap that applies to some tasks, and how many tasks wait under it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CapUse {
    /// The queue or key whose tasks are counted.
    pub subject: Subject,
    /// The cap: the subject's own, or that of the key's family.
    pub cap: WaitingCap,
    /// How many tasks wait.
    pub waiting: u64,
}

impl CapUse {
    /// Creates a cap use from a store's count.
    pub fn new(subject: Subject, cap: WaitingCap, waiting: u64) -> Self {
        Self { subject, cap, waiting }
    }
}

/// Returns the subjects whose caps apply to a task with these needs, in the order of the checks: its queue,
/// then its keys in byte order.
fn subjects(lane: &LaneKey) -> impl Iterator<Item = Subject> {
    std::iter::once(Subject::Queue(lane.queue.clone())).chain(lane.limits.iter().cloned().map(Subject::Key))
}

/// Decides which of these tasks are refused. Each accepted task counts for the ones behind it. Returns for
/// each task the first cap that refuses it, with its count at that point. A task is neither counted nor
/// refused if it exists or if an earlier task with the same key was accepted.
pub(crate) fn refusals(
    caps: Vec<CapUse>,
    tasks: &[(&TaskKey, &LaneKey)],
    exists: impl Fn(&TaskKey) -> bool,
) -> Vec<Option<CapUse>> {
    let mut caps: HashMap<Subject, CapUse> = caps.into_iter().map(|cap| (cap.subject.clone(), cap)).collect();
    let mut accepted: HashSet<&TaskKey> = HashSet::new();
    let mut decide = |lane: &LaneKey| {
        let full = |subject| caps.get(&subject).filter(|cap| cap.waiting >= cap.cap.most.into());
        if let Some(full) = subjects(lane).find_map(full) {
            return Some(full.clone());
        }
        for subject in subjects(lane) {
            if let Some(cap) = caps.get_mut(&subject) {
                cap.waiting += 1;
            }
        }
        None
    };
    let mut decided = Vec::with_capacity(tasks.len());
    for &(key, lane) in tasks {
        let refused = if accepted.contains(key) || exists(key) { None } else { decide(lane) };
        if refused.is_none() {
            accepted.insert(key);
        }
        decided.push(refused);
    }
    decided
}

/// Returns the subject whose cap applies to this key: the key itself if it is defined, otherwise its family.
pub(crate) fn capped_by(key: &LimitKey, is_defined: bool, families: &Families<'_>) -> Option<Subject> {
    match is_defined {
        true => Some(Subject::Key(key.clone())),
        false => families.of(key).map(|family| Subject::Family(family.key.clone())),
    }
}

/// Counts the tasks that wait under the caps that apply to some tasks.
#[derive(Debug, Default)]
pub(crate) struct WaitingCount(BTreeMap<Subject, (WaitingCap, i64)>);

impl WaitingCount {
    /// Finds the caps that apply to tasks with these needs. `is_defined` returns whether a key is defined.
    /// `cap` returns the cap defined for a queue, key or family itself.
    pub(crate) fn of_lanes<'l, E>(
        lanes: impl Iterator<Item = &'l LaneKey>,
        families: &Families<'_>,
        mut is_defined: impl FnMut(&LimitKey) -> Result<bool, E>,
        mut cap: impl FnMut(&Subject) -> Result<Option<WaitingCap>, E>,
    ) -> Result<Self, E> {
        let lanes: HashSet<&LaneKey> = lanes.collect();
        let asked: HashSet<Subject> = lanes.into_iter().flat_map(subjects).collect();
        let mut found = BTreeMap::new();
        for subject in asked {
            let capped = match &subject {
                Subject::Key(key) => capped_by(key, is_defined(key)?, families),
                _ => Some(subject.clone()),
            };
            if let Some(cap) = capped.map(|capped| cap(&capped)).transpose()?.flatten() {
                found.insert(subject, (cap, 0));
            }
        }
        Ok(Self(found))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds this many waiting tasks with these needs.
    pub(crate) fn add(&mut self, lane: &LaneKey, tasks: i64) {
        for subject in subjects(lane) {
            if let Some((_, waiting)) = self.0.get_mut(&subject) {
                *waiting = waiting.saturating_add(tasks);
            }
        }
    }

    /// Returns each cap with the number of tasks that wait under it, by subject.
    pub(crate) fn counted(self) -> Vec<CapUse> {
        let counted = |(subject, (cap, waiting)): (_, (_, i64))| {
            CapUse::new(subject, cap, waiting.max(0).unsigned_abs())
        };
        self.0.into_iter().map(counted).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::limits::LimitSpec;
    use super::*;
    use crate::task::{NewTask, TaskInsert};
    use crate::time::Timestamp;

    fn needs(tasks: &[TaskInsert]) -> Vec<(&TaskKey, &LaneKey)> {
        tasks.iter().map(|task| (&task.key, &*task.lane)).collect()
    }

    /// Returns a task with one of twelve keys, in queue 0 or 1, that carries some of three limit keys.
    fn task((name, queue, keys): &(u8, u8, u8)) -> TaskInsert {
        let key = TaskKey::new("n", "w", "r", format!("t{name}")).unwrap();
        let carried = (0..3).filter(|bit| keys & (1 << bit) != 0);
        let task = NewTask::new(key).queue(QueueName::new(format!("q{queue}")).unwrap());
        let task = carried.fold(task, |task, bit| task.limit(LimitKey::new(format!("k{bit}")).unwrap()));
        task.check(Timestamp::UNIX_EPOCH).unwrap()
    }

    /// Follows the rule of docs/admission.md literally: checks each task alone and recounts all waiting tasks
    /// each time.
    fn naive(
        caps: &[CapUse],
        tasks: &[(u8, u8, u8)],
        exists: &HashSet<u8>,
    ) -> Vec<Option<(String, u64, u32)>> {
        let mut waiting: Vec<(u8, u8, u8)> = Vec::new();
        let mut answers = Vec::new();
        for asked in tasks {
            if exists.contains(&asked.0) || waiting.iter().any(|other| other.0 == asked.0) {
                answers.push(None);
                continue;
            }
            let belongs = |(_, queue, keys): &(u8, u8, u8), name: &str| match name.split_at(1) {
                ("q", of) => *of == queue.to_string(),
                (_, bit) => keys & (1 << bit.parse::<u8>().unwrap()) != 0,
            };
            let mut refused = None;
            for name in ["q0", "q1", "k0", "k1", "k2"] {
                let is_named = |cap: &&CapUse| cap.subject.to_string().ends_with(name);
                let Some(cap) = caps.iter().find(is_named).filter(|_| belongs(asked, name)) else { continue };
                let more = waiting.iter().filter(|other| belongs(other, name)).count() as u64;
                if refused.is_none() && cap.waiting + more >= u64::from(cap.cap.most) {
                    refused = Some((cap.subject.to_string(), cap.waiting + more, cap.cap.most));
                }
            }
            if refused.is_none() {
                waiting.push(*asked);
            }
            answers.push(refused);
        }
        answers
    }

    proptest! {
        #[test]
        fn decides_as_if_each_task_came_alone(
            tasks in proptest::collection::vec((0..12_u8, 0..2_u8, 0..8_u8), 0..14),
            caps in proptest::collection::vec(proptest::option::of((0..6_u32, 0..6_u64)), 5),
            exists in proptest::collection::hash_set(0..12_u8, 0..4),
        ) {
            let subject = |at: usize| match at {
                0 | 1 => Subject::Queue(QueueName::new(format!("q{at}")).unwrap()),
                _ => Subject::Key(LimitKey::new(format!("k{}", at - 2)).unwrap()),
            };
            let caps = caps.into_iter().enumerate().filter_map(|(at, cap)| {
                let (most, waiting) = cap?;
                Some(CapUse::new(subject(at), WaitingCap::new(most).unwrap(), waiting))
            });
            let caps: Vec<CapUse> = caps.collect();
            let inserts: Vec<TaskInsert> = tasks.iter().map(task).collect();
            let known = |key: &TaskKey| exists.iter().any(|name| key.task.as_str() == format!("t{name}"));
            let found: Vec<_> = refusals(caps.clone(), &needs(&inserts), known)
                .into_iter()
                .map(|cap| cap.map(|cap| (cap.subject.to_string(), cap.waiting, cap.cap.most)))
                .collect();
            prop_assert_eq!(found, naive(&caps, &tasks, &exists));
        }
    }

    #[test]
    fn a_key_that_was_refused_may_be_accepted_with_other_needs() {
        let full = CapUse::new(Subject::Queue(QueueName::new("q0").unwrap()), WaitingCap::new(0).unwrap(), 3);
        let tasks = [(1, 0, 0), (1, 1, 0), (1, 0, 0)].map(|given| task(&given));
        let refused = refusals(vec![full.clone()], &needs(&tasks), |_| false);
        assert_eq!(refused, [Some(full), None, None]);
    }

    #[test]
    fn what_caps_a_key_is_itself_or_its_longest_family() {
        let key = |text: &str| LimitKey::new(text).unwrap();
        let families = ["t", "t/"].map(|prefix| LimitSpec::of(key(prefix)).family());
        let families = Families::new(&families);
        let by = |text: &str, is_defined| capped_by(&key(text), is_defined, &families);
        assert_eq!(by("t/a", true), Some(Subject::Key(key("t/a"))));
        assert_eq!(by("t/a", false), Some(Subject::Family(key("t/"))));
        assert_eq!(by("t/", false), Some(Subject::Family(key("t"))));
        assert_eq!(by("t", false), None);
    }

    #[test]
    fn refuses_what_is_out_of_range() {
        assert!(matches!(WaitingCap::new(MAX_SLOTS + 1), Err(Invalid::TooLarge { .. })));
        for wrong in [r#"{"most":2147483648}"#, r#"{"most":-1}"#, r#"{}"#, r#"{"most":1,"more":2}"#] {
            assert!(serde_json::from_str::<WaitingCap>(wrong).is_err(), "{wrong}");
        }
    }
}
