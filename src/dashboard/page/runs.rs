//! The runs that were active in a window.

use std::time::Duration;

use maud::{Markup, html};

use super::chart::{chart, numbers};
use super::parts::{breakable, exact, payload, section, table, when};
use super::window::Window;
use super::{Look, Page};
use crate::dashboard::params::link;
use crate::dashboard::trouble::Trouble;
use crate::dashboard::words::{absolute, number, short, visible};
use crate::run::{
    ActiveQuery, Bucket, Group, RunPlace, RunRecord, RunStatus, Series, SeriesBy, SeriesSpec, StartMethod,
};

const SHOWN: usize = 50;
/// The most users with their own row.
const USERS: usize = 20;
/// The most runs that a page reads.
const MOST: usize = 10_000;

const STATUSES: [RunStatus; 9] = [
    RunStatus::Pending,
    RunStatus::Starting,
    RunStatus::Running,
    RunStatus::Suspended,
    RunStatus::Resuming,
    RunStatus::Completed,
    RunStatus::Failed,
    RunStatus::Killed,
    RunStatus::Rejected,
];

/// The start methods: the name in an address, the name for people, and the value.
const METHODS: [(&str, &str, StartMethod); 3] = [
    ("manual", "by hand", StartMethod::Manual),
    ("scheduled", "scheduled", StartMethod::Scheduled),
    ("triggered", "triggered", StartMethod::Triggered),
];

/// If a filter is invalid, the form stays, so that it can be corrected.
pub(super) fn view(look: &Look<'_>) -> Result<Page, Trouble> {
    match found(look) {
        Err(trouble) if trouble.status.is_client_error() => {
            let main = html! { p.notice { (visible(&trouble.text)) } (filter(look, None)) };
            Ok(Page { status: trouble.status, is_live: false, ..Page::of(look, "Active runs", "runs", main) })
        }
        found => found,
    }
}

fn found(look: &Look<'_>) -> Result<Page, Trouble> {
    let window = Window::of(look)?;
    let mut query = ActiveQuery::new(window.begin(), window.end());
    query.namespaces.extend(look.params.parsed("namespace")?);
    query.workflows.extend(look.params.parsed("workflow")?);
    query.users.extend(look.params.get("user").map(str::to_owned));
    if let Some(name) = look.params.get("method") {
        let method = METHODS.into_iter().find(|(method, ..)| *method == name);
        query.methods.push(method.ok_or_else(|| Trouble::bad("method: manual, scheduled or triggered"))?.2);
    }
    if let Some(name) = look.params.get("status") {
        let status = STATUSES.into_iter().find(|status| status.as_str() == name);
        query.statuses.push(status.ok_or_else(|| Trouble::bad("status: there is no such status"))?);
    }
    let before = look.params.get("before").map(|text| {
        let place: Result<RunPlace, _> = serde_json::from_str(text);
        place.map_err(|_| Trouble::bad("before: the place of a run, as the link to the next page has it"))
    });
    let before = before.transpose()?;
    let (runs, is_more) = read(look, &query)?;
    let buckets = if is_more {
        Vec::new()
    } else {
        let rows = series(look, &window, window.width(), SeriesBy::Nothing, &runs)?;
        rows.into_iter().flat_map(|(_, buckets)| buckets).collect()
    };
    let main = html! {
        (window.links(look))
        (filter(look, window.zoom()))
        (section("charts", "Over time", &charts(&window, &buckets, is_more)))
        // It is outside the part that is replaced, so that it stays open.
        details.numbers { summary { "The numbers as a table" }
            div id="numbers" data-live { (numbers(&buckets)) }
        }
        (section("users", "Users", &users(look, &window, &runs, is_more)?))
        (section("runs", "Runs", &list(look, &window, &runs, is_more, before.as_ref())))
    };
    let is_live = window.is_live && before.is_none();
    Ok(Page { is_live, ..Page::of(look, "Active runs", "runs", main) })
}

/// Reads the runs of the window in the order of their starts. Also returns whether there are more than it
/// reads.
fn read(look: &Look<'_>, query: &ActiveQuery) -> Result<(Vec<RunRecord>, bool), Trouble> {
    let query = query.clone().limit(MOST + 1);
    let mut runs = look.store.read(|tx| tx.active_runs(&query))?;
    let is_more = runs.len() > MOST;
    runs.truncate(MOST);
    Ok((runs, is_more))
}

