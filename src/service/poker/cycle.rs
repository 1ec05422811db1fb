//! One tick of a poker.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::crew::{Crew, Haul, Standing};
use super::options::Options;
use super::report::PokeReport;
use super::worker::{Pending, Poker};
use crate::error::{Invalid, Result};
use crate::sensor::plan::{Due, Outcome, Rules};
use crate::service::driver::{LoopHandle, Service};
use crate::service::observer::{Tick, spans};
use crate::time::Timestamp;

/// A tick should follow within this time while pokes run and nothing would wake its loop.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A tick checks within this time whether a poke delays others.
const LOOK_SOON: Duration = Duration::from_millis(20);

/// The longest that a tick waits, whatever the options say.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

impl Poker {
    pub(super) fn rules(&self) -> Rules {
        let Options { min_interval, max_pause, lease, shard_codes, shards, .. } = self.options;
        Rules {
            min_interval,
            max_pause,
            window: self.options.retry_window,
            usual_timeout: self.options.poke_timeout,
            max_timeout: self.options.max_poke_timeout,
            lease,
            codes: shard_codes,
            shards,
        }
    }

    /// Takes back queued pokes that no sensor waits for any more.
    pub(super) fn withdraw(&mut self) {
        if !self.plan.has_deserted() {
            return;
        }
        let (rules, plan) = (self.rules(), &mut self.plan);
        let mut withdrawn = Vec::new();
        for pending in &mut self.pending {
            pending.groups.retain(|group| {
                let keep = !plan.is_deserted(*group);
                if !keep {
                    withdrawn.push(*group);
                }
                keep
            });
        }
        if let Some(crew) = &mut self.crew {
            withdrawn.extend(crew.withdraw(|job| !plan.is_deserted(job.group)));
        }
        withdrawn.into_iter().for_each(|group| plan.put_back(group, rules));
    }

    /// Sorts overdue groups: those to poke, those that hang, and those that this worker cannot poke.
    fn take_due(&mut self, now: Timestamp, report: &mut PokeReport) {
        let rules = self.rules();
        let mut hung = Vec::new();
        let mut unknown = Vec::new();
        while let Some(Due { group, kind, hangs }) = self.plan.due(now, rules) {
            report.due += 1;
            if hangs {
                hung.push(group);
            } else if !self.kinds.is_known(kind) {
                unknown.push(group);
            } else if let Some(pending) = self.pending.iter_mut().find(|pending| pending.kind == kind) {
                pending.groups.push_back(group);
            }
        }
        hung.into_iter().for_each(|group| self.pass_over(group, Outcome::StillHangs, now, report));
        unknown.into_iter().for_each(|group| self.pass_over(group, Outcome::NotServed, now, report));
    }

    /// Assigns the groups to poke, as far as there are places for them. Returns how many jobs it assigned.
    fn hand_out(&mut self, now: Timestamp) -> usize {
        let rules = self.rules();
        let Some(crew) = &mut self.crew else { return 0 };
        let mut handed = 0;
        for (kind, pending) in self.pending.iter_mut().enumerate() {
            let places = if pending.groups.is_empty() { 0 } else { crew.places(kind) };
            let mut jobs = Vec::with_capacity(places.min(pending.groups.len()));
            while jobs.len() < places {
                let Some(group) = pending.groups.pop_front() else { break };
                jobs.extend(self.plan.job(group, now, rules));
            }
            handed += jobs.len();
            if !jobs.is_empty() {
                crew.hand_out(kind, jobs);
            }
        }
        handed
    }

    /// Marks due groups as unreachable if too many calls of their kind are hung. Returns how many jobs of
    /// this tick it took back for that.
    fn hold_back(&mut self, now: Timestamp, report: &mut PokeReport) -> usize {
        let (mut held_back, mut taken_back) = (Vec::new(), 0);
        let Some(crew) = &mut self.crew else { return 0 };
        for (kind, pending) in self.pending.iter_mut().enumerate() {
            let Some(jobs) = crew.hold_back(kind) else { continue };
            taken_back += jobs.iter().filter(|job| job.turn == self.plan.turn()).count();
            held_back.extend(jobs.into_iter().map(|job| job.group).chain(pending.groups.drain(..)));
        }
        held_back.into_iter().for_each(|group| self.pass_over(group, Outcome::KindHangs, now, report));
        taken_back
    }

