//! The simulation: the crate's services, a host around them, and a clock that jumps to the next due instant.
//!
//! Nothing here waits. All work of an instant is done at that instant, in a fixed order. Then the clock is set to the
//! earliest instant in the calendar or for which a service is due. The crate's services, over one of its stores, make
//! every decision: who is admitted, when a retry is due, whose lease has expired, which sensors have landed.

mod admission;
mod ends;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use stationmaster::admission::IfExists;
use stationmaster::admission::limits;
use stationmaster::ops::StopBeforeStart;
use stationmaster::pool::PoolSpec;
use stationmaster::service::kinds::Condition;
use stationmaster::service::{
    Admitter, FeedReader, LoopHandle, PokeRequest, Poker, Service, Upkeep, WakingStore,
};
use stationmaster::store::{MemoryStore, Store};
use stationmaster::{LeaseRef, Result, TaskKey, TaskState, Timestamp};

use crate::calendar::Calendar;
use crate::graph::{NAMESPACE, Runs};
use crate::landing::{Instance, Landings};
use crate::ledger::Ledger;
use crate::spread::Dice;
use crate::trace::Trace;
use crate::trouble::Trouble;
use crate::worker::Worker;
use crate::workload::Workload;

/// Longer than the real time of any day. A poker measures three lengths by the machine's clock: how long a tick waits
/// for outcomes, how long a poke may take, and, within its lease, until when pokes may begin. With this length, every
/// tick processes the outcomes of all its pokes, however busy the machine is. So its result depends only on its
/// instant.
const PATIENCE: Duration = Duration::from_secs(3_600);
/// How many events one tick of the feed's reader delivers.
const EVENTS: usize = 10_000;
const POKER_LEASE: Duration = Duration::from_secs(12 * 3_600);

/// How often one instant may be processed.
const REPEATS: usize = 10_000;

/// A day that has not ended this long after its last start never will.
const DRAIN: Duration = Duration::from_secs(30 * 86_400);

/// The entries of the calendar. Everything else is due when the services say so.
#[derive(Debug)]
enum Event {
    RunStarts {
        workflow: usize,
    },
    /// A worker reaches the end of an attempt, unless it crashed.
    WorkEnds {
        worker: usize,
        lease: LeaseRef,
    },
    Crash {
        worker: usize,
        back_after: Duration,
    },
    Back {
        worker: usize,
    },
}

#[derive(Debug, Default, Clone, Copy, serde::Serialize)]
pub(crate) struct Counts {
    pub(crate) runs: usize,
    pub(crate) tasks: usize,
    pub(crate) attempts: usize,
    pub(crate) retries: usize,
    pub(crate) failed_tasks: usize,
    pub(crate) crashes: usize,
    pub(crate) lost_leases: usize,
    pub(crate) sensors: usize,
    pub(crate) landed: usize,
    pub(crate) pokes: usize,
    pub(crate) pokes_saved: usize,
    /// The number of instants at which something happened.
    pub(crate) instants: usize,
}

/// The result of the day. [`crate::verify`] checks it.
pub(crate) struct Outcome {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) now: Timestamp,
    pub(crate) keys: Vec<TaskKey>,
    pub(crate) open_runs: usize,
    /// Leases of crashed workers that were not reaped.
    pub(crate) orphans: usize,
    /// Tasks that crashed workers worked on.
    pub(crate) abandoned: usize,
    pub(crate) ledger: Ledger,
    pub(crate) counts: Counts,
    pub(crate) trace: u64,
}

pub(crate) struct Day<'a> {
    workload: &'a Workload,
    dice: Dice,
    landings: Landings,
    now: Timestamp,
    store: Arc<dyn Store>,
    /// Woken by the store when there may be work for an admitter.
    news: LoopHandle,
    heard: Option<u64>,
    calendar: Calendar<Event>,
    workers: Vec<Worker>,
    /// Asks why tasks wait, and admits nothing.
    asker: Admitter,
    upkeep: Upkeep,
    poker: Poker,
    /// Delivers the ends of sensors.
    feed: FeedReader,
    ended: Receiver<Ended>,
    admit_at: Option<Timestamp>,
    reap_at: Option<Timestamp>,
    poke_at: Option<Timestamp>,
    runs: Runs<'a>,
    /// Pools whose sensing tasks keep their slots.
    keeping: BTreeSet<&'a str>,
    orphans: BTreeSet<LeaseRef>,
    /// When tasks that were lost with their worker began to wait again.
    lost_at: BTreeMap<TaskKey, Timestamp>,
    /// The latest instant at which a sensor's landing may be seen.
    seen_by: BTreeMap<TaskKey, Timestamp>,
    abandoned: usize,
    starts_left: usize,
    open_runs: usize,
    give_up_at: Timestamp,
    ledger: Ledger,
    counts: Counts,
    trace: Trace,
}

