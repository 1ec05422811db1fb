//! Serves one connection on the caller's thread. Each connection has its own runtime, which runs while a caller waits
//! for a response. So a round trip wakes only that thread.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::error::{Failure, open_commit};
use super::group::{Fate, Leader, Outcome};
use super::request::{Reply, Request};
use super::session::Session;
use super::wire::Statement;

/// A connection's session, and what moves its bytes.
pub(super) struct Seat {
    session: Session,
    /// Created by the first call.
    runtime: Option<Runtime>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Does not wait for blocking work, such as resolving a server's name.
            runtime.shutdown_background();
        }
    }
}

impl Seat {
    fn handle(&mut self, request: Request) -> Reply {
        let (runtime, session) = self.parts()?;
        runtime.block_on(session.handle(request))
    }

    fn commit_group(&mut self, statements: Vec<Statement>, leader: Leader) -> Outcome {
        match self.parts() {
            Ok((runtime, session)) => runtime.block_on(session.commit_group(statements, leader)),
            // Each caller learns why from its own call.
            Err(_) => Outcome::Ran(statements.into_iter().map(Fate::Apart).collect()),
        }
    }

    /// Returns the session and the runtime that serves it.
    fn parts(&mut self) -> Result<(&mut Runtime, &mut Session), Failure> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => runtime_of_one_thread()
                .map_err(|error| Failure::lost(format!("no connection can be served: {error}")))?,
        };
        Ok((self.runtime.insert(runtime), &mut self.session))
    }
}

pub(super) fn runtime_of_one_thread() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_io().enable_time().build()
}

/// Returns whether this thread can serve a connection. A thread that is not in a runtime may run one.
fn serves_here() -> bool {
    Handle::try_current().is_err()
}

/// Moves the bytes that are ready without waiting for more: writes pending output, and reads what has arrived.
pub(super) async fn look() {
    // The first yield checks the socket, the second one runs the task that waits for it.
    yield_now().await;
    yield_now().await;
}

/// A seat that its users share, one after the other.
pub(super) type SharedSeat = Arc<Mutex<Seat>>;

/// Makes requests on one connection.
#[derive(Clone)]
pub(super) struct SessionHandle {
    seat: Option<SharedSeat>,
    /// Serves calls from threads inside a runtime, which may not run another one.
    helpers: Option<Handle>,
    /// The store's thread waits until the last one is dropped.
    _alive: mpsc::Sender<()>,
}

impl fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionHandle")
    }
}

impl SessionHandle {
    pub(super) fn new(session: Session, helpers: &Handle, alive: &mpsc::Sender<()>) -> (Self, SharedSeat) {
        let seat = Arc::new(Mutex::new(Seat { session, runtime: None }));
        let handle =
            Self { seat: Some(Arc::clone(&seat)), helpers: Some(helpers.clone()), _alive: alive.clone() };
        (handle, seat)
    }

    /// Creates a handle to no connection.
    #[cfg(test)]
    pub(super) fn nowhere() -> Self {
        Self { seat: None, helpers: None, _alive: mpsc::channel(1).0 }
    }

    /// Returns whether this thread can send a `NOTIFY` on this connection itself, outside transactions.
    pub(super) fn announces_beside(&self) -> bool {
        serves_here() && self.seat.as_ref().is_some_and(|seat| seat.lock().session.announces_beside())
    }

    /// Makes a request, and waits for its reply.
    pub(super) fn call(&self, request: Request) -> Reply {
        self.run(|seat| seat.handle(request))?
    }

    /// Commits a group.
    pub(super) fn commit_group(&self, statements: Vec<Statement>, leader: Leader) -> Outcome {
        let count = statements.len();
        self.run(move |seat| seat.commit_group(statements, leader)).unwrap_or_else(|_| {
            // The thread that ran it ended, perhaps in the middle.
            let lost = || Failure::Lost(open_commit("the store's thread has ended"));
            Outcome::Ran((0..count).map(|_| Fate::Done(Err(lost()))).collect())
        })
    }

    /// Runs work on the connection, on a helper's thread if this one may not run a runtime.
    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Seat) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let Some(seat) = &self.seat else { return Err(ended()) };
        if serves_here() {
            return Ok(work(&mut seat.lock()));
        }
        let (reply, answer) = sync_channel(1);
        let seat = Arc::clone(seat);
        let helpers = self.helpers.as_ref().ok_or_else(ended)?;
        helpers.spawn_blocking(move || drop(reply.send(work(&mut seat.lock()))));
        answer.recv().map_err(|_| ended())
    }

    /// Makes a request like [`Self::call`], in a task.
    pub(super) async fn ask(&self, request: Request) -> Reply {
        let (Some(seat), Some(helpers)) = (self.seat.clone(), &self.helpers) else { return Err(ended()) };
        helpers.spawn_blocking(move || seat.lock().handle(request)).await.map_err(|_| ended())?
    }
}

/// Closes these connections, and waits at most this long until the server was notified. A connection in use is left to
/// its user.
pub(super) fn close(seats: &[SharedSeat], longest: Duration) {
    let deadline = Instant::now() + longest;
    let mut closing = Vec::new();
    for seat in seats {
        let Some(mut seat) = seat.try_lock() else { continue };
        if let Some(connection) = seat.session.take()
            && let Some(runtime) = &seat.runtime
        {
            let driving = connection.hang_up();
            runtime.block_on(look());
            closing.push((driving, seat));
        }
    }
    for (mut driving, seat) in closing {
        if let Some(runtime) = &seat.runtime {
            let _ = runtime.block_on(async { timeout_at(deadline, driving.ended()).await });
        }
    }
}

fn ended() -> Failure {
    Failure::lost("the store's thread has ended: open the store again")
}
