//! The host's evaluation of the workers' reports.

use std::time::Duration;

use stationmaster::clock::{Clock, SystemClock};

use crate::cli::Options;
use crate::worker::Line;

/// The last poke of a target.
#[derive(Debug, Clone, Copy)]
struct Last {
    worker: usize,
    at: i64,
}

/// A worker that was killed.
struct Killed {
    at: i64,
    /// The targets that it had poked last, and that were not poked again yet.
    left: Vec<usize>,
    /// The latest instant at which one of the others was poked again.
    reached: i64,
}

/// A worker's first and last report of itself, after the round that is not measured.
#[derive(Default, Clone)]
struct State {
    first: Option<(i64, Duration)>,
    last: Option<(i64, Duration)>,
    sensors: usize,
    resident: Option<f64>,
}

pub(crate) struct Findings<'a> {
    options: &'a Options,
    /// Measurement begins at this instant.
    from: i64,
    last: Vec<Option<Last>>,
    killed: Option<Killed>,
    states: Vec<State>,
    ticks: Vec<u64>,
    late: Vec<u64>,
    loads: Vec<(usize, u64)>,
    poked: usize,
    saved: usize,
    writes: usize,
    passed_over: usize,
}

fn percentile(values: &mut [u64], share: f64) -> Duration {
    values.sort_unstable();
    let at = (values.len() as f64 * share) as usize;
    Duration::from_micros(values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(0))
}

impl<'a> Findings<'a> {
    pub(crate) fn new(options: &'a Options) -> Self {
        Self {
            options,
            from: (SystemClock.now() + options.interval).as_micros(),
            last: vec![None; options.targets()],
            killed: None,
            states: vec![State::default(); options.workers + 1],
            ticks: Vec::new(),
            late: Vec::new(),
            loads: Vec::new(),
            poked: 0,
            saved: 0,
            writes: 0,
            passed_over: 0,
        }
    }

    pub(crate) fn hear(&mut self, worker: usize, line: Line) {
        let measured = SystemClock.now().as_micros() >= self.from;
        match line {
            Line::Poke { target, at, late } => self.poke(worker, target, at, late),
            Line::Tick { took, poked, saved, loaded, writes } => {
                if loaded > 0 {
                    self.loads.push((loaded, took));
                }
                if measured {
                    self.ticks.push(took);
                    self.poked += poked;
                    self.saved += saved;
                    self.writes += writes;
                }
            }
            Line::State { at, sensors, cpu, resident } => {
                let state = &mut self.states[worker];
                (state.sensors, state.resident) = (sensors, resident);
                if let Some(cpu) = cpu.filter(|_| measured) {
                    state.first.get_or_insert((at, cpu));
                    state.last = Some((at, cpu));
                }
            }
        }
    }

    fn poke(&mut self, worker: usize, target: usize, at: i64, late: i64) {
        let interval = self.options.interval.as_micros() as i64;
        let Some(last) = self.last.get_mut(target) else { return };
        if at >= self.from {
            self.late.push(late.unsigned_abs());
            // From the previous due time to this one.
            let steps = last.map_or(1, |last| (at - late - last.at + interval / 2) / interval);
            let taken_over = last.is_some_and(|last| last.worker != worker);
            self.passed_over += usize::from(steps > 1 && !taken_over);
        }
        *last = Some(Last { worker, at });
        if let Some(killed) = &mut self.killed
            && at > killed.at
            && let Some(place) = killed.left.iter().position(|left| *left == target)
        {
            killed.left.swap_remove(place);
            killed.reached = killed.reached.max(at);
        }
    }

    /// Notes that this worker is killed now.
    pub(crate) fn killed(&mut self, worker: usize) {
        let its = |last: &Option<Last>| last.is_some_and(|last| last.worker == worker);
        let left: Vec<usize> = (0..self.last.len()).filter(|target| its(&self.last[*target])).collect();
        let at = SystemClock.now().as_micros();
        println!("killed a worker that had {} targets", left.len());
        self.killed = Some(Killed { at, left, reached: at });
    }

    /// Prints everything. Returns false if a takeover took too long.
    pub(crate) fn print(mut self) -> bool {
        let options = self.options;
        let intervals = (options.length() - options.interval).as_secs_f64() / options.interval.as_secs_f64();
        let per_interval = |n: usize| n as f64 / intervals;
        for (sensors, took) in &self.loads {
            println!("loaded {sensors} sensors in a cycle of {:.1?}", Duration::from_micros(*took));
        }
        println!(
            "cycles: {}, p50 {:.1?}, p99 {:.1?}",
            self.ticks.len(),
            percentile(&mut self.ticks, 0.5),
            percentile(&mut self.ticks, 0.99)
        );
        println!(
            "pokes: {} made, {} saved; {:.0} and {:.0} in an interval",
            self.poked,
            self.saved,
            per_interval(self.poked),
            per_interval(self.saved)
        );
        println!(
            "delay of pokes: p50 {:.1?}, p99 {:.1?}, most {:.1?}; due times passed over: {}",
            percentile(&mut self.late, 0.5),
            percentile(&mut self.late, 0.99),
            percentile(&mut self.late, 1.0),
            self.passed_over
        );
        println!(
            "transactions that write: {:.1} in an interval, {:.3} a cycle (renewals of leases)",
            per_interval(self.writes),
            self.writes as f64 / self.ticks.len().max(1) as f64
        );
        for (number, state) in self.states.iter().enumerate().filter(|(_, state)| state.resident.is_some()) {
            let cpu = match (state.first, state.last) {
                (Some((from, before)), Some((to, after))) if to > from => {
                    format!("{:.2} %", (after - before).as_secs_f64() / ((to - from) as f64 / 1e6) * 100.0)
                }
                _ => "unknown".into(),
            };
            let resident = state.resident.unwrap_or_default();
            println!("worker {number}: {} sensors, {resident:.1} MiB resident, CPU {cpu}", state.sensors);
        }
        let Some(killed) = &self.killed else { return true };
        let took = Duration::from_micros((killed.reached - killed.at).unsigned_abs());
        let bound = options.lease + options.interval;
        let met = killed.left.is_empty() && took <= bound;
        let verdict = if met { "met" } else { "MISSED" };
        println!(
            "takeover: {took:.2?} until all were poked again, {} never were; bound {bound:?} (lease and interval): {verdict}",
            killed.left.len()
        );
        met
    }
}
