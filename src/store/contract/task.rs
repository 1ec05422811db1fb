//! What a store does with tasks.

use std::fmt;

use serde::Serialize;

use super::tick::{GrantBatch, Granted, LanesBehind, Overdue, Promote, Survey, SurveyQuery};
use crate::admission::{Candidate, LaneKey, LanePage, Mark, QueueRecord, Serving, Subject};
use crate::core::admission::cap::CapUse;
use crate::core::task::change::Change;
use crate::error::StoreResult;
use crate::id::{Holder, LimitKey, PoolName, TaskKey};
use crate::lease::{LeaseRef, Renewal, TaskId};
use crate::sensor::EndReason;
use crate::task::list::{TaskSums, TaskWalk, Walked};
use crate::task::{PastAttempt, TaskInsert, TaskRecord, TaskState};
use crate::time::Timestamp;

/// The outcome of enqueueing a task.
///
/// # Examples
///
/// ```
/// use stationmaster::admission::Subject;
/// use stationmaster::store::Inserted;
/// let refused = Inserted::Refused { subject: Subject::Queue("gpu".try_into()?), waiting: 100, most: 100 };
/// assert_eq!(refused.to_string(), "refused: 100 of at most 100 tasks wait in queue gpu");
/// # Ok::<(), stationmaster::error::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Inserted {
    /// It was inserted with this number.
    New(TaskId),
    /// A task with this key already existed, with this number. Nothing was changed.
    Exists(TaskId),
    /// It was not inserted, because the number of waiting tasks has reached a cap. Try again later.
    Refused {
        /// The queue or the limit key that is capped, by its own definition or that of its family.
        subject: Subject,
        /// How many of its tasks waited, including those that the call enqueued before this one.
        waiting: u64,
        /// How many may wait.
        most: u32,
    },
}

impl fmt::Display for Inserted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New(id) => write!(f, "enqueued as task {}", id.0),
            Self::Exists(id) => write!(f, "exists as task {}", id.0),
            Self::Refused { subject, waiting, most } => {
                write!(f, "refused: {waiting} of at most {most} tasks wait in {subject}")
            }
        }
    }
}

/// Takes a task out of the state `from`, if it is still in that state and its epoch is still `task.epoch`.
///
/// `from` is the state in which the caller read the task. The caller has used it to decide what else to do, for
/// example which run to close. If the state has changed, the move does nothing: read the task again, and decide again.
///
/// A move also clears the lease. `ready_at` becomes the later of `due` and `ended_at`; if neither is set, it
/// stays unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Move {
    /// The task, and the epoch it must have.
    pub task: LeaseRef,
    /// The state it must be in. Waiting for an instant and being ready are one state, `Scheduled`.
    pub from: TaskState,
    /// Its new state. Not `Queued` or `Running`: those take a grant and a start.
    pub to: TaskState,
    /// Its new due instant. `None` in state `Scheduled` makes it ready.
    pub due: Option<Timestamp>,
    /// True if it keeps the slots that it holds. Sensing tasks do so in some pools, and so do tasks that are ready
    /// again after sensing. Otherwise its slots return to its pools.
    pub keeps_slots: bool,
    /// Added to its count of forgiven attempts.
    pub forgive: u32,
    /// Replaces its count of lost leases, unless `None`.
    pub lost: Option<u32>,
    /// Replaces `ended_at`, unless `None`.
    pub ended_at: Option<Timestamp>,
    /// When it happens, if that is not `ended_at`: for the record of an attempt.
    pub at: Option<Timestamp>,
    /// Replaces `message`, even when `None`.
    pub message: Option<String>,
    /// Replaces `value`, even when `None`.
    pub value: Option<String>,
    /// Why the task's sensor ended, if this move ends it: for the feed.
    pub reason: Option<EndReason>,
    /// True if the holder itself reports the outcome of its attempt. [`TaskRecord::finished`] then becomes
    /// `to`, and `None` otherwise.
    pub finished: bool,
}

