//! Admission, and what a worker does with the tasks that it was granted.

use std::time::Duration;

use stationmaster::{LeaseRef, TaskRecord, Timestamp};

use super::{Day, Event};
use crate::calendar::seconds_since;
use crate::trouble::Trouble;

impl Day<'_> {
    /// Lets workers admit, the one with the most free places first, until nothing more can start.
    pub(super) fn admit(&mut self, now: Timestamp) -> Result<(), Trouble> {
        let seen = self.news.seen();
        if self.heard == Some(seen) && self.admit_at.is_none_or(|at| at > now) {
            return self.expect_nothing_fits(now);
        }
        loop {
            let seen = self.news.seen();
            let live = self.workers.iter_mut().enumerate();
            let live = live.filter_map(|(at, worker)| Some((at, worker.process.as_mut()?)));
            // Among equals, the first one.
            let most = live.min_by_key(|(at, process)| (usize::MAX - process.free(), *at));
            let most = most.filter(|(_, process)| process.free() > 0);
            let (worker, admission, free) = match most {
                Some((worker, process)) => {
                    let free = process.free();
                    (worker, process.admitter.admit(now, free)?, free)
                }
                None => (0, self.asker.admit(now, 0)?, 0),
            };
            let admitted = admission.granted.len();
            self.grant(worker, admission.granted, now)?;
            if admitted == 0 || admitted < free && self.news.seen() == seen {
                self.heard = Some(self.news.seen());
                self.admit_at = admission.next_due;
                self.ledger.all_are_admitted();
                for lane in &admission.refusals {
                    self.ledger.waits(&lane.lane.pool, lane.reason.name(), lane.tasks);
                }
                return Ok(());
            }
        }
    }

    /// Called when the store reported no news. Then no task may fit that did not fit before.
    pub(super) fn expect_nothing_fits(&mut self, now: Timestamp) -> Result<(), Trouble> {
        if self.workers.iter().filter_map(|worker| worker.process.as_ref()).all(|process| process.free() == 0)
        {
            return Ok(());
        }
        let refused = self.asker.admit(now, 0)?.refusals;
        if refused.iter().any(|lane| lane.reason.name() == "budget_spent") {
            self.ledger.violation(now, "a task fits, and no admitter was woken".into());
        }
        Ok(())
    }

    /// A worker's part after a grant: it starts the tasks, and registers those that must wait.
    pub(super) fn grant(
        &mut self,
        worker: usize,
        granted: Vec<TaskRecord>,
        now: Timestamp,
    ) -> Result<(), Trouble> {
        if granted.is_empty() {
            return Ok(());
        }
        for task in &granted {
            let since = self.lost_at.remove(&task.key).unwrap_or(task.ready_at);
            self.ledger.waited(&task.lane.pool, since, now);
            self.ledger.take(&task.lane.pool, task.held_slots);
            let waited = seconds_since(since, now);
            let attempt = task.attempt;
            let what = format_args!("admitted {} attempt {attempt} after {waited:.6}", task.key);
            self.trace.note(now, what)?;
        }
        self.counts.attempts += granted.len();
        for pool in self.store.read(|tx| tx.all_pools())? {
            self.ledger.compare(now, &pool.spec.name, pool.used);
        }
        if self.reap_at.is_none() {
            self.reap_at = Some(now + self.workload.workers.lease_s);
        }

        let leases: Vec<LeaseRef> = granted.iter().map(TaskRecord::lease_ref).collect();
        self.store.write(|tx| tx.start(now, &leases))?;
        let mut sensors = Vec::new();
        for task in granted {
            match self.sensor_of(&task, now)? {
                Some(sensor) => sensors.push((sensor, task)),
                None => self.work(worker, task, now),
            }
        }
        if sensors.is_empty() { Ok(()) } else { self.hand_over(&sensors, now) }
    }

    /// The worker begins an attempt.
    pub(super) fn work(&mut self, worker: usize, task: TaskRecord, now: Timestamp) {
        let (lease, name) = (task.lease_ref(), task.key.to_string());
        let takes = self.runs.place(&task.key).and_then(|place| self.runs.spec(place).takes_s);
        let roll = self.dice.roll("takes", &name, u64::from(task.attempt));
        let takes = takes.map_or(Duration::ZERO, |takes| takes.at(roll));
        self.calendar.put(now + takes, Event::WorkEnds { worker, lease });
        if let Some(process) = &mut self.workers[worker].process {
            let kept = process.keeper.keep(&task);
            process.at_work.insert(lease, (task, kept));
        }
    }
}
