//! Runs as a store sees them come: opened at their start, closed at their stop.

use std::time::{Duration, Instant};

use stationmaster::run::{RunClose, RunRecord, RunStatus};
use stationmaster::store::Store;
use stationmaster::testing::raw;

use crate::data::Span;

/// The events of one transaction.
const BATCH: usize = 1_000;

/// All events in the order of time: the rank of the run, and whether it opens.
pub(crate) fn events(spans: &[Span]) -> Vec<(usize, bool)> {
    let mut events: Vec<(i64, bool, usize)> = Vec::with_capacity(2 * spans.len());
    for (rank, span) in spans.iter().enumerate() {
        events.push((span.start, false, rank));
        events.extend(span.stop.map(|stop| (stop, true, rank)));
    }
    events.sort_unstable();
    events.into_iter().map(|(_, closes, rank)| (rank, !closes)).collect()
}

/// Replays all events into a store, and answers how many there were and how long it took.
pub(crate) fn replay(store: &dyn Store, spans: &[Span]) -> (usize, Duration) {
    let events = events(spans);
    let mut took = Duration::ZERO;
    for batch in events.chunks(BATCH) {
        let mut opens: Vec<RunRecord> = Vec::new();
        let mut closes: Vec<RunClose> = Vec::new();
        for (rank, opens_now) in batch {
            let mut run = spans[*rank].record(*rank);
            match (*opens_now, run.stop) {
                (false, Some(stop)) => closes.push(RunClose::new(run.key, stop, RunStatus::Completed)),
                _ => {
                    run.stop = None;
                    run.status = RunStatus::Running;
                    opens.push(run);
                }
            }
        }
        let began = Instant::now();
        let written = store.write(|tx| {
            raw(tx).put_runs(&opens)?;
            Ok(raw(tx).close_runs_if_open(&closes)?)
        });
        took += began.elapsed();
        assert_eq!(written.expect("written").len(), closes.len());
    }
    (events.len(), took)
}
