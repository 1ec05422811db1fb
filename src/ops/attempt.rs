//! One attempt: started, kept alive and finished by the holder of its lease.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::leave;
use crate::bounds::{MAX_NOTE_BYTES, MAX_TEXT_BYTES};
use crate::error::{Invalid, Result};
use crate::lease::{LeaseRef, Renewal, TaskId};
use crate::run::{RunRecord, StartMethod};
use crate::store::Tx;
use crate::store::contract::{Held, Move, Wait};
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The work is done.
    Success {
        /// A result that the host wants to keep.
        value: Option<String>,
    },
    /// The work failed; the retry policy decides what follows.
    Failed {
        /// The reason, for people.
        message: String,
        /// What the failure implies for the next attempt.
        retry: RetryAdvice,
    },
    /// The work was not needed.
    Skipped {
        /// The reason, for people.
        message: String,
    },
    /// The work was not done, because the holder is stopping. The task is ready again at once. The attempt
    /// does not count against its retry policy.
    GivenBack,
}

/// What a failure implies for the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RetryAdvice {
    /// Nothing: the policy decides.
    #[default]
    Policy,
    /// Not sooner than this (a server's `Retry-After`).
    NotBefore(Duration),
    /// After exactly this delay (Airflow 3.3: `retry_delay_override`), if the policy allows another attempt.
    After(Duration),
    /// Another attempt would not help (Airflow: `AirflowFailException`).
    Never,
}

/// The end of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finish {
    /// The lease under which it ran.
    pub lease: LeaseRef,
    /// How it ended.
    pub outcome: Outcome,
}

impl Finish {
    /// Creates the end of the attempt under this lease, with this outcome.
    pub fn new(lease: LeaseRef, outcome: Outcome) -> Self {
        Self { lease, outcome }
    }

    /// Creates the end of an attempt that succeeded.
    pub fn success(lease: LeaseRef) -> Self {
        Self::new(lease, Outcome::Success { value: None })
    }

    /// Creates the end of an attempt that succeeded, with a value to keep.
    pub fn success_with(lease: LeaseRef, value: impl Into<String>) -> Self {
        Self::new(lease, Outcome::Success { value: Some(value.into()) })
    }

    /// Creates the end of an attempt whose work was not needed.
    pub fn skipped(lease: LeaseRef, message: impl Into<String>) -> Self {
        Self::new(lease, Outcome::Skipped { message: message.into() })
    }

    /// Creates the end of an attempt that was given back without being done.
    pub fn given_back(lease: LeaseRef) -> Self {
        Self::new(lease, Outcome::GivenBack)
    }

    /// Creates the end of an attempt that failed; the retry policy decides what follows.
    pub fn failed(lease: LeaseRef, message: impl Into<String>) -> Self {
        Self::new(lease, Outcome::Failed { message: message.into(), retry: RetryAdvice::Policy })
    }
}

/// What happened to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finished {
    /// It ended.
    Ended(TaskState),
    /// It will be retried, but not before this instant.
    RetryAt(Timestamp),
    /// It is ready again.
    Ready,
    /// The same finish already took effect under this lease, so this call changed nothing. The task is in
    /// this state: the one that the first call moved it to, or `Scheduled` if its retry has become due since.
    ///
    /// A second call after a commit of unknown outcome returns this. Whatever the host wrote beside the first
    /// call was committed with it.
    Already(TaskState),
    /// The lease is not the task's latest, or something else ended it: upkeep, a mark, a registration as a
    /// sensor or a different finish. Nothing was changed. Another holder may be working on the task.
    Stale,
}

