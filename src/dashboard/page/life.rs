//! When a task waited and when it ran, as one bar.

use std::time::Duration;

use maud::{Markup, html};

use super::parts::legend;
use crate::dashboard::words::short;
use crate::task::{PastAttempt, TaskRecord, TaskState};
use crate::time::Timestamp;

/// One stretch of a task's life. It begins where the previous one ends.
#[derive(Debug, PartialEq)]
struct Stretch {
    class: &'static str,
    until: Timestamp,
}

const WAITED: &str = "scheduled";
/// The meanings of the classes.
const NAMES: [(&str, &str); 5] = [
    (WAITED, "waited"),
    ("running", "runs"),
    ("sensing", "waits as a sensor"),
    ("success", "ran, and ended well"),
    ("failed", "ran, and ended otherwise"),
];

/// Returns what is known of the task's life: a task keeps its last attempt, and others may be recorded.
fn stretches(task: &TaskRecord, attempts: &[PastAttempt], now: Timestamp) -> Vec<Stretch> {
    let (mut life, mut at) = (Vec::new(), task.enqueued_at);
    let mut go_on = |class, until: Timestamp| {
        if until > at {
            life.push(Stretch { class, until });
            at = until;
        }
    };
    for past in attempts {
        go_on(WAITED, past.started_at.unwrap_or(past.ended_at));
        go_on(if past.became == TaskState::Success { "success" } else { "failed" }, past.ended_at);
    }
    let started = task.started_at.filter(|started| Some(*started) >= task.queued_at);
    match task.state {
        TaskState::Running | TaskState::Sensing => {
            go_on(WAITED, started.unwrap_or(now));
            go_on(if task.state == TaskState::Running { "running" } else { "sensing" }, now);
        }
        TaskState::Success => {
            let ended = task.ended_at.unwrap_or(now);
            go_on(WAITED, started.unwrap_or(ended));
            go_on("success", ended);
        }
        state if state.is_end() => go_on(WAITED, task.ended_at.unwrap_or(now)),
        _ => go_on(WAITED, now),
    }
    life
}

/// The narrowest visible stretch, in a bar of 100.
const LEAST: f64 = 0.4;

/// The task's life as a bar, with the lengths as text.
pub(super) fn bar_of(task: &TaskRecord, attempts: &[PastAttempt], now: Timestamp) -> Markup {
    let name =
        |class: &str| NAMES.into_iter().find(|(known, _)| *known == class).map_or("", |(_, name)| name);
    let life = stretches(task, attempts, now);
    let begins = std::iter::once(task.enqueued_at).chain(life.iter().map(|stretch| stretch.until));
    let lengths = begins.zip(&life).map(|(from, part)| part.until.saturating_duration_since(from));
    let lengths: Vec<Duration> = lengths.collect();
    let whole = lengths.iter().sum::<Duration>().as_secs_f64().max(f64::MIN_POSITIVE);
    let mut end = 0.0;
    let parts: Vec<_> = life
        .iter()
        .zip(&lengths)
        .map(|(part, length)| {
            let width = (length.as_secs_f64() * 100.0 / whole).max(LEAST);
            end += width;
            (part.class, end - width, width, format!("{} {}", name(part.class), short(*length)))
        })
        .collect();
    let words: Vec<&str> = parts.iter().map(|(.., words)| words.as_str()).collect();
    let used: Vec<_> =
        NAMES.into_iter().filter(|(class, _)| life.iter().any(|part| part.class == *class)).collect();
    html! {
        @if !parts.is_empty() {
            svg.bar.life viewBox=(format!("0 0 {end:.2} 10")) preserveAspectRatio="none" role="img"
                aria-label=(words.join(", ")) {
                @for (class, x, width, words) in &parts {
                    rect class=(class) x=(format!("{x:.2}")) y="0" width=(format!("{width:.2}")) height="10" {
                        title { (words) }
                    }
                }
            }
            (legend(&used))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::RetryPolicy;
    use crate::id::{RequestId, TaskKey};
    use crate::ops::{AdmitRequest, Finish};
    use crate::store::MemoryStore;
    use crate::task::NewTask;

    #[test]
    fn a_life_is_shown_from_the_enqueue_to_now_without_a_gap() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let store = MemoryStore::new();
        let key = TaskKey::new("n", "w", "r", "t").unwrap();
        let retry = RetryPolicy::exponential(Duration::from_secs(1)).build().unwrap();
        let task = NewTask::new(key.clone()).retry(retry);
        store.write(|tx| tx.enqueue(at(0), std::slice::from_ref(&task))).unwrap();
        let spans_at = |now: i64| {
            let read = |tx: &mut crate::store::ReadTx<'_>| {
                let task = tx.tasks(std::slice::from_ref(&key))?.remove(0).unwrap();
                Ok((tx.attempts(std::slice::from_ref(&key))?.remove(0), task))
            };
            let (attempts, task) = store.read(read).unwrap();
            let life = stretches(&task, &attempts, at(now));
            life.iter().map(|part| (part.class, part.until.as_micros() / 1_000_000)).collect::<Vec<_>>()
        };
        let start = |now: i64| {
            let request = AdmitRequest::new(
                "worker".try_into().unwrap(),
                RequestId::new(format!("at {now}")).unwrap(),
                1,
                Duration::from_secs(60),
            );
            let lease = store.write(|tx| tx.admit(at(now), &request)).unwrap().granted[0].lease_ref();
            store.write(|tx| tx.start(at(now + 1), &[lease])).unwrap();
            lease
        };
        assert_eq!(spans_at(3), [(WAITED, 3)]);
        let lease = start(4);
        assert_eq!(spans_at(7), [(WAITED, 5), ("running", 7)]);
        store.write(|tx| tx.finish(at(8), &[Finish::failed(lease, "busy")])).unwrap();
        assert_eq!(spans_at(9), [(WAITED, 5), ("failed", 8), (WAITED, 9)]);
        let lease = start(10);
        store.write(|tx| tx.finish(at(15), &[Finish::success(lease)])).unwrap();
        let whole = [(WAITED, 5), ("failed", 8), (WAITED, 11), ("success", 15)];
        assert_eq!(spans_at(99), whole, "its end is the end of it");
    }
}
