//! Decides when a failed task runs again, or why it does not.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::policy::RetryPolicy;
use super::{RetryKey, delay};
use crate::base::setters;
use crate::seconds;
use crate::time::Timestamp;

/// What has happened to a task so far.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::backoff::History;
/// use stationmaster::Timestamp;
///
/// let history = History::new(2, Timestamp::UNIX_EPOCH, Timestamp::from_micros(90_000_000))
///     .hint(Duration::from_secs(60));
/// assert_eq!(history.attempt, 2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct History {
    /// The number of the attempt that failed; the first is 1.
    pub attempt: u32,
    /// When the first attempt started.
    pub first_started_at: Timestamp,
    /// When this attempt failed.
    pub failed_at: Timestamp,
    /// How long the server asked to wait (HTTP's `Retry-After`). The delay is at least this long.
    #[serde(default, rename = "hint_s", skip_serializing_if = "Option::is_none", with = "seconds::option")]
    pub hint: Option<Duration>,
    /// The delay after this failure, in place of the one that the policy computes.
    #[serde(
        default,
        rename = "override_delay_s",
        skip_serializing_if = "Option::is_none",
        with = "seconds::option"
    )]
    pub override_delay: Option<Duration>,
}

impl History {
    /// Creates the history of a failure without a hint or an override.
    pub fn new(
        attempt: u32,
        first_started_at: impl Into<Timestamp>,
        failed_at: impl Into<Timestamp>,
    ) -> Self {
        let (first_started_at, failed_at) = (first_started_at.into(), failed_at.into());
        Self { attempt, first_started_at, failed_at, hint: None, override_delay: None }
    }

    setters! {
        /// Sets the minimum wait that the server asked for.
        hint: Some(Duration);
        /// Sets the exact delay after this failure (Airflow 3.3: `retry_delay_override`).
        override_delay: Some(Duration);
    }
}

/// What to do with the failed task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Decision {
    /// Run it again, not before this instant.
    RetryAt(Timestamp),
    /// It has failed, and is not retried.
    GiveUp(GiveUp),
}

/// Why a task is not retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GiveUp {
    /// All allowed attempts were made.
    RetryLimit {
        /// The attempt that failed.
        attempt: u32,
        /// The most attempts that the policy allows.
        max_attempts: u32,
    },
    /// The next attempt would start after the budget has run out.
    Budget {
        /// How long after the first start an attempt may start.
        #[serde(rename = "budget_s", with = "seconds")]
        budget: Duration,
        /// How long after the first start the next one would be.
        #[serde(rename = "needed_s", with = "seconds")]
        needed: Duration,
    },
    /// The stored policy cannot be read. It is damaged, or a newer version of the crate wrote it.
    Unreadable,
}

impl fmt::Display for GiveUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RetryLimit { attempt, max_attempts: 1 } => {
                write!(f, "attempt {attempt} failed and the policy has no retries")
            }
            Self::RetryLimit { attempt, max_attempts } => {
                write!(f, "attempt {attempt} of {max_attempts} failed")
            }
            Self::Unreadable => {
                f.write_str("its retry policy cannot be read: it is damaged, or of a newer version")
            }
            Self::Budget { budget, needed } => {
                write!(
                    f,
                    "the next attempt would start {needed:?} after the first, more than the budget of {budget:?}"
                )
            }
        }
    }
}