impl Move {
    /// Creates a move to this state. The task then waits for nothing, holds nothing, and has neither message
    /// nor value.
    pub fn new(task: LeaseRef, from: TaskState, to: TaskState) -> Self {
        Self {
            task,
            from,
            to,
            due: None,
            keeps_slots: false,
            forgive: 0,
            lost: None,
            ended_at: None,
            at: None,
            message: None,
            value: None,
            reason: None,
            finished: false,
        }
    }
}

/// What [`TaskTx::hold_tasks`] does about tasks that another transaction holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Waits until the other transaction ends. For verbs that a host calls.
    ForOthers,
    /// Skips them. For services, which find them again later.
    Never,
}

/// A task that a transaction asked to hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Held {
    /// The task, as it is now. No other transaction changes it until this one ends.
    Task(Box<TaskRecord>),
    /// Another transaction holds it, so it was skipped.
    Busy,
    /// There is no such task.
    Unknown,
}

/// A task that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Started {
    /// Whether its attempts are recorded as runs ([`TaskRecord::attempt_runs`]). So the caller need not read
    /// the task.
    pub records_run: bool,
}

impl Started {
    /// Creates the result of a start. `records_run` says whether the task's attempts are recorded as runs.
    pub fn new(records_run: bool) -> Self {
        Self { records_run }
    }
}

/// A counter that differs from what it counts. A correct store never has one. [`TaskTx::audit`] looks for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Discrepancy {
    /// A pool's `used` is not the sum of what its tasks hold of it: all that they need, or nothing.
    Pool {
        /// The pool.
        pool: PoolName,
        /// What its row says.
        counted: i64,
        /// What the tasks hold.
        held: i64,
    },
    /// A limit's `used` is not the number of leased tasks that carry its key.
    Limit {
        /// The limit.
        key: LimitKey,
        /// What its row says.
        counted: i64,
        /// What the tasks hold.
        held: i64,
    },
    /// A share's counter of a pool's slots is not what its tasks hold.
    Share {
        /// The pool.
        pool: PoolName,
        /// The key of the share.
        share: LimitKey,
        /// What its row says.
        counted: i64,
        /// What the tasks hold.
        held: i64,
    },
    /// A share's count of the lanes whose own pool this is differs from their number.
    ShareLanes {
        /// The pool.
        pool: PoolName,
        /// The key of the share.
        share: LimitKey,
        /// What its row says.
        counted: i64,
        /// How many there are.
        held: i64,
    },
    /// A lane's `ready` differs from the number of its ready tasks.
    Lane {
        /// The lane.
        lane: LaneKey,
        /// What its row says.
        counted: i64,
        /// How many there are.
        held: i64,
    },
    /// A lane's count of its tasks that have not ended differs from their number. A store that also counts ended tasks
    /// reports that count here, too.
    LaneTasks {
        /// The lane.
        lane: LaneKey,
        /// What its row says.
        counted: i64,
        /// How many there are.
        held: i64,
    },
    /// A limit key's count of the lanes that name it differs from their number.
    LimitLanes {
        /// The limit.
        key: LimitKey,
        /// What its row says.
        counted: i64,
        /// How many there are.
        held: i64,
    },
    /// A mark claims that a pool or a key refuses the tasks of lanes, but it does not.
    Mark {
        /// What it says.
        mark: String,
    },
    /// A task whose lease does not fit its state, or that holds slots in a state that cannot.
    Task {
        /// The task.
        task: TaskId,
        /// What is wrong.
        problem: String,
    },
}

impl Discrepancy {
    /// Returns true if both concern the same counter, or the same task.
    pub(in crate::store) fn is_of_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Pool { pool, .. }, Self::Pool { pool: other, .. }) => pool == other,
            (Self::Limit { key, .. }, Self::Limit { key: other, .. })
            | (Self::LimitLanes { key, .. }, Self::LimitLanes { key: other, .. }) => key == other,
            (Self::Share { pool, share, .. }, Self::Share { pool: other, share: of, .. })
            | (Self::ShareLanes { pool, share, .. }, Self::ShareLanes { pool: other, share: of, .. }) => {
                (pool, share) == (other, of)
            }
            (Self::Lane { lane, .. }, Self::Lane { lane: other, .. })
            | (Self::LaneTasks { lane, .. }, Self::LaneTasks { lane: other, .. }) => lane == other,
            (Self::Mark { mark }, Self::Mark { mark: other }) => mark == other,
            (Self::Task { task, .. }, Self::Task { task: other, .. }) => task == other,
            _ => false,
        }
    }
}

