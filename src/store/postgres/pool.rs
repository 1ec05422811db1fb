//! A store's connections, and the callers that wait for one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use super::group::Groups;
use super::places::{Places, Purpose};
use super::seat::SessionHandle;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::store::{TxMode, nested};

pub(super) struct Pool {
    /// Those who commit one statement each.
    pub(super) groups: Arc<Groups>,
    sessions: Vec<SessionHandle>,
    state: Mutex<State>,
    /// Signals that a connection is free, or that the queue is shorter.
    changed: Condvar,
    /// The same, for one waiting task.
    freed: Notify,
}

#[derive(Debug)]
struct State {
    places: Places,
    /// The indices of free sessions. The last one was used most recently, and is the most likely to be
    /// connected.
    free: Vec<usize>,
    last: u64,
    /// The waiting callers, in order of arrival.
    waiting: VecDeque<(u64, Purpose)>,
    /// The transactions that have begun, with or without a connection.
    open: Vec<(ThreadId, TxMode)>,
    /// Whether one connection is used for listening.
    listens: bool,
}

impl State {
    /// Takes a free connection if this purpose may use one.
    fn take(&mut self, purpose: Purpose) -> Option<usize> {
        if !self.places.admits(purpose) {
            return None;
        }
        let at = self.free.pop()?;
        self.places.enter(purpose);
        Some(at)
    }

    /// Returns true if no one has waited longer for the same purpose.
    fn is_next(&self, me: u64, purpose: Purpose) -> bool {
        self.waiting.iter().find(|(_, other)| *other == purpose).is_none_or(|(first, _)| *first == me)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("state", &*self.state.lock()).finish_non_exhaustive()
    }
}

/// A connection in exclusive use.
#[derive(Debug)]
pub(super) struct Lease {
    pool: Arc<Pool>,
    at: usize,
    /// `None` if it listens.
    purpose: Option<Purpose>,
    session: SessionHandle,
}

impl Lease {
    pub(super) fn session(&self) -> &SessionHandle {
        &self.session
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        match self.purpose {
            Some(purpose) => {
                state.places.leave(purpose);
                state.free.push(self.at);
            }
            None => {
                state.places.give_back();
                state.free.insert(0, self.at);
                state.listens = false;
            }
        }
        drop(state);
        self.pool.changed.notify_all();
        self.pool.freed.notify_one();
    }
}

/// A transaction that has begun on this thread.
pub(super) struct Entered<'p> {
    pool: &'p Pool,
    mode: TxMode,
    /// Whether another one is open on the thread.
    pub(super) is_inner: bool,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let me = (thread::current().id(), self.mode);
        let mut state = self.pool.state.lock();
        if let Some(at) = state.open.iter().position(|open| *open == me) {
            state.open.swap_remove(at);
        }
    }
}

impl Pool {
    pub(super) fn new(sessions: Vec<SessionHandle>) -> Self {
        let count = sessions.len();
        let state = State {
            places: Places::new(count),
            free: (0..count).rev().collect(),
            last: 0,
            waiting: VecDeque::new(),
            open: Vec::new(),
            listens: false,
        };
        Self {
            groups: Arc::new(Groups::new(state.places.ordinary())),
            sessions,
            state: Mutex::new(state),
            changed: Condvar::new(),
            freed: Notify::new(),
        }
    }

    /// Begins a transaction on this thread, unless one of the same mode is open there.
    pub(super) fn enter(&self, mode: TxMode) -> StoreResult<Entered<'_>> {
        let me = thread::current().id();
        let mut state = self.state.lock();
        if state.open.contains(&(me, mode)) {
            return Err(nested());
        }
        let is_inner = state.open.iter().any(|(thread, _)| *thread == me);
        state.open.push((me, mode));
        Ok(Entered { pool: self, mode, is_inner })
    }

    /// Waits for a connection. Callers with the same purpose are served in order of arrival.
    pub(super) fn lease(self: &Arc<Self>, purpose: Purpose, timeout: Duration) -> StoreResult<Lease> {
        let leased = self.lease_unless(purpose, timeout, || false)?;
        leased.ok_or_else(|| busy(timeout))
    }

    /// Waits for a connection like [`Self::lease`], but returns `None` as soon as `is_over` is true. That is checked
    /// whenever [`Self::look`] is called.
    pub(super) fn lease_unless(
        self: &Arc<Self>,
        purpose: Purpose,
        timeout: Duration,
        mut is_over: impl FnMut() -> bool,
    ) -> StoreResult<Option<Lease>> {
        let deadline = match purpose {
            // Threads that could free one may be waiting in the same way.
            Purpose::Inner => Some(Instant::now()),
            _ => deadline(timeout),
        };
        let mut state = self.state.lock();
        state.last += 1;
        let me = state.last;
        state.waiting.push_back((me, purpose));
        let mut taken = None;
        let over = loop {
            let over = is_over();
            if !over && state.is_next(me, purpose) {
                taken = state.take(purpose);
            }
            if over || taken.is_some() || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break over;
            }
            match deadline {
                Some(deadline) => drop(self.changed.wait_until(&mut state, deadline)),
                None => self.changed.wait(&mut state),
            }
        };
        state.waiting.retain(|(waiting, _)| *waiting != me);
        drop(state);
        self.changed.notify_all();
        match taken {
            Some(at) => self.of(at, Some(purpose)).map(Some),
            None if over => Ok(None),
            None if purpose == Purpose::Inner => {
                let text = "every connection is in use, and a transaction inside another one does not wait: end the other \
                            one first, or give the store more connections";
                Err(StoreError::new(StoreErrorKind::Busy, text))
            }
            None => Err(busy(timeout)),
        }
    }

    /// Has those who wait look whether they still do.
    pub(super) fn look(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// Waits for a connection like [`Self::lease`], in a task.
    pub(super) async fn lease_for_task(self: &Arc<Self>, purpose: Purpose) -> StoreResult<Lease> {
        loop {
            let taken = {
                let mut state = self.state.lock();
                let is_first = state.waiting.iter().all(|(_, other)| *other != purpose);
                if is_first { state.take(purpose) } else { None }
            };
            if let Some(at) = taken {
                return self.of(at, Some(purpose));
            }
            self.freed.notified().await;
        }
    }

    /// Waits for a connection that no transaction uses, to listen with it. At most one listens at a time.
    pub(super) fn lease_to_listen(self: &Arc<Self>, timeout: Duration) -> StoreResult<Lease> {
        let deadline = deadline(timeout);
        let mut state = self.state.lock();
        loop {
            if !state.listens {
                if !state.places.can_spare() {
                    let text =
                        "a store with one connection cannot listen: open it with at least 2 `connections`";
                    return Err(StoreError::new(StoreErrorKind::Backend, text));
                }
                if !state.free.is_empty() && state.places.take_away() {
                    let at = state.free.remove(0);
                    state.listens = true;
                    drop(state);
                    return self.of(at, None);
                }
            }
            match deadline {
                Some(deadline) if Instant::now() >= deadline => return Err(busy(timeout)),
                Some(deadline) => drop(self.changed.wait_until(&mut state, deadline)),
                None => self.changed.wait(&mut state),
            }
        }
    }

    fn of(self: &Arc<Self>, at: usize, purpose: Option<Purpose>) -> StoreResult<Lease> {
        let session = self.sessions.get(at).cloned();
        let lost = || StoreError::new(StoreErrorKind::Backend, "the store has no such connection");
        Ok(Lease { pool: Arc::clone(self), at, purpose, session: session.ok_or_else(lost)? })
    }
}

