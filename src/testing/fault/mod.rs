//! A store that fails where a test wants it to.

mod others;
mod tx;

use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result, StoreError, StoreErrorKind, StoreResult};
use crate::lease::TaskId;
use crate::run::RunKey;
use crate::store::contract::{StoreTx, TaskTx};
use crate::store::{Store, StoreInfo, Tx, TxMode};
use others::{Interference, Others};
use tx::FaultTx;

/// On which side of its effect a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum When {
    /// Nothing was done. After a call in a transaction, its body may continue.
    Before,
    /// It was done, but the response is lost. After a call in a transaction, every further one is refused and
    /// the transaction is rolled back, as by a store whose statement failed half-way.
    After,
}

/// Which call fails, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Fault {
    /// The number of the call, from 1. Calls are: the begin of each transaction, each method of the four
    /// traits, each commit. A commit that is sent along with a method ([`Tx::last`]) is not a separate call.
    pub at: u64,
    /// On which side of the call's effect.
    pub when: When,
    /// The kind of the error. A commit of a transaction that writes, failing after its effect, returns
    /// [`StoreErrorKind::Indeterminate`] whatever is set here, as every store must. So does a method with
    /// which the commit was sent along.
    pub kind: StoreErrorKind,
}

impl Fault {
    /// Creates a fault for the call with this number, counted from 1.
    pub fn new(at: u64, when: When, kind: StoreErrorKind) -> Self {
        Self { at, when, kind }
    }
}

/// A fault that occurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Struck {
    /// `"begin"`, `"commit"`, or the name of the method.
    pub call: &'static str,
    /// On which side of the call's effect.
    pub when: When,
    went_along: bool,
}

impl Struck {
    /// Returns true if the transaction took effect although it returned an error.
    pub fn is_committed(&self) -> bool {
        self.went_along || self.call == "commit" && self.when == When::After
    }
}

/// Passes every call on to another store, and fails one of them.
///
/// For tests of hosts: what happens to a program whose store fails at *this* call? Raise the number until a
/// run passes without a fault; then every call has failed once. [`super::sweep_faults`] does so with all
/// operations that write.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::error::StoreErrorKind;
/// use stationmaster::admission::IfExists;
/// use stationmaster::pool::{PoolSpec, Slots};
/// use stationmaster::store::MemoryStore;
/// use stationmaster::testing::{Fault, FaultStore, When};
///
/// let store = FaultStore::new(Arc::new(MemoryStore::new()));
/// let define = || store.write(|tx| tx.define([PoolSpec::new("db", Slots::Limited(4))?], IfExists::Replace));
/// let calls = (1..).find(|at| {
///     store.arm(Fault::new(*at, When::Before, StoreErrorKind::Full));
///     let answer = define();
///     assert_eq!(answer.is_err(), store.disarm().is_some());
///     answer.is_ok()
/// });
/// assert_eq!(calls, Some(7), "begin, a look, the lock, another look, put_pools and commit have failed");
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug)]
pub struct FaultStore {
    inner: Arc<dyn Store>,
    state: Mutex<State>,
    others: Others,
}

#[derive(Debug, Default)]
struct State {
    calls: u64,
    armed: Option<Fault>,
    struck: Option<Struck>,
    refused: Option<(TxMode, u32)>,
}