impl Tx<'_> {
    /// Starts admitted tasks: their holder begins the work. Returns `false` for a stale lease.
    ///
    /// The call may be repeated, for example after a commit of unknown outcome. It returns `true` for a task
    /// that already runs under this lease, and keeps the instant of its first start. If the host writes its
    /// own rows in the same transaction, writing them twice must be harmless.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn start(&mut self, now: impl Into<Timestamp>, leases: &[LeaseRef]) -> Result<Vec<bool>> {
        let now = now.into();
        self.whole(|tx| {
            let asked: Vec<LeaseRef> = BTreeSet::from_iter(leases.iter().copied()).into_iter().collect();
            let started = tx.start_queued(&asked, now)?;
            let (mut runs_now, mut refused, mut recorded) = (HashSet::new(), Vec::new(), Vec::new());
            for (lease, started) in asked.into_iter().zip(started) {
                match started {
                    Some(started) => {
                        runs_now.insert(lease);
                        recorded.extend(started.records_run.then_some(lease));
                    }
                    None => refused.push(lease),
                }
            }
            // A repeated call: the task already runs under this lease.
            for (lease, task) in refused.iter().zip(tasks_under(tx, &refused)?) {
                if task.is_some_and(|task| task.state == TaskState::Running) {
                    runs_now.insert(*lease);
                }
            }
            tx.starts_were_stale(refused.iter().filter(|lease| !runs_now.contains(lease)).count());
            record_runs(tx, &recorded)?;
            Ok(leases.iter().map(|lease| runs_now.contains(lease)).collect())
        })
    }
}

/// Returns the task of each lease, or `None` if a later grant has fenced it off. Reads nothing if there are
/// no leases.
pub(super) fn tasks_under(tx: &mut Tx<'_>, leases: &[LeaseRef]) -> Result<Vec<Option<TaskRecord>>> {
    let ids: Vec<TaskId> = leases.iter().map(|lease| lease.id).collect();
    let tasks = if ids.is_empty() { Vec::new() } else { tx.raw().tasks_by_id(&ids)? };
    let current = |(task, lease): (Option<TaskRecord>, &LeaseRef)| {
        task.filter(|task| lease.is_current(task.lease_ref()))
    };
    Ok(tasks.into_iter().zip(leases).map(current).collect())
}

/// Locks the task of each lease until the transaction ends. Returns [`Held::Unknown`] if a later grant has
/// fenced the lease off.
pub(super) fn hold_under(tx: &mut Tx<'_>, leases: &[LeaseRef], wait: Wait) -> Result<Vec<Held>> {
    let ids: Vec<TaskId> = leases.iter().map(|lease| lease.id).collect();
    let held = if ids.is_empty() { Vec::new() } else { tx.raw().hold_tasks(&ids, wait)? };
    let current = |(held, lease): (Held, &LeaseRef)| match held {
        Held::Task(task) if !lease.is_current(task.lease_ref()) => Held::Unknown,
        held => held,
    };
    Ok(held.into_iter().zip(leases).map(current).collect())
}

fn held(held: Held) -> Option<TaskRecord> {
    match held {
        Held::Task(task) => Some(*task),
        Held::Busy | Held::Unknown => None,
    }
}

/// Records a run for each attempt that has just started under these leases.
fn record_runs(tx: &mut Tx<'_>, leases: &[LeaseRef]) -> Result<()> {
    let mut runs = Vec::with_capacity(leases.len());
    for task in tasks_under(tx, leases)?.into_iter().flatten() {
        if let Some(started_at) = task.started_at {
            let run = RunRecord::open(leave::attempt_run(&task)?, started_at);
            runs.push(run.workflow(task.key.workflow).method(StartMethod::Triggered));
        }
    }
    if !runs.is_empty() {
        tx.raw().put_runs(&runs)?;
    }
    Ok(())
}

