//! The leases of this process, and the children that run under them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stationmaster::LeaseRef;
use stationmaster::service::Kept;

use crate::child::Lifeline;

/// Why a child was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    TimedOut,
    /// Someone cancelled the task.
    Cancelled,
    /// Another holder may have the task by now.
    LeaseLost,
    /// This process stops.
    Stopping,
}

#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    stopping: bool,
    leases: HashMap<LeaseRef, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// Renews the lease.
    _kept: Kept,
    lifeline: Option<Lifeline>,
    deadline: Option<Instant>,
    cut: Option<Cut>,
}

impl Entry {
    fn cut(&mut self, why: Cut) {
        self.cut.get_or_insert(why);
        self.lifeline = None;
        self.deadline = None;
    }
}

impl Held {
    pub(crate) fn take(&self, kept: Kept) {
        let mut inner = self.0.lock();
        // The keeper may have reported the cancel before this.
        let cancelled = kept.cancelled().map(|_| Cut::Cancelled);
        let cut = if inner.stopping { Some(Cut::Stopping) } else { cancelled };
        inner.leases.insert(kept.lease(), Entry { _kept: kept, lifeline: None, deadline: None, cut });
    }

    /// Attaches a child to this lease. If the lease was cut meanwhile, the child is killed at once.
    pub(crate) fn attach(&self, lease: LeaseRef, lifeline: Lifeline, timeout: Option<Duration>) {
        if let Some(entry) = self.0.lock().leases.get_mut(&lease)
            && entry.cut.is_none()
        {
            entry.lifeline = Some(lifeline);
            entry.deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        }
    }

    /// Returns why the child under this lease was killed, if it was.
    pub(crate) fn why_cut(&self, lease: LeaseRef) -> Option<Cut> {
        self.0.lock().leases.get(&lease).map_or(Some(Cut::LeaseLost), |entry| entry.cut)
    }

    /// Forgets a lease that has ended.
    pub(crate) fn release(&self, lease: LeaseRef) {
        self.0.lock().leases.remove(&lease);
    }

    pub(crate) fn cut(&self, lease: LeaseRef, why: Cut) {
        if let Some(entry) = self.0.lock().leases.get_mut(&lease) {
            entry.cut(why);
        }
    }

    /// Kills all children, and those that are started later.
    pub(crate) fn stop(&self) {
        let mut inner = self.0.lock();
        inner.stopping = true;
        for entry in inner.leases.values_mut() {
            entry.cut(Cut::Stopping);
        }
    }

    /// Kills the children whose time is up. Returns how long until the next one's time is up.
    pub(crate) fn cut_overdue(&self) -> Option<Duration> {
        let now = Instant::now();
        let mut next: Option<Duration> = None;
        for entry in self.0.lock().leases.values_mut() {
            match entry.deadline {
                Some(deadline) if deadline <= now => entry.cut(Cut::TimedOut),
                Some(deadline) => next = Some(next.map_or(deadline - now, |next| next.min(deadline - now))),
                None => {}
            }
        }
        next
    }
}
