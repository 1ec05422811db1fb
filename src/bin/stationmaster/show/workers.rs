//! Who works on the store.

use std::collections::BTreeMap;

use comfy_table::Color;
use serde_json::{Value, json};
use stationmaster::id::Holder;
use stationmaster::store::Store;
use stationmaster::store::contract::{PokerRow, Serving, ShardLease};
use stationmaster::task::TaskQuery;
use stationmaster::{TaskRecord, Timestamp};

use super::{Found, nothing, output};
use crate::screen::{Field, Screen, field, key, maybe, number, state};
use crate::times::{must_stop, until};

/// The most leases that are read to count those of each holder.
const COUNTED: usize = 10_000;

/// What one name does and holds: it admits for some queues, polls the sensors of some shards, or both.
#[derive(Default)]
struct Works {
    leases: usize,
    /// Whether there may be more leases than were read.
    is_at_least: bool,
    /// When the first of its leases ends.
    first_ends: Option<Timestamp>,
    /// How many of its leases it was asked to give up, because their tasks were cancelled.
    asked: usize,
    /// When it must have given up the first of these.
    first_stop: Option<Timestamp>,
    serves: Vec<Serving>,
    pokes: Option<PokerRow>,
    shards: Vec<u32>,
    /// How many kinds of other workers' shards it looks after.
    loans: usize,
}

fn all(store: &dyn Store, now: Timestamp) -> Result<BTreeMap<Holder, Works>, super::Stop> {
    let leased = TaskQuery::leased().limit(COUNTED);
    let (servings, (workers, shards), leased) =
        store.read(|tx| Ok((tx.serving()?, tx.sensor_workers(now)?, tx.list_tasks(&leased)?.tasks)))?;
    let mut all: BTreeMap<Holder, Works> = BTreeMap::new();
    for serving in servings {
        all.entry(serving.holder.clone()).or_default().serves.push(serving);
    }
    let is_at_least = leased.len() == COUNTED;
    for lease in leased.into_iter().filter_map(|task| task.lease) {
        let works = all.entry(lease.holder).or_default();
        works.leases += 1;
        works.is_at_least = is_at_least;
        works.first_ends = works.first_ends.into_iter().chain([lease.expires_at]).min();
        works.asked += usize::from(lease.cancel_at.is_some());
        works.first_stop = works.first_stop.into_iter().chain(lease.cancel_at).min();
    }
    for worker in workers {
        let name = worker.name.clone();
        all.entry(name).or_default().pokes = Some(worker);
    }
    for ShardLease { shard, holder, expires_at, kind, .. } in shards {
        let Some(holder) = holder.filter(|_| now < expires_at) else { continue };
        let works = all.entry(holder).or_default();
        match kind {
            None => works.shards.push(shard),
            Some(_) => works.loans += 1,
        }
    }
    Ok(all)
}

impl Works {
    fn line(&self, name: &Holder, now: Timestamp) -> Value {
        let serves = self.serves.iter().map(|serving| {
            let until = serving.until();
            json!({ "queues": serving.queues, "until": until, "counts": now < until })
        });
        json!({
            "name": name,
            "serves": serves.collect::<Vec<_>>(),
            "pokes_until": self.pokes.as_ref().map(|worker| worker.expires_at),
            "shards_of": self.pokes.as_ref().map(|worker| worker.shards),
            "shards": self.shards,
            "kinds": self.pokes.as_ref().map(|worker| &worker.kinds),
            "loans": self.loans,
            "leases": self.leases,
            "leases_at_least": self.is_at_least,
            "first_lease_ends_at": self.first_ends,
        })
    }

    fn tasks(&self) -> String {
        match self.leases {
            1 => "1 task".into(),
            leases if self.is_at_least => format!("at least {leases} tasks"),
            leases => format!("{leases} tasks"),
        }
    }

    fn holds(&self, now: Timestamp) -> Field {
        let Some(at) = self.first_ends else { return field("") };
        let lease = if at <= now { "the first lease" } else { "the first" };
        let mut text = format!("{}, {lease} {}", self.tasks(), until(at, now));
        if let Some(stop) = self.first_stop {
            text.push_str(&format!("; {} {}", self.asked, must_stop(stop, now)));
        }
        field(text).tint((at <= now).then_some(Color::Red))
    }

