//! Runs, and the fork-node index, which finds those active in a window.
//!
//! Each namespace has its own index. [`crate::run::index`] explains why the ranges that are read here contain
//! every hit.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

use super::super::read_counter;
#[cfg(test)]
use super::state::Write;
use crate::id::{Namespace, RunId};
use crate::run::index::{Point, point};
use crate::run::{ActiveIndex, ActiveQuery, RunKey, RunPlace, RunRecord};
use crate::time::Timestamp;

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct Runs {
    namespaces: BTreeMap<Namespace, NamespaceRuns>,
    /// The watched runs, by their last heartbeat.
    watched: BTreeSet<(Timestamp, RunKey)>,
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq))]
struct NamespaceRuns {
    rows: HashMap<RunId, Box<RunRecord>>,
    index: ActiveIndex<RunId>,
}

impl NamespaceRuns {
    fn swap(&mut self, id: &RunId, run: Option<Box<RunRecord>>) -> Option<Box<RunRecord>> {
        let old = self.rows.remove(id);
        if let Some(old) = &old {
            self.index.remove(point(old.start), old.stop.map(point), id);
        }
        if let Some(run) = run {
            self.index.insert(point(run.start), run.stop.map(point), id.clone());
            self.rows.insert(id.clone(), run);
        }
        old
    }

    /// Returns the runs that started before the window and are active in it, in no particular order.
    fn surrounding(&self, begin: Point) -> impl Iterator<Item = &RunRecord> {
        if read_counter::is_on() {
            read_counter::seeks(self.index.seeks(begin));
        }
        self.index.surrounding(begin).inspect(|_| read_counter::rows(1)).filter_map(|id| self.row(id))
    }

    /// Returns the runs that start in the window, after the query's position, by start and id.
    fn started<'a>(
        &'a self,
        query: &'a ActiveQuery,
        name: &Namespace,
    ) -> impl Iterator<Item = (Point, &'a RunId)> {
        let (begin, end) = (point(query.begin), point(query.end));
        let (from, after) = match &query.after {
            Some(after) if after.start >= query.begin => match name.cmp(&after.key.namespace) {
                std::cmp::Ordering::Less => (point(after.start) + 1, None),
                std::cmp::Ordering::Equal => (point(after.start), Some(&after.key.id)),
                std::cmp::Ordering::Greater => (point(after.start), None),
            },
            _ => (begin, None),
        };
        let started = self.index.started(from, after, end).inspect(|_| read_counter::rows(1));
        started
            .filter(move |(_, _, stop)| stop.is_none_or(|stop| stop >= begin))
            .map(|(start, id, _)| (start, id))
    }

    fn row(&self, id: &RunId) -> Option<&RunRecord> {
        self.rows.get(id).map(Box::as_ref)
    }
}

/// The remaining runs of one namespace that start in the window.
struct Lane<'a, I> {
    runs: &'a NamespaceRuns,
    rest: I,
}

impl Runs {
    pub(super) fn swap(&mut self, key: &RunKey, run: Option<Box<RunRecord>>) -> Option<Box<RunRecord>> {
        let watched = |run: &RunRecord| run.heartbeat.filter(|_| run.is_watched());
        let at = run.as_deref().and_then(watched);
        let runs = self.namespaces.entry(key.namespace.clone()).or_default();
        let old = runs.swap(&key.id, run);
        if runs.rows.is_empty() {
            self.namespaces.remove(&key.namespace);
        }
        if let Some(was) = old.as_deref().and_then(watched) {
            self.watched.remove(&(was, key.clone()));
        }
        if let Some(at) = at {
            self.watched.insert((at, key.clone()));
        }
        old
    }

    pub(super) fn get(&self, key: &RunKey) -> Option<&RunRecord> {
        self.namespaces.get(&key.namespace)?.row(&key.id)
    }

    /// Returns the result of a query.
    pub(super) fn active<'a>(&'a self, query: &'a ActiveQuery) -> Vec<&'a RunRecord> {
        let limit = query.limit.unwrap_or(usize::MAX);
        if query.is_empty() || limit == 0 {
            return Vec::new();
        }
        let asked: Vec<(&Namespace, &NamespaceRuns)> = if query.namespaces.is_empty() {
            self.namespaces.iter().collect()
        } else {
            let names: BTreeSet<&Namespace> = query.namespaces.iter().collect();
            names.into_iter().filter_map(|name| self.namespaces.get_key_value(name)).collect()
        };
        let mut found = Vec::new();
        if query.after.as_ref().is_none_or(|after| after.start < query.begin) {
            let begin = point(query.begin);
            let surrounding = asked.iter().flat_map(|(_, runs)| runs.surrounding(begin));
            found.extend(surrounding.filter(|run| wanted(query, run) && is_after(query.after.as_ref(), run)));
            found.sort_unstable_by_key(|run| (run.start, &run.key));
            found.truncate(limit);
        }
        self.merge(query, &asked, limit, &mut found);
        found
    }

    /// Adds the runs that start in the window, in order, up to the limit.
    fn merge<'a>(
        &'a self,
        query: &'a ActiveQuery,
        asked: &[(&Namespace, &'a NamespaceRuns)],
        limit: usize,
        found: &mut Vec<&'a RunRecord>,
    ) {
        if found.len() >= limit {
            return;
        }
        let mut lanes: Vec<_> =
            asked.iter().map(|(name, runs)| Lane { runs, rest: runs.started(query, name) }).collect();
        let firsts = lanes.iter_mut().enumerate();
        let mut heap: BinaryHeap<_> = firsts
            .filter_map(|(at, lane)| lane.rest.next().map(|(start, id)| Reverse((start, at, id))))
            .collect();
        while let Some(mut next) = heap.peek_mut() {
            let Reverse((_, at, id)) = *next;
            let lane = &mut lanes[at];
            if let Some(run) = lane.runs.row(id).filter(|run| wanted(query, run)) {
                found.push(run);
                if found.len() == limit {
                    return;
                }
            }
            match lane.rest.next() {
                Some((start, id)) => *next = Reverse((start, at, id)),
                None => drop(std::collections::binary_heap::PeekMut::pop(next)),
            }
        }
    }

    pub(super) fn silent(&self, before: Timestamp, limit: usize) -> impl Iterator<Item = &RunRecord> {
        let silent = self.watched.iter().take_while(move |(at, _)| *at < before).take(limit);
        silent.filter_map(|(_, key)| self.get(key))
    }

    pub(super) fn stopped_before(&self, before: Timestamp, limit: usize) -> Vec<RunKey> {
        let mut keys = Vec::new();
        for (namespace, runs) in &self.namespaces {
            let ids = runs.index.stopped_before(point(before), limit - keys.len());
            keys.extend(ids.into_iter().map(|id| RunKey { namespace: namespace.clone(), id }));
        }
        keys
    }
}

/// Checks the conditions that the window's ranges do not decide.
fn wanted(query: &ActiveQuery, run: &RunRecord) -> bool {
    query.asks_for_any() || query.asks_for_run(run)
}

fn is_after(after: Option<&RunPlace>, run: &RunRecord) -> bool {
    after.is_none_or(|after| (run.start, &run.key) > (after.start, &after.key))
}

#[cfg(test)]
impl Runs {
    pub(super) fn writes(&self) -> impl Iterator<Item = Write> {
        let runs = self.namespaces.values().flat_map(|runs| runs.rows.values());
        runs.map(|run| Write::Run(run.key.clone(), Some(run.clone())))
    }
}
