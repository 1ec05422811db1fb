//! A keeper's leases, shared by its clones and the holders.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::driver::LoopHandle;
use super::kept::Slot;
use crate::lease::LeaseRef;
use crate::lease::keep::LeaseSet;
use crate::time::Timestamp;

/// A holder's note about its work, and its instant.
pub(super) type Note = (LeaseRef, Timestamp, String);

/// The state that the clones of a keeper and its `Kept` share.
#[derive(Debug)]
pub(super) struct State {
    pub(super) set: LeaseSet,
    /// The leases of the set, and what is known about each.
    entries: HashMap<LeaseRef, Entry>,
    /// When the driver will tick next, as far as is known.
    pub(super) next_tick: Option<Timestamp>,
    /// Wakes the driver.
    pub(super) driver: Option<LoopHandle>,
    /// How many cancels the driver's handle had counted when the store was last asked.
    cancels_seen: u64,
    cancels_heeded_at: Option<Timestamp>,
}

#[derive(Debug)]
struct Entry {
    slot: Arc<Slot>,
    /// How many `Kept` it has.
    handles: usize,
}

impl State {
    /// Creates the state for leases of this length.
    pub(super) fn new(length: Duration) -> Self {
        Self {
            set: LeaseSet::new(length),
            entries: HashMap::new(),
            next_tick: None,
            driver: None,
            cancels_seen: 0,
            cancels_heeded_at: None,
        }
    }

    /// Adds a handle of this lease. Also returns the driver if it would tick too late for it.
    pub(super) fn keep(&mut self, lease: LeaseRef, expires_at: Timestamp) -> (Arc<Slot>, Option<LoopHandle>) {
        if let Some(entry) = self.entries.get_mut(&lease) {
            entry.handles += 1;
            return (entry.slot.clone(), None);
        }
        let slot = Arc::new(Slot::new(lease, expires_at));
        self.entries.insert(lease, Entry { slot: slot.clone(), handles: 1 });
        let due = self.insert(lease, expires_at);
        if self.next_tick.is_some_and(|next| next <= due) {
            return (slot, None);
        }
        self.next_tick = Some(due);
        (slot, self.driver.clone())
    }

    /// Drops a handle of this lease. Dropping the last one drops the lease.
    pub(super) fn release(&mut self, slot: &Arc<Slot>) {
        // A lost lease may have been added again since.
        let is_its = |entry: &&mut Entry| Arc::ptr_eq(&entry.slot, slot);
        let Some(entry) = self.entries.get_mut(&slot.lease).filter(is_its) else { return };
        entry.handles -= 1;
        if entry.handles == 0 {
            self.entries.remove(&slot.lease);
            self.set.remove(slot.lease);
        }
    }

    /// Makes all leases due at once if the driver's handle was woken for a cancel.
    pub(super) fn heed_cancels(&mut self, now: Timestamp) {
        let seen = self.driver.as_ref().map_or(0, LoopHandle::cancels_seen);
        if std::mem::replace(&mut self.cancels_seen, seen) != seen {
            self.set.ask_all(now);
            self.cancels_heeded_at = Some(now);
        }
    }

    /// Adds a lease. Returns when to renew it.
    fn insert(&mut self, lease: LeaseRef, expires_at: Timestamp) -> Timestamp {
        let due = self.set.insert(lease, expires_at);
        // Between the grant and this call, the task may have been cancelled and all other leases renewed.
        let granted_at = expires_at - self.set.length();
        match self.cancels_heeded_at.filter(|heeded_at| *heeded_at >= granted_at) {
            Some(_) => self.set.ask_at(lease, granted_at),
            None => due,
        }
    }

    /// Takes the notes that the holders of these leases wrote since the last call.
    pub(super) fn take_notes(&self, asked: &[LeaseRef]) -> Vec<Note> {
        let note = |lease: &LeaseRef| {
            let (at, text) = self.slot(*lease)?.note.lock().take()?;
            Some((*lease, at, text))
        };
        asked.iter().filter_map(note).collect()
    }

    /// Returns unwritten notes to the queue for the next call. A newer note of the same holder has precedence.
    pub(super) fn keep_notes(&self, notes: impl IntoIterator<Item = Note>) {
        for (lease, at, text) in notes {
            if let Some(slot) = self.slot(lease) {
                slot.note.lock().get_or_insert((at, text));
            }
        }
    }

    pub(super) fn slot(&self, lease: LeaseRef) -> Option<&Arc<Slot>> {
        self.entries.get(&lease).map(|entry| &entry.slot)
    }

    pub(super) fn slots<'a>(&'a self, leases: &'a [LeaseRef]) -> impl Iterator<Item = Arc<Slot>> + 'a {
        leases.iter().filter_map(|lease| self.slot(*lease).cloned())
    }

    /// Forgets a lease that its holder no longer has.
    pub(super) fn end(&mut self, lease: LeaseRef) -> Option<Arc<Slot>> {
        self.set.remove(lease);
        let slot = self.entries.remove(&lease)?.slot;
        slot.set_expiry(Timestamp::MIN);
        Some(slot)
    }
}
