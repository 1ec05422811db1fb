//! The store's thread. It listens, and announces commits. Callers talk to the server on their own threads: see
//! [`super::seat`].

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::connect::Connector;
use super::dial::{Dialer, Tables};
use super::options::PostgresOptions;
use super::seat::{SessionHandle, close, runtime_of_one_thread};
use super::session::Session;
use super::time::Timekeeper;
use crate::error::{StoreError, StoreErrorKind, StoreResult};

/// How long connections may take to close.
const GOODBYE: Duration = Duration::from_secs(1);

/// The thread. Dropping it closes the connections and ends it. Every [`SessionHandle`] must be dropped before.
#[derive(Debug)]
pub(super) struct Driver {
    thread: Option<JoinHandle<()>>,
    stop: Option<oneshot::Sender<()>>,
    runtime: Handle,
}

impl Driver {
    /// Starts the thread with as many connections as the options say. None is opened yet. The first one may create the
    /// tables.
    pub(super) fn start(
        connector: &Connector,
        options: &Arc<PostgresOptions>,
        time: &Arc<Timekeeper>,
    ) -> StoreResult<(Self, Vec<SessionHandle>)> {
        let failed = |error: std::io::Error| {
            let text = format!("the thread that talks to PostgreSQL cannot be started: {error}");
            StoreError::new(StoreErrorKind::Io, text).with_source(error)
        };
        let runtime = runtime_of_one_thread().map_err(failed)?;
        let (handle, (alive, mut gone)) = (runtime.handle().clone(), mpsc::channel(1));
        let session = |nth| {
            let tables = if nth == 0 { Tables::New } else { Tables::Known };
            let dialer = Dialer::new(tables, connector.clone(), Arc::clone(options), Arc::clone(time));
            SessionHandle::new(Session::new(dialer), &handle, &alive)
        };
        let (sessions, seats): (Vec<_>, Vec<_>) = (0..options.connections).map(session).unzip();
        let (stop, stopped) = oneshot::channel();
        let work = async move {
            // It ends with an error: nothing is sent, the sender is dropped.
            let _ = stopped.await;
            // By then everything was sent, and no one uses a connection.
            let _ = timeout(GOODBYE, gone.recv()).await;
        };
        let thread = thread::Builder::new()
            .name("stationmaster-postgres".into())
            .spawn(move || {
                runtime.block_on(work);
                close(&seats, GOODBYE);
                // Does not wait for blocking work, such as resolving a server's name.
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        Ok((Self { thread: Some(thread), stop: Some(stop), runtime: handle }, sessions))
    }
}

impl Driver {
    /// Returns a handle for running more work on the thread. Work still running when this is dropped is dropped, too.
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
