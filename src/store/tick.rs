//! What an admission tick asks of a store, and what it commits.

use chrono::{DateTime, Utc};

use crate::admission::Lane;
use crate::admission::limits::LimitRecord;
use crate::id::{Holder, LimitKey, PoolName, RequestId};
use crate::lease::{LeaseRef, TaskNo};
use crate::pool::PoolRecord;
use crate::task::TaskRecord;

/// What [`crate::store::TaskTx::survey`] is to find out. By itself it only reads.
///
/// # Examples
///
/// ```
/// use stationmaster::store::{MemoryStore, StoreExt, SurveyQuery};
/// use stationmaster::time::from_micros;
///
/// let store = MemoryStore::new();
/// let look = store.read(|tx| Ok(tx.survey(&SurveyQuery::new())?))?;
/// let tick = store.write(|tx| Ok(tx.survey(&SurveyQuery::new().promote(from_micros(0)))?))?;
/// assert_eq!((look.next_due, tick.promoted), (None, 0));
/// # Ok::<(), stationmaster::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SurveyQuery {
    /// The name of the tick. If a tick of this name granted tasks before, the survey tells which, promotes nothing, and
    /// tells nothing else but [`Survey::next_due`].
    pub request: Option<RequestId>,
    /// Makes ready all tasks whose due instant is this one or earlier (state `Scheduled`, due none) before it looks. None
    /// makes none ready: then the survey writes nothing, and a transaction that reads may ask for it.
    pub promote: Option<DateTime<Utc>>,
    /// The pools to tell of.
    pub pools: WhichPools,
}

impl SurveyQuery {
    /// Asks for the ready lanes, and for the pools and limits they name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name of the tick.
    #[must_use]
    pub fn request(mut self, request: RequestId) -> Self {
        self.request = Some(request);
        self
    }

    /// Makes ready what is due at this instant.
    #[must_use]
    pub fn promote(mut self, now: DateTime<Utc>) -> Self {
        self.promote = Some(now);
        self
    }

    /// Sets which pools to tell of.
    #[must_use]
    pub fn pools(mut self, which: WhichPools) -> Self {
        self.pools = which;
        self
    }
}

/// Which pools a survey tells of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum WhichPools {
    /// Those that ready lanes name.
    #[default]
    Named,
    /// All there are.
    All,
}

/// What a tick plans with: the answer of [`crate::store::TaskTx::survey`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Survey {
    /// What a tick of the asked name granted before, in order of admission; none if there was none, it granted nothing, or
    /// it was forgotten.
    pub granted: Option<Vec<LeaseRef>>,
    /// How many tasks came due.
    pub promoted: usize,
    /// The earliest due instant of the tasks that still wait for one.
    pub next_due: Option<DateTime<Utc>>,
    /// The lanes that have ready tasks, by number.
    pub lanes: Vec<Lane>,
    /// The pools asked for, by name; one that is named and does not exist is left out.
    pub pools: Vec<PoolRecord>,
    /// The limit keys that those lanes carry, by key.
    pub limits: Vec<LimitRecord>,
}

/// Grants ready tasks to one holder, with all that goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrantBatch<'a> {
    /// The tasks, in order of admission.
    pub tasks: &'a [TaskNo],
    /// Who gets the leases.
    pub holder: &'a Holder,
    /// When.
    pub now: DateTime<Utc>,
    /// When the leases expire.
    pub expires_at: DateTime<Utc>,
    /// Slots to take, by pool. The names differ from each other.
    pub pools: &'a [(PoolName, u64)],
    /// How many tasks to count against limit keys. The keys differ from each other.
    pub limits: &'a [(LimitKey, u64)],
    /// The name under which to note at `now` what was granted. Nothing is noted if nothing was granted; a tick noted
    /// under this name before is replaced.
    pub request: Option<&'a RequestId>,
    /// Ticks to forget, after this one was noted.
    pub forget: Option<Forget>,
}

impl<'a> GrantBatch<'a> {
    /// Grants these tasks to this holder at `now` until `expires_at`; takes no slots, counts against no limit, and notes
    /// and forgets no tick.
    pub fn new(
        tasks: &'a [TaskNo],
        holder: &'a Holder,
        now: DateTime<Utc>,
        expires_at: DateTime<Utc>,
    ) -> Self {
        Self { tasks, holder, now, expires_at, pools: &[], limits: &[], request: None, forget: None }
    }

    /// Sets the slots to take, by pool.
    #[must_use]
    pub fn pools(mut self, pools: &'a [(PoolName, u64)]) -> Self {
        self.pools = pools;
        self
    }

    /// Sets how many tasks to count against limit keys.
    #[must_use]
    pub fn limits(mut self, limits: &'a [(LimitKey, u64)]) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the name under which to note what was granted.
    #[must_use]
    pub fn request(mut self, request: &'a RequestId) -> Self {
        self.request = Some(request);
        self
    }

    /// Forgets at most `limit` ticks noted before this instant.
    #[must_use]
    pub fn forget(mut self, before: DateTime<Utc>, limit: usize) -> Self {
        self.forget = Some(Forget { before, limit });
        self
    }
}

/// Old ticks to forget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Forget {
    /// Those noted before this instant (`at < before`), earliest first.
    pub before: DateTime<Utc>,
    /// At most this many.
    pub limit: usize,
}

/// What a [`GrantBatch`] found to be as it was planned, and changed.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Granted {
    /// The granted tasks as they are now, in the order of the batch.
    pub tasks: Vec<TaskRecord>,
    /// How many of the pools had as many slots open as were to be taken.
    pub pools: usize,
    /// How many of the limit keys are known and had room.
    pub limits: usize,
    /// How many ticks were forgotten.
    pub forgotten: usize,
}

impl Granted {
    /// True if all of the batch was done. If not, roll back: the batch is done in part.
    pub fn is_whole(&self, batch: &GrantBatch<'_>) -> bool {
        (self.tasks.len(), self.pools, self.limits)
            == (batch.tasks.len(), batch.pools.len(), batch.limits.len())
    }
}
