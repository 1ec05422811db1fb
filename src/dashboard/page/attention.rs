//! What needs attention: pauses, missing services, and failures.

use maud::{Markup, html};

use super::Look;
use super::parts::{listed, pause};
use crate::admission::{QueueRecord, Subject};
use crate::dashboard::words::{number, visible};
use crate::task::{TaskCount, TaskState};
use crate::time::Timestamp;

/// How many queues and pauses are listed.
const SHOWN: usize = 20;
/// How far failures of the last hour are counted.
pub(super) const FAILED: usize = 100;

/// Lists queues without a worker, sensors without a poker, and leases without upkeep.
pub(super) fn missing(
    look: &Look<'_>,
    queues: &[QueueRecord],
    has_pokers: bool,
    counts: &[TaskCount],
    next_expiry: Option<Timestamp>,
) -> Vec<Markup> {
    let unserved: Vec<_> =
        queues.iter().filter(|queue| queue.waiting > 0 && !queue.is_served(look.now)).collect();
    let queue = |queue: &&QueueRecord| {
        let name = visible(format!("Queue {}", queue.name));
        html! { p.notice {
            (listed(&[("state", "waiting"), ("queue", queue.name.as_str())], name))
            ": " (number(queue.waiting)) @if queue.waiting == 1 { " task waits" } @else { " tasks wait" }
            ", and no one serves it. Start a worker for it."
        } }
    };
    let mut all: Vec<Markup> = unserved.iter().take(SHOWN).map(queue).collect();
    if let Some(more) = unserved.len().checked_sub(SHOWN + 1) {
        all.push(html! { p.notice { (number(more + 1)) " more queues are served by no one." } });
    }
    if !has_pokers && counts.iter().any(|count| count.state == TaskState::Sensing && count.tasks > 0) {
        all.push(
            html! { p.notice { a href="sensors" { "Sensors" } " wait, and no worker pokes them. Start a poker." } },
        );
    }
    if next_expiry.is_some_and(|at| at < look.now) {
        all.push(html! { p.notice {
            a href="health#expiring" { "A lease" } " has expired and was not ended yet. Does upkeep run?"
        } });
    }
    all
}

/// What each pause stops, whether or not anything waits there.
fn pauses(look: &Look<'_>, paused: &[Subject]) -> Vec<Markup> {
    let row = |subject: &Subject| {
        let (kind, name) = match subject {
            Subject::Queue(name) => ("queue", name.as_str()),
            Subject::Pool(name) => ("pool", name.as_str()),
            Subject::Key(key) => ("limit", key.as_str()),
            Subject::Family(prefix) => ("family", prefix.as_str()),
        };
        html! { div.notice { (visible(subject)) ": paused " (pause(look, kind, name, true)) } }
    };
    let mut all: Vec<Markup> = paused.iter().take(SHOWN).map(row).collect();
    if let Some(more) = paused.len().checked_sub(SHOWN + 1) {
        all.push(html! { p.notice { (number(more + 1)) " more are paused." } });
    }
    all
}

fn failed(failed: usize) -> Option<Markup> {
    let text = match failed {
        0 => return None,
        1 => "1 task".to_owned(),
        FAILED.. => format!("{FAILED} tasks or more"),
        failed => format!("{failed} tasks"),
    };
    let link = listed(&[("state", "failed"), ("since", "1h")], text);
    Some(html! { p.notice { (link) " failed in the last hour." } })
}

/// The section for all of it. It is empty if nothing needs attention.
pub(super) fn section(look: &Look<'_>, paused: &[Subject], missing: Vec<Markup>, of_hour: usize) -> Markup {
    let all: Vec<Markup> = pauses(look, paused).into_iter().chain(missing).chain(failed(of_hour)).collect();
    if all.is_empty() {
        // It stays in the page, so that the script finds where to put later problems.
        return html! { div id="attention" data-live {} };
    }
    html! {
        div id="attention" data-live {
            section aria-labelledby="attention-title" {
                h2 id="attention-title" { "Needs a person" }
                @for one in all { (one) }
            }
        }
    }
}
