//! A store that reports what its transactions do.

use std::sync::Arc;
use std::time::Instant;

use super::Observer;
use super::emitter::{Emitter, result};
use super::metrics::{ENQUEUED, STALE_CALLS, TASK_MOVES, TRANSACTION_SECONDS, TRANSACTIONS};
use super::spans;
use crate::error::Result;
use crate::store::contract::Effects;
use crate::store::{Store, StoreInfo, Tx, TxMode};
use crate::task::TaskState;

/// Reports each transaction to an observer: how it ended, how long it took, and what it did to tasks,
/// regardless of the caller.
///
/// What a transaction did is reported only when it was committed, not when it was rolled back or its outcome
/// is unknown. It does not see the host's own transactions, which bypass the store, or transactions whose
/// body panics.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::service::metrics::Metric;
/// use stationmaster::service::{ObservedStore, Observer};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::{NewTask, TaskKey, Timestamp};
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
/// store.write(|tx| tx.enqueue(Timestamp::UNIX_EPOCH, std::slice::from_ref(&task)))?;
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug)]
pub struct ObservedStore<S> {
    inner: S,
    emitter: Emitter,
}

impl<S: Store> ObservedStore<S> {
    /// Wraps a store so that it reports to this observer.
    pub fn new(inner: S, observer: Arc<dyn Observer>) -> Self {
        Self { inner, emitter: observer.into() }
    }

    /// Returns the wrapped store.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

crate::store::transactions!(S => ObservedStore<S>);

impl<S: Store> Store for ObservedStore<S> {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        let (began, mut effects) = (Instant::now(), Effects::default());
        let answer = self.inner.transact(mode, &mut |tx| {
            body(tx)?;
            effects = tx.effects().clone();
            Ok(())
        });
        let took = began.elapsed();
        spans::transacted(mode, took, answer.as_ref().err());
        let labels = [("mode", mode.as_str()), ("result", result(answer.as_ref().err()))];
        self.emitter.counter(&TRANSACTIONS, &labels, 1);
        self.emitter.seconds(&TRANSACTION_SECONDS, &[("mode", mode.as_str())], took);
        if answer.is_ok() {
            emit(&effects, &self.emitter);
        }
        answer
    }
}

fn emit(effects: &Effects, to: &Emitter) {
    to.counter(&ENQUEUED, &[], effects.enqueued);
    for state in TaskState::ALL {
        to.counter(&TASK_MOVES, &[("to", state.as_str())], effects.moved_to(state));
    }
    let stale = effects.stale;
    for (call, count) in [("start", stale.start), ("renew", stale.renew), ("move", stale.change)] {
        to.counter(&STALE_CALLS, &[("call", call)], count);
    }
}
