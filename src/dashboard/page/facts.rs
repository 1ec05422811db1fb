//! What a task does now, what it waits for, and what it needs.

use maud::{Markup, html};

use super::Look;
use super::parts::{asked, both, copy, holder, listed, payload, reason, said, sheet, state, text, when};
use super::task::Life;
use crate::dashboard::key::typed;
use crate::dashboard::params::{link, of_task};
use crate::dashboard::words::{absolute, number, short, visible, visible_json};
use crate::ops::{Explanation, Position};
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

/// How many reasons are listed. A task has at most 8 pools, but may have many limits.
const REASONS: usize = 50;

fn waits(look: &Look<'_>, why: &Explanation) -> Markup {
    let first = match why {
        // The next tick of an admitter makes it ready. If it is long overdue, no admitter runs.
        Explanation::NotBefore { due, .. } if *due <= look.now => {
            Some(html! { "a tick: it was due " (both(*due, look.now)) })
        }
        Explanation::NotBefore { due, .. } => Some(html! { "not before " (both(*due, look.now)) }),
        Explanation::Refused { .. } => None,
        why => Some(html! { (visible(why)) }),
    };
    let reason = |why: &crate::admission::Reason| {
        html! {
            (reason(why))
            @if let Some(at) = why.changes_at() { " (" (when(at, look.now)) ")" }
        }
    };
    let all: Vec<Markup> = first.into_iter().chain(why.reasons().map(reason)).collect();
    html! {
        @match all.as_slice() {
            [one] => (one),
            _ => {
                ul.reasons { @for one in all.iter().take(REASONS) { li { (one) } } }
                @if all.len() > REASONS { p.note { (number(all.len() - REASONS)) " more." } }
            },
        }
    }
}

/// The number of the attempt, and how many attempts its retry policy still allows.
fn attempt(task: &TaskRecord) -> Markup {
    let max = task.retry.max_attempts().map_or_else(|| "any number".to_owned(), |max| max.to_string());
    html! {
        @match task.forgiven {
            0 => { (task.attempt) " of " (max) }
            forgiven => {
                (task.attempt) ", of which " (forgiven) " do not count: "
                (task.attempt.saturating_sub(forgiven)) " of " (max)
            }
        }
    }
}

pub(super) fn now_of(look: &Look<'_>, life: &Life) -> Markup {
    let (task, now) = (&life.task, look.now);
    let mut lines = vec![("State", state(task.state))];
    if let Some(why) = life.why.as_ref().filter(|why| !matches!(why, Explanation::NotWaiting(_))) {
        lines.push(("Waits for", waits(look, why)));
    }
    match life.position {
        Some(Position::Before(before)) => {
            let tasks = if before == 1 { " ready task" } else { " ready tasks" };
            let text = format!("{}{tasks}", number(before));
            let shown = if before == 0 {
                html! { (text) }
            } else {
                before_it(task, &text)
            };
            lines.push(("Before it in the pool", shown));
        }
        Some(Position::MoreThan(most)) => {
            let text = format!("more than {} ready tasks", number(most));
            lines.push(("Before it in the pool", before_it(task, &text)));
        }
        _ => {}
    }
    if let Some(lease) = &task.lease {
        lines.push(("Holder", holder(&lease.holder)));
        let head = if lease.expires_at <= now { "Lease ended" } else { "Lease ends" };
        lines.push((head, both(lease.expires_at, now)));
        if let Some(asked) = asked(lease, now) {
            lines.push(("Cancel", asked));
        }
        if let Some(says) = said(lease, now) {
            lines.push(("Says", says));
        }
    }
    lines.push(("Attempt", attempt(task)));
    if task.lost > 0 {
        lines.push(("Lost leases", html! { (number(task.lost)) }));
    }
    lines.extend(instants(life, now));
    if let Some(message) = &task.message {
        let is_of_cancel = task.lease.as_ref().is_some_and(|lease| lease.cancel_at.is_some());
        let head = match () {
            () if is_of_cancel => "Why it is cancelled",
            () if is_over(task) => "Message",
            // A grant keeps it, so that the next attempt can be compared with the previous one.
            () => "Previous message",
        };
        lines.push((head, text(message)));
    }
    if task.value.is_some() {
        lines.push(("Value", payload(look, task.value.as_deref())));
    }
    sheet(lines)
}

