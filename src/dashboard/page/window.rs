//! The window of time that a page of runs shows, and links to other windows.

use std::time::Duration;

use chrono::{DateTime, NaiveDateTime, Utc};
use maud::{Markup, html};

use super::Look;
use crate::dashboard::params::link;
use crate::dashboard::trouble::Trouble;
use crate::time::Timestamp;

/// The windows that end at the present: name, length and width of a bar, in seconds.
const ZOOM: [(&str, i64, i64); 6] = [
    ("1h", 3_600, 60),
    ("6h", 6 * 3_600, 300),
    ("24h", 86_400, 1_200),
    ("7d", 7 * 86_400, 7_200),
    ("30d", 30 * 86_400, 43_200),
    ("90d", 90 * 86_400, 86_400),
];

/// The most bars of a typed window.
const BARS: i64 = 96;
const DAY: i64 = 86_400;

/// The parameters that stay in the address when the window changes.
const KEPT: [&str; 5] = ["namespace", "workflow", "user", "method", "status"];

/// A window in whole seconds, and the width of its bars.
pub(super) struct Window {
    /// The name of a length, unless both ends were typed.
    zoom: Option<&'static str>,
    begin: i64,
    end: i64,
    width: i64,
    /// Whether it reaches the present.
    pub(super) is_live: bool,
}

impl Window {
    pub(super) fn of(look: &Look<'_>) -> Result<Self, Trouble> {
        let now = look.now.as_micros().div_euclid(1_000_000).max(0);
        let typed = |name| look.params.get(name).map(|text| instant(name, text)).transpose();
        match (typed("from")?, typed("to")?) {
            (None, None) => Self::zoomed(look, now),
            (None, Some(_)) => Err(Trouble::bad("from: with `to`, say where the window begins")),
            (Some(begin), to) => Self::between(begin, to, now),
        }
    }

    /// A window of whole bars, so that they do not move as time passes.
    fn zoomed(look: &Look<'_>, now: i64) -> Result<Self, Trouble> {
        let zoom = look.params.get("zoom").unwrap_or("24h");
        let (zoom, length, width) = ZOOM
            .into_iter()
            .find(|(name, ..)| *name == zoom)
            .ok_or_else(|| Trouble::bad("zoom: 1h, 6h, 24h, 7d, 30d or 90d"))?;
        let until = match look.params.get("until") {
            None => now,
            Some(until) => {
                let until: i64 = until.parse().map_err(|_| Trouble::bad("until: a number of seconds"))?;
                // There are no runs after the present, nor before 1970.
                until.clamp(0, now)
            }
        };
        let end = until.div_euclid(width).saturating_add(1).saturating_mul(width);
        Ok(Self { zoom: Some(zoom), begin: end - length, end, width, is_live: until == now })
    }

    fn between(begin: i64, to: Option<i64>, now: i64) -> Result<Self, Trouble> {
        let end = to.unwrap_or_else(|| now.saturating_add(1).max(begin.saturating_add(1)));
        if end <= begin {
            return Err(Trouble::bad("to: the window ends before it begins"));
        }
        let length = end.saturating_sub(begin);
        let whole_days = || (length / BARS / DAY + 1) * DAY;
        let width = ZOOM.into_iter().map(|(.., width)| width).find(|width| length <= width * BARS);
        Ok(Self { zoom: None, begin, end, width: width.unwrap_or_else(whole_days), is_live: end > now })
    }

    pub(super) fn begin(&self) -> Timestamp {
        Timestamp::from_micros(self.begin.saturating_mul(1_000_000))
    }

    pub(super) fn end(&self) -> Timestamp {
        Timestamp::from_micros(self.end.saturating_mul(1_000_000))
    }

    pub(super) fn width(&self) -> Duration {
        Duration::from_secs(self.width.unsigned_abs())
    }

