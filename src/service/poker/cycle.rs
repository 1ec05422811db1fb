//! One tick of a poker.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use super::engine::{Collected, Setting, Standing};
use super::options::Options;
use super::report::PokeReport;
use super::worker::Poker;
use crate::error::{Invalid, Result};
use crate::sensor::Scope;
use crate::sensor::plan::{Due, GroupRef, Outcome};
use crate::service::driver::{LoopHandle, Service};
use crate::service::observer::{Tick, spans};
use crate::service::wanted::Wanted;
use crate::time::Timestamp;

/// A tick should follow within this time while pokes run and nothing would wake the loop.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// A tick checks within this time whether a poke delays others.
const LOOK_SOON: Duration = Duration::from_millis(20);

/// The most shards. Each has a row that workers read when they renew.
const MOST_SHARDS: NonZeroU32 = NonZeroU32::MIN.saturating_add(65_535);

/// The longest wait of a tick, whatever the options say.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

impl Poker {
    /// Takes back pokes that have not begun and for which no sensor waits any more.
    pub(super) fn withdraw(&mut self) {
        if !self.plan.has_unwanted() {
            return;
        }
        let plan = &mut self.plan;
        let mut withdrawn = self.kinds.withdraw(|group| !plan.is_unwanted(group));
        withdrawn.extend(self.engine.withdraw(|job| !plan.is_unwanted(job.group)));
        withdrawn.into_iter().for_each(|group| plan.put_back(group));
    }

    /// Sorts overdue groups into those to poke, those that hang, and those that this worker does not serve.
    fn take_due(&mut self, now: Timestamp, report: &mut PokeReport) {
        let mut passed_over: Vec<(GroupRef, Outcome)> = Vec::new();
        while let Some(Due { group, hangs }) = self.plan.due(now) {
            report.due += 1;
            match self.plan.target(group).and_then(|(kind, _)| self.kinds.get_mut(kind)) {
                _ if hangs => passed_over.push((group, Outcome::StillHangs)),
                Some(kind) => kind.due.push_back(group),
                None => passed_over.push((group, Outcome::NotServed)),
            }
        }
        passed_over.into_iter().for_each(|(group, why)| self.pass_over(group, why, now, report));
    }

    /// Queues the groups to poke, as far as there is room. Kinds with too many hung calls are left out: their groups
    /// count as unreachable. Returns how many jobs it queued, and how many of this tick it took back.
    fn queue(&mut self, now: Timestamp, report: &mut PokeReport) -> (usize, usize) {
        let (mut held_back, mut queued, mut taken_back) = (Vec::new(), 0, 0);
        for (name, kind) in self.kinds.iter_mut() {
            if let Some(jobs) = self.engine.hold_back(name) {
                taken_back += jobs.iter().filter(|job| job.turn == self.plan.turn()).count();
                held_back.extend(jobs.into_iter().map(|job| job.group).chain(kind.due.drain(..)));
                continue;
            }
            let room = if kind.due.is_empty() { 0 } else { self.engine.room(name) };
            let mut jobs = Vec::with_capacity(room.min(kind.due.len()));
            while jobs.len() < room {
                let Some(group) = kind.due.pop_front() else { break };
                jobs.extend(self.plan.job(group, now));
            }
            queued += jobs.len();
            if !jobs.is_empty() {
                self.engine.queue(name, jobs);
            }
        }
        held_back.into_iter().for_each(|group| self.pass_over(group, Outcome::KindHangs, now, report));
        (queued, taken_back)
    }

    /// Passes this tick's knowledge to the engine, and until when pokes may begin because the leases of its shards
    /// certainly last.
    fn set_engine(&self, now: Timestamp, began: Instant) {
        let until = self.renewal.alive_until.filter(|_| !self.plan.held().is_empty()).unwrap_or(now);
        let length = until.saturating_duration_since(now).saturating_sub(self.plan.rules.lease / 6);
        let Options { threads, max_hung, .. } = self.options;
        let until = began.checked_add(length);
        self.engine.set(Setting { threads, max_hung, knew: self.plan.turn(), until });
    }

