//! What the threads of callers ask of the thread that talks to the server.

use std::fmt;
use std::sync::mpsc::{SyncSender, sync_channel};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::error::Failure;
use super::wire::{Answer, Statement, Touch};

/// What a caller wants done on a connection.
#[derive(Debug)]
pub(super) enum Request {
    /// Connects, and checks the tables.
    Connect,
    /// Closes the connection.
    Disconnect,
    /// Begins a transaction with these statements.
    Begin(Opening, Vec<Statement>, Touch),
    /// Runs these statements in it.
    Continue(Vec<Statement>),
    /// Commits it, and then waits for a flush if the commit does not.
    Commit { flushes: bool },
    /// Ends it. No caller waits for the result.
    RollBack,
    /// Runs this text, a transaction of its own.
    Tell(String),
}

/// How a transaction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opening {
    Read,
    Write,
    /// It writes, and renews first. So it must not wait long for anything else.
    Renew,
}

pub(super) type Reply = Result<Vec<Answer>, Failure>;

/// A request, and where its reply goes.
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) reply: ReplyTo,
}

/// Who waits for a reply.
pub(super) enum ReplyTo {
    Nobody,
    Thread(SyncSender<Reply>),
    Task(oneshot::Sender<Reply>),
}

impl ReplyTo {
    pub(super) fn send(self, reply: Reply) {
        // Who was waiting may have given up.
        match self {
            Self::Nobody => {}
            Self::Thread(waiting) => drop(waiting.try_send(reply)),
            Self::Task(waiting) => drop(waiting.send(reply)),
        }
    }
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
        self.0.send(Call { request, reply: ReplyTo::Thread(reply) }).map_err(|_| ended())?;
        answer.recv().map_err(|_| ended())?
    }

    /// [`Self::call`] for a task.
    pub(super) async fn ask(&self, request: Request) -> Reply {
        let (reply, answer) = oneshot::channel();
        self.0.send(Call { request, reply: ReplyTo::Task(reply) }).map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?
    }

    /// Sends a request without waiting.
    pub(super) fn send(&self, request: Request) {
        // A thread that has ended has closed its connections, and nothing is left to be done.
        let _ = self.0.send(Call { request, reply: ReplyTo::Nobody });
    }
}

fn ended() -> Failure {
    Failure::lost("the store's thread has ended: open the store again")
}
