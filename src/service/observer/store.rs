//! A store that tells what its transactions do.

use std::sync::Arc;
use std::time::Instant;

use super::Observer;
use super::metrics::{ENQUEUED, STALE_CALLS, TASK_MOVES, TRANSACTION_SECONDS, TRANSACTIONS};
use super::spans;
use super::watch::{Watch, result};
use crate::error::Result;
use crate::service::tap::{Tap, Tapped, Write};
use crate::store::{Inserted, Moved, Store, StoreInfo, StoreTx, TxMode};
use crate::task::TaskState;

/// Tells an observer of each transaction: how it ended, how long it took, and what it did to tasks, whoever asked for it.
///
/// What a transaction did is told when it is committed, not when it was rolled back or its end is unknown. What is done in
/// transactions of the host's own, around the store, is not seen; nor is a transaction whose body panics.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::service::lifecycle;
/// use stationmaster::service::observer::{Metric, ObservedStore, Observer};
/// use stationmaster::store::{MemoryStore, StoreExt};
/// use stationmaster::time::from_micros;
/// use stationmaster::{NewTask, TaskKey};
///
/// struct Print;
/// impl Observer for Print {
///     fn counter(&self, metric: &'static Metric, labels: &[(&'static str, &str)], more: u64) {
///         println!("{} {labels:?} +{more}", metric.name);
///     }
/// }
///
/// let store = ObservedStore::new(MemoryStore::new(), Arc::new(Print));
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
/// // stationmaster_transactions_total [("mode", "write"), ("result", "ok")] +1
/// // stationmaster_tasks_enqueued_total [] +1
/// store.write(|tx| lifecycle::enqueue(tx, from_micros(0), std::slice::from_ref(&task)))?;
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug)]
pub struct ObservedStore<S> {
    inner: S,
    watch: Watch,
}

impl<S: Store> ObservedStore<S> {
    /// Tells this observer.
    pub fn new(inner: S, observer: Arc<dyn Observer>) -> Self {
        Self { inner, watch: observer.into() }
    }

    /// The store behind it.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: Store> Store for ObservedStore<S> {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut dyn StoreTx) -> Result<()>) -> Result<()> {
        let (began, mut tally) = (Instant::now(), Tally::default());
        let answer = self.inner.transact(mode, &mut |tx| body(&mut Tapped::new(tx, &mut tally)));
        let took = began.elapsed();
        spans::transacted(mode, took, &answer);
        self.watch.counter(&TRANSACTIONS, &[("mode", mode.as_str()), ("result", result(&answer))], 1);
        self.watch.seconds(&TRANSACTION_SECONDS, &[("mode", mode.as_str())], took);
        if answer.is_ok() {
            tally.tell(&self.watch);
        }
        answer
    }
}

/// What a transaction did to tasks.
#[derive(Default)]
struct Tally {
    enqueued: usize,
    moves: [usize; TaskState::ALL.len()],
    stale: [usize; CALLS.len()],
}

/// The calls that may be stale.
const CALLS: [&str; 3] = ["start", "renew", "move"];

impl Tally {
    fn calls(&mut self, call: usize, answers: &[Moved]) -> usize {
        let stale = answers.iter().filter(|answer| **answer == Moved::No).count();
        self.stale[call] += stale;
        answers.len() - stale
    }

    fn tell(&self, watch: &Watch) {
        watch.counter(&ENQUEUED, &[], self.enqueued);
        for (state, count) in TaskState::ALL.into_iter().zip(self.moves) {
            watch.counter(&TASK_MOVES, &[("to", state.as_str())], count);
        }
        for (call, count) in CALLS.into_iter().zip(self.stale) {
            watch.counter(&STALE_CALLS, &[("call", call)], count);
        }
    }
}

impl Tap for Tally {
    fn wrote(&mut self, write: Write<'_>) {
        match write {
            Write::Inserted(answers) => {
                let new = |answer: &&Inserted| matches!(answer, Inserted::New(_));
                self.enqueued += answers.iter().filter(new).count();
            }
            Write::Granted(granted) => self.moves[TaskState::Queued as usize] += granted.tasks.len(),
            Write::Started(answers) => {
                self.moves[TaskState::Running as usize] += self.calls(0, answers);
            }
            Write::Renewed(answers) => {
                self.calls(1, answers);
            }
            Write::Moved(moves, answers) => {
                self.calls(2, answers);
                for (to, _) in moves.iter().zip(answers).filter(|(_, answer)| **answer == Moved::Yes) {
                    self.moves[to.to as usize] += 1;
                }
            }
            Write::Capacity => {}
        }
    }
}
