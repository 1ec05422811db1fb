//! Pure parts of the core that hosts never see, for benches and property tests.

use crate::admission::{Need, Plan, Planner, Refusal};
use crate::error::Invalid;
use crate::ops::{AdmitRequest, apply_families, feed};
use crate::run::ActiveIndex;
use crate::run::index::point;
use crate::store::contract::{Candidate, LanePage, RateUse, ShareUse, Survey};
use crate::time::Timestamp;

/// What one tick decides to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Planned {
    /// The tasks that it admits, in order.
    pub admit: Vec<Candidate>,
    /// The ready tasks that it leaves waiting, by lane.
    pub refusals: Vec<Refusal>,
    /// What keys owe to their rates afterwards.
    pub rates: Vec<RateUse>,
    /// What the shares whose tasks start hold afterwards.
    pub shares: Vec<ShareUse>,
}

/// Plans one tick at `now`, as [`Tx::admit`](crate::store::Tx::admit) does, with what a survey found. Lanes of queues
/// that it does not serve belong to others.
///
/// `read` is called with the pages that the planner asks for, and returns their tasks. It may lower the
/// limits of pages first.
///
/// # Errors
///
/// The tick's errors for what its policy does not support.
pub fn plan(
    request: &AdmitRequest,
    now: Timestamp,
    mut survey: Survey,
    mut read: impl FnMut(&mut [LanePage]) -> Vec<Candidate>,
) -> Result<Planned, Invalid> {
    apply_families(&mut survey, &request.policy)?;
    let planner =
        Planner::new(request.budget, std::mem::take(&mut survey.lanes)).policy(&request.policy, now);
    let planner = planner.serving(request.serves.as_ref()).paused(&survey.paused);
    let mut planner = planner.shares(&survey.shares, survey.grants).naming(request.named, None, None);
    loop {
        match planner.need() {
            Need::Capacity => feed(&mut planner, &survey, now),
            Need::Candidates(mut pages) => {
                let candidates = read(&mut pages);
                planner.feed_candidates(&pages, &candidates);
            }
            Need::Lanes { .. } | Need::Nothing => break,
        }
    }
    let Plan { admit, refusals, rates, shares, .. } = planner.finish();
    Ok(Planned { admit, refusals, rates, shares })
}

/// Makes a tick make at most this many marks.
#[must_use]
pub fn marking(mut order: AdmitRequest, marks: usize) -> AdmitRequest {
    order.marks = marks;
    order
}

/// Makes a tick name at most this many lanes. With more it reads lanes in pages, as far as the store can.
#[must_use]
pub fn naming(mut order: AdmitRequest, lanes: usize) -> AdmitRequest {
    order.named = lanes;
    order
}

/// The index of active runs that [`MemoryStore`](crate::store::MemoryStore) keeps for each namespace, on its own.
#[derive(Debug, Clone, Default)]
pub struct RunIndex(ActiveIndex<u32>);

impl RunIndex {
    /// Creates an empty index.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a run. The key must not be present with the same start.
    pub fn insert(&mut self, start: Timestamp, stop: Option<Timestamp>, key: u32) {
        self.0.insert(point(start), stop.map(point), key);
    }

    /// Removes a run that was added with exactly these values. Returns whether it was present.
    pub fn remove(&mut self, start: Timestamp, stop: Option<Timestamp>, key: u32) -> bool {
        self.0.remove(point(start), stop.map(point), &key)
    }

    /// Returns the keys of the runs active in `[begin, end)`.
    pub fn active(&self, begin: Timestamp, end: Timestamp) -> impl Iterator<Item = &u32> {
        self.0.active(point(begin), point(end))
    }

    /// Returns the bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