impl FaultStore {
    /// Wraps a store. No call fails yet.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, state: Mutex::default(), others: Others::default() }
    }

    /// Makes one call fail, counted from now on over all threads. Replaces an earlier fault.
    pub fn arm(&self, fault: Fault) {
        let mut state = self.state.lock();
        (state.calls, state.armed, state.struck) = (0, Some(fault), None);
    }

    /// Removes the fault, and returns it if it occurred.
    pub fn disarm(&self) -> Option<Struck> {
        let mut state = self.state.lock();
        state.armed = None;
        state.struck.take()
    }

    /// Refuses this many transactions of this mode, before they begin, with [`StoreErrorKind::Io`]; 0 stops
    /// that.
    pub fn refuse(&self, mode: TxMode, times: u32) {
        self.state.lock().refused = Some((mode, times));
    }

    /// Returns how many transactions will still be refused.
    pub fn refusals_left(&self) -> u32 {
        self.state.lock().refused.map_or(0, |(_, times)| times)
    }

    /// Makes this change before each of the next calls of this method, this many times, in their transaction.
    /// To a verb that reads before it calls, it looks like another transaction that commits in between.
    /// Replaces an earlier change.
    pub fn interfere(
        &self,
        call: &'static str,
        times: usize,
        change: impl FnMut(&mut dyn StoreTx) -> StoreResult<()> + Send + 'static,
    ) {
        self.others.interfere(Interference { call, times, change: Box::new(change) });
    }

    /// Makes these tasks and runs look locked by another transaction, until the next call names others or
    /// none. Calls that do not wait for others skip them.
    pub fn others_hold(&self, tasks: &[TaskId], runs: &[RunKey]) {
        self.others.hold(tasks, runs);
    }

    /// Returns the wrapped store, which does not fail.
    pub fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    fn check_refused(&self, mode: TxMode) -> StoreResult<()> {
        match &mut self.state.lock().refused {
            Some((refused, times)) if *refused == mode && *times > 0 => {
                *times -= 1;
                Err(on_purpose(StoreErrorKind::Io, "begin"))
            }
            _ => Ok(()),
        }
    }

    /// Counts a call, and returns the fault if it is the one that fails.
    fn strikes(&self, call: &'static str) -> Option<Fault> {
        let mut state = self.state.lock();
        state.calls += 1;
        let fault = state.armed.filter(|fault| fault.at == state.calls)?;
        (state.armed, state.struck) = (None, Some(Struck { call, when: fault.when, went_along: false }));
        Some(fault)
    }

    /// Notes that the commit went along with the call that was struck.
    fn committed_along(&self) {
        self.state.lock().struck.iter_mut().for_each(|struck| struck.went_along = true);
    }

    /// Makes a call, unless it is the one that fails before its effect. Then fails if it is the one that
    /// fails after its effect.
    fn call<T>(
        &self,
        call: &'static str,
        make: impl FnOnce() -> StoreResult<T>,
    ) -> (StoreResult<T>, Option<When>) {
        match self.strikes(call) {
            None => (make(), None),
            Some(fault) => {
                if fault.when == When::After {
                    // Its own failure is as good as the requested one.
                    if let Err(error) = make() {
                        return (Err(error), Some(When::After));
                    }
                }
                (Err(on_purpose(fault.kind, call)), Some(fault.when))
            }
        }
    }
}

fn on_purpose(kind: StoreErrorKind, call: &'static str) -> StoreError {
    StoreError::new(kind, format!("{call} failed on purpose"))
}

crate::store::transactions!(=> FaultStore);

impl Store for FaultStore {
    fn info(&self) -> StoreInfo {
        self.inner.info()
    }

    fn transact(&self, mode: TxMode, body: &mut dyn FnMut(&mut Tx<'_>) -> Result<()>) -> Result<()> {
        self.check_refused(mode)?;
        if let Some(fault) = self.strikes("begin") {
            let refused = || Error::Store(on_purpose(fault.kind, "begin"));
            if fault.when == When::After {
                self.inner.transact(mode, &mut |_| Err(refused()))?;
            }
            return Err(refused());
        }
        let mut lost = None;
        self.inner.transact(mode, &mut |tx| {
            let mut faulty = FaultTx::new(tx.raw(), self);
            let effects = Tx::run(&mut faulty, |tx| {
                let done = body(tx);
                done.map(|()| tx.effects().clone())
            })?;
            faulty.check_whole()?;
            lost = if faulty.is_committed() { None } else { self.strikes("commit") };
            tx.absorb(&effects);
            match lost {
                Some(fault) if fault.when == When::Before => Err(on_purpose(fault.kind, "commit").into()),
                _ => Ok(()),
            }
        })?;
        match (lost, mode) {
            (None, _) => Ok(()),
            (Some(fault), TxMode::Read) => Err(on_purpose(fault.kind, "commit").into()),
            (Some(_), TxMode::Write) => Err(on_purpose(StoreErrorKind::Indeterminate, "commit").into()),
        }
    }
}
