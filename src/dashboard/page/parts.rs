//! Parts that several pages share.

use maud::{Markup, html};

use super::Look;
use crate::admission::{Reason, Subject};
use crate::dashboard::params::{link, of_task};
use crate::dashboard::words::{absolute, iso, number, relative, visible, visible_lines};
use crate::id::{Holder, TaskKey};
use crate::lease::Lease;
use crate::task::{TaskRecord, TaskState};
use crate::time::Timestamp;

/// Returns the address of a task's page.
pub(in crate::dashboard) fn task_link(key: &TaskKey) -> String {
    let params = of_task(key);
    link("task", params.iter().map(|(name, value)| (*name, value.as_str())))
}

/// A task's name, with a link to its page.
pub(super) fn task(key: &TaskKey) -> Markup {
    let (whole, path) = (visible(key), visible(format!("{}/{}/{}/", key.namespace, key.workflow, key.run)));
    let name = whole.strip_prefix(&path).unwrap_or(&whole);
    html! { a href=(task_link(key)) { span.path { (breakable(&path)) } (breakable(name)) } }
}

/// A name that may be broken behind the characters that separate its parts.
pub(super) fn breakable(text: &str) -> Markup {
    html! {
        @for part in text.split_inclusive(['/', '_', '.', ':', '@']) {
            (part) @if part.ends_with(['/', '_', '.', ':', '@']) { wbr; }
        }
    }
}

/// A holder of leases, with a link to these leases.
pub(super) fn holder(name: &Holder) -> Markup {
    html! { a.name href=(link("tasks", [("state", "leased"), ("holder", name.as_str())])) { (visible(name)) } }
}

/// A text with a link to a list of tasks.
pub(super) fn listed(filters: &[(&str, &str)], text: impl std::fmt::Display) -> Markup {
    html! { a href=(link("tasks", filters.iter().copied())) { (text) } }
}

/// A number of tasks, with a link to them unless it is 0.
pub(super) fn counted(filters: &[(&str, &str)], count: impl std::fmt::Display) -> Markup {
    let shown = number(count);
    html! { @if shown == "0" { "0" } @else { (listed(filters, shown)) } }
}

/// Why a task waits. Links to the tasks that hold what is missing, or to those that also wait for it.
pub(super) fn reason(reason: &Reason) -> Markup {
    let text = visible(reason);
    match reason {
        Reason::PoolFull { pool, .. } | Reason::Reserved { pool, .. } => {
            listed(&[("state", "leased"), ("pool", pool.as_str())], text)
        }
        Reason::LimitReached { limit, .. } => {
            listed(&[("state", "leased"), ("limit_key", limit.as_str())], text)
        }
        Reason::Unserved { queue, .. } => listed(&[("state", "waiting"), ("queue", queue.as_str())], text),
        Reason::Paused { subject } => overview(subject, &text),
        Reason::NeverFits { pool, .. } => overview(&Subject::Pool(pool.clone()), &text),
        Reason::RateSpent { limit, .. } => overview(&Subject::Key(limit.clone()), &text),
        _ => html! { (text) },
    }
}

/// The id of the row of a queue, a pool, a limit or a family on the overview.
pub(super) fn row_id(subject: &Subject) -> String {
    let (kind, name) = match subject {
        Subject::Queue(name) => ("queue", name.as_str()),
        Subject::Pool(name) => ("pool", name.as_str()),
        Subject::Key(key) => ("limit", key.as_str()),
        Subject::Family(prefix) => ("family", prefix.as_str()),
    };
    std::iter::once(kind).chain(["-"]).chain(form_urlencoded::byte_serialize(name.as_bytes())).collect()
}

/// A text with a link to a row of the overview.
fn overview(subject: &Subject, text: &str) -> Markup {
    html! { a href={ "overview#" (row_id(subject)) } { (text) } }
}

/// An instant, relative and absolute.
pub(super) fn both(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(iso(at)) { (relative(at, now)) span.apart { " · " } span.exact { (absolute(at)) } } }
}

