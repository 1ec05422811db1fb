//! The sensors of a worker's shards in memory, by task and by group.

use std::collections::{BTreeMap, BTreeSet};

use super::slab::Slab;
use crate::lease::{LeaseRef, TaskId};
use crate::sensor::{SensorRecord, Terms};

/// One sensor.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) lease: LeaseRef,
    pub(super) terms: Terms,
    /// The turn that read it. Outcomes of pokes that began earlier do not concern it.
    pub(super) since: u64,
    pub(super) group: u32,
    /// True if its shard is being read again and the sensor has not been found waiting yet.
    pub(super) doubted: bool,
    /// The whole record, if a log needs it.
    pub(super) record: Option<Box<SensorRecord>>,
}

/// Members, by task and by group.
#[derive(Debug, Default)]
pub(super) struct Members {
    slab: Slab<Member>,
    /// Ordered, because a store returns sensors about in the order of their tasks.
    by_task: BTreeMap<TaskId, u32>,
    by_group: BTreeSet<(u32, u32)>,
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.by_task.len()
    }

    pub(super) fn get(&self, id: TaskId) -> Option<&Member> {
        self.slab.get(*self.by_task.get(&id)?)
    }

    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut Member> {
        self.slab.get_mut(*self.by_task.get(&id)?)
    }

    /// Adds a member. Returns `None` if no number is free.
    pub(super) fn insert(&mut self, member: Member) -> Option<()> {
        let (id, group) = (member.lease.id, member.group);
        let at = self.slab.insert(member)?;
        self.by_task.insert(id, at);
        self.by_group.insert((group, at));
        Some(())
    }

    pub(super) fn remove(&mut self, id: TaskId) -> Option<Member> {
        let at = self.by_task.remove(&id)?;
        let member = self.slab.remove(at)?;
        self.by_group.remove(&(member.group, at));
        Some(member)
    }

    /// Returns the members of a group.
    pub(super) fn of(&self, group: u32) -> impl Iterator<Item = &Member> {
        let all = self.by_group.range((group, 0)..).take_while(move |(of, _)| *of == group);
        all.filter_map(|(_, at)| self.slab.get(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensor::Settings;
    use crate::time::Timestamp;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        /// Each member is found under its task and in its group, whichever member leaves.
        #[test]
        fn members_are_in_their_groups(steps in proptest::collection::vec((0_i64..12, 0_u32..3), 0..80)) {
            let second = Duration::from_secs(1);
            let terms = Terms::new(Settings::new(second, second).unwrap(), Timestamp::UNIX_EPOCH);
            let (mut members, mut model) = (Members::default(), BTreeMap::new());
            for (id, group) in steps {
                let id = TaskId(id);
                let known = members.remove(id).map(|member| member.group);
                prop_assert_eq!(known, model.remove(&id));
                if known.is_none() {
                    let lease = LeaseRef::new(id, 1);
                    members.insert(Member { lease, terms, since: 0, group, doubted: false, record: None }).unwrap();
                    model.insert(id, group);
                }
                for group in 0..3 {
                    let found: BTreeSet<TaskId> = members.of(group).map(|member| member.lease.id).collect();
                    let expected = model.iter().filter(|(_, of)| **of == group).map(|(id, _)| *id).collect();
                    prop_assert_eq!(found, expected);
                }
                prop_assert!(model.keys().all(|id| members.get(*id).is_some_and(|member| member.lease.id == *id)));
                prop_assert_eq!(members.len(), model.len());
            }
        }
    }
}
