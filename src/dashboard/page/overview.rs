//! What runs, what waits, and why.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::time::Duration;

use maud::{Markup, html};

use super::attention::{FAILED, missing};
use super::parts::{
    Part, bar, begin, counted, ends, holder, legend, listed, maybe_when, pause, row_id, section, since,
    state, table, task, when,
};
use super::reasons::{Sample, reasons};
use super::{Look, Page};
use crate::admission::limits::{LimitRecord, LimitSpec, Rate};
use crate::admission::{QueueRecord, Subject};
use crate::dashboard::params::link;
use crate::dashboard::trouble::Trouble;
use crate::dashboard::words::{number, short, visible};
use crate::id::PoolName;
use crate::pool::{PoolRecord, PoolStats};
use crate::store::contract::ShareUse;
use crate::task::{TaskCount, TaskQuery, TaskRecord, TaskState};

/// How far the tasks of a state are counted.
pub(super) const COUNTED: usize = 1_000;
/// How many running tasks, pools, queues and limits are shown.
const SHOWN: usize = 20;
const MOST: usize = 100;

pub(super) fn view(look: &Look<'_>) -> Result<Page, Trouble> {
    let running = TaskQuery::leased().limit(SHOWN);
    let failed = TaskQuery::new([TaskState::Failed]).ended_since(look.now - Duration::from_secs(3_600));
    let failed = failed.limit(FAILED);
    let (counts, leased, sample, failed) = look.store.read(|tx| {
        let (counts, leased) = (tx.count_tasks(COUNTED)?, tx.list_tasks(&running)?.tasks);
        Ok((counts, leased, Sample::read(tx, look.now)?, tx.list_tasks(&failed)?.tasks.len()))
    })?;
    let (next, (pokers, _), all_paused) =
        look.store.read(|tx| Ok((tx.next_expiry()?, tx.sensor_workers(look.now)?, tx.paused()?)))?;
    let (pools, stats, queues, limits, families, shares) = look.store.read(|tx| {
        let mut pools = tx.all_pools()?;
        if pools.len() > MOST {
            pools.sort_by_key(|pool| Reverse(pool.used));
            pools.truncate(MOST);
        }
        let names: Vec<PoolName> = pools.iter().map(|pool| pool.spec.name.clone()).collect();
        let stats = tx.pool_stats(&names)?;
        let (queues, limits, families) = (tx.queues()?, tx.all_limits()?, tx.families()?);
        Ok((pools, stats, queues, limits, families, tx.shares()?))
    })?;
    let missing = missing(look, &queues, !pokers.is_empty(), &counts, next);
    let attention = super::attention::section(look, &all_paused, missing, failed);
    let paused: HashSet<Subject> = all_paused.into_iter().collect();
    let main = html! {
        (attention)
        (section("states", "Tasks", &states(&counts, &[], None)))
        (section("why", "Why tasks wait", &reasons(&counts, &queues, &sample)))
        (section("pools", "Pools", &pools_of(look, &pools, &stats, &paused)))
        @if !shares.is_empty() { (section("shares", "Shares", &shares_of(look, &shares, &paused))) }
        (section("queues", "Queues", &queues_of(look, queues, &paused)))
        (section("limits", "Limits and rates", &limits_of(look, limits, &families, &paused)))
        (section("running", "Granted and running", &leases(look, &leased)))
    };
    Ok(Page::of(look, "Overview", "overview", main))
}

/// How many tasks are in each state. Each number links to these tasks, with these filters.
pub(super) fn states(counts: &[TaskCount], filters: &[(&str, &str)], current: Option<&str>) -> Markup {
    let to =
        |state: &'static str| link("tasks", [("state", state)].into_iter().chain(filters.iter().copied()));
    html! {
        ul.tiles {
            @for count in counts {
                @let name = count.state.as_str();
                li {
                    a href=(to(name)) aria-current=[(current == Some(name)).then_some("true")] {
                        span.figure { (number(count.tasks)) @if count.is_at_least { "+" } }
                        (state(count.state))
                    }
                }
            }
        }
    }
}

