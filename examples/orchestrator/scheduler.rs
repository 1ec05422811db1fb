//! The scheduler. One step looks at the run, ends the leases of dead workers, admits tasks, and assigns them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use parking_lot::Mutex;
use stationmaster::id::PoolName;
use stationmaster::service::{Admitter, FeedReader, Keeper, LoopHandle, Service, Upkeep};
use stationmaster::store::Store;
use stationmaster::{Result, TaskKey, TaskRecord, Timestamp};

use crate::held::Held;
use crate::run::{Progress, Run, short};
use crate::screen::Screen;
use crate::sensors::sensor_of;

/// How long leases last, and how long upkeep waits after a start. A resumed run waits this long for the slots of a
/// killed process.
pub(crate) const LEASE: Duration = Duration::from_secs(5);

/// A task whose sensor ended, how it ended, and its message.
pub(crate) type Ended = (TaskKey, &'static str, String);

pub(crate) struct Scheduler<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) run: &'a Run,
    pub(crate) held: &'a Held,
    pub(crate) screen: &'a Screen,
    pub(crate) admitter: Admitter,
    pub(crate) keeper: Keeper,
    pub(crate) upkeep: Upkeep,
    pub(crate) workers: usize,
    pub(crate) busy: &'a AtomicUsize,
    pub(crate) queue: Sender<TaskRecord>,
    /// Wakes the poker.
    pub(crate) poker: LoopHandle,
    pub(crate) peaks: &'a Peaks,
    pub(crate) reap_at: Option<Timestamp>,
    /// Reports how waiting tasks ended.
    pub(crate) feed: FeedReader,
    pub(crate) ended: Receiver<Ended>,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) over: bool,
    pub(crate) next_due: Option<Timestamp>,
}

impl Scheduler<'_> {
    pub(crate) fn step(&mut self, now: Timestamp) -> Result<Step> {
        let progress = self.look(now)?;
        if progress.closed {
            return Ok(Step { over: true, next_due: None });
        }
        let timeout = self.held.cut_overdue().map(|left| now + left.min(LEASE));
        let expiry = self.reap(now)?;
        let (admission, waits) = self.admit(now)?;
        self.screen.progress(&progress, waits);
        let next_due = [timeout, expiry, admission].into_iter().flatten().min();
        Ok(Step { over: false, next_due })
    }

    /// Reads the progress of the run, and advances it after sensors ended or after a crash.
    fn look(&mut self, now: Timestamp) -> Result<Progress> {
        let key = std::slice::from_ref(&self.run.key);
        self.feed.tick(now)?;
        let events: Vec<Ended> = self.ended.try_iter().collect();
        let (run, tasks) = self.store.read(|tx| Ok((tx.runs(key)?, tx.tasks(&self.run.keys)?)))?;
        let progress = self.run.progress(&run, &tasks);
        if events.is_empty() && !progress.may_advance {
            return Ok(progress);
        }
        let (run, tasks) = self.store.write(|tx| {
            self.run.take_turn(tx)?;
            self.run.advance(tx, now)?;
            Ok((tx.runs(key)?, tx.tasks(&self.run.keys)?))
        })?;
        // One line for all sensors of a task with the same end.
        let mut lines: BTreeMap<(&str, &str, &str), Vec<String>> = BTreeMap::new();
        for (key, how, detail) in &events {
            lines.entry((key.task.as_str(), *how, detail.as_str())).or_default().push(short(key));
        }
        for ((_, how, detail), names) in lines {
            let gap = if detail.is_empty() { "" } else { ": " };
            self.screen.line(how, format_args!("{}{gap}{detail}", some(&names)));
        }
        Ok(self.run.progress(&run, &tasks))
    }

    fn reap(&mut self, now: Timestamp) -> Result<Option<Timestamp>> {
        if self.reap_at.is_none_or(|at| at <= now) {
            let report = self.upkeep.tick(now)?;
            for reaped in &report.reaped {
                let holder = reaped.task.lease.as_ref().map_or("", |lease| lease.holder.as_str());
                let name = short(&reaped.task.key);
                self.screen.line("reaped", format_args!("{name}: {holder} is gone, its slots are back"));
            }
            self.reap_at = Some(report.next_due.unwrap_or(now + LEASE));
        }
        Ok(self.reap_at)
    }

    /// Fills the free workers. Sensors are handed over to the poker instead. Returns when to call again, and why the
    /// other tasks wait.
    fn admit(&mut self, now: Timestamp) -> Result<(Option<Timestamp>, String)> {
        let free = self.workers.saturating_sub(self.busy.load(Ordering::SeqCst));
        if free == 0 {
            return Ok((None, String::new()));
        }
        let admission = self.admitter.admit(now, free)?;
        let waits: String =
            admission.refusals.iter().map(|lane| format!("; {} wait: {}", lane.tasks, lane.reason)).collect();
        if admission.granted.is_empty() {
            return Ok((admission.next_due, waits));
        }
        self.peaks.sample(self.store)?;
        let is_sensor =
            |task: &TaskRecord| self.run.spec(&task.key).is_some_and(|spec| spec.wait_for.is_some());
        let (sensors, commands): (Vec<_>, Vec<_>) = admission.granted.into_iter().partition(is_sensor);
        for task in commands {
            self.held.take(self.keeper.keep(&task));
            self.busy.fetch_add(1, Ordering::SeqCst);
            if let Err(unsent) = self.queue.send(task) {
                self.held.release(unsent.0.lease_ref());
            }
        }
        if sensors.is_empty() {
            return Ok((admission.next_due, waits));
        }
        self.hand_over(now, &sensors)?;
        Ok((Some(now), waits))
    }

    /// Starts sensors and registers them. Their slots become free in the same transaction. They need no worker.
    fn hand_over(&self, now: Timestamp, tasks: &[TaskRecord]) -> Result<()> {
        let mut sensors = Vec::with_capacity(tasks.len());
        for task in tasks {
            if let Some(spec) = self.run.spec(&task.key)
                && let Some(wait_for) = &spec.wait_for
            {
                sensors.push(sensor_of(self.run, spec, wait_for, task.lease_ref())?);
            }
        }
        let leases: Vec<_> = sensors.iter().map(|sensor| sensor.lease).collect();
        let registered = self.store.write(|tx| {
            tx.start(now, &leases)?;
            tx.register(now, &sensors)
        })?;
        self.poker.wake();
        let waiting: Vec<String> = tasks
            .iter()
            .zip(registered)
            .filter(|(_, answer)| answer.is_waiting())
            .map(|(task, _)| short(&task.key))
            .collect();
        self.screen.line("sensing", some(&waiting));
        Ok(())
    }
}

fn some(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        [one] => one.clone(),
        [first, rest @ ..] => format!("{first} and {} more", rest.len()),
    }
}

/// The most slots of each pool that were ever seen in use.
#[derive(Debug, Default)]
pub(crate) struct Peaks(Mutex<BTreeMap<PoolName, i64>>);

impl Peaks {
    /// Call it right after an admission, when usage is highest.
    fn sample(&self, store: &dyn Store) -> Result<()> {
        let pools = store.read(|tx| tx.all_pools())?;
        let mut peaks = self.0.lock();
        for pool in pools {
            let peak = peaks.entry(pool.spec.name).or_default();
            *peak = pool.used.max(*peak);
        }
        Ok(())
    }

    pub(crate) fn of(&self, pool: &PoolName) -> i64 {
        self.0.lock().get(pool).copied().unwrap_or(0)
    }
}
