//! Runs folded into buckets of time.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::record::{RunRecord, RunStatus, StartMethod};
use crate::bounds::{MAX_BUCKETS, MAX_SERIES_BUCKETS};
use crate::error::Invalid;
use crate::id::{Namespace, WorkflowId};
use crate::time::{Timestamp, duration_micros};

/// How the runs of a series are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SeriesBy {
    /// Not grouped: one row for all runs.
    #[default]
    Nothing,
    /// One row per namespace.
    Namespace,
    /// One row per namespace and workflow.
    Workflow,
    /// One row per start method.
    Method,
    /// One row per user, and one for runs without a user, largest first.
    User {
        /// How many of these rows to return separately: those with the most node-hours in the window. If two
        /// or more remain, one last row adds them up ([`Group::others`]).
        most: usize,
    },
}

/// The buckets of a series: `[begin, begin + width)`, `[begin + width, …)` and so on. The last one ends at
/// `end`.
#[derive(Debug)]
pub(crate) struct SeriesSpec {
    begin: i64,
    end: i64,
    width: i64,
    by: SeriesBy,
}

impl SeriesSpec {
    /// Creates buckets over the window `[begin, end)`: each at least a microsecond wide, and at most
    /// [`MAX_BUCKETS`] of them. An empty window has no buckets.
    pub(crate) fn new(
        begin: Timestamp,
        end: Timestamp,
        width: Duration,
        by: SeriesBy,
    ) -> Result<Self, Invalid> {
        let (begin, end, width) = (begin.as_micros(), end.as_micros(), duration_micros(width));
        if width == 0 {
            return Err(Invalid::Duration {
                what: "the width of a bucket",
                expected: "a microsecond or more",
            });
        }
        let spec = Self { begin, end: end.max(begin), width, by };
        match spec.buckets() {
            0..=MAX_BUCKETS => Ok(spec),
            count => Err(Invalid::Buckets { count, cap: MAX_BUCKETS }),
        }
    }

    /// Returns the number of buckets.
    fn buckets(&self) -> usize {
        let buckets = self.end.abs_diff(self.begin).div_ceil(self.width.unsigned_abs());
        usize::try_from(buckets).unwrap_or(usize::MAX)
    }

    /// Returns the bucket that contains this instant of the window.
    fn bucket(&self, micros: i64) -> usize {
        usize::try_from(micros.abs_diff(self.begin) / self.width.unsigned_abs()).unwrap_or(usize::MAX)
    }

    fn edge(&self, bucket: usize) -> i64 {
        let edge = i128::from(self.begin) + bucket as i128 * i128::from(self.width);
        i64::try_from(edge).unwrap_or(i64::MAX).min(self.end)
    }
}

/// What happened in one bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Bucket {
    /// Its first instant.
    pub begin: Timestamp,
    /// The first instant after it.
    pub end: Timestamp,
    /// The number of runs active in it, as a query for its window would return them.
    pub active: u64,
    /// The number of runs that started in it.
    pub starts: u64,
    /// The number of runs that stopped in it.
    pub stops: u64,
    /// The time at work in it, summed over all nodes of all runs, in microseconds.
    pub node_micros: u64,
}

impl Bucket {
    /// Returns the time at work in hours.
    pub fn node_hours(&self) -> f64 {
        self.node_micros as f64 / 3.6e9
    }
}

/// The runs that a row of a series counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Group {
    /// The namespace; `None` if runs are not grouped by it.
    pub namespace: Option<Namespace>,
    /// The workflow; `None` if runs are not grouped by it, or have no workflow.
    pub workflow: Option<WorkflowId>,
    /// The start method; `None` if runs are not grouped by it.
    pub method: Option<StartMethod>,
    /// The user; `None` if runs are not grouped by it, or have no user.
    pub user: Option<String>,
    /// If not 0, the row is the sum of this many groups that are not returned separately
    /// ([`SeriesBy::User`]).
    pub others: usize,
}

/// Active runs, starts, stops and node-hours per bucket of time.
///
/// Each run is added once. Its cost does not depend on how many buckets it spans, because a bucket's sums are
/// kept as differences from the previous bucket. Each of its suspensions and numbers of nodes costs a step.
///
/// A run is at work from [`RunRecord::running`] to its stop, or to the series' `as_of`, except while it was
/// suspended. Its work counts on as many nodes as it has at the time. A pending, starting or rejected run
/// without [`RunRecord::running`] is not at work.
#[derive(Debug)]
pub(crate) struct Series {
    spec: SeriesSpec,
    as_of: i64,
    rows: BTreeMap<Group, Vec<Sums>>,
}