fn pools_of(
    look: &Look<'_>,
    pools: &[PoolRecord],
    stats: &[Option<PoolStats>],
    paused: &HashSet<Subject>,
) -> Markup {
    let row = |(pool, stats): (&PoolRecord, &Option<PoolStats>)| {
        let name = &pool.spec.name;
        let subject = Subject::Pool(name.clone());
        let is_paused = paused.contains(&subject);
        let total = pool.spec.slots.total().map(i64::from);
        let waits = stats.map_or(0, |stats| stats.scheduled);
        let slots = stats.map_or_else(
            || vec![Part { class: "running", name: "used", count: pool.used }],
            |stats| {
                let other = pool.used.saturating_sub(stats.running).saturating_sub(stats.queued);
                vec![
                    Part { class: "running", name: "running", count: stats.running },
                    Part { class: "queued", name: "granted", count: stats.queued },
                    Part { class: "sensing", name: "kept by sensors", count: other.max(0) },
                ]
            },
        );
        vec![
            html! {
                span.named id=(row_id(&subject)) { (listed(&[("state", "waiting"), ("pool", name.as_str())], visible(name))) }
                @if is_paused { " " span.tag.warn { "paused" } }
            },
            bar(&slots, total),
            html! { (counted(&[("state", "leased"), ("pool", name.as_str())], pool.used)) @match total { Some(total) => { " of " (number(total)) }, None => ", no limit" } },
            html! { @match pool.open() { Some(open) => (number(open)), None => "–" } },
            counted(&[("state", "waiting"), ("pool", name.as_str())], waits),
            pause(look, "pool", name.as_str(), is_paused),
        ]
    };
    let rows = pools.iter().zip(stats).map(row).collect();
    html! {
        (table("Pools, in slots", &["Pool", "In use", "Used", "Open", "Waiting", ""], rows, "There is no pool."))
        (legend(&[("running", "running"), ("queued", "granted"), ("sensing", "kept by sensors")]))
        @if pools.len() == MOST { p.note { "At most " (MOST) " pools, those with the most slots in use." } }
    }
}

/// The shares that hold the most, and those with the most waiting tasks.
fn shares_of(look: &Look<'_>, shares: &[ShareUse], paused: &HashSet<Subject>) -> Markup {
    let mut shown: Vec<&ShareUse> = shares.iter().collect();
    shown.sort_by_key(|used| Reverse((used.held, used.waiting)));
    let mut waits = shown.split_off(SHOWN.min(shown.len()));
    waits.sort_by_key(|used| Reverse(used.waiting));
    waits.truncate(SHOWN);
    shown.extend(waits.into_iter().filter(|used| used.waiting > 0));
    let row = |used: &ShareUse| {
        let name = used.share.as_str();
        let is_paused = paused.contains(&Subject::Key(used.share.clone()));
        let held = [Part { class: "running", name: "held", count: used.held }];
        let part = used.part(shares);
        vec![
            html! {
                (listed(&[("state", "waiting"), ("limit_key", name)], visible(name)))
                @if is_paused { " " span.tag.warn { "paused" } }
            },
            listed(&[("state", "waiting"), ("pool", used.pool.as_str())], visible(&used.pool)),
            bar(&held, part.map(|part| part.ceil() as i64)),
            counted(&[("state", "leased"), ("limit_key", name)], used.held),
            html! { @match part { Some(part) => (format!("{part:.1}")), None => "–" } },
            html! { (number(used.weight)) },
            html! { (number(used.waiting)) },
            pause(look, "limit", name, is_paused),
        ]
    };
    let rows = shown.iter().map(|used| row(used)).collect();
    let heads = ["Share", "Pool", "Of its part", "Holds", "Part", "Weight", "Ready", ""];
    html! {
        (table("Shares, in slots, those that hold the most first", &heads, rows, ""))
        @if shares.len() > shown.len() {
            p.note { "There are " (number(shares.len() - shown.len())) " shares more, which hold less, and of which less waits." }
        }
    }
}

fn queues_of(look: &Look<'_>, mut queues: Vec<QueueRecord>, paused: &HashSet<Subject>) -> Markup {
    let all = queues.len();
    queues.sort_by_key(|queue| Reverse(queue.waiting + queue.leased));
    queues.truncate(MOST);
    let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let of = |queue: &QueueRecord, state, count| {
        counted(&[("state", state), ("queue", queue.name.as_str())], count)
    };
    let row = |queue: &QueueRecord| {
        let name = &queue.name;
        let subject = Subject::Queue(name.clone());
        let is_paused = paused.contains(&subject);
        let is_served = queue.is_served(look.now);
        let parts = [
            Part { class: "running", name: "leased", count: count(queue.leased) },
            Part { class: "sensing", name: "sensing", count: count(queue.sensing) },
            Part { class: "scheduled", name: "waiting", count: count(queue.waiting) },
        ];
        vec![
            html! {
                span.named id=(row_id(&subject)) { (listed(&[("state", "waiting"), ("queue", name.as_str())], visible(name))) }
                @if is_paused { " " span.tag.warn { "paused" } }
            },
            bar(&parts, None),
            html! { (of(queue, "waiting", queue.waiting)) " (" (number(queue.ready)) " ready)" },
            of(queue, "leased", queue.leased),
            of(queue, "sensing", queue.sensing),
            html! {
                @if is_served { (maybe_when(queue.served_until, look.now)) }
                @else { span.tag.warn { "no one serves it" } }
            },
            pause(look, "queue", name.as_str(), is_paused),
        ]
    };
    let rows: Vec<_> = queues.iter().map(row).collect();
    let heads = ["Queue", "Tasks", "Waiting", "Leased", "Sensing", "Served until", ""];
    html! {
        (table("Queues, the busiest first", &heads, rows, "No task is in a queue."))
        @if all > 0 { (legend(&[("running", "leased"), ("sensing", "sensing"), ("scheduled", "waiting")])) }
        @if all > MOST { p.note { "There are " (number(all - MOST)) " queues more." } }
        @if all > 0 { p { a href="next" { "What would run next?" } } }
    }
}

