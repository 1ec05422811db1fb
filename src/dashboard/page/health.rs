//! The condition of the store.

use maud::{Markup, html};

use super::admitters::admitters;
use super::attention::missing;
use super::consumers::consumers;
use super::overview::{COUNTED, states};
use super::parts::{ends, holder, section, sheet, state, table, task, when};
use super::{Look, Page};
use crate::dashboard::trouble::Trouble;
use crate::dashboard::words::{bytes, number, visible};
use crate::store::contract::Discrepancy;
use crate::task::{TaskQuery, TaskRecord};

/// How many leased and ready tasks are read.
const SAMPLE: usize = 1_000;
const SHOWN: usize = 20;

pub(super) fn view(look: &Look<'_>) -> Result<Page, Trouble> {
    let (leased, ready) =
        (TaskQuery::leased().limit(SAMPLE), TaskQuery::waiting().without_later().limit(SAMPLE));
    let (counts, sizes, next, mut leased, mut ready) = look.store.read(|tx| {
        let (counts, sizes) = (tx.count_tasks(COUNTED)?, tx.sizes()?);
        Ok((counts, sizes, tx.next_expiry()?, tx.list_tasks(&leased)?.tasks, tx.list_tasks(&ready)?.tasks))
    })?;
    let (queues, serving, (pokers, _), readers) = look
        .store
        .read(|tx| Ok((tx.queues()?, tx.serving()?, tx.sensor_workers(look.now)?, tx.consumers()?)))?;
    let missing = missing(look, &queues, !pokers.is_empty(), &counts, next);
    let missing = html! {
        @for one in &missing { (one) }
        @if missing.is_empty() {
            p.note { "Every queue in which tasks wait is served, sensors are poked, and no lease is overdue." }
        }
    };
    leased.sort_by_key(|task| task.lease.as_ref().map(|lease| lease.expires_at));
    ready.retain(TaskRecord::is_ready);
    let of_ready = ready.len();
    ready.sort_by_key(|task| task.ready_at);
    let holders = html! {
        (admitters(look, &serving, &leased))
        (note(leased.len(), "leased"))
    };
    let info = look.store.info();
    let is_overdue = next.is_some_and(|at| at <= look.now);
    let facts = html! {
        (sheet(vec![
            ("Store", html! { (visible(info.backend)) }),
            (if is_overdue { "A lease ended" } else { "Next lease ends" }, html! {
                @match next { Some(at) => (when(at, look.now)), None => "no task is leased" }
            }),
            ("Counters", html! { a href="audit" { "Audit: compare them with every task" } }),
        ]))
    };
    let main = html! {
        (section("missing", "What is missing", &missing))
        (section("facts", "Store", &facts))
        (section("states", "Tasks by state", &states(&counts, &[], None)))
        @if !sizes.is_empty() { (section("sizes", "On disk", &on_disk(&sizes))) }
        (section("holders", "Admitters", &holders))
        (section("expiring", "Leases that end next", &expiring(look, &leased)))
        (section("oldest", "Longest ready", &oldest(look, &ready, of_ready)))
        (section("consumers", "Consumers of the feed", &consumers(look, &readers)))
    };
    Ok(Page::of(look, "Health", "health", main))
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

fn expiring(look: &Look<'_>, leased: &[TaskRecord]) -> Markup {
    let row = |record: &TaskRecord| {
        let lease = record.lease.as_ref();
        vec![
            task(&record.key),
            state(record.state),
            html! { @if let Some(lease) = lease { (holder(&lease.holder)) } },
            html! { @if let Some(lease) = lease { (ends(lease, look.now)) } },
        ]
    };
    let rows = leased.iter().take(SHOWN).map(row).collect();
    html! {
        (table("Leases, the next to end first", &["Task", "State", "Holder", "Ends"], rows, "No task is leased."))
        (note(leased.len(), "leased"))
    }
}

fn oldest(look: &Look<'_>, ready: &[TaskRecord], of: usize) -> Markup {
    let row = |record: &TaskRecord| {
        vec![
            task(&record.key),
            html! { (visible(&record.lane.queue)) },
            html! { (visible(&record.lane.pool)) },
            when(record.ready_at, look.now),
        ]
    };
    let rows = ready.iter().take(SHOWN).map(row).collect();
    html! {
        (table("Ready tasks, the longest waiting first", &["Task", "Queue", "Pool", "Ready since"], rows,
               "No task is ready and waits."))
        (note(of, "ready"))
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
        p.notice.fine[found.is_empty()] id="verdict" {
            @if found.is_empty() { "Every counter is equal to what it counts. What else may be wrong is under Health." }
            @else { (number(found.len())) " counters differ from what they count. A correct store has none." }
        }
        @if !rows.is_empty() { (table("Counters that differ from what they count", &["What", "Counter", "Counted now"], rows, "")) }
        p { a href="health" { "Back to health" } }
    };
    Ok(Page { is_live: false, ..Page::of(look, "Audit", "health", main) })
}
