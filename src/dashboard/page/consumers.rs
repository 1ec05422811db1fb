//! Consumers of the feed.

use maud::{Markup, html};

use super::Look;
use super::parts::{table, when};
use crate::dashboard::words::{number, visible};
use crate::feed::Consumer;

pub(super) fn consumers(look: &Look<'_>, consumers: &[Consumer]) -> Markup {
    let row = |one: &Consumer| {
        vec![
            html! { (visible(&one.name)) @if one.dropped { " " span.tag.warn { "dropped" } } },
            html! { (number(one.cursor)) },
            when(one.seen_at, look.now),
            html! { (number(one.lost)) },
        ]
    };
    let rows = consumers.iter().map(row).collect();
    let heads = ["Consumer", "Read up to", "Last seen", "Lost"];
    table("Consumers, how far each has read, and the entries it lost", &heads, rows, "No one reads the feed.")
}
