//! One task's whole life.

use maud::{Markup, html};

use super::parts::{maybe_when, payload, section, sheet, state, table, when};
use super::{Look, Page};
use crate::admission::Reason;
use crate::dashboard::params::{link, of_task};
use crate::dashboard::trouble::Trouble;
use crate::dashboard::words::{number, short, visible, visible_lines};
use crate::ops::{Explanation, Position};
use crate::run::{RunKey, RunRecord};
use crate::sensor::SensorRecord;
use crate::task::{PastAttempt, TaskRecord, TaskState};
use crate::time::Timestamp;

/// How many reasons are listed: a task has at most 8 pools, and of its limits there may be many.
const REASONS: usize = 50;
/// How far the tasks before it are counted.
const BEFORE: u64 = 1_000;
/// How many runs of its attempts are read.
const RUNS: u32 = 20;

const GRACES: [(u64, &str); 5] = [
    (60, "1 minute"),
    (0, "none: take it away now"),
    (600, "10 minutes"),
    (3_600, "1 hour"),
    (86_400, "1 day"),
];

struct Life {
    task: TaskRecord,
    why: Option<Explanation>,
    position: Option<Position>,
    attempts: Vec<PastAttempt>,
    sensor: Option<SensorRecord>,
    sensor_log: Vec<(Timestamp, String)>,
    runs: Vec<RunRecord>,
}

pub(super) fn view(look: &Look<'_>) -> Result<Page, Trouble> {
    let key = look.params.task()?;
    let keys = std::slice::from_ref(&key);
    let found = look.store.read(|tx| {
        let Some(task) = tx.tasks(keys)?.pop().flatten() else { return Ok(None) };
        let runs = run_keys(&task)?;
        Ok(Some(Life {
            why: tx.explain(look.now, keys)?.pop(),
            position: tx.positions(keys, BEFORE)?.pop(),
            attempts: tx.attempts(keys)?.pop().unwrap_or_default(),
            sensor: tx.sensors(keys)?.pop().flatten(),
            sensor_log: tx.sensor_log(keys)?.pop().unwrap_or_default(),
            runs: if runs.is_empty() { Vec::new() } else { tx.runs(&runs)?.into_iter().flatten().collect() },
            task,
        }))
    })?;
    let Some(life) = found else {
        return Err(Trouble::missing(format!("There is no task {key}.")));
    };
    let main = html! {
        (section("facts", "Now", &now_of(look, &life)))
        (section("asks", "What it asks for", &asks(look, &life.task)))
        (section("attempts", "Attempts that ended", &attempts(look, &life.attempts)))
        @if let Some(sensor) = &life.sensor { (section("sensor", "Sensor", &sensor_of(look, sensor, &life.sensor_log))) }
        @if life.task.attempt_runs { (section("runs", "Runs of its attempts", &runs(look, &life.runs))) }
        (actions(look, &life.task))
    };
    Ok(Page { title: visible(format!("Task {key}")), under: "tasks", is_live: true, main })
}

fn run_keys(task: &TaskRecord) -> crate::Result<Vec<RunKey>> {
    if !task.attempt_runs {
        return Ok(Vec::new());
    }
    let first = task.attempt.saturating_sub(RUNS - 1).max(1);
    (first..=task.attempt).rev().map(|attempt| task.attempt_run(attempt)).collect()
}

