//! The thread that talks to the server. Callers send it orders and sleep until the answer comes, so that it
//! does not matter whether they are inside a runtime of their own.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::connect::Connector;
use super::error::Failure;
use super::link::{Done, Link, Order, Work};
use super::options::PostgresOptions;
use super::time::Timekeeper;
use crate::error::{StoreError, StoreErrorKind, StoreResult};
use crate::store::TxMode;

/// Where orders for one connection go.
#[derive(Clone)]
pub(super) struct Desk(UnboundedSender<Order>);

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk")
    }
}

impl Desk {
    /// A desk, and where its orders arrive.
    pub(super) fn new() -> (Self, UnboundedReceiver<Order>) {
        let (sender, orders) = unbounded_channel();
        (Self(sender), orders)
    }

    /// Has it done, and waits.
    pub(super) fn have(&self, work: Work) -> Done {
        let (reply, answer) = sync_channel(1);
        let ended = || Failure::lost("the store's thread has ended: open the store anew");
        self.0.send(Order { work, reply }).map_err(|_| ended())?;
        answer.recv().map_err(|_| ended())?
    }

    /// Leaves it to be done.
    pub(super) fn leave(&self, work: Work) {
        let (reply, _) = sync_channel(1);
        // A thread that has ended has closed its connections, and nothing is left to be done.
        let _ = self.0.send(Order { work, reply });
    }
}

/// How long connections are given to say good-bye.
const GOODBYE: Duration = Duration::from_secs(1);

/// The thread. It ends when this is dropped; every [`Desk`] must be dropped before.
#[derive(Debug)]
pub(super) struct Driver {
    thread: Option<JoinHandle<()>>,
    stop: Option<oneshot::Sender<()>>,
    runtime: Handle,
}

impl Driver {
    /// Starts it with a connection that writes and as many that read as the options say; none is made yet.
    pub(super) fn start(
        connector: &Connector,
        options: &Arc<PostgresOptions>,
        time: &Arc<Timekeeper>,
    ) -> StoreResult<(Self, Desk, Vec<Desk>)> {
        let failed = |error: std::io::Error| {
            let text = format!("the thread that talks to PostgreSQL cannot be started: {error}");
            StoreError::new(StoreErrorKind::Io, text).with_source(error)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(failed)?;
        let mut serving = Vec::new();
        let mut link = |mode| {
            let (desk, orders) = Desk::new();
            let link = Link::new(mode, connector.clone(), Arc::clone(options), Arc::clone(time));
            serving.push(link.serve(orders));
            desk
        };
        let writer = link(TxMode::Write);
        let readers = (0..options.readers.max(1)).map(|_| link(TxMode::Read)).collect();
        let (stop, stopped) = oneshot::channel();
        let handle = runtime.handle().clone();
        let talk = async {
            let links: Vec<_> = serving.into_iter().map(tokio::spawn).collect();
            // It ends in an error: nobody sends, the sender is dropped.
            let _ = stopped.await;
            let ended = async {
                for link in links {
                    // One that panicked answers nobody any more.
                    let _ = link.await;
                }
            };
            let _ = timeout(GOODBYE, ended).await;
        };
        let thread = thread::Builder::new()
            .name("stationmaster-postgres".into())
            .spawn(move || {
                runtime.block_on(talk);
                // Not for what blocks, such as asking for the address of a server's name.
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        Ok((Self { thread: Some(thread), stop: Some(stop), runtime: handle }, writer, readers))
    }
}

impl Driver {
    /// Where more can be run on it. What goes on there when this is dropped is dropped, too.
    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop = None;
        let Some(thread) = self.thread.take() else { return };
        // The host's connector may hold the store, and then this is that thread.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}