    /// Polls overdue groups, and processes their outcomes until all have arrived or [`Self::wait_for_answers`] has
    /// passed.
    fn poke(&mut self, now: Timestamp, began: Instant, report: &mut PokeReport) {
        self.set_engine(now, began);
        let end = Instant::now() + self.options.wait_for_answers.min(LONGEST_WAIT);
        let mut collected = Collected::default();
        // Jobs of this tick that were queued and have no outcome yet. Outcomes of earlier ticks are processed too, but
        // the tick waits only for its own. So a long poke delays only the tick that began it.
        let mut open: usize = 0;
        // Queues are bounded, so overdue groups are queued as outcomes make room. The loop ends when the time
        // is up; when every job has its outcome; when nothing is open and nothing moves; or when nothing runs
        // and nothing may begin, because the leases are about to end or every thread hangs.
        loop {
            let (queued, taken_back) = self.queue(now, report);
            open = (open + queued).saturating_sub(taken_back);
            self.engine.collect(&mut collected);
            let of_this_tick = collected.answers.iter().filter(|answer| answer.turn == self.plan.turn());
            open = open.saturating_sub(of_this_tick.count());
            let progress = queued > 0 || !collected.answers.is_empty();
            self.take_up(&mut collected, now, report);
            let time = Instant::now();
            let queued_all = self.kinds.waiting() == 0;
            if time >= end || open == 0 && (queued_all || !progress) {
                return;
            }
            if progress && !queued_all {
                continue;
            }
            let standing = self.engine.standing();
            let may_begin = standing.setting.may_begin(time) && standing.threads > 0;
            if standing.running == 0 && !standing.news && !may_begin {
                return;
            }
            // An outcome ends the sleep, but the time to check a call does not. For a call that has not begun, that
            // time is unknown.
            let soon = (standing.queued > 0).then_some(time + LOOK_SOON);
            self.engine.wait([standing.check_at, soon].into_iter().flatten().fold(end, Instant::min));
        }
    }

    /// Takes back jobs that may no longer begin. A later tick queues them again.
    fn take_back(&mut self) {
        if self.engine.standing().setting.may_begin(Instant::now()) {
            return;
        }
        for group in self.engine.withdraw(|_| false).into_iter().rev() {
            if let Some(kind) = self.plan.target(group).and_then(|(kind, _)| self.kinds.get_mut(kind)) {
                kind.due.push_front(group);
            }
        }
    }

    /// Returns when the next tick has work.
    fn due_next(&self, now: Timestamp, standing: Standing, waiting: usize) -> Option<Timestamp> {
        // A worker whose name is taken follows nothing.
        let follow = self.renewal.name_taken_until.is_none().then(|| now + self.options.refresh_every);
        let planned = self.plan.next_due(now);
        let time = Instant::now();
        let again = !self.plan.held().is_empty() && !standing.setting.may_begin(time);
        let begin = (waiting > 0).then(|| if again { now } else { now + LOOK_AGAIN });
        let look = (standing.running > 0 && !self.is_woken).then(|| now + LOOK_AGAIN);
        let check = standing.check_at.map(|at| now + at.saturating_duration_since(time));
        let read = (!self.unread.is_empty()).then_some(now);
        [planned, self.renewal.next_at, follow, begin, look, check, read].into_iter().flatten().min()
    }

    /// Runs one tick, up to the point where it fails.
    fn cycle(&mut self, now: Timestamp, report: &mut PokeReport) -> Result<()> {
        if self.plan.rules.lease < Duration::from_millis(10) {
            return Err(Invalid::Duration { what: "a worker's lease", expected: "at least 10 ms" }.into());
        }
        if self.plan.rules.shards > MOST_SHARDS {
            return Err(Invalid::Duration { what: "the number of shards", expected: "at most 65536" }.into());
        }
        let (began, last_tick) = (Instant::now(), self.plan.now());
        if !self.plan.begin(now) {
            self.forget_renewal();
            self.withdraw();
        }
        report.gained = self.hold_shards(now, last_tick)?;
        report.loaded = self.follow(now)?;
        self.withdraw();
        self.take_due(now, report);
        self.poke(now, began, report);
        self.take_back();
        self.plan.end_overdue(now);
        let stored = self.store_ends(now, report);
        report.log_panics += std::mem::take(&mut self.log_panics);
        stored?;

        let standing = self.engine.standing();
        report.waiting = self.kinds.waiting() + standing.queued;
        (report.in_flight, report.hung) = (standing.running, standing.hung);
        report.threads = standing.threads;
        report.backed_off = self.plan.outages();
        let own = self.plan.held().values().filter(|scope| matches!(scope, Scope::Except(_)));
        report.shards = u32::try_from(own.count()).unwrap_or(u32::MAX);
        (report.unclaimed, report.name_taken_until) = (self.renewal.unclaimed, self.renewal.name_taken_until);
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
        self.counted.add(now, &report.by_kind);
        self.emitter.ticked(&tick, Some(&report), answer.as_ref().err());
        self.emit_kinds();
        if answer.is_ok() {
            report.emit_gauges(&self.emitter);
        }
        answer.map(|()| report)
    }

    fn woken_by(&mut self, handle: &LoopHandle) {
        handle.wants(Wanted::SENSORS);
        self.is_woken = true;
        self.engine.wakes(handle.clone());
    }
}
