//! Decides what a worker does next: how many tasks it requests, which handlers it asks to stop, and which
//! ends it stores.
//!
//! The state machine knows no store, clock, thread or runtime. So it serves both handlers on threads and
//! handlers that are futures.
//!
//! An attempt holds its place from the grant until its handler has returned and its end is known to be stored
//! or refused. So the places bound both what runs and what waits to be stored, and a worker whose store fails
//! requests no further tasks.
//!
//! | event | result |
//! |---|---|
//! | a place is free and there may be work | its group asks for as many tasks as it has free places |
//! | the same, but more places are ending | it waits, at most [`LONGEST_HOLD`](group::LONGEST_HOLD) |
//! | a handler returns | its end is stored at once, together with others that wait |
//! | the same, while handlers of one grant are being started | its end is stored a moment later |
//! | an attempt has run for as long as it may | its handler is asked to stop |
//! | it ignores that for the patience | it is given up: its end is stored while its handler still works |
//! | the worker is stopped | no group asks; unbegun attempts are given back; handlers are asked to stop |
//! | they ignore that for the patience | they are cut off; leases left after [`LAST_CALL`] expire |

mod ends;
mod group;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use crate::lease::LeaseRef;
use crate::time::Timestamp;
use ends::Ends;
use group::Group;

/// How long ends of handlers that were cut off may still be stored.
pub(crate) const LAST_CALL: Duration = Duration::from_secs(1);

/// A worker's time limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waits {
    /// How long handlers may take to return after they are asked to stop.
    pub(crate) patience: Duration,
    /// How long an end waits for others to be stored with it.
    pub(crate) gather: Duration,
    /// The longest time after which a group asks although nothing is known to be due.
    pub(crate) at_most: Duration,
}

/// A worker's groups of places, its attempts, and their ends of type `E`.
#[derive(Debug)]
pub(crate) struct WorkerState<E> {
    waits: Waits,
    groups: Vec<Group>,
    attempts: BTreeMap<LeaseRef, Attempt>,
    ends: Ends<E>,
    stopped_at: Option<Timestamp>,
    /// True if all handlers were cut off after the stop.
    is_cut: bool,
}

#[derive(Debug)]
struct Attempt {
    group: usize,
    handler: Handler,
    end: End,
    /// When it has run for as long as it may.
    deadline: Option<Timestamp>,
    /// True if its handler has been asked to stop because the deadline passed.
    is_overdue: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handler {
    NotBegun,
    Works,
    Returned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// The end waits to be stored, or is being stored.
    Waits,
    /// The end is stored or refused, or there is nothing to store.
    Known,
}

/// An instruction for an attempt that follows from the time alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The attempt has run for as long as it may. Its handler is asked to stop.
    Overdue,
    /// The handler ignored that for the patience. The caller passes the attempt's end to
    /// [`WorkerState::end`].
    GivenUp,
    /// The worker stops, and the handler has ignored that for the patience.
    CutOff,
}

impl<E: Clone> WorkerState<E> {
    /// Creates the state of a worker with one group for each number of places.
    pub(crate) fn new(places: impl IntoIterator<Item = usize>, waits: Waits) -> Self {
        Self {
            waits,
            groups: places.into_iter().map(Group::new).collect(),
            attempts: BTreeMap::new(),
            ends: Ends::new(waits.gather),
            stopped_at: None,
            is_cut: false,
        }
    }

    /// Records that there may be work that no group has asked for yet.
    pub(crate) fn news(&mut self) {
        self.groups.iter_mut().for_each(Group::news);
    }

    /// Returns the groups that must ask now, each with its number of free places. The number may be 0,
    /// because the store must also learn which queues are served.
    pub(crate) fn asks(&mut self, now: Timestamp) -> Vec<(usize, usize)> {
        if self.stopped_at.is_some() {
            return Vec::new();
        }
        // Ends that are gathered for longer do not free a place in time.
        let may_hold = self.waits.gather < group::LONGEST_HOLD;
        let groups = self.groups.iter_mut().enumerate();
        groups.filter_map(|(at, group)| Some((at, group.asks(now, may_hold)?))).collect()
    }

    /// Records what a group that asked for `free` tasks was granted, when its next task is due, and when it
    /// must record again which queues it serves.
    pub(crate) fn granted(
        &mut self,
        now: Timestamp,
        group: usize,
        free: usize,
        leases: &[LeaseRef],
        due: Option<Timestamp>,
        announces_at: Option<Timestamp>,
    ) {
        for lease in leases {
            let attempt = Attempt {
                group,
                handler: Handler::NotBegun,
                end: End::Open,
                deadline: None,
                is_overdue: false,
            };
            // If a store grants a lease twice, the task must not begin twice.
            if let Entry::Vacant(place) = self.attempts.entry(*lease) {
                place.insert(attempt);
                self.groups[group].taken += 1;
            }
        }
        let latest = now + self.waits.at_most;
        let due = due.map_or(latest, |due| due.min(latest));
        self.groups[group].answered(leases.len() >= free, due, announces_at);
    }