impl Tx<'_> {
    /// Renews leases until `now + lease`: the holder's heartbeat. Stop the work of a lease that is
    /// [`Renewal::Lost`]. Continue the work of a lease that is [`Renewal::Busy`], and renew it again soon. If
    /// a lease is [`Renewal::Cancelled`], end its task in any way before the deadline.
    ///
    /// A lease that has expired but was not reaped is renewed, because no other holder has been granted the
    /// task. An expiry never moves back: a renewal to an earlier instant succeeds and changes nothing.
    ///
    /// A [`Keeper`](crate::service::Keeper) calls this in time, retries after a failure, and notifies the
    /// holders of cancelled and lost leases.
    ///
    /// # Errors
    ///
    /// Returns [`crate::Error::Store`] if the store fails.
    pub fn renew(
        &mut self,
        now: impl Into<Timestamp>,
        lease: Duration,
        leases: &[LeaseRef],
    ) -> Result<Vec<Renewal>> {
        self.renew_leases(leases, now.into() + lease)
    }

    /// Stores holders' notes about their work in [`Lease::note`](crate::lease::Lease) of the task's record. A
    /// note replaces the previous one and disappears with its lease. Nothing else depends on it. Each has at
    /// most [`MAX_NOTE_BYTES`] bytes. If a call names a lease twice, the last note counts.
    ///
    /// Returns `false` if the lease was lost, or if another transaction holds it right now. The call never
    /// waits.
    ///
    /// The handler of a worker calls [`Attempt::note`](crate::service::Attempt::note) instead, which stores
    /// the note with the next renewal.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::TooManyBytes`] for a longer note, and [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::ops::AdmitRequest;
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let (now, key) = (Timestamp::UNIX_EPOCH, TaskKey::new("prod", "nightly", "r1", "load")?);
    /// let order = AdmitRequest::new("worker-1".try_into()?, "tick-1".try_into()?, 1, Duration::from_secs(30)).started();
    /// store.write(|tx| tx.enqueue(now, &[NewTask::new(key.clone())]))?;
    /// let lease = store.write(|tx| tx.admit(now, &order))?.granted[0].lease_ref();
    /// assert_eq!(store.write(|tx| tx.note(now, &[(lease, "12 of 40 files".into())]))?, [true]);
    ///
    /// let task = store.read(|tx| tx.tasks(std::slice::from_ref(&key)))?.remove(0).unwrap();
    /// assert_eq!(task.lease.unwrap().note.as_deref(), Some("12 of 40 files"));
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn note(&mut self, now: impl Into<Timestamp>, notes: &[(LeaseRef, String)]) -> Result<Vec<bool>> {
        let now = now.into();
        if let Some((_, long)) = notes.iter().find(|(_, text)| text.len() > MAX_NOTE_BYTES) {
            let (what, bytes, cap) = ("a note", long.len(), MAX_NOTE_BYTES);
            return Err(Invalid::TooManyBytes { what, bytes, cap }.into());
        }
        let latest: BTreeMap<LeaseRef, &String> = notes.iter().map(|(lease, text)| (*lease, text)).collect();
        let asked: Vec<(LeaseRef, Timestamp, String)> =
            latest.into_iter().map(|(lease, text)| (lease, now, text.clone())).collect();
        let noted = self.note_leases(&asked)?;
        let noted: BTreeSet<LeaseRef> =
            asked.iter().zip(noted).filter(|(_, noted)| *noted).map(|((lease, ..), _)| *lease).collect();
        Ok(notes.iter().map(|(lease, _)| noted.contains(lease)).collect())
    }

    /// Ends attempts: ends their leases, frees slots and limits, and retries failed tasks as their policies
    /// say.
    ///
    /// A [cancelled](Self::cancel) task that fails or is given back ends as [`TaskState::Cancelled`]. A
    /// success or a skip is stored as such, because nothing is left to do.
    ///
    /// A task that was admitted but never started can be finished too. Hosts that do not use `Running` need
    /// not call [`start`](crate::store::Tx::start). Such an attempt is not in the run index.
    ///
    /// The call may be repeated, for example after a commit of unknown outcome. It returns
    /// [`Finished::Already`] if the same finish already took effect under the lease: a success with the same
    /// value, a failure, a skip, or given back. Messages are not compared. It returns [`Finished::Stale`] if
    /// anything else ended the lease or has moved the task since. This finish is then not stored. If one call
    /// names a lease twice, the first finish counts and the second is treated as a repetition.
    ///
    /// # Errors
    ///
    /// Returns [`Invalid::TooManyBytes`] for a value or message above [`MAX_TEXT_BYTES`]. Returns
    /// [`crate::Error::Store`] if the store fails.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use stationmaster::backoff::RetryPolicy;
    /// use stationmaster::ops::{AdmitRequest, Finish, Finished};
    /// use stationmaster::store::MemoryStore;
    /// use stationmaster::{NewTask, TaskKey, Timestamp};
    ///
    /// let store = MemoryStore::new();
    /// let now = Timestamp::UNIX_EPOCH;
    /// let retry = RetryPolicy::fixed(Duration::from_secs(30)).max_attempts(2).build()?;
    /// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?).retry(retry);
    /// let order = AdmitRequest::new("worker-1".try_into()?, "tick-1".try_into()?, 10, Duration::from_secs(30));
    ///
    /// store.write(|tx| tx.enqueue(now, std::slice::from_ref(&task)))?;
    /// let lease = store.write(|tx| tx.admit(now, &order))?.granted[0].lease_ref();
    /// let finished = store.write(|tx| {
    ///     tx.start(now, &[lease])?;
    ///     tx.finish(now, &[Finish::failed(lease, "no route to host"), Finish::success(lease)])
    /// })?;
    /// assert_eq!(finished, [Finished::RetryAt(Timestamp::from_micros(30_000_000)), Finished::Stale]);
    /// # Ok::<(), stationmaster::Error>(())
    /// ```
    pub fn finish(&mut self, now: impl Into<Timestamp>, finishes: &[Finish]) -> Result<Vec<Finished>> {
        let now = now.into();
        self.whole(|tx| {
            for finish in finishes {
                check(&finish.outcome)?;
            }
            // Of several finishes for one lease, the first counts.
            let mut first: HashMap<LeaseRef, usize> = HashMap::with_capacity(finishes.len());
            let is_first = |(at, finish): (usize, &Finish)| *first.entry(finish.lease).or_insert(at) == at;
            let is_first: Vec<bool> = finishes.iter().enumerate().map(is_first).collect();
            let mut open: Vec<usize> = (0..finishes.len()).filter(|at| is_first[*at]).collect();

            let mut ends: HashMap<LeaseRef, End> = HashMap::with_capacity(finishes.len());
            // Only if all of them are plain: two calls would not lock the rows in their order.
            let end = |at: &usize| plain_end(&finishes[*at], now);
            let plain = open.iter().map(end).collect::<Option<Vec<Move>>>();
            let is_plain = plain.is_some();
            if let Some(plain) = plain {
                let (ended, mut recorded, mut missed) = (tx.end_leased(&plain)?, Vec::new(), Vec::new());
                for ((at, to), ended) in open.into_iter().zip(plain).zip(ended) {
                    recorded.extend(ended.filter(|is_recorded| *is_recorded).map(|_| to.task));
                    match ended {
                        Some(_) => drop(ends.insert(to.task, End::Now(Box::new(to)))),
                        None => missed.push(at),
                    }
                }
                leave::close_ended(tx, &recorded)?;
                open = missed;
            }
            leave::settle(open, |open| {
                let leases: Vec<LeaseRef> = open.iter().map(|at| finishes[*at].lease).collect();
                let (mut leaving, mut places) = (Vec::new(), Vec::new());
                // Lock the tasks unless the call has already ended some. A task that is only read may be
                // started meanwhile: its move would miss, and be repeated while the call holds the others.
                // But a call that has ended tasks must not wait for locks.
                let tasks = match is_plain {
                    true => tasks_under(tx, &leases)?,
                    false => hold_under(tx, &leases, Wait::ForOthers)?.into_iter().map(held).collect(),
                };
                for (at, task) in open.iter().zip(tasks) {
                    match task {
                        Some(task) if task.state.is_leased() => {
                            let to = decide(&task, now, &finishes[*at].outcome);
                            leaving.push((task, to));
                            places.push(*at);
                        }
                        Some(task) => drop(ends.insert(finishes[*at].lease, End::Before(Box::new(task)))),
                        None => {}
                    }
                }
                let moved = leave::commit(tx, now, &leaving)?;
                let mut missed = Vec::new();
                for ((at, moved), (_, to)) in places.into_iter().zip(moved).zip(leaving) {
                    match moved {
                        true => drop(ends.insert(finishes[at].lease, End::Now(Box::new(to)))),
                        false => missed.push(at),
                    }
                }
                Ok(missed)
            })?;
            let answer = |(finish, is_first): (&Finish, bool)| match ends.get(&finish.lease) {
                Some(End::Now(to)) if is_first => became(to),
                Some(End::Now(to)) if repeats(&finish.outcome, Some(to.to), &to.value) => {
                    Finished::Already(to.to)
                }
                Some(End::Before(task)) if repeats(&finish.outcome, task.finished, &task.value) => {
                    Finished::Already(task.state)
                }
                _ => Finished::Stale,
            };
            Ok(finishes.iter().zip(is_first).map(answer).collect())
        })
    }
}