/// When a task entered its state, or until when it waits. The instants of its earlier attempts are ignored.
pub(super) fn since(task: &TaskRecord, now: Timestamp) -> Markup {
    let (word, at) = match task.state {
        _ if task.due.is_some() => ("due", task.due),
        TaskState::Scheduled => ("ready", Some(task.ready_at)),
        TaskState::Queued => ("granted", task.queued_at),
        TaskState::Running | TaskState::Sensing => ("started", task.started_at),
        _ => ("ended", task.ended_at),
    };
    html! { @match at { Some(at) => { (word) " " (when(at, now)) }, None => "–" } }
}

/// How many characters of a text a list shows. The task's page shows all of it.
const IN_LIST: usize = 200;

/// The beginning of a text.
pub(super) fn begin(text: &str) -> Markup {
    let more = text.chars().nth(IN_LIST).is_some();
    html! { span.message { (visible(text.chars().take(IN_LIST).collect::<String>())) @if more { "…" } } }
}

/// A text of several lines, which can be scrolled if it is long.
pub(super) fn text(text: &str) -> Markup {
    html! { pre.message tabindex="0" { (visible_lines(text)) } }
}

/// A button that copies a text. Only the script can do that, so it shows the button.
pub(super) fn copy(text: &str, label: &str) -> Markup {
    html! { button.copy.with-script type="button" data-copy=(text) { (label) } }
}

/// Until when a holder that was asked to stop must do so.
fn must_stop(at: Timestamp, now: Timestamp) -> Markup {
    let must = if at <= now { ", had to do so by " } else { ", must do so by " };
    html! {
        span.asked {
            span.tag.warn { "asked to stop" } (must)
            time datetime=(iso(at)) { (absolute(at)) } " (" (relative(at, now)) ")"
        }
    }
}

/// What a holder that was asked to stop must do, if it was.
pub(super) fn asked(lease: &Lease, now: Timestamp) -> Option<Markup> {
    lease.cancel_at.map(|at| must_stop(at, now))
}

/// When a lease ends.
pub(super) fn ends(lease: &Lease, now: Timestamp) -> Markup {
    html! {
        (when(lease.expires_at, now))
        @if lease.expires_at <= now { " " span.tag.warn { "expired" } }
        @if let Some(asked) = asked(lease, now) { " " (asked) }
    }
}

/// The note of a lease's holder about its work, and its instant.
pub(super) fn said(lease: &Lease, now: Timestamp) -> Option<Markup> {
    let note = lease.note.as_deref()?;
    Some(html! { (text(note)) @if let Some(at) = lease.noted_at { span.note { (when(at, now)) } } })
}

/// An instant, relative in the text and absolute in the tooltip.
pub(super) fn when(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(iso(at)) title=(absolute(at)) { (relative(at, now)) } }
}

/// An instant, absolute in the text and relative in the tooltip.
pub(super) fn exact(at: Timestamp, now: Timestamp) -> Markup {
    html! { time datetime=(iso(at)) title=(relative(at, now)) { (absolute(at)) } }
}

pub(super) fn maybe_when(at: Option<Timestamp>, now: Timestamp) -> Markup {
    html! { @match at { Some(at) => (when(at, now)), None => "–" } }
}

pub(super) fn state(state: TaskState) -> Markup {
    html! { span class={ "state " (state) } { (state.as_str().replace('_', " ")) } }
}

/// One part of a bar.
pub(super) struct Part {
    pub(super) class: &'static str,
    pub(super) name: &'static str,
    pub(super) count: i64,
}

/// A bar of parts of a total. Its numbers are also given as text for screen readers.
pub(super) fn bar(parts: &[Part], total: Option<i64>) -> Markup {
    let sum: i64 = parts.iter().map(|part| part.count.max(0)).sum();
    let whole = total.unwrap_or(sum).max(sum).max(1);
    let mut at = 0.0;
    let rects: Vec<(f64, f64, &str)> = parts
        .iter()
        .map(|part| {
            let width = part.count.max(0) as f64 * 100.0 / whole as f64;
            at += width;
            (at - width, width, part.class)
        })
        .collect();
    let words: Vec<String> =
        parts.iter().map(|part| format!("{} {}", number(part.count), part.name)).collect();
    html! {
        svg.bar viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label=(words.join(", ")) {
            rect.rest x="0" y="0" width="100" height="10" {}
            @for (x, width, class) in rects {
                @if width > 0.0 {
                    rect class=(class) x=(format!("{x:.2}")) y="0" width=(format!("{width:.2}")) height="10" {}
                }
            }
        }
    }
}

