//! What an admission tick requests from a store, and what it commits.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::admission::limits::{LimitRecord, LimitSpec, RateUse};
use crate::admission::{Behind, Candidate, Lane, OrderKey, Serving, ShareUse, Subject, Turn, UnreadOf};
use crate::id::{Holder, QueueName, RequestId};
use crate::lease::{LeaseRef, TaskId};
use crate::pool::PoolRecord;
use crate::task::TaskRecord;
use crate::time::Timestamp;

/// What [`crate::store::contract::TaskTx::survey`] should return. By default it only reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SurveyQuery {
    /// The name of the tick. If a remembered tick with this name granted tasks, the survey returns those tasks and
    /// [`Survey::next_due`]. In that case it returns nothing else and promotes nothing.
    pub request: Option<RequestId>,
    /// The overdue tasks to make ready before it looks. With `None` the survey makes no task ready and writes
    /// nothing, so a read transaction may call it.
    pub promote: Option<Promote>,
    /// The pools to return.
    pub pools: WhichPools,
    /// How many tasks the tick will admit at most, if it will ask for the first ones of each lane. A store may read
    /// these together with the lanes. With 0 it should not.
    pub budget: usize,
    /// The queues whose lanes to return; `None` for all. Tasks of all queues are made ready.
    pub queues: Option<BTreeSet<QueueName>>,
    /// If more lanes than this have ready tasks, a store may leave out lanes. See [`Survey::unread`].
    pub first: Option<First>,
    /// How a store may grant together with its survey, if every plan is the same.
    pub(crate) ahead: Option<Ahead>,
}

/// What a survey of many lanes returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct First {
    /// How many lanes: the first ones by number.
    pub lanes: usize,
    /// The instant of the tick. Marks that have expired by then are removed.
    pub now: Timestamp,
    /// The most of these marks to remove. Only those of the requested queues are removed.
    pub wakes: usize,
}

/// A page of lanes that do not sleep, for [`crate::store::contract::TaskTx::lanes_behind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LanesBehind<'a> {
    /// Lanes whose first ready task is after this place.
    pub after: OrderKey,
    /// The most lanes to return.
    pub limit: usize,
    /// The queues of the lanes; `None` for all.
    pub queues: Option<&'a BTreeSet<QueueName>>,
    /// What a planner asks for. Only a store that returned [`Survey::unread_shares`] may be asked for lanes of shares.
    pub(crate) of: Option<&'a Behind>,
}

impl<'a> LanesBehind<'a> {
    /// Creates a query for at most `limit` lanes after this place.
    pub fn new(after: OrderKey, limit: usize, queues: Option<&'a BTreeSet<QueueName>>) -> Self {
        Self { after, limit, queues, of: None }
    }

    /// Creates a query for at most `limit` of the lanes that a planner asks for.
    pub(crate) fn of(of: &'a Behind, limit: usize, queues: Option<&'a BTreeSet<QueueName>>) -> Self {
        let after = match of {
            Behind::Place(after) => *after,
            Behind::Turn(_) => OrderKey::FIRST,
            Behind::Of(unread) => unread.behind,
        };
        Self { after, limit, queues, of: Some(of) }
    }
}

/// A grant that a store may make together with a survey, of at most [`SurveyQuery::budget`] tasks.
///
/// It saves a separate grant if there is nothing to decide. A store may make it only if all of these hold:
///
/// * Exactly one lane has ready tasks, and they carry no limits.
/// * Nothing is paused, and nothing must be promoted.
/// * The transaction ends with this grant.
/// * The holder has recently recorded that it serves all queues.
///
/// Every plan is then the same: the first tasks of that lane, as many as have room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// The holder of the leases.
    pub(crate) holder: Holder,
    /// How long they last.
    pub(crate) lease: Duration,
    /// Like [`GrantBatch::replaces`]. The tick has [`SurveyQuery::request`].
    pub(crate) replaces: RequestId,
    /// Like [`GrantBatch::forget`].
    pub(crate) forget: Forget,
    /// Like [`GrantBatch::started`].
    pub(crate) started: bool,
}

impl SurveyQuery {
    /// Creates a query for the ready lanes, and for the pools and limits they name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name of the tick.
    #[must_use]
    pub fn request(mut self, request: RequestId) -> Self {
        self.request = Some(request);
        self
    }

    /// Makes ready at most `limit` tasks that are due at this instant.
    #[must_use]
    pub fn promote(mut self, now: Timestamp, limit: usize) -> Self {
        self.promote = Some(Promote::new(now, limit));
        self
    }

    /// Sets how many tasks the tick will admit at most.
    #[must_use]
    pub fn budget(mut self, budget: usize) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the queues whose lanes to return.
    #[must_use]
    pub fn queues(mut self, queues: Option<BTreeSet<QueueName>>) -> Self {
        self.queues = queues;
        self
    }

