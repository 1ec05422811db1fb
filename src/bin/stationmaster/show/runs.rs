//! Runs, by key and by window.

use std::time::Duration;

use comfy_table::Color;
use serde_json::json;
use stationmaster::Timestamp;
use stationmaster::id::{Namespace, WorkflowId};
use stationmaster::run::{ActiveQuery, Bucket, RunKey, RunRecord, RunStatus, SeriesBy, StartMethod};
use stationmaster::store::Store;
use stationmaster::store::contract::RunPlace;

use super::{Found, Stop, goes_on, nothing, output};
use crate::args::Page;
use crate::failure::Failure;
use crate::screen::{Field, Screen, field, maybe, number};
use crate::text::visible;
use crate::times::{Moment, short};

/// How many runs are read at once if the whole list is shown.
const AT_ONCE: usize = 1_000;

/// By how much a window without an end reaches beyond the present, so that a run of this instant is in it.
const BEYOND: Duration = Duration::from_micros(1);

/// A window, and what is asked for in it.
pub struct Window<'a> {
    pub from: Moment,
    pub to: Option<Moment>,
    pub namespace: &'a [Namespace],
    pub workflow: &'a [WorkflowId],
    pub status: &'a [RunStatus],
    pub user: &'a [String],
    pub method: &'a [StartMethod],
}

impl Window<'_> {
    pub fn query(&self, now: Timestamp) -> ActiveQuery {
        let to = self.to.map_or_else(|| now + BEYOND, |to| to.at(now));
        let mut query = ActiveQuery::new(self.from.at(now), to);
        query.namespaces = self.namespace.to_vec();
        query.workflows = self.workflow.to_vec();
        query.statuses = self.status.to_vec();
        query.users = self.user.to_vec();
        query.methods = self.method.to_vec();
        query
    }
}

pub fn count(store: &dyn Store, screen: &mut Screen, query: &ActiveQuery) -> Found {
    let runs = store.read(|tx| tx.count_active_runs(query))?;
    if screen.is_json() {
        screen.line(&json!({ "from": query.begin, "to": query.end, "runs": runs }));
    } else {
        screen.say(&runs.to_string());
    }
    Ok(runs > 0)
}

/// Shows the window in parts, those in which nothing was active left out on a terminal.
pub fn series(store: &dyn Store, screen: &mut Screen, mut query: ActiveQuery, width: Duration) -> Found {
    // The last seven days, a line for each seven, are one line: no second one begins with the present.
    if query.end == screen.now + BEYOND && query.begin < screen.now {
        query.end = screen.now;
    }
    let rows = store.read(|tx| tx.run_series(&query, width, SeriesBy::Nothing, screen.now))?;
    let buckets: Vec<_> = rows.into_iter().flat_map(|(_, buckets)| buckets).collect();
    let is_active = buckets.iter().any(|bucket| bucket.active > 0);
    if screen.is_json() {
        for bucket in &buckets {
            let line = screen.record(bucket).map_err(output)?;
            screen.line(&line);
        }
    } else if !is_active {
        return nothing(screen, "No run was active.");
    } else {
        let row = |bucket: &Bucket| {
            let counts = [bucket.active, bucket.starts, bucket.stops].map(number);
            let hours = number(format!("{:.2}", bucket.node_hours()));
            std::iter::once(screen.when(bucket.begin)).chain(counts).chain([hours]).collect::<Vec<_>>()
        };
        let rows: Vec<_> = buckets.iter().filter(|bucket| bucket.active > 0).map(row).collect();
        screen.table(&["from", "active", "started", "stopped", "node-hours"], rows);
        let hours: f64 = buckets.iter().map(Bucket::node_hours).sum();
        screen.say(&format!("{hours:.2} node-hours in all."));
    }
    Ok(is_active)
}