fn series(
    look: &Look<'_>,
    window: &Window,
    width: Duration,
    by: SeriesBy,
    runs: &[RunRecord],
) -> Result<Vec<(Group, Vec<Bucket>)>, Trouble> {
    let mut series = Series::new(SeriesSpec::new(window.begin(), window.end(), width, by)?, look.now);
    runs.iter().try_for_each(|run| series.add(run))?;
    let mut rows = series.finish();
    // Whether an open run will still be active later is not known.
    rows.iter_mut().for_each(|(_, buckets)| buckets.retain(|bucket| bucket.begin < look.now));
    Ok(rows)
}

/// The users with the most node-hours in the window. Each name links to the user's own runs.
fn users(look: &Look<'_>, window: &Window, runs: &[RunRecord], is_more: bool) -> Result<Markup, Trouble> {
    if is_more {
        return Ok(html! { p.empty { "These are too many runs to be counted by user." } });
    }
    let whole = window.end().saturating_duration_since(window.begin());
    let rows = if runs.iter().any(|run| run.user.is_some()) {
        series(look, window, whole, SeriesBy::User { most: USERS }, runs)?
    } else {
        Vec::new()
    };
    let row = |(group, buckets): &(Group, Vec<Bucket>)| {
        let sum = |of: fn(&Bucket) -> u64| number(buckets.iter().map(of).sum::<u64>());
        let hours: f64 = buckets.iter().map(Bucket::node_hours).sum();
        vec![
            html! {
                @match &group.user {
                    Some(user) => a href=(window.with(look, &[("user", user)])) { (visible(user)) },
                    None if group.others > 0 => { (number(group.others)) " others" },
                    None => "no user",
                }
            },
            html! { (sum(|bucket| bucket.active)) },
            html! { (sum(|bucket| bucket.starts)) },
            html! { (sum(|bucket| bucket.stops)) },
            html! { (format!("{hours:.2}")) },
        ]
    };
    let rows = rows.iter().map(row).collect();
    let heads = ["User", "Active", "Started", "Stopped", "Node-hours"];
    Ok(table(
        "Runs of the window by user, the most node-hours first",
        &heads,
        rows,
        "No run of this window has a user.",
    ))
}

fn charts(window: &Window, buckets: &[Bucket], is_more: bool) -> Markup {
    let hours: f64 = buckets.iter().map(Bucket::node_hours).sum();
    html! {
        p.note {
            (absolute(window.begin())) " to " (absolute(window.end()))
            @if is_more {
                ". More than " (number(MOST)) " runs were active then, so nothing is drawn: choose a shorter window, or filter."
            } @else {
                ", a bar for " (short(window.width())) ". " (format!("{hours:.2}")) " node-hours in all."
            }
        }
        @if !is_more {
            (chart("active-chart", "Active runs", buckets, |bucket| bucket.active as f64))
            (chart("hours-chart", "Node-hours", buckets, Bucket::node_hours))
        }
    }
}

fn filter(look: &Look<'_>, zoom: Option<&str>) -> Markup {
    html! {
        form.search method="get" action="runs" role="search" {
            @if let Some(zoom) = zoom { input type="hidden" name="zoom" value=(zoom); }
            (Window::fields(look))
            @for (name, label) in [("namespace", "Namespace"), ("workflow", "Workflow"), ("user", "User")] {
                div {
                    label for=(name) { (label) }
                    input id=(name) name=(name) value=(look.params.get(name).unwrap_or_default())
                        autocomplete="off" spellcheck="false";
                }
            }
            div {
                label for="method" { "Started" }
                select id="method" name="method" {
                    option value="" { "any way" }
                    @for (method, name, _) in METHODS {
                        option value=(method) selected[look.params.get("method") == Some(method)] { (name) }
                    }
                }
            }
            div {
                label for="status" { "Status" }
                select id="status" name="status" {
                    option value="" { "any" }
                    @for status in STATUSES {
                        option value=(status) selected[look.params.get("status") == Some(status.as_str())] { (status) }
                    }
                }
            }
            div.buttons { button { "Filter" } a href=(link("runs", [("zoom", zoom.unwrap_or_default())])) { "Clear" } }
        }
    }
}