    /// Creates the threads' queues, if there are none yet.
    fn hire(&mut self) {
        if self.crew.is_some() {
            return;
        }
        let former = std::mem::take(&mut self.former);
        let mut crew = Crew::new(self.options.threads, self.options.max_hung, former);
        self.pending.clear();
        for (number, name, kind) in self.kinds.known() {
            if let Some(way) = &kind.way {
                crew.add_kind(name.clone(), way.clone(), kind.at_once);
                self.pending.push(Pending { kind: number, groups: VecDeque::new() });
            }
        }
        if let Some(handle) = &self.handle {
            crew.wake(handle.clone());
        }
        self.crew = Some(crew);
    }

    /// Returns until when pokes may begin, because the leases of its shards certainly last.
    fn begin_until(&self, now: Timestamp, began: Instant) -> Option<Instant> {
        let until = self.plan.held().values().min().copied().unwrap_or(now);
        let length = until.saturating_duration_since(now).saturating_sub(self.options.lease / 6);
        began.checked_add(length)
    }

    /// Has overdue groups poked, and processes their outcomes until all have arrived or
    /// [`Self::wait_for_answers`] has passed.
    fn poke(&mut self, now: Timestamp, began: Instant, report: &mut PokeReport) {
        let begin_until = self.begin_until(now, began);
        if let Some(crew) = &self.crew {
            crew.begin_until(begin_until);
        }
        let end = Instant::now() + self.options.wait_for_answers.min(LONGEST_WAIT);
        let mut haul = Haul::default();
        // Jobs of this tick that were assigned and not answered. Answers to earlier ticks are processed too,
        // but the tick waits only for its own. So a long poke delays only the tick that began it.
        let mut open = 0;
        // Queues are bounded, so overdue groups are assigned as answers make room. The loop ends when the
        // time is up; when everything is answered; when nothing is open and nothing moves; or when nothing
        // runs and nothing may begin, because the leases are about to end or every thread hangs.
        loop {
            // First, so that no job of a kind whose calls hang is assigned below. What it takes back needs no
            // answer.
            open -= self.hold_back(now, report).min(open);
            let handed = self.hand_out(now);
            open += handed;
            let Some(crew) = &mut self.crew else { return };
            crew.collect(&mut haul);
            open -= haul.answers.iter().filter(|answer| answer.turn == self.plan.turn()).count().min(open);
            let progress = handed > 0 || !haul.answers.is_empty();
            self.take_up(&mut haul, now, report);
            let time = Instant::now();
            let handed_all = self.pending.iter().all(|kind| kind.groups.is_empty());
            if time >= end || open == 0 && (handed_all || !progress) {
                return;
            }
            if progress && !handed_all {
                continue;
            }
            let Some(crew) = &self.crew else { return };
            let standing = crew.standing();
            if standing.running == 0 && (!crew.may_begin() || crew.usable() == 0) {
                return;
            }
            // An answer ends the sleep. A deadline does not, and neither does a batch behind a slow call. The
            // tick itself must look for those.
            let soon = time + LOOK_SOON;
            let mut until = standing.deadline.map_or(end, |deadline| deadline.min(end));
            // Deadlines of calls that have not begun are not known yet.
            if standing.stuck || standing.queued > 0 || standing.running < open {
                until = until.min(soon);
            }
            crew.wait(until);
        }
    }

    /// Takes back jobs that may no longer begin. A later tick assigns them again.
    fn take_back(&mut self) {
        let Some(crew) = self.crew.as_mut().filter(|crew| !crew.may_begin()) else { return };
        for group in crew.withdraw(|_| false).into_iter().rev() {
            let kind = self.plan.kind(group);
            if let Some(pending) = self.pending.iter_mut().find(|pending| Some(pending.kind) == kind) {
                pending.groups.push_front(group);
            }
        }
    }

