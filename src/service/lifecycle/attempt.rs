//! One attempt: started, kept alive, finished by the holder of its lease.

use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::leave;
use crate::bounds::MAX_TEXT_BYTES;
use crate::error::{Invalid, Result};
use crate::lease::{LeaseRef, TaskNo};
use crate::run::{RunRecord, StartMethod};
use crate::store::{Move, Moved, StateSet, StoreTx, TaskTx};
use crate::task::{AttemptRuns, TaskRecord, TaskState};
use crate::time;

/// The states of a task under a lease.
pub(super) const LEASED: [TaskState; 2] = [TaskState::Queued, TaskState::Running];

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The work is done.
    Success {
        /// What the host wants to keep of it.
        value: Option<String>,
    },
    /// The work failed; the retry policy decides what follows.
    Failed {
        /// Why, for people.
        message: String,
        /// What the failure says about the next attempt.
        retry: RetryAdvice,
    },
    /// The work was not needed.
    Skipped {
        /// Why, for people.
        message: String,
    },
    /// The work was not done and is handed back: the holder stops. The task is ready again at once, and the attempt does
    /// not count against its retry policy.
    GivenBack,
}

/// What a failure says about the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RetryAdvice {
    /// Nothing: the policy decides.
    #[default]
    Policy,
    /// Not sooner than this (a server's `Retry-After`).
    NotBefore(Duration),
    /// After exactly this (Airflow 3.3: `retry_delay_override`), if the policy allows another attempt.
    After(Duration),
    /// No other attempt would help (Airflow: `AirflowFailException`).
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
    /// The attempt under this lease ended like this.
    pub fn new(lease: LeaseRef, outcome: Outcome) -> Self {
        Self { lease, outcome }
    }

    /// The attempt succeeded.
    pub fn success(lease: LeaseRef) -> Self {
        Self::new(lease, Outcome::Success { value: None })
    }

    /// The attempt succeeded, with something to keep.
    pub fn success_with(lease: LeaseRef, value: impl Into<String>) -> Self {
        Self::new(lease, Outcome::Success { value: Some(value.into()) })
    }

    /// The work was not needed.
    pub fn skipped(lease: LeaseRef, message: impl Into<String>) -> Self {
        Self::new(lease, Outcome::Skipped { message: message.into() })
    }

    /// The work was not done and is handed back.
    pub fn given_back(lease: LeaseRef) -> Self {
        Self::new(lease, Outcome::GivenBack)
    }

    /// The attempt failed; the retry policy decides.
    pub fn failed(lease: LeaseRef, message: impl Into<String>) -> Self {
        Self::new(lease, Outcome::Failed { message: message.into(), retry: RetryAdvice::Policy })
    }
}

/// What became of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finished {
    /// It ended.
    Ended(TaskState),
    /// It is tried again, not before this instant.
    RetryAt(DateTime<Utc>),
    /// It is ready again.
    Ready,
    /// The lease is not the task's latest, or ended: nothing was changed. Somebody else may be at work on the task.
    Stale,
}

/// Starts admitted tasks: the holder begins the work. Answers `No` for a lease that is stale or started already.
///
/// # Errors
///
/// [`crate::Error::Store`] if the store fails.
pub fn start(
    tx: &mut (impl StoreTx + ?Sized),
    now: DateTime<Utc>,
    leases: &[LeaseRef],
) -> Result<Vec<Moved>> {
    let now = time::truncate(now);
    let moved = tx.start_if_queued(leases, now)?;
    let started: Vec<TaskNo> = leases
        .iter()
        .zip(&moved)
        .filter(|(_, moved)| **moved == Moved::Yes)
        .map(|(lease, _)| lease.no)
        .collect();
    let mut runs = Vec::new();
    for task in tx.tasks_by_no(&started)?.into_iter().flatten() {
        if task.attempt_runs == AttemptRuns::Record {
            runs.push(
                RunRecord::open(leave::attempt_run(&task)?, now)
                    .workflow(task.key.workflow.clone())
                    .method(StartMethod::Triggered),
            );
        }
    }
    if !runs.is_empty() {
        tx.put_runs(&runs)?;
    }
    Ok(moved)
}