    /// The value that a form sends along, so that the window stays.
    pub(super) fn zoom(&self) -> Option<&'static str> {
        self.zoom
    }

    /// Links to other windows.
    pub(super) fn links(&self, look: &Look<'_>) -> Markup {
        let until = if self.is_live { String::new() } else { (self.end - 1).to_string() };
        let length = self.end - self.begin;
        let today = typed(midnight(look.now));
        let is_today = self.zoom.is_none() && self.is_live && typed(self.begin) == today;
        html! {
            nav.pages.zoom aria-label="Window" {
                @for (name, ..) in ZOOM {
                    a href=(to(look, &[("zoom", name), ("until", &until)]))
                        aria-current=[(self.zoom == Some(name)).then_some("true")] { (name) }
                }
                a href=(to(look, &[("from", &today)])) aria-current=[is_today.then_some("true")] { "Today" }
                a href=(self.moved(look, -length)) { "Earlier" }
                @if !self.is_live {
                    a href=(self.moved(look, length)) { "Later" }
                    a href=(to(look, &[("zoom", self.zoom.unwrap_or("24h"))])) { "Now" }
                }
            }
        }
    }

    /// A link to a window of this length that is moved by this much.
    fn moved(&self, look: &Look<'_>, by: i64) -> String {
        match self.zoom {
            Some(zoom) => {
                to(look, &[("zoom", zoom), ("until", &(self.end - 1).saturating_add(by).to_string())])
            }
            None => {
                let ends = [self.begin, self.end].map(|end| typed(end.saturating_add(by)));
                to(look, &[("from", &ends[0]), ("to", &ends[1])])
            }
        }
    }

    /// A link to this window with other filters.
    pub(super) fn with(&self, look: &Look<'_>, filters: &[(&str, &str)]) -> String {
        let names = ["zoom", "until", "from", "to"].into_iter().chain(KEPT);
        let kept = names.filter(|name| !filters.iter().any(|(other, _)| other == name));
        let kept = kept.map(|name| (name, look.params.get(name).unwrap_or_default()));
        link("runs", kept.chain(filters.iter().copied()))
    }

    /// The form fields for typing both ends.
    pub(super) fn fields(look: &Look<'_>) -> Markup {
        html! {
            @for (name, label) in [("from", "From, UTC"), ("to", "To, UTC")] {
                div.instant {
                    label for=(name) { (label) }
                    input type="datetime-local" id=(name) name=(name) step="1"
                        value=(look.params.get(name).unwrap_or_default());
                }
            }
        }
    }
}

/// A link to this page with another window.
fn to(look: &Look<'_>, window: &[(&str, &str)]) -> String {
    let kept = KEPT.map(|name| (name, look.params.get(name).unwrap_or_default()));
    link("runs", window.iter().copied().chain(kept))
}

/// Parses an instant in the format that browsers send.
fn instant(name: &str, text: &str) -> Result<i64, Trouble> {
    let read = |form| NaiveDateTime::parse_from_str(text.trim_end_matches('Z'), form).ok();
    ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]
        .into_iter()
        .find_map(read)
        .map(|at| at.and_utc().timestamp())
        .filter(|at| (0..=LATEST).contains(at))
        .ok_or_else(|| {
            Trouble::bad(format!("{name}: an instant from 1970 on, in UTC, such as 2026-01-31T03:00"))
        })
}

/// The last second of the year 9999.
const LATEST: i64 = 253_402_300_799;

/// Returns when the day of this instant began, in UTC and in seconds.
pub(super) fn midnight(now: Timestamp) -> i64 {
    now.as_micros().div_euclid(1_000_000).div_euclid(DAY) * DAY
}

/// Formats an instant as browsers send it.
fn typed(seconds: i64) -> String {
    let at = DateTime::<Utc>::from_timestamp(seconds.clamp(0, LATEST), 0).unwrap_or_default();
    at.format(if seconds % 60 == 0 { "%Y-%m-%dT%H:%M" } else { "%Y-%m-%dT%H:%M:%S" }).to_string()
}
