//! What sharing pokes saved.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};

use super::Look;
use super::parts::table;
use super::window::midnight;
use crate::dashboard::trouble::Trouble;
use crate::dashboard::words::{number, short, visible};
use crate::id::SensorKind;
use crate::sensor::PokeCounts;
use crate::time::Timestamp;

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How many kinds are shown of each period.
const KINDS: usize = 50;

#[derive(Default)]
struct Sum {
    poked: u64,
    saved: u64,
    duration: Duration,
}

impl Sum {
    fn add(&mut self, counts: &PokeCounts) {
        self.poked = self.poked.saturating_add(counts.poked);
        self.saved = self.saved.saturating_add(counts.saved);
        self.duration = self.duration.saturating_add(counts.duration);
    }

    fn row(&self, period: &str, kind: Markup) -> Vec<Markup> {
        let all = self.poked.saturating_add(self.saved);
        vec![
            html! { (period) },
            kind,
            html! { (number(self.poked)) },
            html! { (number(self.saved)) },
            html! { @if all == 0 { "–" } @else { (format!("{:.0} %", self.saved as f64 * 100.0 / all as f64)) } },
            html! { (short(self.duration)) },
        ]
    }
}

pub(super) fn saved(look: &Look<'_>) -> Result<Markup, Trouble> {
    let now = look.now;
    let today = Timestamp::from_micros(midnight(now).saturating_mul(1_000_000));
    let periods = [("Today, UTC", today), ("24 hours", now - DAY), ("7 days", now - DAY * 7)];
    // A worker's clock may be a little ahead.
    let counts = look.store.read(|tx| tx.poke_counts(now - DAY * 7..now + HOUR))?;
    let (mut rows, mut is_cut) = (Vec::new(), false);
    for (period, since) in periods {
        let (mut all, mut kinds) = (Sum::default(), BTreeMap::<&SensorKind, Sum>::new());
        for counts in counts.iter().filter(|counts| counts.hour >= since) {
            all.add(counts);
            kinds.entry(&counts.kind).or_default().add(counts);
        }
        if kinds.len() != 1 && !counts.is_empty() {
            rows.push(all.row(period, html! { "all kinds" }));
        }
        is_cut |= kinds.len() > KINDS;
        rows.extend(kinds.iter().take(KINDS).map(|(kind, sum)| sum.row(period, html! { (visible(kind)) })));
    }
    Ok(html! {
        (table("Pokes made and saved", &["Period", "Kind", "Pokes made", "Pokes saved", "Share saved", "Time poking"],
               rows, "No worker has stored that it poked in the last 7 days."))
        @if is_cut { p.note { "Only the first " (KINDS) " kinds of each period are listed. The sums have all." } }
        p.note {
            "An hour counts if it began in the period. Workers store their counts every third of their lease, so the "
            "latest pokes may be missing."
        }
    })
}