/// Decides what follows a failed attempt.
///
/// A stored policy that cannot be read never retries. Otherwise the limit of attempts is checked first, then
/// the delay is computed, then the budget is checked. The delay is the override if set, otherwise the larger
/// of [`delay`]'s result and the hint. A hint may exceed the task's own maximum but not the cap, so a server
/// that asks for a year gets a day. An override is used unchanged. The budget counts from the start of the
/// first attempt to the start of the next one. An attempt that starts exactly when the budget ends is still
/// made.
///
/// Instants saturate at [`Timestamp::MAX`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::{TaskKey, Timestamp};
/// use stationmaster::backoff::{decide, Decision, GiveUp, History, RetryKey, RetryPolicy};
///
/// let policy = RetryPolicy::fixed(Duration::from_secs(30)).max_attempts(3).build()?;
/// let task = TaskKey::new("prod", "nightly", "2026-01-01", "load").unwrap();
/// let key = RetryKey::new(&task);
///
/// let (start, end) = (Timestamp::UNIX_EPOCH, Timestamp::from_micros(5_000_000));
/// assert_eq!(decide(&policy, &key, &History::new(1, start, end)), Decision::RetryAt(Timestamp::from_micros(35_000_000)));
///
/// let limited = History::new(1, start, end).hint(Duration::from_secs(60));
/// assert_eq!(decide(&policy, &key, &limited), Decision::RetryAt(Timestamp::from_micros(65_000_000)));
///
/// let last = decide(&policy, &key, &History::new(3, start, end));
/// assert_eq!(last, Decision::GiveUp(GiveUp::RetryLimit { attempt: 3, max_attempts: 3 }));
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub fn decide(policy: &RetryPolicy, key: &RetryKey<'_>, history: &History) -> Decision {
    if !policy.readable {
        return Decision::GiveUp(GiveUp::Unreadable);
    }
    if let Some(max_attempts) = policy.max_attempts()
        && history.attempt >= max_attempts
    {
        return Decision::GiveUp(GiveUp::RetryLimit { attempt: history.attempt, max_attempts });
    }
    let wait = match (history.override_delay, history.hint) {
        (Some(wait), _) => wait,
        (None, Some(hint)) => delay(policy, key, history.attempt).max(hint.min(policy.cap)),
        (None, None) => delay(policy, key, history.attempt),
    };
    let at = history.failed_at + wait;
    let needed = at.saturating_duration_since(history.first_started_at);
    match policy.budget {
        Some(budget) if needed > budget => Decision::GiveUp(GiveUp::Budget { budget, needed }),
        _ => Decision::RetryAt(at),
    }
}

/// One retry that a policy would allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PlannedRetry {
    /// The number of the attempt that is assumed to fail.
    pub attempt: u32,
    /// The delay after it.
    #[serde(rename = "delay_s", with = "seconds")]
    pub delay: Duration,
    /// The sum of all delays up to and including this one.
    #[serde(rename = "total_s", with = "seconds")]
    pub total: Duration,
}

/// Returns the first `n` retries of a task, as if every attempt failed at once.
///
/// Ends early where the policy would give up. The iterator is lazy and never allocates. To see the retries
/// after attempt `k`, skip `k - 1`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stationmaster::TaskKey;
/// use stationmaster::backoff::{preview, Jitter, RetryKey, RetryPolicy};
///
/// let policy = RetryPolicy::exponential(Duration::from_secs(10)).jitter(Jitter::None).max_attempts(4).build()?;
/// let task = TaskKey::new("prod", "nightly", "2026-01-01", "load").unwrap();
/// let delays: Vec<_> = preview(&policy, &RetryKey::new(&task), 10).map(|retry| retry.delay.as_secs()).collect();
/// assert_eq!(delays, [10, 20, 40]);
/// # Ok::<(), stationmaster::Error>(())
/// ```
pub fn preview<'a>(
    policy: &'a RetryPolicy,
    key: &RetryKey<'a>,
    n: u32,
) -> impl Iterator<Item = PlannedRetry> + Clone + use<'a> {
    let (key, mut total) = (*key, Duration::ZERO);
    let retries = policy.max_attempts().map_or(n, |attempts| n.min(attempts - 1));
    (1..=retries).map_while(move |attempt| {
        let delay = delay(policy, &key, attempt);
        total = total.saturating_add(delay);
        let fits = policy.budget.is_none_or(|budget| total <= budget);
        fits.then_some(PlannedRetry { attempt, delay, total })
    })
}
