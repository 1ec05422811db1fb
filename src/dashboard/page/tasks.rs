//! Tasks by state and filters, a page at a time.

use std::time::Duration;

use maud::{Markup, html};

use super::overview::{COUNTED, states};
use super::parts::{begin, cancel_fields, ends, holder, listed, section, since, state, table, task};
use super::search::{SINCE, kept, search};
use super::{Look, Page};
use crate::dashboard::params::link;
use crate::dashboard::trouble::Trouble;
use crate::dashboard::words::{number, visible};
use crate::task::{TaskQuery, TaskRecord, TaskState};
use crate::time::Timestamp;

pub(in crate::dashboard) const SHOWN: usize = 50;
/// How many steps of the list a page takes at most, if few of the tasks match.
const STEPS: usize = 5;

/// If a filter is invalid, the form stays, so that it can be corrected.
pub(super) fn view(look: &Look<'_>) -> Result<Page, Trouble> {
    match found(look) {
        Err(trouble) if trouble.status.is_client_error() => {
            let main = html! { p.notice { (visible(&trouble.text)) } (search(look)) };
            Ok(Page { status: trouble.status, is_live: false, ..Page::of(look, "Tasks", "tasks", main) })
        }
        found => found,
    }
}

fn found(look: &Look<'_>) -> Result<Page, Trouble> {
    if let Some(text) = look.params.get("key") {
        return super::task::named(look, text);
    }
    if look.params.get("task").is_some() {
        return super::task::view(look);
    }
    let query = query(look)?;
    let counts = look.store.read(|tx| tx.count_tasks(COUNTED))?;
    let (tasks, next) = walk(look, query)?;
    let tiles = html! {
        div.compact { (states(&counts, &kept(look), look.params.get("state"))) }
        @if !kept(look).is_empty() { p.note { "The numbers are those of all tasks, whatever the filter." } }
    };
    let main = html! {
        (section("states", "By state", &tiles))
        (search(look))
        section id="list" data-live aria-label="Tasks" { (list(look, &tasks, next.as_deref())) }
    };
    let is_live = look.params.get("after").is_none();
    Ok(Page { is_live, ..Page::of(look, "Tasks", "tasks", main) })
}

fn query(look: &Look<'_>) -> Result<TaskQuery, Trouble> {
    let params = look.params;
    let mut query = match params.get("state") {
        None => TaskQuery::all(),
        Some("waiting") => TaskQuery::waiting(),
        Some("leased") => TaskQuery::leased(),
        Some("ended") => TaskQuery::ended(),
        Some(name) => {
            let state = TaskState::from_name(name);
            TaskQuery::new([state.ok_or_else(|| Trouble::bad("state: there is no such state"))?])
        }
    };
    query.namespace = params.parsed("namespace")?;
    query.workflow = params.parsed("workflow")?;
    query.run = params.parsed("run")?;
    query.queue = params.parsed("queue")?;
    query.pool = params.parsed("pool")?;
    query.limit_key = params.parsed("limit_key")?;
    query.holder = params.parsed("holder")?;
    if let Some(since) = params.get("since") {
        query.ended_since = Some(ended_since(since, look.now)?);
    }
    query.after = params.get("after").map(str::to_owned);
    // An address without a state, but with other filters, means the states that can match.
    if params.get("state").is_none() {
        query.states.retain(|state| {
            (query.holder.is_none() || state.is_leased()) && (query.ended_since.is_none() || state.is_end())
        });
    }
    let query = query.limit(SHOWN);
    query.check()?;
    Ok(query)
}

fn ended_since(text: &str, now: Timestamp) -> Result<Timestamp, Trouble> {
    let found = SINCE.into_iter().find(|(name, ..)| *name == text);
    let (_, _, seconds) = found.ok_or_else(|| Trouble::bad("since: 15m, 1h, 1d, 7d or 30d"))?;
    Ok(now - Duration::from_secs(seconds))
}

fn walk(look: &Look<'_>, mut query: TaskQuery) -> Result<(Vec<TaskRecord>, Option<String>), Trouble> {
    let mut found = Vec::new();
    for _ in 0..STEPS {
        query.limit = SHOWN - found.len();
        let page = look.store.read(|tx| tx.list_tasks(&query))?;
        found.extend(page.tasks);
        query.after = page.next;
        if query.after.is_none() || found.len() >= SHOWN {
            break;
        }
    }
    Ok((found, query.after))
}

