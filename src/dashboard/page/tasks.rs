//! Tasks by state and filters, a page at a time.

use maud::{Markup, html};

use super::parts::{holder, maybe_when, state, table, task, when};
use super::{Look, Page};
use crate::dashboard::params::link;
use crate::dashboard::trouble::Trouble;
use crate::dashboard::words::{number, visible};
use crate::task::{TaskQuery, TaskRecord, TaskState};
use crate::time::Timestamp;

const SHOWN: usize = 50;
/// How many characters of a message are shown. The task's page shows all.
const MESSAGE: usize = 200;
/// How often the list goes on to fill a page, if few of the tasks that it passes match.
const STEPS: usize = 5;

/// The filters that are names, as they are called in an address.
const NAMES: [(&str, &str); 7] = [
    ("namespace", "Namespace"),
    ("workflow", "Workflow"),
    ("run", "Run"),
    ("queue", "Queue"),
    ("pool", "Pool"),
    ("limit_key", "Limit key"),
    ("holder", "Holder"),
];

const SINCE: [(&str, &str, u64); 5] = [
    ("15m", "15 minutes", 900),
    ("1h", "hour", 3_600),
    ("1d", "day", 86_400),
    ("7d", "7 days", 7 * 86_400),
    ("30d", "30 days", 30 * 86_400),
];

const GROUPS: [&str; 3] = ["waiting", "leased", "ended"];

pub(super) fn view(look: &Look<'_>) -> Result<Page, Trouble> {
    if look.params.get("task").is_some() {
        return super::task::view(look);
    }
    let query = query(look)?;
    let (tasks, next) = walk(look, query)?;
    let main = html! {
        (search(look))
        section id="list" data-live aria-label="Tasks" { (list(look, &tasks, next.as_deref())) }
    };
    Ok(Page { title: "Tasks".into(), under: "tasks", is_live: look.params.get("after").is_none(), main })
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
    // Asked for more, an address without a state means those that can match.
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
    Ok(now - std::time::Duration::from_secs(seconds))
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

fn search(look: &Look<'_>) -> Markup {
    let chosen = |name: &str, value: &str| look.params.get(name) == Some(value);
    html! {
        form.search method="get" action="tasks" role="search" {
            div {
                label for="state" { "State" }
                select id="state" name="state" {
                    option value="" { "any" }
                    @for name in GROUPS.into_iter().chain(TaskState::ALL.map(TaskState::as_str)) {
                        option value=(name) selected[chosen("state", name)] { (name.replace('_', " ")) }
                    }
                }
            }
            @for (name, label) in NAMES {
                div {
                    label for=(name) { (label) }
                    input id=(name) name=(name) value=(look.params.get(name).unwrap_or_default())
                        autocomplete="off" spellcheck="false";
                }
            }
            div {
                label for="task" { "Task" }
                input id="task" name="task" autocomplete="off" spellcheck="false"
                    aria-describedby="task-hint";
            }
            div {
                label for="since" { "Ended in the last" }
                select id="since" name="since" {
                    option value="" { "any time" }
                    @for (name, text, _) in SINCE {
                        option value=(name) selected[chosen("since", name)] { (text) }
                    }
                }
            }
            div.buttons {
                button { "Search" }
                a href="tasks" { "Clear" }
            }
            p.note id="task-hint" {
                "Names are matched in full. A workflow needs its namespace, a run its workflow, and a task all three."
            }
        }
    }
}

/// Who holds a task, or why it ended as it did.
fn note(look: &Look<'_>, record: &TaskRecord) -> Markup {
    let is_told = record.state.is_end() || record.state == TaskState::UpForRetry;
    html! {
        @if let Some(lease) = &record.lease {
            (holder(&lease.holder)) ", lease ends " (when(lease.expires_at, look.now))
            @if lease.expires_at <= look.now { " " span.tag.warn { "expired" } }
        } @else if let Some(message) = record.message.as_deref().filter(|_| is_told) {
            span.message { (visible(message.chars().take(MESSAGE).collect::<String>())) @if message.chars().nth(MESSAGE).is_some() { "…" } }
        }
    }
}

fn list(look: &Look<'_>, tasks: &[TaskRecord], next: Option<&str>) -> Markup {
    let row = |record: &TaskRecord| {
        vec![
            task(&record.key),
            state(record.state),
            html! { (visible(&record.lane.queue)) },
            html! { (visible(&record.lane.pool)) @if record.lane.slots != 1 { " × " (record.lane.slots) } },
            html! { (record.attempt) },
            maybe_when(record.due.or(record.ended_at).or(record.started_at), look.now),
            note(look, record),
        ]
    };
    let rows: Vec<_> = tasks.iter().map(row).collect();
    let heads = ["Task", "State", "Queue", "Pool", "Attempt", "Due, started or ended", "Holder or message"];
    let params = ["state", "since"].into_iter().chain(NAMES.map(|(name, _)| name));
    let kept: Vec<(&str, &str)> =
        params.map(|name| (name, look.params.get(name).unwrap_or_default())).collect();
    html! {
        (table("Tasks that match", &heads, rows, "No task matches, as far as was looked."))
        nav.pages aria-label="Pages of the list" {
            @if look.params.get("after").is_some() {
                a href=(link("tasks", kept.iter().copied())) { "First page" }
            }
            @if let Some(next) = next {
                a rel="next" href=(link("tasks", kept.iter().copied().chain([("after", next)]))) { "Next page" }
            } @else if !tasks.is_empty() {
                span.note { (number(tasks.len())) " on this page, the last" }
            }
        }
    }
}
