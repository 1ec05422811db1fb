//! The runs that were active in a window.

use std::time::Duration;

use maud::{Markup, html};

use super::chart::{chart, numbers};
use super::parts::{maybe_when, payload, section, table, when};
use super::{Look, Page};
use crate::dashboard::params::link;
use crate::dashboard::trouble::Trouble;
use crate::dashboard::words::{absolute, number, short, visible};
use crate::run::{ActiveQuery, Bucket, RunRecord, RunStatus, SeriesBy, StartMethod};
use crate::time::Timestamp;

const SHOWN: usize = 50;
/// The runs beyond this many are not counted.
const MOST: usize = 1_000;

/// The windows: name, length and width of a bar, in seconds.
const ZOOM: [(&str, u64, u64); 6] = [
    ("1h", 3_600, 60),
    ("6h", 6 * 3_600, 300),
    ("24h", 86_400, 1_200),
    ("7d", 7 * 86_400, 7_200),
    ("30d", 30 * 86_400, 43_200),
    ("90d", 90 * 86_400, 86_400),
];

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

/// The ways in which a run is started: as in an address, for people, and as a value.
const METHODS: [(&str, &str, StartMethod); 3] = [
    ("manual", "by hand", StartMethod::Manual),
    ("scheduled", "scheduled", StartMethod::Scheduled),
    ("triggered", "triggered", StartMethod::Triggered),
];

/// A window of whole bars, so that they stay where they are while time goes on.
struct Window {
    zoom: &'static str,
    begin: i64,
    end: i64,
    width: i64,
    /// Whether it reaches the present.
    is_live: bool,
}

impl Window {
    fn of(look: &Look<'_>) -> Result<Self, Trouble> {
        let zoom = look.params.get("zoom").unwrap_or("24h");
        let (zoom, length, width) = ZOOM
            .into_iter()
            .find(|(name, ..)| *name == zoom)
            .ok_or_else(|| Trouble::bad("zoom: 1h, 6h, 24h, 7d, 30d or 90d"))?;
        let (length, width) = (length as i64, width as i64);
        let now = look.now.as_micros().div_euclid(1_000_000).max(0);
        let until = match look.params.get("until") {
            None => now,
            Some(until) => {
                let until: i64 = until.parse().map_err(|_| Trouble::bad("until: a number of seconds"))?;
                // Beyond the present there is nothing; before 1970 neither.
                until.clamp(0, now)
            }
        };
        let end = until.div_euclid(width).saturating_add(1).saturating_mul(width);
        Ok(Self { zoom, begin: end - length, end, width, is_live: until == now })
    }

    fn begin(&self) -> Timestamp {
        Timestamp::from_micros(self.begin.saturating_mul(1_000_000))
    }

    fn end(&self) -> Timestamp {
        Timestamp::from_micros(self.end.saturating_mul(1_000_000))
    }
}

pub(super) fn view(look: &Look<'_>) -> Result<Page, Trouble> {
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
    let listed = query.clone().limit(MOST + 1);
    let width = Duration::from_secs(window.width.unsigned_abs());
    let (series, runs) = look.store.read(|tx| {
        Ok((tx.run_series(&query, width, SeriesBy::Nothing, look.now)?, tx.active_runs(&listed)?))
    })?;
    let buckets: Vec<Bucket> = series.into_iter().next().map(|(_, buckets)| buckets).unwrap_or_default();
    let main = html! {
        (zoom(look, &window))
        (filter(look, &window))
        (section("charts", "Over time", &html! {
            p.note { (absolute(window.begin())) " to " (absolute(window.end())) ", a bar for " (short(width)) ". "
                (format!("{:.2}", buckets.iter().map(Bucket::node_hours).sum::<f64>())) " node-hours in all." }
            (chart("active-chart", "Active runs", &buckets, |bucket| bucket.active as f64))
            (chart("hours-chart", "Node-hours", &buckets, Bucket::node_hours))
        }))
        // Outside of what is replaced, so that it stays open.
        details.numbers { summary { "The numbers as a table" }
            div id="numbers" data-live { (numbers(&buckets)) }
        }
        (section("runs", "Runs", &list(look, &runs)))
    };
    Ok(Page { title: "Active runs".into(), under: "runs", is_live: window.is_live, main })
}