    fn serves(&self, now: Timestamp) -> String {
        let one = |serving: &Serving| {
            let queues = serving.queues.as_ref().map_or_else(
                || "all queues".to_owned(),
                |queues| queues.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", "),
            );
            format!("{queues}, {}", until(serving.until(), now))
        };
        self.serves.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    fn pokes(&self, now: Timestamp) -> String {
        match &self.pokes {
            Some(worker) => {
                let until = until(worker.expires_at, now);
                let kinds = worker.kinds.as_ref().map_or_else(
                    || "all kinds".to_owned(),
                    |kinds| kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", "),
                );
                let kinds = if kinds.is_empty() { "no kind".to_owned() } else { kinds };
                let loans = match self.loans {
                    0 => String::new(),
                    1 => " and 1 kind of another".to_owned(),
                    loans => format!(" and {loans} kinds of others"),
                };
                let held = self.shards.len();
                format!("{kinds}: {held} of {} shards{loans}, {until}", worker.shards)
            }
            None if self.shards.is_empty() => String::new(),
            None => format!("gone; {} shards until their leases end", self.shards.len()),
        }
    }

    fn is_alive(&self, now: Timestamp) -> bool {
        self.pokes.is_some()
            || self.first_ends.is_some_and(|at| now < at)
            || self.serves.iter().any(|serving| now < serving.until())
    }
}

pub fn list(store: &dyn Store, screen: &mut Screen) -> Found {
    let now = screen.now;
    let all = all(store, now)?;
    if screen.is_json() {
        all.iter().for_each(|(name, works)| screen.line(&works.line(name, now)));
    } else if all.is_empty() {
        return nothing(screen, "No one admits tasks, holds a lease or pokes sensors.");
    } else {
        let rows = all.iter().map(|(name, works)| {
            let tint = (!works.is_alive(now)).then_some(Color::Red);
            vec![field(name).tint(tint), works.holds(now), field(works.serves(now)), field(works.pokes(now))]
        });
        screen.table(&["worker", "holds", "admits for", "pokes"], rows);
    }
    Ok(!all.is_empty())
}

pub fn of(store: &dyn Store, screen: &mut Screen, name: &Holder, limit: usize) -> Found {
    let now = screen.now;
    let works = all(store, now)?.remove(name);
    let leases = store.read(|tx| tx.leases_of(name, None, limit))?;
    let found = works.is_some() || !leases.is_empty();
    if screen.is_json() {
        if found {
            let mut line = works.unwrap_or_default().line(name, now);
            let tasks: Vec<_> =
                leases.iter().map(|task| screen.record(task)).collect::<Result<_, _>>().map_err(output)?;
            line["leases"] = json!(tasks);
            screen.line(&line);
        }
        return Ok(found);
    }
    if !found {
        return nothing(screen, "No one of this name admits tasks, pokes sensors or holds a lease.");
    }
    let works = works.unwrap_or_default();
    let lines = [
        ("worker", field(name)),
        ("holds", works.holds(now)),
        ("admits for", field(works.serves(now))),
        ("pokes", field(works.pokes(now))),
    ];
    screen.sheet(lines);
    if !leases.is_empty() {
        screen.say("\nLeases:");
        let row = |task: &TaskRecord| {
            let lease = task.lease.as_ref();
            let ends = maybe(lease.map(|lease| until(lease.expires_at, now)));
            let asked = maybe(lease.and_then(|lease| lease.cancel_at).map(|at| must_stop(at, now)));
            vec![
                number(task.id.0),
                key(&task.key),
                state(task.state),
                screen.maybe_when(task.queued_at),
                ends,
                asked,
            ]
        };
        let rows: Vec<_> = leases.iter().map(row).collect();
        screen.table(&["id", "task", "state", "granted", "lease", "note"], rows);
        if leases.len() == limit {
            screen.say("There may be more: raise --limit, or list them with tasks --holder.");
        }
    }
    Ok(true)
}
