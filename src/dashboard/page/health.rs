//! Whether the store is well.

use maud::{Markup, html};

use super::parts::{holder, section, sheet, state, table, task, when};
use super::{Look, Page};
use crate::dashboard::params::link;
use crate::dashboard::trouble::Trouble;
use crate::dashboard::words::{bytes, number, visible};
use crate::store::contract::Discrepancy;
use crate::task::{TaskCount, TaskQuery, TaskRecord, TaskState};
use crate::time::Timestamp;

/// How many leased and waiting tasks are looked at.
const SAMPLE: usize = 1_000;
const SHOWN: usize = 20;

pub(super) fn view(look: &Look<'_>) -> Result<Page, Trouble> {
    let (leased, waiting) = (TaskQuery::leased().limit(SAMPLE), TaskQuery::waiting().limit(SAMPLE));
    let (counts, sizes, next, mut leased, mut waiting) = look.store.read(|tx| {
        let (counts, sizes) = (tx.count_tasks(super::overview::COUNTED)?, tx.sizes()?);
        Ok((counts, sizes, tx.next_expiry()?, tx.list_tasks(&leased)?.tasks, tx.list_tasks(&waiting)?.tasks))
    })?;
    let missing = missing(look, &counts, next)?;
    let (of_leased, of_waiting) = (leased.len(), waiting.len());
    leased.sort_by_key(|task| task.lease.as_ref().map(|lease| lease.expires_at));
    waiting.retain(TaskRecord::is_ready);
    waiting.sort_by_key(|task| task.ready_at);
    let info = look.store.info();
    let facts = html! {
        (sheet(vec![
            ("Store", html! { (visible(info.backend)) }),
            ("Next lease ends", html! { @match next { Some(at) => (when(at, look.now)), None => "no task is leased" } }),
            ("Counters", html! { a href="audit" { "Compare them with every task" } }),
        ]))
    };
    let main = html! {
        (section("missing", "What is missing", &missing))
        (section("facts", "Store", &facts))
        (section("states", "Tasks by state", &super::overview::states(&counts)))
        @if !sizes.is_empty() { (section("sizes", "On disk", &on_disk(&sizes))) }
        (section("expiring", "Leases that end next", &expiring(look, &leased, of_leased)))
        (section("oldest", "Longest ready", &oldest(look, &waiting, of_waiting)))
    };
    Ok(Page { title: "Health".into(), under: "health", is_live: true, main })
}

/// Names queues without a worker, sensors without a poker, and leases without upkeep.
fn missing(look: &Look<'_>, counts: &[TaskCount], next: Option<Timestamp>) -> Result<Markup, Trouble> {
    let (queues, (pokers, _)) = look.store.read(|tx| Ok((tx.queues()?, tx.sensor_workers(look.now)?)))?;
    let unserved: Vec<_> =
        queues.iter().filter(|queue| queue.waiting > 0 && !queue.is_served(look.now)).collect();
    let sensing = counts.iter().any(|count| count.state == TaskState::Sensing && count.tasks > 0);
    let unpoked = sensing && pokers.is_empty();
    let expired = next.is_some_and(|at| at < look.now);
    Ok(html! {
        @for queue in unserved.iter().take(SHOWN) {
            p.notice {
                a href=(link("tasks", [("state", "waiting"), ("queue", queue.name.as_str())])) {
                    "Queue " (visible(&queue.name))
                }
                ": " (number(queue.waiting)) @if queue.waiting == 1 { " task waits" } @else { " tasks wait" }
                ", and no one serves it. Start a worker for it."
            }
        }
        @if unserved.len() > SHOWN {
            p.notice { (number(unserved.len() - SHOWN)) " more queues are served by no one." }
        }
        @if unpoked {
            p.notice { a href="sensors" { "Sensors" } " wait, and no worker pokes them. Start a poker." }
        }
        @if expired { p.notice { "A lease has expired and was not ended yet. Does upkeep run?" } }
        @if unserved.is_empty() && !unpoked && !expired {
            p.note { "Every queue in which tasks wait is served, sensors are poked, and no lease is overdue." }
        }
    })
}

/// The largest parts of the store.
fn on_disk(sizes: &[(String, u64)]) -> Markup {
    let row = |(name, size): &(String, u64)| vec![html! { (visible(name)) }, html! { (bytes(*size)) }];
    let rest: u64 = sizes.iter().skip(SHOWN).map(|(_, size)| size).sum();
    let rows = sizes.iter().take(SHOWN).map(row).collect();
    html! {
        (table("Parts of the store, the largest first", &["Part", "Size"], rows, ""))
        @if sizes.len() > SHOWN { p.note { (number(sizes.len() - SHOWN)) " more take " (bytes(rest)) "." } }
    }
}

fn note(of: usize, what: &str) -> Markup {
    html! { @if of == SAMPLE { p.note { "Among the first " (number(SAMPLE)) " " (what) " tasks of the list." } } }
}

fn expiring(look: &Look<'_>, leased: &[TaskRecord], of: usize) -> Markup {
    let row = |record: &TaskRecord| {
        let lease = record.lease.as_ref();
        vec![
            task(&record.key),
            state(record.state),
            html! { @if let Some(lease) = lease { (holder(&lease.holder)) } },
            html! {
                @if let Some(lease) = lease {
                    (when(lease.expires_at, look.now))
                    @if lease.expires_at <= look.now { " " span.tag.warn { "expired" } }
                }
            },
        ]
    };
    let rows = leased.iter().take(SHOWN).map(row).collect();
    html! {
        (table("Leases, the next to end first", &["Task", "State", "Holder", "Ends"], rows, "No task is leased."))
        (note(of, "leased"))
    }
}

fn oldest(look: &Look<'_>, waiting: &[TaskRecord], of: usize) -> Markup {
    let row = |record: &TaskRecord| {
        vec![
            task(&record.key),
            html! { (visible(&record.lane.queue)) },
            html! { (visible(&record.lane.pool)) },
            when(record.ready_at, look.now),
        ]
    };
    let rows = waiting.iter().take(SHOWN).map(row).collect();
    html! {
        (table("Ready tasks, the longest waiting first", &["Task", "Queue", "Pool", "Ready since"], rows,
               "No task is ready and waits."))
        (note(of, "waiting"))
    }
}

pub(super) fn audit(look: &Look<'_>) -> Result<Page, Trouble> {
    let found = look.store.read(|tx| tx.audit())?;
    let row = |one: &Discrepancy| {
        let (what, is, should) = match one {
            Discrepancy::Pool { pool, counted, held } => (format!("pool {pool}"), *counted, *held),
            Discrepancy::Limit { key, counted, held } => (format!("limit {key}"), *counted, *held),
            other => return vec![html! { (visible(format!("{other:?}"))) }, html! {}, html! {}],
        };
        vec![html! { (visible(what)) }, html! { (number(is)) }, html! { (number(should)) }]
    };
    let rows: Vec<_> = found.iter().take(1_000).map(row).collect();
    let main = html! {
        p.notice id="verdict" {
            @if found.is_empty() { "Every counter is equal to what it counts." }
            @else { (number(found.len())) " counters differ from what they count. A correct store has none." }
        }
        @if !rows.is_empty() { (table("What differs", &["What", "Counter", "Counted now"], rows, "")) }
        p { "As of " (when(look.now, look.now)) ". " a href="health" { "Back to health" } }
    };
    Ok(Page { title: "Audit".into(), under: "health", is_live: false, main })
}