/// Returns the counters that were found before a repair but not after it.
pub(in crate::store) fn repaired(before: Vec<Discrepancy>, after: &[Discrepancy]) -> Vec<Discrepancy> {
    let is_left = |found: &Discrepancy| after.iter().any(|after| after.is_of_same(found));
    let is_counter = |found: &Discrepancy| !matches!(found, Discrepancy::Task { .. });
    before.into_iter().filter(|found| is_counter(found) && !is_left(found)).collect()
}

/// Tasks, their lanes and their leases.
pub trait TaskTx {
    /// Inserts the tasks whose keys are new, in this order, in state `Scheduled`. Their numbers rise in the
    /// same order. Makes their lanes known, and also their limit keys, without a maximum. A lane exists while a task in
    /// it has not ended, and a key without a maximum is known while such a task carries it. Numbers of lanes rise, too,
    /// and are never reused.
    ///
    /// It does not check caps, and refuses no task.
    fn insert_tasks_if_absent(&mut self, tasks: &[TaskInsert]) -> StoreResult<Vec<Inserted>>;

    /// Works like [`Self::insert_tasks_if_absent`], but if a cap may apply to one of the tasks, it inserts none and
    /// returns `None`. So a store across a network needs only one round trip if nothing is capped.
    fn insert_tasks_if_uncapped(&mut self, tasks: &[TaskInsert]) -> StoreResult<Option<Vec<Inserted>>>;

    /// Returns the caps that apply to these tasks, by subject, each with the number of tasks that wait under it. A
    /// task waits if it has not ended and is neither leased nor sensing. It counts under its queue's cap and under
    /// those of its keys. A key's cap is its own. If the key itself is not defined, it is the cap of the family with
    /// the longest prefix.
    ///
    /// If a cap is strict, transactions that ask for it are serialized from here until they end, and the count
    /// includes what earlier ones committed. A store with one writer at a time need not do anything for that.
    ///
    /// The cost grows with the number of lanes, leases and sensors, once for each call.
    fn hold_caps(&mut self, tasks: &[TaskInsert]) -> StoreResult<Vec<CapUse>>;

    /// Returns the tasks with these keys.
    fn tasks(&mut self, keys: &[TaskKey]) -> StoreResult<Vec<Option<TaskRecord>>>;

    /// Returns the tasks with these numbers.
    fn tasks_by_id(&mut self, ids: &[TaskId]) -> StoreResult<Vec<Option<TaskRecord>>>;

    /// Locks the tasks with these numbers until the transaction ends, and returns them as they are then. A
    /// store with one writer at a time has nothing to lock, and keeps the default.
    fn hold_tasks(&mut self, ids: &[TaskId], wait: Wait) -> StoreResult<Vec<Held>> {
        let _ = wait;
        let held = |task: Option<TaskRecord>| task.map_or(Held::Unknown, |task| Held::Task(Box::new(task)));
        Ok(self.tasks_by_id(ids)?.into_iter().map(held).collect())
    }

    /// Makes overdue tasks ready, and returns what an admission tick plans with. It is one call for any
    /// number of pools, lanes and tasks, so a store across a network needs one round trip. Its cost does not
    /// depend on how many tasks wait. The same holds for [`Self::candidates`] and [`Self::grant_if_open`].
    ///
    /// It writes only if [`SurveyQuery::promote`] is set.
    fn survey(&mut self, query: &SurveyQuery) -> StoreResult<Survey>;

    /// Returns the tasks that [`Self::survey`] would make ready, and writes nothing. Waits for no other transaction,
    /// and includes tasks that another one has locked. Its cost grows with the number of tasks that it returns, and
    /// may grow with the number of lanes.
    fn overdue(&mut self, promote: Promote) -> StoreResult<Overdue>;

    /// Records that a holder serves these queues, replacing its earlier record of the same set. Deletes at most 64
    /// other records that stopped counting at `forget` or earlier, earliest first.
    fn put_serving(&mut self, serving: &Serving, forget: Timestamp) -> StoreResult<()>;