/// The changes from the previous bucket (`active`, `whole`), and the values of this bucket alone.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    active: i64,
    /// The nodes at work during the whole bucket.
    whole: i64,
    starts: u64,
    stops: u64,
    /// The node-microseconds of work during only a part of the bucket.
    part: i128,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.active += other.active;
        self.whole += other.whole;
        self.starts += other.starts;
        self.stops += other.stops;
        self.part += other.part;
    }
}

impl Series {
    /// Creates an empty series. Open runs count as at work until `as_of`.
    pub(crate) fn new(spec: SeriesSpec, as_of: Timestamp) -> Self {
        Self { spec, as_of: as_of.as_micros(), rows: BTreeMap::new() }
    }

    /// Counts a run. A run that is not active in the window changes nothing.
    ///
    /// Refuses a run whose row would exceed the cap: all rows together have at most [`MAX_SERIES_BUCKETS`]
    /// buckets.
    pub(crate) fn add(&mut self, run: &RunRecord) -> Result<(), Invalid> {
        let spec = &self.spec;
        if !run.is_active(Timestamp::from_micros(spec.begin), Timestamp::from_micros(spec.end)) {
            return Ok(());
        }
        let buckets = spec.buckets();
        let count = buckets.saturating_mul(self.rows.len() + 1);
        let row = match self.rows.entry(Group::of(run, spec.by)) {
            Entry::Occupied(row) => row.into_mut(),
            Entry::Vacant(_) if count > MAX_SERIES_BUCKETS => {
                return Err(Invalid::Buckets { count, cap: MAX_SERIES_BUCKETS });
            }
            Entry::Vacant(place) => place.insert(vec![Sums::default(); buckets]),
        };
        let (start, stop) = (run.start.as_micros(), run.stop.map(Timestamp::as_micros));
        let first = spec.bucket(start.max(spec.begin));
        if start >= spec.begin {
            row[first].starts += 1;
        }
        let last = stop.filter(|stop| *stop < spec.end).map(|stop| spec.bucket(stop));
        if let Some(last) = last {
            row[last].stops += 1;
        }
        if last.is_none_or(|last| last >= first) {
            row[first].active += 1;
            if let Some(next) = last.and_then(|last| row.get_mut(last + 1)) {
                next.active -= 1;
            }
        }
        let until = stop.unwrap_or(self.as_of);
        for (from, to) in at_work(run, until) {
            let (first, end) = (Timestamp::from_micros(from), Timestamp::from_micros(to));
            let (mut from, mut nodes) =
                (from, run.nodes.range(..=first).next_back().map_or(1, |(_, nodes)| *nodes));
            for (since, next) in run.nodes.range((Bound::Excluded(first), Bound::Excluded(end))) {
                work(spec, row, from, since.as_micros(), nodes.into());
                (from, nodes) = (since.as_micros(), *next);
            }
            work(spec, row, from, to, nodes.into());
        }
        Ok(())
    }

    /// Returns the rows by group. Each row has every bucket. If runs are not grouped, there is one row.
    pub(crate) fn finish(mut self) -> Vec<(Group, Vec<Bucket>)> {
        if self.spec.by == SeriesBy::Nothing {
            let none = || vec![Sums::default(); self.spec.buckets()];
            self.rows.entry(Group::default()).or_insert_with(none);
        }
        let spec = self.spec;
        let rows = match spec.by {
            SeriesBy::User { most } => largest(&spec, self.rows, most),
            _ => self.rows.into_iter().collect(),
        };
        rows.into_iter().map(|(group, sums)| (group, buckets(&spec, &sums))).collect()
    }
}

impl Group {
    /// Returns the group of a run.
    fn of(run: &RunRecord, by: SeriesBy) -> Self {
        let mut group = Self::default();
        match by {
            SeriesBy::Nothing => {}
            SeriesBy::Namespace => group.namespace = Some(run.key.namespace.clone()),
            SeriesBy::Workflow => {
                group.namespace = Some(run.key.namespace.clone());
                group.workflow.clone_from(&run.workflow);
            }
            SeriesBy::Method => group.method = Some(run.method),
            SeriesBy::User { .. } => group.user.clone_from(&run.user),
        }
        group
    }
}

