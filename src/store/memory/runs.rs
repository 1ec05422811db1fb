//! Runs, and the fork-node index that tells which were active in a window.
//!
//! Each namespace has an index of its own; see [`crate::run::index`] for why the ranges read here hold every hit.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::state::{Filing, Write};
use super::undo::Transaction;
use crate::error::StoreResult;
use crate::id::{Namespace, RunId};
use crate::run::index::{Point, Ranges, node, point, ranges};
use crate::run::{ActiveQuery, RunClose, RunKey, RunRecord};
use crate::store::{Moved, RunTx};
use crate::time::truncate;

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct Runs {
    namespaces: BTreeMap<Namespace, NamespaceRuns>,
}

#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, PartialEq))]
struct NamespaceRuns {
    rows: HashMap<RunId, Box<RunRecord>>,
    /// Open runs by start.
    open: BTreeSet<(Point, RunId)>,
    /// Closed runs by node, then start.
    by_start: BTreeSet<Entry>,
    /// Closed runs by node, then stop.
    by_stop: BTreeSet<Entry>,
}

/// Node, start or stop, and the run; none sorts before all of them and begins a range.
type Entry = (Point, Point, Option<RunId>);

impl NamespaceRuns {
    fn swap(&mut self, id: &RunId, run: Option<Box<RunRecord>>) -> Option<Box<RunRecord>> {
        let old = self.rows.remove(id);
        if let Some(old) = &old {
            self.file(old, Filing::Out);
        }
        if let Some(run) = run {
            self.file(&run, Filing::In);
            self.rows.insert(id.clone(), run);
        }
        old
    }

    fn file(&mut self, run: &RunRecord, filing: Filing) {
        let (start, id) = (point(run.start), run.key.id.clone());
        let Some(stop) = run.stop.map(point) else {
            filing.entry(&mut self.open, (start, id));
            return;
        };
        let node = node(start, stop);
        filing.entry(&mut self.by_start, (node, start, Some(id.clone())));
        filing.entry(&mut self.by_stop, (node, stop, Some(id)));
    }

    /// The first and the last node that hold runs: as good a bound as the smallest start and the largest stop, and
    /// at hand.
    fn bounds(&self) -> Option<(Point, Point)> {
        Some((self.by_start.first()?.0, self.by_start.last()?.0))
    }

    /// The runs in these ranges.
    fn read(&self, ranges: Ranges) -> impl Iterator<Item = &RunRecord> {
        let Ranges { begin, last, left, right } = ranges;
        let open = self.open.iter().take_while(move |(start, _)| *start <= last).map(|(_, id)| id);
        let middle = self.by_start.range((begin, 0, None)..).take_while(move |(node, ..)| *node <= last);
        let left = left.into_iter().flat_map(move |at| {
            self.by_stop.range((at, begin, None)..).take_while(move |(node, ..)| *node == at)
        });
        let right = right.into_iter().flat_map(move |at| {
            let entries = self.by_start.range((at, 0, None)..);
            entries.take_while(move |(node, start, _)| *node == at && *start <= last)
        });
        let closed = middle.chain(left).chain(right).filter_map(|(_, _, id)| id.as_ref());
        open.chain(closed).filter_map(|id| self.rows.get(id)).map(Box::as_ref)
    }

    fn active(&self, query: &ActiveQuery) -> Vec<&RunRecord> {
        let Some(ranges) = ranges(point(query.begin), point(query.end), self.bounds()) else {
            return Vec::new();
        };
        self.read(ranges).filter(|run| run.is_active(query.begin, query.end)).collect()
    }
}

impl Runs {
    pub(super) fn swap(&mut self, key: &RunKey, run: Option<Box<RunRecord>>) -> Option<Box<RunRecord>> {
        let runs = self.namespaces.entry(key.namespace.clone()).or_default();
        let old = runs.swap(&key.id, run);
        if runs.rows.is_empty() {
            self.namespaces.remove(&key.namespace);
        }
        old
    }

    fn get(&self, key: &RunKey) -> Option<&RunRecord> {
        self.namespaces.get(&key.namespace)?.rows.get(&key.id).map(Box::as_ref)
    }

    fn active(&self, query: &ActiveQuery) -> Vec<&RunRecord> {
        let mut active: Vec<&RunRecord> = if query.namespaces.is_empty() {
            self.namespaces.values().flat_map(|runs| runs.active(query)).collect()
        } else {
            let asked: BTreeSet<&Namespace> = query.namespaces.iter().collect();
            let known = asked.into_iter().filter_map(|name| self.namespaces.get(name));
            known.flat_map(|runs| runs.active(query)).collect()
        };
        active.sort_unstable_by_key(|run| (run.start, &run.key.namespace, &run.key.id));
        active
    }
}

impl Transaction<'_> {
    fn put_run(&mut self, mut run: RunRecord) {
        run.start = truncate(run.start);
        run.stop = run.stop.map(truncate);
        self.write(Write::Run(run.key.clone(), Some(Box::new(run))));
    }

    fn close_run_if_open(&mut self, close: &RunClose) -> Moved {
        match self.state.runs.get(&close.key) {
            Some(run) if run.stop.is_none() => {
                let run = run.clone().closed(close.stop.max(run.start), close.status);
                self.put_run(run);
                Moved::Yes
            }
            _ => Moved::No,
        }
    }
}

