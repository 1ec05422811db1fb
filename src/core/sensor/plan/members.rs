//! The sensors of a worker's shards in memory, by task and by group.

use std::collections::BTreeMap;

use super::slab::{NONE, Slab};
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
    /// Its neighbours in the ring of its group. A member that is alone is its own neighbour.
    next: u32,
    previous: u32,
}

impl Member {
    pub(super) fn new(
        lease: LeaseRef,
        terms: Terms,
        since: u64,
        group: u32,
        record: Option<Box<SensorRecord>>,
    ) -> Self {
        Self { lease, terms, since, group, doubted: false, record, next: NONE, previous: NONE }
    }
}

/// Members by task, and in one ring per group. The group has the number of one of them, or [`NONE`].
#[derive(Debug, Default)]
pub(super) struct Members {
    slab: Slab<Member>,
    /// Ordered, because a store returns sensors about in the order of their tasks.
    by_task: BTreeMap<TaskId, u32>,
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

    /// Adds a member to a ring. Returns `None` if no number is free.
    pub(super) fn insert(&mut self, member: Member, ring: &mut u32) -> Option<()> {
        let id = member.lease.id;
        let at = self.slab.insert(member)?;
        self.by_task.insert(id, at);
        let (last, first) = self.slab.get(*ring).map_or((at, at), |first| (first.previous, *ring));
        self.link(last, at);
        self.link(at, first);
        *ring = first;
        Some(())
    }

    /// Removes a member from its ring.
    pub(super) fn remove(&mut self, id: TaskId, ring: &mut u32) {
        let Some(at) = self.by_task.remove(&id) else { return };
        let Some(member) = self.slab.remove(at) else { return };
        self.link(member.previous, member.next);
        if *ring == at {
            *ring = if member.next == at { NONE } else { member.next };
        }
    }

    fn link(&mut self, before: u32, after: u32) {
        if let Some(member) = self.slab.get_mut(before) {
            member.next = after;
        }
        if let Some(member) = self.slab.get_mut(after) {
            member.previous = before;
        }
    }

    /// Returns the members of a ring.
    pub(super) fn of(&self, ring: u32) -> impl Iterator<Item = &Member> {
        let next = move |member: &&Member| self.slab.get(member.next).filter(|_| member.next != ring);
        std::iter::successors(self.slab.get(ring), next)
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
        /// Each member is found under its task and once in its group, whichever member leaves.
        #[test]
        fn members_are_in_their_groups(steps in proptest::collection::vec((0_i64..12, 0_u32..3), 0..80)) {
            let second = Duration::from_secs(1);
            let terms = Terms::new(Settings::new(second, second).unwrap(), Timestamp::UNIX_EPOCH);
            let (mut members, mut rings, mut model) = (Members::default(), [NONE; 3], BTreeMap::new());
            for (id, group) in steps {
                let id = TaskId(id);
                let known = members.get(id).map(|member| member.group);
                prop_assert_eq!(known, model.remove(&id));
                if let Some(group) = known {
                    members.remove(id, &mut rings[group as usize]);
                } else {
                    let member = Member::new(LeaseRef::new(id, 1), terms, 0, group, None);
                    members.insert(member, &mut rings[group as usize]).unwrap();
                    model.insert(id, group);
                }
                for (group, ring) in (0..3).zip(rings) {
                    let mut found: Vec<TaskId> = members.of(ring).map(|member| member.lease.id).collect();
                    found.sort_unstable();
                    let expected = model.iter().filter(|(_, of)| **of == group).map(|(id, _)| *id);
                    prop_assert_eq!(found, expected.collect::<Vec<_>>());
                }
                prop_assert!(model.keys().all(|id| members.get(*id).is_some_and(|member| member.lease.id == *id)));
                prop_assert_eq!(members.len(), model.len());
            }
        }
    }
}
