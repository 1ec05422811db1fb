//! The engine's state: a value that receives events and their instants. It starts no thread and reads no clock.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Instant;

use super::call::{Call, Phase, STUCK, Work};
use super::line::{Hanging, Line};
use crate::id::SensorKind;
use crate::sensor::plan::{Answer, GroupRef, Job};
use crate::service::driver::LoopHandle;
use crate::service::poker::poke::Probe;

/// The most jobs of a kind in its queue.
const QUEUE: usize = 4096;

/// The results that ticks collect.
#[derive(Default)]
pub(in crate::service::poker) struct Collected {
    pub(in crate::service::poker) answers: Vec<Answer>,
    /// Groups whose hung poke has returned.
    pub(in crate::service::poker) returned: Vec<GroupRef>,
}

/// A snapshot of the engine.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::service::poker) struct Standing {
    /// Jobs that no call has taken.
    pub(in crate::service::poker) queued: usize,
    /// Jobs of calls that run and do not hang.
    pub(in crate::service::poker) running: usize,
    /// Calls that hang.
    pub(in crate::service::poker) hung: usize,
    /// How many threads there may be.
    pub(in crate::service::poker) threads: usize,
    /// Whether there may be outcomes to collect.
    pub(in crate::service::poker) news: bool,
    /// When the next call must be checked.
    pub(in crate::service::poker) check_at: Option<Instant>,
    pub(in crate::service::poker) setting: Setting,
}

/// What a tick sets in the engine.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::service::poker) struct Setting {
    pub(in crate::service::poker) threads: usize,
    pub(in crate::service::poker) max_hung: usize,
    /// The last turn that had read the store.
    pub(in crate::service::poker) knew: u64,
    /// No poke begins from this instant on.
    pub(in crate::service::poker) until: Option<Instant>,
}