pub fn active(store: &dyn Store, screen: &mut Screen, mut query: ActiveQuery, page: &Page) -> Found {
    query.after = page.after.as_deref().map(place_of).transpose()?;
    let mut found: Vec<RunRecord> = Vec::new();
    let next = loop {
        // One more tells whether there is a next page.
        let size = if page.all { AT_ONCE } else { page.limit };
        query = query.limit(size + 1);
        let mut runs = store.read(|tx| tx.active_runs(&query))?;
        let is_more = runs.len() > size;
        runs.truncate(size);
        query.after = runs.last().map(RunRecord::place);
        found.append(&mut runs);
        match query.after.clone() {
            Some(_) if is_more && page.all => {}
            place => break place.filter(|_| is_more),
        }
    };
    if screen.is_json() {
        for run in &found {
            let line = screen.record(run).map_err(output)?;
            screen.line(&line);
        }
    } else if found.is_empty() {
        return nothing(screen, "No run was active.");
    } else {
        let mut heads = vec!["run", "workflow", "status", "started", "stopped", "took", "nodes", "by"];
        let mut rows: Vec<Vec<Field>> = found.iter().map(|run| row(screen, run)).collect();
        if screen.shows_payloads() {
            heads.push("attributes");
            rows.iter_mut().zip(&found).for_each(|(row, run)| row.push(maybe(run.attributes.as_ref())));
        }
        screen.table(&heads, rows);
    }
    if let Some(next) = next {
        goes_on(screen, &text_of(&next).map_err(output)?);
    }
    Ok(!found.is_empty())
}

pub fn of(store: &dyn Store, screen: &mut Screen, keys: &[RunKey]) -> Found {
    let runs = store.read(|tx| tx.runs(keys))?;
    for (key, run) in keys.iter().zip(&runs) {
        match run {
            None if screen.is_json() => screen.line(&json!({ "key": key, "run": null })),
            None => {
                screen.say(&format!(
                    "{}/{}: there is no such run.",
                    visible(&key.namespace),
                    visible(&key.id)
                ));
            }
            Some(run) if screen.is_json() => {
                let line = screen.record(run).map_err(output)?;
                screen.line(&line);
            }
            Some(run) => sheet(screen, run),
        }
    }
    Ok(runs.iter().all(Option::is_some))
}

fn row(screen: &Screen, run: &RunRecord) -> Vec<Field> {
    vec![
        name(run),
        maybe(run.workflow.as_ref()),
        status(run),
        screen.when(run.start),
        screen.maybe_when(run.stop),
        field(took(run, screen.now)),
        number(nodes(run, screen.now)),
        field(by(run)),
    ]
}

fn sheet(screen: &mut Screen, run: &RunRecord) {
    let payload = screen.shows_payloads();
    let lines = [
        ("run", name(run)),
        ("workflow", maybe(run.workflow.as_ref())),
        ("status", status(run)),
        ("by", field(by(run))),
        ("started", screen.when(run.start)),
        ("at work since", screen.maybe_when(run.running)),
        ("stopped", screen.maybe_when(run.stop)),
        ("took", field(took(run, screen.now))),
        ("last heartbeat", screen.maybe_when(run.heartbeat)),
        (
            "suspended",
            maybe(Some(run.suspended.len()).filter(|times| *times > 0).map(|times| format!("{times} times"))),
        ),
        ("nodes", field(nodes(run, screen.now))),
        ("attributes", maybe(run.attributes.as_ref().filter(|_| payload))),
    ];
    screen.sheet(lines);
}

fn name(run: &RunRecord) -> Field {
    field(format!("{}/{}", run.key.namespace, run.key.id))
}

fn status(run: &RunRecord) -> Field {
    field(run.status).tint(match run.status {
        RunStatus::Failed | RunStatus::Rejected => Some(Color::Red),
        RunStatus::Killed | RunStatus::Suspended => Some(Color::Yellow),
        RunStatus::Completed => Some(Color::Green),
        _ => None,
    })
}

fn took(run: &RunRecord, now: Timestamp) -> String {
    short(run.stop.unwrap_or(now).saturating_duration_since(run.start))
}

/// Returns how many nodes it has now, or had last.
fn nodes(run: &RunRecord, now: Timestamp) -> u32 {
    run.nodes.range(..=run.stop.unwrap_or(now)).next_back().map_or(1, |(_, nodes)| *nodes)
}

/// Returns who started it, and for whom.
fn by(run: &RunRecord) -> String {
    let method = format!("{:?}", run.method).to_lowercase();
    match &run.user {
        Some(user) => format!("{user}, {method}"),
        None => method,
    }
}

/// The place of a run as it can be typed: its JSON in hexadecimal digits.
fn text_of(place: &RunPlace) -> std::io::Result<String> {
    let json = serde_json::to_vec(place).map_err(std::io::Error::other)?;
    Ok(json.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn place_of(text: &str) -> Result<RunPlace, Stop> {
    let byte =
        |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let json: Option<Vec<u8>> = text.as_bytes().chunks(2).map(byte).collect();
    let refused = || Stop::Other(Failure::Usage("--after takes what a page named as its next one".into()));
    serde_json::from_slice(&json.ok_or_else(refused)?).map_err(|_| refused())
}