    /// Returns when the next tick has something to do.
    fn due_next(&self, now: Timestamp, standing: Standing, waiting: usize) -> Option<Timestamp> {
        // A worker whose name is taken has nothing to follow.
        let follow = self.name_taken_until.is_none().then(|| now + self.options.refresh_every);
        let planned = self.plan.next_due(now, self.rules());
        let mut due: Vec<Timestamp> = [planned, self.renew_at, follow].into_iter().flatten().collect();
        let crew = self.crew.as_ref();
        if waiting > 0 && !self.plan.held().is_empty() && crew.is_some_and(|crew| !crew.may_begin()) {
            due.push(now);
        }
        if waiting > 0 || standing.stuck || standing.running > 0 && self.handle.is_none() {
            due.push(now + LOOK_AGAIN);
        }
        if let Some(deadline) = standing.deadline {
            due.push(now + deadline.saturating_duration_since(Instant::now()));
        }
        due.into_iter().min()
    }
}

impl Poker {
    /// Runs one tick, up to where it fails.
    fn cycle(&mut self, now: Timestamp, report: &mut PokeReport) -> Result<()> {
        if self.options.lease < Duration::from_millis(10) {
            return Err(Invalid::Duration { what: "a worker's lease", expected: "at least 10 ms" }.into());
        }
        let began = Instant::now();
        if !self.plan.begin(now) {
            self.forget_renewal();
            self.withdraw();
        }
        let gained = self.hold_shards(now)?;
        report.gained = gained.len();
        report.loaded = match self.follow(now, &gained) {
            Ok(loaded) => loaded,
            Err(error) => {
                let mut kept = self.plan.held().clone();
                kept.retain(|shard, _| !gained.contains_key(shard));
                self.hold(kept);
                self.renew_at = None;
                return Err(error);
            }
        };
        self.kinds.sweep(|| self.plan.kinds());
        self.hire();
        if let Some(crew) = &mut self.crew {
            crew.followed(self.plan.turn());
        }
        self.withdraw();
        self.take_due(now, report);
        self.poke(now, began, report);
        self.take_back();
        self.plan.end_overdue(now, self.rules());
        let stored = self.store_ends(now, report);
        report.log_panics += std::mem::take(&mut self.log_panics);
        stored?;

        let standing = self.crew.as_ref().map(Crew::standing).unwrap_or_default();
        let pending: usize = self.pending.iter().map(|kind| kind.groups.len()).sum();
        report.waiting = pending + standing.queued;
        (report.in_flight, report.hung) = (standing.running, standing.hung);
        report.threads = self.crew.as_ref().map_or(0, Crew::usable);
        report.backed_off = self.plan.outages();
        report.shards = u32::try_from(self.plan.held().len()).unwrap_or(u32::MAX);
        (report.unclaimed, report.name_taken_until) = (self.unclaimed, self.name_taken_until);
        report.sensors = self.plan.sensors();
        report.groups = self.plan.groups();
        self.count_kinds(report);
        report.next_due = self.due_next(now, standing, report.waiting);
        report.duration = began.elapsed();
        Ok(())
    }
}

impl Service for Poker {
    type Report = PokeReport;

    fn tick(&mut self, now: Timestamp) -> Result<PokeReport> {
        let (tick, mut report) = (Tick::begin("poker", spans::cycle(&self.name)), PokeReport::default());
        let answer = self.cycle(now, &mut report);
        self.emitter.ticked(&tick, Some(&report), answer.as_ref().err());
        self.counts.emit(&self.emitter);
        self.emit_kinds(&report);
        if answer.is_ok() {
            report.emit_gauges(&self.emitter);
        }
        answer.map(|()| report)
    }

    fn woken_by(&mut self, handle: &LoopHandle) {
        self.handle = Some(handle.clone());
        if let Some(crew) = &self.crew {
            crew.wake(handle.clone());
        }
    }
}
