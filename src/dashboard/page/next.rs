//! What would be admitted next.

use std::cmp::Reverse;
use std::time::Duration;

use maud::{Markup, html};

use super::parts::{reason, section, table, task, when};
use super::{Look, Page};
use crate::admission::{LaneKey, QueueRecord, Refusal};
use crate::dashboard::params::link;
use crate::dashboard::trouble::Trouble;
use crate::dashboard::words::{number, visible};
use crate::id::QueueName;
use crate::ops::{Admission, AdmitRequest};
use crate::task::TaskRecord;

/// The budget of the tick.
const BUDGET: usize = 50;
/// How many queues and reasons are shown.
const SHOWN: usize = 50;

pub(super) fn view(look: &Look<'_>) -> Result<Page, Trouble> {
    let serves: Option<QueueName> = look.params.parsed("queue")?;
    let request =
        AdmitRequest::new("dashboard".parse()?, "preview".parse()?, BUDGET, Duration::from_secs(60));
    let request = serves.iter().fold(request, |request, queue| request.serves([queue.clone()]));
    let (preview, queues) = look.store.read(|tx| Ok((tx.preview(look.now, &request)?, tx.queues()?)))?;
    let main = html! {
        (choice(serves.as_ref(), &queues))
        (section("admits", "It would admit", &admits(look, &preview, serves.as_ref(), &queues)))
        (section("leaves", "It would leave", &leaves(look, &preview)))
    };
    let title = match &serves {
        Some(queue) => format!("Next in queue {}", visible(queue)),
        None => "Next in all queues".to_owned(),
    };
    // A tick costs more than other pages, so this page is not refreshed automatically.
    Ok(Page { is_live: false, ..Page::of(look, title, "overview", main) })
}

/// Links to the busiest queues.
fn choice(serves: Option<&QueueName>, queues: &[QueueRecord]) -> Markup {
    let mut busiest: Vec<&QueueRecord> = queues.iter().collect();
    busiest.sort_by_key(|queue| Reverse(queue.waiting));
    html! {
        p.note { "What an admitter that serves these queues, with the default policy, would be granted now, at most " (BUDGET) " tasks." }
        nav.pages.zoom aria-label="Queues" {
            a href="next" aria-current=[serves.is_none().then_some("true")] { "All queues" }
            @for name in busiest.into_iter().take(SHOWN).map(|queue| &queue.name) {
                a href=(link("next", [("queue", name.as_str())])) aria-current=[(serves == Some(name)).then_some("true")] {
                    (visible(name))
                }
            }
        }
    }
}

/// Pools with their slots, and limits.
pub(super) fn needs(lane: &LaneKey) -> Markup {
    let pools = std::iter::once((&lane.pool, &lane.slots)).chain(&lane.also);
    let needs = pools.map(|(pool, slots)| format!("{pool} × {slots}"));
    let needs = needs.chain(lane.limits.iter().map(|limit| format!("limit {limit}")));
    html! { (visible(needs.collect::<Vec<_>>().join(", "))) }
}

fn admits(
    look: &Look<'_>,
    preview: &Admission,
    serves: Option<&QueueName>,
    queues: &[QueueRecord],
) -> Markup {
    let row = |record: &TaskRecord| {
        vec![
            task(&record.key),
            html! { (visible(&record.lane.queue)) },
            html! { (record.priority) },
            when(record.ready_at, look.now),
            needs(&record.lane),
        ]
    };
    let rows = preview.granted.iter().map(row).collect();
    let is_used = |queue: &&QueueRecord| {
        preview.granted.iter().any(|task| task.lane.queue == queue.name) && !queue.is_served(look.now)
    };
    html! {
        (table("Tasks in the order of admission", &["Task", "Queue", "Priority", "Ready since", "Needs"], rows, "Nothing."))
        @if serves.is_none() {
            @for queue in queues.iter().filter(is_used) {
                p.notice { "No one serves queue " (visible(&queue.name)) " now." }
            }
        }
    }
}

fn leaves(look: &Look<'_>, preview: &Admission) -> Markup {
    let row = |refusal: &Refusal| {
        vec![
            reason(&refusal.reason),
            html! { (number(refusal.tasks)) },
            html! { (visible(&refusal.lane.queue)) },
            needs(&refusal.lane),
        ]
    };
    let rows = preview.refusals.iter().take(SHOWN).map(row).collect();
    let rest = preview.refusals.len().saturating_sub(SHOWN);
    html! {
        (table("Ready tasks that it would leave", &["Why", "Tasks", "Queue", "Needs"], rows, "No ready task."))
        @if rest > 0 || preview.more_lanes { p.note { "Tasks with other needs wait behind these." } }
        @if let Some(due) = preview.next_due { p.note { "The next task is due " (when(due, look.now)) "." } }
    }
}