impl Setting {
    /// Returns true while pokes may begin.
    pub(in crate::service::poker) fn may_begin(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

/// The queues, the calls, and the results for the tick.
#[derive(Default)]
pub(super) struct State {
    lines: BTreeMap<SensorKind, Line>,
    /// The kind whose turn was last, among those on runtimes and among those on threads.
    turns: [Option<SensorKind>; 2],
    /// Calls that have not ended, and when each must be checked.
    calls: HashMap<u64, (Arc<Call>, Option<Instant>)>,
    checks: BTreeSet<(Instant, u64)>,
    begun: u64,
    pub(super) setting: Setting,
    /// Threads that have been hanging since before the poker last left.
    former: usize,
    /// Threads that do not hang.
    pub(super) threads: usize,
    /// Threads that wait for work.
    pub(super) idle: usize,
    /// How many of these were called to work.
    pub(super) called: usize,
    /// Whether threads should end.
    pub(super) closing: bool,
    collected: Collected,
    /// Whether there is something to collect.
    pub(super) news: bool,
    /// Whether the tick, or its loop, has not been notified of it yet.
    pub(super) unnotified: bool,
    /// Whether a tick waits for news.
    pub(super) awaited: bool,
    /// Woken if no tick waits.
    pub(super) handle: Option<LoopHandle>,
}

impl State {
    /// Sets how a kind is poked from now on. Drops its queue.
    pub(super) fn serve(&mut self, kind: SensorKind, probe: Probe, at_once: usize) {
        let line = self.lines.entry(kind).or_insert_with(|| Line::new(probe.clone(), at_once));
        line.jobs.clear();
        (line.probe, line.at_once) = (probe, at_once);
    }

    /// Returns how many threads hang.
    fn hanging(&self) -> Hanging {
        let hung: usize = self.lines.values().filter(|line| line.needs_threads()).map(|line| line.hung).sum();
        Hanging { hung: hung + self.former, max_hung: self.setting.max_hung }
    }

    pub(super) fn standing(&self) -> Standing {
        let lines = || self.lines.values();
        let Hanging { hung, max_hung } = self.hanging();
        Standing {
            queued: lines().map(|line| line.jobs.len()).sum(),
            running: lines().map(|line| line.taken).sum(),
            hung: lines().map(|line| line.hung).sum::<usize>() + self.former,
            threads: self.setting.threads.max(1).saturating_sub(hung.saturating_sub(max_hung)),
            news: self.news,
            check_at: self.checks.first().map(|(at, _)| *at),
            setting: self.setting,
        }
    }

    /// Returns how many more jobs of this kind the queue can take.
    pub(super) fn room(&self, kind: &SensorKind) -> usize {
        self.lines.get(kind).map_or(0, |line| QUEUE.saturating_sub(line.jobs.len()))
    }

    pub(super) fn queue(&mut self, kind: &SensorKind, jobs: Vec<Job>) {
        if let Some(line) = self.lines.get_mut(kind) {
            line.jobs.extend(jobs);
        }
    }

    /// Takes back the jobs that no call has taken and that are no longer wanted.
    pub(super) fn withdraw(&mut self, mut wanted: impl FnMut(&Job) -> bool) -> Vec<GroupRef> {
        let mut withdrawn = Vec::new();
        for line in self.lines.values_mut() {
            line.jobs.retain(|job| {
                wanted(job) || {
                    withdrawn.push(job.group);
                    false
                }
            });
        }
        withdrawn
    }

    /// Takes back the jobs of a kind that no call has taken, if too many of its calls hang to begin another.
    /// Returns `None` if the kind is not held back.
    pub(super) fn hold_back(&mut self, kind: &SensorKind) -> Option<Vec<Job>> {
        let hanging = self.hanging();
        let line = self.lines.get_mut(kind).filter(|line| line.is_held_back(hanging))?;
        Some(line.jobs.drain(..).collect())
    }

    /// Begins a call, on a thread or on a runtime, if there is work that may begin. Kinds take turns, except those
    /// at their limit.
    pub(super) fn begin(&mut self, on_thread: bool, now: Instant) -> Option<Arc<Call>> {
        if !self.setting.may_begin(now) {
            return None;
        }
        let hanging = self.hanging();
        let turn = self.turns.get_mut(usize::from(on_thread))?;
        let later = turn.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut in_turn = self.lines.range::<SensorKind, _>((later, Bound::Unbounded)).chain(&self.lines);
        let may_begin = |line: &Line| line.needs_threads() == on_thread && line.may_begin(hanging) > 0;
        let kind = in_turn.find(|(_, line)| may_begin(line))?.0.clone();
        let line = self.lines.get_mut(&kind)?;
        let jobs = line.take(self.threads);
        *turn = Some(kind.clone());
        self.begun += 1;
        let call = Arc::new(Call::new(self.begun, (kind, &line.probe), jobs, self.setting, now));
        self.list(&call, call.work.lock().check_at());
        Some(call)
    }

    fn list(&mut self, call: &Arc<Call>, check_at: Option<Instant>) {
        self.checks.extend(check_at.map(|at| (at, call.number)));
        self.calls.insert(call.number, (Arc::clone(call), check_at));
    }

    /// Ends a call after its runner has left it. Returns false if it had been given up.
    pub(super) fn end(&mut self, call: &Call, now: Instant) -> bool {
        let Some((_, check_at)) = self.calls.remove(&call.number) else { return false };
        let mut work = call.work.lock();
        self.note();
        let Some(line) = self.lines.get_mut(&call.kind) else { return false };
        match work.phase {
            Phase::Runs => {}
            Phase::Drops => {
                line.running -= 1;
                return false;
            }
            Phase::Hangs => {
                line.hung -= 1;
                self.collected.returned.extend(work.groups());
                return false;
            }
            Phase::Forgotten => {
                self.former -= usize::from(call.runtime().is_none());
                return false;
            }
        }
        self.checks.remove(&(check_at.unwrap_or(now), call.number));
        line.running -= 1;
        line.put_back(std::mem::take(&mut work.todo));
        line.taken -= work.made;
        line.took(work.made, now.saturating_duration_since(call.began));
        self.collected.answers.append(&mut work.done);
        true
    }

    /// Checks the calls that are due for a check. Returns those whose futures are to be dropped.
    pub(super) fn check(&mut self, now: Instant) -> Vec<Arc<Call>> {
        let mut abandoned = Vec::new();
        while let Some((_, number)) = self.checks.first().filter(|(at, _)| *at <= now).copied() {
            self.checks.pop_first();
            let Some((call, _)) = self.calls.remove(&number) else { continue };
            abandoned.extend(self.look_at(&call, now));
        }
        abandoned
    }

    fn look_at(&mut self, call: &Arc<Call>, now: Instant) -> Option<Arc<Call>> {
        let mut work = call.work.lock();
        let line = self.lines.get_mut(&call.kind)?;
        let is_overdue = work.is_overdue(now);
        if is_overdue || work.is_stuck(now) {
            // Its pokes should have been quick together. Another call takes the rest, and the next calls of this
            // kind take fewer. This call continues with only the running poke.
            line.put_back(std::mem::take(&mut work.todo));
            line.took(1, STUCK);
        }
        self.collected.answers.append(&mut work.done);
        if is_overdue {
            return self.give_up(call, &mut work);
        }
        self.list(call, work.check_at());
        None
    }

    /// Gives up a call. Returns it if its future is to be dropped.
    fn give_up(&mut self, call: &Arc<Call>, work: &mut Work) -> Option<Arc<Call>> {
        let line = self.lines.get_mut(&call.kind)?;
        // A future that is not being polled ends here. Otherwise it ends when its task sees that it was given up.
        let hangs = work.future.is_none();
        line.taken -= work.made + work.asked.len();
        line.running -= usize::from(hangs);
        line.hung += usize::from(hangs);
        self.threads -= usize::from(line.needs_threads());
        call.overran(work, hangs);
        self.collected.answers.append(&mut work.done);
        self.calls.insert(call.number, (Arc::clone(call), None));
        (!hangs).then(|| Arc::clone(call))
    }

    /// Returns the results that were not collected yet.
    pub(super) fn collect(&mut self) -> Collected {
        self.news = false;
        std::mem::take(&mut self.collected)
    }

    /// Notes that there is something to collect.
    pub(super) fn note(&mut self) {
        self.unnotified |= !self.news;
        self.news = true;
    }

    /// Calls as many idle threads as there is work that may begin. Returns how many it called.
    pub(super) fn call_threads(&mut self, now: Instant) -> usize {
        let more = self.wanted(now).min(self.idle).saturating_sub(self.called);
        self.called += more;
        more
    }

    /// Adds the threads that the work needs beyond the idle ones, as far as the limit allows. Returns how many.
    pub(super) fn hire(&mut self, now: Instant) -> usize {
        let wanted = self.wanted(now).saturating_sub(self.idle);
        let more = wanted.min(self.standing().threads.saturating_sub(self.threads));
        self.threads += more;
        more
    }

    fn wanted(&self, now: Instant) -> usize {
        let hanging = self.hanging();
        let lines = self.lines.values().filter(|line| line.needs_threads());
        if self.setting.may_begin(now) { lines.map(|line| line.may_begin(hanging)).sum() } else { 0 }
    }

    /// Stops beginning pokes, drops the queues, and gives up unanswered futures. Returns those whose futures are to be
    /// dropped.
    pub(super) fn close(&mut self) -> Vec<Arc<Call>> {
        (self.setting.until, self.closing) = (None, true);
        let mut abandoned = Vec::new();
        let calls: Vec<Arc<Call>> = self.calls.values().map(|(call, _)| Arc::clone(call)).collect();
        for call in calls {
            let mut work = call.work.lock();
            let Some(line) = self.lines.get_mut(&call.kind) else { continue };
            line.put_back(std::mem::take(&mut work.todo));
            if work.phase == Phase::Runs && call.runtime().is_some() {
                line.taken -= work.asked.len();
                work.asked.clear();
                let listed = self.calls.remove(&call.number).and_then(|(_, at)| at);
                self.checks.remove(&(listed.unwrap_or(call.began), call.number));
                abandoned.extend(self.give_up(&call, &mut work));
            }
        }
        self.lines.values_mut().for_each(|line| line.jobs.clear());
        abandoned
    }

    /// Forgets the calls that hang, but keeps their number. New threads may start.
    pub(super) fn closed(&mut self) {
        self.closing = false;
        self.collected = Collected::default();
        self.former = self.hanging().hung;
        self.lines.values_mut().for_each(|line| line.hung = 0);
        self.calls.values().for_each(|(call, _)| call.work.lock().phase = Phase::Forgotten);
    }
}