/// Renews leases until `now + lease`: the holder's heartbeat. Answers `No` for a lease that was lost: stop that work.
///
/// A lease that expired but was not reaped yet is renewed; nobody else was given the task.
///
/// # Errors
///
/// [`crate::Error::Store`] if the store fails.
pub fn renew(
    tx: &mut (impl TaskTx + ?Sized),
    now: DateTime<Utc>,
    lease: Duration,
    leases: &[LeaseRef],
) -> Result<Vec<Moved>> {
    Ok(tx.renew_if_leased(leases, time::add(now, lease))?)
}

/// Ends attempts: the leases end, slots and limits come free, failed tasks are retried by their policies.
///
/// A task that was admitted but never started may be finished, too: hosts that have no use for `Running` need not call
/// [`start`]; such an attempt is not in the index of runs.
///
/// # Errors
///
/// [`Invalid::TooManyBytes`] for a value or message above [`MAX_TEXT_BYTES`]; [`crate::Error::Store`] if the store fails.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::backoff::RetryPolicy;
/// use stationmaster::service::lifecycle::{AdmitOrder, Finish, Finished, admit, enqueue, finish, start};
/// use stationmaster::store::{MemoryStore, StoreExt};
/// use stationmaster::time::from_micros;
/// use stationmaster::{NewTask, TaskKey};
///
/// let store = MemoryStore::new();
/// let now = from_micros(0);
/// let retry = RetryPolicy::fixed(Duration::from_secs(30)).max_attempts(2).build()?;
/// let task = NewTask::new(TaskKey::new("prod", "nightly", "r1", "load")?).retry(retry);
/// let order = AdmitOrder::new("worker-1".try_into()?, "tick-1".try_into()?, 10, Duration::from_secs(30));
///
/// let finished = store.write(|tx| {
///     enqueue(tx, now, std::slice::from_ref(&task))?;
///     let lease = admit(tx, now, &order)?.granted[0].lease_ref();
///     start(tx, now, &[lease])?;
///     finish(tx, now, &[Finish::failed(lease, "no route to host"), Finish::success(lease)])
/// })?;
/// assert_eq!(finished, [Finished::RetryAt(from_micros(30_000_000)), Finished::Stale]);
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub fn finish(
    tx: &mut (impl StoreTx + ?Sized),
    now: DateTime<Utc>,
    finishes: &[Finish],
) -> Result<Vec<Finished>> {
    let now = time::truncate(now);
    for finish in finishes {
        check(&finish.outcome)?;
    }
    let nos: Vec<TaskNo> = finishes.iter().map(|finish| finish.lease.no).collect();
    let tasks: HashMap<LeaseRef, TaskRecord> = tx
        .tasks_by_no(&nos)?
        .into_iter()
        .flatten()
        .filter(|task| task.state.is_leased())
        .map(|task| (task.lease_ref(), task))
        .collect();
    let mut leaving = Vec::with_capacity(finishes.len());
    let mut places = Vec::with_capacity(finishes.len());
    for finish in finishes {
        places.push(tasks.get(&finish.lease).map(|task| {
            leaving.push((task.clone(), decide(task, now, &finish.outcome)));
            leaving.len() - 1
        }));
    }
    let moved = leave::commit(tx, now, &leaving)?;
    let became = |place: Option<usize>| match place {
        Some(at) if moved[at] == Moved::Yes => became(&leaving[at].1),
        _ => Finished::Stale,
    };
    Ok(places.into_iter().map(became).collect())
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

fn decide(task: &TaskRecord, now: DateTime<Utc>, outcome: &Outcome) -> Move {
    let from = StateSet::of(&LEASED);
    let ended = |to| {
        let mut to = Move::new(task.lease_ref(), from, to);
        to.ended_at = Some(now);
        to
    };
    match outcome {
        Outcome::Success { value } => Move { value: value.clone(), ..ended(TaskState::Success) },
        Outcome::Skipped { message } => Move { message: Some(message.clone()), ..ended(TaskState::Skipped) },
        Outcome::Failed { message, retry } => leave::failed(task, from, now, message.clone(), *retry),
        Outcome::GivenBack => Move {
            forgive: 1,
            message: task.message.clone(),
            value: task.value.clone(),
            ..Move::new(task.lease_ref(), from, TaskState::Scheduled)
        },
    }
}

/// What a committed move means to the caller.
pub(super) fn became(to: &Move) -> Finished {
    match (to.to, to.due) {
        (TaskState::UpForRetry, Some(at)) => Finished::RetryAt(at),
        (TaskState::Scheduled, None) => Finished::Ready,
        (state, _) => Finished::Ended(state),
    }
}