    /// Lets the store omit lanes in a tick at this instant if there are more than this many, and remove at most
    /// `wakes` expired marks.
    #[must_use]
    pub fn first(mut self, lanes: usize, now: Timestamp, wakes: usize) -> Self {
        self.first = Some(First { lanes, now, wakes });
        self
    }

    /// Sets which pools to return.
    #[must_use]
    pub fn pools(mut self, which: WhichPools) -> Self {
        self.pools = which;
        self
    }
}

/// Overdue tasks to make ready: their state becomes `Scheduled`, and their due instant `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Promote {
    /// Tasks due at this instant or earlier, earliest first. Tasks due at the same instant follow
    /// [`crate::admission::OrderKey`].
    pub now: Timestamp,
    /// At most this many. The rest stay as they are, for the next survey.
    pub limit: usize,
}

impl Promote {
    /// Selects at most `limit` tasks that are due at this instant.
    pub fn new(now: Timestamp, limit: usize) -> Self {
        Self { now, limit }
    }
}

/// The tasks that a survey would make ready: the result of [`crate::store::contract::TaskTx::overdue`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Overdue {
    /// The tasks, in the order in which they are made ready, each with [`Candidate::ready_at`].
    pub tasks: Vec<Candidate>,
    /// The lanes of these tasks, by number. [`Lane::ready`] counts these tasks alone.
    pub lanes: Vec<Lane>,
    /// The earliest due instant of the other tasks that wait for one.
    pub next_due: Option<Timestamp>,
}

/// Which pools a survey returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum WhichPools {
    /// The pools that ready lanes name.
    #[default]
    Named,
    /// All pools.
    All,
}

/// What a tick plans with: the result of [`crate::store::contract::TaskTx::survey`].
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Survey {
    /// What the tick with the requested name granted before, in order of admission. `None` if there was no
    /// such tick, if it granted nothing, or if it is no longer remembered.
    pub granted: Option<Vec<LeaseRef>>,
    /// How many tasks were made ready.
    pub promoted: usize,
    /// The earliest due instant of the tasks that still wait for one. Not after [`Promote::now`] if more
    /// tasks are overdue than [`Promote::limit`] allowed.
    pub next_due: Option<Timestamp>,
    /// The lanes of the requested queues that have ready tasks, by number.
    pub lanes: Vec<Lane>,
    /// `None` if all of these lanes were returned. Otherwise there are more than [`First::lanes`] of them, and the
    /// omitted ones begin after this place. In that case the survey contains the first ones by number, and all whose
    /// tasks kept their slots. It also contains all lanes of shares, unless the store pages these, too.
    pub unread: Option<OrderKey>,
    /// Like [`Self::unread`] for shares, which continue after this turn. `None` if all lanes of shares were returned.
    pub(crate) unread_shares: Option<Turn>,
    /// The shares that have more lanes of the same class and level after the returned one.
    pub(crate) unread_of: Vec<UnreadOf>,
    /// The earliest instant at which a mark of the requested queues expires. It has passed if more have expired than
    /// [`First::wakes`] allowed.
    pub next_token: Option<Timestamp>,
    /// The requested pools, by name. Pools that do not exist are omitted. If the query names queues, a store may also
    /// return the pools and limits of others.
    pub pools: Vec<PoolRecord>,
    /// The limit keys that those lanes carry, by key.
    pub limits: Vec<LimitRecord>,
    /// The definitions of all families, by prefix. They are not applied to [`Self::limits`].
    pub families: Vec<LimitSpec>,
    /// What the starts of those keys owe to rates, in any order. Keys that owe nothing may be omitted.
    pub rates: Vec<RateUse>,
    /// The latest instant at which any key of the store took a token.
    pub clock: Option<Timestamp>,
    /// What the shares of those lanes hold of the lanes' own pools, in any order. Shares for which the store keeps
    /// nothing may be omitted, and those of other lanes may be included.
    pub shares: Vec<ShareUse>,
    /// How many grants the store has made to tasks of shares.
    pub grants: i64,
    /// The paused subjects, in any order.
    pub paused: Vec<Subject>,
    /// The holders' records of the queues that they serve, by holder, then by the queues. Also returned together with
    /// [`Self::granted`].
    pub serving: Vec<Serving>,
    /// True if a tick has work even if it can grant nothing: adding up what others changed. It is never true in a
    /// store that counts at once. If it is true after a survey that promotes, the survey overstates what is used, or
    /// understates what is ready, and [`Self::next_due`] is [`Promote::now`].
    pub is_behind: bool,
    /// What was granted [ahead](SurveyQuery::ahead), in order of admission. `None` if the store did not try.
    /// The rest of the survey is as before that grant.
    pub(crate) ahead: Option<Vec<TaskRecord>>,
}

