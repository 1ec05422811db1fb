//! When a failed task may run again.
//!
//! A [`RetryPolicy`] is plain data that a host stores next to its tasks. Three functions read it:
//!
//! | | |
//! |---|---|
//! | [`delay`] | how long to wait after attempt n |
//! | [`decide`] | when to retry after this failure, or why not: limits, budget, hints |
//! | [`preview`] | what the next retries would be |
//!
//! All are pure: the same policy, task and attempt give the same result on every machine, in every process,
//! at any time. They keep no state between attempts and use no random numbers and no clock. They do not
//! allocate, and they never fail, overflow or panic, whatever the attempt and the durations.
//!
//! [`RetryPolicy::airflow`] follows a version of Apache Airflow to the microsecond.

mod airflow;
mod decide;
mod growth;
mod jitter;
mod policy;

use std::time::Duration;

use chrono::DateTime;

use crate::base::setters;
use crate::id::TaskKey;
use crate::time::{Timestamp, duration_micros};

pub use airflow::{AirflowRetry, AirflowVersion};
pub use decide::{Decision, GiveUp, History, PlannedRetry, decide, preview};
pub use jitter::{JITTER_KEY, Jitter};
pub use policy::{DEFAULT_CAP, RetryPolicy, RetryPolicyBuilder};

/// The identity of a retry: what the jitter depends on besides the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryKey<'a> {
    /// The task, with its map index.
    pub task: &'a TaskKey,
    /// The logical date of its run; used in Airflow mode only.
    pub logical_date: Option<Timestamp>,
}

impl<'a> RetryKey<'a> {
    /// Creates the key of a task whose run has no logical date, or for a policy that does not use it.
    pub fn new(task: &'a TaskKey) -> Self {
        Self { task, logical_date: None }
    }

    setters! {
        /// Sets the logical date of the run.
        logical_date(at: impl Into<Timestamp>) { logical_date = Some(at.into()) }
    }
}

/// Returns how long to wait after this attempt failed.
///
/// `attempt` is the number of the failed attempt: 1 for the first. 0 counts as 1, except in Airflow mode,
/// where it means a task that never ran. The delay is in whole microseconds and never exceeds the policy's
/// cap and its maximum, whatever the jitter.
///
/// This function ignores hints and overrides of a failure: see [`decide`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::TaskKey;
/// use stationmaster::backoff::{delay, RetryKey, RetryPolicy};
///
/// let policy = RetryPolicy::exponential(Duration::from_secs(30)).build()?;
/// let task = TaskKey::new("prod", "nightly", "2026-01-01", "load").unwrap();
/// let key = RetryKey::new(&task);
///
/// let third = delay(&policy, &key, 3);
/// assert!((Duration::from_secs(120)..Duration::from_secs(240)).contains(&third));
/// assert_eq!(third, delay(&policy, &key, 3));
/// assert_ne!(third, delay(&policy, &RetryKey::new(&task.clone().mapped(0)), 3));
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub fn delay(policy: &RetryPolicy, key: &RetryKey<'_>, attempt: u32) -> Duration {
    if let Some(version) = policy.airflow {
        let retry = AirflowRetry::new(version, key.task.workflow.as_str(), key.task.task.as_str());
        let retry = match key.logical_date {
            Some(at) => retry.logical_date(DateTime::from(at).fixed_offset()),
            None => retry,
        };
        return retry
            .try_number(attempt)
            .retry_delay(policy.delay)
            .multiplier(policy.multiplier)
            .max_retry_delay(policy.max_delay)
            .cap(policy.cap)
            .wait();
    }
    let attempt = attempt.max(1);
    // Truncating lengths above i64::MAX microseconds still leaves 292,000 years.
    let max = duration_micros(policy.max_delay.map_or(policy.cap, |max| max.min(policy.cap))) as u64;
    let base = duration_micros(policy.delay) as u64;
    let grown = || growth::grown(base, policy.multiplier, attempt);
    let micros = match policy.jitter {
        Jitter::None => grown().min(max),
        Jitter::Full => jitter::scale(jitter::identity(key.task, attempt), grown().min(max)),
        Jitter::Equal => {
            let whole = grown().min(max);
            let half = whole / 2;
            half + jitter::scale(jitter::identity(key.task, attempt), whole - half)
        }
        Jitter::Hashed => {
            let shortest = grown().min(max / 2);
            shortest + jitter::scale(jitter::identity(key.task, attempt), shortest)
        }
        Jitter::Decorrelated => jitter::decorrelated(key.task, base, policy.multiplier, attempt, max),
    };
    Duration::from_micros(micros)
}
