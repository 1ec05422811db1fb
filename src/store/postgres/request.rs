//! What the threads of callers ask of the thread that talks to the server.

use std::fmt;
use std::sync::mpsc::{SyncSender, sync_channel};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::error::Failure;
use super::wire::{Answer, Statement, Touch};

/// What a caller wants done on a connection.
#[derive(Debug)]
pub(super) enum Request {
    /// Connects, and checks the tables.
    Connect,
    /// Begins a transaction with these statements.
    Begin(Vec<Statement>, Touch),
    /// Runs these statements in it.
    Continue(Vec<Statement>),
    /// Commits it.
    Commit,
    /// Ends it. No caller waits for the result.
    RollBack,
}

pub(super) type Reply = Result<Vec<Answer>, Failure>;

/// A request, and where its reply goes.
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) reply: SyncSender<Reply>,
}

/// Where requests for one connection are sent.
#[derive(Clone)]
pub(super) struct SessionHandle(UnboundedSender<Call>);

impl fmt::Debug for SessionHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionHandle")
    }
}

impl SessionHandle {
    /// Creates a handle, and the receiver of its requests.
    pub(super) fn new() -> (Self, UnboundedReceiver<Call>) {
        let (sender, calls) = unbounded_channel();
        (Self(sender), calls)
    }

    /// Sends a request, and waits for its reply.
    pub(super) fn call(&self, request: Request) -> Reply {
        let (reply, answer) = sync_channel(1);
        let ended = || Failure::lost("the store's thread has ended: open the store anew");
        self.0.send(Call { request, reply }).map_err(|_| ended())?;
        answer.recv().map_err(|_| ended())?
    }

    /// Sends a request without waiting.
    pub(super) fn send(&self, request: Request) {
        let (reply, _) = sync_channel(1);
        // A thread that has ended has closed its connections, and nothing is left to be done.
        let _ = self.0.send(Call { request, reply });
    }
}
