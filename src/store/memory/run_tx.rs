//! The operations on runs.

use super::state::Write;
use super::undo::Transaction;
use crate::error::StoreResult;
use crate::run::{ActiveQuery, RunBeat, RunClose, RunKey, RunPlace, RunRecord};
use crate::store::contract::RunTx;
use crate::time::Timestamp;

impl Transaction<'_> {
    fn put_run(&mut self, run: RunRecord) {
        self.write(Write::Run(run.key.clone(), Some(Box::new(run))));
    }

    fn if_open(&mut self, key: &RunKey, change: impl FnOnce(RunRecord) -> RunRecord) -> bool {
        match self.state.runs.get(key) {
            Some(run) if run.stop.is_none() => {
                let run = change(run.clone());
                self.put_run(run);
                true
            }
            _ => false,
        }
    }

    fn forget(&mut self, keys: impl IntoIterator<Item = RunKey>) -> usize {
        let mut deleted = 0;
        for key in keys {
            if self.state.runs.get(&key).is_some() {
                self.write(Write::Run(key, None));
                deleted += 1;
            }
        }
        deleted
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

    fn close_runs_if_open(&mut self, closes: &[RunClose]) -> StoreResult<Vec<bool>> {
        self.writable()?;
        let close = |close: &RunClose| {
            self.if_open(&close.key, |run| {
                let stop = close.stop.max(run.start);
                run.closed(stop, close.status)
            })
        };
        Ok(closes.iter().map(close).collect())
    }

    fn beat_runs_if_open(&mut self, beats: &[RunBeat]) -> StoreResult<Vec<bool>> {
        self.writable()?;
        let beat = |beat: &RunBeat| {
            self.if_open(&beat.key, |run| {
                let at = run.heartbeat.map_or(beat.at, |last| last.max(beat.at));
                run.heartbeat(at)
            })
        };
        Ok(beats.iter().map(beat).collect())
    }

    fn runs(&mut self, keys: &[RunKey]) -> StoreResult<Vec<Option<RunRecord>>> {
        Ok(keys.iter().map(|key| self.state.runs.get(key).cloned()).collect())
    }

    fn delete_runs(&mut self, keys: &[RunKey]) -> StoreResult<usize> {
        self.writable()?;
        Ok(self.forget(keys.iter().cloned()))
    }

    fn forget_stopped_runs(&mut self, before: Timestamp, limit: usize) -> StoreResult<usize> {
        self.writable()?;
        let keys = self.state.runs.stopped_before(before, limit);
        Ok(self.forget(keys))
    }

    fn active_runs(&mut self, query: &ActiveQuery) -> StoreResult<Vec<RunRecord>> {
        Ok(self.state.runs.active(query).into_iter().cloned().collect())
    }

    fn active_run_places(&mut self, query: &ActiveQuery) -> StoreResult<Vec<RunPlace>> {
        Ok(self.state.runs.active(query).into_iter().map(RunRecord::place).collect())
    }

    fn count_active_runs(&mut self, query: &ActiveQuery) -> StoreResult<u64> {
        Ok(self.state.runs.active(query).len() as u64)
    }

    fn silent_runs(&mut self, before: Timestamp, limit: usize) -> StoreResult<Vec<RunRecord>> {
        Ok(self.state.runs.silent(before, limit).cloned().collect())
    }
}
