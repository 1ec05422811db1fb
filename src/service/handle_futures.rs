//! Futures that wait on a loop's handle.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::driver::LoopHandle;

/// The futures that wait for a change of a handle.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    wakers: BTreeMap<u64, Waker>,
    /// Futures for which only a stop counts. Wakes leave them alone, because a busy loop is woken often.
    for_stop: BTreeMap<u64, Waker>,
    /// The number of entries that were assigned so far.
    places: u64,
}

impl Waiters {
    /// Removes the wakers that a wake concerns, or all after a stop. A future that still waits registers again.
    pub(super) fn take(&mut self, is_stopped: bool) -> impl Iterator<Item = Waker> + use<> {
        let for_stop = if is_stopped { std::mem::take(&mut self.for_stop) } else { BTreeMap::new() };
        std::mem::take(&mut self.wakers).into_values().chain(for_stop.into_values())
    }

    fn of(&mut self, seen: Option<u64>) -> &mut BTreeMap<u64, Waker> {
        if seen.is_some() { &mut self.wakers } else { &mut self.for_stop }
    }
}

/// A future that becomes ready when the handle is woken or stopped.
#[derive(Debug)]
pub(super) struct Change {
    handle: LoopHandle,
    /// With `None`, only a stop counts.
    seen: Option<u64>,
    place: Option<u64>,
}

impl Change {
    pub(super) fn new(handle: LoopHandle, seen: Option<u64>) -> Self {
        Self { handle, seen, place: None }
    }
}

impl Future for Change {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { handle, seen, place } = &mut *self;
        // Wakers are the host's code, so they are cloned and dropped outside the lock.
        let waker = context.waker().clone();
        let mut state = handle.state();
        if state.calls(*seen) {
            drop(state);
            return Poll::Ready(());
        }
        let waiters = &mut state.waiters;
        let place = *place.get_or_insert_with(|| {
            waiters.places += 1;
            waiters.places
        });
        let before = waiters.of(*seen).insert(place, waker);
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut state = self.handle.state();
            let waker = state.waiters.of(self.seen).remove(&place);
            drop(state);
            drop(waker);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn every_future_that_waits_is_woken_and_one_that_was_dropped_leaves_nothing() {
        let (handle, count) = (LoopHandle::new(), Arc::new(Count::default()));
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        let mut woken = pin!(handle.woken_since(handle.seen()));
        let mut stopped = pin!(handle.stopped());
        let mut dropped = Box::pin(handle.stopped());
        assert!(woken.as_mut().poll(&mut context).is_pending());
        assert!(stopped.as_mut().poll(&mut context).is_pending());
        assert!(dropped.as_mut().poll(&mut context).is_pending());
        drop(dropped);

        handle.wake();
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "the one that waits for a stop sleeps on");
        assert!(woken.as_mut().poll(&mut context).is_ready());
        assert!(stopped.as_mut().poll(&mut context).is_pending(), "a wake is no stop");
        handle.stop();
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
        assert!(stopped.as_mut().poll(&mut context).is_ready());
        assert!([Some(0), None].iter().all(|seen| handle.state().waiters.of(*seen).is_empty()));
    }

    /// Like a task that only its waker refers to: dropping the waker drops what it held.
    struct Holds(LoopHandle, Arc<AtomicUsize>);

    impl Wake for Holds {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Holds {
        fn drop(&mut self) {
            let free = self.0.0.state.try_lock().is_some();
            self.1.fetch_add(usize::from(free), Ordering::SeqCst);
        }
    }

    #[test]
    fn a_waker_that_is_replaced_is_dropped_outside_the_lock() {
        let (handle, free) = (LoopHandle::new(), Arc::new(AtomicUsize::new(0)));
        let mut stopped = pin!(handle.stopped());
        for _ in 0..3 {
            let waker = Waker::from(Arc::new(Holds(handle.clone(), free.clone())));
            assert!(stopped.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert_eq!(free.load(Ordering::SeqCst), 2, "two of three were replaced");
        handle.stop();
        assert_eq!(free.load(Ordering::SeqCst), 3);
    }
}
