//! The queue of one kind.

use std::collections::VecDeque;
use std::time::Duration;

use crate::sensor::plan::Job;
use crate::service::poker::poke::{How, Probe};

/// How much quick work a thread takes at once.
const STINT: Duration = Duration::from_millis(1);

/// The most quick pokes that a thread takes at once.
const LONGEST_STINT: u64 = 256;

/// The queue and the calls of one kind.
pub(super) struct Line {
    pub(super) probe: Probe,
    pub(super) at_once: usize,
    pub(super) jobs: VecDeque<Job>,
    /// Running calls that were not given up.
    pub(super) running: usize,
    /// The jobs that these calls have taken and not put back.
    pub(super) taken: usize,
    /// Calls that were given up and have not ended.
    pub(super) hung: usize,
    /// The approximate duration of a poke, in nanoseconds. `None` if unknown.
    pace: Option<u64>,
}

/// How many threads hang, and how many hung ones are replaced.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hanging {
    pub(super) hung: usize,
    pub(super) max_hung: usize,
}

impl Line {
    pub(super) fn new(probe: Probe, at_once: usize) -> Self {
        Self { probe, at_once, jobs: VecDeque::new(), running: 0, taken: 0, hung: 0, pace: None }
    }

    pub(super) fn needs_threads(&self) -> bool {
        matches!(self.probe.how, How::Threads(_))
    }

    /// Returns true if too many of its calls hang to begin another: it has used its share of the hung threads
    /// that are replaced. Once no more are replaced, the remaining threads are for kinds that do not hang.
    pub(super) fn is_held_back(&self, Hanging { hung, max_hung }: Hanging) -> bool {
        self.hung > 0 && (self.hung >= (max_hung / 2).max(1) || hung >= max_hung)
    }

    /// Returns how many calls may begin and would have work.
    pub(super) fn may_begin(&self, hanging: Hanging) -> usize {
        match self.is_held_back(hanging) {
            true => 0,
            false => self.jobs.len().div_ceil(self.stint()).min(self.at_once.saturating_sub(self.running)),
        }
    }

    /// Takes the jobs of a new call. This many threads could share the queue.
    pub(super) fn take(&mut self, threads: usize) -> VecDeque<Job> {
        let most = match self.probe.at_most {
            1 => {
                let sharing = threads.min(self.at_once.saturating_sub(self.running)).max(1);
                self.stint().min(self.jobs.len().div_ceil(sharing))
            }
            most => most,
        };
        let length = most.clamp(1, self.jobs.len().max(1)).min(self.jobs.len());
        (self.running, self.taken) = (self.running + 1, self.taken + length);
        self.jobs.drain(..length).collect()
    }

    /// Puts the jobs that a call has not begun back at the front of the queue.
    pub(super) fn put_back(&mut self, jobs: VecDeque<Job>) {
        self.taken -= jobs.len();
        jobs.into_iter().rev().for_each(|job| self.jobs.push_front(job));
    }

    /// Returns how many jobs a call takes at once.
    fn stint(&self) -> usize {
        match (self.probe.at_most, self.pace) {
            (1, Some(pace)) if self.needs_threads() => {
                let fit = u64::try_from(STINT.as_nanos()).unwrap_or(u64::MAX) / pace.max(1);
                usize::try_from(fit.clamp(1, LONGEST_STINT)).unwrap_or(1)
            }
            (most, _) => most,
        }
    }

    /// Records that this many pokes took this long.
    pub(super) fn took(&mut self, pokes: usize, length: Duration) {
        let Some(pokes) = u64::try_from(pokes).ok().filter(|pokes| *pokes > 0) else { return };
        let pace = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX) / pokes;
        self.pace = Some(self.pace.map_or(pace, |before| before.saturating_mul(3).saturating_add(pace) / 4));
    }
}