/// The id of a run. If the run records an attempt, links to its task: see
/// [`attempt_run_id`](crate::task::attempt_run_id).
fn run_id(id: &str) -> Markup {
    let number = id.rsplit_once('@').map(|(_, number)| number);
    let number =
        number.filter(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    html! {
        @match number {
            Some(number) => a href=(link("tasks", [("key", number)])) { (breakable(&visible(id))) },
            None => (breakable(&visible(id))),
        }
    }
}

/// One page of the list. The list is ordered by start, and begins with the latest runs: they are the most useful.
struct Part<'a> {
    shown: &'a [RunRecord],
    /// How many later runs the pages before have.
    later: usize,
    /// Where the next page continues.
    next: Option<String>,
}

impl<'a> Part<'a> {
    fn of(runs: &'a [RunRecord], before: Option<&RunPlace>) -> Self {
        let place = |run: &RunRecord| RunPlace::new(run.start, run.key.clone());
        let earlier = before.map_or(runs.len(), |before| runs.partition_point(|run| place(run) < *before));
        let (rest, _) = runs.split_at(earlier);
        let (left, shown) = rest.split_at(earlier.saturating_sub(SHOWN));
        let first = shown.first().filter(|_| !left.is_empty());
        let next = first.and_then(|run| serde_json::to_string(&place(run)).ok());
        Self { shown, later: runs.len() - earlier, next }
    }
}

fn list(
    look: &Look<'_>,
    window: &Window,
    runs: &[RunRecord],
    is_more: bool,
    before: Option<&RunPlace>,
) -> Markup {
    let count = runs.len();
    let method =
        |method: StartMethod| METHODS.iter().find(|(.., value)| *value == method).map(|(_, name, _)| *name);
    let nodes = |run: &RunRecord| {
        let last = run.nodes.range(..=run.stop.unwrap_or(look.now)).next_back();
        last.map_or(1, |(_, nodes)| *nodes)
    };
    // A user who types a window compares its ends with the runs.
    let at = if window.zoom().is_none() { exact } else { when };
    let row = |run: &RunRecord| {
        let mut row = vec![
            html! { (breakable(&visible(&run.key.namespace))) "/" wbr; (run_id(run.key.id.as_str())) },
            html! {
                @match &run.workflow {
                    // A workflow belongs to its namespace.
                    Some(workflow) => a href=(window.with(look, &[
                        ("namespace", run.key.namespace.as_str()), ("workflow", workflow.as_str())])) { (visible(workflow)) },
                    None => "–",
                }
            },
            html! { span class={ "state run-" (run.status) } { (run.status) } },
            at(run.start, look.now),
            html! { @match run.stop { Some(stop) => (at(stop, look.now)), None => "–" } },
            html! { (short(run.stop.unwrap_or(look.now).saturating_duration_since(run.start))) },
            html! { (number(nodes(run))) },
            html! {
                (method(run.method).unwrap_or_default())
                @if let Some(user) = &run.user { ", " a href=(window.with(look, &[("user", user)])) { (visible(user)) } }
            },
        ];
        if look.shows_payloads {
            row.push(payload(look, run.attributes.as_deref()));
        }
        row
    };
    let part = Part::of(runs, before);
    let none = match before {
        None => "No run was active in this window.",
        Some(_) => "No earlier run was active in this window.",
    };
    let rows: Vec<_> = part.shown.iter().rev().map(row).collect();
    let mut heads = vec!["Run", "Workflow", "Status", "Started", "Stopped", "Took", "Nodes", "How"];
    if look.shows_payloads {
        heads.push("Attributes");
    }
    html! {
        @if count > 0 { p.note {
            @if is_more {
                "More than " (number(MOST)) " runs were active. These pages list the first " (number(MOST))
                " by start, the last of them first. For later runs, choose a shorter window, or filter."
            }
            @else if count == 1 { "1 run was active." }
            @else { (number(count)) " runs were active" @if count > SHOWN { ", the latest start first" } "." }
            @if (count > SHOWN || before.is_some()) && !part.shown.is_empty() {
                " These are " (number(part.later + 1)) " to " (number(part.later + part.shown.len())) "."
            }
        } }
        (table("Runs that were active in the window, the latest start first", &heads, rows, none))
        @if count > SHOWN || before.is_some() {
            nav.pages aria-label="Pages of the list" {
                @if before.is_some() { a href={ (window.with(look, &[])) "#runs" } { "First page" } }
                @if let Some(next) = &part.next {
                    a rel="next" href={ (window.with(look, &[("before", next)])) "#runs" } { "Next page" }
                }
            }
        }
    }
}
