//! One task's whole life.

use maud::{Markup, html};

use super::facts::{asks, now_of};
use super::life::bar_of;
use super::parts::{both, cancel_fields, holder, section, state, table, text};
use super::sensor::Sensor;
use super::{Look, Page};
use crate::dashboard::key::{Named, typed};
use crate::dashboard::params::of_task;
use crate::dashboard::trouble::Trouble;
use crate::dashboard::words::{short, visible, visible_json};
use crate::id::TaskKey;
use crate::ops::{Explanation, Position};
use crate::run::{RunKey, RunRecord};
use crate::task::{PastAttempt, TaskRecord, TaskState};

/// How far the tasks before it are counted.
pub(super) const BEFORE: u64 = 1_000;
/// How many runs of its attempts the page reads.
const RUNS: u32 = 20;

pub(super) struct Life {
    pub(super) task: TaskRecord,
    pub(super) why: Option<Explanation>,
    pub(super) position: Option<Position>,
    pub(super) attempts: Vec<PastAttempt>,
    sensor: Option<Sensor>,
    runs: Vec<RunRecord>,
}

pub(super) fn view(look: &Look<'_>) -> Result<Page, Trouble> {
    of_key(look, &look.params.task()?)
}

/// Returns the page of the task that the user named.
pub(super) fn named(look: &Look<'_>, text: &str) -> Result<Page, Trouble> {
    let number = match Named::of(text)? {
        Named::Key(key) => return of_key(look, &key),
        Named::Number(number) => number,
    };
    match look.store.read(|tx| tx.tasks_by_id(&[number]))?.pop().flatten() {
        Some(task) => of_key(look, &task.key),
        None => Err(Trouble::missing(format!("There is no task of number {}.", number.0))),
    }
}

fn of_key(look: &Look<'_>, key: &TaskKey) -> Result<Page, Trouble> {
    let keys = std::slice::from_ref(key);
    let found = look.store.read(|tx| {
        let Some(task) = tx.tasks(keys)?.pop().flatten() else { return Ok(None) };
        let runs = run_keys(&task)?;
        Ok(Some(Life {
            why: tx.explain(look.now, keys)?.pop(),
            position: tx.positions(keys, BEFORE)?.pop(),
            attempts: tx.attempts(keys)?.pop().unwrap_or_default(),
            sensor: Sensor::read(tx, look.now, key)?,
            runs: if runs.is_empty() { Vec::new() } else { tx.runs(&runs)?.into_iter().flatten().collect() },
            task,
        }))
    })?;
    let Some(life) = found else {
        return Err(Trouble::missing(format!("There is no task {key}.")));
    };
    let main = html! {
        (actions(look, &life.task))
        (section("facts", "Now", &html! { (bar_of(&life.task, &life.attempts, look.now)) (now_of(look, &life)) }))
        (section("asks", "What it asks for", &asks(look, &life.task)))
        (section("attempts", "Attempts that ended", &attempts(look, &life.attempts)))
        @if let Some(sensor) = &life.sensor { (section("sensor", "Sensor", &sensor.shown(look))) }
        @if life.task.attempt_runs { (section("runs", "Runs of its attempts", &runs(look, &life.runs))) }
    };
    let copies = Some(visible_json(&typed(key)));
    Ok(Page { copies, ..Page::of(look, visible(format!("Task {key}")), "tasks", main) })
}

fn run_keys(task: &TaskRecord) -> crate::Result<Vec<RunKey>> {
    if !task.attempt_runs {
        return Ok(Vec::new());
    }
    let first = task.attempt.saturating_sub(RUNS - 1).max(1);
    (first..=task.attempt).rev().map(|attempt| task.attempt_run(attempt)).collect()
}

fn attempts(look: &Look<'_>, attempts: &[PastAttempt]) -> Markup {
    let row = |past: &PastAttempt| {
        let from = past.started_at.or(past.queued_at);
        vec![
            html! { (past.attempt) },
            state(past.became),
            html! { @match &past.holder { Some(name) => (holder(name)), None => "–" } },
            html! { @match from { Some(from) => (both(from, look.now)), None => "–" } },
            html! { @if let Some(from) = from { (short(past.ended_at.saturating_duration_since(from))) } },
            html! { @if past.by_holder { "its holder" } @else { "the store" } },
            html! { @if let Some(message) = &past.message { (text(message)) } },
        ]
    };
    // The latest comes first, because it is the most useful.
    let rows: Vec<_> = attempts.iter().rev().map(row).collect();
    let heads = ["Attempt", "Became", "Holder", "Began", "Took", "Ended by", "Message"];
    html! {
        (table("Attempts of which a record is kept, the latest first", &heads, rows, "No attempt that has ended is on record."))
        @if attempts.iter().any(|past| past.message.is_some()) {
            p.note { "Of each message the first 1,000 characters are kept." }
        }
    }
}

fn runs(look: &Look<'_>, runs: &[RunRecord]) -> Markup {
    let row = |run: &RunRecord| {
        vec![
            html! { (visible(&run.key.id)) },
            html! { (run.status) },
            both(run.start, look.now),
            html! { @match run.stop { Some(at) => (both(at, look.now)), None => "–" } },
        ]
    };
    table(
        "Runs of its attempts, the latest first",
        &["Run", "Status", "Started", "Stopped"],
        runs.iter().map(row).collect(),
        "There is none.",
    )
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
    let waits = matches!(task.state, TaskState::Scheduled | TaskState::UpForRetry);
    html! {
        section id="actions" aria-label="Change it" data-live {
            div.bulk {
                @if task.state.is_end() || waits && task.due.is_some() {
                    form method="post" action="change" {
                        (hidden("retry"))
                        button { @if waits { "Run it now" } @else { "Run it again" } }
                    }
                }
                @if !task.state.is_end() {
                    details {
                        summary { "Cancel it…" }
                        form.change method="post" action="change" {
                            (hidden("cancel"))
                            (cancel_fields(task.lease.is_some()))
                            button.danger { "Cancel the task" }
                        }
                    }
                }
            }
        }
    }
}
