//! The pages: what each asks of the store, and how it shows it.

mod chart;
mod health;
mod overview;
mod parts;
mod runs;
mod sensors;
mod task;
mod tasks;
mod window;

use std::time::Duration;

use maud::{DOCTYPE, Markup, html};

use super::Change;
use super::params::Params;
use super::trouble::Trouble;
use super::words::visible;
use crate::store::Store;
use crate::time::Timestamp;
pub(super) use parts::task_link;

/// How often a page that is kept open is asked for again, in seconds.
const REFRESH: u32 = 3;

/// What a page is made from.
pub(super) struct Look<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) now: Timestamp,
    pub(super) params: &'a Params,
    /// What forms carry, if this reader may change something.
    pub(super) mark: Option<&'a str>,
    pub(super) shows_payloads: bool,
}

/// A page without its frame.
pub(super) struct Page {
    title: String,
    /// The address of the page in the navigation that it belongs to.
    under: &'static str,
    /// Whether it is asked for again and again.
    is_live: bool,
    main: Markup,
}

pub(super) type View = fn(&Look<'_>) -> Result<Page, Trouble>;

const SECOND: Duration = Duration::from_secs(1);

/// All pages, by address, with how old what a reader sees may be.
pub(super) const ALL: [(&str, View, Duration); 7] = [
    ("/overview", overview::view, SECOND),
    ("/tasks", tasks::view, SECOND),
    ("/task", task::view, SECOND),
    ("/runs", runs::view, Duration::from_secs(2)),
    ("/sensors", sensors::view, Duration::from_secs(2)),
    ("/health", health::view, Duration::from_secs(2)),
    // It reads every task.
    ("/audit", health::audit, Duration::from_secs(30)),
];

const NAVIGATION: [(&str, &str); 5] = [
    ("overview", "Overview"),
    ("tasks", "Tasks"),
    ("runs", "Active runs"),
    ("sensors", "Sensors"),
    ("health", "Health"),
];

/// Returns the whole document of a page.
pub(super) fn whole(page: Page) -> String {
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (page.title) " · stationmaster" }
                link rel="icon" href="icon.svg";
                link rel="stylesheet" href="style.css";
                script src="script.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header {
                    a.brand href="overview" { "stationmaster" }
                    nav aria-label="Pages" {
                        @for (address, name) in NAVIGATION {
                            a href=(address) aria-current=[(page.under == address).then_some("page")] { (name) }
                        }
                    }
                    @if page.is_live {
                        // The script shows what belongs to it.
                        div.live id="live" hidden {
                            span id="live-at" {}
                            button type="button" id="live-button" { "Pause updates" }
                        }
                    }
                }
                // Only what a reader must know is spoken: not every update.
                p.status id="live-status" role="status" aria-live="polite" {}
                main id="main" tabindex="-1" data-refresh=[page.is_live.then_some(REFRESH)] {
                    h1 { (page.title) }
                    (page.main)
                }
            }
        }
    };
    document.into_string()
}

/// Returns the document that says why there is no page.
pub(super) fn trouble(trouble: &Trouble) -> String {
    whole(Page {
        title: trouble.status.canonical_reason().unwrap_or("Something is wrong").into(),
        under: "",
        is_live: false,
        main: html! {
            p.notice { (visible(&trouble.text)) }
            p { a href="overview" { "Go to the overview" } }
        },
    })
}

/// Returns the page that follows a change.
pub(super) fn changed(change: &Change, back: &str) -> Page {
    Page {
        title: "Done".into(),
        under: "",
        is_live: false,
        main: html! {
            p.notice id="result" {
                strong { (change.verb) " " (visible(&change.subject)) } ": " (visible(&change.result))
            }
            p { a href=(back) { "Go back" } }
        },
    }
}