/// How a lease ended.
enum End {
    /// By this move, decided for the first finish of the call that names the lease.
    Now(Box<Move>),
    /// Before the call. This is the task as it is now.
    Before(Box<TaskRecord>),
}

/// Returns true if this outcome repeats the finish that moved its task to `finished` and stored `value`.
fn repeats(outcome: &Outcome, finished: Option<TaskState>, value: &Option<String>) -> bool {
    match (outcome, finished) {
        (Outcome::Success { value: said }, Some(TaskState::Success)) => said == value,
        // A cancelled task ends as `Cancelled` after a failure, and also when it is given back.
        (Outcome::Failed { .. }, Some(TaskState::Failed | TaskState::UpForRetry | TaskState::Cancelled))
        | (Outcome::Skipped { .. }, Some(TaskState::Skipped))
        | (Outcome::GivenBack, Some(TaskState::Scheduled | TaskState::Cancelled)) => true,
        _ => false,
    }
}

fn check(outcome: &Outcome) -> Result<(), Invalid> {
    let (what, text) = match outcome {
        Outcome::Success { value: Some(value) } => ("a task's value", value),
        Outcome::Failed { message, .. } | Outcome::Skipped { message } => ("a task's message", message),
        Outcome::Success { value: None } | Outcome::GivenBack => return Ok(()),
    };
    match text.len() {
        0..=MAX_TEXT_BYTES => Ok(()),
        bytes => Err(Invalid::TooManyBytes { what, bytes, cap: MAX_TEXT_BYTES }),
    }
}

