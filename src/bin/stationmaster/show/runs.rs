//! Runs, by key and by window.

use std::time::Duration;

use comfy_table::Color;
use serde_json::{Value, json};
use stationmaster::Timestamp;
use stationmaster::id::{Namespace, WorkflowId};
use stationmaster::run::{ActiveQuery, Bucket, Group, RunKey, RunRecord, RunStatus, SeriesBy, StartMethod};
use stationmaster::store::Store;
use stationmaster::store::contract::RunPlace;

use super::{Found, Stop, goes_on, nothing, output};
use crate::args::Page;
use crate::failure::Failure;
use crate::screen::{Field, Screen, field, key, maybe, number};
use crate::text::visible;
use crate::times::{Moment, short};

/// How many runs are read at once for a whole list.
const AT_ONCE: usize = 1_000;

/// How far a window without an end extends beyond the present, so that it contains a run that starts at this
/// instant.
const BEYOND: Duration = Duration::from_micros(1);

/// A window, and what to show of it.
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

/// Shows the window in parts, or as a whole if no width is given. Parts that have not begun are omitted; on a terminal
/// also those without active runs.
pub fn series(
    store: &dyn Store,
    screen: &mut Screen,
    mut query: ActiveQuery,
    width: Option<Duration>,
    by: SeriesBy,
) -> Found {
    // The last seven days in parts of seven days are one line: no second one begins at the present.
    if query.end == screen.now + BEYOND && query.begin < screen.now {
        query.end = screen.now;
    }
    let whole = query.end.saturating_duration_since(query.begin).max(BEYOND);
    let mut rows = store.read(|tx| tx.run_series(&query, width.unwrap_or(whole), by, screen.now))?;
    // Whether an open run will still be active later is not known.
    rows.iter_mut().for_each(|(_, buckets)| buckets.retain(|bucket| bucket.begin < screen.now));
    let is_active = rows.iter().any(|(_, buckets)| buckets.iter().any(|bucket| bucket.active > 0));
    if screen.is_json() {
        for (group, bucket) in parts(&rows) {
            let mut line = screen.record(bucket).map_err(output)?;
            if let (true, Value::Object(fields), Value::Object(group)) =
                (by != SeriesBy::Nothing, &mut line, screen.record(group).map_err(output)?)
            {
                fields.extend(group);
            }
            screen.line(&line);
        }
    } else if !is_active {
        return nothing(screen, "No run was active.");
    } else {
        let row = |(group, bucket): (&Group, &Bucket)| {
            let counts = [bucket.active, bucket.starts, bucket.stops].map(number);
            let hours = number(format!("{:.2}", bucket.node_hours()));
            let from = width.map_or_else(|| field(""), |_| screen.when(bucket.begin));
            [who(group, by), from].into_iter().chain(counts).chain([hours]).collect::<Vec<_>>()
        };
        let rows_shown: Vec<_> = parts(&rows).filter(|(_, bucket)| bucket.active > 0).map(row).collect();
        let head = match by {
            SeriesBy::User { .. } => "user",
            SeriesBy::Method => "method",
            SeriesBy::Namespace => "namespace",
            _ => "workflow",
        };
        screen.table(&[head, "from", "active", "started", "stopped", "node-hours"], rows_shown);
        let hours: f64 = parts(&rows).map(|(_, bucket)| bucket.node_hours()).sum();
        screen.say(&format!("{hours:.2} node-hours in all."));
    }
    Ok(is_active)
}

fn parts(rows: &[(Group, Vec<Bucket>)]) -> impl Iterator<Item = (&Group, &Bucket)> {
    rows.iter().flat_map(|(group, buckets)| buckets.iter().map(move |bucket| (group, bucket)))
}

/// Returns the group whose runs a row counts.
fn who(group: &Group, by: SeriesBy) -> Field {
    match (by, &group.namespace, &group.workflow) {
        (SeriesBy::User { .. }, ..) if group.others > 0 => field(format!("({} others)", group.others)),
        (SeriesBy::User { .. }, ..) => field(group.user.as_deref().unwrap_or("(no user)")),
        (SeriesBy::Method, ..) => maybe(group.method.map(word)),
        (_, Some(namespace), Some(workflow)) => field(format!("{namespace}/{workflow}")),
        (SeriesBy::Workflow, Some(namespace), None) => field(format!("{namespace} (no workflow)")),
        (_, namespace, _) => maybe(namespace.as_ref()),
    }
}

pub fn active(store: &dyn Store, screen: &mut Screen, mut query: ActiveQuery, page: &Page) -> Found {
    query.after = page.after.as_deref().map(place_of).transpose()?;
    let mut found: Vec<RunRecord> = Vec::new();
    let next = loop {
        // One more row shows whether there is a next page.
        let size = if page.all { AT_ONCE } else { page.limit() };
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
    key(format!("{}/{}", run.key.namespace, run.key.id))
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

/// Returns its current number of nodes, or its last one.
fn nodes(run: &RunRecord, now: Timestamp) -> u32 {
    run.nodes.range(..=run.stop.unwrap_or(now)).next_back().map_or(1, |(_, nodes)| *nodes)
}

/// Returns who started it, and for whom.
fn by(run: &RunRecord) -> String {
    let method = word(run.method);
    match &run.user {
        Some(user) => format!("{user}, {method}"),
        None => method,
    }
}

/// Returns a start method as it is typed.
fn word(method: StartMethod) -> String {
    format!("{method:?}").to_lowercase()
}

/// Returns the place of a run in a form that can be typed: its JSON in hexadecimal digits.
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