fn deadline(timeout: Duration) -> Option<Instant> {
    if timeout.is_zero() { None } else { Instant::now().checked_add(timeout) }
}

fn busy(timeout: Duration) -> StoreError {
    let text = format!(
        "other transactions used the store's connections for {timeout:?}: call again, or give it more connections"
    );
    StoreError::new(StoreErrorKind::Busy, text)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const AT_ONCE: Duration = Duration::from_millis(1);

    fn pool(connections: usize) -> Arc<Pool> {
        Arc::new(Pool::new((0..connections).map(|_| SessionHandle::nowhere()).collect()))
    }

    #[test]
    fn the_connection_that_was_used_last_is_used_next() {
        let pool = pool(4);
        let (first, second) = (
            pool.lease(Purpose::Ordinary, AT_ONCE).unwrap(),
            pool.lease(Purpose::Ordinary, AT_ONCE).unwrap(),
        );
        let (a, b) = (first.at, second.at);
        drop(second);
        drop(first);
        assert_eq!((a, b), (0, 1));
        assert_eq!(pool.lease(Purpose::Renewal, AT_ONCE).unwrap().at, a);
    }

    #[test]
    fn who_waits_is_served_in_order_and_passed_by_none_of_its_purpose() {
        let pool = pool(1);
        let held = pool.lease(Purpose::Ordinary, LONG).unwrap();
        let (sender, receiver) = channel();
        thread::scope(|scope| {
            for number in 0..3 {
                let (pool, sender) = (&pool, sender.clone());
                scope.spawn(move || {
                    let lease = pool.lease(Purpose::Ordinary, LONG).unwrap();
                    sender.send(number).unwrap();
                    drop(lease);
                });
                while pool.state.lock().waiting.len() <= number {
                    thread::yield_now();
                }
            }
            drop(held);
        });
        assert_eq!(receiver.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn a_caller_that_waits_too_long_gets_an_error_and_is_forgotten() {
        let pool = pool(1);
        let held = pool.lease(Purpose::Ordinary, LONG).unwrap();
        for purpose in [Purpose::Ordinary, Purpose::Inner] {
            let refused = pool.lease(purpose, AT_ONCE).unwrap_err();
            assert_eq!(refused.kind(), StoreErrorKind::Busy, "{refused}");
        }
        assert!(pool.state.lock().waiting.is_empty());
        drop(held);
        drop(pool.lease(Purpose::Ordinary, AT_ONCE).unwrap());
    }

    #[test]
    fn one_listens_and_the_others_are_left_for_transactions() {
        let pool = pool(2);
        let listens = pool.lease_to_listen(AT_ONCE).unwrap();
        assert_eq!(listens.at, 1, "the one that was used least");
        let refused = pool.lease_to_listen(AT_ONCE).unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Busy, "one is enough: {refused}");
        let held = pool.lease(Purpose::Ordinary, AT_ONCE).unwrap();
        assert!(pool.lease(Purpose::Renewal, AT_ONCE).is_err());
        drop(listens);
        drop(pool.lease(Purpose::Renewal, AT_ONCE).unwrap());
        drop(held);
        let single = self::pool(1);
        let refused = single.lease_to_listen(LONG).unwrap_err();
        assert_eq!(refused.kind(), StoreErrorKind::Backend, "{refused}");
    }

    #[test]
    fn transactions_of_one_thread_are_distinguished_by_their_mode() {
        let pool = pool(1);
        let write = pool.enter(TxMode::Write).unwrap();
        assert!(!write.is_inner && pool.enter(TxMode::Write).is_err());
        let read = pool.enter(TxMode::Read).unwrap();
        assert!(read.is_inner);
        thread::scope(|scope| {
            let other = scope.spawn(|| !pool.enter(TxMode::Write).unwrap().is_inner);
            assert!(other.join().unwrap());
        });
        drop((write, read));
        assert!(!pool.enter(TxMode::Write).unwrap().is_inner);
    }
}
