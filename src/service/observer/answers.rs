//! Metrics of results that only the caller of an operation sees.

use super::Observer;
use super::metrics::{FINISHED, Metric, REGISTERED};
use crate::ops::{Finished, Registered};
use crate::task::TaskState;

/// Reports the results of [`finish`](crate::store::Tx::finish). Call it after the transaction was committed.
///
/// # Examples
///
/// ```
/// use stationmaster::TaskState;
/// use stationmaster::ops::Finished;
/// use stationmaster::service::Observer;
/// use stationmaster::service::metrics::{Metric, finished};
///
/// struct Print;
/// impl Observer for Print {
///     fn counter(&self, metric: &'static Metric, labels: &[(&'static str, &str)], more: u64) {
///         println!("{} {labels:?} +{more}", metric.name);
///     }
/// }
/// finished(&Print, &[Finished::Ended(TaskState::Success), Finished::Stale]);
/// ```
pub fn finished(observer: &dyn Observer, answers: &[Finished]) {
    count(observer, &FINISHED, "became", answers.iter().copied().map(became));
}

/// Reports the results of [`register`](crate::store::Tx::register) and similar verbs. Call it after the
/// transaction was committed.
pub fn registered(observer: &dyn Observer, answers: &[Registered]) {
    let word = |answer: &Registered| match answer {
        Registered::Waiting(_) => "waiting",
        Registered::NotRunning => "not_running",
        Registered::Stale => "stale",
        Registered::Cancelled => "cancelled",
        Registered::Ineligible(_) => "ineligible",
    };
    count(observer, &REGISTERED, "answer", answers.iter().map(word));
}

/// Reports each distinct word with its count, in order of first occurrence.
fn count(
    observer: &dyn Observer,
    metric: &'static Metric,
    label: &'static str,
    words: impl Iterator<Item = &'static str>,
) {
    let mut counts: Vec<(&'static str, u64)> = Vec::new();
    for word in words {
        match counts.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }
    for (word, count) in counts {
        super::emitter::safely(|| observer.counter(metric, &[(label, word)], count));
    }
}

/// Returns the label for a task's outcome.
pub(in crate::service) fn became(finished: Finished) -> &'static str {
    match finished {
        Finished::Ended(TaskState::Success) => "success",
        Finished::Ended(TaskState::Skipped) => "skipped",
        Finished::Ended(TaskState::Cancelled) => "cancelled",
        Finished::Ended(_) => "failed",
        Finished::RetryAt(_) => "retry",
        Finished::Ready => "ready",
        Finished::Already(_) => "already",
        Finished::Stale => "stale",
    }
}
