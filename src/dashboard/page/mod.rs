//! The pages: what each reads from the store, and how it shows it.

mod admitters;
mod attention;
mod before;
mod chart;
mod consumers;
mod facts;
mod health;
mod life;
mod next;
mod overview;
mod parts;
mod reasons;
mod runs;
mod savings;
mod search;
mod sensor;
mod sensors;
mod task;
mod tasks;
mod window;

use std::time::Duration;

use axum::http::StatusCode;
use maud::{DOCTYPE, Markup, html};

use super::change::Outcome;
use super::params::Params;
use super::trouble::Trouble;
use super::words::{absolute, number, visible};
use crate::store::Store;
use crate::time::Timestamp;
use parts::copy;
pub(super) use parts::task_link;
pub(super) use tasks::SHOWN as IN_LIST;

/// How often an open page is refreshed, in seconds.
const REFRESH: u32 = 3;

/// What a page is rendered from.
pub(super) struct Look<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) now: Timestamp,
    pub(super) params: &'a Params,
    /// The mark for forms, if this reader may change something.
    pub(super) mark: Option<&'a str>,
    pub(super) shows_payloads: bool,
}

/// A page without its frame.
pub(super) struct Page {
    title: String,
    pub(super) status: StatusCode,
    /// The address of the page in the navigation that it belongs to.
    under: &'static str,
    /// Whether it is refreshed periodically.
    is_live: bool,
    /// The instant that it shows.
    as_of: Option<Timestamp>,
    /// A text that the page offers to copy.
    copies: Option<String>,
    main: Markup,
}

impl Page {
    /// Creates a page of the store's current state, which the browser keeps up to date.
    fn of(look: &Look<'_>, title: impl Into<String>, under: &'static str, main: Markup) -> Self {
        let (title, as_of) = (title.into(), Some(look.now));
        Self { title, status: StatusCode::OK, under, is_live: true, as_of, copies: None, main }
    }
}

pub(super) type View = fn(&Look<'_>) -> Result<Page, Trouble>;

const SECOND: Duration = Duration::from_secs(1);

/// All pages, by address, and how old the shown page may be.
pub(super) const ALL: [(&str, View, Duration); 9] = [
    ("/overview", overview::view, SECOND),
    ("/tasks", tasks::view, SECOND),
    ("/task", task::view, SECOND),
    ("/before", before::view, SECOND),
    ("/next", next::view, Duration::from_secs(2)),
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
                        // The script shows the part that needs it.
                        div.live id="live" hidden {
                            span id="live-at" {}
                            button type="button" id="live-button" { "Pause updates" }
                        }
                    }
                }
                // Screen readers speak only what a reader must know, not every update.
                p.status id="live-status" role="status" aria-live="polite" {}
                main id="main" tabindex="-1" data-refresh=[page.is_live.then_some(REFRESH)] {
                    div.title {
                        h1 { (page.title) }
                        @if let Some(text) = page.copies { (copy(&text, "Copy the key")) }
                    }
                    @if let Some(at) = page.as_of { p.note id="as-of" data-live { "As of " (absolute(at)) } }
                    (page.main)
                }
            }
        }
    };
    document.into_string()
}

/// Returns the document that explains why there is no page.
pub(super) fn trouble(trouble: &Trouble) -> String {
    whole(Page {
        title: trouble.status.canonical_reason().unwrap_or("Something is wrong").into(),
        status: trouble.status,
        under: "",
        is_live: false,
        as_of: None,
        copies: None,
        main: html! {
            p.notice { (visible(&trouble.text)) }
            p { a href="overview" { "Go to the overview" } }
        },
    })
}

/// How many unchanged tasks are listed after a change of many.
const LEFT: usize = 20;

/// Returns the page that follows a change.
pub(super) fn changed(verb: &str, outcomes: &[Outcome], back: &str) -> Page {
    let left: Vec<&Outcome> = outcomes.iter().filter(|outcome| !outcome.is_done).collect();
    Page {
        title: "Done".into(),
        status: StatusCode::OK,
        under: "",
        is_live: false,
        as_of: None,
        copies: None,
        main: html! {
            div.notice.fine[left.is_empty()] id="result" {
                @if let [outcome] = outcomes {
                    strong { (verb) " " (visible(&outcome.subject)) } ": " (visible(&outcome.result))
                } @else {
                    strong { (verb) ": " (number(outcomes.len() - left.len())) " of " (number(outcomes.len())) " done." }
                    // With full stops, it can also be read as one line.
                    @if !left.is_empty() {
                        ul.reasons {
                            @for outcome in left.iter().take(LEFT) {
                                li { " " (visible(&outcome.subject)) ": " (visible(&outcome.result)) "." }
                            }
                            @if left.len() > LEFT { li { " " (number(left.len() - LEFT)) " more." } }
                        }
                    }
                }
            }
            p { a href=(back) { "Go back" } }
        },
    }
}