fn rate(rate: Option<Rate>) -> Markup {
    html! {
        @match rate {
            Some(rate) => {
                (number(rate.starts())) " in " (short(rate.period()))
                @if rate.most_at_once() > 1 { ", " (number(rate.most_at_once())) " at once" }
            }
            None => "–",
        }
    }
}

fn limits_of(
    look: &Look<'_>,
    mut limits: Vec<LimitRecord>,
    families: &[LimitSpec],
    paused: &HashSet<Subject>,
) -> Markup {
    let all = limits.len() + families.len();
    // Limits with the least room come first.
    limits.sort_by_cached_key(|limit| (limit.open().unwrap_or(i64::MAX), limit.key.clone()));
    let family = |spec: &LimitSpec| {
        let is_paused = paused.contains(&spec.subject());
        vec![
            html! { span.named id=(row_id(&spec.subject())) { (visible(&spec.key)) "*" } @if is_paused { " " span.tag.warn { "paused" } } },
            html! { "each key of the family" },
            html! { @match spec.max { Some(max) => { "at most " (number(max)) }, None => "–" } },
            rate(spec.rate),
            html! { "–" },
            pause(look, "family", spec.key.as_str(), is_paused),
        ]
    };
    let single = |limit: &LimitRecord| {
        let subject = Subject::Key(limit.key.clone());
        let is_paused = paused.contains(&subject);
        let used = [Part { class: "running", name: "used", count: limit.used }];
        vec![
            html! {
                span.named id=(row_id(&subject)) { (listed(&[("state", "waiting"), ("limit_key", limit.key.as_str())], visible(&limit.key))) }
                @if is_paused { " " span.tag.warn { "paused" } }
            },
            html! { @if let Some(max) = limit.max { (bar(&used, Some(max.into()))) } },
            html! {
                (counted(&[("state", "leased"), ("limit_key", limit.key.as_str())], limit.used))
                @if let Some(max) = limit.max { " of " (number(max)) }
            },
            rate(limit.rate),
            html! {
                @match (limit.rate, limit.token_at.filter(|at| *at > look.now)) {
                    (None, _) => "–",
                    (Some(_), None) => "now",
                    (Some(_), Some(at)) => (when(at, look.now)),
                }
            },
            pause(look, "limit", limit.key.as_str(), is_paused),
        ]
    };
    let rows: Vec<_> = families.iter().map(family).chain(limits.iter().map(single)).take(MOST).collect();
    html! {
        (table("Limits, the tightest first", &["Limit", "In use", "Used", "Rate", "Token", ""], rows, "No limit is defined."))
        @if all > MOST { p.note { "There are " (number(all - MOST)) " limits more." } }
    }
}

fn leases(look: &Look<'_>, leased: &[TaskRecord]) -> Markup {
    let row = |record: &TaskRecord| {
        let lease = record.lease.as_ref();
        vec![
            task(&record.key),
            state(record.state),
            html! { (record.attempt) },
            html! { @if let Some(lease) = lease { (holder(&lease.holder)) } },
            since(record, look.now),
            html! { @if let Some(lease) = lease { (ends(lease, look.now)) } },
            html! { @if let Some(note) = lease.and_then(|lease| lease.note.as_deref()) { (begin(note)) } },
        ]
    };
    let rows = leased.iter().map(row).collect();
    let heads = ["Task", "State", "Attempt", "Holder", "Since", "Lease ends", "Says"];
    html! {
        (table("Tasks that hold a lease, by holder", &heads, rows, "No task holds a lease."))
        @if leased.len() == SHOWN {
            p.note { "The first " (SHOWN) ". " a href=(link("tasks", [("state", "leased")])) { "All of them" } }
        }
    }
}
