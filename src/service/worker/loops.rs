//! The loops of a worker: one admits, one stores ends.

use std::sync::Arc;

use super::attempt::Attempt;
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::lease::LeaseRef;
use crate::ops::{Finish, Outcome};
use crate::service::wanted::Wanted;
use crate::service::{Admitter, LoopHandle, Report, Service};
use crate::store::Tx;
use crate::task::TaskState;
use crate::time::Timestamp;

/// Admits for each group of places that is free, and begins the granted attempts.
#[derive(Debug)]
pub(super) struct AdmitLoop {
    shared: Arc<Shared>,
    /// One for each group.
    admitters: Vec<Admitter>,
    /// The news number when groups were last notified.
    news: Option<u64>,
    /// The number of the worker's own wakes at that time.
    own_wakes: u64,
    handle: LoopHandle,
    /// Attempts that were granted and must still be started.
    queued: Vec<Attempt>,
}

/// What one step of a loop did.
#[derive(Debug)]
pub(super) struct Step {
    next_due: Option<Timestamp>,
    is_idle: bool,
}

impl Report for Step {
    fn next_due(&self) -> Option<Timestamp> {
        self.next_due
    }

    fn is_idle(&self) -> bool {
        self.is_idle
    }
}

impl AdmitLoop {
    pub(super) fn new(shared: Arc<Shared>, admitters: Vec<Admitter>) -> Self {
        let handle = shared.admits.clone();
        Self { shared, admitters, news: None, own_wakes: 0, handle, queued: Vec::new() }
    }

    /// Starts the tasks that a tick only grants: those that record their attempts as runs.
    fn start_queued(&mut self) -> Result<()> {
        if self.shared.admits.is_stopped() {
            self.give_queued_back();
        }
        if self.queued.is_empty() {
            return Ok(());
        }
        let leases: Vec<LeaseRef> = self.queued.iter().map(Attempt::lease).collect();
        let started = self.shared.store.write(|tx| tx.start(self.shared.clock.now(), &leases));
        let started = started.map_err(|error| error.during("starting tasks"))?;
        let queued = std::mem::take(&mut self.queued).into_iter().zip(started);
        let (begin, stale): (Vec<_>, Vec<_>) = queued.partition(|(_, started)| *started);
        self.shared.begin(begin.into_iter().map(|(attempt, _)| attempt).collect());
        stale.iter().for_each(|(attempt, _)| self.shared.forget_stale(attempt.lease()));
        Ok(())
    }

    fn give_queued_back(&mut self) {
        for attempt in self.queued.drain(..) {
            self.shared.give_back(attempt.lease());
        }
    }
}

/// Attempts that are not yet started when the loop ends do not begin.
impl Drop for AdmitLoop {
    fn drop(&mut self) {
        self.give_queued_back();
    }
}

impl Service for AdmitLoop {
    type Report = Step;

    /// The worker forwards cancels to its keeper.
    fn woken_by(&mut self, handle: &LoopHandle) {
        self.admitters.iter_mut().for_each(|admitter| admitter.woken_by(handle));
        handle.wants(Wanted::CANCELS);
    }

    fn tick(&mut self, _: Timestamp) -> Result<Step> {
        let steady = self.shared.steady();
        let mut state = self.shared.state.lock();
        let news = Some(state.news(&self.handle));
        if std::mem::replace(&mut self.news, news) != news {
            state.machine.news();
        }
        // If a worker finds nothing after its own ends, that does not make the wakes by others spurious.
        let own_wakes = state.own_wakes();
        let is_own = std::mem::replace(&mut self.own_wakes, own_wakes) != own_wakes;
        let asks = state.machine.asks(steady);
        drop(state);

        let (mut is_idle, mut failed) = (!asks.is_empty() && !is_own, None);
        for (group, free) in asks {
            // The call for the previous group may have taken long.
            let now = self.shared.clock.now();
            let admission = match self.admitters[group].admit(now, free) {
                Ok(admission) => admission,
                Err(error) => {
                    self.shared.state.lock().machine.not_granted(group);
                    if let Some(before) = failed.replace(error.during("asking for tasks")) {
                        self.shared.report(&before);
                    }
                    continue;
                }
            };
            is_idle &= admission.is_idle();
            let due = (admission.next_due, admission.announces_at);
            let granted = self.shared.granted(now, group, free, admission.granted, due);
            let is_queued = |attempt: &Attempt| attempt.task().state == TaskState::Queued;
            let (queued, started): (Vec<_>, Vec<_>) = granted.into_iter().partition(is_queued);
            self.queued.extend(queued);
            self.shared.begin(started);
        }
        if let Err(error) = self.start_queued()
            && let Some(before) = failed.replace(error)
        {
            self.shared.report(&before);
        }
        match failed {
            Some(error) => Err(error),
            None => {
                let next = self.shared.state.lock().machine.next_ask();
                Ok(Step { next_due: next.map(|at| self.shared.by_clock(at)), is_idle })
            }
        }
    }
}

/// Stores the ends of attempts. Ends that arrive during a call share the next one.
#[derive(Debug)]
pub(super) struct EndLoop(pub(super) Arc<Shared>);

impl Service for EndLoop {
    type Report = Step;

    fn tick(&mut self, now: Timestamp) -> Result<Step> {
        let ends = self.0.state.lock().machine.ends(self.0.steady());
        if !ends.is_empty() {
            let finish = |(lease, outcome): &(LeaseRef, Outcome)| Finish::new(*lease, outcome.clone());
            let finishes: Vec<Finish> = ends.iter().map(finish).collect();
            let mut is_news = false;
            let finish = |tx: &mut Tx<'_>| {
                let finished = tx.last(|tx| tx.finish(now, &finishes));
                is_news = tx.effects().wakes_admission;
                finished
            };
            match self.0.plain.write(finish) {
                Ok(finished) => self.0.stored(&ends, &finished, is_news),
                // Sends the same ends again. The verb is fenced, and reports whether the first call took
                // effect.
                Err(error) => {
                    self.0.not_stored(ends, error.is_indeterminate());
                    return Err(error.during("storing the ends of attempts"));
                }
            }
        }
        // After the ends: an attempt whose end was stored was not lost.
        let losses = self.0.tell_sure_losses();
        let next = self.0.state.lock().machine.next_end().into_iter().chain(losses).min();
        Ok(Step { next_due: next.map(|at| self.0.by_clock(at)), is_idle: false })
    }
}

/// Returns true if no later call can succeed.
pub(super) fn is_fatal(error: &Error) -> bool {
    matches!(error, Error::Invalid(_))
}
