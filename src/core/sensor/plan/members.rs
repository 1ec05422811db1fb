//! The sensors of a worker's shards in memory, in one list per group.

use std::collections::HashMap;

use super::slab::{Slab, shrink};
use crate::lease::{LeaseRef, TaskId};
use crate::sensor::{SensorRecord, Terms};

/// Marks the end of a list: no member.
pub(super) const NOBODY: u32 = u32::MAX;

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
    next: u32,
    /// The previous member. In the first member, this is the last one.
    previous: u32,
}

impl Member {
    pub(super) fn new(lease: LeaseRef, terms: Terms, since: u64, group: u32) -> Self {
        Self { lease, terms, since, group, doubted: false, record: None, next: NOBODY, previous: NOBODY }
    }
}

/// Members, by task and in lists.
#[derive(Debug, Default)]
pub(super) struct Members {
    slab: Slab<Member>,
    by_no: HashMap<TaskId, u32>,
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(super) fn get(&self, id: TaskId) -> Option<&Member> {
        self.slab.get(*self.by_no.get(&id)?)
    }

    pub(super) fn get_mut(&mut self, id: TaskId) -> Option<&mut Member> {
        self.slab.get_mut(*self.by_no.get(&id)?)
    }

    /// Appends a member to the list that begins with `first`. Returns the new beginning of the list, or
    /// `None` if no index is free.
    pub(super) fn push(&mut self, member: Member, first: u32) -> Option<u32> {
        let id = member.lease.id;
        let at = self.slab.insert(member)?;
        self.by_no.insert(id, at);
        let last = self.slab.get(first).map_or(at, |first| first.previous);
        if let Some(last) = self.slab.get_mut(last).filter(|_| last != at) {
            last.next = at;
        }
        let first = if last == at { at } else { first };
        self.slab.get_mut(at)?.previous = last;
        self.slab.get_mut(first)?.previous = at;
        Some(first)
    }

    /// Returns the group of a member.
    pub(super) fn group(&self, id: TaskId) -> Option<u32> {
        self.get(id).map(|member| member.group)
    }

    /// Removes a member from the list that begins with `first`. Returns the new beginning of the list.
    pub(super) fn remove(&mut self, id: TaskId, first: u32) -> u32 {
        let Some(at) = self.by_no.remove(&id) else { return first };
        shrink(&mut self.by_no);
        let Some(member) = self.slab.remove(at) else { return first };
        let first = if at == first {
            member.next
        } else {
            if let Some(previous) = self.slab.get_mut(member.previous) {
                previous.next = member.next;
            }
            first
        };
        // The next member. If the last one was removed, this is the first, which links to the last.
        let after = if member.next == NOBODY { first } else { member.next };
        if let Some(after) = self.slab.get_mut(after) {
            after.previous = member.previous;
        }
        first
    }

    /// Iterates over the list that begins with this member.
    pub(super) fn list(&self, first: u32) -> impl Iterator<Item = &Member> {
        std::iter::successors(self.slab.get(first), |member| self.slab.get(member.next))
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
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
        /// Lists keep the order of arrival, whichever member leaves.
        #[test]
        fn lists_are_as_if_they_were_vectors(steps in proptest::collection::vec((0_i64..12, 0_usize..3), 0..80)) {
            let second = Duration::from_secs(1);
            let terms = Terms::new(Settings::new(second, second).unwrap(), Timestamp::UNIX_EPOCH);
            let (mut members, mut firsts) = (Members::default(), [NOBODY; 3]);
            let mut lists: [Vec<i64>; 3] = Default::default();
            for (id, list) in steps {
                let lease = LeaseRef::new(TaskId(id), 1);
                match members.group(lease.id) {
                    Some(group) => {
                        let group = group as usize;
                        firsts[group] = members.remove(lease.id, firsts[group]);
                        lists[group].retain(|other| *other != id);
                    }
                    None => {
                        let member = Member::new(lease, terms, 0, u32::try_from(list).unwrap());
                        firsts[list] = members.push(member, firsts[list]).unwrap();
                        lists[list].push(id);
                    }
                }
                for (first, list) in firsts.iter().zip(&lists) {
                    let found: Vec<i64> = members.list(*first).map(|member| member.lease.id.0).collect();
                    prop_assert_eq!(&found, list);
                }
                prop_assert_eq!(members.len(), lists.iter().map(Vec::len).sum::<usize>());
            }
        }
    }
}