    /// Records that a group's request failed.
    pub(crate) fn not_granted(&mut self, group: usize) {
        self.groups[group].failed();
    }

    /// Begins an attempt that may run until this deadline. Returns false if it must not begin, for example
    /// because the worker stops.
    pub(crate) fn begins(&mut self, lease: LeaseRef, deadline: Option<Timestamp>) -> bool {
        match self.attempts.get_mut(&lease) {
            Some(attempt) if self.stopped_at.is_none() && attempt.handler == Handler::NotBegun => {
                (attempt.handler, attempt.deadline) = (Handler::Works, deadline);
                true
            }
            _ => false,
        }
    }

    /// Records that several handlers are being started. Ends that come before [`Self::all_started`] wait for
    /// a moment, so that the ends of short handlers share a call.
    pub(crate) fn starts(&mut self) {
        self.ends.set_starting(true);
    }

    /// Records that all handlers of attempts that began have been started.
    pub(crate) fn all_started(&mut self) {
        self.ends.set_starting(false);
    }

    /// Queues this end to be stored, unless the attempt already has one. Its handler need not have returned.
    pub(crate) fn end(&mut self, now: Timestamp, lease: LeaseRef, end: E) {
        if let Some(attempt) = self.attempts.get_mut(&lease).filter(|attempt| attempt.end == End::Open) {
            attempt.end = End::Waits;
            self.ends.push(now, lease, end);
        }
    }

    /// Records that an attempt's handler has returned or will not begin. If `end` is `None`, there is nothing
    /// to store.
    pub(crate) fn returned(&mut self, now: Timestamp, lease: LeaseRef, end: Option<E>) {
        let Some(attempt) = self.attempts.get_mut(&lease) else { return };
        let is_first = std::mem::replace(&mut attempt.handler, Handler::Returned) != Handler::Returned;
        match end {
            Some(end) => self.end(now, lease, end),
            None if attempt.end == End::Open => attempt.end = End::Known,
            None => {}
        }
        if let Some(attempt) =
            self.attempts.get(&lease).filter(|attempt| is_first && attempt.end == End::Waits)
        {
            self.groups[attempt.group].ending += 1;
        }
        self.leave_if_over(lease);
    }

    /// Records that a handler has ended its attempt on its own and goes on working.
    pub(crate) fn ended_itself(&mut self, lease: LeaseRef) {
        if let Some(attempt) = self.attempts.get_mut(&lease).filter(|attempt| attempt.end == End::Open) {
            attempt.end = End::Known;
        }
    }

    /// Makes a group whose attempt could not begin pause before it asks again. Otherwise it would be granted
    /// the same task over and over.
    pub(crate) fn could_not_begin(&mut self, now: Timestamp, lease: LeaseRef) {
        if let Some(attempt) = self.attempts.get(&lease) {
            self.groups[attempt.group].pauses_until = Some(now + Duration::from_secs(1));
        }
    }

    /// Returns the ends to store now, in one call. The caller must pass them to [`Self::stored`] or
    /// [`Self::not_stored`].
    pub(crate) fn ends(&mut self, now: Timestamp) -> Vec<(LeaseRef, E)> {
        // After a stop there is no point in waiting for more ends.
        self.ends.take(now, self.stopped_at.is_some())
    }

    /// Records that the store has stored or refused these ends. Returns true if a group that may have work
    /// waiting has a free place again.
    pub(crate) fn stored(&mut self, ends: &[(LeaseRef, E)]) -> bool {
        self.ends.succeeded();
        for (lease, _) in ends {
            if let Some(attempt) = self.attempts.get_mut(lease) {
                let waited = std::mem::replace(&mut attempt.end, End::Known) == End::Waits;
                self.groups[attempt.group].ending -=
                    usize::from(waited && attempt.handler == Handler::Returned);
            }
            self.leave_if_over(*lease);
        }
        self.wants_to_ask()
    }

    /// Records that the store failed, so it is unknown whether these ends were stored.
    pub(crate) fn not_stored(&mut self, now: Timestamp, ends: Vec<(LeaseRef, E)>) {
        self.ends.failed(now, ends);
    }

    /// Returns true if a group has a free place and may have work waiting for it.
    pub(crate) fn wants_to_ask(&self) -> bool {
        self.stopped_at.is_none() && self.groups.iter().any(Group::wants_to_ask)
    }