fn waits(look: &Look<'_>, why: &Explanation) -> Markup {
    let first = match why {
        Explanation::NotBefore { due, .. } => Some(html! { "not before " (when(*due, look.now)) }),
        Explanation::Refused { .. } => None,
        why => Some(html! { (visible(why)) }),
    };
    let reason = |reason: &Reason| {
        html! {
            (visible(reason))
            @if let Some(at) = reason.changes_at() { " (" (when(at, look.now)) ")" }
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

fn now_of(look: &Look<'_>, life: &Life) -> Markup {
    let (task, now) = (&life.task, look.now);
    let mut lines = vec![("State", state(task.state))];
    if let Some(why) = life.why.as_ref().filter(|why| !matches!(why, Explanation::NotWaiting(_))) {
        lines.push(("Waits for", waits(look, why)));
    }
    match life.position {
        Some(Position::Before(before)) => {
            let tasks = if before == 1 { " ready task" } else { " ready tasks" };
            lines.push(("Before it in the pool", html! { (number(before)) (tasks) }));
        }
        Some(Position::MoreThan(most)) => {
            lines.push(("Before it in the pool", html! { "more than " (number(most)) " ready tasks" }));
        }
        _ => {}
    }
    if let Some(lease) = &task.lease {
        lines.push(("Holder", html! {
            a href=(link("tasks", [("state", "leased"), ("holder", lease.holder.as_str())])) { (visible(&lease.holder)) }
        }));
        lines.push(("Lease ends", when(lease.expires_at, now)));
        if let Some(at) = lease.cancel_at {
            lines.push(("Cancelled", html! { "its holder has until " (when(at, now)) }));
        }
    }
    lines.extend([
        ("Attempt", html! { (task.attempt) }),
        ("Enqueued", when(task.enqueued_at, now)),
        ("Granted", maybe_when(task.queued_at, now)),
        ("First started", maybe_when(task.first_started_at, now)),
        ("Started", maybe_when(task.started_at, now)),
        ("Ended", maybe_when(task.ended_at, now)),
    ]);
    if let (Some(from), Some(to)) = (task.started_at, task.ended_at) {
        lines.push(("Took", html! { (short(to.saturating_duration_since(from))) }));
    }
    if let Some(message) = &task.message {
        lines.push(("Message", html! { span.message { (visible_lines(message)) } }));
    }
    if task.value.is_some() {
        lines.push(("Value", payload(look, task.value.as_deref())));
    }
    sheet(lines)
}

fn asks(look: &Look<'_>, task: &TaskRecord) -> Markup {
    let lane = &task.lane;
    let key = &task.key;
    let run = [
        ("namespace", key.namespace.as_str()),
        ("workflow", key.workflow.as_str()),
        ("run", key.run.as_str()),
    ];
    sheet(vec![
        ("Number", html! { (number(task.id.0)) }),
        ("Run", html! { a href=(link("tasks", run)) { (visible(&key.run)) } }),
        (
            "Queue",
            html! { a href=(link("tasks", [("queue", lane.queue.as_str())])) { (visible(&lane.queue)) } },
        ),
        (
            "Pools",
            html! {
                @for (at, (pool, slots)) in lane.pools().enumerate() {
                    @if at > 0 { ", " }
                    a href=(link("tasks", [("pool", pool.as_str())])) { (visible(pool)) } " × " (slots)
                }
            },
        ),
        (
            "Limits",
            html! {
                @if lane.limits.is_empty() { "–" }
                @for (at, key) in lane.limits.iter().enumerate() {
                    @if at > 0 { ", " }
                    a href=(link("tasks", [("limit_key", key.as_str())])) { (visible(key)) }
                    @if let Some(count) = lane.counts.get(key) { " × " (count) }
                }
            },
        ),
        ("Priority", html! { (task.priority) }),
        ("Logical date", html! { time { (crate::dashboard::words::absolute(task.logical_date)) } }),
        ("Payload", payload(look, Some(&task.payload))),
    ])
}

fn attempts(look: &Look<'_>, attempts: &[PastAttempt]) -> Markup {
    let row = |past: &PastAttempt| {
        let from = past.started_at.or(past.queued_at);
        vec![
            html! { (past.attempt) },
            state(past.became),
            html! { @match &past.holder { Some(holder) => (visible(holder)), None => "–" } },
            maybe_when(from, look.now),
            html! { @if let Some(from) = from { (short(past.ended_at.saturating_duration_since(from))) } },
            html! { @if past.by_holder { "its holder" } @else { "the store" } },
            html! { @if let Some(message) = &past.message { span.message { (visible_lines(message)) } } },
        ]
    };
    let rows = attempts.iter().map(row).collect();
    let heads = ["Attempt", "Became", "Holder", "Began", "Took", "Ended by", "Message"];
    table("Attempts of which a record is kept", &heads, rows, "No record of an attempt is kept.")
}

fn sensor_of(look: &Look<'_>, sensor: &SensorRecord, log: &[(Timestamp, String)]) -> Markup {
    let row = |(at, what): &(Timestamp, String)| vec![when(*at, look.now), html! { (visible(what)) }];
    let rows = log.iter().map(row).collect();
    let facts = sheet(vec![
        ("Kind", html! { (visible(&sensor.kind)) }),
        ("State", html! { (format!("{:?}", sensor.state).to_lowercase()) }),
        ("Registered", when(sensor.registered_at, look.now)),
        ("Times out", when(sensor.times_out_at, look.now)),
        ("Poked every", html! { (short(sensor.settings.interval)) }),
        ("Registrations", html! { (sensor.generation) }),
        ("Fingerprint", html! { (sensor.fingerprint) }),
        ("Context", payload(look, Some(sensor.context.as_str()))),
    ]);
    html! { (facts) (table("What happened to it, but for pokes", &["At", "What"], rows, "Nothing is known.")) }
}

fn runs(look: &Look<'_>, runs: &[RunRecord]) -> Markup {
    let row = |run: &RunRecord| {
        vec![
            html! { (visible(&run.key.id)) },
            html! { (run.status) },
            when(run.start, look.now),
            maybe_when(run.stop, look.now),
        ]
    };
    table("Runs", &["Run", "Status", "Started", "Stopped"], runs.iter().map(row).collect(), "There is none.")
}

fn actions(look: &Look<'_>, task: &TaskRecord) -> Markup {
    let Some(mark) = look.mark else { return html! {} };
    let hidden = |verb: &str| {
        html! {
            input type="hidden" name="mark" value=(mark);
            input type="hidden" name="verb" value=(verb);
            @for (name, value) in of_task(&task.key) { input type="hidden" name=(name) value=(value); }
        }
    };
    html! {
        section id="actions" aria-labelledby="actions-title" data-live {
            h2 id="actions-title" { "Change it" }
            @if !task.state.is_end() {
                details {
                    summary { "Cancel it…" }
                    form.change method="post" action="change" {
                        (hidden("cancel"))
                        div {
                            label for="grace" { "Grace for its holder" }
                            select id="grace" name="grace" {
                                @for (seconds, text) in GRACES { option value=(seconds) { (text) } }
                            }
                        }
                        div {
                            label for="message" { "Why, for people" }
                            input id="message" name="message" maxlength="500" autocomplete="off";
                        }
                        button.danger { "Cancel the task" }
                    }
                }
            }
            @if task.state.is_end() || task.state == TaskState::UpForRetry {
                form.change method="post" action="change" { (hidden("retry")) button { "Run it again now" } }
            }
        }
    }
}
