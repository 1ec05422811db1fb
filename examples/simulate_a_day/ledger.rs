//! The simulation's own accounts: how each pool was used, who waited for it, and why. They are kept apart from the
//! store's counters, and compared with them.

use std::collections::BTreeMap;

use stationmaster::Timestamp;
use stationmaster::id::PoolName;
use stationmaster::pool::{PoolSpec, Slots};

/// The account of one pool.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    pub(crate) slots: Slots,
    pub(crate) tasks: usize,
    held: i64,
    pub(crate) peak: i64,
    /// Slots times microseconds, within the simulated hours.
    slot_micros: i128,
    /// How long each attempt waited for admission, in microseconds.
    pub(crate) waits: Vec<i64>,
    /// By the kind of reason.
    pub(crate) deferred: BTreeMap<&'static str, Deferred>,
}

/// Tasks that ticks left waiting, for one reason.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Deferred {
    now: u64,
    /// The most tasks at once.
    pub(crate) most: u64,
    /// Tasks times microseconds.
    pub(crate) task_micros: i128,
}

#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) accounts: BTreeMap<PoolName, Account>,
    last: Timestamp,
    begin: Timestamp,
    /// The end of the simulated hours.
    end: Timestamp,
    pub(crate) violations: Vec<String>,
}

impl Ledger {
    pub(crate) fn new(pools: &[PoolSpec], begin: Timestamp, end: Timestamp) -> Self {
        let account = |pool: &PoolSpec| Account {
            slots: pool.slots,
            tasks: 0,
            held: 0,
            peak: 0,
            slot_micros: 0,
            waits: Vec::new(),
            deferred: BTreeMap::new(),
        };
        let accounts = pools.iter().map(|pool| (pool.name.clone(), account(pool))).collect();
        Self { accounts, last: begin, begin, end, violations: Vec::new() }
    }

    /// Advances the time. The held slots and waiting tasks stay unchanged until `now`.
    pub(crate) fn pass(&mut self, now: Timestamp) {
        let micros = |until: Timestamp| i128::from(until.as_micros() - self.last.as_micros());
        let (whole, within) = (micros(now), micros(now.min(self.end)).max(0));
        for account in self.accounts.values_mut() {
            account.slot_micros += i128::from(account.held) * within;
            for deferred in account.deferred.values_mut() {
                deferred.task_micros += i128::from(deferred.now) * whole;
            }
        }
        self.last = now;
    }

    pub(crate) fn take(&mut self, pool: &PoolName, slots: u32) {
        if let Some(account) = self.accounts.get_mut(pool) {
            account.held += i64::from(slots);
        }
    }

    pub(crate) fn give_back(&mut self, pool: &PoolName, slots: u32) {
        if let Some(account) = self.accounts.get_mut(pool) {
            account.held -= i64::from(slots);
        }
    }

    pub(crate) fn waited(&mut self, pool: &PoolName, since: Timestamp, now: Timestamp) {
        if let Some(account) = self.accounts.get_mut(pool) {
            account.waits.push(now.as_micros() - since.as_micros());
        }
    }

    /// Begins a new count of waiting tasks, at the beginning of a tick.
    pub(crate) fn all_are_admitted(&mut self) {
        for deferred in self.accounts.values_mut().flat_map(|account| account.deferred.values_mut()) {
            deferred.now = 0;
        }
    }

    /// Records that the tick left this many tasks of a pool waiting, for this kind of reason.
    pub(crate) fn waits(&mut self, pool: &PoolName, reason: &'static str, tasks: u64) {
        if let Some(account) = self.accounts.get_mut(pool) {
            let deferred = account.deferred.entry(reason).or_default();
            deferred.now += tasks;
            deferred.most = deferred.most.max(deferred.now);
        }
    }

    /// Compares the store's used slots of a pool with this account, and with the pool's size.
    pub(crate) fn compare(&mut self, now: Timestamp, name: &PoolName, used: i64) {
        let Some(account) = self.accounts.get_mut(name) else { return };
        account.peak = account.peak.max(account.held);
        let held = account.held;
        if account.slots.open(held).is_some_and(|open| open < 0) {
            self.violations
                .push(format!("{now}: tasks hold {held} slots of pool {name}, which has {}", account.slots));
        }
        if used != held {
            self.violations.push(format!("{now}: pool {name} says {used} slots are used, tasks hold {held}"));
        }
    }

    pub(crate) fn violation(&mut self, now: Timestamp, what: String) {
        self.violations.push(format!("{now}: {what}"));
    }
}

impl Account {
    /// Returns the average number of slots in use.
    pub(crate) fn mean(&self, ledger: &Ledger) -> f64 {
        let micros = ledger.end.as_micros() - ledger.begin.as_micros();
        self.slot_micros as f64 / micros as f64
    }

    /// Returns the smallest wait that at least this percentage of the attempts did not exceed, in microseconds.
    pub(crate) fn percentile(&self, percentage: f64) -> i64 {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let rank = (percentage * waits.len() as f64 / 100.0).ceil() as usize;
        waits.get(rank.clamp(1, waits.len().max(1)) - 1).copied().unwrap_or(0)
    }
}