    /// Returns the instructions that are due, each with its attempt.
    pub(crate) fn notices(&mut self, now: Timestamp) -> Vec<(LeaseRef, Notice)> {
        let mut notices = Vec::new();
        let works = |attempt: &&mut Attempt| attempt.handler == Handler::Works && attempt.end == End::Open;
        for (lease, attempt) in &mut self.attempts {
            let Some(attempt) = Some(attempt).filter(works) else { continue };
            if attempt.deadline.is_some_and(|deadline| deadline + self.waits.patience <= now) {
                notices.push((*lease, Notice::GivenUp));
            } else if attempt.deadline.is_some_and(|deadline| deadline <= now) && !attempt.is_overdue {
                attempt.is_overdue = true;
                notices.push((*lease, Notice::Overdue));
            }
        }
        if self.cut_at().is_some_and(|at| at <= now) && !std::mem::replace(&mut self.is_cut, true) {
            let works = self.attempts.iter().filter(|(_, attempt)| attempt.handler == Handler::Works);
            notices.extend(works.map(|(lease, _)| (*lease, Notice::CutOff)));
        }
        notices
    }

    /// Stops the worker. Returns the attempts that have not begun, and those whose handlers are working.
    pub(crate) fn stop(&mut self, now: Timestamp) -> (Vec<LeaseRef>, Vec<LeaseRef>) {
        if self.stopped_at.is_none() {
            self.stopped_at = Some(now);
        }
        (self.leases(Handler::NotBegun), self.working())
    }

    /// Returns true after [`Self::stop`].
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped_at.is_some()
    }

    /// Returns true if the worker was stopped and has no attempts or requests left.
    pub(crate) fn is_done(&self) -> bool {
        self.is_stopped() && self.attempts.is_empty() && !self.groups.iter().any(|group| group.is_asking)
    }

    /// Returns true if a stopped worker has waited long enough for the remaining handlers.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        self.cut_at().is_some_and(|at| at + LAST_CALL <= now)
    }

    /// Returns the attempts whose handlers are working.
    pub(crate) fn working(&self) -> Vec<LeaseRef> {
        self.leases(Handler::Works)
    }

    /// Returns true if the attempt's handler is working and the attempt has no end yet.
    pub(crate) fn is_at_work(&self, lease: LeaseRef) -> bool {
        let at_work = |attempt: &Attempt| attempt.handler == Handler::Works && attempt.end == End::Open;
        self.attempts.get(&lease).is_some_and(at_work)
    }

    /// Returns the attempts whose ends wait and are not known to be stored.
    pub(crate) fn unstored(&self) -> Vec<LeaseRef> {
        let waits = self.attempts.iter().filter(|(_, attempt)| attempt.end == End::Waits);
        waits.map(|(lease, _)| *lease).collect()
    }

    /// Returns true if the attempt still belongs to the worker.
    pub(crate) fn has(&self, lease: LeaseRef) -> bool {
        self.attempts.contains_key(&lease)
    }

    /// Returns when a group should ask next, or `None` if a group asks only after news or a freed place.
    pub(crate) fn next_ask(&self) -> Option<Timestamp> {
        self.groups.iter().filter_map(Group::next_ask).min()
    }

    /// Returns true if the loop that stores ends has something to do, or must learn when it will.
    pub(crate) fn calls_for_ends(&self, now: Timestamp) -> bool {
        self.ends.call(now) || self.is_stopped() && self.next_end().is_some()
    }

    /// Returns when to store ends next, or `None` if no ends wait.
    pub(crate) fn next_end(&self) -> Option<Timestamp> {
        self.ends.next_due()
    }

    /// Returns when the next instruction is due.
    pub(crate) fn next_notice(&self) -> Option<Timestamp> {
        let open = |attempt: &&Attempt| attempt.handler == Handler::Works && attempt.end == End::Open;
        let deadlines = self.attempts.values().filter(open).filter_map(|attempt| {
            Some(attempt.deadline? + if attempt.is_overdue { self.waits.patience } else { Duration::ZERO })
        });
        let cut = self.cut_at().map(|at| if self.is_cut { at + LAST_CALL } else { at });
        deadlines.chain(cut).min()
    }

    fn cut_at(&self) -> Option<Timestamp> {
        self.stopped_at.map(|at| at + self.waits.patience)
    }

    fn leases(&self, handler: Handler) -> Vec<LeaseRef> {
        let of = self.attempts.iter().filter(|(_, attempt)| attempt.handler == handler);
        of.map(|(lease, _)| *lease).collect()
    }

    fn leave_if_over(&mut self, lease: LeaseRef) {
        let is_over = |attempt: &Attempt| attempt.handler == Handler::Returned && attempt.end == End::Known;
        if let Some(attempt) = self.attempts.get(&lease).filter(|attempt| is_over(attempt)) {
            self.groups[attempt.group].taken -= 1;
            self.attempts.remove(&lease);
        }
    }
}