impl RunTx for Transaction<'_> {
    fn put_runs(&mut self, runs: &[RunRecord]) -> StoreResult<()> {
        self.writable()?;
        for run in runs {
            self.put_run(run.clone());
        }
        Ok(())
    }

    fn close_runs_if_open(&mut self, closes: &[RunClose]) -> StoreResult<Vec<Moved>> {
        self.writable()?;
        Ok(closes.iter().map(|close| self.close_run_if_open(close)).collect())
    }

    fn runs(&mut self, keys: &[RunKey]) -> StoreResult<Vec<Option<RunRecord>>> {
        Ok(keys.iter().map(|key| self.state.runs.get(key).cloned()).collect())
    }

    fn delete_runs(&mut self, keys: &[RunKey]) -> StoreResult<usize> {
        self.writable()?;
        let mut deleted = 0;
        for key in keys {
            if self.state.runs.get(key).is_some() {
                self.write(Write::Run(key.clone(), None));
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    fn active_runs(&mut self, query: &ActiveQuery) -> StoreResult<Vec<RunRecord>> {
        let mut query = query.clone();
        (query.begin, query.end) = (truncate(query.begin), truncate(query.end));
        Ok(self.state.runs.active(&query).into_iter().cloned().collect())
    }
}

#[cfg(test)]
impl Runs {
    pub(super) fn writes(&self) -> impl Iterator<Item = Write> {
        let runs = self.namespaces.values().flat_map(|runs| runs.rows.values());
        runs.map(|run| Write::Run(run.key.clone(), Some(run.clone())))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::run::RunStatus;
    use crate::store::{MemoryStore, StoreExt};
    use crate::time::from_micros;

    fn run(namespace: &str, id: usize, start: i64, stop: Option<i64>) -> RunRecord {
        let run = RunRecord::open(RunKey::new(namespace, format!("r{id}")).unwrap(), from_micros(start));
        match stop {
            Some(stop) => run.closed(from_micros(stop), RunStatus::Completed),
            None => run,
        }
    }

    proptest! {
        #[test]
        fn the_index_answers_as_the_rule_does(
            spans in proptest::collection::vec((0_usize..12, -40_i64..40, proptest::option::of(-50_i64..50)), 0..30),
            windows in proptest::collection::vec((-60_i64..60, -60_i64..60), 1..20),
        ) {
            let mut runs = Runs::default();
            for (id, start, stop) in spans {
                let run = run(["a", "b"][id % 2], id, start, stop);
                runs.swap(&run.key.clone(), Some(Box::new(run)));
            }
            for (begin, end) in windows {
                let query = ActiveQuery::new(from_micros(begin), from_micros(end));
                let all = runs.namespaces.values().flat_map(|runs| runs.rows.values()).map(Box::as_ref);
                let mut expected: Vec<&RunRecord> = all.filter(|run| run.is_active(query.begin, query.end)).collect();
                expected.sort_by_key(|run| (run.start, &run.key.namespace, &run.key.id));
                prop_assert_eq!(runs.active(&query), expected);
            }
        }
    }

    #[test]
    fn only_hits_are_read() {
        let mut runs = NamespaceRuns::default();
        for id in 0..1000 {
            let start = 10 * id as i64;
            let run = run("a", id, start, Some(start + 25));
            runs.swap(&run.key.id.clone(), Some(Box::new(run)));
        }
        for (begin, end) in [(0, 1), (5000, 5001), (5003, 5160), (10_015, 10_016), (20_000, 30_000)] {
            let query = ActiveQuery::new(from_micros(begin), from_micros(end));
            let ranges = ranges(point(query.begin), point(query.end), runs.bounds()).unwrap();
            assert_eq!(runs.read(ranges).count(), runs.active(&query).len(), "[{begin},{end})");
        }
    }

    #[test]
    fn runs_are_put_closed_read_and_deleted() {
        let store = MemoryStore::new();
        let (open, other) = (run("a", 1, 5, None), run("b", 1, 5, Some(7)));
        let result = store.write(|tx| {
            tx.put_runs(&[other.clone(), open.clone()])?;
            let query = ActiveQuery::new(from_micros(7), from_micros(9));
            assert_eq!(tx.active_runs(&query)?, [open.clone(), other.clone()]);
            assert_eq!(tx.active_runs(&query.clone().namespace(other.key.namespace.clone()))?.len(), 1);
            let close = RunClose::new(open.key.clone(), from_micros(1), RunStatus::Killed);
            assert_eq!(tx.close_runs_if_open(&[close.clone(), close])?, [Moved::Yes, Moved::No]);
            let closed = open.clone().closed(open.start, RunStatus::Killed);
            assert_eq!(tx.runs(std::slice::from_ref(&open.key))?, [Some(closed)]);
            assert_eq!(tx.delete_runs(&[open.key.clone(), open.key.clone()])?, 1);
            Ok(())
        });
        result.unwrap();
    }
}
