//! The forms that find tasks.

use maud::{Markup, html};

use super::Look;
use crate::task::TaskState;

/// The filters that are names, under their names in an address.
pub(super) const NAMES: [(&str, &str); 7] = [
    ("namespace", "Namespace"),
    ("workflow", "Workflow"),
    ("run", "Run"),
    ("queue", "Queue"),
    ("pool", "Pool"),
    ("limit_key", "Limit key"),
    ("holder", "Holder"),
];

pub(super) const SINCE: [(&str, &str, u64); 5] = [
    ("15m", "15 minutes", 900),
    ("1h", "hour", 3_600),
    ("1d", "day", 86_400),
    ("7d", "7 days", 7 * 86_400),
    ("30d", "30 days", 30 * 86_400),
];

pub(super) const GROUPS: [&str; 3] = ["waiting", "leased", "ended"];

/// The filters of this address, without the state and the page.
pub(super) fn kept<'a>(look: &Look<'a>) -> Vec<(&'static str, &'a str)> {
    let names = NAMES.into_iter().map(|(name, _)| name).chain(["since"]);
    names.filter_map(|name| Some((name, look.params.get(name)?))).collect()
}

/// The form that finds one task by its number or key.
fn one(look: &Look<'_>) -> Markup {
    html! {
        form.find method="get" action="tasks" role="search" aria-label="One task" {
            label for="key" { "Number or key of a task" }
            input id="key" name="key" value=(look.params.get("key").unwrap_or_default())
                placeholder="17, or prod/nightly/r1/load" autocomplete="off" spellcheck="false";
            button { "Find" }
        }
    }
}

pub(super) fn search(look: &Look<'_>) -> Markup {
    let chosen = |name: &str, value: &str| look.params.get(name) == Some(value);
    let is_open = !kept(look).is_empty() || look.params.get("task").is_some();
    html! {
        (one(look))
        details.filter open[is_open] {
            summary { "Filter by names" }
            form.search method="get" action="tasks" role="search" aria-label="Tasks" {
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
                    input id="task" name="task" value=(look.params.get("task").unwrap_or_default())
                        autocomplete="off" spellcheck="false" aria-describedby="task-hint";
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
}
