//! Why tasks wait.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::parts::{listed, reason, table, task};
use crate::admission::QueueRecord;
use crate::dashboard::words::{number, visible};
use crate::id::TaskKey;
use crate::ops::Explanation;
use crate::store::ReadTx;
use crate::task::{TaskCount, TaskQuery, TaskRecord, TaskState};
use crate::time::Timestamp;

/// How many ready tasks are explained.
const SAMPLE: usize = 500;
/// How many reasons are shown.
const SHOWN: usize = 20;

/// The first ready tasks, and why each waits.
pub(super) struct Sample(Vec<(TaskRecord, Explanation)>);

impl Sample {
    pub(super) fn read(tx: &mut ReadTx<'_>, now: Timestamp) -> crate::Result<Self> {
        let tasks = tx.list_tasks(&TaskQuery::waiting().without_later().limit(SAMPLE))?.tasks;
        let keys: Vec<TaskKey> = tasks.iter().map(|task| task.key.clone()).collect();
        let why = if keys.is_empty() { Vec::new() } else { tx.explain(now, &keys)? };
        Ok(Self(tasks.into_iter().zip(why).collect()))
    }
}

/// How many tasks wait for an instant, by the counters. If a sample contained them, they would hide tasks that wait
/// for something else.
fn of_instants(counts: &[TaskCount], queues: &[QueueRecord]) -> Vec<(String, u64, Markup)> {
    let later: u64 = queues.iter().map(|queue| queue.waiting.saturating_sub(queue.ready)).sum();
    let retries = counts.iter().find(|count| count.state == TaskState::UpForRetry);
    let row = |text: &str, state, count| (text.to_owned(), count, listed(&[("state", state)], text));
    match retries {
        Some(retries) if retries.is_at_least => {
            vec![row("waits for an instant, or to be tried again", "waiting", later)]
        }
        retries => {
            let retries = retries.map_or(0, |retries| retries.tasks);
            let rest = later.saturating_sub(retries);
            vec![
                row("waits to be tried again", "up_for_retry", retries),
                row("waits for an instant", "scheduled", rest),
            ]
        }
    }
}

/// The reasons that the most tasks share.
pub(super) fn reasons(counts: &[TaskCount], queues: &[QueueRecord], Sample(sample): &Sample) -> Markup {
    let mut found: BTreeMap<String, (u64, Markup, &TaskKey)> = BTreeMap::new();
    for (task, why) in sample {
        let (text, shown) = match why {
            Explanation::Refused { reason: first, .. } => (first.to_string(), reason(first)),
            why => (why.to_string(), html! { (visible(why)) }),
        };
        found.entry(text).or_insert((0, shown, &task.key)).0 += 1;
    }
    let sampled = found.into_iter().map(|(text, (count, shown, key))| (text, count, shown, Some(key)));
    let instants = of_instants(counts, queues).into_iter().filter(|(_, count, _)| *count > 0);
    let mut all: Vec<_> =
        instants.map(|(text, count, shown)| (text, count, shown, None)).chain(sampled).collect();
    all.sort_by(|(left, more, ..), (right, less, ..)| less.cmp(more).then_with(|| left.cmp(right)));
    let kinds = all.len();
    let rows = all.into_iter().take(SHOWN).map(|(_, count, shown, key)| {
        vec![shown, html! { (number(count)) }, html! { @match key { Some(key) => (task(key)), None => "–" } }]
    });
    let waiting: u64 = queues.iter().map(|queue| queue.waiting).sum();
    html! {
        @if sample.len() == SAMPLE {
            p.note {
                "Of the ready tasks, the first " (number(SAMPLE)) " of the list. " (number(waiting)) " tasks wait in all."
            }
        }
        (table("Reasons, those of the most tasks first", &["Reason", "Tasks", "For example"], rows.collect(),
               "No task waits to run."))
        @if kinds > SHOWN { p.note { "There are " (number(kinds - SHOWN)) " reasons more." } }
    }
}