/// Returns the move for an outcome that can be decided without reading the task.
fn plain_end(finish: &Finish, now: Timestamp) -> Option<Move> {
    let end =
        |to| Move { ended_at: Some(now), finished: true, ..Move::new(finish.lease, TaskState::Running, to) };
    match &finish.outcome {
        Outcome::Success { value } => Some(Move { value: value.clone(), ..end(TaskState::Success) }),
        Outcome::Skipped { message } => {
            Some(Move { message: Some(message.clone()), ..end(TaskState::Skipped) })
        }
        Outcome::Failed { .. } | Outcome::GivenBack => None,
    }
}

fn decide(task: &TaskRecord, now: Timestamp, outcome: &Outcome) -> Move {
    let from = task.state;
    let ended = |to| Move { ended_at: Some(task.recorded_at(now)), ..Move::new(task.lease_ref(), from, to) };
    let to = match outcome {
        Outcome::Success { value } => Move { value: value.clone(), ..ended(TaskState::Success) },
        Outcome::Skipped { message } => Move { message: Some(message.clone()), ..ended(TaskState::Skipped) },
        Outcome::Failed { message, retry } => {
            leave::cancelled(task, now).unwrap_or_else(|| leave::failed(task, now, message.clone(), *retry))
        }
        Outcome::GivenBack => leave::cancelled(task, now).unwrap_or_else(|| Move {
            forgive: 1,
            at: Some(now),
            message: task.message.clone(),
            value: task.value.clone(),
            ..Move::new(task.lease_ref(), from, TaskState::Scheduled)
        }),
    };
    Move { finished: true, ..to }
}

/// Returns what a committed move means to the caller.
pub(super) fn became(to: &Move) -> Finished {
    match (to.to, to.due) {
        (TaskState::UpForRetry, Some(at)) => Finished::RetryAt(at),
        (TaskState::Scheduled, None) => Finished::Ready,
        (state, _) => Finished::Ended(state),
    }
}