impl<'a> Day<'a> {
    /// Sets up this many hours of this workload, with these pools.
    pub(crate) fn new(
        workload: &'a Workload,
        pools: &'a [PoolSpec],
        seed: u64,
        hours: u32,
        trace: Trace,
    ) -> Result<Self, Trouble> {
        let (begin, dice, news) = (workload.begin, Dice(seed), LoopHandle::new());
        let end = begin + Duration::from_secs(u64::from(hours) * 3_600);
        let store: Arc<dyn Store> = Arc::new(WakingStore::new(MemoryStore::new(), news.clone()));
        let limits = limits_of(workload)?;
        store.write(|tx| {
            tx.define(pools, IfExists::Replace)?;
            tx.define(&limits, IfExists::Replace)
        })?;

        let mut calendar = Calendar::default();
        for crash in &workload.crashes {
            let event = Event::Crash { worker: crash.worker - 1, back_after: crash.back_after_s };
            calendar.put(begin + crash.at_s, event);
        }
        (0..workload.workers.count).for_each(|worker| calendar.put(begin, Event::Back { worker }));
        let mut starts_left = 0;
        for (workflow, spec) in workload.workflows.iter().enumerate() {
            for at in spec.starts.instants(begin, end) {
                calendar.put(at, Event::RunStarts { workflow });
                starts_left += 1;
            }
        }

        let landings = Landings::new(dice, &workload.targets);
        let (sender, ended) = channel();
        let feed = reader(&store, sender)?;
        Ok(Self {
            workload,
            dice,
            poker: poker(&store, landings.clone())?,
            landings,
            now: begin,
            news,
            heard: None,
            calendar,
            workers: (1..=workload.workers.count).map(Worker::new).collect(),
            asker: asker(&store)?,
            // Nothing delays this world, and its clock jumps, so no grace is needed.
            upkeep: Upkeep::new(store.clone()).grace(Duration::ZERO),
            feed,
            ended,
            store,
            admit_at: None,
            reap_at: None,
            poke_at: None,
            runs: Runs::new(workload),
            keeping: pools
                .iter()
                .filter(|pool| pool.sensing_keeps_slots)
                .map(|pool| pool.name.as_str())
                .collect(),
            orphans: BTreeSet::new(),
            lost_at: BTreeMap::new(),
            seen_by: BTreeMap::new(),
            abandoned: 0,
            starts_left,
            open_runs: 0,
            give_up_at: end + DRAIN,
            ledger: Ledger::new(pools, begin, end),
            counts: Counts::default(),
            trace,
        })
    }

    /// Runs until every run has ended, and no crashed worker holds a lease.
    pub(crate) fn run(mut self) -> Result<Outcome, Trouble> {
        let mut repeats = 0;
        while let Some(next) = self.next_instant() {
            // A service may ask for another tick at once, but not forever.
            repeats = if next > self.now { 0 } else { repeats + 1 };
            if repeats > REPEATS {
                self.ledger.violation(next, "services are due again and again, and time stands still".into());
                break;
            }
            self.now = next.max(self.now);
            self.instant()?;
        }
        Ok(Outcome {
            now: self.now,
            store: self.store,
            keys: self.runs.keys(),
            open_runs: self.starts_left + self.open_runs,
            orphans: self.orphans.len(),
            abandoned: self.abandoned,
            ledger: self.ledger,
            counts: self.counts,
            trace: self.trace.finish()?,
        })
    }

    /// Returns the earliest due instant, or `None` when the day is over.
    fn next_instant(&self) -> Option<Timestamp> {
        let is_over = self.starts_left == 0 && self.open_runs == 0 && self.orphans.is_empty();
        let due = [self.calendar.next(), self.admit_at, self.reap_at, self.poke_at];
        let renewals = self.workers.iter().filter_map(|worker| worker.process.as_ref()?.keeper.next_due());
        due.into_iter().flatten().chain(renewals).min().filter(|at| !is_over && *at < self.give_up_at)
    }

