//! Carrying out what a form asks for, logging it and showing the result.

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
use super::trouble::Trouble;
use super::words::relative;
use super::{Change, Dashboard};
use crate::admission::{Drain, Subject};
use crate::id::TaskKey;
use crate::ops::{Cancellation, Changed, Cleared};
use crate::task::TaskState;
use crate::time::Timestamp;

/// A form has a few names of at most 512 bytes, three times as long when they are escaped.
const MOST_BYTES: usize = 32 * 1_024;

/// The longest grace that a form gives.
const MOST_GRACE: u64 = 7 * 86_400;

pub(super) async fn answer(State(app): State<Arc<App>>, request: Request) -> Response {
    match do_it(&app, request).await {
        Ok((change, back)) => html(StatusCode::OK, page::whole(changed(&change, &back))),
        Err(trouble) => html(trouble.status, page::trouble(&trouble)),
    }
}

async fn do_it(app: &Arc<App>, request: Request) -> Result<(Change, String), Trouble> {
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
        // Also after a failure: it may have been committed.
        shared.cache.clear();
        let change = Change { who, verb: order.verb(), subject: order.subject(), result: done? };
        // Here, because the requester may be gone by now.
        tell(&shared.board, &change);
        Ok((change, order.back()))
    })
    .await
}

fn tell(board: &Dashboard, change: &Change) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "stationmaster::dashboard", who = %change.who, verb = change.verb,
        subject = %change.subject, result = %change.result, "changed");
    if let Some(log) = &board.log {
        log(change);
    }
}

/// What a form asks for.
enum Order {
    Cancel(TaskKey, Duration, Option<String>),
    Retry(TaskKey),
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
        match params.get("verb").unwrap_or_default() {
            "cancel" => {
                let seconds = params.get("grace").unwrap_or("60").parse::<u64>().ok();
                let seconds = seconds
                    .filter(|seconds| *seconds <= MOST_GRACE)
                    .ok_or_else(|| Trouble::bad("The grace is a number of seconds, at most seven days."))?;
                let message = params.get("message").map(str::to_owned);
                Ok(Self::Cancel(params.task()?, Duration::from_secs(seconds), message))
            }
            "retry" => Ok(Self::Retry(params.task()?)),
            "pause" => Ok(Self::Pause(subject(params)?)),
            "resume" => Ok(Self::Resume(subject(params)?)),
            _ => Err(Trouble::bad("A form cancels, retries, pauses or resumes.")),
        }
    }

    fn verb(&self) -> &'static str {
        match self {
            Self::Cancel(..) => "cancel",
            Self::Retry(_) => "retry",
            Self::Pause(_) => "pause",
            Self::Resume(_) => "resume",
        }
    }

    fn subject(&self) -> String {
        match self {
            Self::Cancel(key, ..) | Self::Retry(key) => format!("task {key}"),
            Self::Pause(subject) | Self::Resume(subject) => subject.to_string(),
        }
    }

    fn back(&self) -> String {
        match self {
            Self::Cancel(key, ..) | Self::Retry(key) => page::task_link(key),
            Self::Pause(_) | Self::Resume(_) => "overview".into(),
        }
    }

    /// Does it, and returns the result as text.
    fn apply(&self, board: &Dashboard, who: &str) -> Result<String, Trouble> {
        let (store, now) = (board.store.as_ref(), board.clock.now());
        Ok(match self {
            Self::Cancel(key, grace, message) => {
                let by = format!("cancelled by {who} on the dashboard");
                let message = message.as_ref().map_or(by.clone(), |message| format!("{by}: {message}"));
                let keys = std::slice::from_ref(key);
                let done = store.write(|tx| tx.cancel(now, *grace, keys, &message))?;
                done.first().map_or_else(String::new, |done| cancelled(*done, now))
            }
            Self::Retry(key) => retry(board, now, key)?,
            Self::Pause(subject) => {
                let subjects = std::slice::from_ref(subject);
                let done = store.write(|tx| tx.pause(subjects))?;
                // After the commit: a pause waits for the ticks before it, so this sees what they granted.
                let drains = store.read(|tx| tx.drain(subjects))?;
                let was = if done.first() == Some(&true) { "paused" } else { "was paused before" };
                match drains.first() {
                    Some(Drain::Draining { leases: 1 }) => format!("{was}; 1 lease goes on"),
                    Some(Drain::Draining { leases }) => format!("{was}; {leases} leases go on"),
                    _ => format!("{was}; nothing of it runs"),
                }
            }
            Self::Resume(subject) => {
                let done = store.write(|tx| tx.resume(std::slice::from_ref(subject)))?;
                if done.first() == Some(&true) { "resumed".into() } else { "was not paused".into() }
            }
        })
    }
}

fn cancelled(done: Cancellation, now: Timestamp) -> String {
    match done {
        Cancellation::Ended(was) => format!("cancelled; it was {was}"),
        Cancellation::AskedUntil(at) => {
            format!("its holder was asked to stop; the lease ends {}", relative(at, now))
        }
        Cancellation::AlreadyEnded(state) => format!("left as it is: it had ended as {state}"),
        Cancellation::Unknown => "there is no such task".into(),
    }
}

/// Runs an ended task again, and makes one ready that waits to be tried again.
fn retry(board: &Dashboard, now: Timestamp, key: &TaskKey) -> Result<String, Trouble> {
    let keys = std::slice::from_ref(key);
    let text = board.store.write(|tx| {
        Ok(match tx.clear(now, keys)?.first() {
            Some(Cleared::Ready) => "ready again".to_owned(),
            Some(Cleared::NotEnded(TaskState::UpForRetry)) => {
                match tx.change(now, keys, |task| task.not_before = None)?.first() {
                    Some(Changed::Done) => "ready now".to_owned(),
                    _ => "left as it is: it changed meanwhile".to_owned(),
                }
            }
            Some(Cleared::NotEnded(state)) => format!("left as it is: it is {state}"),
            _ => "there is no such task".to_owned(),
        })
    })?;
    Ok(text)
}