/// Who holds a task and the holder's note, or why the task ended as it did.
fn note(look: &Look<'_>, record: &TaskRecord) -> Markup {
    let is_shown = record.state.is_end() || record.state == TaskState::UpForRetry;
    html! {
        @if let Some(lease) = &record.lease {
            (holder(&lease.holder)) " " span.lease {
                @if lease.expires_at <= look.now { "lease ended " } @else { "lease ends " }
                (ends(lease, look.now))
            }
            @if let Some(note) = &lease.note { (begin(note)) }
        } @else if let Some(message) = record.message.as_deref().filter(|_| is_shown) {
            (begin(message))
        }
    }
}

/// The state to which a row's link narrows the list, if none is chosen. A list without a state may have to
/// read much.
fn group(state: TaskState) -> &'static str {
    match state {
        TaskState::Scheduled | TaskState::UpForRetry => "waiting",
        TaskState::Sensing => "sensing",
        state if state.is_leased() => "leased",
        _ => "ended",
    }
}

/// Names what the list was filtered by.
fn caption(look: &Look<'_>) -> String {
    let state = look.params.get("state").unwrap_or("any");
    let filters = std::iter::once(("state", state)).chain(kept(look));
    let named = filters.map(|(name, value)| match name {
        "since" => format!("ended in the last {}", visible(value)),
        "state" => format!("state {}", value.replace('_', " ")),
        name => format!("{} {}", name.replace('_', " "), visible(value)),
    });
    format!("Tasks: {}", named.collect::<Vec<_>>().join(", "))
}

fn list(look: &Look<'_>, tasks: &[TaskRecord], next: Option<&str>) -> Markup {
    let kept = kept(look);
    let narrowed = |record: &TaskRecord, name: &'static str, value: &str| {
        let state = look.params.get("state").unwrap_or_else(|| group(record.state));
        let others = kept.iter().copied().filter(|(other, _)| *other != name);
        let filters: Vec<(&str, &str)> =
            [("state", state), (name, value)].into_iter().chain(others).collect();
        listed(&filters, visible(value))
    };
    let row = |record: &TaskRecord| {
        vec![
            html! {
                @if look.mark.is_some() {
                    input.tick type="checkbox" name="number" value=(record.id.0)
                        aria-label={ "Select " (visible(&record.key)) };
                    " "
                }
                (task(&record.key))
            },
            state(record.state),
            narrowed(record, "queue", record.lane.queue.as_str()),
            html! {
                (narrowed(record, "pool", record.lane.pool.as_str()))
                @if record.lane.slots != 1 { " × " (record.lane.slots) }
            },
            html! { (record.attempt) },
            since(record, look.now),
            note(look, record),
        ]
    };
    let rows: Vec<_> = tasks.iter().map(row).collect();
    let heads = ["Task", "State", "Queue", "Pool", "Attempt", "Since, or due", "Holder or message"];
    let all = look.params.get("state").map(|state| ("state", state)).into_iter().chain(kept.iter().copied());
    let list = table(&caption(look), &heads, rows, "No task matches, as far as was looked.");
    html! {
        (bulk(look, tasks, list, &link("", all.clone())))
        nav.pages aria-label="Pages of the list" {
            @if look.params.get("after").is_some() { a href=(link("tasks", all.clone())) { "First page" } }
            @if let Some(next) = next {
                a rel="next" href=(link("tasks", all.chain([("after", next)]))) { "Next page" }
            } @else if !tasks.is_empty() {
                span.note { (number(tasks.len())) " on this page, the last" }
            }
        }
    }
}

/// The list, and if the reader may change tasks, the buttons for the selected ones.
fn bulk(look: &Look<'_>, tasks: &[TaskRecord], list: Markup, back: &str) -> Markup {
    let Some(mark) = look.mark.filter(|_| !tasks.is_empty()) else { return list };
    html! {
        form method="post" action="change" {
            // The Enter key in a field presses the first button. This one does nothing.
            button disabled hidden {}
            input type="hidden" name="mark" value=(mark);
            input type="hidden" name="list" value={ "tasks" (back) };
            (list)
            div.bulk role="group" aria-labelledby="bulk-title" {
                strong id="bulk-title" { "With the selected tasks:" }
                span.with-script {
                    button type="button" data-tick="all" { "Select all" }
                    " "
                    button type="button" data-tick="" { "Select none" }
                }
                button name="verb" value="retry" { "Run again" }
                details {
                    summary { "Cancel…" }
                    div.change {
                        (cancel_fields(tasks.iter().any(|task| task.lease.is_some())))
                        button.danger name="verb" value="cancel" { "Cancel the selected tasks" }
                    }
                }
                details {
                    summary { "Delete…" }
                    div.change {
                        p.note { "Deleted tasks are gone. Those that run are left: cancel them first." }
                        button.danger name="verb" value="delete" { "Delete the selected tasks" }
                    }
                }
            }
        }
    }
}