/// A link to this page with another window.
fn other(look: &Look<'_>, zoom: &str, until: Option<i64>) -> String {
    let until = until.map(|until| until.to_string()).unwrap_or_default();
    let names = ["namespace", "workflow", "user", "method", "status"];
    let kept = names.map(|name| (name, look.params.get(name).unwrap_or_default()));
    link("runs", [("zoom", zoom), ("until", until.as_str())].into_iter().chain(kept))
}

fn zoom(look: &Look<'_>, window: &Window) -> Markup {
    let until = (!window.is_live).then_some(window.end - 1);
    let length = window.end - window.begin;
    html! {
        nav.pages.zoom aria-label="Window" {
            @for (name, ..) in ZOOM {
                a href=(other(look, name, until)) aria-current=[(name == window.zoom).then_some("true")] { (name) }
            }
            a href=(other(look, window.zoom, Some(window.begin - 1))) { "Earlier" }
            @if !window.is_live {
                a href=(other(look, window.zoom, Some(window.end - 1 + length))) { "Later" }
                a href=(other(look, window.zoom, None)) { "Now" }
            }
        }
    }
}

fn filter(look: &Look<'_>, window: &Window) -> Markup {
    html! {
        form.search method="get" action="runs" role="search" {
            input type="hidden" name="zoom" value=(window.zoom);
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
            div.buttons { button { "Filter" } a href=(link("runs", [("zoom", window.zoom)])) { "Clear" } }
        }
    }
}

fn list(look: &Look<'_>, runs: &[RunRecord]) -> Markup {
    let is_more = runs.len() > MOST;
    let count = runs.len().min(MOST);
    let method =
        |method: StartMethod| METHODS.iter().find(|(.., value)| *value == method).map(|(_, name, _)| *name);
    let nodes = |run: &RunRecord| {
        let last = run.nodes.range(..=run.stop.unwrap_or(look.now)).next_back();
        last.map_or(1, |(_, nodes)| *nodes)
    };
    let row = |run: &RunRecord| {
        let mut row = vec![
            html! { (visible(&run.key.namespace)) "/" (visible(&run.key.id)) },
            html! { @match &run.workflow { Some(workflow) => (visible(workflow)), None => "–" } },
            html! { span class={ "state run-" (run.status) } { (run.status) } },
            when(run.start, look.now),
            maybe_when(run.stop, look.now),
            html! { (short(run.stop.unwrap_or(look.now).saturating_duration_since(run.start))) },
            html! { (number(nodes(run))) },
            html! { (method(run.method).unwrap_or_default()) @if let Some(user) = &run.user { ", " (visible(user)) } },
        ];
        if look.shows_payloads {
            row.push(payload(look, run.attributes.as_deref()));
        }
        row
    };
    // The list is by start; the latest tell most.
    let rows: Vec<_> = runs.iter().take(MOST).rev().take(SHOWN).map(row).collect();
    let mut heads = vec!["Run", "Workflow", "Status", "Started", "Stopped", "Took", "Nodes", "How"];
    if look.shows_payloads {
        heads.push("Attributes");
    }
    html! {
        p.note {
            @if is_more { "More than " (number(MOST)) " runs were active. Of the first of them by start these are the last; zoom in for others." }
            @else if count > SHOWN { (number(count)) " runs were active; these are the last " (SHOWN) " by start." }
            @else if count == 1 { "1 run was active." }
            @else { (number(count)) " runs were active." }
        }
        (table("Runs that were active in the window", &heads, rows, "No run was active in this window."))
    }
}
