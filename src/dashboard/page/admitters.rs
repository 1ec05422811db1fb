//! Admitters, the queues they serve, and what they hold.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::Look;
use super::parts::{counted, holder, maybe_when, table, when};
use crate::admission::queue::Serving;
use crate::dashboard::words::visible;
use crate::id::Holder;
use crate::task::TaskRecord;
use crate::time::Timestamp;

const SHOWN: usize = 100;

/// For each holder: what it serves, how many leases were found, and when the first of them ends.
#[derive(Default)]
struct Row<'a> {
    serving: Option<&'a Serving>,
    leases: usize,
    first: Option<Timestamp>,
}

/// Holders that announced what they serve, and those that hold one of these leases.
pub(super) fn admitters(look: &Look<'_>, serving: &[Serving], leased: &[TaskRecord]) -> Markup {
    let mut rows: BTreeMap<&Holder, Row<'_>> = BTreeMap::new();
    for one in serving {
        rows.entry(&one.holder).or_default().serving = Some(one);
    }
    for lease in leased.iter().filter_map(|task| task.lease.as_ref()) {
        let row = rows.entry(&lease.holder).or_default();
        row.leases += 1;
        row.first = row.first.into_iter().chain([lease.expires_at]).min();
    }
    let serves = |one: &Serving| match &one.queues {
        None => "all queues".to_owned(),
        Some(queues) => queues.iter().map(visible).collect::<Vec<_>>().join(", "),
    };
    let row = |(name, row): (&&Holder, &Row<'_>)| {
        vec![
            holder(name),
            html! { @match row.serving { Some(one) => (serves(one)), None => "not known" } },
            html! {
                @match row.serving {
                    Some(one) => {
                        (when(one.until(), look.now))
                        @if one.until() <= look.now { " " span.tag.warn { "no longer counts" } }
                    }
                    None => "–",
                }
            },
            counted(&[("state", "leased"), ("holder", name.as_str())], row.leases),
            maybe_when(row.first, look.now),
        ]
    };
    let heads = ["Holder", "Serves", "Until", "Leases", "The first ends"];
    let all = rows.len();
    let rows = rows.iter().take(SHOWN).map(row).collect();
    html! {
        (table("Who admits tasks, and for which queues", &heads, rows, "No one admits tasks."))
        @if all > SHOWN { p.note { "There are " (all - SHOWN) " holders more." } }
    }
}
