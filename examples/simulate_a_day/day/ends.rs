//! How attempts end, and the consequences.

use stationmaster::ops::{Finish, Finished};
use stationmaster::run::{RunClose, RunStatus};
use stationmaster::service::Service;
use stationmaster::{LeaseRef, NewTask, TaskKey, TaskRecord, TaskState, Timestamp};

use super::Day;
use crate::calendar::seconds_since;
use crate::trouble::Trouble;

impl Day<'_> {
    pub(super) fn end_work(&mut self, worker: usize, lease: LeaseRef, now: Timestamp) -> Result<(), Trouble> {
        let process = self.workers[worker].process.as_mut();
        // A crashed worker ends nothing.
        let Some((task, _kept)) = process.and_then(|process| process.at_work.remove(&lease)) else {
            return Ok(());
        };
        let Some(place) = self.runs.place(&task.key) else { return Ok(()) };
        let (name, attempt) = (task.key.to_string(), u64::from(task.attempt));
        let finish_ = match self.dice.happens(self.runs.spec(place).fails, "fails", &name, attempt) {
            true => Finish::failed(lease, "simulated"),
            false => Finish::success(lease),
        };
        self.ledger.give_back(&task.lane.pool, task.held_slots);
        let finished = self.store.write(|tx| tx.finish(now, std::slice::from_ref(&finish_)))?;
        match finished.first() {
            Some(became) if *became != Finished::Stale => self.became(&task, *became, now),
            _ => {
                self.ledger.violation(now, format!("{name}: its worker lives, and its lease is stale"));
                Ok(())
            }
        }
    }

    pub(super) fn became(
        &mut self,
        task: &TaskRecord,
        became: Finished,
        now: Timestamp,
    ) -> Result<(), Trouble> {
        match became {
            Finished::Ended(state) => self.ended(&task.key, state, now),
            Finished::RetryAt(at) => {
                self.counts.retries += 1;
                let after = seconds_since(now, at);
                Ok(self.trace.note(now, format_args!("retry {} after {after:.6}", task.key))?)
            }
            other => Ok(self.trace.note(now, format_args!("{other:?} {}", task.key))?),
        }
    }

    pub(super) fn ended(&mut self, key: &TaskKey, state: TaskState, now: Timestamp) -> Result<(), Trouble> {
        self.trace.note(now, format_args!("{state} {key}"))?;
        self.counts.failed_tasks += usize::from(state == TaskState::Failed);
        let Some(place) = self.runs.place(key) else { return Ok(()) };
        self.runs.end(place, state);
        self.advance(place.run, now)
    }

    /// Enqueues what may run next, and closes the run when nothing is left.
    pub(super) fn advance(&mut self, run: usize, now: Timestamp) -> Result<(), Trouble> {
        let ready = self.runs.advance(run)?;
        for NewTask { key, pool, .. } in &ready {
            self.trace.note(now, format_args!("enqueued {key}"))?;
            if let Some(account) = self.ledger.accounts.get_mut(pool) {
                account.tasks += 1;
            }
        }
        self.counts.tasks += ready.len();
        if !ready.is_empty() {
            self.store.write(|tx| tx.enqueue(now, &ready))?;
        }
        if let Some(state) = self.runs.ended(run) {
            let status = if state == TaskState::Failed { RunStatus::Failed } else { RunStatus::Completed };
            let close = RunClose::new(self.runs.runs[run].key.clone(), now, status);
            let _ = self.store.write(|tx| tx.close_runs(std::slice::from_ref(&close)))?;
            self.open_runs -= 1;
            self.trace.note(now, format_args!("over {}: {state}", close.key.id))?;
        }
        Ok(())
    }

    pub(super) fn reap(&mut self, now: Timestamp) -> Result<(), Trouble> {
        let report = self.upkeep.tick(now)?;
        self.reap_at = report.next_due;
        for reaped in report.reaped {
            let task = &reaped.task;
            self.trace.note(now, format_args!("lost {}", task.key))?;
            self.counts.lost_leases += 1;
            self.ledger.give_back(&task.lane.pool, task.held_slots);
            if !self.orphans.remove(&task.lease_ref()) {
                self.ledger.violation(now, format!("{}: its worker lives, and it was reaped", task.key));
            }
            if reaped.became == Finished::Ready {
                self.lost_at.insert(task.key.clone(), now);
            }
            self.became(task, reaped.became, now)?;
        }
        Ok(())
    }
}