/// Returns the rows with the most node-hours, largest first, and the sum of the others as the last row.
fn largest(spec: &SeriesSpec, rows: BTreeMap<Group, Vec<Sums>>, most: usize) -> Vec<(Group, Vec<Sums>)> {
    let work = |sums: &[Sums]| -> u128 {
        buckets(spec, sums).iter().map(|bucket| u128::from(bucket.node_micros)).sum()
    };
    let mut rows: Vec<_> = rows.into_iter().map(|row| (work(&row.1), row)).collect();
    // The sort is stable: users with the same node-hours stay in the order of their names.
    rows.sort_by_key(|(work, _)| Reverse(*work));
    let mut rows: Vec<_> = rows.into_iter().map(|(_, row)| row).collect();
    // A single other user is named, because a sum of one would only hide the name.
    if rows.len() <= most.saturating_add(1) {
        return rows;
    }
    let others = rows.split_off(most);
    let mut sum = (Group { others: others.len(), ..Group::default() }, vec![Sums::default(); spec.buckets()]);
    for (_, sums) in &others {
        sum.1.iter_mut().zip(sums).for_each(|(sum, sums)| sum.add(sums));
    }
    rows.push(sum);
    rows
}

fn buckets(spec: &SeriesSpec, sums: &[Sums]) -> Vec<Bucket> {
    let (mut active, mut whole) = (0, 0);
    let bucket = |(at, sums): (usize, &Sums)| {
        active += sums.active;
        whole += sums.whole;
        let (begin, end) = (spec.edge(at), spec.edge(at + 1));
        let micros = i128::from(whole) * (i128::from(end) - i128::from(begin)) + sums.part;
        Bucket {
            begin: Timestamp::from_micros(begin),
            end: Timestamp::from_micros(end),
            active: u64::try_from(active).unwrap_or(0),
            starts: sums.starts,
            stops: sums.stops,
            node_micros: u64::try_from(micros.max(0)).unwrap_or(u64::MAX),
        }
    };
    sums.iter().enumerate().map(bucket).collect()
}

/// Adds a span of work.
fn work(spec: &SeriesSpec, row: &mut [Sums], from: i64, to: i64, nodes: i64) {
    // Only the two buckets at the ends are partly covered. Those between are counted by a change after the
    // first bucket and its reverse at the last; `buckets` adds the changes up. So a run of a year costs no
    // more than one of a minute, however narrow the buckets are.
    let (from, to) = (from.max(spec.begin), to.min(spec.end));
    if from >= to {
        return;
    }
    let (first, last) = (spec.bucket(from), spec.bucket(to - 1));
    let part = |from: i64, to: i64| (i128::from(to) - i128::from(from)) * i128::from(nodes);
    if first == last {
        row[first].part += part(from, to);
        return;
    }
    row[first].part += part(from, spec.edge(first + 1));
    row[last].part += part(spec.edge(last), to);
    row[first + 1].whole += nodes;
    row[last].whole -= nodes;
}

/// Returns the spans in which a run was at work until this instant, in order.
fn at_work(run: &RunRecord, until: i64) -> Vec<(i64, i64)> {
    let waits = matches!(run.status, RunStatus::Pending | RunStatus::Starting | RunStatus::Rejected);
    let mut from = match run.running {
        Some(since) => since.as_micros(),
        None if waits => return Vec::new(),
        None => run.start.as_micros(),
    };
    let mut pauses: Vec<(i64, i64)> = run
        .suspended
        .iter()
        .map(|pause| (pause.from.as_micros(), pause.to.map_or(i64::MAX, Timestamp::as_micros)))
        .collect();
    pauses.sort_unstable();
    let mut spans = Vec::with_capacity(pauses.len() + 1);
    for (begin, end) in pauses {
        let begin = begin.min(until);
        if begin > from {
            spans.push((from, begin));
        }
        // A suspension may end before it begins, if a run was reopened after a stop before its suspension.
        from = from.max(begin).max(end);
    }
    if from < until {
        spans.push((from, until));
    }
    spans
}

#[cfg(test)]
mod tests;