/// What the colours of bars mean.
pub(super) fn legend(parts: &[(&str, &str)]) -> Markup {
    html! { p.legend { @for (class, name) in parts { span class={ "state " (class) } { (name) } } } }
}

/// A named table whose wide parts can be scrolled. A column in which no row has a value is left out.
pub(super) fn table(caption: &str, heads: &[&str], rows: Vec<Vec<Markup>>, empty: &str) -> Markup {
    let is_used = |at: usize| rows.iter().any(|row| row.get(at).is_some_and(|field| !field.0.is_empty()));
    let used: Vec<bool> = (0..heads.len()).map(|at| at == 0 || is_used(at)).collect();
    html! {
        @if rows.is_empty() {
            p.empty { (empty) }
        } @else {
            div.scroll tabindex="0" role="region" aria-label=(caption) {
                // A phone shows a row as a card. Without its role, a screen reader would not treat it as a row.
                table role="table" {
                    caption { (caption) }
                    thead role="rowgroup" {
                        tr role="row" {
                            @for (head, _) in heads.iter().zip(&used).filter(|(_, used)| **used) {
                                th scope="col" role="columnheader" {
                                    (head) @if head.is_empty() { span.unseen { "Change" } }
                                }
                            }
                        }
                    }
                    tbody role="rowgroup" {
                        @for row in rows {
                            tr role="row" {
                                @let fields = row.into_iter().zip(heads).zip(&used).enumerate();
                                @for (at, ((field, head), _)) in fields.filter(|(_, (_, used))| **used) {
                                    @if at == 0 { th scope="row" role="rowheader" { (field) } }
                                    @else { td role="cell" data-head=(head) { (field) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Names and their values.
pub(super) fn sheet(lines: Vec<(&str, Markup)>) -> Markup {
    html! {
        dl.sheet { @for (name, value) in lines { div { dt { (name) } dd { (value) } } } }
    }
}

/// A part of a page that is replaced when it changes.
pub(super) fn section(id: &str, title: &str, body: &Markup) -> Markup {
    html! {
        section id=(id) data-live aria-labelledby={ (id) "-title" } {
            h2 id={ (id) "-title" } { (title) }
            (body)
        }
    }
}

const GRACES: [(u64, &str); 5] = [
    (60, "1 minute"),
    (0, "none: take it away now"),
    (600, "10 minutes"),
    (3_600, "1 hour"),
    (86_400, "1 day"),
];

/// The fields of a cancel. Without a holder, no one needs a grace.
pub(super) fn cancel_fields(is_held: bool) -> Markup {
    html! {
        @if is_held {
            div {
                label for="grace" { "Grace for its holder" }
                select id="grace" name="grace" {
                    @for (seconds, text) in GRACES { option value=(seconds) { (text) } }
                }
            }
        }
        div {
            label for="message" { "Why, for people" }
            input id="message" name="message" maxlength="500" autocomplete="off";
        }
    }
}

/// A button that resumes, or one that pauses after a confirmation, if the reader may do that.
pub(super) fn pause(look: &Look<'_>, kind: &str, name: &str, is_paused: bool) -> Markup {
    let verb = if is_paused { "resume" } else { "pause" };
    let Some(mark) = look.mark else { return html! {} };
    let label = format!("{verb} {kind} {}", visible(name));
    let form = html! {
        form.inline method="post" action="change" {
            input type="hidden" name="mark" value=(mark);
            input type="hidden" name="verb" value=(verb);
            input type="hidden" name="kind" value=(kind);
            input type="hidden" name="name" value=(name);
            button aria-label=(label) { (verb) @if !is_paused { " " (kind) } }
        }
    };
    html! {
        @if is_paused { (form) } @else { details.inline { summary aria-label={ (label) "…" } { "pause…" } (form) } }
    }
}

/// A text that is hidden unless the host shows payloads.
pub(super) fn payload(look: &Look<'_>, text: Option<&str>) -> Markup {
    html! {
        @match text {
            None | Some("") => "–",
            Some(text) if look.shows_payloads => pre { (visible_lines(text)) },
            Some(text) => span.hidden-text { (number(text.len())) " bytes, hidden" },
        }
    }
}
