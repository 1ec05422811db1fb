//! The thread that talks to the server. Callers send it requests and sleep until the reply comes, so that it
//! does not matter whether they are inside a runtime of their own.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::connect::Connector;
use super::dial::{Dialer, Tables};
use super::options::PostgresOptions;
use super::request::SessionHandle;
use super::session::Session;
use super::time::Timekeeper;
use crate::error::{StoreError, StoreErrorKind, StoreResult};

/// How long connections may take to close.
const GOODBYE: Duration = Duration::from_secs(1);

/// The thread. It ends when this is dropped; every [`SessionHandle`] must be dropped before.
#[derive(Debug)]
pub(super) struct Driver {
    thread: Option<JoinHandle<()>>,
    stop: Option<oneshot::Sender<()>>,
    runtime: Handle,
}

impl Driver {
    /// Starts it with as many connections as the options say; none is made yet. The first one may make the
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
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(failed)?;
        let mut serving = Vec::new();
        let mut session = |tables| {
            let (handle, calls) = SessionHandle::new();
            let dialer = Dialer::new(tables, connector.clone(), Arc::clone(options), Arc::clone(time));
            serving.push(Session::new(dialer).serve(calls));
            handle
        };
        let sessions = (0..options.connections)
            .map(|nth| session(if nth == 0 { Tables::New } else { Tables::Known }))
            .collect();
        let (stop, stopped) = oneshot::channel();
        let handle = runtime.handle().clone();
        let talk = async {
            let sessions: Vec<_> = serving.into_iter().map(tokio::spawn).collect();
            // It ends in an error: nothing is sent, the sender is dropped.
            let _ = stopped.await;
            let ended = async {
                for session in sessions {
                    // A session that panicked serves no more calls.
                    let _ = session.await;
                }
            };
            let _ = timeout(GOODBYE, ended).await;
        };
        let thread = thread::Builder::new()
            .name("stationmaster-postgres".into())
            .spawn(move || {
                runtime.block_on(talk);
                // Does not wait for blocking work, such as resolving a server's name.
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        Ok((Self { thread: Some(thread), stop: Some(stop), runtime: handle }, sessions))
    }
}

impl Driver {
    /// Returns a handle to run more on it. What still runs there when this is dropped is dropped, too.
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