    /// Returns the holders' records of the queues that they serve, by holder, then by the queues.
    fn serving(&mut self) -> StoreResult<Vec<Serving>>;

    /// Counts the tasks of each queue that has open ones, by name. Does not return who serves it. The cost grows with
    /// the number of lanes, leases and sensors.
    fn queues(&mut self) -> StoreResult<Vec<QueueRecord>>;

    /// Continues a walk. It stops when it has found [`TaskWalk::most`] tasks that match the query, when it
    /// has read [`TaskWalk::most_read`] tasks, or at the end of the walk.
    ///
    /// A task keeps its place while it stays on the walk. It may have changed by the time the caller reads
    /// it.
    ///
    /// If [`TaskQuery::is_exact`](crate::task::TaskQuery) holds, every task on the walk matches. The walk
    /// then reads only the tasks that it finds, and lanes.
    ///
    /// Refuses a place that no step of such a walk returned (kind `Backend`).
    fn walk_tasks(&mut self, walk: &TaskWalk<'_>) -> StoreResult<Walked>;

    /// Counts tasks. Counters provide the number of tasks that have not ended. Leased and sensing ones are counted one
    /// by one, and others up to one above the cap. Successes are counted among the latest ends, up to one above the
    /// cap.
    fn count_tasks(&mut self, cap: usize) -> StoreResult<TaskSums>;

    /// Returns ready tasks: those of each page in the order of [`crate::admission::OrderKey`], page after
    /// page. [`Candidate::ready_at`] is set if the page asks for it, and `None` otherwise.
    fn candidates(&mut self, pages: &[LanePage]) -> StoreResult<Vec<Candidate>>;

    /// Commits the plan of a tick:
    ///
    /// 1. Grants the tasks that are ready, or none if the batch must be granted [whole](GrantBatch::whole) and one is
    ///    not. A granted task is `Queued`, its epoch and attempt rise by one, and it gets a lease, `held_slots` from
    ///    its lane, and `queued_at` from [`TaskRecord::recorded_at`]. If the batch must be
    ///    [started](GrantBatch::started), the grant also does what [`Self::start_if_queued`] would do at the same
    ///    instant. Tasks whose attempts are recorded as runs stay `Queued`.
    /// 2. Takes their slots from their pools, and counts them against their limit keys and for their shares, even
    ///    without room. Returns whether there was room ([`Granted::had_room`]). Then stamps
    ///    [shares](GrantBatch::shares).
    /// 3. Records what was granted under the name of the tick, in place of the tick it replaces, so that
    ///    [`Self::survey`] can return it.
    /// 4. Forgets old ticks, earliest first.
    ///
    /// A store may account for capacity as it likes: by counters, by rows, or by changes that it adds up on
    /// demand. What [`PoolTx`](super::PoolTx) and [`Self::survey`] return as used is exact in every
    /// transaction. An unknown pool has no count, so a grant in it has no room and is rolled back.
    fn grant_if_open(&mut self, batch: &GrantBatch<'_>) -> StoreResult<Granted>;

    /// Starts the tasks that are `Queued` under this epoch: they become `Running`. Sets `started_at` from
    /// [`TaskRecord::recorded_at`], and `first_started_at` too if it is `None`. Returns `None` for the
    /// others.
    fn start_if_queued(&mut self, leases: &[LeaseRef], now: Timestamp) -> StoreResult<Vec<Option<Started>>>;

    /// Sets the expiry of the tasks that have a lease of this epoch, expired or not. An expiry never moves
    /// back: a renewal to an earlier instant succeeds and changes nothing. A lease named twice has the same
    /// result twice. No renewal sets an expiry after the deadline of [`Self::cancel_if_leased`]: a lease with
    /// one returns [`Renewal::Cancelled`] with it.
    ///
    /// It waits for no other transaction. A lease that another one has locked is [`Renewal::Busy`], and
    /// whether it was renewed then is up to the store. A store with one writer at a time never returns this.
    fn renew_if_leased(&mut self, leases: &[LeaseRef], expires_at: Timestamp) -> StoreResult<Vec<Renewal>>;

    /// Stores the notes of these leases' holders about their work, each with its instant, as the lease's
    /// [`note`](crate::lease::Lease::note). A note replaces the previous one. Returns `false` if the task has no lease
    /// of this epoch, or if another transaction has it locked. Waits for no other transaction. Each lease is named
    /// once. A note disappears with its lease.
    fn note_if_leased(&mut self, notes: &[(LeaseRef, Timestamp, String)]) -> StoreResult<Vec<bool>>;

    /// Sets the deadline of the tasks that have a lease of this epoch ([`Lease::cancel_at`](crate::lease::Lease)), and
    /// replaces their message. A deadline never moves to a later instant: a task whose deadline is not later stays
    /// unchanged. An expiry later than the deadline becomes the deadline. Returns the resulting deadline of each, or
    /// `None` without such a lease. A lease named twice has the same result twice.
    fn cancel_if_leased(
        &mut self,
        leases: &[LeaseRef],
        deadline: Timestamp,
        message: &str,
    ) -> StoreResult<Vec<Option<Timestamp>>>;

    /// Moves tasks, each under its own condition. A call moves a task at most once. The slots that a moved task held
    /// return to its pools, unless it keeps them. A task that held a lease no longer counts against its limit keys. A
    /// task that ends leaves its lane. A move out of an end puts it back into a lane, which may have to be created
    /// again. A move to `Queued` or `Running` is a caller's error: the whole call is refused (kind `Backend`).
    ///
    /// Some moves end an attempt:
    ///
    /// * *Without success*: from a leased state to `Scheduled`, `UpForRetry`, `Failed` or `Cancelled`, and
    ///   from `Sensing` to `UpForRetry`, `Failed` or `Cancelled`.
    /// * *With success*: from a leased state or `Sensing` to `Success` or `Skipped`, and from `Sensing` to
    ///   `Scheduled`.
    ///
    /// [`TaskRecord::keep_attempts`] says which of these attempts are recorded. The recorded instant is
    /// [`Move::ended_at`] if set, otherwise [`Move::at`] if set, otherwise the task's `ready_at`. It is never
    /// before the task was queued, nor before this attempt was started. The store keeps the attempts of the
    /// latest 16 epochs: the first one of each epoch, with at most 1,000 characters of its message.
    fn move_if(&mut self, moves: &[Move]) -> StoreResult<Vec<bool>>;

    /// Returns the recorded attempts of these tasks, each task's by epoch.
    fn attempts(&mut self, tasks: &[TaskId]) -> StoreResult<Vec<Vec<PastAttempt>>>;

    /// Replaces the requirements of tasks, each under its own condition and only if the task holds no slots. A call
    /// changes a task at most once. A task whose needs change moves to another lane, which may have to be created.
    fn change_if(&mut self, changes: &[Change]) -> StoreResult<Vec<bool>>;

    /// Deletes tasks and their sensors. A task is deleted only if it is in this state under this epoch, holds no slots
    /// and has no unacknowledged event. A task with a lease stays. One that has not ended leaves its lane.
    fn delete_if(&mut self, tasks: &[(LeaseRef, TaskState)]) -> StoreResult<Vec<bool>>;

    /// Ends tasks that have a lease of this epoch, without the caller having read them. It works like
    /// [`Self::move_if`] to an end from `Queued` or `Running`, whatever [`Move::from`] says, as reported by the
    /// holder. [`Move::ended_at`] is raised to [`TaskRecord::recorded_at`]. Returns for each ended task whether its
    /// attempt was started and is recorded as a run. A store may leave any of them to the caller, which reads and
    /// moves them: for example tasks that keep all attempts. A store that reads at next to no cost keeps the default,
    /// which ends none.
    fn end_if_leased(&mut self, ends: &[Move]) -> StoreResult<Vec<Option<bool>>> {
        Ok(vec![None; ends.len()])
    }

    /// Announces that the next verb is the transaction's last. A store across a network may send the commit along with
    /// its last statement. After that, the verb has done everything, or has returned an error and changed nothing.
    fn last(&mut self) {}

    /// Returns true if the commit was sent along with a call since [`Self::last`], so that nothing can undo
    /// the transaction.
    fn is_committed(&self) -> bool {
        false
    }

    /// Locks at most `limit` leases that expired at `now` or earlier, and returns their tasks, by expiry, then by
    /// number. The transaction holds these leases until it ends. Leases that another transaction holds are skipped,
    /// and do not count towards the limit. So a confirmed renewal is never missed: either its transaction holds the
    /// lease, or its expiry is visible. A read transaction refuses the call, although it changes nothing.
    fn hold_expired(&mut self, now: Timestamp, limit: usize) -> StoreResult<Vec<TaskRecord>>;

    /// Returns the earliest expiry of all leases. If many leases were renewed, a store may return an earlier instant
    /// until [`Self::hold_expired`] is called with it.
    fn next_expiry(&mut self) -> StoreResult<Option<Timestamp>>;

    /// Returns an instant at which upkeep looks for expired leases again. No lease expires earlier, but one may
    /// expire later. A store for which [`Self::next_expiry`] can take long returns what it knows.
    fn next_look(&mut self, now: Timestamp) -> StoreResult<Option<Timestamp>> {
        let _ = now;
        self.next_expiry()
    }

    /// Returns the size of the data on disk: the name of each part and its bytes, the largest first. Empty for a store
    /// that keeps nothing on disk.
    fn sizes(&mut self) -> StoreResult<Vec<(String, u64)>>;

    /// Waits until no other transaction that has given one of these names is open. From then on the transaction sees
    /// what they committed, and other transactions that give one of the names wait for its end. The names are sorted,
    /// and each is given once. A store with one writer at a time has nothing to wait for, and keeps the default.
    fn serialize(&mut self, names: &[&str]) -> StoreResult<()> {
        let _ = names;
        Ok(())
    }

    /// Returns the tasks that this holder leases, by number: those after `after`, at most `limit`. Includes expired
    /// leases that were not ended yet. The cost may grow with the number of all leases.
    fn leases_of(
        &mut self,
        holder: &Holder,
        after: Option<TaskId>,
        limit: usize,
    ) -> StoreResult<Vec<TaskRecord>>;

    /// Deletes at most `limit` tasks that ended in this state before this instant (`ended_at < before`), with their
    /// sensors, earliest first. Returns how many. Tasks that were sensors stay unless they also ended before
    /// `sensors_before`. Tasks that stay do not count towards the limit. Numbers of deleted tasks are never reused.
    /// Lanes and limit keys do not change, because ended tasks do not count in them.
    fn forget_ended(
        &mut self,
        state: TaskState,
        before: Timestamp,
        sensors_before: Timestamp,
        limit: usize,
    ) -> StoreResult<usize>;

    /// Returns lanes that do not sleep, in the order of their first ready tasks, with what they name, and
    /// [`Survey::unread`] if there are more. Excludes lanes of shares and those whose tasks kept their slots. May
    /// include lanes that the survey returned. A store whose surveys return all lanes keeps the default.
    fn lanes_behind(&mut self, _page: &LanesBehind<'_>) -> StoreResult<Survey> {
        Ok(Survey::default())
    }

    /// Records marks. Until a mark is removed, its lanes sleep. Any change that may end its cause removes it, in the
    /// same transaction: returned slots of the pool, returned counts of the key, a definition, any pause or resume. A
    /// survey that promotes removes expired marks of its queues, as far as [`First::wakes`](super::First::wakes)
    /// allows. A rollback removes the transaction's marks. So does a grant that grants nothing because a planned task
    /// is missing: the transaction then plans again.
    fn put_marks(&mut self, _marks: &[Mark]) -> StoreResult<()> {
        Ok(())
    }

    /// Compares every counter with what it counts. The only method that reads all tasks.
    fn audit(&mut self) -> StoreResult<Vec<Discrepancy>>;

    /// Sets the counters to what they count. Returns those that it repaired, as they were before, in the
    /// order of [`Self::audit`]. Also removes wrong marks, and changes nothing else. No tick runs until the
    /// transaction ends. A store that
    /// cannot do this exactly keeps the default, which repairs nothing.
    fn repair_counters(&mut self) -> StoreResult<Vec<Discrepancy>> {
        Ok(Vec::new())
    }
}
