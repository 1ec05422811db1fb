//! Carries out what a form requests, logs it and shows the result.

use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;

use super::answer::html;
use super::page::{self, changed};
use super::params::Params;
use super::routes::App;
use super::tasks::{Tasks, Verb, numbered};
use super::trouble::Trouble;
use super::{Change, Dashboard};
use crate::admission::{Drain, Subject};

/// A form has a few names of at most 512 bytes, three times as long when escaped, and perhaps the numbers of a page's
/// tasks.
const MOST_BYTES: usize = 32 * 1_024;

/// The longest grace that a form can set.
const MOST_GRACE: u64 = 7 * 86_400;

/// The result for one task or subject.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) subject: String,
    pub(super) is_done: bool,
    pub(super) result: String,
}

pub(super) async fn answer(State(app): State<Arc<App>>, request: Request) -> Response {
    match do_it(&app, request).await {
        Ok((order, outcomes)) => {
            html(StatusCode::OK, page::whole(changed(order.verb(), &outcomes, &order.back())))
        }
        Err(trouble) => html(trouble.status, page::trouble(&trouble)),
    }
}

async fn do_it(app: &Arc<App>, request: Request) -> Result<(Order, Vec<Outcome>), Trouble> {
    let forbidden = |text: &str| Trouble::new(StatusCode::FORBIDDEN, text);
    let (parts, body) = request.into_parts();
    let who = app.who(&parts).ok_or_else(|| forbidden("These pages are read-only."))?;
    let body = to_bytes(body, MOST_BYTES).await;
    let params =
        Params::of(&body.map_err(|_| Trouble::new(StatusCode::PAYLOAD_TOO_LARGE, "The form is too long."))?);
    if let Some(why) = app.secret.refuses(&parts.headers, params.get("mark")) {
        return Err(forbidden(why));
    }
    let shared = Arc::clone(app);
    app.blocking(move || {
        let order = Order::of(&params)?;
        let done = order.apply(&shared.board, &who);
        // Also after a failure, because it may have been committed.
        shared.cache.clear();
        // Logged here, because the requester may be gone by now.
        let log = |subject, result| {
            log_change(&shared.board, &Change { who: who.clone(), verb: order.verb(), subject, result });
        };
        match &done {
            Ok(outcomes) => {
                outcomes.iter().for_each(|done| log(done.subject.clone(), done.result.clone()));
            }
            Err(trouble) if trouble.is_unknown => {
                order.subjects().into_iter().for_each(|subject| log(subject, "may have taken effect".into()));
            }
            Err(_) => (),
        }
        done.map(|outcomes| (order, outcomes))
    })
    .await
}

fn log_change(board: &Dashboard, change: &Change) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "stationmaster::dashboard", who = %change.who, verb = change.verb,
        subject = %change.subject, result = %change.result, "changed");
    if let Some(log) = &board.log {
        log(change);
    }
}

/// The request of a form.
enum Order {
    Tasks(Verb, Tasks),
    Pause(Subject),
    Resume(Subject),
}

fn subject(params: &Params) -> Result<Subject, Trouble> {
    let name = params.get("name").unwrap_or_default();
    Ok(match params.get("kind").unwrap_or_default() {
        "queue" => Subject::Queue(name.parse()?),
        "pool" => Subject::Pool(name.parse()?),
        "limit" => Subject::Key(name.parse()?),
        "family" => Subject::Family(name.parse()?),
        _ => return Err(Trouble::bad("What is paused is a queue, a pool, a limit or a family.")),
    })
}

impl Order {
    fn of(params: &Params) -> Result<Self, Trouble> {
        let verb = match params.get("verb").unwrap_or_default() {
            "pause" => return Ok(Self::Pause(subject(params)?)),
            "resume" => return Ok(Self::Resume(subject(params)?)),
            "cancel" => {
                let seconds = params.get("grace").unwrap_or("60").parse::<u64>().ok();
                let seconds = seconds
                    .filter(|seconds| *seconds <= MOST_GRACE)
                    .ok_or_else(|| Trouble::bad("The grace is a number of seconds, at most seven days."))?;
                Verb::Cancel(Duration::from_secs(seconds), params.get("message").map(str::to_owned))
            }
            "retry" => Verb::Retry,
            "delete" => Verb::Delete,
            _ => return Err(Trouble::bad("A form cancels, retries, deletes, pauses or resumes.")),
        };
        Ok(Self::Tasks(verb, Tasks::of(params)?))
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Tasks(verb, _) => verb.name(),
            Self::Pause(_) => "pause",
            Self::Resume(_) => "resume",
        }
    }

    /// Returns the address of the page that it came from.
    fn back(&self) -> String {
        match self {
            Self::Tasks(_, tasks) => tasks.back(),
            Self::Pause(Subject::Queue(_)) | Self::Resume(Subject::Queue(_)) => "overview#queues".into(),
            Self::Pause(Subject::Pool(_)) | Self::Resume(Subject::Pool(_)) => "overview#pools".into(),
            Self::Pause(_) | Self::Resume(_) => "overview#limits".into(),
        }
    }

    /// Returns the names of the subjects.
    fn subjects(&self) -> Vec<String> {
        match self {
            Self::Tasks(_, Tasks::One(key)) => vec![format!("task {key}")],
            Self::Tasks(_, Tasks::Selected(numbers, _)) => numbers.iter().map(numbered).collect(),
            Self::Pause(subject) | Self::Resume(subject) => vec![subject.to_string()],
        }
    }

    /// Carries it out, and returns the result for each subject.
    fn apply(&self, board: &Dashboard, who: &str) -> Result<Vec<Outcome>, Trouble> {
        let store = board.store.as_ref();
        let (subject, is_done, result) = match self {
            Self::Tasks(verb, tasks) => return tasks.apply(store, board.clock.now(), verb, who),
            Self::Pause(subject) => {
                let subjects = std::slice::from_ref(subject);
                let done = store.write(|tx| tx.pause(subjects))?;
                // After the commit. A pause waits for the ticks before it, so this sees what they granted.
                let drains = store.read(|tx| tx.drain(subjects));
                let is_new = done.first() == Some(&true);
                let was = if is_new { "paused" } else { "was paused before" };
                let result = match drains.as_deref().map(<[Drain]>::first) {
                    // The pause is in force anyway, and who paused it is logged.
                    Err(_) => format!("{was}; what of it runs could not be read"),
                    Ok(Some(Drain::Draining { leases: 1 })) => format!("{was}; 1 lease goes on"),
                    Ok(Some(Drain::Draining { leases })) => format!("{was}; {leases} leases go on"),
                    Ok(_) => format!("{was}; nothing of it runs"),
                };
                (subject, is_new, result)
            }
            Self::Resume(subject) => {
                let done = store.write(|tx| tx.resume(std::slice::from_ref(subject)))?;
                let is_new = done.first() == Some(&true);
                (subject, is_new, if is_new { "resumed" } else { "was not paused" }.into())
            }
        };
        Ok(vec![Outcome { subject: subject.to_string(), is_done, result }])
    }
}
