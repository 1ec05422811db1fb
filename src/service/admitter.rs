//! The admitter: grants leases to one holder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::lifecycle::{Admission, AdmitOrder, Finish, admit, finish};
use super::observer::{Observer, Tick, Watch};
use super::run::{Report, Service};
use crate::admission::Policy;
use crate::error::{Invalid, Result};
use crate::id::{Holder, RequestId};
use crate::store::{Store, StoreExt, SurveyQuery};
use crate::time;

/// How an [`Admitter`] admits.
///
/// Defaults: 512 tasks a tick, leases of 60 seconds, ticks are remembered for one hour, [`Policy::Backfill`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdmitterOptions {
    /// The most tasks one tick admits.
    pub budget: usize,
    /// How long leases hold. Renew them at a third of it.
    pub lease: Duration,
    /// How long the store remembers what a tick granted.
    pub remember: Duration,
    /// What becomes of tasks that do not fit.
    pub policy: Policy,
}

impl Default for AdmitterOptions {
    fn default() -> Self {
        Self {
            budget: 512,
            lease: Duration::from_secs(60),
            remember: Duration::from_secs(3600),
            policy: Policy::default(),
        }
    }
}

impl AdmitterOptions {
    /// Sets the most tasks one tick admits.
    #[must_use]
    pub fn budget(mut self, tasks: usize) -> Self {
        self.budget = tasks;
        self
    }

    /// Sets how long the store remembers what a tick granted.
    #[must_use]
    pub fn remember(mut self, length: Duration) -> Self {
        self.remember = length;
        self
    }

    /// Sets how long leases hold.
    #[must_use]
    pub fn lease(mut self, length: Duration) -> Self {
        self.lease = length;
        self
    }

    /// Sets what becomes of tasks that do not fit.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }
}

/// Admits waiting tasks for one holder, tick by tick.
///
/// Several admitters, in one process or in many, may work on one store: together they never grant more slots than a pool
/// has, and never one task twice.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
/// use stationmaster::service::{Admitter, AdmitterOptions, lifecycle};
/// use stationmaster::store::{MemoryStore, StoreExt};
/// use stationmaster::time::from_micros;
/// use stationmaster::{NewTask, TaskKey};
///
/// let store = Arc::new(MemoryStore::new());
/// let now = from_micros(0);
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?);
/// store.write(|tx| lifecycle::enqueue(tx, now, std::slice::from_ref(&task)))?;
///
/// let mut admitter = Admitter::new(store, "worker-1".try_into()?, AdmitterOptions::default())?;
/// let granted = admitter.admit(now, 4)?.granted;
/// assert_eq!(granted.len(), 1);
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug)]
pub struct Admitter {
    store: Arc<dyn Store>,
    holder: Holder,
    options: AdmitterOptions,
    watch: Watch,
}

/// Counts the ticks of all admitters of this process.
static TICKS: AtomicU64 = AtomicU64::new(0);

impl Admitter {
    /// An admitter for this holder. Two live admitters must not share a holder's name.
    ///
    /// # Errors
    ///
    /// [`Invalid::Duration`] for a lease below one millisecond.
    pub fn new(store: Arc<dyn Store>, holder: Holder, options: AdmitterOptions) -> Result<Self> {
        if options.lease < Duration::from_millis(1) {
            return Err(Invalid::Duration { what: "a lease", expected: "at least 1 ms" }.into());
        }
        Ok(Self { store, holder, options, watch: Watch::default() })
    }

    /// Tells this observer what it counts and measures.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Self {
        self.watch = observer.into();
        self
    }

    /// Admits at most `free` tasks, and at most as many as the options say: the free places of the executor.
    ///
    /// When the end of the commit is unknown, it asks the store what became of it: an `Err` that is
    /// [`crate::Error::is_indeterminate`] is returned only if the store cannot answer that either.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Store`] if the store fails.
    pub fn admit(&mut self, now: DateTime<Utc>, free: usize) -> Result<Admission> {
        let now = time::truncate(now);
        let budget = self.options.budget.min(free);
        let (tick, mut runs) = (Tick::admitter(&self.holder, budget), 0);
        let answer = self.admit_within(budget, now, &mut runs);
        self.watch.admitted(tick, now, runs.saturating_sub(1), &answer);
        answer
    }

    /// Counts how often it decided.
    fn admit_within(&self, budget: usize, now: DateTime<Utc>, runs: &mut usize) -> Result<Admission> {
        let request = self.request(now)?;
        let order = AdmitOrder::new(self.holder.clone(), request, budget, self.options.lease)
            .policy(self.options.policy.clone())
            .forget_before(time::sub(now, self.options.remember));
        match self.store.write(|tx| {
            *runs += 1;
            admit(tx, now, &order)
        }) {
            Err(unknown) if unknown.is_indeterminate() => {
                let query = SurveyQuery::new().request(order.request.clone());
                // In a transaction that writes: it takes its turn after the commit that may still be under way.
                let survey = self.store.write(|tx| Ok(tx.survey(&query)?)).map_err(|_| unknown)?;
                match survey.granted {
                    Some(_) => self.store.write(|tx| admit(tx, now, &order)),
                    None => Ok(Admission { next_due: Some(now), ..Admission::default() }),
                }
            }
            known => known,
        }
    }

    /// A name for the next tick that no other tick has: holder names are unique among the living, and instant and process
    /// tell a holder from its former lives.
    fn request(&self, now: DateTime<Utc>) -> Result<RequestId> {
        let holder = self.holder.as_str();
        let tick = TICKS.fetch_add(1, Ordering::Relaxed);
        let tail = format!("@{}#{}.{tick}", time::micros(now), std::process::id());
        let room = crate::id::MAX_BYTES - tail.len();
        let cut = (0..=room.min(holder.len())).rev().find(|at| holder.is_char_boundary(*at)).unwrap_or(0);
        Ok(RequestId::new(format!("{}{tail}", &holder[..cut]))?)
    }
}

impl Service for Admitter {
    type Report = Admission;

    /// [`Self::admit`] with the whole budget; due again at once if that was spent.
    fn tick(&mut self, now: DateTime<Utc>) -> Result<Admission> {
        let mut admission = self.admit(now, usize::MAX)?;
        if !admission.granted.is_empty() && admission.granted.len() >= self.options.budget {
            admission.next_due = Some(time::truncate(now));
        }
        Ok(admission)
    }

    /// Gives back what was granted.
    fn undelivered(&mut self, now: DateTime<Utc>, report: Admission) -> Result<()> {
        let back: Vec<Finish> =
            report.granted.iter().map(|task| Finish::given_back(task.lease_ref())).collect();
        if !back.is_empty() {
            self.store.write(|tx| finish(tx, now, &back))?;
        }
        Ok(())
    }
}

impl Report for Admission {
    fn next_due(&self) -> Option<DateTime<Utc>> {
        self.next_due
    }
}