/// A grant of ready tasks to one holder, and what is recorded with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrantBatch<'a> {
    /// The tasks, in order of admission.
    pub tasks: &'a [TaskId],
    /// The holder of the leases.
    pub holder: &'a Holder,
    /// When they are granted.
    pub now: Timestamp,
    /// When the leases expire.
    pub expires_at: Timestamp,
    /// The name under which to record, at `now`, what was granted. Replaces an earlier tick with this name. If nothing
    /// was granted, nothing is recorded or replaced.
    pub request: Option<&'a RequestId>,
    /// The name of another tick that the record replaces: the caller's last one, whose result the caller has received.
    /// If nothing is recorded, nothing is replaced.
    pub replaces: Option<&'a RequestId>,
    /// Ticks to forget, after this one was recorded.
    pub forget: Option<Forget>,
    /// True if nothing may change unless every task is ready. A store may then treat a task as not ready while another
    /// transaction changes it.
    pub whole: bool,
    /// What keys owe to their rates after this grant. It replaces what they owed.
    pub rates: &'a [RateUse],
    /// The shares whose tasks are granted, each with its stamp and dither after this grant. The highest stamp is that
    /// of the last grant. What they hold is not read.
    pub shares: &'a [ShareUse],
    /// True if the tasks start at the instant of the grant. Those whose attempts are recorded as runs do not.
    pub started: bool,
}

impl<'a> GrantBatch<'a> {
    /// Creates a grant of these tasks to this holder, from `now` until `expires_at`. Records and forgets no
    /// tick.
    pub fn new(tasks: &'a [TaskId], holder: &'a Holder, now: Timestamp, expires_at: Timestamp) -> Self {
        let (request, replaces, forget) = (None, None, None);
        let (rates, shares): (&[RateUse], &[ShareUse]) = (&[], &[]);
        let (whole, started) = (false, false);
        Self { tasks, holder, now, expires_at, request, replaces, forget, whole, rates, shares, started }
    }

    /// Sets what keys owe to their rates after the grant. A store may forget keys that owe nothing at the latest
    /// instant of these: at most 64, and two for each of these, but never the one that took a token last.
    #[must_use]
    pub fn rates(mut self, rates: &'a [RateUse]) -> Self {
        self.rates = rates;
        self
    }

    /// Sets the stamps of the shares whose tasks are granted.
    #[must_use]
    pub fn shares(mut self, shares: &'a [ShareUse]) -> Self {
        self.shares = shares;
        self
    }

    /// Sets the name under which to record what was granted.
    #[must_use]
    pub fn request(mut self, request: &'a RequestId) -> Self {
        self.request = Some(request);
        self
    }

    /// Sets the tick that the record replaces.
    #[must_use]
    pub fn replaces(mut self, request: &'a RequestId) -> Self {
        self.replaces = Some(request);
        self
    }

    /// Sets the ticks to forget.
    #[must_use]
    pub fn forget(mut self, forget: Forget) -> Self {
        self.forget = Some(forget);
        self
    }

    /// Grants all of the tasks or none, and then records and forgets nothing.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.whole = true;
        self
    }

    /// Starts the tasks, too.
    #[must_use]
    pub fn started(mut self) -> Self {
        self.started = true;
        self
    }
}

/// Which ticks to forget: the earliest, by the instants at which they were recorded, then by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Forget {
    /// Ticks recorded before this instant (`at < before`).
    pub before: Timestamp,
    /// Ticks that are not among this many latest ones. With `None` their number does not matter, and they are
    /// not counted.
    pub most: Option<usize>,
    /// At most this many, the earliest first.
    pub limit: usize,
}

impl Forget {
    /// Forgets at most `limit` ticks recorded before this instant, however many others there are.
    pub fn before(before: Timestamp, limit: usize) -> Self {
        Self { before, most: None, limit }
    }

    /// Also forgets ticks that are not among this many latest ones.
    #[must_use]
    pub fn most(mut self, ticks: usize) -> Self {
        self.most = Some(ticks);
        self
    }
}

/// What a [`GrantBatch`] changed, and whether all of it was as planned.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Granted {
    /// The granted tasks as they are now, in the order of the batch.
    pub tasks: Vec<TaskRecord>,
    /// True if each pool of the granted tasks is known and had enough open slots, and each of their limit keys had
    /// room by its own maximum. Families and rates are not checked, because what a tick planned with does not change
    /// until it commits.
    pub had_room: bool,
    /// How many ticks were forgotten. A replaced tick does not count.
    pub forgotten: usize,
}

impl Granted {
    /// Creates the result: the granted tasks, whether there was room, and how many ticks were forgotten.
    pub fn new(tasks: Vec<TaskRecord>, had_room: bool, forgotten: usize) -> Self {
        Self { tasks, had_room, forgotten }
    }

    /// Returns true if every task of the batch was granted, with room for it. If not, roll back: the
    /// counters are right, but a pool or a limit may be above its size.
    pub fn is_whole(&self, batch: &GrantBatch<'_>) -> bool {
        self.tasks.len() == batch.tasks.len() && self.had_room
    }
}
