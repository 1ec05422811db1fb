//! Bars over time, drawn without a script.

use maud::{Markup, html};

use super::parts::table;
use crate::dashboard::words::{absolute, number};
use crate::run::Bucket;

const HEIGHT: f64 = 100.0;

/// One number of each bucket, also as a table.
pub(super) fn chart(id: &str, title: &str, buckets: &[Bucket], figure: impl Fn(&Bucket) -> f64) -> Markup {
    let figures: Vec<f64> = buckets.iter().map(&figure).collect();
    let most = figures.iter().copied().fold(0.0, f64::max);
    let shown = |figure: f64| {
        if figure.fract() == 0.0 { number(figure) } else { format!("{figure:.2}") }
    };
    let highest = if most > 0.0 { format!("at most {}", shown(most)) } else { "none".to_owned() };
    let width = buckets.len().max(1) * 10;
    let height = |figure: f64| if most > 0.0 { figure / most * HEIGHT } else { 0.0 };
    let span = |bucket: &Bucket| format!("{} to {}", absolute(bucket.begin), absolute(bucket.end));
    html! {
        figure id=(id) {
            figcaption { (title) span.note { " – " (highest) } }
            svg.chart viewBox={ "0 0 " (width) " 100" } preserveAspectRatio="none" role="img"
                aria-label={ (title) ", " (buckets.len()) " intervals, " (highest)
                             ". The table below has the numbers." } {
                line.grid x1="0" y1="50" x2=(width) y2="50" {}
                @for (at, (bucket, figure)) in buckets.iter().zip(&figures).enumerate() {
                    rect.column x=(at * 10 + 1) width="8" y=(format!("{:.2}", HEIGHT - height(*figure)))
                        height=(format!("{:.2}", height(*figure))) {
                        title { (shown(*figure)) ", " (span(bucket)) }
                    }
                }
                line.axis x1="0" y1="100" x2=(width) y2="100" {}
            }
            @if let (Some(first), Some(last)) = (buckets.first(), buckets.last()) {
                div.scale aria-hidden="true" {
                    span { (absolute(first.begin)) }
                    span { (absolute(last.end)) }
                }
            }
        }
    }
}

/// The numbers of the charts.
pub(super) fn numbers(buckets: &[Bucket]) -> Markup {
    // Intervals without activity are omitted.
    let some = buckets.iter().rev().filter(|bucket| bucket.active + bucket.starts + bucket.stops > 0);
    let row = |bucket: &Bucket| {
        vec![
            html! { (absolute(bucket.begin)) },
            html! { (number(bucket.active)) },
            html! { (number(bucket.starts)) },
            html! { (number(bucket.stops)) },
            html! { (format!("{:.2}", bucket.node_hours())) },
        ]
    };
    let heads = ["From", "Active", "Started", "Stopped", "Node-hours"];
    table("Numbers of the charts, the latest first", &heads, some.map(row).collect(), "No run was active.")
}