    fn instant(&mut self) -> Result<(), Trouble> {
        let now = self.now;
        self.counts.instants += 1;
        self.ledger.pass(now);
        while let Some(event) = self.calendar.take(now) {
            self.happen(event, now)?;
        }
        self.renew(now)?;
        if self.reap_at.is_some_and(|at| at <= now) {
            self.reap(now)?;
        }
        loop {
            if self.poke_at.is_some_and(|at| at <= now) {
                self.poke(now)?;
            }
            let before = self.counts.sensors;
            self.admit(now)?;
            // New sensors are polled at the same instant.
            if self.counts.sensors == before {
                return Ok(());
            }
        }
    }

    fn happen(&mut self, event: Event, now: Timestamp) -> Result<(), Trouble> {
        match event {
            Event::RunStarts { workflow } => {
                let (run, record) = self.runs.begin(workflow, now)?;
                self.counts.runs += 1;
                self.starts_left -= 1;
                self.open_runs += 1;
                self.trace.note(now, format_args!("begins {}", record.key.id))?;
                self.store
                    .write(|tx| tx.record_runs(std::slice::from_ref(&record), StopBeforeStart::Store))?;
                self.advance(run, now)
            }
            Event::WorkEnds { worker, lease } => self.end_work(worker, lease, now),
            Event::Crash { worker, back_after } => {
                self.calendar.put(now + back_after, Event::Back { worker });
                let Some(process) = self.workers[worker].process.take() else { return Ok(()) };
                self.counts.crashes += 1;
                self.abandoned += process.at_work.len();
                self.orphans.extend(process.leases());
                self.trace
                    .note(now, format_args!("crash {}, {} at work", process.name, process.at_work.len()))?;
                process.keys().try_for_each(|key| self.trace.note(now, format_args!("abandoned {key}")))
            }
            Event::Back { worker } => {
                let process = self.workers[worker].start(&self.store, self.workload.workers)?;
                self.trace.note(now, format_args!("up {}", process.name))?;
                // Its free places are news that no store reports.
                self.news.wake();
                Ok(())
            }
        }
    }

    /// Renews the leases of the living workers.
    fn renew(&mut self, now: Timestamp) -> Result<(), Trouble> {
        for process in self.workers.iter_mut().filter_map(|worker| worker.process.as_mut()) {
            if process.keeper.next_due().is_some_and(|at| at <= now)
                && !process.keeper.tick(now)?.lost.is_empty()
            {
                let name = &process.name;
                self.ledger.violation(now, format!("{name} lives, and lost a lease"));
            }
        }
        Ok(())
    }
}

fn poker(store: &Arc<dyn Store>, landings: Landings) -> Result<Poker> {
    let poker = Poker::new(store.clone(), "poker".try_into()?);
    let poker = poker.wait_for_answers(PATIENCE).poke_timeout(PATIENCE).lease(POKER_LEASE);
    // It is woken for registrations, and there is no other poker, so nothing needs to be shared.
    let poker = poker.refresh_every(POKER_LEASE).shards(NonZeroU32::MIN).threads(1);
    Ok(poker.kind(Instance::kind()?, move |request: &PokeRequest| landings.poke(request)))
}

/// A task whose sensor ended, why, and its state after that.
type Ended = (TaskKey, &'static str, TaskState);

fn reader(store: &Arc<dyn Store>, sender: Sender<Ended>) -> Result<FeedReader> {
    let reader = FeedReader::new(store.clone(), "day".try_into()?, move |event| match event.reason {
        Some(reason) => Ok(sender.send((event.task.clone(), reason.as_str(), event.state))?),
        // The worker has already reported all other ends.
        None => Ok(()),
    });
    Ok(reader.limit(EVENTS))
}

fn asker(store: &Arc<dyn Store>) -> Result<Admitter> {
    Ok(Admitter::new(store.clone(), "asker".try_into()?))
}

fn limits_of(workload: &Workload) -> Result<Vec<limits::LimitSpec>> {
    let mut specs = Vec::new();
    for limit in &workload.limits {
        specs.push(limits::LimitSpec::new(limit.name.as_str().try_into()?, limit.max)?);
    }
    for workflow in &workload.workflows {
        if let Some(max) = workflow.max_active_tasks {
            let key = limits::workflow_named(&NAMESPACE.try_into()?, &workflow.name.as_str().try_into()?)?;
            specs.push(limits::LimitSpec::new(key, max)?);
        }
    }
    Ok(specs)
}