/// A text with a link to the list of the ready tasks that are before this one.
fn before_it(task: &TaskRecord, text: &str) -> Markup {
    let params = of_task(&task.key);
    html! { a href=(link("before", params.iter().map(|(name, value)| (*name, value.as_str())))) { (text) } }
}

fn is_over(task: &TaskRecord) -> bool {
    task.state.is_end() || task.state == TaskState::UpForRetry
}

/// The instants of the current attempt, or of the last one if that is over. A task keeps the instants of its attempts
/// until the next ones replace them. Those of an earlier attempt are omitted or labelled.
fn instants(life: &Life, now: Timestamp) -> Vec<(&'static str, Markup)> {
    let task = &life.task;
    let mut lines = vec![("Enqueued", both(task.enqueued_at, now))];
    let mut push = |head, at: Option<Timestamp>| lines.extend(at.map(|at| (head, both(at, now))));
    let (is_current, is_over) = (task.state.is_leased() || task.state == TaskState::Sensing, is_over(task));
    if !is_current && !is_over {
        push("Ready since", Some(task.ready_at).filter(|_| task.is_ready()));
        push("Last ended or cleared", task.ended_at);
        return lines;
    }
    let is_started = |at: &Timestamp| task.state != TaskState::Queued && Some(*at) >= task.queued_at;
    let started = task.started_at.filter(is_started);
    push("Granted", task.queued_at);
    push("First started", task.first_started_at.filter(|first| started.is_some_and(|at| at != *first)));
    push("Started", started);
    // The attempt's own record says when it ended. Its task may have been cancelled or marked later.
    let past = life.attempts.iter().rev().find(|past| past.attempt == task.attempt).map(|past| past.ended_at);
    if is_over {
        push("Ended", task.ended_at);
        push("Attempt ended", past.filter(|at| Some(*at) != task.ended_at));
    }
    let is_of_attempt = task.finished.is_some() || task.state == TaskState::Success;
    let ended = past.or(task.ended_at.filter(|_| is_of_attempt)).filter(|_| is_over);
    if let (Some(from), Some(to)) = (started, ended) {
        lines.push(("Took", html! { (short(to.saturating_duration_since(from))) }));
    }
    if let Some(granted) = task.queued_at.filter(|at| is_current && *at >= task.ready_at) {
        lines.push(("Waited", html! { (short(granted.saturating_duration_since(task.ready_at))) }));
    }
    lines
}

pub(super) fn asks(look: &Look<'_>, task: &TaskRecord) -> Markup {
    let lane = &task.lane;
    let key = &task.key;
    let run = [
        ("namespace", key.namespace.as_str()),
        ("workflow", key.workflow.as_str()),
        ("run", key.run.as_str()),
    ];
    let waiting = |name, value: &str| listed(&[("state", "waiting"), (name, value)], visible(value));
    let typed = visible_json(&typed(key));
    sheet(vec![
        ("Number", html! { (task.id.0) }),
        (
            "Typed as",
            html! {
                code { (typed) } " "
                (copy(&typed, "Copy"))
            },
        ),
        ("Run", listed(&run, visible(&key.run))),
        ("Queue", waiting("queue", lane.queue.as_str())),
        (
            "Pools",
            html! {
                @for (at, (pool, slots)) in lane.pools().enumerate() {
                    @if at > 0 { ", " }
                    (waiting("pool", pool.as_str())) " × " (slots)
                }
            },
        ),
        (
            "Limits",
            html! {
                @if lane.limits.is_empty() { "–" }
                @for (at, key) in lane.limits.iter().enumerate() {
                    @if at > 0 { ", " }
                    (waiting("limit_key", key.as_str()))
                    @if let Some(count) = lane.counts.get(key) { " × " (count) }
                }
            },
        ),
        ("Priority", html! { (task.priority) }),
        ("Logical date", html! { (absolute(task.logical_date)) }),
        ("Payload", payload(look, Some(&task.payload))),
    ])
}
