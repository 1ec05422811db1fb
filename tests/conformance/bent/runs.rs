//! What is got wrong with runs.

use stationmaster::Timestamp;
use stationmaster::error::StoreResult;
use stationmaster::run::{ActiveQuery, RunBeat, RunClose, RunKey, RunRecord};
use stationmaster::store::contract::{RunPlace, RunTx};

use super::{BentTx, Fault, later};

impl RunTx for BentTx<'_> {
    pass_on! {
        fn put_runs(runs: &[RunRecord]) -> ();
        fn runs(keys: &[RunKey]) -> Vec<Option<RunRecord>>;
        fn delete_runs(keys: &[RunKey]) -> usize;
        fn active_run_places(query: &ActiveQuery) -> Vec<RunPlace>;
    }

    fn beat_runs_if_open(&mut self, beats: &[RunBeat]) -> StoreResult<Vec<bool>> {
        let moved = self.tx.beat_runs_if_open(beats)?;
        if self.fault == Fault::BeatsGoBack {
            for beat in beats {
                for mut run in self.tx.runs(std::slice::from_ref(&beat.key))?.into_iter().flatten() {
                    if run.stop.is_none() {
                        run.heartbeat = Some(beat.at);
                        self.tx.put_runs(&[run])?;
                    }
                }
            }
        }
        Ok(moved)
    }

    fn forget_stopped_runs(&mut self, before: Timestamp, limit: usize) -> StoreResult<usize> {
        match self.fault {
            Fault::ForgetsOpenRuns => {
                let query = ActiveQuery::new(Timestamp::MIN, before);
                let old = self.tx.active_run_places(&query.limit(limit))?;
                let keys: Vec<RunKey> = old.into_iter().map(|place| place.key).collect();
                self.tx.delete_runs(&keys)
            }
            Fault::ForgetsRunsUnbounded => self.tx.forget_stopped_runs(before, usize::MAX),
            _ => self.tx.forget_stopped_runs(before, limit),
        }
    }

    fn count_active_runs(&mut self, query: &ActiveQuery) -> StoreResult<u64> {
        let mut query = query.clone();
        if self.fault == Fault::CountIgnoresTheFilter {
            (query.statuses, query.workflows) = (Vec::new(), Vec::new());
        }
        self.tx.count_active_runs(&query)
    }

    fn silent_runs(&mut self, before: Timestamp, limit: usize) -> StoreResult<Vec<RunRecord>> {
        let before = if self.fault == Fault::SilentOneTooEarly { later(before, 1) } else { before };
        self.tx.silent_runs(before, limit)
    }

    fn close_runs_if_open(&mut self, closes: &[RunClose]) -> StoreResult<Vec<bool>> {
        let moved = self.tx.close_runs_if_open(closes)?;
        if self.fault == Fault::CloseKeepsAStopBeforeTheStart {
            for (close, _) in closes.iter().zip(&moved).filter(|(_, moved)| **moved) {
                for mut run in self.tx.runs(std::slice::from_ref(&close.key))?.into_iter().flatten() {
                    run.stop = Some(close.stop);
                    self.tx.put_runs(&[run])?;
                }
            }
        }
        Ok(moved)
    }

    fn active_runs(&mut self, query: &ActiveQuery) -> StoreResult<Vec<RunRecord>> {
        let mut query = query.clone();
        if self.fault == Fault::NamespacesAreIgnored {
            query.namespaces.clear();
        }
        if let (Fault::PagesByStartAlone, Some(after)) = (self.fault, &mut query.after) {
            after.start = later(after.start, 1);
            after.key = RunKey::new("\u{1}", "\u{1}").unwrap();
        }
        let mut runs = self.tx.active_runs(&query)?;
        match self.fault {
            Fault::ActiveRunsStopExclusive => {
                runs.retain(|run| run.stop.is_none_or(|stop| stop > query.begin))
            }
            Fault::ActiveRunsInAnyOrder => runs.sort_by(|a, b| a.key.cmp(&b.key)),
            _ => {}
        }
        Ok(runs)
    }
}
